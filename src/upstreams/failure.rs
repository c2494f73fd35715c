//! Why an attempt to reach an upstream failed, and whose fault it was.

use pingora_core::protocols::http::v2::client::PING_TIMEDOUT;
use pingora_core::{Error as PingoraError, ErrorSource, ErrorType};

/// The error type of an exchange that took longer than `total_timeout`.
pub(crate) const TOTAL_TIMEOUT: ErrorType = ErrorType::Custom("TotalTimeout");

/// Why an attempt failed. The label of the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureReason {
    Refused,
    ConnectTimeout,
    Connect,
    Tls,
    Reset,
    Timeout,
    InvalidResponse,
    Check,
    Other,
}

impl FailureReason {
    /// All labels.
    pub(super) const LABELS: [&'static str; 9] = [
        Self::Refused.as_str(),
        Self::ConnectTimeout.as_str(),
        Self::Connect.as_str(),
        Self::Tls.as_str(),
        Self::Reset.as_str(),
        Self::Timeout.as_str(),
        Self::InvalidResponse.as_str(),
        Self::Check.as_str(),
        Self::Other.as_str(),
    ];

    pub(crate) fn of(error: &PingoraError) -> Self {
        match error.etype() {
            ErrorType::ConnectRefused => Self::Refused,
            ErrorType::ConnectTimedout => Self::ConnectTimeout,
            ErrorType::ConnectNoRoute | ErrorType::ConnectError | ErrorType::ConnectProxyFailure => Self::Connect,
            ErrorType::TLSHandshakeFailure
            | ErrorType::TLSHandshakeTimedout
            | ErrorType::TLSWantX509Lookup
            | ErrorType::InvalidCert
            | ErrorType::HandshakeError => Self::Tls,
            ErrorType::ReadError | ErrorType::WriteError | ErrorType::ConnectionClosed => Self::Reset,
            ErrorType::ReadTimedout | ErrorType::WriteTimedout => Self::Timeout,
            ErrorType::InvalidHTTPHeader | ErrorType::H1Error | ErrorType::H2Error | ErrorType::InvalidH2 => {
                Self::InvalidResponse
            }
            etype if *etype == TOTAL_TIMEOUT || *etype == PING_TIMEDOUT => Self::Timeout,
            _ => Self::Other,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::InvalidResponse => "invalid_response",
            Self::Check => "check",
            Self::Other => "other",
        }
    }
}

/// Who made an attempt fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Culprit {
    /// The address; the failure counts towards its ejection.
    Upstream,
    /// This process, such as without free file descriptors or ports.
    Gateway,
    /// The client, which closed its connection or sent too slowly.
    Client,
}

impl Culprit {
    pub(crate) fn of(error: &PingoraError) -> Self {
        match (error.esource(), error.etype()) {
            (ErrorSource::Downstream, _) => Self::Client,
            // Pingora's connectors report their own trouble so.
            (ErrorSource::Internal, _) | (_, ErrorType::InternalError) => Self::Gateway,
            (ErrorSource::Upstream | ErrorSource::Unset, _) => Self::Upstream,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Gateway => "gateway",
            Self::Client => "client",
        }
    }
}
