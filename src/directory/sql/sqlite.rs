//! Statements on a SQLite file: changes go through its one writer, which commits waiting ones together.

use std::path::Path;

use futures::FutureExt;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, SqliteConnection};

use super::migrations::{SQLITE, migrator};
use super::row::SqlRow;
use super::statement::{Batch, Reuse, SqlValue, Statement};
use super::unavailable;
use crate::directory::DirectoryError;
use crate::domain::write::WriteOutcome;
use crate::sqlite::{SqliteFile, SqliteFileError};

/// Opens the file and runs the migrations.
pub(super) async fn open(path: &Path) -> Result<SqliteFile, SqliteFileError> {
    SqliteFile::open(path, |connection| migrate(connection).boxed()).await
}

async fn migrate(connection: &mut SqliteConnection) -> Result<(), SqliteFileError> {
    let migrated = migrator(SQLITE).run_direct(None, connection, false).await;
    migrated.map_err(|error| SqliteFileError::Unavailable(error.into()))
}

pub(super) async fn fetch(file: &SqliteFile, statement: Statement) -> Result<Vec<SqlRow>, DirectoryError> {
    let rows = query(statement).fetch_all(file.readers()).await.map_err(unavailable)?;
    Ok(rows.into_iter().map(SqlRow::Sqlite).collect())
}

pub(super) async fn execute_returning(file: &SqliteFile, statement: Statement) -> Result<SqlRow, DirectoryError> {
    let row = file.write(move |connection| query(statement).fetch_one(connection).boxed()).await?;
    Ok(SqlRow::Sqlite(row))
}

pub(super) async fn execute(file: &SqliteFile, statement: Statement) -> Result<WriteOutcome, DirectoryError> {
    let changed = file.execute(query(statement)).await?;
    Ok(if changed == 0 { WriteOutcome::Conflict } else { WriteOutcome::Applied })
}

pub(super) async fn commit(file: &SqliteFile, batch: Batch) -> Result<WriteOutcome, DirectoryError> {
    Ok(file.write(move |connection| execute_batch(connection, batch).boxed()).await?)
}

async fn execute_batch(connection: &mut SqliteConnection, batch: Batch) -> Result<WriteOutcome, sqlx::Error> {
    for step in &batch.steps {
        let changed = query(step.statement().clone()).execute(&mut *connection).await?.rows_affected();
        if step.ends_batch(changed) {
            return Ok(WriteOutcome::Conflict);
        }
    }
    Ok(WriteOutcome::Applied)
}

fn query(statement: Statement) -> Query<'static, Sqlite, SqliteArguments> {
    let query = sqlx::query(statement.text).persistent(statement.reuse == Reuse::Prepared);
    statement.values.into_iter().fold(query, |query, value| match value {
        SqlValue::Text(text) => query.bind(text),
        SqlValue::Integer(number) => query.bind(number),
    })
}
