//! Copies of a directory in SQL.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::SqlDirectory;
use super::database::Database;
use super::row::SqlRow;
use super::statement::{Batch, Order, Reuse, SqlValue, Statement};
use crate::directory::DirectoryError;
use crate::directory::copy::{
    CopiedColumn, CopiedRow, CopiedTable, CopiedValue, CopyRun, CopyState, DirectoryCopy, RowCursor, RowPage,
};
use crate::domain::write::WriteOutcome;

/// How many rows a statement inserts. With the columns of the widest table it stays far below the 32,766 parameters of SQLite.
const ROWS_PER_STATEMENT: usize = 250;

/// The tables that a copy fills, those that refer to others first.
const FILLED: [&str; 10] = [
    "user_roles",
    "roles",
    "employees",
    "agents",
    "otp_devices",
    "lockouts",
    "platform_links",
    "login_log",
    "audit_log",
    "signing_keys",
];

#[async_trait]
impl DirectoryCopy for SqlDirectory {
    async fn copy_state(&self) -> Result<CopyState, DirectoryError> {
        let row = Statement::new("SELECT completed_at FROM copy_target").fetch_optional(&self.database).await?;
        Ok(match row.map(|row| row.get::<Option<i64>>(0)) {
            None => CopyState::Own,
            Some(None) => CopyState::Unfinished,
            Some(Some(_)) => CopyState::Complete,
        })
    }

    async fn begin_copy(&self, run: &CopyRun) -> Result<WriteOutcome, DirectoryError> {
        self.require_own_employees()?;
        let empty = FILLED.map(|table| format!("NOT EXISTS (SELECT 1 FROM {table})")).join(" AND ");
        let begin = format!(
            "INSERT INTO copy_target (row_id, copy_id) SELECT 1, $1 WHERE EXISTS (SELECT 1 FROM copy_target) OR ({empty})
             ON CONFLICT (row_id) DO UPDATE SET copy_id = excluded.copy_id, completed_at = NULL"
        );
        let begin = Statement::new(AssertSqlSafe(begin)).bind(run.as_str());
        let clear = clear_statements(&self.database).into_iter().map(|text| Statement::new(AssertSqlSafe(text)));
        let count = Statement::new("UPDATE signing_key_generation SET generation = generation + 1");
        let batch = clear.fold(Batch::new(Order::Exclusive).guard(begin), Batch::run);
        self.database.commit(batch.run(count)).await
    }

    async fn insert_rows(
        &self,
        run: &CopyRun,
        table: CopiedTable,
        rows: &[CopiedRow],
    ) -> Result<WriteOutcome, DirectoryError> {
        for part in rows.chunks(ROWS_PER_STATEMENT) {
            // Locks the row, so that a run that begins waits for this statement and then removes its rows.
            let current =
                Statement::new("UPDATE copy_target SET copy_id = copy_id WHERE copy_id = $1 AND completed_at IS NULL")
                    .bind(run.as_str());
            let insert = Batch::new(Order::Concurrent).guard(current).run(insert_statement(table, part));
            if self.database.commit(insert).await? == WriteOutcome::Conflict {
                return Ok(WriteOutcome::Conflict);
            }
        }
        Ok(WriteOutcome::Applied)
    }

    async fn finish_copy(&self, run: &CopyRun) -> Result<WriteOutcome, DirectoryError> {
        let finish = Statement::new("UPDATE copy_target SET completed_at = $2 WHERE copy_id = $1");
        self.apply(finish.bind(run.as_str()).bind(self.clock.now().millis())).await
    }

    async fn adopt_copy(&self) -> Result<(), DirectoryError> {
        self.apply(Statement::new("DELETE FROM copy_target WHERE completed_at IS NOT NULL")).await.map(|_| ())
    }

    async fn rows(
        &self,
        table: CopiedTable,
        after: Option<&RowCursor>,
        limit: usize,
    ) -> Result<RowPage, DirectoryError> {
        let key = key(table, &self.database);
        let names: Vec<&str> = table.columns().iter().chain(&key).map(|column| column.name()).collect();
        let order = key.iter().map(|column| column.name()).collect::<Vec<_>>().join(", ");
        let begin = after.map(|_| format!("WHERE ({order}) > ({})", parameters(0, key.len()))).unwrap_or_default();
        let place = after.map_or(&[][..], |after| &after.0);
        let text = format!(
            "SELECT {} FROM {} {begin} ORDER BY {order} LIMIT ${}",
            names.join(", "),
            source(table),
            place.len() + 1
        );
        let page = place.iter().cloned().fold(Statement::new(AssertSqlSafe(text)), Statement::bind).bind(limit);
        let rows = page.fetch_all(&self.database).await?;
        let width = table.columns().len();
        let next = rows.last().filter(|_| rows.len() == limit).map(|row| RowCursor(values(row, &key, width)));
        let rows = rows.iter().map(|row| CopiedRow { values: values(row, table.columns(), 0) }).collect();
        Ok(RowPage { rows, next })
    }

    async fn count_rows(&self, table: CopiedTable) -> Result<usize, DirectoryError> {
        let text = format!("SELECT count(*) FROM {}", source(table));
        Statement::new(AssertSqlSafe(text)).count(&self.database).await
    }
}

/// What a table's rows are read from: a table, or a query.
fn source(table: CopiedTable) -> &'static str {
    match table {
        CopiedTable::Employees => "employees",
        CopiedTable::Roles => "roles",
        CopiedTable::Assignments => {
            "(SELECT corp_id, employee_id, roles.name AS role FROM user_roles JOIN roles ON roles.id = role_id) AS held"
        }
        CopiedTable::Agents => "agents",
        CopiedTable::OtpDevices => "otp_devices",
        CopiedTable::Lockouts => "lockouts",
        CopiedTable::Links => "platform_links",
        CopiedTable::LoginLog => "login_log",
        CopiedTable::AuditLog => "audit_log",
    }
}

/// The columns that order a table and tell its rows apart.
fn key(table: CopiedTable, database: &Database) -> Vec<CopiedColumn> {
    use CopiedColumn::Text;
    match table {
        CopiedTable::Employees | CopiedTable::Agents | CopiedTable::OtpDevices => {
            vec![Text("corp_id"), Text("employee_id")]
        }
        CopiedTable::Roles => vec![Text("name")],
        CopiedTable::Assignments => vec![Text("corp_id"), Text("employee_id"), Text("role")],
        CopiedTable::Lockouts => vec![Text("corp_id"), Text("employee_id"), Text("tried")],
        CopiedTable::Links => vec![Text("corp_id"), Text("user_id")],
        CopiedTable::LoginLog => vec![CopiedColumn::Integer(database.row_number())],
        CopiedTable::AuditLog => vec![Text("id")],
    }
}

fn values(row: &SqlRow, columns: &[CopiedColumn], first: usize) -> Vec<CopiedValue> {
    let value = |(number, column): (usize, &CopiedColumn)| match column {
        CopiedColumn::Text(_) => CopiedValue::Text(row.get(first + number)),
        CopiedColumn::Integer(_) => CopiedValue::Integer(row.get(first + number)),
    };
    columns.iter().enumerate().map(value).collect()
}

fn insert_statement(table: CopiedTable, rows: &[CopiedRow]) -> Statement {
    let width = table.columns().len();
    let tuples: Vec<String> = (0..rows.len()).map(|row| format!("({})", parameters(row * width, width))).collect();
    let tuples = tuples.join(", ");
    let text = match table {
        CopiedTable::Assignments => format!(
            "INSERT INTO user_roles (corp_id, employee_id, role_id) SELECT held.column1, held.column2, roles.id
             FROM (VALUES {tuples}) AS held JOIN roles ON roles.name = held.column3"
        ),
        table => {
            let names = table.columns().iter().map(|column| column.name()).collect::<Vec<_>>().join(", ");
            format!("INSERT INTO {} ({names}) VALUES {tuples}", source(table))
        }
    };
    let reuse = if rows.len() == ROWS_PER_STATEMENT { Reuse::Prepared } else { Reuse::Once };
    let insert = Statement::new(AssertSqlSafe(text)).reuse(reuse);
    rows.iter().flat_map(|row| row.values.iter().cloned()).fold(insert, Statement::bind)
}

/// `$3, $4` for two parameters after two others.
fn parameters(before: usize, count: usize) -> String {
    (1..=count).map(|number| format!("${}", before + number)).collect::<Vec<_>>().join(", ")
}

fn clear_statements(database: &Database) -> Vec<String> {
    match database {
        Database::Sqlite(_) => FILLED.map(|table| format!("DELETE FROM {table}")).to_vec(),
        // A million rows must not take longer than `directory.timeout`.
        Database::Postgres(_) => vec![format!("TRUNCATE {}", FILLED.join(", "))],
    }
}

impl From<CopiedValue> for SqlValue {
    fn from(value: CopiedValue) -> Self {
        match value {
            CopiedValue::Text(text) => SqlValue::Text(text),
            CopiedValue::Integer(number) => SqlValue::Integer(number),
        }
    }
}
