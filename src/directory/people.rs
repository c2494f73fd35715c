//! What operators change about people: employees and agents' records.

use async_trait::async_trait;

use super::factors::{Account, FactorKind};
use super::{DirectoryError, EmployeeProfile, RoleChange};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId, Standing};
use crate::domain::role::RoleName;
use crate::domain::write::WriteOutcome;

/// What is to be different about an employee; the rest stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct EmployeeEdit<'a> {
    /// Display name.
    pub name: Option<&'a str>,
    /// Department's name.
    pub department: Option<&'a str>,
    /// Picture's address.
    pub avatar: Option<&'a str>,
    /// Whether they may sign in.
    pub standing: Option<Standing>,
}

/// What is to be different about an agent; the rest stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentEdit<'a> {
    /// The role that counts where none is assigned.
    pub role: Option<&'a RoleName>,
    /// Whether they must have a one-time-password device.
    pub otp_required: Option<bool>,
}

/// An agent's record, as operators see it. No hash: nobody needs to see one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AgentEntry {
    /// The agent's corporation.
    pub corp_id: CorpId,
    /// The agent.
    pub employee_id: EmployeeId,
    /// Their name.
    pub name: String,
    /// Whether they may sign in.
    pub standing: Standing,
    /// The role that counts where none is assigned.
    pub role: RoleName,
    /// Whether a local password is set.
    pub password: bool,
    /// Whether they must have a one-time-password device.
    pub otp_required: bool,
    /// Whether they have one.
    pub otp_bound: bool,
}

/// Employees and agents' records, changed. Nothing here touches sessions.
#[async_trait]
pub trait People: Send + Sync {
    /// Puts an employee down before their first sign-in. No, if there is one of this id.
    async fn add_employee(&self, profile: EmployeeProfile<'_>) -> Result<WriteOutcome, DirectoryError>;

    /// Changes an employee. The last administrator cannot be disabled.
    async fn change_employee(&self, whose: Account<'_>, edit: EmployeeEdit<'_>) -> Result<RoleChange, DirectoryError>;

    /// Removes an employee with roles, agent's record, device and lock-outs; the login log stays. The last
    /// administrator cannot be removed.
    async fn remove_employee(&self, whose: Account<'_>) -> Result<RoleChange, DirectoryError>;

    /// All agents, at most `limit`, by id.
    async fn agents(&self, limit: usize) -> Result<Vec<AgentEntry>, DirectoryError>;

    /// Who has a one-time-password device, at most `limit`.
    async fn otp_owners(&self, limit: usize) -> Result<Vec<(CorpId, EmployeeId)>, DirectoryError>;

    /// Makes an employee an agent. Unchanged, if they are one.
    async fn add_agent(
        &self,
        whose: Account<'_>,
        role: &RoleName,
        otp_required: bool,
    ) -> Result<RoleChange, DirectoryError>;

    /// Changes an agent's record. No employee, if there is none; the last administrator stays one.
    async fn change_agent(&self, whose: Account<'_>, edit: AgentEdit<'_>) -> Result<RoleChange, DirectoryError>;

    /// Removes an agent's record with its password. No employee, if there is none; the last administrator stays one.
    async fn remove_agent(&self, whose: Account<'_>) -> Result<RoleChange, DirectoryError>;

    /// Forgets an agent's local password. No, if there was none.
    async fn clear_password(&self, whose: Account<'_>) -> Result<WriteOutcome, DirectoryError>;

    /// Lets an account be tried again, with this or with anything. No, if nothing was counted.
    async fn unlock(&self, whose: Account<'_>, tried: Option<FactorKind>) -> Result<WriteOutcome, DirectoryError>;

    /// Who is locked now, and until when, at most `limit`.
    async fn locked(&self, limit: usize) -> Result<Vec<(CorpId, EmployeeId, Timestamp)>, DirectoryError>;

    /// The `User-Agent`s with which somebody has signed in, at most `limit` different ones, the latest first.
    async fn browsers_of(&self, whose: Account<'_>, limit: usize) -> Result<Vec<String>, DirectoryError>;
}
