//! The employees of development mode, as the contract names them. Names and departments equal the simulated platform's,
//! so that a sign-in through it changes nothing.

use super::factors::Account;
use super::people::People;
use super::sql::SqlDirectory;
use super::{Directory, DirectoryError, EmployeeProfile};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::RoleName;

/// The development corporation.
const CORP: &str = "wwdemo";

/// A development employee.
struct DevelopmentEmployee {
    employee_id: &'static str,
    name: &'static str,
    department: &'static str,
    roles: &'static [&'static str],
    /// The role of the agent record, if there is one.
    agent: Option<&'static str>,
}

/// All development employees.
const EMPLOYEES: &[DevelopmentEmployee] = &[
    DevelopmentEmployee { employee_id: "u1001", name: "王小明", department: "Sales", roles: &["user"], agent: None },
    DevelopmentEmployee {
        employee_id: "a2001",
        name: "Alice Chen",
        department: "IT",
        roles: &["agent", "user"],
        agent: Some("agent"),
    },
    DevelopmentEmployee {
        employee_id: "s3001",
        name: "李静",
        department: "IT",
        roles: &["supervisor"],
        agent: Some("supervisor"),
    },
    DevelopmentEmployee {
        employee_id: "c4001",
        name: "Carlos Ortiz",
        department: "Security",
        roles: &["security"],
        agent: None,
    },
    DevelopmentEmployee {
        employee_id: "m5001",
        name: "周敏",
        department: "IT",
        roles: &["admin", "agent", "user"],
        agent: Some("admin"),
    },
    DevelopmentEmployee { employee_id: "n6001", name: "Nora Lind", department: "财务部", roles: &[], agent: None },
];

impl SqlDirectory {
    /// Adds the development data to an empty directory; leaves any other unchanged.
    pub async fn fill_for_development(&self) -> Result<(), DirectoryError> {
        if !self.employees(None, 1).await?.is_empty() {
            return Ok(());
        }
        let corp_id = CorpId::new(CORP);
        for person in EMPLOYEES {
            let employee_id = EmployeeId::new(person.employee_id);
            self.upsert_employee(EmployeeProfile {
                corp_id: &corp_id,
                employee_id: &employee_id,
                name: person.name,
                department: person.department,
                avatar: "",
            })
            .await?;
            for role in person.roles {
                self.grant(&corp_id, &employee_id, &RoleName::new(*role)).await?;
            }
            if let Some(role) = person.agent {
                self.add_agent(Account { corp_id: &corp_id, employee_id: &employee_id }, &RoleName::new(role), false)
                    .await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[cfg(feature = "demo")]
mod tests;
