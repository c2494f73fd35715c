//! What the directory says about the sessions of employees, read for many at once.

use async_trait::async_trait;

use super::factors::Account;
use super::{DirectoryError, RecordedRoles};
use crate::domain::employee::Standing;
use crate::domain::link::{Link, PlatformAccount};
use crate::domain::role::RoleName;

/// What the sessions of an employee depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmployeeAccess {
    /// Whether the employee may sign in.
    pub standing: Standing,
    /// The roles.
    pub roles: RecordedRoles,
    /// The role of the agent record, also if assignments override it.
    pub agent_role: Option<RoleName>,
    /// The id of the local password.
    pub password_id: Option<String>,
    /// Whether a one-time-password device is bound.
    pub otp_bound: bool,
}

/// Reads what sessions depend on.
#[async_trait]
pub trait AccessRecords: Send + Sync {
    /// The access of each of these employees, in their order; `None` for an employee who is not there.
    async fn access(&self, of: &[Account<'_>]) -> Result<Vec<Option<EmployeeAccess>>, DirectoryError>;

    /// The approved links of these platform accounts.
    async fn approved_links(&self, of: &[&PlatformAccount]) -> Result<Vec<Link>, DirectoryError>;
}
