//! The directory in a SQL database. The statements use only what SQLite and PostgreSQL share.

#![expect(clippy::disallowed_methods, reason = "the home of the directory's SQL")]

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, Sqlite, SqliteConnection, SqlitePool};

use super::factors::Account;
use super::people::People;
use super::{
    Assignment, AssignmentQuery, Assignments, Directory, DirectoryError, EmployeeProfile, LoginEntry, LoginRecord,
    LoginResult, RecordedRoles, RoleChange, development,
};
use crate::domain::client::Client;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::employee::{CorpId, Employee, EmployeeId, InactiveReason, Standing};
use crate::domain::link::PlatformAccount;
use crate::domain::role::{self, RoleName};
use crate::domain::session::LoginSource;
use crate::domain::write::WriteOutcome;
use crate::sqlite::{SqliteFile, SqliteFileError};

mod access;

mod audit;

mod factors;

mod links;

mod membership;

mod people;

/// A directory in a SQLite file.
pub struct SqlDirectory {
    file: SqliteFile,
    clock: Clock,
}

impl SqlDirectory {
    /// Opens the database and runs the migrations.
    pub async fn open(path: &Path, clock: Clock) -> Result<Self, DirectoryError> {
        let file = SqliteFile::open(path, |connection| migrate(connection).boxed()).await?;
        Ok(Self { file, clock })
    }

    /// Connections for reading.
    fn readers(&self) -> &SqlitePool {
        self.file.readers()
    }

    /// Executes one statement that changes rows, and returns whether it changed any.
    async fn apply(&self, statement: Query<'static, Sqlite, SqliteArguments>) -> Result<WriteOutcome, DirectoryError> {
        let changed = self.file.execute(statement).await?;
        Ok(if changed == 0 { WriteOutcome::Conflict } else { WriteOutcome::Applied })
    }

    /// Adds the development data to an empty directory; leaves any other unchanged.
    pub async fn fill_for_development(&self) -> Result<(), DirectoryError> {
        let people: i64 = sqlx::query_scalar("SELECT count(*) FROM employees")
            .fetch_one(self.readers())
            .await
            .map_err(unavailable)?;
        if people > 0 {
            return Ok(());
        }
        let corp_id = CorpId::new(development::CORP);
        for person in development::EMPLOYEES {
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

const EMPLOYEE: &str =
    "SELECT corp_id, employee_id, name, department, avatar, disabled, last_login_ip, inactive FROM employees
     WHERE corp_id = $1 AND employee_id = $2";

const LOG_LOGIN: &str = "INSERT INTO login_log
     (at, corp_id, employee_id, login_method, login_source, client, ip_address, user_agent, result, reason,
      platform_account)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

impl SqlDirectory {
    /// Runs a DELETE statement whose `$1` is the oldest time to keep.
    async fn delete_older_than(&self, statement: &'static str, kept: Duration) -> Result<(), DirectoryError> {
        let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
        let oldest = self.clock.now().millis().saturating_sub(kept);
        self.apply(sqlx::query(statement).bind(oldest)).await.map(|_| ())
    }
}

#[async_trait]
impl Directory for SqlDirectory {
    async fn employee(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Option<Employee>, DirectoryError> {
        let row = sqlx::query(EMPLOYEE)
            .bind(corp_id.as_str())
            .bind(employee_id.as_str())
            .fetch_optional(self.readers())
            .await
            .map_err(unavailable)?;
        Ok(row.as_ref().map(employee_of))
    }

    async fn upsert_employee(&self, profile: EmployeeProfile<'_>) -> Result<Employee, DirectoryError> {
        let upsert = sqlx::query(
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
        let row = self.file.write(move |connection| upsert.fetch_one(connection).boxed()).await?;
        Ok(employee_of(&row))
    }

    async fn roles(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<RecordedRoles, DirectoryError> {
        // One statement: between two, a grant could hide both the agent record's role and the assigned one.
        let rows = sqlx::query(
            "SELECT roles.name, 1 FROM user_roles JOIN roles ON roles.id = user_roles.role_id
             WHERE user_roles.corp_id = $1 AND user_roles.employee_id = $2
             UNION ALL
             SELECT agents.role, 0 FROM employees LEFT JOIN agents
                 ON agents.corp_id = employees.corp_id AND agents.employee_id = employees.employee_id
             WHERE employees.corp_id = $1 AND employees.employee_id = $2 AND employees.ever_assigned = 0",
        )
        .bind(corp_id.as_str())
        .bind(employee_id.as_str())
        .fetch_all(self.readers())
        .await
        .map_err(unavailable)?;
        let role = |row: &SqliteRow| row.get::<Option<String>, _>(0).map(RoleName::new);
        if let [row] = rows.as_slice()
            && row.get::<i64, _>(1) == 0
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
        let names: Vec<String> = sqlx::query_scalar(
            "SELECT roles.name FROM user_roles JOIN roles ON roles.id = user_roles.role_id
             WHERE corp_id = $1 AND employee_id = $2",
        )
        .bind(corp_id.as_str())
        .bind(employee_id.as_str())
        .fetch_all(self.readers())
        .await
        .map_err(unavailable)?;
        Ok(by_priority(names.into_iter().map(RoleName::new).collect()))
    }

    async fn assignments(&self, limit: usize) -> Result<Vec<Assignment>, DirectoryError> {
        let rows = sqlx::query(
            "SELECT user_roles.corp_id, user_roles.employee_id, employees.name, roles.name FROM user_roles
             JOIN roles ON roles.id = user_roles.role_id
             JOIN employees ON employees.corp_id = user_roles.corp_id AND employees.employee_id = user_roles.employee_id
             ORDER BY user_roles.corp_id, user_roles.employee_id, roles.name LIMIT $1",
        )
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(self.readers())
        .await
        .map_err(unavailable)?;
        Ok(rows.iter().map(assignment_of).collect())
    }

    async fn assignments_page(&self, query: AssignmentQuery<'_>) -> Result<Assignments, DirectoryError> {
        const FROM: &str = "FROM user_roles JOIN roles ON roles.id = user_roles.role_id
             JOIN employees ON employees.corp_id = user_roles.corp_id AND employees.employee_id = user_roles.employee_id
             WHERE ($1 = '' OR roles.name = $1) AND ($2 = '' OR user_roles.employee_id = $2)
             AND ($3 = '' OR user_roles.corp_id = $3)";
        let (role, employee_id) = (query.role.unwrap_or_default(), query.employee_id.unwrap_or_default());
        let corp_id = query.corp_id.map_or("", CorpId::as_str);
        let total: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) {FROM}")))
            .bind(role)
            .bind(employee_id)
            .bind(corp_id)
            .fetch_one(self.readers())
            .await
            .map_err(unavailable)?;
        let page = format!(
            "SELECT user_roles.corp_id, user_roles.employee_id, employees.name, roles.name {FROM}
             ORDER BY user_roles.corp_id, user_roles.employee_id, roles.name LIMIT $4 OFFSET $5"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(page))
            .bind(role)
            .bind(employee_id)
            .bind(corp_id)
            .bind(i64::try_from(query.limit).unwrap_or(i64::MAX))
            .bind(i64::try_from(query.skip).unwrap_or(i64::MAX))
            .fetch_all(self.readers())
            .await
            .map_err(unavailable)?;
        let items = rows.iter().map(assignment_of).collect();
        Ok(Assignments { items, total: usize::try_from(total).unwrap_or(0) })
    }

    async fn grant(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
    ) -> Result<RoleChange, DirectoryError> {
        let add_role =
            sqlx::query("INSERT INTO roles (name) VALUES ($1) ON CONFLICT (name) DO NOTHING").bind(role.as_str());
        // One statement, so that an employee who is being removed gets no role, and so that an employee who is the last
        // administrator by the agent record alone does not lose that role: an assignment overrides the agent record.
        let assign = sqlx::query(concat!(
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
        .bind(i64::try_from(role::MOST).unwrap_or(i64::MAX));
        let mark = sqlx::query("UPDATE employees SET ever_assigned = 1 WHERE corp_id = $1 AND employee_id = $2")
            .bind(corp_id.as_str())
            .bind(employee_id.as_str());
        let grant = async move |connection: &mut SqliteConnection| {
            add_role.execute(&mut *connection).await?;
            let assigned = assign.execute(&mut *connection).await?.rows_affected() > 0;
            if assigned {
                mark.execute(connection).await?;
            }
            Ok(assigned)
        };
        if self.file.write(move |connection| grant(connection).boxed()).await? {
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
        if self.employee(corp_id, employee_id).await?.is_none() {
            return Ok(RoleChange::NoEmployee);
        }
        // One statement, so that of two administrators who remove each other's role one remains.
        let delete = sqlx::query(concat!(
            "DELETE FROM user_roles WHERE corp_id = $1 AND employee_id = $2
             AND role_id IN (SELECT id FROM roles WHERE name = $3)
             AND ($3 <> 'admin' OR ",
            people::another_admin!(),
            ")"
        ))
        .bind(corp_id.as_str())
        .bind(employee_id.as_str())
        .bind(role.as_str());
        if self.apply(delete).await? == WriteOutcome::Applied {
            return Ok(RoleChange::Done);
        }
        let kept = role.as_str() == "admin" && self.assigned_roles(corp_id, employee_id).await?.contains(role);
        Ok(if kept { RoleChange::LastAdmin } else { RoleChange::Unchanged })
    }

    async fn employees(&self, text: Option<&str>, limit: usize) -> Result<Vec<Employee>, DirectoryError> {
        let rows = sqlx::query(
            "SELECT corp_id, employee_id, name, department, avatar, disabled, last_login_ip, inactive FROM employees
             WHERE lower(employee_id) LIKE $1 ESCAPE '!' OR lower(name) LIKE $1 ESCAPE '!'
                 OR lower(department) LIKE $1 ESCAPE '!'
             ORDER BY corp_id, employee_id LIMIT $2",
        )
        .bind(containing(text.unwrap_or_default()))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(self.readers())
        .await
        .map_err(unavailable)?;
        Ok(rows.iter().map(employee_of).collect())
    }

    async fn record_login(&self, record: LoginRecord<'_>) -> Result<(), DirectoryError> {
        let (result, reason) = match record.result {
            LoginResult::Success => ("success", ""),
            LoginResult::Refused(reason) => ("refused", reason),
        };
        let log = sqlx::query(LOG_LOGIN)
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
            .bind(record.platform_account.map(PlatformAccount::to_string).unwrap_or_default());
        if record.result != LoginResult::Success {
            return self.apply(log).await.map(|_| ());
        }
        let note_address =
            sqlx::query("UPDATE employees SET last_login_ip = $1 WHERE corp_id = $2 AND employee_id = $3")
                .bind(record.address)
                .bind(record.corp_id)
                .bind(record.employee_id);
        let write = async move |connection: &mut SqliteConnection| {
            log.execute(&mut *connection).await?;
            note_address.execute(connection).await.map(|_| ())
        };
        Ok(self.file.write(move |connection| write(connection).boxed()).await?)
    }

    async fn logins(&self, employee_id: Option<&str>, limit: usize) -> Result<Vec<LoginEntry>, DirectoryError> {
        let rows = sqlx::query(
            "SELECT at, corp_id, employee_id, login_method, login_source, client, ip_address, user_agent, result, reason,
                 platform_account
             FROM login_log WHERE $1 = '' OR employee_id = $1 ORDER BY at DESC LIMIT $2",
        )
        .bind(employee_id.unwrap_or_default())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(self.readers())
        .await
        .map_err(unavailable)?;
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
        });
        Ok(entries.collect())
    }

    async fn prune_login_log(&self, kept: Duration) -> Result<(), DirectoryError> {
        self.delete_older_than("DELETE FROM login_log WHERE at < $1", kept).await
    }

    async fn ready(&self) -> Result<(), DirectoryError> {
        Ok(self.file.probe().await?)
    }

    async fn failure(&self) {
        self.file.writer_ended().await;
    }

    async fn close(&self) {
        self.file.close().await;
    }
}

fn by_priority(mut roles: Vec<RoleName>) -> Vec<RoleName> {
    roles.sort_by(|a, b| b.priority().cmp(&a.priority()).then_with(|| a.cmp(b)));
    roles
}

fn assignment_of(row: &SqliteRow) -> Assignment {
    Assignment {
        corp_id: CorpId::new(row.get::<String, _>(0)),
        employee_id: EmployeeId::new(row.get::<String, _>(1)),
        name: row.get(2),
        role: RoleName::new(row.get::<String, _>(3)),
    }
}

fn employee_of(row: &SqliteRow) -> Employee {
    Employee {
        corp_id: CorpId::new(row.get::<String, _>(0)),
        employee_id: EmployeeId::new(row.get::<String, _>(1)),
        name: row.get(2),
        department: row.get(3),
        avatar: row.get(4),
        standing: standing_of(row.get(5)),
        last_login_ip: row.get(6),
        inactive: row.get::<Option<&str>, _>(7).and_then(InactiveReason::parse),
    }
}

/// The `LIKE … ESCAPE '!'` pattern for values that contain the text, ignoring case.
fn containing(text: &str) -> String {
    let text = text.to_lowercase().replace('!', "!!").replace('%', "!%").replace('_', "!_");
    format!("%{text}%")
}

fn standing_of(disabled: i64) -> Standing {
    if disabled == 0 { Standing::Active } else { Standing::Disabled }
}

async fn migrate(connection: &mut SqliteConnection) -> Result<(), SqliteFileError> {
    let migrated = sqlx::migrate!("src/directory/migrations").run_direct(None, connection, false).await;
    migrated.map_err(|error| SqliteFileError::Unavailable(error.into()))
}

fn unavailable(cause: impl Into<crate::error::Cause>) -> DirectoryError {
    DirectoryError::Unavailable(cause.into())
}
