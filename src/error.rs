//! Errors and their client-facing messages.
//!
//! To find what raises a code: [`Error::code`] lists the variants of each code, and a variant is constructed where the
//! error is raised: grep for the variant. For 1005 grep for `Error::unexpected`, for 1003 `Forbidden::`, for 1400
//! `BadRequest::` and `PathFault::`, for 1001 also `TokenFault::`. A new variant does not compile until it has a code
//! and a message.

use std::time::Duration;

use http::StatusCode;

use crate::domain::duration::HumanDuration;
use crate::domain::path::PathFault;
use crate::domain::rate::Exceeded;

mod bad_request;

mod chain;

mod challenge;

mod code;

mod forbidden;

mod message;

mod part;

mod token_fault;

pub use bad_request::BadRequest;
pub use chain::chain;
pub use code::Code;
pub use forbidden::Forbidden;
pub use part::{Operation, Part};
pub use token_fault::TokenFault;

/// The cause of an error. Logged, never sent to the client.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Everything that can end a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request needs a token and has none.
    #[error("no credentials")]
    NoCredentials,
    /// The token is not valid.
    #[error("invalid token ({})", .0.as_str())]
    InvalidToken(TokenFault),
    /// The caller is not allowed to do this.
    #[error("forbidden: {0}")]
    Forbidden(Forbidden),
    /// The request is malformed or ambiguous.
    #[error("bad request: {0}")]
    BadRequest(BadRequest),
    /// No rule or endpoint has the path.
    #[error("no rule matches the path")]
    NotFound,
    /// The caller has no session with this ID.
    #[error("no such session")]
    NoSession,
    /// A rule matches the path, but not with this method.
    #[error("method not allowed")]
    MethodNotAllowed {
        /// For the `Allow` header.
        allow: String,
    },
    /// The client took too long to send its request.
    #[error("the request took too long to arrive")]
    RequestTimeout,
    /// The body exceeds the endpoint's limit.
    #[error("body too large")]
    BodyTooLarge,
    /// The request target exceeds its limit.
    #[error("target too long")]
    TargetTooLong,
    /// The body's content type is not JSON.
    #[error("unsupported media type")]
    UnsupportedMediaType,
    /// `Host` is not one of the gateway's.
    #[error("the host is not one of server.hosts")]
    UnknownHost,
    /// A WebSocket version other than 13.
    #[error("unsupported websocket version")]
    WebSocketVersion,
    /// The rule requires a recent one-time password.
    #[error("a one-time password is needed, and the session has no recent one")]
    StepUpRequired,
    /// Enrolling a first factor requires a more recent platform sign-in.
    #[error("the session has no platform sign-in of the last {} s", .max_age.as_secs())]
    SignInTooOld {
        /// For `max_age` of the challenge.
        max_age: Duration,
    },
    /// The password is wrong, or there is no such agent.
    #[error("the local password is wrong")]
    PasswordWrong,
    /// The agent has no local password yet.
    #[error("no local password is set")]
    PasswordNotSet,
    /// Changing the password requires the old one.
    #[error("the old password is missing")]
    OldPasswordMissing,
    /// The old password is wrong.
    #[error("the old password is wrong")]
    OldPasswordWrong,
    /// The limit of concurrent password checks is reached.
    #[error("too many concurrent password checks")]
    Overloaded {
        /// For `Retry-After`.
        retry_after: Duration,
    },
    /// The gateway has more requests than it can serve in time.
    #[error("the gateway is saturated")]
    Saturated {
        /// For `Retry-After`.
        retry_after: Duration,
    },
    /// The upstream has as many requests as it may have.
    #[error("the upstream has as many requests as upstreams.NAME.max_requests allows")]
    UpstreamBusy {
        /// For `Retry-After`.
        retry_after: Duration,
    },
    /// The one-time password is wrong or was already used.
    #[error("the one-time password is wrong or was already used")]
    OtpWrong,
    /// The account is locked after too many failed attempts.
    #[error("the account is locked for {} s after too many failed attempts", .retry_after.as_secs())]
    Locked {
        /// For `Retry-After`.
        retry_after: Duration,
    },
    /// A rate limit is exceeded.
    #[error("rate limit exceeded: {} per {} by {}", .exceeded.window.limit, HumanDuration::from(.exceeded.window.per), .exceeded.by)]
    RateLimited {
        /// For `Retry-After`.
        retry_after: Duration,
        /// The rate limit.
        exceeded: Exceeded,
    },
    /// The caller has the maximum number of open WebSockets.
    #[error("socket limit reached")]
    TooManySockets {
        /// For `Retry-After`.
        retry_after: Duration,
    },
    /// The client has the maximum number of concurrent requests on HTTP/2 connections.
    #[error("limit of concurrent requests reached")]
    TooManyStreams {
        /// For `Retry-After`.
        retry_after: Duration,
    },
    /// The request headers are too many or too long.
    #[error("request head too large")]
    HeadTooLarge,
    /// The upstream is unreachable, or its response is invalid.
    #[error("upstream failed")]
    UpstreamFailed(#[source] Option<Cause>),
    /// The upstream did not respond in time.
    #[error("upstream timed out")]
    UpstreamTimeout,
    /// A part of the service is temporarily unavailable.
    #[error("{part} unavailable")]
    Unavailable {
        /// Named in the client's message.
        part: Part,
        /// Logged only.
        #[source]
        cause: Option<Cause>,
    },
    /// The circuit breaker of the messaging platform is open.
    #[error("the messaging platform's circuit is open for another {} s", .retry_after.as_secs())]
    PlatformCircuitOpen {
        /// Until the circuit is half-open.
        retry_after: Duration,
    },
    /// An unexpected failure.
    #[error("unexpected failure of the {part}")]
    Unexpected {
        /// The client's message begins with it.
        operation: Operation,
        /// Named in the client's message.
        part: Part,
        /// Logged only.
        #[source]
        cause: Cause,
    },
}

impl Error {
    /// The code of the response. No `_` arm, so that every new variant gets its own decision.
    pub fn code(&self) -> Code {
        match self {
            Error::NoCredentials | Error::InvalidToken(_) => Code::Unauthenticated, // 1001
            Error::Forbidden(_) => Code::Forbidden,                                 // 1003
            Error::Unexpected { .. } => Code::Unexpected,                           // 1005
            Error::PasswordWrong => Code::PasswordWrong,                            // 1011
            Error::PasswordNotSet => Code::PasswordNotSet,                          // 1012
            Error::OldPasswordMissing => Code::OldPasswordMissing,                  // 1015
            Error::OldPasswordWrong => Code::OldPasswordWrong,                      // 1016
            Error::StepUpRequired | Error::SignInTooOld { .. } => Code::StepUpRequired, // 1021
            Error::OtpWrong => Code::OtpWrong,                                      // 1022
            Error::BadRequest(_) => Code::BadRequest,                               // 1400
            Error::NotFound | Error::NoSession => Code::NotFound,                   // 1404
            Error::MethodNotAllowed { .. } => Code::MethodNotAllowed,               // 1405
            Error::RequestTimeout => Code::RequestTimeout,                          // 1408
            Error::BodyTooLarge => Code::BodyTooLarge,                              // 1413
            Error::TargetTooLong => Code::TargetTooLong,                            // 1414
            Error::UnsupportedMediaType => Code::UnsupportedMediaType,              // 1415
            Error::UnknownHost => Code::UnknownHost,                                // 1421
            Error::WebSocketVersion => Code::WebSocketVersion,                      // 1426
            Error::RateLimited { .. } => Code::RateLimited,                         // 1429
            Error::TooManySockets { .. } => Code::RateLimited,                      // 1429
            Error::TooManyStreams { .. } => Code::RateLimited,                      // 1429
            Error::Locked { .. } => Code::RateLimited,                              // 1429
            Error::HeadTooLarge => Code::HeadTooLarge,                              // 1431
            Error::UpstreamFailed(_) => Code::UpstreamFailed,                       // 1502
            Error::Unavailable { .. } => Code::Unavailable,                         // 1503
            Error::PlatformCircuitOpen { .. } => Code::Unavailable,                 // 1503
            Error::Overloaded { .. } => Code::Unavailable,                          // 1503
            Error::Saturated { .. } => Code::Unavailable,                           // 1503
            Error::UpstreamBusy { .. } => Code::Unavailable,                        // 1503
            Error::UpstreamTimeout => Code::UpstreamTimeout,                        // 1504
        }
    }

    /// The status of the response: that of its code, except for requests that HTTP has a status of its own for and the
    /// contract no code.
    pub fn status(&self) -> StatusCode {
        match self {
            Error::BadRequest(BadRequest::Expectation) => StatusCode::EXPECTATION_FAILED,
            Error::BadRequest(BadRequest::Version) => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            _ => self.code().status(),
        }
    }

    /// For `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::RateLimited { retry_after, .. }
            | Error::TooManySockets { retry_after }
            | Error::TooManyStreams { retry_after }
            | Error::Locked { retry_after }
            | Error::Overloaded { retry_after }
            | Error::Saturated { retry_after }
            | Error::UpstreamBusy { retry_after }
            | Error::PlatformCircuitOpen { retry_after } => Some(*retry_after),
            Error::Unavailable { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// Sets the operation of an unexpected failure; other errors do not name one.
    pub fn with_operation(self, operation: Operation) -> Self {
        match self {
            Error::Unexpected { part, cause, .. } => Error::Unexpected { operation, part, cause },
            other => other,
        }
    }

    /// An unexpected failure of a part, of no particular operation yet.
    pub fn unexpected(part: Part, cause: impl Into<Cause>) -> Self {
        Error::Unexpected { operation: Operation::Request, part, cause: cause.into() }
    }
}

impl From<BadRequest> for Error {
    fn from(fault: BadRequest) -> Self {
        Error::BadRequest(fault)
    }
}

impl From<PathFault> for Error {
    fn from(fault: PathFault) -> Self {
        Error::BadRequest(BadRequest::Path(fault))
    }
}

impl From<Forbidden> for Error {
    fn from(reason: Forbidden) -> Self {
        Error::Forbidden(reason)
    }
}

#[cfg(test)]
mod tests;
