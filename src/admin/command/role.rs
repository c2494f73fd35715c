//! `deskgate role …`

use serde::{Deserialize, Serialize};

use super::{CommandOutput, EmployeeRef};
use crate::admin::audit::Action;
use crate::admin::{AccountId, Actor, Admin, AdminError, MAX_ROWS};
use crate::directory::AssignmentQuery;
use crate::domain::role::RoleName;

/// The roles that the shipped rules know.
const SHIPPED_ROLES: [&str; 5] = ["user", "agent", "supervisor", "security", "admin"];

/// A command about role assignments.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleCommand {
    /// Lists assignments.
    List {
        /// Only this role's.
        role: Option<String>,
        /// Only this employee's.
        employee_id: Option<String>,
    },
    /// Grants a role.
    Grant {
        /// The employee.
        employee: EmployeeRef,
        /// The role's name.
        role: String,
    },
    /// Takes a role away.
    Take {
        /// The employee.
        employee: EmployeeRef,
        /// The role's name.
        role: String,
    },
}

impl Admin {
    pub(super) async fn execute_role(
        &self,
        actor: Actor<'_>,
        command: RoleCommand,
    ) -> Result<CommandOutput, AdminError> {
        match command {
            RoleCommand::List { role, employee_id } => {
                let (role, employee_id) = (role.as_deref(), employee_id.as_deref());
                let query = AssignmentQuery { corp_id: None, role, employee_id, skip: 0, limit: MAX_ROWS };
                let assignments = self.roles.list(query).await?.items;
                if assignments.is_empty() {
                    self.employees.check_exists(employee_id).await?;
                }
                Ok(CommandOutput::Assignments(assignments))
            }
            RoleCommand::Grant { employee, role } => {
                let account = self.account_named(&employee)?;
                let role = self.role_named(actor, &account, &role, Action::GrantRole(&role)).await?;
                self.grant(actor, &account, &role).await
            }
            RoleCommand::Take { employee, role } => {
                let account = self.account_named(&employee)?;
                let role = self.role_named(actor, &account, &role, Action::TakeRole(&role)).await?;
                self.take(actor, &account, role).await
            }
        }
    }

    /// Grants a role, with a note if only custom rules can know it.
    async fn grant(&self, actor: Actor<'_>, account: &AccountId, role: &RoleName) -> Result<CommandOutput, AdminError> {
        let effect = self.roles.grant(actor, account.as_account(), role).await?;
        if effect.is_unchanged() {
            return Ok(CommandOutput::Unchanged);
        }
        let note = (!SHIPPED_ROLES.contains(&role.as_str())).then(|| {
            format!("`{role}` is not one of {}; only your own rules can refer to it", SHIPPED_ROLES.join(", "))
        });
        Ok(CommandOutput::Changed { sessions: effect.sessions, note })
    }

    /// Takes a role away, with a note (or an error, if nothing changed) if the agent record still gives it.
    async fn take(&self, actor: Actor<'_>, account: &AccountId, role: RoleName) -> Result<CommandOutput, AdminError> {
        let effect = self.roles.take(actor, account.as_account(), &role).await?;
        let is_still_held = self.roles.on_record(account.as_account()).await?.contains(&role);
        let still_held = is_still_held.then(|| AdminError::RoleFromAgentRecord(account.employee_id.clone(), role));
        match still_held {
            Some(error) if effect.is_unchanged() => Err(error),
            None if effect.is_unchanged() => Ok(CommandOutput::Unchanged),
            note => Ok(CommandOutput::Changed { sessions: effect.sessions, note: note.map(|error| error.to_string()) }),
        }
    }
}
