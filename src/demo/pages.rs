//! HTML pages of the simulated platform. They have no script and load nothing from other sites.

use std::sync::LazyLock;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use minijinja::{Environment, UndefinedBehavior, Value, context};

use super::members::{EffectiveMember, MemberKind};
use super::switches::Switches;

const TEMPLATES: [(&str, &str); 7] = [
    ("layout.html", include_str!("pages/layout.html")),
    ("choose.html", include_str!("pages/choose.html")),
    ("consent.html", include_str!("pages/consent.html")),
    ("control.html", include_str!("pages/control.html")),
    ("duplicate_callback.html", include_str!("pages/duplicate_callback.html")),
    ("notice.html", include_str!("pages/notice.html")),
    ("qr.html", include_str!("pages/qr.html")),
];

/// Escapes values in `.html` templates, and fails on a value that a template expects and does not get.
static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_global("style", Value::from_safe_string(include_str!("pages/page.css").to_owned()));
    for (name, source) in TEMPLATES {
        if let Err(error) = environment.add_template(name, source) {
            tracing::error!(%error, template = name, "a template of the simulated platform is invalid");
        }
    }
    environment
});

/// Allows the inline style only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";
/// Also allows the simulator's own images and forms.
const OWN_FORMS_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; form-action 'self'; \
                                base-uri 'none'; frame-ancestors 'none'";
/// Also allows an image from any site: the application's callback.
const ANY_IMAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src *; base-uri 'none'; frame-ancestors 'none'";

/// Asks who scans. `link` builds the address for a member.
pub fn choose(switches: &Switches, domain: &str, link: impl Fn(&EffectiveMember) -> String, deny: &str) -> Response {
    let people: Vec<Value> = switches.effective_members().map(|person| card(&person, link(&person))).collect();
    render(StatusCode::OK, POLICY, "choose.html", context! { people, domain, deny })
}

fn card(person: &EffectiveMember, href: String) -> Value {
    let (note, note_zh) = match person.kind {
        MemberKind::Active => ("", ""),
        MemberKind::Disabled => ("disabled", "已禁用"),
        MemberKind::NotActivated => ("not activated", "未激活"),
        MemberKind::Left => ("left", "已退出"),
        MemberKind::Deleted => ("deleted", "已删除"),
        MemberKind::Linked => ("connected corporation", "互联企业"),
        MemberKind::Outsider => ("not a member", "非企业成员"),
        MemberKind::Customer => ("external contact", "外部联系人"),
    };
    context! {
        href,
        initial => person.member.name.chars().take(1).collect::<String>(),
        name => person.member.name,
        identifier => person.identifier(),
        department => person.member.department,
        note,
        note_zh,
    }
}

/// Asks a member for consent to share private fields.
pub fn consent(name: &str, domain: &str, allow: &str, deny: &str) -> Response {
    render(StatusCode::OK, POLICY, "consent.html", context! { name, domain, allow, deny })
}

/// A page with a message and no choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlatformNotice<'a> {
    /// This parameter of the link is missing or invalid.
    InvalidParameter(&'a str),
    /// No application trusts the domain of this address.
    UntrustedDomain(&'a str),
    /// The link was opened outside the WeCom client.
    ClientOnly,
    /// The member is outside the application's visible range.
    NotVisible,
    /// The QR code has expired.
    Expired,
    SignedIn,
    Declined,
}

pub fn notice(notice: PlatformNotice<'_>) -> Response {
    // `code` is shown between the two halves of the text.
    let (status, title, title_zh, text, code, rest) = match notice {
        PlatformNotice::InvalidParameter(name) => {
            (StatusCode::BAD_REQUEST, "Invalid link", "链接无效", "The parameter", name, "is missing or invalid.")
        }
        PlatformNotice::UntrustedDomain(uri) => (
            StatusCode::BAD_REQUEST,
            "redirect_uri must be on a trusted domain of the application",
            "redirect_uri需使用应用可信域名",
            "The platform does not redirect to",
            uri,
            "because no application trusts its domain.",
        ),
        PlatformNotice::ClientOnly => (
            StatusCode::OK,
            "Open this link in the WeCom client",
            "请在企业微信客户端打开链接",
            "The switch",
            "client_only",
            "is on, and this browser is not a WeCom client.",
        ),
        PlatformNotice::NotVisible => (
            StatusCode::FORBIDDEN,
            "The application is not visible to this member",
            "成员不在应用可见范围内",
            "An administrator sets who can use an application.",
            "",
            "",
        ),
        PlatformNotice::Expired => (
            StatusCode::NOT_FOUND,
            "This QR code has expired",
            "二维码已过期",
            "Show a new one on your computer.",
            "",
            "",
        ),
        PlatformNotice::SignedIn => (StatusCode::OK, "Signed in", "登录成功", "Continue on your computer.", "", ""),
        PlatformNotice::Declined => (StatusCode::OK, "Declined", "已拒绝", "The sign-in was declined.", "", ""),
    };
    render(status, POLICY, "notice.html", context! { title, title_zh, text, code, rest })
}

/// Makes the browser call an address twice with the same cookies: as an image, then by a redirect. A request by
/// this server would lack the browser's cookies.
pub fn duplicate_callback(target: &str) -> Response {
    render(StatusCode::OK, ANY_IMAGE_POLICY, "duplicate_callback.html", context! { target })
}

/// Renders a page that has forms or images of the simulator.
pub fn with_own_forms(status: StatusCode, template: &str, values: Value) -> Response {
    render(status, OWN_FORMS_POLICY, template, values)
}

fn render(status: StatusCode, policy: &'static str, template: &str, values: Value) -> Response {
    let page = match ENVIRONMENT.get_template(template).and_then(|template| template.render(values)) {
        Ok(page) => page,
        Err(error) => {
            tracing::error!(%error, template, "a page of the simulated platform cannot be rendered");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let mut response = (status, Html(page)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
