//! Role assignments: resolves an employee's roles and changes them, for administrators and operators alike. Live sessions
//! are updated with every change.

use std::sync::Arc;

use crate::directory::{Directory, DirectoryError, RoleChange};
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::role::RoleName;
use crate::error::{Error, Forbidden};
use crate::sessions::SessionCache;
use crate::store::StoreError;

mod links;

mod reconcile;

/// What to do with a role assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleAction {
    /// Assigns the role.
    Grant,
    /// Removes the assignment.
    Take,
}

/// Why a role change failed.
#[derive(Debug, thiserror::Error)]
pub enum RoleFault {
    /// The directory failed; nothing changed.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The store failed after the directory was changed.
    #[error("the role was changed, but live sessions may still have the old roles; run the command again")]
    Store(#[source] StoreError),
}

impl From<StoreError> for RoleFault {
    fn from(error: StoreError) -> Self {
        RoleFault::Store(error)
    }
}

impl From<RoleFault> for Error {
    fn from(fault: RoleFault) -> Self {
        match fault {
            RoleFault::Directory(error) => error.into(),
            RoleFault::Store(error) => error.into(),
        }
    }
}

/// Resolves and changes roles.
#[derive(Clone)]
pub struct Roles {
    sessions: Arc<SessionCache>,
    directory: Arc<dyn Directory>,
    default_role: Option<RoleName>,
}

impl Roles {
    /// `default_role` is the role of employees who have no agent record and never had an assignment.
    pub fn new(sessions: Arc<SessionCache>, directory: Arc<dyn Directory>, default_role: Option<RoleName>) -> Self {
        Self { sessions, directory, default_role }
    }

    /// The roles for a sign-in; refuses an employee without any.
    pub(super) async fn for_sign_in(&self, employee: &Employee) -> Result<Vec<RoleName>, Error> {
        let roles = self.effective(&employee.corp_id, &employee.employee_id).await?;
        if roles.is_empty() { Err(Forbidden::NoRole.into()) } else { Ok(roles) }
    }

    /// Changes a role assignment and updates the live sessions. Returns the result and how many sessions changed.
    pub async fn change(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
        action: RoleAction,
    ) -> Result<(RoleChange, usize), RoleFault> {
        let changed = match action {
            RoleAction::Grant => self.directory.grant(corp_id, employee_id, role).await?,
            RoleAction::Take => self.directory.take(corp_id, employee_id, role).await?,
        };
        match changed {
            RoleChange::NoEmployee | RoleChange::LastAdmin | RoleChange::TooMany => Ok((changed, 0)),
            // Also when unchanged: an earlier command may have changed the directory and failed before the sessions.
            RoleChange::Done | RoleChange::Unchanged => Ok((changed, self.sync_sessions(corp_id, employee_id).await?)),
        }
    }

    /// Updates the roles of an employee's live sessions from the directory, after ending those whose link does not admit
    /// them to these roles. Returns how many changed.
    pub async fn sync_sessions(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<usize, RoleFault> {
        let mut changed = 0;
        let mut roles = self.effective(corp_id, employee_id).await?;
        loop {
            changed += self.end_unlinked_sessions(corp_id, employee_id).await?;
            changed += self.sessions.change_roles(corp_id, employee_id, &roles).await?;
            // Of two concurrent changes the slower must not leave roles that it read before the other wrote.
            let newer = self.effective(corp_id, employee_id).await?;
            if newer == roles {
                return Ok(changed);
            }
            roles = newer;
        }
    }

    /// The roles that a new sign-in would get: the assigned ones; if none was ever assigned, the role of the agent
    /// record, else the default role. An employee whose last assignment was removed has none: taking a role must not
    /// yield another.
    pub async fn effective(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Vec<RoleName>, RoleFault> {
        Ok(self.directory.roles(corp_id, employee_id).await?.or_default(self.default_role.as_ref()))
    }
}

#[cfg(test)]
mod tests;
