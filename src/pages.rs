//! The HTML pages: templates, style sheet and scripts are files, embedded at build time. Texts come from
//! [`messages`](crate::messages); every value is escaped. Responses and their security headers are `reply`'s.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use minijinja::value::{Object, Value};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};

use crate::config::PlatformKind;
use crate::domain::client::Client;
use crate::domain::clock::Timestamp;
use crate::domain::device;
use crate::domain::language::Language;
use crate::error::Error;
use crate::messages::PAGE_MESSAGES;

/// The style sheet of all pages.
pub const STYLE: &str = include_str!("pages/page.css");

/// The script of the sign-in page.
pub const SIGN_IN_SCRIPT: &str = include_str!("pages/signin.js");

/// The script of the bind page.
pub const BIND_SCRIPT: &str = include_str!("pages/bind.js");

const TEMPLATES: [(&str, &str); 5] = [
    ("layout.html", include_str!("pages/layout.html")),
    ("signin.html", include_str!("pages/signin.html")),
    ("confirm.html", include_str!("pages/confirm.html")),
    ("bind.html", include_str!("pages/bind.html")),
    ("notice.html", include_str!("pages/notice.html")),
];

/// Parsed once. A template that does not parse is logged here, and again as missing when it is rendered.
static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, source) in TEMPLATES {
        if let Err(error) = environment.add_template(name, source) {
            tracing::error!(page.name = name, "the page template is invalid: {error:#}");
        }
    }
    environment
});

/// The templates' `t`: looks the texts of a language up by key.
#[derive(Debug)]
struct Texts(Language);

impl Object for Texts {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let row = PAGE_MESSAGES.iter().find(|row| key.as_str() == Some(row.key()))?;
        Some(Value::from(row.text(self.0)))
    }
}

/// The sign-in page of a client. Inside the WeCom app the redirect comes first, because a phone cannot scan itself.
pub fn sign_in(language: Language, client: Client, home: &str, user_agent: &str, platform: PlatformKind) -> String {
    let own = context! {
        client => client.as_str(),
        home,
        simulated => platform == PlatformKind::Simulated,
        in_app => user_agent.contains(device::PLATFORM_CLIENT),
        other_lang => language.other().tag(),
    };
    render("signin.html", language, own)
}

/// The browser that asks to be signed in, as the phone's confirm page shows it.
#[derive(Debug, Clone, Copy)]
pub struct ConfirmDetails<'a> {
    /// The name of the employee who scanned the code.
    pub name: &'a str,
    /// The browser's address.
    pub address: &'a str,
    /// The browser's `User-Agent`.
    pub user_agent: &'a str,
    /// When the browser requested the code.
    pub requested_at: Timestamp,
    /// The time since then.
    pub ago: Duration,
    /// The two digits that both screens show.
    pub number: &'a str,
}

/// The phone's confirm page. `proof` goes into its forms, against forgery.
pub fn confirm(language: Language, details: &ConfirmDetails<'_>, proof: &str) -> String {
    let own = context! {
        name => details.name,
        address => details.address,
        browser => device::describe(details.user_agent),
        time => clock_time(details.requested_at),
        seconds_ago => details.ago.as_secs().to_string(),
        number => details.number,
        proof,
    };
    render("confirm.html", language, own)
}

/// A member of a connected corporation who is not linked to an employee yet.
#[derive(Debug, Clone, Copy)]
pub struct UnboundMember<'a> {
    /// The corporation's ID.
    pub corp_id: &'a str,
    /// The member's ID there.
    pub user_id: &'a str,
    /// The member's name; empty if the platform does not tell it.
    pub name: &'a str,
    /// The client's URL, to return to.
    pub home: &'a str,
    /// The employee ID that the member has asked for before.
    pub requested: Option<&'a str>,
    /// That employee's corporation.
    pub requested_corp: Option<&'a str>,
}

/// The page on which a member enters the ID of their employee account and waits for the approval.
pub fn bind(language: Language, member: &UnboundMember<'_>) -> String {
    let UnboundMember { corp_id, user_id, name, home, requested, requested_corp } = *member;
    render("bind.html", language, context! { corp_id, user_id, name, home, requested, requested_corp })
}

/// The last page of a QR-code sign-in on the phone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The browser is signed in.
    Confirmed,
    /// The user cancelled.
    Cancelled,
}

/// A page that shows the result and has no further action.
pub fn notice(language: Language, notice: Notice) -> String {
    let notice = match notice {
        Notice::Confirmed => "confirmed",
        Notice::Cancelled => "cancelled",
    };
    render("notice.html", language, context! { notice })
}

/// A page that shows an error and a link back to the sign-in page.
pub fn error(language: Language, error: &Error, request_id: &str) -> String {
    let own = context! {
        notice => "error",
        message => &*error.message(language),
        code => error.code().number(),
        request_id,
    };
    render("notice.html", language, own)
}

/// Renders a page. The templates are part of the program and the tests render all of them, so a failure is a bug: it
/// is logged, and the page is empty.
fn render(name: &str, language: Language, own: Value) -> String {
    try_render(name, language, own).unwrap_or_else(|error| {
        tracing::error!(page.name = name, "a page could not be rendered: {error:#}");
        String::new()
    })
}

/// Renders a template with the page's own values and the texts of the language.
fn try_render(name: &str, language: Language, own: Value) -> Result<String, minijinja::Error> {
    let texts = Value::from_object(Texts(language));
    ENVIRONMENT.get_template(name)?.render(context! { t => texts, lang => language.tag(), ..own })
}

/// `03:04:05 UTC`: codes are minutes old at most, so the date is left out and the line fits on a phone.
fn clock_time(at: Timestamp) -> String {
    format!("{} UTC", at.iso8601().get(11..19).unwrap_or_default())
}

#[cfg(test)]
mod tests;
