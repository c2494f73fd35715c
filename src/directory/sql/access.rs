//! What the sessions of many employees depend on, in SQL.

use std::collections::HashMap;

use async_trait::async_trait;

use super::SqlDirectory;
use super::links::{self, link_of};
use super::records::{by_priority, standing_of};
use super::row::SqlRow;
use super::statement::{Reuse, Statement};

use crate::directory::access::{AccessRecords, EmployeeAccess};
use crate::directory::factors::Account;
use crate::directory::{DirectoryError, RecordedRoles};
use crate::domain::link::{Link, PlatformAccount};
use crate::domain::role::RoleName;

/// One row per assigned role; one row for an employee without any.
const ACCESS: &str = "SELECT employees.corp_id, employees.employee_id, employees.disabled, employees.ever_assigned,
         agents.role, CASE WHEN agents.password_hash IS NOT NULL THEN coalesce(agents.password_id, '') END,
         otp_devices.secret IS NOT NULL, roles.name
     FROM wanted CROSS JOIN employees
     LEFT JOIN agents ON agents.corp_id = employees.corp_id AND agents.employee_id = employees.employee_id
     LEFT JOIN otp_devices
         ON otp_devices.corp_id = employees.corp_id AND otp_devices.employee_id = employees.employee_id
     LEFT JOIN user_roles
         ON user_roles.corp_id = employees.corp_id AND user_roles.employee_id = employees.employee_id
     LEFT JOIN roles ON roles.id = user_roles.role_id
     WHERE employees.corp_id = wanted.corp_id AND employees.employee_id = wanted.id";

impl SqlDirectory {
    /// Runs a query on the table `wanted` of these pairs of corporation and ID.
    async fn of_wanted(&self, pairs: &[(&str, &str)], query: &str) -> Result<Vec<SqlRow>, DirectoryError> {
        let rows: Vec<String> = (0..pairs.len()).map(|n| format!("(${}, ${})", 2 * n + 1, 2 * n + 2)).collect();
        let statement = format!("WITH wanted (corp_id, id) AS (VALUES {}) {query}", rows.join(", "));
        // Only the statement for one pair comes again and again.
        let reuse = if pairs.len() == 1 { Reuse::Prepared } else { Reuse::Once };
        let query = Statement::new(sqlx::AssertSqlSafe(statement)).reuse(reuse);
        let query = pairs.iter().fold(query, |query, (corp_id, id)| query.bind(*corp_id).bind(*id));
        query.fetch_all(&self.database).await
    }
}

#[async_trait]
impl AccessRecords for SqlDirectory {
    async fn access(&self, of: &[Account<'_>]) -> Result<Vec<Option<EmployeeAccess>>, DirectoryError> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let pairs: Vec<(&str, &str)> =
            of.iter().map(|account| (account.corp_id.as_str(), account.employee_id.as_str())).collect();
        let rows = self.of_wanted(&pairs, ACCESS).await?;
        let mut by_employee: HashMap<(&str, &str), Vec<&SqlRow>> = HashMap::new();
        for row in &rows {
            by_employee.entry((row.get(0), row.get(1))).or_default().push(row);
        }
        Ok(pairs.iter().map(|pair| by_employee.get(pair).and_then(|rows| access_of(rows))).collect())
    }

    async fn approved_links(&self, of: &[&PlatformAccount]) -> Result<Vec<Link>, DirectoryError> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let pairs: Vec<(&str, &str)> =
            of.iter().map(|account| (account.corp_id.as_str(), account.user_id.as_str())).collect();
        let columns = links::COLUMNS;
        let query = format!(
            "SELECT {columns} FROM platform_links
             WHERE (corp_id, user_id) IN (SELECT corp_id, id FROM wanted) AND approved_at IS NOT NULL"
        );
        Ok(self.of_wanted(&pairs, &query).await?.iter().map(link_of).collect())
    }
}

fn access_of(rows: &[&SqlRow]) -> Option<EmployeeAccess> {
    let first = rows.first()?;
    let assigned: Vec<RoleName> =
        rows.iter().filter_map(|row| row.get::<Option<String>>(7)).map(RoleName::new).collect();
    let agent_role = first.get::<Option<String>>(4).map(RoleName::new);
    let never_assigned = first.get::<i64>(3) == 0 && assigned.is_empty();
    Some(EmployeeAccess {
        standing: standing_of(first.get(2)),
        roles: if never_assigned {
            RecordedRoles::NeverAssigned(agent_role.clone())
        } else {
            RecordedRoles::Assigned(by_priority(assigned))
        },
        agent_role,
        password_id: first.get(5),
        otp_bound: first.get(6),
    })
}
