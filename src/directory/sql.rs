//! The directory in a SQL database. The statements use only what SQLite and PostgreSQL share; `database` runs them, and
//! what differs between the engines is in its files and in the migrations.

#![expect(clippy::disallowed_methods, reason = "the home of the directory's SQL")]

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::factors::Account;
use super::{
    Assignment, AssignmentQuery, Assignments, Directory, DirectoryError, DurabilityRisk, EmployeeProfile, LoginEntry,
    LoginOutcome, LoginQuery, LoginRecord, LoginResult, RecordedRoles, RoleChange,
};
use crate::domain::client::Client;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::employee::{CorpId, Employee, EmployeeId, EmployeeSource};
use crate::domain::link::PlatformAccount;
use crate::domain::role::{self, RoleName};
use crate::domain::session::LoginSource;
use crate::domain::write::WriteOutcome;
use database::Database;
use postgres::{PostgresDatabase, PostgresSettings};
use records::{assignment_of, by_priority, employee_of};
use row::SqlRow;
use statement::{Batch, Order, Statement};

mod access;

mod audit;

mod copy;

mod database;

mod factors;

mod keys;

mod links;

mod membership;

mod migrations;

mod people;

pub mod postgres;

mod records;

mod row;

mod sqlite;

mod statement;

/// A directory in a SQLite file or a PostgreSQL database.
pub struct SqlDirectory {
    database: Database,
    employees: EmployeeSource,
    clock: Clock,
    /// How many log records this process has written: their order within a millisecond.
    logged: AtomicI64,
}

impl SqlDirectory {
    /// Opens a SQLite file and runs the migrations.
    pub async fn open(path: &Path, clock: Clock) -> Result<Self, DirectoryError> {
        Ok(Self::new(Database::Sqlite(sqlite::open(path).await?), EmployeeSource::Own, clock))
    }

    /// Connects to a PostgreSQL database and runs the migrations.
    pub async fn connect(settings: PostgresSettings, clock: Clock) -> Result<Self, DirectoryError> {
        let employees = settings.employees;
        Ok(Self::new(Database::Postgres(PostgresDatabase::open(settings).await?), employees, clock))
    }

    fn new(database: Database, employees: EmployeeSource, clock: Clock) -> Self {
        Self { database, employees, clock, logged: AtomicI64::default() }
    }

    /// Executes one statement whose conditions concern only the row that it changes, and returns whether it changed any.
    async fn apply(&self, statement: Statement) -> Result<WriteOutcome, DirectoryError> {
        self.database.execute(statement).await
    }

    /// Executes one statement whose conditions concern other rows too, and returns whether it changed any.
    async fn apply_exclusively(&self, statement: Statement) -> Result<WriteOutcome, DirectoryError> {
        self.database.commit(Batch::new(Order::Exclusive).guard(statement)).await
    }

    /// Refuses changes to employees, roles and agents that are the help desk's.
    fn require_own_employees(&self) -> Result<(), DirectoryError> {
        match self.employees {
            EmployeeSource::Own => Ok(()),
            EmployeeSource::Views => Err(DirectoryError::ReadOnlyEmployees),
        }
    }

    fn next_in_log(&self) -> i64 {
        self.logged.fetch_add(1, Ordering::Relaxed)
    }
}

const EMPLOYEE: &str =
    "SELECT corp_id, employee_id, name, department, avatar, disabled, last_login_ip, inactive FROM employees
     WHERE corp_id = $1 AND employee_id = $2";

const LOG_LOGIN: &str = "INSERT INTO login_log
     (at, corp_id, employee_id, login_method, login_source, client, ip_address, user_agent, result, reason,
      platform_account, sequence, request_id)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

impl SqlDirectory {
    /// Runs a DELETE statement whose `$1` is the oldest time to keep.
    async fn delete_older_than(&self, statement: &'static str, kept: Duration) -> Result<(), DirectoryError> {
        let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        let oldest = self.clock.now().millis().saturating_sub(kept);
        self.apply(Statement::new(statement).bind(oldest)).await.map(|_| ())
    }
}

#[async_trait]
impl Directory for SqlDirectory {
    async fn employee(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Option<Employee>, DirectoryError> {
        let row = Statement::new(EMPLOYEE)
            .bind(corp_id.as_str())
            .bind(employee_id.as_str())
            .fetch_optional(&self.database)
            .await?;
        Ok(row.as_ref().map(employee_of))
    }

    async fn upsert_employee(&self, profile: EmployeeProfile<'_>) -> Result<Employee, DirectoryError> {
        if self.employees == EmployeeSource::Views {
            let known = self.employee(profile.corp_id, profile.employee_id).await?;
            return known.ok_or(DirectoryError::UnknownEmployee);
        }
        let upsert = Statement::new(
            "INSERT INTO employees (corp_id, employee_id, name, department, avatar, created_at)
             VALUES ($1, $2, CASE WHEN $3 = '' THEN $2 ELSE $3 END, $4, $5, $6)
             ON CONFLICT (corp_id, employee_id) DO UPDATE SET
                 name = CASE WHEN $3 = '' THEN employees.name ELSE $3 END,
                 department = CASE WHEN $4 = '' THEN employees.department ELSE $4 END,
                 avatar = CASE WHEN $5 = '' THEN employees.avatar ELSE $5 END
             RETURNING corp_id, employee_id, name, department, avatar, disabled, last_login_ip, inactive",
        )
        .bind(profile.corp_id.as_str())
        .bind(profile.employee_id.as_str())
        .bind(profile.name)
        .bind(profile.department)
        .bind(profile.avatar)
        .bind(self.clock.now().millis());
        let row = self.database.execute_returning(upsert).await?;
        Ok(employee_of(&row))
    }

    async fn roles(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<RecordedRoles, DirectoryError> {
        // One statement: between two, a grant could hide both the agent record's role and the assigned one.
        let rows = Statement::new(
            "SELECT roles.name, CAST(1 AS BIGINT) FROM user_roles JOIN roles ON roles.id = user_roles.role_id
             WHERE user_roles.corp_id = $1 AND user_roles.employee_id = $2
             UNION ALL
             SELECT agents.role, CAST(0 AS BIGINT) FROM employees LEFT JOIN agents
                 ON agents.corp_id = employees.corp_id AND agents.employee_id = employees.employee_id
             WHERE employees.corp_id = $1 AND employees.employee_id = $2 AND employees.ever_assigned = 0",
        )
        .bind(corp_id.as_str())
        .bind(employee_id.as_str())
        .fetch_all(&self.database)
        .await?;
        let role = |row: &SqlRow| row.get::<Option<String>>(0).map(RoleName::new);
        if let [row] = rows.as_slice()
            && row.get::<i64>(1) == 0
        {
            return Ok(RecordedRoles::NeverAssigned(role(row)));
        }
        Ok(RecordedRoles::Assigned(by_priority(rows.iter().filter_map(role).collect())))
    }

    async fn assigned_roles(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
    ) -> Result<Vec<RoleName>, DirectoryError> {
        let rows = Statement::new(
            "SELECT roles.name FROM user_roles JOIN roles ON roles.id = user_roles.role_id
             WHERE corp_id = $1 AND employee_id = $2",
        )
        .bind(corp_id.as_str())
        .bind(employee_id.as_str())
        .fetch_all(&self.database)
        .await?;
        Ok(by_priority(rows.iter().map(|row| RoleName::new(row.get::<String>(0))).collect()))
    }

    async fn assignments(&self, limit: usize) -> Result<Vec<Assignment>, DirectoryError> {
        let rows = Statement::new(
            "SELECT user_roles.corp_id, user_roles.employee_id, employees.name, roles.name FROM user_roles
             JOIN roles ON roles.id = user_roles.role_id
             JOIN employees ON employees.corp_id = user_roles.corp_id AND employees.employee_id = user_roles.employee_id
             ORDER BY user_roles.corp_id, user_roles.employee_id, roles.name LIMIT $1",
        )
        .bind(limit)
        .fetch_all(&self.database)
        .await?;
        Ok(rows.iter().map(assignment_of).collect())
    }

    async fn assignments_page(&self, query: AssignmentQuery<'_>) -> Result<Assignments, DirectoryError> {
        const FROM: &str = "FROM user_roles JOIN roles ON roles.id = user_roles.role_id
             JOIN employees ON employees.corp_id = user_roles.corp_id AND employees.employee_id = user_roles.employee_id
             WHERE ($1 = '' OR roles.name = $1) AND ($2 = '' OR user_roles.employee_id = $2)
             AND ($3 = '' OR user_roles.corp_id = $3)";
        let (role, employee_id) = (query.role.unwrap_or_default(), query.employee_id.unwrap_or_default());
        let corp_id = query.corp_id.map_or("", CorpId::as_str);
        let total = Statement::new(sqlx::AssertSqlSafe(format!("SELECT count(*) {FROM}")))
            .bind(role)
            .bind(employee_id)
            .bind(corp_id)
            .count(&self.database)
            .await?;
        let page = format!(
            "SELECT user_roles.corp_id, user_roles.employee_id, employees.name, roles.name {FROM}
             ORDER BY user_roles.corp_id, user_roles.employee_id, roles.name LIMIT $4 OFFSET $5"
        );
        let rows = Statement::new(sqlx::AssertSqlSafe(page))
            .bind(role)
            .bind(employee_id)
            .bind(corp_id)
            .bind(query.limit)
            .bind(query.skip)
            .fetch_all(&self.database)
            .await?;
        let items = rows.iter().map(assignment_of).collect();
        Ok(Assignments { items, total })
    }

    async fn grant(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
    ) -> Result<RoleChange, DirectoryError> {
        self.require_own_employees()?;
        let add_role =
            Statement::new("INSERT INTO roles (name) VALUES ($1) ON CONFLICT (name) DO NOTHING").bind(role.as_str());
        // An employee who is being removed gets no role, and an employee who is the last administrator by the agent record
        // alone does not lose that role: an assignment overrides the agent record.
        let assign = Statement::new(concat!(
            "INSERT INTO user_roles (corp_id, employee_id, role_id) SELECT $1, $2, id FROM roles WHERE name = $3
             AND EXISTS (SELECT 1 FROM employees WHERE corp_id = $1 AND employee_id = $2)
             AND (SELECT count(*) FROM user_roles WHERE corp_id = $1 AND employee_id = $2) < $4
             AND ($3 = 'admin' OR NOT ",
            people::is_admin!(),
            " OR EXISTS (SELECT 1 FROM user_roles WHERE corp_id = $1 AND employee_id = $2) OR ",
            people::another_admin!(),
            ") ON CONFLICT (corp_id, employee_id, role_id) DO NOTHING"
        ))
        .bind(corp_id.as_str())
        .bind(employee_id.as_str())
        .bind(role.as_str())
        .bind(role::MOST);
        let mark = Statement::new("UPDATE employees SET ever_assigned = 1 WHERE corp_id = $1 AND employee_id = $2")
            .bind(corp_id.as_str())
            .bind(employee_id.as_str());
        let grant = Batch::new(Order::Exclusive).run(add_role).guard(assign).run(mark);
        if self.database.commit(grant).await? == WriteOutcome::Applied {
            return Ok(RoleChange::Done);
        }
        if self.employee(corp_id, employee_id).await?.is_none() {
            return Ok(RoleChange::NoEmployee);
        }
        let held = self.assigned_roles(corp_id, employee_id).await?;
        Ok(match held.len() {
            _ if held.contains(role) => RoleChange::Unchanged,
            role::MOST.. => RoleChange::TooMany,
            _ => RoleChange::LastAdmin,
        })
    }

    async fn take(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
    ) -> Result<RoleChange, DirectoryError> {
        self.require_own_employees()?;
        if self.employee(corp_id, employee_id).await?.is_none() {
            return Ok(RoleChange::NoEmployee);
        }
        let delete = Statement::new(concat!(
            "DELETE FROM user_roles WHERE corp_id = $1 AND employee_id = $2
             AND role_id IN (SELECT id FROM roles WHERE name = $3)
             AND ($3 <> 'admin' OR ",
            people::another_admin!(),
            ")"
        ))
        .bind(corp_id.as_str())
        .bind(employee_id.as_str())
        .bind(role.as_str());
        if self.apply_exclusively(delete).await? == WriteOutcome::Applied {
            return Ok(RoleChange::Done);
        }
        let kept = role.as_str() == "admin" && self.assigned_roles(corp_id, employee_id).await?.contains(role);
        Ok(if kept { RoleChange::LastAdmin } else { RoleChange::Unchanged })
    }

    async fn employees(&self, text: Option<&str>, limit: usize) -> Result<Vec<Employee>, DirectoryError> {
        let rows = Statement::new(
            "SELECT corp_id, employee_id, name, department, avatar, disabled, last_login_ip, inactive FROM employees
             WHERE lower(employee_id) LIKE $1 ESCAPE '!' OR lower(name) LIKE $1 ESCAPE '!'
                 OR lower(department) LIKE $1 ESCAPE '!'
             ORDER BY corp_id, employee_id LIMIT $2",
        )
        .bind(containing(text.unwrap_or_default()))
        .bind(limit)
        .fetch_all(&self.database)
        .await?;
        Ok(rows.iter().map(employee_of).collect())
    }

    async fn record_login(&self, record: LoginRecord<'_>) -> Result<(), DirectoryError> {
        let (result, reason) = match record.result {
            LoginResult::Success => (LoginOutcome::Success.as_str(), ""),
            LoginResult::Refused(reason) => (LoginOutcome::Refused.as_str(), reason),
        };
        let log = Statement::new(LOG_LOGIN)
            .bind(self.clock.now().millis())
            .bind(record.corp_id)
            .bind(record.employee_id)
            .bind(record.method.as_str())
            .bind(record.source.map_or("", LoginSource::as_str))
            .bind(record.client.map_or("", Client::as_str))
            .bind(record.address)
            .bind(record.user_agent)
            .bind(result)
            .bind(reason)
            .bind(record.platform_account.map(PlatformAccount::to_string).unwrap_or_default())
            .bind(self.next_in_log())
            .bind(record.request_id);
        if record.result != LoginResult::Success {
            return self.apply(log).await.map(|_| ());
        }
        let note_address =
            Statement::new("UPDATE employees SET last_login_ip = $1 WHERE corp_id = $2 AND employee_id = $3")
                .bind(record.address)
                .bind(record.corp_id)
                .bind(record.employee_id);
        self.database.commit(Batch::new(Order::Concurrent).run(log).run(note_address)).await.map(|_| ())
    }

    async fn logins(&self, query: &LoginQuery, limit: usize) -> Result<Vec<LoginEntry>, DirectoryError> {
        let rows = Statement::new(
            "SELECT at, corp_id, employee_id, login_method, login_source, client, ip_address, user_agent, result, reason,
                 platform_account, request_id
             FROM login_log WHERE ($1 = '' OR employee_id = $1) AND at >= $3 AND ($4 = '' OR result = $4)
             ORDER BY at DESC, sequence DESC LIMIT $2",
        )
        .bind(query.employee_id.as_deref().unwrap_or_default())
        .bind(limit)
        .bind(query.since.map_or(i64::MIN, Timestamp::millis))
        .bind(query.outcome.map_or("", LoginOutcome::as_str))
        .fetch_all(&self.database)
        .await?;
        let entries = rows.iter().map(|row| LoginEntry {
            at: Timestamp::from_millis(row.get(0)),
            corp_id: row.get(1),
            employee_id: row.get(2),
            login_method: row.get(3),
            login_source: row.get(4),
            client: row.get(5),
            ip_address: row.get(6),
            user_agent: row.get(7),
            result: row.get(8),
            reason: row.get(9),
            platform_account: row.get(10),
            request_id: row.get(11),
        });
        Ok(entries.collect())
    }

    async fn prune_login_log(&self, kept: Duration) -> Result<(), DirectoryError> {
        self.delete_older_than("DELETE FROM login_log WHERE at < $1", kept).await
    }

    async fn ready(&self) -> Result<(), DirectoryError> {
        self.database.probe().await
    }

    async fn durability_risks(&self) -> Result<Vec<DurabilityRisk>, DirectoryError> {
        self.database.durability_risks().await
    }

    async fn failure(&self) {
        self.database.failure().await;
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

/// The `LIKE … ESCAPE '!'` pattern for values that contain the text, ignoring case.
fn containing(text: &str) -> String {
    let text = text.to_lowercase().replace('!', "!!").replace('%', "!%").replace('_', "!_");
    format!("%{text}%")
}

/// A statement whose `$1` and `$2` are the account.
fn of_account(text: &'static str, whose: Account<'_>) -> Statement {
    Statement::new(text).bind(whose.corp_id.as_str()).bind(whose.employee_id.as_str())
}

fn unavailable(cause: impl Into<crate::error::Cause>) -> DirectoryError {
    DirectoryError::Unavailable(cause.into())
}
