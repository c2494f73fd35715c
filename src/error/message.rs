//! What people read, in both languages. Says what to do next; never a secret, address or stack.

use std::borrow::Cow;

use super::{BadRequest, Doing, Error, Forbidden, Part};
use crate::domain::language::Language;
use crate::domain::role::RoleName;

impl Error {
    /// The sentence for the answer's `message`.
    pub fn message(&self, language: Language) -> Cow<'static, str> {
        let say = |english: &'static str, chinese: &'static str| match language {
            Language::English => Cow::Borrowed(english),
            Language::Chinese => Cow::Borrowed(chinese),
        };
        match self {
            Error::NoCredentials => say("sign in first: no bearer token was sent", "请先登录：请求未携带令牌"),
            Error::InvalidToken(_) => {
                say("sign in again: the token is invalid, expired or revoked", "请重新登录：令牌无效、已过期或已注销")
            }
            Error::Forbidden(reason) => forbidden(reason, language),
            Error::BadRequest(fault) => bad_request(fault, language),
            Error::NotFound => say("nothing is served at this path", "该路径不存在"),
            Error::MethodNotAllowed { .. } => {
                say("this method is not allowed here; see the Allow header", "不支持该请求方法，请参见 Allow 头")
            }
            Error::RequestTimeout => say("the request took too long to arrive", "请求发送超时"),
            Error::BodyTooLarge => say("the body is too large", "请求体过大"),
            Error::TargetTooLong => say("the address is too long", "请求地址过长"),
            Error::UnsupportedMediaType => {
                say("send JSON with Content-Type: application/json", "请以 Content-Type: application/json 发送 JSON")
            }
            Error::WebSocketVersion => say("only WebSocket version 13 is spoken here", "仅支持 WebSocket 版本 13"),
            Error::StepUpRequired => {
                say("confirm with a one-time password first, then try again", "请先验证动态口令后再试")
            }
            Error::PasswordWrong => say("the employee id or the password is wrong", "员工编号或密码错误"),
            Error::PasswordNotSet => say(
                "no local password is set yet; sign in through the messaging platform and set one",
                "尚未设置本地密码，请先通过企业微信登录后设置",
            ),
            Error::OldPasswordMissing => say("give the old password as well", "修改密码需要提供旧密码"),
            Error::OldPasswordWrong => say("the old password is wrong", "旧密码错误"),
            Error::Overloaded { .. } => {
                say("too many people sign in just now; try again shortly", "当前登录人数过多，请稍后再试")
            }
            Error::OtpWrong => say(
                "the one-time password is wrong or was used already; wait for the next one",
                "动态口令错误或已使用，请等待下一个口令",
            ),
            Error::Locked { .. } => say(
                "too many wrong tries on this account; wait as long as Retry-After says",
                "该账号尝试次数过多，请按 Retry-After 稍后再试",
            ),
            Error::RateLimited { .. } => {
                say("too many requests; see Retry-After", "请求过于频繁，请按 Retry-After 稍后再试")
            }
            Error::HeadTooLarge => say("too many or too large headers", "请求头过多或过大"),
            Error::UpstreamFailed(_) => say("the service behind the gateway cannot be reached", "后端服务无法访问"),
            Error::UpstreamTimeout => say("the service behind the gateway did not answer in time", "后端服务响应超时"),
            Error::Unavailable { part, .. } => Cow::Owned(match language {
                Language::English => format!("{} unavailable; try again shortly", part_name(*part, language)),
                Language::Chinese => format!("{}暂不可用，请稍后再试", part_name(*part, language)),
            }),
            Error::PlatformResting { .. } => say(
                "the messaging platform does not answer at the moment; try again in a minute",
                "企业微信平台暂时没有响应，请稍后再试",
            ),
            Error::Unexpected { doing, part: Part::PlatformSetup, .. } => Cow::Owned(match language {
                Language::English => format!(
                    "{}: the messaging platform refuses the gateway; tell the administrator",
                    doing_phrase(*doing, language)
                ),
                Language::Chinese => {
                    format!("{}：企业微信拒绝了网关的请求，请联系管理员检查配置", doing_phrase(*doing, language))
                }
            }),
            Error::Unexpected { doing, part, .. } => Cow::Owned(match language {
                Language::English => {
                    format!("{}: {} failed", doing_phrase(*doing, language), part_name(*part, language))
                }
                Language::Chinese => format!("{}：{}故障", doing_phrase(*doing, language), part_name(*part, language)),
            }),
        }
    }
}

fn forbidden(reason: &Forbidden, language: Language) -> Cow<'static, str> {
    let say = |english: &'static str, chinese: &'static str| match language {
        Language::English => Cow::Borrowed(english),
        Language::Chinese => Cow::Borrowed(chinese),
    };
    match reason {
        Forbidden::EmployeeUnknown => say(
            "this employee is unknown; sign in through the messaging platform first",
            "未找到该员工，请先通过企业微信完成认证",
        ),
        Forbidden::NoRole => {
            say("this employee has no role; contact the administrator", "该员工没有角色，请联系管理员")
        }
        Forbidden::Disabled => say("this account is disabled; contact the administrator", "该账号已停用，请联系管理员"),
        Forbidden::RoleNotHeld(role) => Cow::Owned(match language {
            Language::English => format!("role '{role}' is not held"),
            Language::Chinese => format!("未拥有角色“{role}”"),
        }),
        Forbidden::RoleRequired { wanted, .. } => {
            let names: Vec<&str> = wanted.iter().map(RoleName::as_str).collect();
            Cow::Owned(match language {
                Language::English => format!("the active role must be one of: {}", names.join(", ")),
                Language::Chinese => format!("当前角色须为以下之一：{}", names.join("、")),
            })
        }
        Forbidden::NotGranted { access, .. } => Cow::Owned(match language {
            Language::English => format!("the active role may not do this: {access}"),
            Language::Chinese => format!("当前角色无此权限：{access}"),
        }),
        Forbidden::Network(_) => say("not from this network", "当前网络不允许访问"),
        Forbidden::Condition { .. } => {
            say("a condition for this is not met; ask the administrator", "不满足访问条件，请联系管理员")
        }
        Forbidden::OtpBindingOnly => say(
            "bind a one-time-password device first; this token opens nothing else",
            "请先绑定动态口令设备，当前令牌仅可用于绑定",
        ),
        Forbidden::NotVisible => say(
            "your account is not in the visible range of this application; contact the administrator",
            "您不在本应用的可见范围内，请联系管理员",
        ),
        Forbidden::LastAdmin => say(
            "this is the last administrator; make somebody else one first",
            "这是最后一位管理员，请先将他人设为管理员",
        ),
        Forbidden::NotAnAgent => {
            say("this employee is no agent; contact the administrator", "该员工不是坐席，请联系管理员")
        }
        Forbidden::OtpNotBound => {
            say("no one-time-password device is bound; set one up first", "尚未绑定动态口令设备，请先设置")
        }
        Forbidden::OtpNotOffered => {
            say("set a one-time-password device up first, then give its code", "请先设置动态口令设备，再输入口令")
        }
        Forbidden::OtpBound => say(
            "a one-time-password device is bound already; an administrator can reset it",
            "已绑定动态口令设备，如需更换请联系管理员重置",
        ),
        Forbidden::BindProof => say(
            "binding needs a fresh sign-in through the messaging platform in this browser",
            "绑定前请先在本浏览器中通过企业微信登录",
        ),
        Forbidden::Origin => say("this page may not open a WebSocket here", "该页面不允许在此建立 WebSocket"),
        Forbidden::Development => say("development mode is off", "未开启开发模式"),
    }
}

fn bad_request(fault: &BadRequest, language: Language) -> Cow<'static, str> {
    let say = |english: &'static str, chinese: &'static str| match language {
        Language::English => Cow::Borrowed(english),
        Language::Chinese => Cow::Borrowed(chinese),
    };
    let name = |english: &str, value: &str, chinese: &str| {
        Cow::Owned(match language {
            Language::English => format!("{english}: {value}"),
            Language::Chinese => format!("{chinese}：{value}"),
        })
    };
    match fault {
        BadRequest::Head => say("the request head cannot be read", "无法解析请求头"),
        BadRequest::Path => say(
            "the path is not in plain form (dot segments, doubled or encoded slashes, bad escapes)",
            "路径不规范（含点段、重复或编码的斜杠、非法转义）",
        ),
        BadRequest::Framing => say("the length of the body is not said in one clear way", "请求体长度声明不明确"),
        BadRequest::Repeated(header) => name("this header may be sent only once", header, "该请求头只能出现一次"),
        BadRequest::Header(header) => name("this header is missing or cannot be used", header, "该请求头缺失或无效"),
        BadRequest::Upgrade => say("this is not a proper WebSocket handshake", "WebSocket 握手不正确"),
        BadRequest::TwoTokens => say("two different tokens were sent; send one", "携带了两个不同的令牌，请只发送一个"),
        BadRequest::Body(detail) => name("the body is not the JSON that is expected", detail, "请求体不是预期的 JSON"),
        BadRequest::Missing(parameter) => name("this parameter is required", parameter, "缺少参数"),
        BadRequest::Parameter(parameter) => name("this parameter cannot be used", parameter, "参数无效"),
        BadRequest::RedirectUri => say(
            "redirect_uri must lie under one of the configured clients' addresses",
            "redirect_uri 必须位于已配置的客户端地址之下",
        ),
        BadRequest::NotByAPage => {
            say("call this from a page's own script; it is not a page to open", "请由页面脚本调用该接口，不能直接打开")
        }
        BadRequest::SignInFailed => {
            say("the messaging platform reported a problem; please sign in again", "企业微信返回错误，请重新登录")
        }
        BadRequest::NewPassword { english, chinese } => say(english, chinese),
        BadRequest::SignInDeclined => {
            say("the sign-in was not confirmed at the messaging platform", "您未在企业微信中同意登录")
        }
        BadRequest::SignInCode => say(
            "this sign-in was used already or took too long; please sign in again",
            "本次登录已使用或已超时，请重新登录",
        ),
        BadRequest::SignInFlow => say(
            "this sign-in was begun in another browser or took too long; please sign in again",
            "本次登录不是在此浏览器中发起的或已超时，请重新登录",
        ),
        BadRequest::TicketOver => {
            say("this QR code is no longer good; show a new one and scan it", "二维码已失效，请刷新后重新扫描")
        }
    }
}

fn part_name(part: Part, language: Language) -> &'static str {
    match (part, language) {
        (Part::Store, Language::English) => "store",
        (Part::Store, Language::Chinese) => "会话存储",
        (Part::Directory, Language::English) => "directory",
        (Part::Directory, Language::Chinese) => "员工目录",
        (Part::Platform | Part::PlatformSetup, Language::English) => "messaging platform",
        (Part::Platform | Part::PlatformSetup, Language::Chinese) => "企业微信平台",
        (Part::Gateway, Language::English) => "gateway",
        (Part::Gateway, Language::Chinese) => "网关",
    }
}

fn doing_phrase(doing: Doing, language: Language) -> &'static str {
    match (doing, language) {
        (Doing::Request, Language::English) => "request failed",
        (Doing::Request, Language::Chinese) => "请求失败",
        (Doing::Qrcode, Language::English) => "QR code failed",
        (Doing::Qrcode, Language::Chinese) => "二维码生成失败",
        (Doing::ScanStatus, Language::English) => "scan status failed",
        (Doing::ScanStatus, Language::Chinese) => "扫码状态查询失败",
        (Doing::AuthorizeUrl, Language::English) => "authorize URL failed",
        (Doing::AuthorizeUrl, Language::Chinese) => "授权地址生成失败",
        (Doing::Callback, Language::English) => "sign-in failed",
        (Doing::Callback, Language::Chinese) => "登录失败",
        (Doing::Verify, Language::English) => "verification failed",
        (Doing::Verify, Language::Chinese) => "令牌校验失败",
        (Doing::Logout, Language::English) => "logout failed",
        (Doing::Logout, Language::Chinese) => "退出登录失败",
        (Doing::SwitchRole, Language::English) => "role switch failed",
        (Doing::SwitchRole, Language::Chinese) => "切换角色失败",
        (Doing::Bind, Language::English) => "binding failed",
        (Doing::Bind, Language::Chinese) => "绑定失败",
        (Doing::Sessions, Language::English) => "sessions failed",
        (Doing::Sessions, Language::Chinese) => "会话操作失败",
        (Doing::Admin, Language::English) => "administration failed",
        (Doing::Admin, Language::Chinese) => "管理操作失败",
        (Doing::Agent, Language::English) => "agent sign-in failed",
        (Doing::Agent, Language::Chinese) => "坐席登录失败",
        (Doing::Otp, Language::English) => "one-time password failed",
        (Doing::Otp, Language::Chinese) => "动态口令操作失败",
    }
}
