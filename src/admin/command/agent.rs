//! `deskgate agent …`

use serde::{Deserialize, Serialize};

use super::{CommandOutput, EmployeeRef, PlaintextSecret};
use crate::admin::agents::{add_action, change_action};
use crate::admin::audit::loggable_name;
use crate::admin::{Actor, Admin, AdminError};
use crate::directory::people::AgentEdit;

/// A command about agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCommand {
    /// Lists agents.
    List,
    /// Makes an employee an agent.
    Add {
        /// The employee.
        employee: EmployeeRef,
        /// The role of an agent without assigned roles.
        role: String,
        /// Whether the agent must bind a one-time-password device.
        otp_required: bool,
    },
    /// Changes an agent record.
    Change {
        /// The agent.
        employee: EmployeeRef,
        /// The role of an agent without assigned roles.
        role: Option<String>,
        /// Whether the agent must bind a one-time-password device.
        otp_required: Option<bool>,
    },
    /// Removes an agent record; the employee stays.
    Remove {
        /// The agent.
        employee: EmployeeRef,
    },
    /// Sets the local password.
    SetPassword {
        /// The agent.
        employee: EmployeeRef,
        /// The new password.
        password: PlaintextSecret,
    },
    /// Removes the local password.
    ClearPassword {
        /// The agent.
        employee: EmployeeRef,
    },
}

impl Admin {
    pub(super) async fn execute_agent(
        &self,
        actor: Actor<'_>,
        command: AgentCommand,
    ) -> Result<CommandOutput, AdminError> {
        let effect = match command {
            AgentCommand::List => return Ok(CommandOutput::Agents(self.agents.list().await?)),
            AgentCommand::Add { employee, role, otp_required } => {
                let account = self.account_named(&employee)?;
                let action = add_action(loggable_name(&role), otp_required);
                let role = self.role_named(actor, &account, &role, action).await?;
                self.agents.add(actor, account.as_account(), &role, otp_required).await?
            }
            AgentCommand::Change { employee, role, otp_required } => {
                let account = self.account_named(&employee)?;
                let role = match role {
                    Some(role) => {
                        let action = change_action(Some(loggable_name(&role)), otp_required);
                        Some(self.role_named(actor, &account, &role, action).await?)
                    }
                    None => None,
                };
                let edit = AgentEdit { role: role.as_ref(), otp_required };
                self.agents.change(actor, account.as_account(), edit).await?
            }
            AgentCommand::Remove { employee } => {
                let account = self.account_named(&employee)?;
                self.agents.remove(actor, account.as_account()).await?
            }
            AgentCommand::SetPassword { employee, password } => {
                let account = self.account_named(&employee)?;
                self.agents.set_password(actor, account.as_account(), &password.0).await?
            }
            AgentCommand::ClearPassword { employee } => {
                let account = self.account_named(&employee)?;
                self.agents.clear_password(actor, account.as_account()).await?
            }
        };
        Ok(effect.into())
    }
}
