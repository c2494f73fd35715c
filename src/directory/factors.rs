//! What people prove themselves with beside the platform: one-time-password devices, and how often they were tried.

use std::time::Duration;

use async_trait::async_trait;

use super::DirectoryError;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::lockout::Lockout;
use crate::domain::role::RoleName;
use crate::domain::secret::Secret;
use crate::domain::session::Version;
use crate::domain::write::WriteOutcome;

/// Whose.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// Their corporation.
    pub corp_id: &'a CorpId,
    /// Who.
    pub employee_id: &'a EmployeeId,
}

/// An employee's one-time-password device. Secrets are closed in the vault: the directory cannot read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtpDevice {
    /// The secret that is in use, once bound.
    pub secret: Option<String>,
    /// A secret that was shown and waits for its first code.
    pub pending: Option<String>,
    /// When it was bound.
    pub bound_at: Option<Timestamp>,
    /// When a code was last right.
    pub last_verified_at: Option<Timestamp>,
}

/// An agent's local password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPassword {
    /// Another one for every password that is set; a better hash of the same one keeps it.
    pub id: String,
    /// Its hash.
    pub hash: Secret<String>,
}

/// Which password a new one may take the place of.
#[derive(Debug, Clone, Copy)]
pub enum ExpectedPassword<'a> {
    /// Whichever is there.
    Any,
    /// Only this one, by its id; without one, only of none.
    Only(Option<&'a str>),
}

/// An agent's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The role that counts where none is assigned.
    pub role: RoleName,
    /// The local password, if one has been set.
    pub password: Option<LocalPassword>,
    /// Whether they must have a one-time-password device.
    pub otp_required: bool,
}

/// What is being tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactorKind {
    /// One-time codes.
    Otp,
    /// A local password.
    Password,
}

impl FactorKind {
    pub(in crate::directory) fn as_str(self) -> &'static str {
        match self {
            FactorKind::Otp => "otp",
            FactorKind::Password => "password",
        }
    }
}

/// One-time-password devices and lock-outs.
#[async_trait]
pub trait Factors: Send + Sync {
    /// The employee whom somebody means by a name, and their agent record: the one who is spelled like this, else one
    /// whose identifier is the same when folded ([`EmployeeId::folded`]).
    async fn by_name(&self, corp_id: &CorpId, name: &str) -> Result<Option<(Employee, Option<Agent>)>, DirectoryError>;

    /// The agent's record, if there is one.
    async fn agent(&self, whose: Account<'_>) -> Result<Option<Agent>, DirectoryError>;

    /// Puts a password's better hash in the place of its old one. No, if that is not the password any more.
    async fn renew_password(&self, whose: Account<'_>, old: &str, hash: &str) -> Result<WriteOutcome, DirectoryError>;

    /// Sets an agent's local password. Tells its id; nothing, if there is no such agent or it would take the place of
    /// another one.
    async fn set_password(
        &self,
        whose: Account<'_>,
        hash: &str,
        in_place_of: ExpectedPassword<'_>,
    ) -> Result<Option<String>, DirectoryError>;

    /// The device; an empty one if there is none.
    async fn otp_device(&self, whose: Account<'_>) -> Result<OtpDevice, DirectoryError>;

    /// Keeps a secret that waits for its first code, in the place of an earlier one.
    async fn offer_otp(&self, whose: Account<'_>, pending: &str) -> Result<(), DirectoryError>;

    /// Takes the offered secret into use in the place of the one `in_use`, with the step of the code that proved it.
    /// No, if it is not the one that is on offer, or another has been bound since.
    async fn bind_otp(
        &self,
        whose: Account<'_>,
        pending: &str,
        in_use: Option<&str>,
        step: i64,
    ) -> Result<WriteOutcome, DirectoryError>;

    /// Uses the code of a step of this secret. No, if one of this step or a later one has been used, or another secret
    /// is bound by now: over all gateways a code works once.
    async fn use_otp(&self, whose: Account<'_>, secret: &str, step: i64) -> Result<WriteOutcome, DirectoryError>;

    /// The closed secrets, in use or on offer, that do not begin like this, and whose they are.
    async fn otp_secrets_unlike(&self, prefix: &str) -> Result<Vec<(CorpId, EmployeeId, String)>, DirectoryError>;

    /// Puts the same secret, closed anew, in the place of a closed one. No, if that is not there any more.
    async fn renew_otp(&self, whose: Account<'_>, closed: &str, anew: &str) -> Result<WriteOutcome, DirectoryError>;

    /// Removes the device.
    async fn remove_otp(&self, whose: Account<'_>) -> Result<WriteOutcome, DirectoryError>;

    /// How often an account was tried, and the version of that.
    async fn lockout(&self, tried: FactorKind, whose: Account<'_>) -> Result<(Lockout, Version), DirectoryError>;

    /// Puts it down if nobody else has since `seen`.
    async fn replace_lockout(
        &self,
        tried: FactorKind,
        whose: Account<'_>,
        lockout: &Lockout,
        seen: Version,
    ) -> Result<WriteOutcome, DirectoryError>;

    /// Forgets lock-outs of names that are nobody's ([`CorpId::of_nobody`]): those that have not changed for `quiet`,
    /// and all but about the `most` newest.
    async fn prune_unknown_lockouts(&self, quiet: Duration, most: usize) -> Result<(), DirectoryError>;
}
