//! The writer task: executes changes one after another and commits waiting ones together (group commit).

use futures::future::BoxFuture;
use sqlx::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use super::unavailable;
use crate::store::StoreError;

/// Most changes per commit; bounds how long the first of them waits.
const MAX_BATCH: usize = 256;

/// Queue length; when the queue is full, callers wait to enqueue.
const QUEUE_CAPACITY: usize = 4096;

/// A change: runs inside the open transaction and returns the callback that reports the result after the commit.
type WriteJob = Box<dyn for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, (SavepointEnd, ReportResult)> + Send>;
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

/// A handle to the writer task.
pub(super) struct Writer {
    jobs: mpsc::Sender<WriteJob>,
}

impl Writer {
    /// Starts the writer task, which owns the connection and ends when the last handle is dropped.
    pub(super) fn start(connection: SqliteConnection) -> Self {
        let (jobs, waiting) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(write(connection, waiting));
        Self { jobs }
    }

    /// Executes a change and returns its result once it is durable.
    pub(super) async fn run<T, F>(&self, change: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel::<Result<T, StoreError>>();
        let job: WriteJob = Box::new(move |connection| {
            Box::pin(async move {
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
                (end, report)
            })
        });
        self.jobs.send(job).await.map_err(|_| unavailable("the write was not executed"))?;
        answered.await.map_err(|_| unavailable("the write was not executed"))?
    }
}

async fn write(mut connection: SqliteConnection, mut waiting: mpsc::Receiver<WriteJob>) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while waiting.recv_many(&mut batch, MAX_BATCH).await > 0 {
        if let Err(error) = execute(&mut connection, "BEGIN IMMEDIATE").await {
            tracing::error!(error = %error, "the store cannot begin a transaction");
            // Dropping the jobs closes their channels, which tells the callers.
            batch.clear();
            continue;
        }
        let mut reports = Vec::with_capacity(batch.len());
        let mut transaction = Ok(());
        for job in batch.drain(..) {
            transaction = run_one(&mut connection, job, &mut reports).await;
            if transaction.is_err() {
                // SQLite may have rolled the whole transaction back: further statements would begin and commit
                // transactions of their own. Dropping the remaining jobs closes their channels.
                break;
            }
        }
        let committed = match transaction {
            Ok(()) => execute(&mut connection, "COMMIT").await,
            fault => fault,
        };
        if let Err(error) = &committed {
            tracing::error!(error = %error, "the store could not commit");
            // The next batch must not start inside a failed transaction.
            let _ = execute(&mut connection, "ROLLBACK").await;
        }
        for report in reports {
            report(if committed.is_ok() { CommitOutcome::Committed } else { CommitOutcome::Failed });
        }
    }
}

/// Executes one change in a savepoint, so that its failure does not affect the rest of the batch.
async fn run_one(
    connection: &mut SqliteConnection,
    job: WriteJob,
    reports: &mut Vec<ReportResult>,
) -> Result<(), sqlx::Error> {
    execute(connection, "SAVEPOINT change").await?;
    let (end, report) = job(connection).await;
    reports.push(report);
    match end {
        SavepointEnd::Release => execute(connection, "RELEASE change").await,
        SavepointEnd::RollBack => execute(connection, "ROLLBACK TO change; RELEASE change").await,
    }
}

async fn execute(connection: &mut SqliteConnection, statement: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(statement).execute(connection).await.map(|_| ())
}
