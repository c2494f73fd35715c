//! `deskgate role …`

use serde::{Deserialize, Serialize};

use super::{CommandOutput, EmployeeRef};
use crate::admin::audit::Action;
use crate::admin::{AccountId, Actor, Admin, AdminError, MAX_ROWS};
use crate::directory::{AssignmentQuery, RecordedRoles};
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
            format!(
                "`{role}` is not one of {}; only rules of your own can refer to it, in files that declare it with \
                 `[matrix.{role}]`",
                SHIPPED_ROLES.join(", ")
            )
        });
        Ok(CommandOutput::Changed { sessions: effect.sessions, note })
    }

    /// Takes a role away, with a note if it was the last one. A role that the agent record gives cannot be taken.
    async fn take(&self, actor: Actor<'_>, account: &AccountId, role: RoleName) -> Result<CommandOutput, AdminError> {
        let effect = self.roles.take(actor, account.as_account(), &role).await?;
        let note = match self.roles.on_record(account.as_account()).await? {
            RecordedRoles::NeverAssigned(Some(given)) if given == role => {
                return Err(AdminError::RoleFromAgentRecord(account.employee_id.clone(), role));
            }
            RecordedRoles::Assigned(left) if left.is_empty() => Some(format!(
                "{id} has no role left and cannot sign in; to let them in again, run `deskgate role grant {id} user`",
                id = account.employee_id
            )),
            _ => None,
        };
        if effect.is_unchanged() {
            return Ok(CommandOutput::Unchanged);
        }
        Ok(CommandOutput::Changed { sessions: effect.sessions, note })
    }
}
