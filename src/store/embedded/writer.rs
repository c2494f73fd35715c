//! The one writer: takes changes from everybody and commits those that wait together.

use futures::future::BoxFuture;
use sqlx::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use super::unavailable;
use crate::store::StoreError;

/// Most changes in one commit; bounds how long the first of them waits.
const BATCH: usize = 256;

/// Most changes that wait; beyond that callers wait for a place, and the gateway's own timeouts bound them.
const QUEUE: usize = 4096;

/// Runs inside the open transaction, and gives back how to tell the caller once it is durable.
type Job = Box<dyn for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, (Verdict, Report)> + Send>;
type Report = Box<dyn FnOnce(Committed) + Send>;

/// Whether a change's own statements went through.
enum Verdict {
    Keep,
    RollBack,
}

/// Whether the commit that carried a change went through.
#[derive(Clone, Copy)]
enum Committed {
    Yes,
    No,
}

/// Handle to the writer's task.
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
}

impl Writer {
    /// Gives the connection to a task of its own. The task ends when the last handle is gone.
    pub(super) fn start(connection: SqliteConnection) -> Self {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(write(connection, waiting));
        Self { jobs }
    }

    /// Runs a change and returns its result once it is durable.
    pub(super) async fn run<T, F>(&self, change: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel::<Result<T, StoreError>>();
        let job: Job = Box::new(move |connection| {
            Box::pin(async move {
                let result = change(connection).await;
                let verdict = if result.is_ok() { Verdict::Keep } else { Verdict::RollBack };
                let report: Report = Box::new(move |committed| {
                    let told = match (result, committed) {
                        (Ok(value), Committed::Yes) => Ok(value),
                        (Err(error), _) => Err(unavailable(error)),
                        (Ok(_), Committed::No) => Err(unavailable("the commit failed")),
                    };
                    // The caller may have gone away; the change stands all the same.
                    let _ = answer.send(told);
                });
                (verdict, report)
            })
        });
        self.jobs.send(job).await.map_err(|_| unavailable("the change was not made"))?;
        answered.await.map_err(|_| unavailable("the change was not made"))?
    }
}

async fn write(mut connection: SqliteConnection, mut waiting: mpsc::Receiver<Job>) {
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        if let Err(error) = execute(&mut connection, "BEGIN IMMEDIATE").await {
            tracing::error!(error = %error, "the store cannot be written");
            // Callers learn that their change was not made by the end of their channel.
            batch.clear();
            continue;
        }
        let mut reports = Vec::with_capacity(batch.len());
        let mut whole = Ok(());
        for job in batch.drain(..) {
            whole = run_one(&mut connection, job, &mut reports).await;
            if whole.is_err() {
                // The database may have rolled everything back by itself: whatever came now would begin, and commit,
                // a transaction of its own. Those who still wait learn that by the end of their channel.
                break;
            }
        }
        let committed = match whole {
            Ok(()) => execute(&mut connection, "COMMIT").await,
            fault => fault,
        };
        if let Err(error) = &committed {
            tracing::error!(error = %error, "the store could not commit");
            // Whatever state the failure left, the next batch must begin afresh.
            let _ = execute(&mut connection, "ROLLBACK").await;
        }
        for report in reports {
            report(if committed.is_ok() { Committed::Yes } else { Committed::No });
        }
    }
}

/// Runs a change inside the open transaction; it can fail alone without taking its neighbours along.
async fn run_one(connection: &mut SqliteConnection, job: Job, reports: &mut Vec<Report>) -> Result<(), sqlx::Error> {
    execute(connection, "SAVEPOINT change").await?;
    let (verdict, report) = job(connection).await;
    reports.push(report);
    match verdict {
        Verdict::Keep => execute(connection, "RELEASE change").await,
        Verdict::RollBack => execute(connection, "ROLLBACK TO change; RELEASE change").await,
    }
}

async fn execute(connection: &mut SqliteConnection, statement: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(statement).execute(connection).await.map(|_| ())
}
