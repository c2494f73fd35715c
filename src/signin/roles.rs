//! Role assignments: resolves an employee's roles and changes them, for administrators and operators alike. Live sessions
//! are updated with every change.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::directory::factors::Account;
use crate::directory::{Directory, DirectoryError, RoleChange};
use crate::domain::employee::{CorpId, Employee, EmployeeId, Standing};
use crate::domain::role::RoleName;
use crate::domain::session::{EndCause, Session};
use crate::error::{Error, Forbidden};
use crate::sessions::SessionCache;
use crate::store::StoreError;

mod links;

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

    /// Updates every live session from the directory. Runs at start, because a crash may have hit between a directory
    /// change and its sessions. Continues after a failure and returns the last one.
    pub async fn sync_all_sessions(&self) -> Result<(), RoleFault> {
        let sessions = self.sessions.store().all(usize::MAX).await?;
        let mut by_employee: BTreeMap<_, Vec<Session>> = BTreeMap::new();
        for session in sessions {
            by_employee.entry((session.corp_id.clone(), session.employee_id.clone())).or_default().push(session);
        }
        let mut result = Ok(());
        for ((corp_id, employee_id), sessions) in by_employee {
            let account = Account { corp_id: &corp_id, employee_id: &employee_id };
            if let Err(fault) = self.sync_employee(account, &sessions).await {
                result = Err(fault);
            }
        }
        result
    }

    async fn sync_employee(&self, account: Account<'_>, sessions: &[Session]) -> Result<(), RoleFault> {
        let Account { corp_id, employee_id } = account;
        let employee = self.directory.employee(corp_id, employee_id).await?;
        if !employee.as_ref().is_some_and(|employee| employee.standing == Standing::Active) {
            self.sessions.end_all_of(corp_id, employee_id, EndCause::of_barred(employee.as_ref())).await?;
            return Ok(());
        }
        self.sync_sessions(corp_id, employee_id).await?;
        if sessions.iter().any(|session| session.password_id.is_some()) {
            let password = self.directory.agent(account).await?.and_then(|agent| agent.password);
            let id = password.map(|password| password.id);
            let of_old_password = |session: &Session| session.password_id.is_some() && session.password_id != id;
            self.sessions.end_those_of(corp_id, employee_id, EndCause::Operator, of_old_password).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
