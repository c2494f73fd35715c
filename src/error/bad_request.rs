//! 1400: why a request was rejected as it stands. `Display` is for the log and `explain`.

use crate::domain::path::PathFault;
use crate::messages::Message;

/// What is wrong with a request (1400).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The head is not valid HTTP.
    #[error("the request head is not valid HTTP")]
    Head,
    /// The request line names a version of HTTP that the gateway does not speak (505).
    #[error("the version of HTTP is not supported")]
    Version,
    /// `Expect` has another value than `100-continue` (417).
    #[error("the expectation cannot be met")]
    Expectation,
    /// Upstreams could interpret the request target in different ways.
    #[error("{0}")]
    Path(PathFault),
    /// Upstreams could disagree on where the body ends (request smuggling).
    #[error("the body length is ambiguous")]
    Framing,
    /// A header that may occur once occurs more often.
    #[error("the header `{0}` is repeated")]
    Repeated(&'static str),
    /// A header is missing or has an invalid value.
    #[error("the header `{0}` is missing or invalid")]
    Header(&'static str),
    /// An entry of a trusted proxy's `X-Forwarded-For` or `Forwarded` is no address.
    #[error("an entry of {0} cannot be read as an address")]
    ForwardedForEntry(&'static str),
    /// A trusted proxy's `X-Forwarded-For` or `Forwarded` is too long.
    #[error("{0} is too long")]
    ForwardedForLength(&'static str),
    /// Plain HTTP on a port that expects TLS.
    #[error("plain HTTP on a port that expects TLS")]
    PlainHttp,
    /// `Upgrade` names another protocol than WebSocket, or the handshake is incomplete.
    #[error("invalid WebSocket handshake")]
    Upgrade,
    /// Two different tokens in the same place.
    #[error("two different tokens")]
    TwoTokens,
    /// The body is not the expected JSON; the text says where.
    #[error("the body is not the expected JSON: {0}")]
    Body(String),
    /// A query parameter is missing.
    #[error("the parameter `{0}` is missing")]
    Missing(&'static str),
    /// A query parameter has an invalid value.
    #[error("the parameter `{0}` is invalid")]
    Parameter(&'static str),
    /// `client` is none of the web clients' names.
    #[error("the parameter `client` names no web client")]
    UnknownClient,
    /// The redirect target is not under the URL of a configured client.
    #[error("redirect_uri is not under the URL of a configured client")]
    RedirectUri,
    /// Opened by navigation or from another site, where only a script of our own pages may call.
    #[error("called by navigation or from another site")]
    ScriptOnly,
    /// A new password is not accepted; the message says why.
    #[error("the new password is not accepted")]
    NewPassword(Message),
    /// The user declined the sign-in on the platform.
    #[error("the user declined the sign-in on the platform")]
    SignInDeclined,
    /// The user declined on the phone that scanned a QR code.
    #[error("the user declined the sign-in on the phone")]
    ScanDeclined,
    /// The platform reported an error instead of a code.
    #[error("the platform reported an error instead of a code")]
    SignInFailed,
    /// The platform's authorization code was used before, has expired or is unknown.
    #[error("the authorization code is invalid")]
    SignInCode,
    /// The sign-in was started in another browser or has expired.
    #[error("the sign-in was started in another browser or has expired")]
    SignInFlow,
    /// The QR code was used, cancelled or has expired.
    #[error("the ticket was used, cancelled or has expired")]
    TicketEnded,
}

impl BadRequest {
    /// The message for the client and the value of its placeholder, if it has one.
    pub(super) fn message(&self) -> (Message, Option<(&'static str, &str)>) {
        let plain = |message| (message, None);
        match self {
            BadRequest::Repeated(header) => (Message::REPEATED_HEADER, Some(("header", header))),
            BadRequest::Header(header) => (Message::HEADER, Some(("header", header))),
            BadRequest::Body(detail) => (Message::BODY, Some(("detail", detail))),
            BadRequest::Missing(parameter) => (Message::MISSING_PARAMETER, Some(("parameter", parameter))),
            BadRequest::Parameter(parameter) => (Message::PARAMETER, Some(("parameter", parameter))),
            BadRequest::NewPassword(advice) => plain(*advice),
            BadRequest::Head => plain(Message::HEAD),
            BadRequest::Version => plain(Message::HTTP_VERSION),
            BadRequest::Expectation => plain(Message::EXPECTATION),
            BadRequest::Path(_) => plain(Message::PATH),
            BadRequest::Framing => plain(Message::FRAMING),
            BadRequest::ForwardedForEntry(header) => (Message::FORWARDED_FOR_ENTRY, Some(("header", header))),
            BadRequest::ForwardedForLength(header) => (Message::FORWARDED_FOR_LENGTH, Some(("header", header))),
            BadRequest::PlainHttp => plain(Message::PLAIN_HTTP),
            BadRequest::Upgrade => plain(Message::UPGRADE),
            BadRequest::TwoTokens => plain(Message::TWO_TOKENS),
            BadRequest::UnknownClient => plain(Message::UNKNOWN_CLIENT),
            BadRequest::RedirectUri => plain(Message::REDIRECT_URI),
            BadRequest::ScriptOnly => plain(Message::SCRIPT_ONLY),
            BadRequest::SignInFailed => plain(Message::SIGN_IN_FAILED),
            BadRequest::SignInDeclined => plain(Message::SIGN_IN_DECLINED),
            BadRequest::ScanDeclined => plain(Message::SCAN_DECLINED),
            BadRequest::SignInCode => plain(Message::SIGN_IN_CODE),
            BadRequest::SignInFlow => plain(Message::SIGN_IN_FLOW),
            BadRequest::TicketEnded => plain(Message::TICKET_ENDED),
        }
    }
}
