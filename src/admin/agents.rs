//! Agents' records and local passwords, for operators.

use serde::{Deserialize, Serialize};

use super::employees::account;
use super::{AdminError, Done, MOST, Operator, Typed, Who, accepted, failed, role_named, typed_name};
use crate::directory::RoleChange;
use crate::directory::factors::{ExpectedPassword, FactorKind};
use crate::directory::people::AgentEdit;
use crate::domain::employee::Employee;
use crate::domain::language::Language;
use crate::domain::session::{EndCause, LoginMethod, Session};
use crate::signin::password::NewPassword;

/// An order about agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCommand {
    /// Shows them.
    List,
    /// Makes an employee an agent.
    Add {
        /// Whom.
        who: Who,
        /// The role that counts where none is assigned.
        role: String,
        /// Whether they must have a one-time-password device.
        otp_required: bool,
    },
    /// Changes an agent's record.
    Change {
        /// Whose.
        who: Who,
        /// The role that counts where none is assigned.
        role: Option<String>,
        /// Whether they must have a one-time-password device.
        otp_required: Option<bool>,
    },
    /// Removes an agent's record; the employee stays.
    Remove {
        /// Whose.
        who: Who,
    },
    /// Sets the local password.
    SetPassword {
        /// Whose.
        who: Who,
        /// To this.
        password: Typed,
    },
    /// Removes the local password.
    ClearPassword {
        /// Whose.
        who: Who,
    },
}

impl AgentCommand {
    pub(super) fn description(&self) -> Option<String> {
        let description = match self {
            AgentCommand::List => return None,
            AgentCommand::Add { role, otp_required, .. } => {
                format!("add --role {} --otp-required {otp_required}", typed_name(role))
            }
            AgentCommand::Change { role, otp_required, .. } => {
                let role = role.as_ref().map(|role| format!(" --role {}", typed_name(role)));
                let otp = otp_required.map(|required| format!(" --otp-required {required}"));
                format!("change{}{}", role.unwrap_or_default(), otp.unwrap_or_default())
            }
            AgentCommand::Remove { .. } => "remove".to_owned(),
            AgentCommand::SetPassword { .. } => "password".to_owned(),
            AgentCommand::ClearPassword { .. } => "password --clear".to_owned(),
        };
        Some(description)
    }

    pub(super) fn who(&self) -> Option<&Who> {
        match self {
            AgentCommand::List => None,
            AgentCommand::Add { who, .. }
            | AgentCommand::Change { who, .. }
            | AgentCommand::Remove { who }
            | AgentCommand::SetPassword { who, .. }
            | AgentCommand::ClearPassword { who } => Some(who),
        }
    }
}

impl Operator {
    pub(super) async fn agent(&self, order: AgentCommand) -> Result<Done, AdminError> {
        match order {
            AgentCommand::List => self.directory.agents(MOST).await.map(Done::Agents).map_err(failed),
            AgentCommand::Add { who, role, otp_required } => {
                let (employee, role) = (self.known(&who).await?, role_named(&role)?);
                let added = self.directory.add_agent(account(&employee), &role, otp_required).await.map_err(failed)?;
                if added == RoleChange::Unchanged {
                    let id = &who.employee_id;
                    return Err(AdminError::Refused(format!(
                        "{id} is an agent already; `deskgate agent change {id}` changes the record"
                    )));
                }
                self.changed_agent(&who, added).await
            }
            AgentCommand::Change { who, role, otp_required } => {
                let employee = self.known(&who).await?;
                let role = role.as_deref().map(role_named).transpose()?;
                let edit = AgentEdit { role: role.as_ref(), otp_required };
                let before = self.directory.agent(account(&employee)).await.map_err(failed)?;
                let changed = self.directory.change_agent(account(&employee), edit).await.map_err(failed)?;
                let done = self.changed_agent(&who, changed).await?;
                let after = self.directory.agent(account(&employee)).await.map_err(failed)?;
                Ok(if before == after && matches!(done, Done::Changed { sessions: 0, .. }) {
                    Done::Unchanged
                } else {
                    done
                })
            }
            AgentCommand::Remove { who } => {
                let employee = self.known(&who).await?;
                let removed = self.directory.remove_agent(account(&employee)).await.map_err(failed)?;
                if removed == RoleChange::NoEmployee {
                    // An order before this one may have got as far as the directory only.
                    return match self.end_password_sessions(&employee, Done::Unchanged).await? {
                        Done::Unchanged => Err(AdminError::no_agent(&who)),
                        done => Ok(done),
                    };
                }
                let done = self.changed_agent(&who, removed).await?;
                self.end_password_sessions(&employee, done).await
            }
            AgentCommand::SetPassword { who, password } => self.set_password(&who, &password.0).await,
            AgentCommand::ClearPassword { who } => {
                let employee = self.known(&who).await?;
                if self.directory.agent(account(&employee)).await.map_err(failed)?.is_none() {
                    return Err(AdminError::no_agent(&who));
                }
                let cleared = self.directory.clear_password(account(&employee)).await.map_err(failed)?;
                let done = Done::of(cleared);
                self.end_password_sessions(&employee, done).await
            }
        }
    }

    /// A record that gives a role gives it to live sessions as well.
    async fn changed_agent(&self, who: &Who, change: RoleChange) -> Result<Done, AdminError> {
        accepted(change, || AdminError::no_agent(who), who)?;
        let employee = self.known(who).await?;
        Ok(Done::changed(self.follow_roles(account(&employee)).await?))
    }

    /// Whoever has signed in with a password that is no more is out. Adds their number to what was done.
    async fn end_password_sessions(&self, employee: &Employee, done: Done) -> Result<Done, AdminError> {
        let by_password = |session: &Session| session.login_method == LoginMethod::Password;
        let (corp_id, employee_id) = (&employee.corp_id, &employee.employee_id);
        let ended = self.live.end_those_of(corp_id, employee_id, EndCause::Operator, by_password).await;
        let ended = ended.map_err(failed)?;
        Ok(match done {
            Done::Changed { sessions, note } => Done::Changed { sessions: sessions + ended, note },
            Done::Unchanged if ended > 0 => Done::changed(ended),
            done => done,
        })
    }

    async fn set_password(&self, who: &Who, password: &str) -> Result<Done, AdminError> {
        let employee = self.known(who).await?;
        let hints = [who.employee_id.as_str(), &employee.name, employee.corp_id.as_str(), "deskgate"];
        let password = NewPassword::check(password, &hints)
            .map_err(|fault| AdminError::Refused(fault.message().text(Language::English).to_owned()))?;
        let hash = self.passwords.hash(&password).await;
        let hash = hash.map_err(|_| AdminError::Failed("too many sign in just now; try again".to_owned()))?;
        let set = self
            .directory
            .set_password(account(&employee), &hash.phc(), ExpectedPassword::Any)
            .await
            .map_err(failed)?;
        if set.is_none() {
            return Err(AdminError::no_agent(who));
        }
        // Whoever locked the account with wrong ones has not tried this one.
        self.directory.unlock(account(&employee), Some(FactorKind::Password)).await.map_err(failed)?;
        let done = Done::changed(0);
        self.end_password_sessions(&employee, done).await
    }
}
