//! The pages that people see: HTML, style and script are files, embedded at build time. Plain text
//! goes in through [`fill`], which escapes it.

use crate::config::PlatformKind;
use crate::domain::bind_claim::BindClaim;
use crate::domain::client::Client;
use crate::domain::clock::Timestamp;
use crate::domain::device;
use crate::domain::language::Language;
use crate::domain::ticket::ConfirmPrompt;
use crate::error::Error;

mod words;

use words::words;

/// The style of all pages.
pub const STYLE: &str = include_str!("pages/page.css");

/// The script of the sign-in page.
pub const SIGN_IN_SCRIPT: &str = include_str!("pages/signin.js");

/// The script of the page that binds.
pub const BIND_SCRIPT: &str = include_str!("pages/bind.js");

const SIGN_IN: &str = include_str!("pages/signin.html");
const CONFIRM: &str = include_str!("pages/confirm.html");
const BIND: &str = include_str!("pages/bind.html");
const NOTICE: &str = include_str!("pages/notice.html");

/// The sign-in page of a client. Inside the platform's own client the redirect comes first: a phone cannot scan itself.
pub fn sign_in(language: Language, client: Client, home: &str, user_agent: &str, platform: PlatformKind) -> String {
    let words = words(language);
    let name = match client {
        Client::H5 => "client_h5",
        Client::Itagent => "client_itagent",
        Client::Itadmin => "client_itadmin",
    };
    let own = [
        ("client", client.as_str()),
        ("client_name", words(name)),
        ("home", home),
        ("simulated", if platform == PlatformKind::Simulated { "yes" } else { "no" }),
        ("in_app", if user_agent.contains(device::PLATFORM_CLIENT) { "yes" } else { "no" }),
        ("other_lang", language.other().tag()),
    ];
    fill(SIGN_IN, language, &own)
}

/// The phone's confirm page.
pub fn confirm(language: Language, prompt: &ConfirmPrompt, proof: &str) -> String {
    let browser = device::describe(&prompt.user_agent);
    let ago = words(language)("confirm_ago").replace('%', &prompt.ago.as_secs().to_string());
    let at = format!("{} · {ago}", clock_time(prompt.at));
    let own = [
        ("name", &*prompt.name),
        ("address", &prompt.address),
        ("browser", &browser),
        ("at", &at),
        ("number", &prompt.number),
        ("proof", proof),
    ];
    fill(CONFIRM, language, &own)
}

/// The page on which a connected corporation's member names their employee account.
pub fn bind(language: Language, claim: &BindClaim) -> String {
    let member = format!("{}/{}", claim.corp_id, claim.employee_id);
    let name = if claim.name.is_empty() { member } else { format!("{} ({member})", claim.name) };
    fill(BIND, language, &[("name", &name), ("home", &claim.home)])
}

/// What a page says when there is nothing more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The browser is signed in.
    Confirmed,
    /// The browser was turned away.
    Cancelled,
}

/// A page that says how it ended.
pub fn notice(language: Language, notice: Notice) -> String {
    let words = words(language);
    let (kind, heading, text) = match notice {
        Notice::Confirmed => ("good", words("confirmed_title"), words("confirmed_text")),
        Notice::Cancelled => ("stopped", words("cancelled_title"), words("cancelled_text")),
    };
    let nothing_more = [("detail", ""), ("back", ""), ("back_word", "")];
    fill(NOTICE, language, &[&[("kind", kind), ("heading", heading), ("text", text)][..], &nothing_more].concat())
}

/// A page that says what went wrong and what to do.
pub fn error(language: Language, error: &Error, request_id: &str) -> String {
    let words = words(language);
    let text = error.message(language);
    let detail = format!("{} · {request_id}", error.code().number());
    let own = [
        ("kind", "error"),
        ("heading", words("error_title")),
        ("text", &*text),
        ("detail", &detail),
        ("back", "/api/auth/signin"),
        ("back_word", words("notice_back")),
    ];
    fill(NOTICE, language, &own)
}

/// Puts words and values into a page: `{{name}}` is one of `own`, escaped, else a word of the language.
fn fill(page: &str, language: Language, own: &[(&str, &str)]) -> String {
    let words = words(language);
    let mut out = String::with_capacity(page.len() + 512);
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, tail) = after.split_once("}}").unwrap_or((after, ""));
        out.push_str(before);
        let value = match own.iter().find(|(own, _)| *own == name) {
            Some((_, value)) => value,
            None if name == "lang" => language.tag(),
            None => words(name),
        };
        escape(value, &mut out);
        rest = tail;
    }
    out.push_str(rest);
    out
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

/// `03:04:05 UTC`: a code is asked for minutes ago at most, and the line must fit on a phone.
fn clock_time(at: Timestamp) -> String {
    format!("{} UTC", at.iso8601().get(11..19).unwrap_or_default())
}

#[cfg(test)]
mod tests;
