//! Runs statements on the engine that is configured.

use super::postgres::PostgresDatabase;
use super::row::SqlRow;
use super::sqlite;
use super::statement::{Batch, Statement};
use super::unavailable;
use crate::directory::{DirectoryError, DurabilityRisk};
use crate::domain::write::WriteOutcome;
use crate::sqlite::SqliteFile;

/// The database of a directory.
pub(super) enum Database {
    Sqlite(SqliteFile),
    Postgres(PostgresDatabase),
}

impl Database {
    async fn fetch(&self, statement: Statement) -> Result<Vec<SqlRow>, DirectoryError> {
        match self {
            Database::Sqlite(file) => sqlite::fetch(file, statement).await,
            Database::Postgres(database) => database.fetch(statement).await,
        }
    }

    /// Executes a statement that changes rows and returns the first row of its RETURNING clause, once that is durable.
    pub(super) async fn execute_returning(&self, statement: Statement) -> Result<SqlRow, DirectoryError> {
        match self {
            Database::Sqlite(file) => sqlite::execute_returning(file, statement).await,
            Database::Postgres(database) => database.execute_returning(statement).await,
        }
    }

    /// Executes a statement and returns whether it changed a row, once that is durable.
    pub(super) async fn execute(&self, statement: Statement) -> Result<WriteOutcome, DirectoryError> {
        match self {
            Database::Sqlite(file) => sqlite::execute(file, statement).await,
            Database::Postgres(database) => database.execute(statement).await,
        }
    }

    /// Executes a batch, and returns once that is durable. Conflicts if a guard changed no row.
    pub(super) async fn commit(&self, batch: Batch) -> Result<WriteOutcome, DirectoryError> {
        match self {
            Database::Sqlite(file) => sqlite::commit(file, batch).await,
            Database::Postgres(database) => database.commit(batch).await,
        }
    }

    /// Checks that the database can be read and written now.
    pub(super) async fn probe(&self) -> Result<(), DirectoryError> {
        match self {
            Database::Sqlite(file) => Ok(file.probe().await?),
            Database::Postgres(database) => database.probe().await,
        }
    }

    /// How the server is set up to lose acknowledged changes. A SQLite file is synchronised with every commit.
    pub(super) async fn durability_risks(&self) -> Result<Vec<DurabilityRisk>, DirectoryError> {
        match self {
            Database::Sqlite(_) => Ok(Vec::new()),
            Database::Postgres(database) => database.durability_risks().await,
        }
    }

    /// The column that numbers the rows of a table without a key of its own.
    pub(super) fn row_number(&self) -> &'static str {
        match self {
            Database::Sqlite(_) => "rowid",
            Database::Postgres(_) => "row_id",
        }
    }

    /// Resolves when the database must not be used any more. A server that is away can come back.
    pub(super) async fn failure(&self) {
        match self {
            Database::Sqlite(file) => file.writer_ended().await,
            Database::Postgres(_) => std::future::pending().await,
        }
    }

    /// Completes the changes that were accepted. Later ones fail.
    pub(super) async fn close(&self) {
        match self {
            Database::Sqlite(file) => file.close().await,
            Database::Postgres(database) => database.close().await,
        }
    }
}

impl Statement {
    pub(super) async fn fetch_all(self, database: &Database) -> Result<Vec<SqlRow>, DirectoryError> {
        database.fetch(self).await
    }

    pub(super) async fn fetch_optional(self, database: &Database) -> Result<Option<SqlRow>, DirectoryError> {
        Ok(database.fetch(self).await?.into_iter().next())
    }

    pub(super) async fn fetch_one(self, database: &Database) -> Result<SqlRow, DirectoryError> {
        self.fetch_optional(database).await?.ok_or_else(|| unavailable("the statement returned no row"))
    }

    /// The result of `SELECT count(*)`.
    pub(super) async fn count(self, database: &Database) -> Result<usize, DirectoryError> {
        let count: i64 = self.fetch_one(database).await?.get(0);
        Ok(usize::try_from(count).unwrap_or(0))
    }
}
