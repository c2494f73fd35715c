//! Everything that answers say to people, in both languages: one table. A phrase without one of them does not compile.

use std::borrow::Cow;

use super::language::Language;

macro_rules! phrases {
    ($($name:ident $english:literal $chinese:literal)*) => {
        /// Something to say. Named like what it is about; `{}` stands for what differs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)] // each is its own text
        pub enum Message {
            $($name,)*
        }

        impl Message {
            /// All of them.
            pub const ALL: &'static [Message] = &[$(Message::$name,)*];

            /// The text, with `{}` where it has something to fill in.
            pub const fn text(self, language: Language) -> &'static str {
                match (self, language) {
                    $(
                        (Message::$name, Language::English) => $english,
                        (Message::$name, Language::Chinese) => $chinese,
                    )*
                }
            }
        }
    };
}

#[rustfmt::skip]
phrases! {
    // What came of it.
    LoggedOut
        "logged out"
        "已退出登录"
    RoleSwitched
        "role switched"
        "已切换角色"
    PasswordSet
        "password set"
        "密码已设置"

    // What a request lacks or does wrong.
    NoCredentials
        "sign in first: no bearer token was sent"
        "请先登录：请求未携带令牌"
    InvalidToken
        "sign in again: the token is invalid, expired or revoked"
        "请重新登录：令牌无效、已过期或已注销"
    NotFound
        "nothing is served at this path"
        "该路径不存在"
    NoSession
        "there is no live session of this id among yours"
        "您没有此编号的有效会话"
    MethodNotAllowed
        "this method is not allowed here; see the Allow header"
        "不支持该请求方法，请参见 Allow 头"
    RequestTimeout
        "the request took too long to arrive"
        "请求发送超时"
    BodyTooLarge
        "the body is too large"
        "请求体过大"
    TargetTooLong
        "the address is too long"
        "请求地址过长"
    UnsupportedMediaType
        "send JSON with Content-Type: application/json"
        "请以 Content-Type: application/json 发送 JSON"
    WebSocketVersion
        "only WebSocket version 13 is spoken here"
        "仅支持 WebSocket 版本 13"
    StepUpRequired
        "confirm with a one-time password first, then try again"
        "请先验证动态口令后再试"
    PasswordWrong
        "the employee id or the password is wrong"
        "员工编号或密码错误"
    PasswordNotSet
        "no local password is set yet; sign in through the messaging platform and set one"
        "尚未设置本地密码，请先通过企业微信登录后设置"
    OldPasswordMissing
        "give the old password as well"
        "修改密码需要提供旧密码"
    OldPasswordWrong
        "the old password is wrong"
        "旧密码错误"
    Overloaded
        "too many people sign in just now; try again shortly"
        "当前登录人数过多，请稍后再试"
    OtpWrong
        "the one-time password is wrong or was used already; wait for the next one"
        "动态口令错误或已使用，请等待下一个口令"
    Locked
        "too many wrong tries on this account; wait as long as Retry-After says"
        "该账号尝试次数过多，请按 Retry-After 稍后再试"
    RateLimited
        "too many requests; see Retry-After"
        "请求过于频繁，请按 Retry-After 稍后再试"
    HeadTooLarge
        "too many or too large headers"
        "请求头过多或过大"
    UpstreamFailed
        "the service behind the gateway cannot be reached"
        "后端服务无法访问"
    UpstreamTimeout
        "the service behind the gateway did not answer in time"
        "后端服务响应超时"
    PlatformCircuitOpen
        "the messaging platform does not answer at the moment; try again in a minute"
        "企业微信平台暂时没有响应，请稍后再试"

    // Why somebody may not.
    RoleNotHeld
        "role '{}' is not held"
        "未拥有角色“{}”"
    RoleRequired
        "the active role must be one of: {}"
        "当前角色须为以下之一：{}"
    NotGranted
        "the active role may not do this: {}"
        "当前角色无此权限：{}"
    EmployeeUnknown
        "this employee is unknown; sign in through the messaging platform first"
        "未找到该员工，请先通过企业微信完成认证"
    NoSuchEmployee
        "there is no employee of this id"
        "没有此编号的员工"
    NoRole
        "this employee has no role; contact the administrator"
        "该员工没有角色，请联系管理员"
    Disabled
        "this account is disabled; contact the administrator"
        "该账号已停用，请联系管理员"
    Network
        "not from this network"
        "当前网络不允许访问"
    Condition
        "a condition for this is not met; ask the administrator"
        "不满足访问条件，请联系管理员"
    OtpBindingOnly
        "bind a one-time-password device first; this token opens nothing else"
        "请先绑定动态口令设备，当前令牌仅可用于绑定"
    NotVisible
        "your account is not in the visible range of this application; contact the administrator"
        "您不在本应用的可见范围内，请联系管理员"
    LastAdmin
        "this is the last administrator; make somebody else one first"
        "这是最后一位管理员，请先将他人设为管理员"
    TooManyRoles
        "this employee has as many roles as one can have; take one first"
        "该员工的角色数量已达上限，请先移除一个角色"
    NotAnAgent
        "this employee is no agent; contact the administrator"
        "该员工不是坐席，请联系管理员"
    OtpNotBound
        "no one-time-password device is bound; set one up first"
        "尚未绑定动态口令设备，请先设置"
    OtpNotOffered
        "set a one-time-password device up first, then give its code"
        "请先设置动态口令设备，再输入口令"
    OtpBound
        "a one-time-password device is bound already; an administrator can reset it"
        "已绑定动态口令设备，如需更换请联系管理员重置"
    BindProof
        "binding needs a fresh sign-in through the messaging platform in this browser"
        "绑定前请先在本浏览器中通过企业微信登录"
    Origin
        "this page may not open a WebSocket here"
        "该页面不允许在此建立 WebSocket"
    Development
        "development mode is off"
        "未开启开发模式"

    // What cannot be read or used.
    Repeated
        "this header may be sent only once: {}"
        "该请求头只能出现一次：{}"
    Header
        "this header is missing or cannot be used: {}"
        "该请求头缺失或无效：{}"
    Body
        "the body is not the JSON that is expected: {}"
        "请求体不是预期的 JSON：{}"
    Missing
        "this parameter is required: {}"
        "缺少参数：{}"
    Parameter
        "this parameter cannot be used: {}"
        "参数无效：{}"
    Head
        "the request head cannot be read"
        "无法解析请求头"
    Path
        "the path is not in plain form (dot segments, doubled or encoded slashes, bad escapes)"
        "路径不规范（含点段、重复或编码的斜杠、非法转义）"
    Framing
        "the length of the body is not said in one clear way"
        "请求体长度声明不明确"
    Upgrade
        "this is not a proper WebSocket handshake"
        "WebSocket 握手不正确"
    TwoTokens
        "two different tokens were sent; send one"
        "携带了两个不同的令牌，请只发送一个"
    RedirectUri
        "redirect_uri must lie under one of the configured clients' addresses"
        "redirect_uri 必须位于已配置的客户端地址之下"
    NotByAPage
        "call this from a page's own script; it is not a page to open"
        "请由页面脚本调用该接口，不能直接打开"
    SignInFailed
        "the messaging platform reported a problem; please sign in again"
        "企业微信返回错误，请重新登录"
    SignInDeclined
        "the sign-in was not confirmed at the messaging platform"
        "您未在企业微信中同意登录"
    SignInCode
        "this sign-in was used already or took too long; please sign in again"
        "本次登录已使用或已超时，请重新登录"
    SignInFlow
        "this sign-in was begun in another browser or took too long; please sign in again"
        "本次登录不是在此浏览器中发起的或已超时，请重新登录"
    TicketOver
        "this QR code is no longer good; show a new one and scan it"
        "二维码已失效，请刷新后重新扫描"

    // What a new password lacks.
    PasswordTooShort
        "the password is too short; use at least 8 characters"
        "密码过短，请至少使用 8 个字符"
    PasswordTooLong
        "the password is too long; use at most 256 characters"
        "密码过长，请最多使用 256 个字符"
    PasswordControl
        "the password holds line ends, tabs or other control characters; leave them out"
        "密码中含有换行、制表符等控制字符，请将其去掉"
    PasswordAddWords
        "the password is too easy to guess; add another word or two, uncommon ones are best"
        "密码太容易被猜到，请再加一两个词，越不常见越好"
    PasswordNoKeyboardPattern
        "the password is too easy to guess: keys that lie side by side are tried first; use a few uncommon words"
        "密码太容易被猜到：键盘上相邻的按键最先被尝试，请改用几个不常见的词"
    PasswordNoRepeats
        "the password is too easy to guess: repeating does not make it stronger; use a few uncommon words"
        "密码太容易被猜到：重复字符或词语并不能使其更安全，请改用几个不常见的词"
    PasswordNoSequence
        "the password is too easy to guess: sequences like abcd or 6543 are tried first; use a few uncommon words"
        "密码太容易被猜到：abcd、6543 这类顺序字符最先被尝试，请改用几个不常见的词"
    PasswordNoCommonPassword
        "the password is too easy to guess: it is, or resembles, one that many people use; use a few uncommon words"
        "密码太容易被猜到：它与许多人使用的密码相同或相近，请改用几个不常见的词"
    PasswordNoSingleWord
        "the password is too easy to guess: it is a single word; add another word or two, uncommon ones are best"
        "密码太容易被猜到：它只是一个单词，请再加一两个词，越不常见越好"
    PasswordNoNames
        "the password is too easy to guess: names are tried first; use a few uncommon words"
        "密码太容易被猜到：姓名最先被尝试，请改用几个不常见的词"
    PasswordNoDates
        "the password is too easy to guess: years and dates are tried first; use a few uncommon words"
        "密码太容易被猜到：年份和日期最先被尝试，请改用几个不常见的词"
    PasswordCapitalsHelpLittle
        "the password is too easy to guess: capital letters help little; add another word or two"
        "密码太容易被猜到：使用大写字母作用不大，请再加一两个词"
    PasswordSubstitutionsHelpLittle
        "the password is too easy to guess: writing @ for a helps little; add another word or two"
        "密码太容易被猜到：用 @ 代替 a 这类替换作用不大，请再加一两个词"
    PasswordReversingHelpsLittle
        "the password is too easy to guess: writing a word backwards helps little; add another word or two"
        "密码太容易被猜到：把单词倒着写作用不大，请再加一两个词"
    PasswordNothingAboutYou
        "the password is too easy to guess: it holds your name, your id or the name of this service; leave them out"
        "密码太容易被猜到：其中含有您的姓名、工号或本服务的名称，请不要使用这些内容"

    // What failed: the endpoint, then the part.
    Unavailable
        "{} unavailable; try again shortly"
        "{}暂不可用，请稍后再试"
    Unexpected
        "{}: {} failed"
        "{}：{}故障"
    PlatformRefuses
        "{}: the messaging platform refuses the gateway; tell the administrator"
        "{}：企业微信拒绝了网关的请求，请联系管理员检查配置"

    // Endpoints.
    WhileRequest
        "request failed"
        "请求失败"
    WhileQrcode
        "QR code failed"
        "二维码生成失败"
    WhileScanStatus
        "scan status failed"
        "扫码状态查询失败"
    WhileAuthorizeUrl
        "authorize URL failed"
        "授权地址生成失败"
    WhileCallback
        "sign-in failed"
        "登录失败"
    WhileVerify
        "verification failed"
        "令牌校验失败"
    WhileLogout
        "logout failed"
        "退出登录失败"
    WhileSwitchRole
        "role switch failed"
        "切换角色失败"
    WhileBind
        "binding failed"
        "绑定失败"
    WhileSessions
        "sessions failed"
        "会话操作失败"
    WhileAdmin
        "administration failed"
        "管理操作失败"
    WhileAgent
        "agent sign-in failed"
        "坐席登录失败"
    WhileOtp
        "one-time password failed"
        "动态口令操作失败"

    // Parts.
    PartStore
        "store"
        "会话存储"
    PartDirectory
        "directory"
        "员工目录"
    PartPlatform
        "messaging platform"
        "企业微信平台"
    PartGateway
        "gateway"
        "网关"
}

impl Message {
    /// The text with these in the place of its `{}`, in their order.
    pub fn with(self, language: Language, values: &[&str]) -> Cow<'static, str> {
        let text = self.text(language);
        if values.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut pieces = text.split("{}");
        let mut filled = pieces.next().unwrap_or_default().to_owned();
        for (piece, value) in pieces.zip(values) {
            filled.push_str(value);
            filled.push_str(piece);
        }
        Cow::Owned(filled)
    }
}

#[cfg(test)]
mod tests;
