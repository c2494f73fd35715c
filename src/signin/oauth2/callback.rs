//! The platform's callback: its parameters, its kinds and its results.

use std::time::Duration;

use super::flow::Flow;
use crate::domain::device::ClientDevice;
use crate::domain::secret::Secret;
use crate::domain::session::{LoginMethod, LoginSource, SessionId};
use crate::error::{BadRequest, Error};
use crate::platform::Parameter;
use crate::signin::attempt::Attempt;
use crate::signin::codes::CodeUse;
use crate::signin::tickets::STATE_PREFIX;
use crate::signin::tickets::phone::ScanResult;

/// The `state` parameter that the specification fixes for redirects.
pub(super) const STATE: &str = "auth_login";

/// A request to the callback.
#[derive(Clone, Copy)]
pub struct Callback<'a> {
    /// The query parameters; the platform knows which of them it sent.
    pub parameter: Parameter<'a, 'a>,
    /// `auth_login`, or `qr` followed by a scan id.
    pub state: Option<&'a str>,
    /// The values of the flow cookies, newest last.
    pub flows: &'a [String],
    /// `Referer`; chooses among several flows.
    pub referer: Option<&'a str>,
    /// `Sec-Fetch-Site`.
    pub fetch_site: Option<&'a str>,
}

/// Where a callback leads.
#[derive(Debug)]
pub enum CallbackResult {
    /// Redirect to the web client with a token.
    SignedIn {
        /// The web client's page.
        to: String,
        /// The session.
        session: SessionId,
        /// The access token.
        token: Secret<String>,
        /// Seconds until it expires.
        expires_in: u64,
        /// The nonce of the completed flow.
        flow: Option<String>,
    },
    /// The QR code was scanned.
    Scanned(ScanResult),
    /// A member of a connected corporation must bind an employee account first.
    BindFirst {
        /// The value of the bind-proof cookie.
        proof: Secret<String>,
        /// How long the proof is valid.
        lifetime: Duration,
    },
    /// Redirect to the web client with an error, or an error page if no web client is known.
    Failed {
        /// The web client's page.
        to: Option<String>,
        /// The value of `error` in the fragment.
        word: &'static str,
        /// What went wrong.
        error: Error,
    },
}

/// The kind of flow that a callback's `state` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowKind<'a> {
    Redirect,
    /// A scanned QR code with this scan id.
    Scan(&'a str),
    /// A state that this gateway did not issue.
    Unknown,
}

impl<'a> FlowKind<'a> {
    pub(super) fn of(state: Option<&'a str>) -> Self {
        // Scan ids have letters and digits only; anything else is not from this gateway.
        let is_scan_id =
            |id: &&str| (16..=126).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match state {
            Some(STATE) => FlowKind::Redirect,
            Some(state) => {
                state.strip_prefix(STATE_PREFIX).filter(is_scan_id).map_or(FlowKind::Unknown, FlowKind::Scan)
            }
            None => FlowKind::Unknown,
        }
    }

    /// The way in which the callback's code arrived.
    pub(super) fn code_use(self, flow: Option<&'a Flow>) -> CodeUse<'a> {
        match self {
            FlowKind::Scan(scan_id) => CodeUse::Scan { scan_id },
            FlowKind::Redirect | FlowKind::Unknown => CodeUse::Redirect { flow: flow.map(|flow| flow.nonce.as_str()) },
        }
    }

    /// The sign-in attempt of a callback, for the login log.
    pub(super) fn attempt<'d>(self, flow: Option<&Flow>, device: &'d ClientDevice) -> Attempt<'d> {
        match self {
            FlowKind::Scan(_) => Attempt::new(LoginMethod::Qrcode, device).with_source(LoginSource::Qrcode),
            FlowKind::Redirect | FlowKind::Unknown => {
                Attempt::new(LoginMethod::Oauth2, device).with_client(flow.map(|flow| flow.client))
            }
        }
    }
}

/// The value of `#error=`: OAuth's own word where there is one.
pub(super) fn error_word(error: &Error) -> &'static str {
    match error {
        Error::BadRequest(BadRequest::SignInCode) => "invalid_code",
        Error::BadRequest(BadRequest::SignInFlow) => "invalid_flow",
        Error::BadRequest(BadRequest::TicketEnded) => "ticket_over",
        Error::BadRequest(_) => "invalid_state",
        Error::Forbidden(_) => "access_denied",
        Error::Unexpected { .. } => "server_error",
        _ => "temporarily_unavailable",
    }
}
