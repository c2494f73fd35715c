//! The writer task: executes changes one after another and commits waiting ones together (group commit).
//!
//! A connection whose transaction failed is never used again: SQLite may have rolled the transaction back or not, and a
//! change that was executed in a stuck transaction would be acknowledged and lost.

use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use super::identity::FileIdentity;
use super::{SqliteFileError, unavailable};
use crate::error::Cause;

/// Most changes per commit; bounds how long the first of them waits.
pub(super) const MAX_BATCH: usize = 512;

/// Queue length. A change that does not fit is refused: more would not be written in time.
pub(super) const QUEUE_CAPACITY: usize = 4096;

/// How long a caller waits. A change that was not begun by then is not executed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long closing waits for the disk.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A change: runs inside the open transaction and returns the callback that reports the result after the commit. None
/// if its caller has stopped waiting.
type WriteJob = Box<dyn for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Option<ExecutedJob>> + Send>;
type ExecutedJob = (SavepointEnd, ReportResult);
type ReportResult = Box<dyn FnOnce(CommitOutcome) + Send>;

/// How the savepoint of a change ends.
enum SavepointEnd {
    Release,
    RollBack,
}

/// Whether the transaction of a change was committed.
#[derive(Clone, Copy)]
enum CommitOutcome {
    Committed,
    Failed,
}

enum WriterMessage {
    Write(WriteJob),
    /// Empties the write-ahead log and ends the task.
    Close(oneshot::Sender<()>),
}

/// A handle to the writer task.
pub(super) struct Writer {
    messages: mpsc::Sender<WriterMessage>,
}

impl Writer {
    /// Starts the writer task, which owns the connection and ends when the last handle is dropped.
    pub(super) fn start(connection: SqliteConnection, options: SqliteConnectOptions, identity: FileIdentity) -> Self {
        let (messages, waiting) = mpsc::channel(QUEUE_CAPACITY);
        let writer = WriterTask { connection: Some(connection), options, identity, is_failing: false };
        tokio::spawn(writer.run(waiting));
        Self { messages }
    }

    /// Executes a change and returns its result once it is durable.
    pub(super) async fn run<T, F>(&self, change: F) -> Result<T, SqliteFileError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel::<Result<T, SqliteFileError>>();
        let job: WriteJob = Box::new(move |connection| {
            Box::pin(async move {
                if answer.is_closed() {
                    return None;
                }
                let result = change(connection).await;
                let end = if result.is_ok() { SavepointEnd::Release } else { SavepointEnd::RollBack };
                let report: ReportResult = Box::new(move |committed| {
                    let reported = match (result, committed) {
                        (Ok(value), CommitOutcome::Committed) => Ok(value),
                        (Err(error), _) => Err(unavailable(error)),
                        (Ok(_), CommitOutcome::Failed) => Err(unavailable("the commit failed")),
                    };
                    // The caller may be gone; the change remains committed.
                    let _ = answer.send(reported);
                });
                Some((end, report))
            })
        });
        self.messages.try_send(WriterMessage::Write(job)).map_err(|full| match full {
            mpsc::error::TrySendError::Full(_) => unavailable("too many changes are waiting to be written"),
            mpsc::error::TrySendError::Closed(_) => unavailable("the file is closed"),
        })?;
        match tokio::time::timeout(WRITE_TIMEOUT, answered).await {
            Ok(answer) => answer.map_err(|_| unavailable("the change was not executed"))?,
            Err(_) => Err(unavailable("the disk did not complete the change in time")),
        }
    }

    /// Resolves when the writer task has ended, by a panic or after [`Writer::close`].
    pub(super) async fn ended(&self) {
        self.messages.closed().await;
    }

    /// Completes the waiting changes and empties the write-ahead log. Gives up on a disk that does not answer: what was
    /// acknowledged is durable.
    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        let close = async {
            if self.messages.send(WriterMessage::Close(done)).await.is_ok() {
                let _ = closed.await;
            }
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, close).await.is_err() {
            tracing::warn!("a database file could not be closed in time; the next start completes it");
        }
    }
}

struct WriterTask {
    /// None after a failure, until the file could be opened again.
    connection: Option<SqliteConnection>,
    options: SqliteConnectOptions,
    identity: FileIdentity,
    /// Whether the last commit failed, so that a failure is logged once and not with every change.
    is_failing: bool,
}

impl WriterTask {
    async fn run(mut self, mut waiting: mpsc::Receiver<WriterMessage>) {
        let mut messages = Vec::with_capacity(MAX_BATCH);
        while waiting.recv_many(&mut messages, MAX_BATCH).await > 0 {
            let mut jobs = Vec::with_capacity(messages.len());
            let mut closing = None;
            for message in messages.drain(..) {
                match message {
                    WriterMessage::Write(job) => jobs.push(job),
                    WriterMessage::Close(done) => closing = Some(done),
                }
            }
            if !jobs.is_empty() {
                self.write(jobs).await;
            }
            if let Some(done) = closing {
                self.close().await;
                let _ = done.send(());
                return;
            }
        }
    }

    /// Executes and commits a batch, then tells the callers. Dropping a job without a report tells its caller that it
    /// was not executed.
    async fn write(&mut self, jobs: Vec<WriteJob>) {
        let mut reports = Vec::with_capacity(jobs.len());
        let committed = self.commit(jobs, &mut reports).await;
        let outcome = match committed {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(file = %self.identity.path().display(), "the file can be written again");
                }
                CommitOutcome::Committed
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!(file = %self.identity.path().display(), %error, "the file cannot be written");
                }
                if let Some(failed) = self.connection.take() {
                    let _ = failed.close_hard().await;
                }
                CommitOutcome::Failed
            }
        };
        for report in reports {
            report(outcome);
        }
    }

    async fn commit(&mut self, jobs: Vec<WriteJob>, reports: &mut Vec<ReportResult>) -> Result<(), Cause> {
        let connection = match &mut self.connection {
            Some(connection) => {
                self.identity.check()?;
                connection
            }
            none => {
                self.identity.check_database()?;
                let connection = none.insert(reopen(&self.options).await?);
                self.identity.accept_wal()?;
                connection
            }
        };
        execute(connection, "BEGIN IMMEDIATE").await?;
        for job in jobs {
            run_one(connection, job, reports).await?;
        }
        execute(connection, "COMMIT").await?;
        // Deleted while it was written: nobody will read it again.
        self.identity.check()?;
        Ok(())
    }

    async fn close(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if let Err(error) = empty_wal(&mut connection).await {
            tracing::warn!(
                file = %self.identity.path().display(), %error,
                "the write-ahead log could not be moved into the file; the next start does it"
            );
        }
        let _ = connection.close().await;
    }
}

/// Opens the file again after a failure.
async fn reopen(options: &SqliteConnectOptions) -> Result<SqliteConnection, Cause> {
    let mut connection = options.connect().await?;
    // The log may end in what a failed commit left behind. A new log begins without it.
    empty_wal(&mut connection).await?;
    Ok(connection)
}

/// Moves the write-ahead log into the database file.
pub(super) async fn empty_wal(connection: &mut SqliteConnection) -> Result<(), Cause> {
    let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(connection).await?;
    if row.get::<i64, _>(0) != 0 {
        return Err("another process reads the file".into());
    }
    Ok(())
}

/// Executes one change in a savepoint, so that its failure does not affect the rest of the batch.
async fn run_one(
    connection: &mut SqliteConnection,
    job: WriteJob,
    reports: &mut Vec<ReportResult>,
) -> Result<(), sqlx::Error> {
    execute(connection, "SAVEPOINT change").await?;
    let Some((end, report)) = job(connection).await else { return execute(connection, "RELEASE change").await };
    reports.push(report);
    match end {
        SavepointEnd::Release => execute(connection, "RELEASE change").await,
        SavepointEnd::RollBack => execute(connection, "ROLLBACK TO change; RELEASE change").await,
    }
}

async fn execute(connection: &mut SqliteConnection, statement: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(statement).execute(connection).await.map(|_| ())
}
