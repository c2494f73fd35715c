//! Agent records and local passwords.

use std::sync::Arc;

use super::accounts::{Accounts, account_of};
use super::audit::{Action, AuditTrail};
use super::effect::{Effect, accepted};
use super::{Actor, AdminError, MAX_ROWS};
use crate::directory::factors::{Account, ExpectedPassword, FactorKind};
use crate::directory::people::{AgentEdit, AgentEntry};
use crate::directory::{Directory, RoleChange};
use crate::domain::language::Language;
use crate::domain::role::RoleName;
use crate::domain::session::{EndCause, LoginMethod, Session};
use crate::sessions::SessionCache;
use crate::signin::password::{NewPassword, Passwords};
use crate::signin::roles::Roles;

/// Administers agent records.
pub(crate) struct AgentAdmin {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) roles: Roles,
    pub(super) passwords: Arc<Passwords>,
    pub(super) accounts: Accounts,
    pub(super) audit: AuditTrail,
}

impl AgentAdmin {
    pub(crate) async fn list(&self) -> Result<Vec<AgentEntry>, AdminError> {
        Ok(self.directory.agents(MAX_ROWS).await?)
    }

    /// Makes an employee an agent.
    pub(crate) async fn add(
        &self,
        actor: Actor<'_>,
        account: Account<'_>,
        role: &RoleName,
        otp_required: bool,
    ) -> Result<Effect, AdminError> {
        let change = async {
            self.accounts.employee(account).await?;
            let added = self.directory.add_agent(account, role, otp_required).await?;
            if added == RoleChange::Unchanged {
                return Err(AdminError::AgentExists(account.employee_id.clone()));
            }
            self.update_sessions(account, added).await
        };
        self.audit.run(actor, Some(account), add_action(role.as_str(), otp_required), change).await
    }

    /// Changes an agent record. A new role applies to live sessions too.
    pub(crate) async fn change(
        &self,
        actor: Actor<'_>,
        account: Account<'_>,
        edit: AgentEdit<'_>,
    ) -> Result<Effect, AdminError> {
        let change = async {
            self.accounts.employee(account).await?;
            let before = self.directory.agent(account).await?;
            let changed = self.directory.change_agent(account, edit).await?;
            let effect = self.update_sessions(account, changed).await?;
            let after = self.directory.agent(account).await?;
            Ok(Effect { changed: before != after, ..effect })
        };
        let action = change_action(edit.role.map(RoleName::as_str), edit.otp_required);
        self.audit.run(actor, Some(account), action, change).await
    }

    /// Removes an agent record with its password; the employee stays.
    pub(crate) async fn remove(&self, actor: Actor<'_>, account: Account<'_>) -> Result<Effect, AdminError> {
        let change = async {
            self.accounts.employee(account).await?;
            let removed = self.directory.remove_agent(account).await?;
            if removed == RoleChange::NoEmployee {
                // An interrupted command may have removed the record and left the sessions.
                return match self.end_password_sessions(account).await? {
                    0 => Err(AdminError::NotAnAgent(account.employee_id.clone())),
                    ended => Ok(Effect::changed(ended)),
                };
            }
            let effect = self.update_sessions(account, removed).await?;
            Ok(effect.and_sessions(self.end_password_sessions(account).await?))
        };
        self.audit.run(actor, Some(account), Action::Command("agent remove".into()), change).await
    }

    /// Sets an agent's local password and ends the sessions of the old one.
    pub(crate) async fn set_password(
        &self,
        actor: Actor<'_>,
        account: Account<'_>,
        password: &str,
    ) -> Result<Effect, AdminError> {
        let change = async {
            let employee = self.accounts.employee(account).await?;
            let hints = [account.employee_id.as_str(), &employee.name, account.corp_id.as_str(), "deskgate"];
            let password = NewPassword::check(password, &hints)
                .map_err(|fault| AdminError::WeakPassword(fault.message().text(Language::English).to_owned()))?;
            let hash = self.passwords.hash(&password).await.map_err(|_| AdminError::PasswordsBusy)?;
            let account = account_of(&employee);
            if self.directory.set_password(account, &hash.phc(), ExpectedPassword::Any).await?.is_none() {
                return Err(AdminError::NotAnAgent(employee.employee_id.clone()));
            }
            // A lockout for wrong attempts at the old password does not apply to the new one.
            self.directory.unlock(account, Some(FactorKind::Password)).await?;
            Ok(Effect::changed(self.end_password_sessions(account).await?))
        };
        self.audit.run(actor, Some(account), Action::Command("agent password".into()), change).await
    }

    /// Removes an agent's local password and ends its sessions.
    pub(crate) async fn clear_password(&self, actor: Actor<'_>, account: Account<'_>) -> Result<Effect, AdminError> {
        let change = async {
            self.accounts.employee(account).await?;
            if self.directory.agent(account).await?.is_none() {
                return Err(AdminError::NotAnAgent(account.employee_id.clone()));
            }
            let effect = Effect::from(self.directory.clear_password(account, ExpectedPassword::Any).await?);
            Ok(effect.and_sessions(self.end_password_sessions(account).await?))
        };
        self.audit.run(actor, Some(account), Action::Command("agent password --clear".into()), change).await
    }

    /// Gives live sessions the role of a changed agent record.
    async fn update_sessions(&self, account: Account<'_>, change: RoleChange) -> Result<Effect, AdminError> {
        accepted(change, account, AdminError::NotAnAgent(account.employee_id.clone()))?;
        Ok(Effect::changed(self.roles.sync_sessions(account.corp_id, account.employee_id).await?))
    }

    /// Ends the sessions that were opened with a local password. Returns how many there were.
    async fn end_password_sessions(&self, account: Account<'_>) -> Result<usize, AdminError> {
        let by_password = |session: &Session| session.login_method == LoginMethod::Password;
        let Account { corp_id, employee_id } = account;
        Ok(self.sessions.end_those_of(corp_id, employee_id, EndCause::Operator, by_password).await?)
    }
}

/// The audit action of `agent add`.
pub(super) fn add_action(role: &str, otp_required: bool) -> Action<'static> {
    Action::Command(format!("agent add --role {role} --otp-required {otp_required}").into())
}

/// The audit action of `agent change`.
pub(super) fn change_action(role: Option<&str>, otp_required: Option<bool>) -> Action<'static> {
    let role = role.map(|role| format!(" --role {role}")).unwrap_or_default();
    let otp = otp_required.map(|required| format!(" --otp-required {required}")).unwrap_or_default();
    Action::Command(format!("agent change{role}{otp}").into())
}
