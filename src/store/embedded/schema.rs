//! The tables of the embedded store and their indexes.

use sqlx::SqliteConnection;

use crate::sqlite::SqliteFileError;

/// SQL: the key that a session records, NULL without one. An index has this expression, so queries must use the same. A
/// body that cannot be decoded must not keep the index from being made.
macro_rules! key_id {
    () => {
        "CASE WHEN json_valid(body) THEN json_extract(body, '$.key_id') END"
    };
}
pub(super) use key_id;

/// SQL: the platform account that a session records, as JSON; NULL without one. An index has this expression.
macro_rules! platform_account {
    () => {
        "CASE WHEN json_valid(body) THEN json_extract(body, '$.platform_account') END"
    };
}
pub(super) use platform_account;

const SCHEMA: &str = concat!(
    "
    CREATE TABLE IF NOT EXISTS sessions (
        id TEXT PRIMARY KEY, corp_id TEXT NOT NULL, employee_id TEXT NOT NULL,
        version INTEGER NOT NULL, issued_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, body TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS sessions_of_employee ON sessions (corp_id, employee_id);
    CREATE INDEX IF NOT EXISTS sessions_by_start ON sessions (issued_at);
    CREATE INDEX IF NOT EXISTS sessions_by_end ON sessions (expires_at);
    CREATE INDEX IF NOT EXISTS sessions_of_key ON sessions (",
    key_id!(),
    ", expires_at);
    CREATE INDEX IF NOT EXISTS sessions_of_platform_account ON sessions (",
    platform_account!(),
    ") WHERE ",
    platform_account!(),
    " IS NOT NULL;
    CREATE TABLE IF NOT EXISTS denied (id TEXT PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS denied_by_end ON denied (until);
    CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS tickets (
        id TEXT PRIMARY KEY, scan_id TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL, expires_at INTEGER NOT NULL, body TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS tickets_by_end ON tickets (expires_at);
    PRAGMA user_version = 1;
"
);

/// Creates the tables, and the indexes that an older program did not have: it works with them all the same, so they need
/// no new schema version. A file that a newer program has written is refused.
pub(super) async fn prepare(connection: &mut SqliteConnection) -> Result<(), SqliteFileError> {
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| SqliteFileError::Damaged(error.into()))?;
    if version > 1 {
        let text = format!("it was written by a newer deskgate (schema {version})");
        return Err(SqliteFileError::Damaged(text.into()));
    }
    let created = sqlx::raw_sql(SCHEMA).execute(connection).await;
    created.map(|_| ()).map_err(|error| SqliteFileError::Unavailable(error.into()))
}
