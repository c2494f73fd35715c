//! The pages that people see: no script, one style, nothing from elsewhere.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

use super::ledger::Ledger;
use super::members::Person;
use super::switches::Kind;

const STYLE: &str = include_str!("pages/page.css");
const CHOOSE: &str = include_str!("pages/choose.html");
const CONSENT: &str = include_str!("pages/consent.html");
const NOTICE: &str = include_str!("pages/notice.html");
const TWICE: &str = include_str!("pages/twice.html");

/// No script at all; the style is the page's own.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";
/// The same, with the page's own QR code and forms.
const OWN_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; form-action 'self'; \
                          base-uri 'none'; frame-ancestors 'none'";
/// The same, with an image that is the application's callback, wherever that is.
const TWICE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src *; base-uri 'none'; frame-ancestors 'none'";

/// Who scans? `link` makes the address for a person, or for a refusal.
pub fn choose(ledger: &Ledger, target: &str, link: impl Fn(Option<&Person>) -> String) -> Response {
    let people: String = Person::all(&ledger.switches).map(|person| card(&person, &link(Some(&person)))).collect();
    let own = [("people", people), ("deny", escape(&link(None))), ("target", escape(target))];
    respond(StatusCode::OK, POLICY, fill(CHOOSE, &own))
}

fn card(person: &Person, href: &str) -> String {
    let note = match person.kind {
        Kind::Active => "",
        Kind::Disabled => "<em>disabled · <span lang=\"zh-CN\">已禁用</span></em>",
        Kind::NotActivated => "<em>not activated · <span lang=\"zh-CN\">未激活</span></em>",
        Kind::Linked => "<em>connected corporation · <span lang=\"zh-CN\">互联企业</span></em>",
        Kind::Outsider => "<em>no member · <span lang=\"zh-CN\">非企业成员</span></em>",
        Kind::Customer => "<em>customer · <span lang=\"zh-CN\">外部联系人</span></em>",
    };
    let initial: String = person.member.name.chars().take(1).collect();
    format!(
        "<li><a href=\"{href}\"><span class=\"face\" aria-hidden=\"true\">{initial}</span><span>\
         <strong>{name}</strong><small>{identifier} · {department}</small>{note}</span></a></li>\n",
        href = escape(href),
        initial = escape(&initial),
        name = escape(person.member.name),
        identifier = escape(&person.identifier()),
        department = escape(person.member.department),
    )
}

/// May this be shown?
pub fn consent(name: &str, target: &str, allow: &str, deny: &str) -> Response {
    let own = [("name", name), ("target", target), ("allow", allow), ("deny", deny)];
    respond(StatusCode::OK, POLICY, fill(CONSENT, &own.map(|(key, value)| (key, escape(value)))))
}

/// What a page says when there is nothing to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A parameter of the link is missing or wrong.
    WrongParameter(&'a str),
    /// No application returns to where this address is.
    DomainNotTrusted(&'a str),
    /// The link was opened outside of the platform's client.
    ClientOnly,
    /// The application does not see this member.
    NotVisible,
    /// The QR code is too old.
    Expired,
    /// The phone agreed.
    SignedIn,
    /// The phone refused.
    Refused,
}

/// Says so.
pub fn notice(notice: Notice<'_>) -> Response {
    let (status, title, title_zh, text) = match notice {
        Notice::WrongParameter(name) => (
            StatusCode::BAD_REQUEST,
            "The platform refuses this link",
            "链接无效",
            format!("The parameter <code>{}</code> is missing or wrong.", escape(name)),
        ),
        Notice::DomainNotTrusted(uri) => (
            StatusCode::BAD_REQUEST,
            "redirect_uri must be on a trusted domain of the application",
            "redirect_uri需使用应用可信域名",
            format!("The platform does not return to <code>{}</code>.", escape(uri)),
        ),
        Notice::ClientOnly => (
            StatusCode::OK,
            "Please open this link in the client",
            "请在企业微信客户端打开链接",
            "The switch <code>client_only</code> is on, and this browser is not the platform's own.".to_owned(),
        ),
        Notice::NotVisible => (
            StatusCode::FORBIDDEN,
            "The application is not visible to this member",
            "成员不在应用可见范围内",
            "An administrator decides who may use an application.".to_owned(),
        ),
        Notice::Expired => (
            StatusCode::NOT_FOUND,
            "This QR code is too old",
            "二维码已过期",
            "Show a new one on the computer.".to_owned(),
        ),
        Notice::SignedIn => (StatusCode::OK, "Done", "登录成功", "Go on on the computer.".to_owned()),
        Notice::Refused => (StatusCode::OK, "Refused", "已拒绝", "Nobody was signed in.".to_owned()),
    };
    let own = [("title", title.to_owned()), ("title_zh", title_zh.to_owned()), ("text", text)];
    respond(status, POLICY, fill(NOTICE, &own))
}

/// Makes one browser call an address twice with the same cookies: an image of it, then the way there.
/// So do the platform's clients, and a fetch by this server would not: it has nobody's cookies.
pub fn twice(target: &str) -> Response {
    respond(StatusCode::OK, TWICE_POLICY, fill(TWICE, &[("target", escape(target))]))
}

/// A page of its own forms and images.
pub fn own(status: StatusCode, template: &str, values: &[(&str, String)]) -> Response {
    respond(status, OWN_POLICY, fill(template, values))
}

fn respond(status: StatusCode, policy: &'static str, page: String) -> Response {
    let mut response = (status, Html(page)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Puts values, which are HTML already, in their places. One pass: no value is taken for a place.
fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        let value = values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        page.push_str(value.unwrap_or(if name == "style" { STYLE } else { "" }));
        page.push_str(rest);
    }
    page
}

/// Text as HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
