//! Results of requests that succeeded, and waiting times.

messages! {
    LOGGED_OUT
        "logged out"
        "已退出登录"
    ROLE_SWITCHED
        "role switched"
        "已切换角色"
    PASSWORD_SET
        "password set"
        "密码已设置"

    ONE_SECOND
        "1 second"
        "1 秒"
    SECONDS
        "{count} seconds"
        "{count} 秒"
    MINUTES
        "{count} minutes"
        "{count} 分钟"
}
