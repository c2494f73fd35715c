//! What an administrative action changed.

use super::AdminError;
use super::audit::AuditedResult;
use crate::directory::RoleChange;
use crate::directory::factors::Account;
use crate::domain::write::WriteOutcome;

/// What an administrative action changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Whether the directory changed; it does not if it already was as requested.
    pub(crate) changed: bool,
    /// How many live sessions were updated or ended.
    pub(crate) sessions: usize,
}

impl Effect {
    pub(super) fn changed(sessions: usize) -> Self {
        Self { changed: true, sessions }
    }

    pub(super) fn unchanged() -> Self {
        Self { changed: false, sessions: 0 }
    }

    /// Adds sessions that were ended after the directory changed.
    pub(super) fn and_sessions(self, sessions: usize) -> Self {
        Self { sessions: self.sessions + sessions, ..self }
    }

    /// Whether neither the directory nor a session changed.
    pub(crate) fn is_unchanged(&self) -> bool {
        !self.changed && self.sessions == 0
    }
}

impl AuditedResult for Effect {
    fn is_unchanged(&self) -> bool {
        Effect::is_unchanged(self)
    }
}

impl From<WriteOutcome> for Effect {
    fn from(outcome: WriteOutcome) -> Self {
        match outcome {
            WriteOutcome::Applied => Self::changed(0),
            WriteOutcome::Conflict => Self::unchanged(),
        }
    }
}

/// Turns the directory's refusal of a change into an error; `missing` is the error if the record does not exist.
pub(super) fn accepted(
    change: RoleChange,
    account: Account<'_>,
    missing: AdminError,
) -> Result<RoleChange, AdminError> {
    let employee_id = || account.employee_id.clone();
    match change {
        RoleChange::NoEmployee => Err(missing),
        RoleChange::LastAdmin => Err(AdminError::LastAdmin(employee_id())),
        RoleChange::TooMany => Err(AdminError::TooManyRoles(employee_id())),
        RoleChange::Done | RoleChange::Unchanged => Ok(change),
    }
}
