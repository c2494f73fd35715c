//! The enterprise messaging platform: who scanned, who came back from its authorize page.
//!
//! The trait is shaped after what such platforms share (authorize URL, callback query, code to
//! person, person to profile). "Exchange the code for the user's token" is left out on purpose:
//! WeCom has no such token.

use std::time::Duration;

use async_trait::async_trait;
use url::Url;

use crate::domain::employee::{CorpId, EmployeeId};

mod breaker;

mod http;

pub mod wecom;

/// Who the platform says somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Person {
    /// A member of the main corporation.
    Member {
        /// Their identifier there.
        employee_id: EmployeeId,
    },
    /// A member of a connected corporation.
    Linked {
        /// Which corporation.
        corp_id: CorpId,
        /// Their identifier there.
        employee_id: EmployeeId,
    },
    /// Somebody who is no member of any.
    Outsider,
}

/// Whether the platform lets a member work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberStatus {
    /// Yes.
    Active,
    /// Disabled, not activated or gone.
    Inactive,
}

/// What the platform tells about a member. Parts that it keeps to itself are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Display name.
    pub name: String,
    /// The main department's name.
    pub department: String,
    /// Address of a picture.
    pub avatar: String,
    /// Whether they may work.
    pub status: MemberStatus,
}

impl Profile {
    /// Of somebody about whom nothing is told but that they may work.
    pub fn unnamed() -> Self {
        let nothing = String::new;
        Self { name: nothing(), department: nothing(), avatar: nothing(), status: MemberStatus::Active }
    }
}

/// Why the platform could not say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlatformError {
    /// The code was used, is too old or was never given: the user must start again.
    #[error("the authorization code is not valid")]
    InvalidCode,
    /// No such member.
    #[error("the platform does not know this member")]
    UnknownMember,
    /// A member whom the platform does not show to this application.
    #[error("the member is not in the application's visible range")]
    NotVisible,
    /// The platform refuses this application: a setting is wrong. `setting` names it.
    #[error("the platform refuses the application (errcode {errcode}): check {setting}")]
    Configuration {
        /// The configuration key to look at.
        setting: &'static str,
        /// The platform's own number.
        errcode: i64,
    },
    /// It cannot be reached, is too slow, or answers nonsense.
    #[error("the platform is unavailable: {0}")]
    Unavailable(String),
    /// It has failed so often lately that it is left alone for a while.
    #[error("the platform has failed repeatedly and is not asked for another {} s", .retry_after.as_secs())]
    CircuitOpen {
        /// When it is asked again.
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
            PlatformError::CircuitOpen { .. } => "circuit_open_for",
        }
    }
}

/// What is needed to send a browser to the platform.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizeRequest<'a> {
    /// Where the platform returns to.
    pub redirect_uri: &'a str,
    /// What it returns with.
    pub state: &'a str,
}

/// What a browser came back with from the authorize page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent<'q> {
    /// The person agreed; the code tells who they are, once.
    Granted {
        /// As it came, unchecked.
        code: &'q str,
    },
    /// The person refused.
    Denied,
    /// Something went wrong on the platform's side.
    Failed,
}

/// Looks a parameter of the callback up by its name.
pub type Parameter<'a, 'q> = &'a (dyn Fn(&'static str) -> Option<&'q str> + Sync);

/// A messaging platform.
#[async_trait]
pub trait Platform: Send + Sync {
    /// Where to send the browser, parameters in the specification's order.
    fn authorize_url(&self, request: AuthorizeRequest<'_>) -> Url;

    /// Reads what the authorize page returned with. The names of the parameters, and how a refusal looks, are
    /// the platform's own.
    fn consent<'q>(&self, parameter: Parameter<'_, 'q>) -> Consent<'q>;

    /// Whose code this is. A code can be asked for once: the caller keeps the answer.
    async fn identify(&self, code: &str) -> Result<Person, PlatformError>;

    /// What the platform tells about somebody whom it has identified.
    async fn profile(&self, person: &Person) -> Result<Profile, PlatformError>;

    /// For how long it will not be asked, if it has failed too often. Sending anybody there now is in vain.
    fn circuit_open_for(&self) -> Option<Duration>;

    /// How old the credential is that calls carry; nothing if there is none.
    fn credential_age(&self) -> Option<Duration>;
}
