//! Changes that operators make to employees and agent records.

use async_trait::async_trait;

use super::factors::{Account, ExpectedPassword, FactorKind};
use super::{DirectoryError, EmployeeProfile, RoleChange};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId, Standing};
use crate::domain::role::RoleName;
use crate::domain::write::WriteOutcome;

/// A partial update of an employee; absent fields stay.
#[derive(Debug, Clone, Copy, Default)]
pub struct EmployeeEdit<'a> {
    /// Display name.
    pub name: Option<&'a str>,
    /// Department name.
    pub department: Option<&'a str>,
    /// Picture URL.
    pub avatar: Option<&'a str>,
    /// Whether the employee may sign in.
    pub standing: Option<Standing>,
}

/// A partial update of an agent record; absent fields stay.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentEdit<'a> {
    /// The role that applies if none was ever assigned.
    pub role: Option<&'a RoleName>,
    /// Whether the agent must have a one-time-password device.
    pub otp_required: Option<bool>,
}

/// An agent record as operators see it, without the password hash.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AgentEntry {
    /// The agent's corporation.
    pub corp_id: CorpId,
    /// The agent.
    pub employee_id: EmployeeId,
    /// The agent's name.
    pub name: String,
    /// Whether the employee may sign in.
    pub standing: Standing,
    /// The role that applies if none was ever assigned.
    pub role: RoleName,
    /// Whether no role was ever assigned.
    pub role_applies: bool,
    /// Whether a local password is set.
    pub password: bool,
    /// Whether the agent must have a one-time-password device.
    pub otp_required: bool,
    /// Whether a device is bound.
    pub otp_bound: bool,
}

/// Changes to employees and agent records. Sessions are not touched.
#[async_trait]
pub trait People: Send + Sync {
    /// Adds an employee before their first sign-in. Conflicts if the id is taken.
    async fn add_employee(&self, profile: EmployeeProfile<'_>) -> Result<WriteOutcome, DirectoryError>;

    /// Changes an employee. The last administrator cannot be disabled.
    async fn change_employee(&self, whose: Account<'_>, edit: EmployeeEdit<'_>) -> Result<RoleChange, DirectoryError>;

    /// Removes an employee with roles, agent record, links, device and lockouts; the logs stay. The last administrator cannot be
    /// removed.
    async fn remove_employee(&self, whose: Account<'_>) -> Result<RoleChange, DirectoryError>;

    /// At most `limit` agents, by id.
    async fn agents(&self, limit: usize) -> Result<Vec<AgentEntry>, DirectoryError>;

    /// At most `limit` employees who have a one-time-password device.
    async fn otp_owners(&self, limit: usize) -> Result<Vec<(CorpId, EmployeeId)>, DirectoryError>;

    /// Adds an agent record for an employee; unchanged if there is one.
    async fn add_agent(
        &self,
        whose: Account<'_>,
        role: &RoleName,
        otp_required: bool,
    ) -> Result<RoleChange, DirectoryError>;

    /// Changes an agent record; `NoEmployee` if there is none. The last administrator's role cannot be changed.
    async fn change_agent(&self, whose: Account<'_>, edit: AgentEdit<'_>) -> Result<RoleChange, DirectoryError>;

    /// Removes an agent record with its password; `NoEmployee` if there is none. The last administrator's cannot be
    /// removed.
    async fn remove_agent(&self, whose: Account<'_>) -> Result<RoleChange, DirectoryError>;

    /// Removes an agent's local password. Conflicts if none is set, or another than the expected one.
    async fn clear_password(
        &self,
        whose: Account<'_>,
        expected: ExpectedPassword<'_>,
    ) -> Result<WriteOutcome, DirectoryError>;

    /// Removes the lockout of one factor or of all. Conflicts if nothing was counted.
    async fn unlock(&self, whose: Account<'_>, tried: Option<FactorKind>) -> Result<WriteOutcome, DirectoryError>;

    /// At most `limit` locked accounts, each with the end of its lockout.
    async fn locked(&self, limit: usize) -> Result<Vec<(CorpId, EmployeeId, Timestamp)>, DirectoryError>;

    /// At most `limit` different `User-Agent`s of an employee's latest sign-ins, the latest first. How many sign-ins are read
    /// is bounded.
    async fn browsers_of(&self, whose: Account<'_>, limit: usize) -> Result<Vec<String>, DirectoryError>;
}
