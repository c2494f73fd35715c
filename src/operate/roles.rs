//! Who has which role, for operators.

use serde::{Deserialize, Serialize};

use super::{Done, MOST, OperateFault, Operator, Who, accepted, audit, failed, role_named};
use crate::directory::{AssignmentsAsked, RoleChange};
use crate::signin::roles::Change;

/// An order about roles.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleOrder {
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

impl Operator {
    pub(super) async fn role(&self, order: RoleOrder) -> Result<Done, OperateFault> {
        match order {
            RoleOrder::List { role, employee_id } => {
                let asked = AssignmentsAsked {
                    role: role.as_deref(),
                    employee_id: employee_id.as_deref(),
                    skip: 0,
                    limit: MOST,
                };
                Ok(Done::Assignments(self.directory.assignments_page(asked).await.map_err(failed)?.items))
            }
            RoleOrder::Grant { who, role } => self.change_role(&who, &role, Change::Grant).await,
            RoleOrder::Take { who, role } => self.change_role(&who, &role, Change::Take).await,
        }
    }

    async fn change_role(&self, who: &Who, role: &str, change: Change) -> Result<Done, OperateFault> {
        let role = role_named(role)?;
        let (corp_id, employee_id) = self.named(who)?;
        let (changed, sessions) = self.roles.change(&corp_id, &employee_id, &role, change).await.map_err(failed)?;
        match accepted(changed, || OperateFault::no_employee(who), who)? {
            RoleChange::Done => {}
            _ => return Ok(Done::Unchanged),
        }
        audit(&who.employee_id, &format!("changed a role: {} {role}", change.as_str()));
        Ok(Done::Changed { sessions })
    }
}
