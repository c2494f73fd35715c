//! HTML pages. Templates look these rows up by key.

use super::Message;

macro_rules! rows {
    ($($key:ident $english:literal $chinese:literal)*) => { &[$(row!($key $english $chinese),)*] };
}

/// The texts of all pages.
pub(crate) const PAGE_MESSAGES: &[Message] = rows! {
    brand
        "IT Help Desk"
        "IT 服务台"
    language_other
        "中文"
        "English"
    client_h5
        "Employee help desk"
        "员工服务台"
    client_itagent
        "Agent workspace"
        "坐席工作台"
    client_itadmin
        "Administration"
        "管理后台"

    // The sign-in page.
    signin_title
        "Sign in with WeCom"
        "使用企业微信登录"
    signin_hint
        "No password needed. Use your WeCom account."
        "无需密码，使用企业微信账号即可登录。"
    signin_hint_app
        "You're already in WeCom. One tap signs you in."
        "当前已在企业微信中，点击下方按钮即可登录。"
    signin_steps
        "How it works"
        "登录步骤"
    signin_step_open
        "Open WeCom on your phone"
        "打开手机上的企业微信"
    signin_step_scan
        "Scan the code on this page"
        "扫描本页二维码"
    signin_step_check
        "Compare the numbers, then confirm"
        "核对数字，然后确认登录"
    signin_redirect
        "Open in the WeCom app"
        "在企业微信中打开"
    signin_redirect_app
        "Continue with WeCom"
        "企业微信一键登录"
    signin_redirecting
        "Opening WeCom…"
        "正在打开企业微信…"
    signin_or
        "or scan with another phone"
        "或用另一部手机扫码"
    signin_ticket
        "Sign-in code"
        "登录二维码"
    signin_number
        "Check the number"
        "核对数字"
    signin_number_hint
        "Your phone must show the same number."
        "手机上应显示相同的数字。"
    signin_loading
        "Getting a code…"
        "正在获取二维码…"
    signin_waiting
        "Waiting for you to scan"
        "等待扫码"
    signin_scanned
        "Scanned. Confirm on your phone."
        "已扫码，请在手机上确认。"
    signin_done
        "Signed in. Redirecting…"
        "登录成功，正在跳转…"
    signin_expired
        "This code has expired."
        "二维码已失效。"
    signin_cancelled
        "You cancelled on your phone."
        "已在手机上取消登录。"
    signin_refused
        "The sign-in was refused. Your phone shows why."
        "登录被拒绝，原因请查看手机。"
    signin_lost
        "Connection lost. Retrying…"
        "网络连接已断开，正在重试…"
    signin_offline
        "Can't connect. Check your network and try again."
        "无法连接，请检查网络后重试。"
    signin_seconds
        "{seconds} s"
        "{seconds} 秒"
    signin_renew
        "Show a new code"
        "刷新二维码"
    signin_again
        "Try again"
        "重试"
    signin_simulate
        "No phone? Simulate the scan"
        "没有手机？模拟扫码"
    qr_alt
        "QR code for signing in with WeCom"
        "企业微信登录二维码"
    noscript
        "This page needs JavaScript. Turn it on and reload the page."
        "本页面需要 JavaScript，请启用后刷新页面。"

    // Why a redirect came back without a token; the suffix is the `error` word in the fragment.
    signin_error_access_denied
        "Access denied. If you cancelled, sign in again below. If not, ask your administrator for access."
        "登录被拒绝。如果是您本人取消，请在下方重新登录；否则请联系管理员开通权限。"
    signin_error_invalid_code
        "This sign-in has expired or was already used. Start again."
        "本次登录已过期或已使用，请重新登录。"
    signin_error_invalid_state
        "This sign-in doesn't match this page. Start again."
        "本次登录与当前页面不匹配，请重新登录。"
    signin_error_invalid_flow
        "This sign-in was started in another browser or has expired. Start again here."
        "本次登录是在其他浏览器中发起的，或已过期，请在此重新登录。"
    signin_error_platform_error
        "WeCom reported an error. Try again, or scan the code."
        "企业微信返回错误，请重试或扫码登录。"
    signin_error_server_error
        "Something went wrong on our side. Try again."
        "系统出错了，请重试。"
    signin_error_temporarily_unavailable
        "Sign-in is temporarily unavailable. Try again in a minute."
        "暂时无法登录，请稍后重试。"
    signin_error_other
        "Sign-in failed. Try again."
        "登录失败，请重试。"

    // The phone's confirm page.
    confirm_title
        "Is this you signing in?"
        "是您本人在登录吗？"
    confirm_who
        "Signing in as"
        "登录账号"
    confirm_number
        "Check that your computer shows"
        "请核对电脑上的数字"
    confirm_details
        "The computer signing in"
        "请求登录的电脑"
    confirm_address
        "IP address"
        "IP 地址"
    confirm_browser
        "Browser"
        "浏览器"
    confirm_time
        "Requested"
        "请求时间"
    confirm_ago
        "{seconds} s ago"
        "{seconds} 秒前"
    confirm_warn
        "Different number, or not you? Cancel."
        "数字不一致，或非本人操作？请取消。"
    confirm_yes
        "Yes, sign in"
        "确认登录"
    confirm_no
        "Cancel"
        "取消"

    // Notices.
    confirmed_title
        "You are signed in"
        "登录成功"
    confirmed_text
        "Continue on your computer. You can close this page."
        "请在电脑上继续操作，本页面可以关闭。"
    cancelled_title
        "Cancelled"
        "已取消"
    cancelled_text
        "The sign-in was cancelled. You can close this page."
        "登录已取消，本页面可以关闭。"
    error_title
        "Sign-in failed"
        "登录失败"
    notice_back
        "Back to sign-in"
        "返回登录"

    // The bind page.
    bind_title
        "Link your account"
        "绑定员工账号"
    bind_signed_in
        "Signed in to WeCom as"
        "当前企业微信账号"
    bind_text
        "This WeCom account isn't linked yet. Enter your employee ID to continue."
        "该企业微信账号尚未绑定，请输入员工编号以继续。"
    bind_employee_id
        "Employee ID"
        "员工编号"
    bind_employee_id_hint
        "You'll find it on your badge."
        "可在工牌上找到。"
    bind_corp
        "My employee record is in another company"
        "我的员工账号属于其他企业"
    bind_corp_id
        "Company ID"
        "企业 ID"
    bind_corp_id_hint
        "Ask your administrator. Leave it empty if you're not sure."
        "可咨询管理员；不确定时请留空。"
    bind_submit
        "Link and sign in"
        "绑定并登录"
    bind_busy
        "Linking…"
        "正在绑定…"
    bind_done
        "Linked. Redirecting…"
        "绑定成功，正在跳转…"
    bind_empty
        "Enter your employee ID."
        "请输入员工编号。"
    bind_wait_title
        "Waiting for approval"
        "等待批准"
    bind_wait_text
        "An administrator must approve the link. Keep this page open: you'll be signed in once it's approved."
        "绑定需要管理员批准。请保持本页面打开，批准后将自动登录。"
    bind_wait_change
        "Use another ID"
        "更换员工编号"
    bind_refused
        "Your request was refused. Check the ID, or ask your administrator."
        "绑定申请未获批准，请核对员工编号或联系管理员。"
    bind_expired
        "This page has expired, but your request hasn't. Sign in again once an administrator has approved it."
        "本页面已过期，绑定申请仍然有效。管理员批准后请重新登录。"
    bind_lost
        "Connection lost. Your entries are still here. Try again."
        "网络连接已断开，填写的内容已保留，请重试。"
};
