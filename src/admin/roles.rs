//! Who has which role, for operators.

use serde::{Deserialize, Serialize};

use super::{AdminError, Done, MOST, Operator, Who, accepted, failed, role_named, typed_name};
use crate::directory::{AssignmentQuery, RoleChange};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::RoleName;
use crate::signin::roles::RoleAction;

/// The roles of the matrix. Others may be: rules can name any.
const ROLES: [&str; 5] = ["user", "agent", "supervisor", "security", "admin"];

/// An order about roles.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleCommand {
    /// Shows assignments.
    List {
        /// Of this role only.
        role: Option<String>,
        /// Of this employee only.
        employee_id: Option<String>,
    },
    /// Gives a role.
    Grant {
        /// To whom.
        who: Who,
        /// Which.
        role: String,
    },
    /// Takes a role.
    Take {
        /// From whom.
        who: Who,
        /// Which.
        role: String,
    },
}

impl RoleCommand {
    pub(super) fn description(&self) -> Option<String> {
        match self {
            RoleCommand::List { .. } => None,
            RoleCommand::Grant { role, .. } => Some(format!("grant {}", typed_name(role))),
            RoleCommand::Take { role, .. } => Some(format!("take {}", typed_name(role))),
        }
    }

    pub(super) fn who(&self) -> Option<&Who> {
        match self {
            RoleCommand::List { .. } => None,
            RoleCommand::Grant { who, .. } | RoleCommand::Take { who, .. } => Some(who),
        }
    }
}

impl Operator {
    pub(super) async fn role(&self, order: RoleCommand) -> Result<Done, AdminError> {
        match order {
            RoleCommand::List { role, employee_id } => {
                let asked = AssignmentQuery {
                    role: role.as_deref(),
                    employee_id: employee_id.as_deref(),
                    skip: 0,
                    limit: MOST,
                };
                let items = self.directory.assignments_page(asked).await.map_err(failed)?.items;
                if let Some(employee_id) = employee_id.filter(|_| items.is_empty()) {
                    self.known(&Who { employee_id, corp_id: None }).await?;
                }
                Ok(Done::Assignments(items))
            }
            RoleCommand::Grant { who, role } => self.change_role(&who, &role, RoleAction::Grant).await,
            RoleCommand::Take { who, role } => self.change_role(&who, &role, RoleAction::Take).await,
        }
    }

    async fn change_role(&self, who: &Who, role: &str, change: RoleAction) -> Result<Done, AdminError> {
        let role = role_named(role)?;
        let (corp_id, employee_id) = self.named(who)?;
        let (changed, sessions) = self.roles.change(&corp_id, &employee_id, &role, change).await.map_err(failed)?;
        if changed == RoleChange::NoEmployee {
            return Err(self.nobody(who).await);
        }
        let changed = accepted(changed, || AdminError::no_employee(who), who)?;
        let note = self.note_on(&corp_id, &employee_id, &role, change).await?;
        if changed == RoleChange::Unchanged && sessions == 0 {
            return match note.filter(|_| change == RoleAction::Take) {
                Some(note) => Err(AdminError::Refused(note)),
                None => Ok(Done::Unchanged),
            };
        }
        Ok(Done::Changed { sessions, note })
    }

    /// What an operator may not expect of a change.
    async fn note_on(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
        change: RoleAction,
    ) -> Result<Option<String>, AdminError> {
        match change {
            RoleAction::Grant if !ROLES.contains(&role.as_str()) => {
                Ok(Some(format!("`{role}` is none of {}: only rules of your own can know it", ROLES.join(", "))))
            }
            RoleAction::Grant => Ok(None),
            RoleAction::Take => {
                let left = self.directory.roles(corp_id, employee_id).await.map_err(failed)?;
                Ok(left.contains(role).then(|| {
                    format!(
                        "{employee_id} still has `{role}` by the agent's record; see `deskgate agent change {employee_id}`"
                    )
                }))
            }
        }
    }
}
