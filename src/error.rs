//! Everything that can end a request, and what its caller is told. One place: a new kind of
//! failure does not compile until somebody has decided its code, its status and its two messages.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::config::Span;
use crate::domain::phrase::Phrase;
use crate::domain::rate::Exceeded;
use crate::domain::role::RoleName;

mod message;

/// The cause of an unexpected failure; goes to the log and no further.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a token is not believed. For the log and `authn_total{reason}`; the client hears one sentence for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFault {
    /// Not three canonical base64url segments of a sensible size.
    Malformed,
    /// A header that we would not have written: other algorithm, type, or any extra member.
    Header,
    /// Signed with a key that we do not have, or no longer have.
    UnknownKey,
    /// Claims that are missing, doubled, or of the wrong type.
    Claims,
    /// Another issuer or audience.
    Audience,
    /// Its time has passed, or has not come.
    Expired,
    /// The signature does not fit.
    Signature,
    /// No live session stands behind it: revoked, ended or never there.
    Revoked,
}

impl TokenFault {
    /// Every fault, for metrics.
    pub const ALL: [TokenFault; 8] = [
        Self::Malformed,
        Self::Header,
        Self::UnknownKey,
        Self::Claims,
        Self::Audience,
        Self::Expired,
        Self::Signature,
        Self::Revoked,
    ];

    /// As logs and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenFault::Malformed => "malformed",
            TokenFault::Header => "header",
            TokenFault::UnknownKey => "unknown_key",
            TokenFault::Claims => "claims",
            TokenFault::Audience => "audience",
            TokenFault::Expired => "expired",
            TokenFault::Signature => "signature",
            TokenFault::Revoked => "revoked",
        }
    }
}

/// What is wrong with a request that cannot be taken as it stands (1400).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadRequest {
    /// The head cannot be read as HTTP.
    Head,
    /// The path has a form that upstreams could read differently.
    Path,
    /// The body's length is said twice, or in a way that upstreams could read differently.
    Framing,
    /// A header that may stand once stands more often.
    Repeated(&'static str),
    /// A header whose value cannot be used.
    Header(&'static str),
    /// `Upgrade` asks for something else than a WebSocket, or not properly.
    Upgrade,
    /// Two different tokens in the same place.
    TwoTokens,
    /// The body is not the JSON that is expected; says where.
    Body(String),
    /// A query parameter is missing.
    Missing(&'static str),
    /// A query parameter cannot be used.
    Parameter(&'static str),
    /// The address to return to is not one of the configured clients'.
    RedirectUri,
    /// Opened like a page, or asked for by somebody else's: this is for the scripts of our own.
    NotByAPage,
    /// A new password is not good enough; says why.
    NewPassword(Phrase),
    /// The person did not agree at the platform.
    SignInDeclined,
    /// The platform reports an error instead of a code.
    SignInFailed,
    /// The platform's code was used, is too old or was never given.
    SignInCode,
    /// The sign-in was not begun in this browser, or too long ago.
    SignInFlow,
    /// The QR code was used, cancelled or is too old.
    TicketOver,
}

/// Why somebody may not (1003).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forbidden {
    /// No such employee: they must sign in through the platform first.
    EmployeeUnknown,
    /// An administrator names somebody who is not there.
    NoSuchEmployee,
    /// The employee has no role: an administrator must give one.
    NoRole,
    /// The employee has been disabled.
    Disabled,
    /// The requested role is not held.
    RoleNotHeld(RoleName),
    /// The active role is none of those that the rule wants.
    RoleRequired {
        /// The active one.
        active: RoleName,
        /// Those that would do.
        wanted: Vec<RoleName>,
    },
    /// The matrix grants the active role nothing of the kind.
    NotGranted {
        /// The active role.
        active: RoleName,
        /// `resource:operation`
        access: String,
    },
    /// The rule is for other networks.
    Network(IpAddr),
    /// The rule's condition does not hold.
    Condition {
        /// As the rule says it.
        condition: Arc<str>,
        /// Why it could not even be judged, if so.
        trouble: Option<String>,
    },
    /// A half-authenticated token where a full one is needed.
    OtpBindingOnly,
    /// The platform does not show this member to our application.
    NotVisible,
    /// The employee is no agent.
    NotAnAgent,
    /// Nobody else is an administrator.
    LastAdmin,
    /// The employee has as many roles as one can have.
    TooManyRoles,
    /// There is no one-time-password device: one must be bound first.
    OtpNotBound,
    /// No secret is on offer: set up first.
    OtpNotOffered,
    /// There is a device already, and this token cannot replace it.
    OtpBound,
    /// Binding wants a fresh platform sign-in from this browser.
    BindProof,
    /// The WebSocket's page comes from elsewhere.
    Origin,
    /// A development route outside development mode.
    Development,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forbidden::EmployeeUnknown | Forbidden::NoSuchEmployee => f.write_str("no such employee"),
            Forbidden::NoRole => f.write_str("the employee has no role"),
            Forbidden::Disabled => f.write_str("the employee is disabled"),
            Forbidden::RoleNotHeld(role) => write!(f, "role `{role}` is not held"),
            Forbidden::RoleRequired { active, wanted } => {
                let wanted: Vec<&str> = wanted.iter().map(RoleName::as_str).collect();
                write!(f, "the active role is `{active}`, the rule wants one of: {}", wanted.join(", "))
            }
            Forbidden::NotGranted { active, access } => write!(f, "the matrix grants `{active}` no {access}"),
            Forbidden::Network(address) => write!(f, "{address} is in none of the rule's networks"),
            Forbidden::Condition { condition, trouble: None } => write!(f, "the condition does not hold: {condition}"),
            Forbidden::Condition { condition, trouble: Some(trouble) } => {
                write!(f, "the condition cannot be judged ({trouble}): {condition}")
            }
            Forbidden::OtpBindingOnly => f.write_str("a half-authenticated token"),
            Forbidden::NotVisible => f.write_str("the member is not in the application's visible range"),
            Forbidden::LastAdmin => f.write_str("the last administrator"),
            Forbidden::TooManyRoles => f.write_str("as many roles as one can have"),
            Forbidden::NotAnAgent => f.write_str("the employee is no agent"),
            Forbidden::OtpNotBound => f.write_str("no one-time-password device is bound"),
            Forbidden::OtpNotOffered => f.write_str("no one-time-password secret is on offer"),
            Forbidden::OtpBound => f.write_str("a one-time-password device is bound already"),
            Forbidden::BindProof => f.write_str("no proof of a platform sign-in"),
            Forbidden::Origin => f.write_str("the page's origin is not one of ours"),
            Forbidden::Development => f.write_str("development mode is off"),
        }
    }
}

/// A part of the service that may be out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Sessions and tickets.
    Store,
    /// Employees and roles.
    Directory,
    /// The messaging platform.
    Platform,
    /// What is set about the messaging platform: it refuses us.
    PlatformSetup,
    /// This process.
    Gateway,
}

/// What the caller was doing; the fixed phrase with which its 1005 begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Anything that has no phrase of its own.
    Request,
    /// Issuing a QR code.
    Qrcode,
    /// Polling a ticket.
    ScanStatus,
    /// Building the authorize URL.
    AuthorizeUrl,
    /// Handling the platform's callback.
    Callback,
    /// Verifying a token.
    Verify,
    /// Logging out.
    Logout,
    /// Switching the role.
    SwitchRole,
    /// Binding an account.
    Bind,
    /// Listing or ending sessions.
    Sessions,
    /// Administering.
    Admin,
    /// Signing an agent in, or setting their password.
    Agent,
    /// Binding a one-time-password device, or giving a code.
    Otp,
}

/// Everything that can end a request, named by what its caller may be told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no token where one is needed.
    #[error("no credentials")]
    NoCredentials,
    /// There is one, but it is not valid.
    #[error("invalid token ({})", .0.as_str())]
    InvalidToken(TokenFault),
    /// The caller is known and may not.
    #[error("forbidden: {0}")]
    Forbidden(Forbidden),
    /// The request cannot be taken as it stands.
    #[error("bad request: {0:?}")]
    BadRequest(BadRequest),
    /// No rule names this path.
    #[error("no rule names this path")]
    NotFound,
    /// The caller has no such session.
    #[error("no such session")]
    NoSession,
    /// The path is known, the method is not; `allow` lists those that are.
    #[error("method not allowed")]
    MethodNotAllowed {
        /// For the `Allow` header.
        allow: String,
    },
    /// The client took too long to send its request.
    #[error("the request took too long to arrive")]
    RequestTimeout,
    /// The body is larger than this endpoint reads.
    #[error("body too large")]
    BodyTooLarge,
    /// The target is longer than we read.
    #[error("target too long")]
    TargetTooLong,
    /// The body is not JSON.
    #[error("unsupported media type")]
    UnsupportedMediaType,
    /// Another WebSocket version.
    #[error("unsupported websocket version")]
    WebSocketVersion,
    /// The rule wants a fresh one-time password.
    #[error("a one-time password is needed, and none was given lately")]
    StepUpRequired,
    /// The local password is wrong, or there is no such agent.
    #[error("the local password is wrong")]
    PasswordWrong,
    /// The agent has no local password yet.
    #[error("no local password is set")]
    PasswordNotSet,
    /// Another password needs the old one.
    #[error("the old password is missing")]
    OldPasswordMissing,
    /// The old password is wrong.
    #[error("the old password is wrong")]
    OldPasswordWrong,
    /// As many passwords are being worked on as may be.
    #[error("too many passwords are being checked")]
    Overloaded {
        /// When to try again.
        retry_after: Duration,
    },
    /// The one-time password is wrong, or was used already.
    #[error("the one-time password is wrong or was used already")]
    OtpWrong,
    /// The account was tried too often.
    #[error("the account was tried too often and is locked for {} s", .retry_after.as_secs())]
    Locked {
        /// When to try again.
        retry_after: Duration,
    },
    /// Too many.
    #[error("too many requests: {}", told(.exceeded))]
    RateLimited {
        /// When to try again.
        retry_after: Duration,
        /// The rate that is used up, if it is one.
        exceeded: Option<Exceeded>,
    },
    /// Too many or too long headers.
    #[error("request head too large")]
    HeadTooLarge,
    /// No answer could be had from the upstream.
    #[error("upstream failed")]
    UpstreamFailed(#[source] Option<Cause>),
    /// The upstream did not answer in time.
    #[error("upstream timed out")]
    UpstreamTimeout,
    /// A part is out of reach for the moment.
    #[error("{part:?} unavailable")]
    Unavailable {
        /// Shown to the client.
        part: Part,
        /// Goes to the log and no further.
        #[source]
        cause: Option<Cause>,
    },
    /// The messaging platform has failed so often that it is left alone for a while.
    #[error("the messaging platform fails and is not asked for another {} s", .again_in.as_secs())]
    PlatformResting {
        /// When it is asked again.
        again_in: Duration,
    },
    /// Something that should not happen did.
    #[error("unexpected failure of {part:?}")]
    Unexpected {
        /// What the caller was doing.
        doing: Doing,
        /// Shown to the client.
        part: Part,
        /// Goes to the log and no further.
        #[source]
        cause: Cause,
    },
}

/// The application's error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// No token, or not a valid one.
    Unauthenticated = 1001,
    /// Not allowed.
    Forbidden = 1003,
    /// Unexpected failure.
    Unexpected = 1005,
    /// The local password is wrong.
    PasswordWrong = 1011,
    /// A local password must be set first.
    PasswordNotSet = 1012,
    /// The old password is required.
    OldPasswordMissing = 1015,
    /// The old password is wrong.
    OldPasswordWrong = 1016,
    /// A one-time password is needed.
    StepUpRequired = 1021,
    /// The one-time password is wrong.
    OtpWrong = 1022,
    /// HTTP 400.
    BadRequest = 1400,
    /// HTTP 404.
    NotFound = 1404,
    /// HTTP 405.
    MethodNotAllowed = 1405,
    /// HTTP 408.
    RequestTimeout = 1408,
    /// HTTP 413.
    BodyTooLarge = 1413,
    /// HTTP 414.
    TargetTooLong = 1414,
    /// HTTP 415.
    UnsupportedMediaType = 1415,
    /// HTTP 426.
    WebSocketVersion = 1426,
    /// HTTP 429.
    RateLimited = 1429,
    /// HTTP 431.
    HeadTooLarge = 1431,
    /// HTTP 502.
    UpstreamFailed = 1502,
    /// HTTP 503.
    Unavailable = 1503,
    /// HTTP 504.
    UpstreamTimeout = 1504,
}

impl Code {
    /// Every code, in the order of their numbers.
    pub const ALL: [Code; 22] = [
        Code::Unauthenticated,
        Code::Forbidden,
        Code::Unexpected,
        Code::PasswordWrong,
        Code::PasswordNotSet,
        Code::OldPasswordMissing,
        Code::OldPasswordWrong,
        Code::StepUpRequired,
        Code::OtpWrong,
        Code::BadRequest,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::BodyTooLarge,
        Code::TargetTooLong,
        Code::UnsupportedMediaType,
        Code::WebSocketVersion,
        Code::RateLimited,
        Code::HeadTooLarge,
        Code::UpstreamFailed,
        Code::Unavailable,
        Code::UpstreamTimeout,
    ];

    /// The number that clients see.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The HTTP status that goes with it.
    pub fn status(self) -> StatusCode {
        match self {
            Code::Unauthenticated | Code::PasswordWrong | Code::StepUpRequired | Code::OtpWrong => {
                StatusCode::UNAUTHORIZED
            }
            Code::Forbidden | Code::PasswordNotSet => StatusCode::FORBIDDEN,
            Code::Unexpected => StatusCode::INTERNAL_SERVER_ERROR,
            Code::BadRequest | Code::OldPasswordMissing | Code::OldPasswordWrong => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Code::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::TargetTooLong => StatusCode::URI_TOO_LONG,
            Code::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::WebSocketVersion => StatusCode::UPGRADE_REQUIRED,
            Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Code::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Code::UpstreamFailed => StatusCode::BAD_GATEWAY,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

impl Error {
    /// No `_` arm: a new variant does not compile until somebody has decided what the client sees.
    pub fn code(&self) -> Code {
        match self {
            Error::NoCredentials | Error::InvalidToken(_) => Code::Unauthenticated,
            Error::Forbidden(_) => Code::Forbidden,
            Error::BadRequest(_) => Code::BadRequest,
            Error::NotFound | Error::NoSession => Code::NotFound,
            Error::MethodNotAllowed { .. } => Code::MethodNotAllowed,
            Error::RequestTimeout => Code::RequestTimeout,
            Error::BodyTooLarge => Code::BodyTooLarge,
            Error::TargetTooLong => Code::TargetTooLong,
            Error::UnsupportedMediaType => Code::UnsupportedMediaType,
            Error::WebSocketVersion => Code::WebSocketVersion,
            Error::StepUpRequired => Code::StepUpRequired,
            Error::PasswordWrong => Code::PasswordWrong,
            Error::PasswordNotSet => Code::PasswordNotSet,
            Error::OldPasswordMissing => Code::OldPasswordMissing,
            Error::OldPasswordWrong => Code::OldPasswordWrong,
            Error::OtpWrong => Code::OtpWrong,
            Error::RateLimited { .. } | Error::Locked { .. } => Code::RateLimited,
            Error::HeadTooLarge => Code::HeadTooLarge,
            Error::UpstreamFailed(_) => Code::UpstreamFailed,
            Error::UpstreamTimeout => Code::UpstreamTimeout,
            Error::Unavailable { .. } | Error::PlatformResting { .. } | Error::Overloaded { .. } => Code::Unavailable,
            Error::Unexpected { .. } => Code::Unexpected,
        }
    }

    /// The challenge of RFC 6750 that goes with a refusal, if one does.
    pub fn challenge(&self) -> Option<HeaderValue> {
        let text = match self {
            Error::NoCredentials => r#"Bearer realm="deskgate""#,
            Error::InvalidToken(_) => {
                r#"Bearer realm="deskgate", error="invalid_token", error_description="the token is invalid, expired or revoked""#
            }
            Error::BadRequest(BadRequest::TwoTokens | BadRequest::Repeated("Authorization")) => {
                r#"Bearer realm="deskgate", error="invalid_request""#
            }
            // No token would help, but a 401 names a way to sign in (RFC 9110, 15.5.2).
            Error::PasswordWrong => r#"Bearer realm="deskgate""#,
            Error::StepUpRequired => {
                r#"Bearer realm="deskgate", error="insufficient_user_authentication", error_description="a fresh one-time password is needed", acr_values="otp""#
            }
            Error::OtpWrong => {
                r#"Bearer realm="deskgate", error="insufficient_user_authentication", error_description="the one-time password is wrong or was used already", acr_values="otp""#
            }
            Error::Forbidden(
                Forbidden::RoleRequired { .. }
                | Forbidden::NotGranted { .. }
                | Forbidden::RoleNotHeld(_)
                | Forbidden::OtpBindingOnly,
            ) => r#"Bearer realm="deskgate", error="insufficient_scope""#,
            _ => return None,
        };
        Some(HeaderValue::from_static(text))
    }

    /// When trying again makes sense, for `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::RateLimited { retry_after, .. }
            | Error::Locked { retry_after }
            | Error::Overloaded { retry_after } => Some(*retry_after),
            Error::PlatformResting { again_in } => Some(*again_in),
            Error::Unavailable { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// Names what the caller was doing, for the phrase with which a 1005 begins.
    pub fn within(self, doing: Doing) -> Self {
        match self {
            Error::Unexpected { part, cause, .. } => Error::Unexpected { doing, part, cause },
            other => other,
        }
    }

    /// An unexpected failure of a part.
    pub fn unexpected(part: Part, cause: impl Into<Cause>) -> Self {
        Error::Unexpected { doing: Doing::Request, part, cause: cause.into() }
    }
}

/// An error and what caused it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        source = cause.source();
    }
    line
}

fn told(exceeded: &Option<Exceeded>) -> String {
    match exceeded {
        Some(Exceeded { by, window }) => format!("{} per {} by {by} are used up", window.limit, Span::from(window.per)),
        None => "as many as may be are there".to_owned(),
    }
}

impl From<BadRequest> for Error {
    fn from(fault: BadRequest) -> Self {
        Error::BadRequest(fault)
    }
}

impl From<Forbidden> for Error {
    fn from(reason: Forbidden) -> Self {
        Error::Forbidden(reason)
    }
}

#[cfg(test)]
mod tests;
