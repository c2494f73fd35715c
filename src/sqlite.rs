//! A SQLite file as the store and the directory use it: one writer with group commit, several readers.
//!
//! WAL with `synchronous = FULL`: a commit is on disk before it is acknowledged, so neither SIGKILL nor a power failure
//! undoes it. Group commit keeps that affordable: changes that arrive while the disk is busy share the next sync.

#![expect(clippy::disallowed_methods, reason = "a home of SQL")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Sqlite, SqliteConnection, SqlitePool};

mod checksum;

mod copy;

mod identity;

mod structure;

mod wal;

mod writer;

pub(crate) use copy::copy;
use identity::FileIdentity;
use structure::Examination;
use writer::Writer;

/// How long a connection waits for another process that holds the file's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a read waits for a free connection.
const READER_TIMEOUT: Duration = Duration::from_secs(2);

/// What each connection caches of a file: 512 KiB, in the unit of the pragma. The kernel caches the file as well, and all
/// connections of both files keep what they have cached.
const PAGE_CACHE: &str = "-512";

/// Connections that read at the same time.
const READERS: u32 = 4;

/// Why a SQLite file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SqliteFileError {
    /// It cannot be read or written now; nothing was changed.
    #[error("the file cannot be used now")]
    Unavailable(#[source] crate::error::Cause),
    /// Its contents are not what was written.
    #[error("the file is damaged")]
    Damaged(#[source] crate::error::Cause),
}

/// An open SQLite file.
pub(crate) struct SqliteFile {
    path: PathBuf,
    readers: SqlitePool,
    writer: Writer,
    examination: Arc<Examination>,
}

impl SqliteFile {
    /// Opens or creates the file; `prepare` brings its schema up to date. A damaged file is an error: replacing it with
    /// an empty one would forget every logout. What a clean stop left is examined after it was opened; damage that was
    /// there before then ends [`SqliteFile::writer_ended`].
    pub(crate) async fn open<P>(path: &Path, prepare: P) -> Result<Self, SqliteFileError>
    where
        P: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(), SqliteFileError>>,
    {
        wal::check(path)?;
        let is_as_left = structure::is_as_left(path).await;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("cache_size", PAGE_CACHE)
            .disable_statement_logging();
        let mut connection = options.clone().create_if_missing(true).connect().await.map_err(open_error)?;
        if !is_as_left {
            structure::examine(&mut connection).await?;
        }
        prepare(&mut connection).await?;
        // A new log holds nothing of an earlier crash, which a later check could take for damage. Another process that
        // reads the file may prevent it; then the log stays as it is.
        if let Err(error) = writer::empty_wal(&mut connection).await {
            tracing::debug!(file = %path.display(), %error, "the write-ahead log was not emptied");
        }
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(READER_TIMEOUT)
            .connect_with(options.clone().read_only(true))
            .await
            .map_err(unavailable)?;
        let identity = FileIdentity::of(path).map_err(unavailable)?;
        let examination = Arc::<Examination>::default();
        if is_as_left {
            examination.start(path.to_owned(), options.clone().read_only(true));
        }
        let writer = Writer::start(connection, options, identity);
        Ok(Self { path: path.to_owned(), readers, writer, examination })
    }

    /// Connections for reading. They see every change that was acknowledged before.
    pub(crate) fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    /// Executes one statement. Returns how many rows it changed, once that is durable.
    pub(crate) async fn execute(
        &self,
        statement: Query<'static, Sqlite, SqliteArguments>,
    ) -> Result<u64, SqliteFileError> {
        self.write(move |connection| {
            async move { statement.execute(connection).await.map(|done| done.rows_affected()) }.boxed()
        })
        .await
    }

    /// Executes several statements as one change: all of them or none. Returns the result once it is durable.
    pub(crate) async fn write<T, F>(&self, change: F) -> Result<T, SqliteFileError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
    {
        self.writer.run(change).await
    }

    /// Reads from the file and writes to it: only a write detects a full disk.
    pub(crate) async fn probe(&self) -> Result<(), SqliteFileError> {
        let version: i64 =
            sqlx::query_scalar("PRAGMA user_version").fetch_one(&self.readers).await.map_err(unavailable)?;
        // A pragma takes no parameters. The value is a number and stays what it is.
        let unchanged = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {version}"));
        self.execute(sqlx::query(unchanged)).await.map(|_| ())
    }

    /// Resolves when the file must not be used any more: the writer has died, the file was closed or it is damaged.
    pub(crate) async fn writer_ended(&self) {
        tokio::select! {
            () = self.writer.ended() => {}
            () = self.examination.found_damage() => {}
        }
    }

    /// Completes the waiting changes and moves the write-ahead log into the file, which is then complete by itself.
    /// Later writes fail.
    pub(crate) async fn close(&self) {
        self.examination.end().await;
        self.readers.close().await;
        self.writer.close().await;
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || checksum::write(&path)).await;
        if let Ok(Err(error)) = written {
            tracing::debug!(file = %self.path.display(), %error, "no checksum was written");
        }
    }
}

/// A file that cannot be opened is damaged if SQLite says so.
fn open_error(error: sqlx::Error) -> SqliteFileError {
    const CORRUPT: &str = "11";
    const NOT_A_DATABASE: &str = "26";
    match error.as_database_error().and_then(|error| error.code()).as_deref() {
        Some(CORRUPT | NOT_A_DATABASE) => damaged(error),
        _ => unavailable(error),
    }
}

fn unavailable(cause: impl Into<crate::error::Cause>) -> SqliteFileError {
    SqliteFileError::Unavailable(cause.into())
}

fn damaged(cause: impl Into<crate::error::Cause>) -> SqliteFileError {
    SqliteFileError::Damaged(cause.into())
}

#[cfg(test)]
mod tests;
