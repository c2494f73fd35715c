//! Second factors: one-time-password devices, agents' local passwords and the lockouts of both.

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

/// The account that an operation concerns.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// The employee's corporation.
    pub corp_id: &'a CorpId,
    /// The employee's id there.
    pub employee_id: &'a EmployeeId,
}

/// An employee's one-time-password device. Secrets are encrypted: the directory cannot read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtpDevice {
    /// The bound secret.
    pub secret: Option<String>,
    /// A secret that was issued and not yet confirmed by a code.
    pub pending: Option<String>,
    /// When the device was bound.
    pub bound_at: Option<Timestamp>,
    /// When a code was last accepted.
    pub last_verified_at: Option<Timestamp>,
}

/// An agent's local password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPassword {
    /// Changes with every new password; a rehash of the same password keeps it.
    pub id: String,
    /// The argon2id hash.
    pub hash: Secret<String>,
}

/// Which password may be replaced or removed.
#[derive(Debug, Clone, Copy)]
pub enum ExpectedPassword<'a> {
    /// Any password, or none.
    Any,
    /// Only the password with this id; `None`: only if no password is set.
    Only(Option<&'a str>),
}

impl ExpectedPassword<'_> {
    /// Whether any password is expected (1 or 0), and the expected id, empty for no password; for SQL.
    pub(in crate::directory) fn parameters(self) -> (i64, String) {
        match self {
            ExpectedPassword::Any => (1, String::new()),
            ExpectedPassword::Only(id) => (0, id.unwrap_or_default().to_owned()),
        }
    }
}

/// An agent record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The role that applies if none was ever assigned.
    pub role: RoleName,
    /// The local password, if set.
    pub password: Option<LocalPassword>,
    /// Whether the agent must have a one-time-password device.
    pub otp_required: bool,
}

/// The factor that failed attempts are counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactorKind {
    /// One-time passwords.
    Otp,
    /// The local password.
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

/// One-time-password devices, local passwords and lockouts.
#[async_trait]
pub trait Factors: Send + Sync {
    /// The employee with this id and the agent record: an exact match, else one whose id is equal when folded
    /// ([`EmployeeId::folded`]).
    async fn by_name(&self, corp_id: &CorpId, name: &str) -> Result<Option<(Employee, Option<Agent>)>, DirectoryError>;

    /// The agent record, if there is one.
    async fn agent(&self, whose: Account<'_>) -> Result<Option<Agent>, DirectoryError>;

    /// Replaces a password's hash with a stronger one. Conflicts if the password has changed.
    async fn renew_password(&self, whose: Account<'_>, old: &str, hash: &str) -> Result<WriteOutcome, DirectoryError>;

    /// Sets an agent's local password and returns its id; `None` if there is no such agent or the current password is
    /// not the expected one.
    async fn set_password(
        &self,
        whose: Account<'_>,
        hash: &str,
        expected: ExpectedPassword<'_>,
    ) -> Result<Option<String>, DirectoryError>;

    /// The device; an empty one if none was set up.
    async fn otp_device(&self, whose: Account<'_>) -> Result<OtpDevice, DirectoryError>;

    /// Stores a pending secret, replacing an earlier one.
    async fn offer_otp(&self, whose: Account<'_>, pending: &str) -> Result<(), DirectoryError>;

    /// Binds the pending secret in place of `in_use`, and marks the time step of the confirming code as used. Conflicts
    /// if another secret is pending or was bound meanwhile.
    async fn bind_otp(
        &self,
        whose: Account<'_>,
        pending: &str,
        in_use: Option<&str>,
        step: i64,
    ) -> Result<WriteOutcome, DirectoryError>;

    /// Puts `replaced` back in the place of the secret `bound`; without `replaced`, the account has no device again.
    /// Conflicts if another secret is bound. Used time steps stay used.
    async fn unbind_otp(
        &self,
        whose: Account<'_>,
        bound: &str,
        replaced: Option<&str>,
    ) -> Result<WriteOutcome, DirectoryError>;

    /// Marks a time step of the bound secret as used. Conflicts if this step or a later one was used, or if another
    /// secret is bound: a code works once over all gateways.
    async fn use_otp(&self, whose: Account<'_>, secret: &str, step: i64) -> Result<WriteOutcome, DirectoryError>;

    /// The encrypted secrets, bound or pending, that do not start with `prefix`, and their owners.
    async fn otp_secrets_unlike(&self, prefix: &str) -> Result<Vec<(CorpId, EmployeeId, String)>, DirectoryError>;

    /// Replaces an encrypted secret with its re-encrypted form. Conflicts if it has changed.
    async fn renew_otp(&self, whose: Account<'_>, old: &str, new: &str) -> Result<WriteOutcome, DirectoryError>;

    /// Removes the device.
    async fn remove_otp(&self, whose: Account<'_>) -> Result<WriteOutcome, DirectoryError>;

    /// The failed attempts of an account, with their version.
    async fn lockout(&self, tried: FactorKind, whose: Account<'_>) -> Result<(Lockout, Version), DirectoryError>;

    /// Replaces the failed attempts if they are still at version `seen`.
    async fn replace_lockout(
        &self,
        tried: FactorKind,
        whose: Account<'_>,
        lockout: &Lockout,
        seen: Version,
    ) -> Result<WriteOutcome, DirectoryError>;

    /// Deletes lockouts of unknown names ([`CorpId::unknown`]): those unchanged for `quiet`, and all but about the
    /// `most` newest.
    async fn prune_unknown_lockouts(&self, quiet: Duration, most: usize) -> Result<(), DirectoryError>;
}
