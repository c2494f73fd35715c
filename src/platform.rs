//! The enterprise messaging platform: identifies users by OAuth2 authorization codes.
//!
//! The trait has what such platforms share: authorize URL, callback parameters, code to person, person to profile.
//! It has no exchange of a code for a user's token, because WeCom has no such token. The simulated platform of the
//! demo speaks WeCom's API, so this module does not know it.

use std::time::Duration;

use async_trait::async_trait;
use url::Url;

use crate::domain::employee::{CorpId, EmployeeId, InactiveReason};

mod breaker;

pub mod call_log;

pub(crate) mod http;

pub mod wecom;

/// A person as the platform identifies them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Person {
    /// A member of the main corporation.
    Member {
        /// The member's ID.
        employee_id: EmployeeId,
    },
    /// A member of a connected corporation.
    Linked {
        /// The connected corporation.
        corp_id: CorpId,
        /// The member's ID there.
        employee_id: EmployeeId,
    },
    /// A person who is no member of the main or a connected corporation.
    Outsider,
}

/// What the platform says about a member's account. A platform that says nothing is a [`PlatformError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberStatus {
    /// Active.
    Active,
    /// Not active, or no member at all.
    Inactive(InactiveReason),
    /// The application may not see the member: neither active nor inactive.
    OutOfSight,
}

/// A member's profile. Fields that the platform does not disclose are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Display name.
    pub name: String,
    /// The main department's name.
    pub department: String,
    /// URL of the profile picture.
    pub avatar: String,
    /// Whether the account is active.
    pub status: MemberStatus,
}

impl Profile {
    /// A profile of which the platform discloses the status alone.
    pub fn undisclosed(status: MemberStatus) -> Self {
        Self { name: String::new(), department: String::new(), avatar: String::new(), status }
    }
}

/// Why a platform call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlatformError {
    /// The authorization code was used before, has expired or is unknown: the user must sign in again.
    #[error("the authorization code is not valid")]
    InvalidCode,
    /// No such member.
    #[error("the platform does not know this member")]
    UnknownMember,
    /// The member is outside the application's visible range.
    #[error("the member is not in the application's visible range")]
    NotVisible,
    /// The platform rejects this application because a setting is wrong.
    #[error("the platform refuses the application (errcode {errcode}): check {setting}")]
    Configuration {
        /// The configuration key to check.
        setting: &'static str,
        /// The platform's error number.
        errcode: i64,
    },
    /// The platform is unreachable, timed out, or sent an invalid response.
    #[error("the platform is unavailable: {0}")]
    Unavailable(String),
    /// The circuit breaker is open.
    #[error("the platform's circuit is open for another {} s", .retry_after.as_secs())]
    CircuitOpen {
        /// Until the circuit is half-open.
        retry_after: Duration,
    },
}

impl PlatformError {
    /// The label of `platform_errors_total{class}`.
    pub fn class(&self) -> &'static str {
        match self {
            PlatformError::InvalidCode => "invalid_code",
            PlatformError::UnknownMember => "unknown_member",
            PlatformError::NotVisible => "not_visible",
            PlatformError::Configuration { .. } => "configuration",
            PlatformError::Unavailable(_) => "unavailable",
            PlatformError::CircuitOpen { .. } => "resting",
        }
    }
}

/// The parameters of an authorize URL.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizeRequest<'a> {
    /// Where the platform redirects to afterwards.
    pub redirect_uri: &'a str,
    /// Passed back unchanged.
    pub state: &'a str,
}

/// The result of the authorize page, from the callback's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent<'q> {
    /// The user agreed.
    Granted {
        /// The single-use authorization code, unchecked.
        code: &'q str,
    },
    /// The user declined.
    Denied,
    /// The platform reported an error.
    Failed,
}

/// Looks up a parameter of the callback by name.
pub type Parameter<'a, 'q> = &'a (dyn Fn(&'static str) -> Option<&'q str> + Sync);

/// A messaging platform.
#[async_trait]
pub trait Platform: Send + Sync {
    /// The URL that starts a sign-in, with its parameters in the specification's order.
    fn authorize_url(&self, request: AuthorizeRequest<'_>) -> Url;

    /// Reads the callback's parameters. Their names, and what a declined sign-in looks like, differ between platforms.
    fn consent<'q>(&self, parameter: Parameter<'_, 'q>) -> Consent<'q>;

    /// Identifies the person of an authorization code. A code works once, so the caller keeps the result.
    async fn identify(&self, code: &str) -> Result<Person, PlatformError>;

    /// Fetches the profile of an identified person. A member who is gone or out of sight has a profile with that status.
    async fn profile(&self, person: &Person) -> Result<Profile, PlatformError>;

    /// Asks for a member's status alone: one call.
    async fn status(&self, person: &Person) -> Result<MemberStatus, PlatformError>;

    /// The remaining time for which the circuit is open, if it is. Users should not be sent to the platform meanwhile.
    fn circuit_open_for(&self) -> Option<Duration>;

    /// The age of the access token that calls carry, if there is one.
    fn credential_age(&self) -> Option<Duration>;
}
