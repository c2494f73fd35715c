//! Changes to employees and agent records in SQL.

use async_trait::async_trait;

use super::records::standing_of;
use super::row::SqlRow;
use super::statement::{Batch, Order, Statement};
use super::{SqlDirectory, of_account, unavailable};
use crate::directory::factors::{Account, ExpectedPassword, FactorKind};
use crate::directory::people::{AgentEdit, AgentEntry, EmployeeEdit, People};
use crate::directory::{DirectoryError, EmployeeProfile, RoleChange};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId, Standing};
use crate::domain::lockout::Lockout;
use crate::domain::role::RoleName;
use crate::domain::write::WriteOutcome;

/// How many sign-ins of an employee are searched for their browsers; more than anyone needs in half a year.
const SIGN_INS_COMPARED: i64 = 1000;

/// SQL condition: an employee other than `$1`, `$2` is an administrator who may sign in, by assignment or, if none was
/// ever assigned, by the agent record. A statement with it runs in an exclusive batch, so that of two administrators who
/// remove each other one remains.
macro_rules! another_admin {
    () => {
        "EXISTS (SELECT 1 FROM employees AS other WHERE other.disabled = 0
             AND (other.corp_id <> $1 OR other.employee_id <> $2)
             AND (EXISTS (SELECT 1 FROM user_roles AS held JOIN roles ON roles.id = held.role_id
                     WHERE held.corp_id = other.corp_id AND held.employee_id = other.employee_id
                     AND roles.name = 'admin')
                 OR (other.ever_assigned = 0
                     AND EXISTS (SELECT 1 FROM agents AS record WHERE record.corp_id = other.corp_id
                         AND record.employee_id = other.employee_id AND record.role = 'admin'))))"
    };
}
pub(super) use another_admin;

/// SQL condition: `$1`, `$2` is an administrator who may sign in.
macro_rules! is_admin {
    () => {
        "EXISTS (SELECT 1 FROM employees AS self WHERE self.disabled = 0
             AND self.corp_id = $1 AND self.employee_id = $2
             AND (EXISTS (SELECT 1 FROM user_roles AS held JOIN roles ON roles.id = held.role_id
                     WHERE held.corp_id = $1 AND held.employee_id = $2 AND roles.name = 'admin')
                 OR (self.ever_assigned = 0
                     AND EXISTS (SELECT 1 FROM agents AS record WHERE record.corp_id = $1 AND record.employee_id = $2
                         AND record.role = 'admin'))))"
    };
}

pub(super) use is_admin;

impl SqlDirectory {
    /// Why a guarded change affected no row: no such employee, or the last-administrator guard.
    async fn why_unchanged(&self, whose: Account<'_>, table: &'static str) -> Result<RoleChange, DirectoryError> {
        let count = Statement::new(table).bind(whose.corp_id.as_str()).bind(whose.employee_id.as_str());
        let there: i64 = count.fetch_one(&self.database).await?.get(0);
        Ok(if there == 0 { RoleChange::NoEmployee } else { RoleChange::LastAdmin })
    }
}

const EMPLOYEES: &str = "SELECT count(*) FROM employees WHERE corp_id = $1 AND employee_id = $2";

const AGENTS: &str = "SELECT count(*) FROM agents WHERE corp_id = $1 AND employee_id = $2";

#[async_trait]
impl People for SqlDirectory {
    async fn add_employee(&self, profile: EmployeeProfile<'_>) -> Result<WriteOutcome, DirectoryError> {
        self.require_own_employees()?;
        const ADD: &str = "INSERT INTO employees (corp_id, employee_id, name, department, avatar, created_at)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (corp_id, employee_id) DO NOTHING";
        let EmployeeProfile { corp_id, employee_id, name, department, avatar } = profile;
        let add = of_account(ADD, Account { corp_id, employee_id }).bind(name).bind(department).bind(avatar);
        self.apply(add.bind(self.clock.now().millis())).await
    }

    async fn change_employee(&self, whose: Account<'_>, edit: EmployeeEdit<'_>) -> Result<RoleChange, DirectoryError> {
        self.require_own_employees()?;
        const CHANGE: &str = concat!(
            "UPDATE employees SET name = coalesce($3, name), department = coalesce($4, department),
                 avatar = coalesce($5, avatar), disabled = coalesce($6, disabled),
                 inactive = CASE WHEN $6 IS NULL THEN inactive END
             WHERE corp_id = $1 AND employee_id = $2 AND (coalesce($6, 0) = 0 OR NOT ",
            is_admin!(),
            " OR ",
            another_admin!(),
            ")"
        );
        let disabled = edit.standing.map(|standing| i64::from(standing == Standing::Disabled));
        let change = of_account(CHANGE, whose).bind(edit.name).bind(edit.department).bind(edit.avatar).bind(disabled);
        match self.apply_exclusively(change).await? {
            WriteOutcome::Applied => Ok(RoleChange::Done),
            WriteOutcome::Conflict => self.why_unchanged(whose, EMPLOYEES).await,
        }
    }

    async fn remove_employee(&self, whose: Account<'_>) -> Result<RoleChange, DirectoryError> {
        self.require_own_employees()?;
        const REMOVE: &str = concat!(
            "DELETE FROM employees WHERE corp_id = $1 AND employee_id = $2 AND (NOT ",
            is_admin!(),
            " OR ",
            another_admin!(),
            ")"
        );
        const REST: [&str; 5] = [
            "DELETE FROM user_roles WHERE corp_id = $1 AND employee_id = $2",
            "DELETE FROM agents WHERE corp_id = $1 AND employee_id = $2",
            "DELETE FROM otp_devices WHERE corp_id = $1 AND employee_id = $2",
            "DELETE FROM lockouts WHERE corp_id = $1 AND employee_id = $2",
            "DELETE FROM platform_links WHERE employee_corp_id = $1 AND employee_id = $2",
        ];
        let remove = Batch::new(Order::Exclusive).guard(of_account(REMOVE, whose));
        let remove = REST.iter().fold(remove, |batch, statement| batch.run(of_account(statement, whose)));
        match self.database.commit(remove).await? {
            WriteOutcome::Applied => Ok(RoleChange::Done),
            WriteOutcome::Conflict => self.why_unchanged(whose, EMPLOYEES).await,
        }
    }

    async fn agents(&self, limit: usize) -> Result<Vec<AgentEntry>, DirectoryError> {
        let rows = Statement::new(
            "SELECT agents.corp_id, agents.employee_id, employees.name, employees.disabled, agents.role,
                 agents.password_hash IS NOT NULL, agents.otp_required, otp_devices.secret IS NOT NULL,
                 employees.ever_assigned = 0
             FROM agents
             JOIN employees ON employees.corp_id = agents.corp_id AND employees.employee_id = agents.employee_id
             LEFT JOIN otp_devices
                 ON otp_devices.corp_id = agents.corp_id AND otp_devices.employee_id = agents.employee_id
             ORDER BY agents.corp_id, agents.employee_id LIMIT $1",
        )
        .bind(limit)
        .fetch_all(&self.database)
        .await?;
        let entries = rows.iter().map(|row| AgentEntry {
            corp_id: CorpId::new(row.get::<String>(0)),
            employee_id: EmployeeId::new(row.get::<String>(1)),
            name: row.get(2),
            standing: standing_of(row.get(3)),
            role: RoleName::new(row.get::<String>(4)),
            password: row.get(5),
            otp_required: row.get::<i64>(6) != 0,
            otp_bound: row.get(7),
            role_applies: row.get(8),
        });
        Ok(entries.collect())
    }

    async fn otp_owners(&self, limit: usize) -> Result<Vec<(CorpId, EmployeeId)>, DirectoryError> {
        let rows = Statement::new("SELECT corp_id, employee_id FROM otp_devices WHERE secret IS NOT NULL LIMIT $1")
            .bind(limit)
            .fetch_all(&self.database)
            .await?;
        let owner = |row: &SqlRow| (CorpId::new(row.get::<String>(0)), EmployeeId::new(row.get::<String>(1)));
        Ok(rows.iter().map(owner).collect())
    }

    async fn add_agent(
        &self,
        whose: Account<'_>,
        role: &RoleName,
        otp_required: bool,
    ) -> Result<RoleChange, DirectoryError> {
        self.require_own_employees()?;
        const ADD: &str = "INSERT INTO agents (corp_id, employee_id, role, otp_required)
             SELECT $1, $2, $3, $4 FROM employees WHERE corp_id = $1 AND employee_id = $2
             ON CONFLICT (corp_id, employee_id) DO NOTHING";
        let add = of_account(ADD, whose).bind(role.as_str()).bind(i64::from(otp_required));
        match self.apply_exclusively(add).await? {
            WriteOutcome::Applied => Ok(RoleChange::Done),
            WriteOutcome::Conflict => Ok(match self.why_unchanged(whose, EMPLOYEES).await? {
                RoleChange::NoEmployee => RoleChange::NoEmployee,
                _ => RoleChange::Unchanged,
            }),
        }
    }

    async fn change_agent(&self, whose: Account<'_>, edit: AgentEdit<'_>) -> Result<RoleChange, DirectoryError> {
        self.require_own_employees()?;
        const CHANGE: &str = concat!(
            "UPDATE agents SET role = coalesce($3, role), otp_required = coalesce($4, otp_required)
             WHERE corp_id = $1 AND employee_id = $2 AND (coalesce($3, role) = role OR role <> 'admin' OR NOT ",
            is_admin!(),
            " OR EXISTS (SELECT 1 FROM user_roles WHERE corp_id = $1 AND employee_id = $2) OR ",
            another_admin!(),
            ")"
        );
        let role = edit.role.map(RoleName::as_str);
        let change = of_account(CHANGE, whose).bind(role).bind(edit.otp_required.map(i64::from));
        match self.apply_exclusively(change).await? {
            WriteOutcome::Applied => Ok(RoleChange::Done),
            WriteOutcome::Conflict => self.why_unchanged(whose, AGENTS).await,
        }
    }

    async fn remove_agent(&self, whose: Account<'_>) -> Result<RoleChange, DirectoryError> {
        self.require_own_employees()?;
        const REMOVE: &str = concat!(
            "DELETE FROM agents WHERE corp_id = $1 AND employee_id = $2 AND (role <> 'admin' OR NOT ",
            is_admin!(),
            " OR EXISTS (SELECT 1 FROM user_roles WHERE corp_id = $1 AND employee_id = $2) OR ",
            another_admin!(),
            ")"
        );
        match self.apply_exclusively(of_account(REMOVE, whose)).await? {
            WriteOutcome::Applied => Ok(RoleChange::Done),
            WriteOutcome::Conflict => self.why_unchanged(whose, AGENTS).await,
        }
    }

    async fn clear_password(
        &self,
        whose: Account<'_>,
        expected: ExpectedPassword<'_>,
    ) -> Result<WriteOutcome, DirectoryError> {
        const CLEAR: &str = "UPDATE agents SET password_hash = NULL, password_id = NULL
             WHERE corp_id = $1 AND employee_id = $2 AND password_hash IS NOT NULL
             AND ($3 <> 0 OR password_id = $4)";
        let (any, only) = expected.parameters();
        self.apply(of_account(CLEAR, whose).bind(any).bind(only)).await
    }

    async fn unlock(&self, whose: Account<'_>, tried: Option<FactorKind>) -> Result<WriteOutcome, DirectoryError> {
        // The row stays with the next version, so that an attempt in progress cannot restore the old state.
        const UNLOCK: &str = "UPDATE lockouts SET state = '{}', version = version + 1, changed_at = $3
             WHERE corp_id = $1 AND employee_id = $2 AND state <> '{}' AND ($4 = '' OR tried = $4)";
        let (now, tried) = (self.clock.now().millis(), tried.map_or("", FactorKind::as_str));
        self.apply(of_account(UNLOCK, whose).bind(now).bind(tried)).await
    }

    async fn locked(&self, limit: usize) -> Result<Vec<(CorpId, EmployeeId, Timestamp)>, DirectoryError> {
        // The lockout is serialised, so the filter runs here.
        let rows = Statement::new("SELECT corp_id, employee_id, state FROM lockouts WHERE corp_id <> '' LIMIT $1")
            .bind(limit)
            .fetch_all(&self.database)
            .await?;
        let now = self.clock.now();
        let mut locked = Vec::new();
        for row in rows {
            let state: Lockout = serde_json::from_str(row.get::<&str>(2)).map_err(unavailable)?;
            if let Err(wait) = state.admit(now) {
                let (corp_id, employee_id) = (row.get::<String>(0), row.get::<String>(1));
                locked.push((CorpId::new(corp_id), EmployeeId::new(employee_id), now.plus(wait.retry_after)));
            }
        }
        Ok(locked)
    }

    async fn browsers_of(&self, whose: Account<'_>, limit: usize) -> Result<Vec<String>, DirectoryError> {
        // The latest entries only: an account that signs in every minute has thousands.
        let rows = Statement::new(
            "SELECT user_agent FROM (
                 SELECT user_agent, at FROM login_log WHERE corp_id = $1 AND employee_id = $2 AND result = 'success'
                 ORDER BY at DESC LIMIT $4) AS latest
             GROUP BY user_agent ORDER BY max(at) DESC LIMIT $3",
        )
        .bind(whose.corp_id.as_str())
        .bind(whose.employee_id.as_str())
        .bind(limit)
        .bind(SIGN_INS_COMPARED)
        .fetch_all(&self.database)
        .await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
