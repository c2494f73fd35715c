//! The sign-in page that the platform hosts: a QR code in a browser, a confirm page on a phone.
//!
//! The real page polls with script; ours reloads itself, so that it works without. The polling endpoint
//! is there for clients that bring their own page.

use std::pin::pin;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::authorize::{AS, DENY, Fault, read_return};
use super::ledger::Ledger;
use super::ledger::codes::{Grant, Scope};
use super::ledger::scans::{Asked, ScanStatus};
use super::members::{App, CORP_ID, Person};
use super::pages::{self, Notice};
use super::query::Parameters;
use super::{Shared, path};

mod image;

mod words;

pub use image::image;
use words::Language;

const PAGE: &str = include_str!("pages/qr.html");

/// How long a poll is held while nothing changes; below the 15 seconds that known pages wait.
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// The scan that a page shows; the platform keeps it in its script.
const KEY: &str = "key";

/// `GET /wwopen/sso/qrConnect`
pub async fn legacy_page(State(shared): State<Shared>, headers: HeaderMap, parameters: Parameters) -> Response {
    answer(&mut shared.ledger(), &headers, &parameters).unwrap_or_else(Fault::answer)
}

/// `GET /wwlogin/sso/login`. `ServiceApp` is for service providers, whom the simulator does not have.
pub async fn page(State(shared): State<Shared>, headers: HeaderMap, parameters: Parameters) -> Response {
    if parameters.get("login_type") != Some("CorpApp") {
        return Fault::Parameter("login_type").answer();
    }
    answer(&mut shared.ledger(), &headers, &parameters).unwrap_or_else(Fault::answer)
}

fn answer(ledger: &mut Ledger, headers: &HeaderMap, parameters: &Parameters) -> Result<Response, Fault> {
    let asked = read(ledger, parameters)?;
    if let Some(answer) = parameters.get(AS) {
        return match decide(ledger, &asked, answer)? {
            Decision::Agreed(code) => Ok(asked.back.answer(ledger, Some(&code))),
            Decision::Refused => Ok(asked.back.answer(ledger, None)),
            Decision::NotVisible => Ok(pages::notice(Notice::NotVisible)),
        };
    }
    let now = ledger.now();
    let Some(key) = parameters.get(KEY) else {
        let key = ledger.scans.show(asked, now);
        return Ok(shown(headers, parameters, &key, &ScanStatus::Never));
    };
    match ledger.scans.status(key, now) {
        ScanStatus::Succeeded(code) => Ok(asked.back.answer(ledger, Some(&code))),
        ScanStatus::Failed => Ok(asked.back.answer(ledger, None)),
        status => Ok(shown(headers, parameters, key, &status)),
    }
}

/// The application is named here, so its own domains decide.
fn read(ledger: &Ledger, parameters: &Parameters) -> Result<Asked, Fault> {
    if parameters.get("appid") != Some(CORP_ID) {
        return Err("appid".into());
    }
    let app = parameters.get("agentid").and_then(App::find).ok_or("agentid")?;
    let back = read_return(parameters)?;
    if !ledger.switches.trusts(app, &back.domain()) {
        return Err(Fault::Domain(parameters.get("redirect_uri").unwrap_or_default().to_owned()));
    }
    Ok(Asked { back, app })
}

fn shown(headers: &HeaderMap, parameters: &Parameters, key: &str, status: &ScanStatus) -> Response {
    let language = Language::of(parameters, headers);
    let words = language.words();
    // An old code is not shown again by itself: somebody must be there to scan the new one.
    let (again, seconds) = match status {
        ScanStatus::Error => (parameters.link_without(KEY), "30"),
        _ => (parameters.link(KEY, key, &[]), "2"),
    };
    let confirm = format!("{}?k={key}", path::QR_CONFIRM);
    let values = [
        ("lang", language.code()),
        ("title", words.title),
        ("status", words.status(status)),
        ("alt", words.alt),
        ("open", words.open),
        ("seconds", seconds),
        ("again", &again),
        ("image", &format!("{}?key={key}", path::QR_IMAGE)),
        ("confirm", &confirm),
    ];
    pages::own(StatusCode::OK, PAGE, &values.map(|(name, value)| (name, pages::escape(value))))
}

/// What a phone answered.
enum Decision {
    Agreed(String),
    Refused,
    NotVisible,
}

fn decide(ledger: &mut Ledger, asked: &Asked, answer: &str) -> Result<Decision, &'static str> {
    if answer == DENY || ledger.switches.deny_at_scan {
        return Ok(Decision::Refused);
    }
    let person: Person = ledger.person(answer).ok_or(AS)?;
    if !ledger.switches.sees(asked.app, &person) {
        return Ok(Decision::NotVisible);
    }
    let grant = Grant { member: person.member, app: Some(asked.app), domain: asked.back.domain(), scope: Scope::Base };
    let now = ledger.now();
    Ok(Decision::Agreed(ledger.codes.give(grant, ledger.switches.code_lifetime, now)))
}

/// `GET /wwopen/sso/confirm2`: what a phone sees that scanned the code.
pub async fn confirm(State(shared): State<Shared>, parameters: Parameters) -> Response {
    let key = parameters.get("k").unwrap_or_default();
    let response = {
        let mut ledger = shared.ledger();
        let now = ledger.now();
        match ledger.scans.asked(key, now).cloned() {
            Some(asked) => confirmed(&mut ledger, &parameters, key, &asked),
            None => pages::notice(Notice::Expired),
        }
    };
    shared.0.changed.notify_waiters();
    response
}

fn confirmed(ledger: &mut Ledger, parameters: &Parameters, key: &str, asked: &Asked) -> Response {
    let Some(answer) = parameters.get(AS) else {
        ledger.scans.advance(key, ScanStatus::Scanning);
        return pages::choose(ledger, &asked.back.domain(), |person| {
            parameters.link(AS, person.map_or(DENY, |person| person.member.userid), &[])
        });
    };
    match decide(ledger, asked, answer) {
        Ok(Decision::Agreed(code)) => {
            ledger.scans.advance(key, ScanStatus::Succeeded(code));
            pages::notice(Notice::SignedIn)
        }
        Ok(Decision::Refused) => {
            ledger.scans.advance(key, ScanStatus::Failed);
            pages::notice(Notice::Refused)
        }
        Ok(Decision::NotVisible) => pages::notice(Notice::NotVisible),
        Err(parameter) => Fault::Parameter(parameter).answer(),
    }
}

/// `GET /wwopen/sso/l/qrConnect`: JSON in a function call. With the status that the caller knows in
/// `lastStatus` it is held until there is another, or for some seconds.
pub async fn poll(State(shared): State<Shared>, parameters: Parameters) -> Response {
    let key = parameters.get(KEY).unwrap_or_default();
    let status = || {
        let ledger = shared.ledger();
        ledger.scans.status(key, ledger.now())
    };
    let another = async {
        loop {
            // Listens before it looks, so that no change falls between.
            let mut changed = pin!(shared.0.changed.notified());
            changed.as_mut().enable();
            if parameters.get("lastStatus") != Some(status().as_str()) {
                break;
            }
            changed.await;
        }
    };
    // Either way the status of that moment is told.
    _ = timeout(LONGEST_POLL, another).await;
    let status = status();
    let code = if let ScanStatus::Succeeded(code) = &status { code } else { "" };
    let body = serde_json::json!({ "status": status.as_str(), "auth_code": code });
    let function = parameters.get("callback").filter(|name| is_function(name)).unwrap_or("jsonpCallback");
    let kind = [(header::CONTENT_TYPE, "application/javascript; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (kind, format!("{function}({body})")).into_response()
}

/// Whatever else would be a script of the caller's choice.
fn is_function(name: &str) -> bool {
    name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte))
}
