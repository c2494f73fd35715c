//! Role assignments.

use std::sync::Arc;

use super::accounts::Accounts;
use super::audit::{Action, AuditTrail};
use super::effect::{Effect, accepted};
use super::{Actor, AdminError};
use crate::directory::factors::Account;
use crate::directory::{AssignmentQuery, Assignments, Directory, RecordedRoles, RoleChange};
use crate::domain::role::RoleName;
use crate::signin::roles::{RoleAction, Roles};

/// Administers role assignments. Live sessions get and lose roles at once.
pub(crate) struct RoleAdmin {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) roles: Roles,
    pub(super) accounts: Accounts,
    pub(super) audit: AuditTrail,
}

impl RoleAdmin {
    /// Lists a page of assignments.
    pub(crate) async fn list(&self, query: AssignmentQuery<'_>) -> Result<Assignments, AdminError> {
        Ok(self.directory.assignments_page(query).await?)
    }

    /// Grants a role.
    pub(crate) async fn grant(
        &self,
        actor: Actor<'_>,
        account: Account<'_>,
        role: &RoleName,
    ) -> Result<Effect, AdminError> {
        let change = self.change(account, role, RoleAction::Grant);
        self.audit.run(actor, Some(account), Action::GrantRole(role.as_str()), change).await
    }

    /// Takes a role away. The last administrator keeps `admin`.
    pub(crate) async fn take(
        &self,
        actor: Actor<'_>,
        account: Account<'_>,
        role: &RoleName,
    ) -> Result<Effect, AdminError> {
        let change = self.change(account, role, RoleAction::Take);
        self.audit.run(actor, Some(account), Action::TakeRole(role.as_str()), change).await
    }

    async fn change(&self, account: Account<'_>, role: &RoleName, action: RoleAction) -> Result<Effect, AdminError> {
        let (changed, sessions) = self.roles.change(account.corp_id, account.employee_id, role, action).await?;
        if changed == RoleChange::NoEmployee {
            return Err(self.accounts.not_found(account).await);
        }
        let changed = accepted(changed, account, AdminError::no_such_employee(account.employee_id))?;
        Ok(Effect { changed: changed == RoleChange::Done, sessions })
    }

    /// The roles that a new session of this account gets.
    pub(crate) async fn effective(&self, account: Account<'_>) -> Result<Vec<RoleName>, AdminError> {
        Ok(self.roles.effective(account.corp_id, account.employee_id).await?)
    }

    /// The assigned roles, or the role of the agent record.
    pub(crate) async fn on_record(&self, account: Account<'_>) -> Result<RecordedRoles, AdminError> {
        Ok(self.directory.roles(account.corp_id, account.employee_id).await?)
    }
}
