//! The hosted sign-in page: a QR code in a browser and a confirmation page on a phone.
//!
//! WeCom's page polls with a script; this one reloads itself and needs none. The polling endpoint serves clients
//! that bring their own page.

use std::pin::pin;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use minijinja::context;
use tokio::time::timeout;

use super::authorize::{AS, DENY};
use super::link::{CallbackTarget, LinkFault, Parameters};
use super::members::{Application, CORP_ID, EffectiveMember};
use super::pages::{self, PlatformNotice};
use super::path;
use super::state::credentials::{AuthorizeScope, CodeGrant};
use super::state::{HostedSignIn, PlatformState, ScanStatus, SharedState};
use crate::domain::language::Language;
use crate::qr;

/// How long a poll waits for a change; below the 15 seconds that known pages allow.
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// The parameter with the scan's key. WeCom keeps the key in its script.
const KEY: &str = "key";

/// `GET /wwopen/sso/qrConnect`
pub async fn legacy_page(State(state): State<SharedState>, headers: HeaderMap, parameters: Parameters) -> Response {
    respond(&mut state.lock(), &headers, &parameters).unwrap_or_else(LinkFault::response)
}

/// `GET /wwlogin/sso/login`. `ServiceApp` is for service providers, which the simulator does not have.
pub async fn page(State(state): State<SharedState>, headers: HeaderMap, parameters: Parameters) -> Response {
    if parameters.get("login_type") != Some("CorpApp") {
        return LinkFault::Parameter("login_type").response();
    }
    respond(&mut state.lock(), &headers, &parameters).unwrap_or_else(LinkFault::response)
}

fn respond(state: &mut PlatformState, headers: &HeaderMap, parameters: &Parameters) -> Result<Response, LinkFault> {
    let sign_in = read_sign_in(state, parameters)?;
    if let Some(answer) = parameters.get(AS) {
        return match resolve(state, &sign_in, answer)? {
            ScanAnswer::Approved(code) => Ok(sign_in.callback.redirect(&state.switches, Some(&code))),
            ScanAnswer::Declined => Ok(sign_in.callback.redirect(&state.switches, None)),
            ScanAnswer::NotVisible => Ok(pages::notice(PlatformNotice::NotVisible)),
        };
    }
    let now = state.now();
    let Some(key) = parameters.get(KEY) else {
        let key = state.scans.start(sign_in, now);
        return Ok(qr_page(headers, parameters, &key, &ScanStatus::Never));
    };
    match state.scans.status(key, now) {
        ScanStatus::Succeeded(code) => Ok(sign_in.callback.redirect(&state.switches, Some(&code))),
        ScanStatus::Failed => Ok(sign_in.callback.redirect(&state.switches, None)),
        status => Ok(qr_page(headers, parameters, key, &status)),
    }
}

/// Reads the link. It names the application, so that application's own trusted domains apply.
fn read_sign_in(state: &PlatformState, parameters: &Parameters) -> Result<HostedSignIn, LinkFault> {
    if parameters.get("appid") != Some(CORP_ID) {
        return Err("appid".into());
    }
    let application = parameters.get("agentid").and_then(Application::find).ok_or("agentid")?;
    let callback = CallbackTarget::read(parameters)?;
    if !state.switches.trusts(application, &callback.domain()) {
        return Err(LinkFault::UntrustedDomain(parameters.get("redirect_uri").unwrap_or_default().to_owned()));
    }
    Ok(HostedSignIn { callback, application })
}

fn qr_page(headers: &HeaderMap, parameters: &Parameters, key: &str, status: &ScanStatus) -> Response {
    let language = language(parameters, headers);
    let texts = QrPageTexts::of(language);
    // An expired code is replaced slowly: the browser may have been left alone.
    let (reload, seconds) = match status {
        ScanStatus::Error => (parameters.link_without(KEY), 30),
        _ => (parameters.link(KEY, key, &[]), 2),
    };
    let values = context! {
        language => language.tag(),
        title => texts.title,
        status => texts.status(status),
        alt => texts.alt,
        open => texts.open,
        seconds,
        reload,
        image => format!("{}?key={key}", path::QR_IMAGE),
        confirm => format!("{}?k={key}", path::QR_CONFIRM),
    };
    pages::with_own_forms(StatusCode::OK, "qr.html", values)
}

/// The page's language: that of `lang`, else the browser's, else Chinese.
fn language(parameters: &Parameters, headers: &HeaderMap) -> Language {
    let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    let wanted = parameters.get("lang").or(accepted).unwrap_or_default();
    if wanted.to_ascii_lowercase().starts_with("en") { Language::English } else { Language::Chinese }
}

/// The texts of the QR page in one language.
struct QrPageTexts {
    title: &'static str,
    alt: &'static str,
    open: &'static str,
    waiting: &'static str,
    scanned: &'static str,
    expired: &'static str,
}

const ENGLISH: QrPageTexts = QrPageTexts {
    title: "Scan to sign in",
    alt: "QR code for signing in",
    open: "No phone? Open the confirmation page",
    waiting: "Scan this code with your phone.",
    scanned: "Scanned. Confirm on your phone.",
    expired: "This code has expired. A new one will appear shortly.",
};

const CHINESE: QrPageTexts = QrPageTexts {
    title: "扫码登录",
    alt: "登录二维码",
    open: "没有手机？打开确认页面",
    waiting: "请使用手机扫描二维码",
    scanned: "扫描成功，请在手机上确认",
    expired: "二维码已过期，即将自动刷新",
};

impl QrPageTexts {
    fn of(language: Language) -> &'static Self {
        match language {
            Language::English => &ENGLISH,
            Language::Chinese => &CHINESE,
        }
    }

    /// The text for a status. After an answer the page redirects and shows none.
    fn status(&self, status: &ScanStatus) -> &'static str {
        match status {
            ScanStatus::Never => self.waiting,
            ScanStatus::Scanning | ScanStatus::Succeeded(_) | ScanStatus::Failed => self.scanned,
            ScanStatus::Error => self.expired,
        }
    }
}

/// `GET /wwopen/sso/qrImg`: the QR code with the address of the confirmation page.
pub async fn image(State(state): State<SharedState>, parameters: Parameters) -> Response {
    let key = parameters.get(KEY).unwrap_or_default();
    let address = {
        let state = state.lock();
        state.scans.sign_in(key, state.now()).map(|_| format!("{}{}?k={key}", state.origin, path::QR_CONFIRM))
    };
    match address.and_then(|address| qr::png(&address).ok()) {
        Some(image) => {
            ([(header::CONTENT_TYPE, "image/png"), (header::CACHE_CONTROL, "no-store")], image).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The answer to a scan.
enum ScanAnswer {
    /// With the authorization code.
    Approved(String),
    Declined,
    NotVisible,
}

fn resolve(state: &mut PlatformState, sign_in: &HostedSignIn, answer: &str) -> Result<ScanAnswer, &'static str> {
    if answer == DENY || state.switches.deny_at_scan {
        return Ok(ScanAnswer::Declined);
    }
    let person = state.switches.find_member(answer).ok_or(AS)?;
    if !state.switches.sees(sign_in.application, &person) {
        return Ok(ScanAnswer::NotVisible);
    }
    let grant = CodeGrant {
        member: person.member,
        application: Some(sign_in.application),
        domain: sign_in.callback.domain(),
        scope: AuthorizeScope::Base,
    };
    let now = state.now();
    Ok(ScanAnswer::Approved(state.codes.issue(grant, state.switches.code_lifetime, now)))
}

/// `GET /wwopen/sso/confirm2`: the confirmation page on the phone.
pub async fn confirm(State(state): State<SharedState>, parameters: Parameters) -> Response {
    let key = parameters.get("k").unwrap_or_default();
    let response = {
        let mut state = state.lock();
        let now = state.now();
        match state.scans.sign_in(key, now).cloned() {
            Some(sign_in) => confirm_scan(&mut state, &parameters, key, &sign_in),
            None => pages::notice(PlatformNotice::Expired),
        }
    };
    state.scan_changed().notify_waiters();
    response
}

fn confirm_scan(state: &mut PlatformState, parameters: &Parameters, key: &str, sign_in: &HostedSignIn) -> Response {
    let Some(answer) = parameters.get(AS) else {
        state.scans.set_status(key, ScanStatus::Scanning);
        let link = |person: &EffectiveMember| parameters.link(AS, person.member.userid, &[]);
        return pages::choose(&state.switches, &sign_in.callback.domain(), link, &parameters.link(AS, DENY, &[]));
    };
    match resolve(state, sign_in, answer) {
        Ok(ScanAnswer::Approved(code)) => {
            state.scans.set_status(key, ScanStatus::Succeeded(code));
            pages::notice(PlatformNotice::SignedIn)
        }
        Ok(ScanAnswer::Declined) => {
            state.scans.set_status(key, ScanStatus::Failed);
            pages::notice(PlatformNotice::Declined)
        }
        Ok(ScanAnswer::NotVisible) => pages::notice(PlatformNotice::NotVisible),
        Err(parameter) => LinkFault::Parameter(parameter).response(),
    }
}

/// `GET /wwopen/sso/l/qrConnect`: JSONP. A poll whose `lastStatus` is the current status waits for the next one.
pub async fn poll(State(state): State<SharedState>, parameters: Parameters) -> Response {
    let key = parameters.get(KEY).unwrap_or_default();
    let status = || {
        let state = state.lock();
        state.scans.status(key, state.now())
    };
    let change = async {
        loop {
            // Registers before it checks, so that no change is missed.
            let mut changed = pin!(state.scan_changed().notified());
            changed.as_mut().enable();
            if parameters.get("lastStatus") != Some(status().as_str()) {
                break;
            }
            changed.await;
        }
    };
    // A poll that times out returns the current status too.
    _ = timeout(LONGEST_POLL, change).await;
    let status = status();
    let code = if let ScanStatus::Succeeded(code) = &status { code } else { "" };
    let body = serde_json::json!({ "status": status.as_str(), "auth_code": code });
    let function = parameters.get("callback").filter(|name| is_function_name(name)).unwrap_or("jsonpCallback");
    let kind = [(header::CONTENT_TYPE, "application/javascript; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (kind, format!("{function}({body})")).into_response()
}

/// Rejects any other text, which would run as a script.
fn is_function_name(name: &str) -> bool {
    name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte))
}
