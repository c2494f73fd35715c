//! Statements on a PostgreSQL server.
//!
//! Every operation is bounded in time, here and at the server. It runs in a task of its own, so that a client that goes
//! away does not cancel a change halfway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres};
use tokio::sync::Mutex;

use super::row::SqlRow;
use super::statement::{Batch, Order, Reuse, SqlValue, Statement};
use super::unavailable;
use crate::directory::{DirectoryError, DurabilityRisk};
use crate::domain::secret::random_below;
use crate::domain::write::WriteOutcome;
use crate::error::{Cause, chain};
use connections::{Admission, Connections, Origin};

mod connections;

mod schema;

mod settings;

pub use settings::PostgresSettings;

/// How often an operation is tried that the server gave up in favour of another one.
const ATTEMPTS: u32 = 5;

/// How long the result of a readiness check is reused.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// A database on a PostgreSQL server.
pub(super) struct PostgresDatabase {
    connections: Arc<Connections>,
    timeout: Duration,
    probed: Mutex<Option<Probe>>,
}

/// The result of a readiness check; `None` is a success.
struct Probe {
    at: Instant,
    failure: Option<String>,
}

/// What an operation does.
#[derive(Clone)]
enum SqlOperation {
    Read(Statement),
    Write(Statement),
    Commit(Batch),
}

/// What an operation returned, and whether it changed rows.
struct Done {
    rows: Vec<PgRow>,
    outcome: WriteOutcome,
}

impl PostgresDatabase {
    /// Connects, runs the migrations and opens the pool.
    pub(super) async fn open(settings: PostgresSettings) -> Result<Self, DirectoryError> {
        schema::prepare(&settings).await?;
        let connect_timeout = settings.timeout / 2;
        let connections =
            Connections::new(settings.for_operations(), settings.url.to_string(), settings.pool, connect_timeout);
        Ok(Self { connections: Arc::new(connections), timeout: settings.timeout, probed: Mutex::default() })
    }

    pub(super) async fn fetch(&self, statement: Statement) -> Result<Vec<SqlRow>, DirectoryError> {
        let done = self.run(SqlOperation::Read(statement)).await?;
        Ok(done.rows.into_iter().map(SqlRow::Postgres).collect())
    }

    pub(super) async fn execute_returning(&self, statement: Statement) -> Result<SqlRow, DirectoryError> {
        let done = self.run(SqlOperation::Write(statement)).await?;
        let row = done.rows.into_iter().next();
        row.map(SqlRow::Postgres).ok_or_else(|| unavailable("the statement returned no row"))
    }

    pub(super) async fn execute(&self, statement: Statement) -> Result<WriteOutcome, DirectoryError> {
        self.commit(Batch::new(Order::Concurrent).guard(statement)).await
    }

    pub(super) async fn commit(&self, batch: Batch) -> Result<WriteOutcome, DirectoryError> {
        Ok(self.run(SqlOperation::Commit(batch)).await?.outcome)
    }

    /// Writes a row, at most once in [`PROBE_INTERVAL`] however many ask.
    pub(super) async fn probe(&self) -> Result<(), DirectoryError> {
        const PROBE: &str = "UPDATE write_probe SET checked_at = checked_at + 1 WHERE id = 1";
        let mut probed = self.probed.lock().await;
        let is_recent = |probe: &&Probe| probe.at.elapsed() < PROBE_INTERVAL;
        let failure = match probed.as_ref().filter(is_recent) {
            Some(probe) => probe.failure.clone(),
            None => {
                let write = Batch::new(Order::Concurrent).guard(Statement::new(PROBE));
                let written = self.run_as(SqlOperation::Commit(write), Admission::First).await;
                let failure = match written.map(|done| done.outcome) {
                    Ok(WriteOutcome::Applied) => None,
                    Ok(WriteOutcome::Conflict) => Some("the row of the readiness check is gone".to_owned()),
                    Err(error) => Some(chain(&error)),
                };
                *probed = Some(Probe { at: Instant::now(), failure: failure.clone() });
                failure
            }
        };
        failure.map_or(Ok(()), |failure| Err(unavailable(failure)))
    }

    pub(super) async fn durability_risks(&self) -> Result<Vec<DurabilityRisk>, DirectoryError> {
        const OFF: &str = "SELECT CAST(name AS TEXT) FROM pg_settings
             WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') AND setting = 'off' ORDER BY name";
        let risk = |row: &SqlRow| match row.get::<&str>(0) {
            "fsync" => DurabilityRisk::NoSync,
            "synchronous_commit" => DurabilityRisk::AsynchronousCommit,
            _ => DurabilityRisk::TornPages,
        };
        Ok(self.fetch(Statement::new(OFF)).await?.iter().map(risk).collect())
    }

    pub(super) async fn close(&self) {
        self.connections.close(self.timeout).await;
    }

    async fn run(&self, operation: SqlOperation) -> Result<Done, DirectoryError> {
        self.run_as(operation, Admission::IfThereIsRoom).await
    }

    async fn run_as(&self, operation: SqlOperation, admission: Admission) -> Result<Done, DirectoryError> {
        let connections = self.connections.clone();
        let timeout = self.timeout;
        let task = tokio::spawn(async move {
            match tokio::time::timeout(timeout, attempt(&connections, &operation, admission)).await {
                Ok(done) => done,
                Err(_) => {
                    connections.discard_idle();
                    Err("the database did not answer in time".into())
                }
            }
        });
        task.await.map_err(unavailable)?.map_err(unavailable)
    }
}

/// Runs an operation, again if that cannot do harm: the server rolled it back for another one's sake, or a read found
/// a connection that the server had closed.
async fn attempt(connections: &Connections, operation: &SqlOperation, admission: Admission) -> Result<Done, Cause> {
    let mut failures = 0;
    loop {
        let mut lease = connections.acquire(admission).await?;
        let error = match operation.execute(&mut lease.connection).await {
            Ok(done) => {
                lease.give_back();
                return Ok(done);
            }
            Err(error) => error,
        };
        failures += 1;
        let was_idle = lease.origin == Origin::Idle;
        drop(lease);
        let failure = Failure::of(&error);
        if failure == Failure::Connection {
            connections.discard_idle();
        }
        let again = match failure {
            Failure::RolledBack => true,
            Failure::Connection => was_idle && matches!(operation, SqlOperation::Read(_)),
            Failure::Other => false,
        };
        if !again || failures >= ATTEMPTS {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(u64::from(random_below(10 * failures)))).await;
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// Serialization failure or deadlock: nothing of it took effect.
    RolledBack,
    /// The connection broke or the server is going down: it may have taken effect or not.
    Connection,
    Other,
}

impl Failure {
    fn of(error: &sqlx::Error) -> Self {
        const SERIALIZATION_FAILURE: &str = "40001";
        const DEADLOCK_DETECTED: &str = "40P01";
        let Some(error) = error.as_database_error() else { return Failure::Connection };
        match error.code().as_deref() {
            Some(SERIALIZATION_FAILURE | DEADLOCK_DETECTED) => Failure::RolledBack,
            // Connection exceptions, and what a server says that shuts down, crashed or starts.
            Some(code) if code.starts_with("08") || code.starts_with("57P") => Failure::Connection,
            _ => Failure::Other,
        }
    }
}

impl SqlOperation {
    async fn execute(&self, connection: &mut PgConnection) -> Result<Done, sqlx::Error> {
        match self {
            SqlOperation::Read(statement) | SqlOperation::Write(statement) => {
                let rows = query(statement).fetch_all(connection).await?;
                Ok(Done { rows, outcome: WriteOutcome::Applied })
            }
            SqlOperation::Commit(batch) => {
                Ok(Done { rows: Vec::new(), outcome: execute_batch(connection, batch).await? })
            }
        }
    }
}

async fn execute_batch(connection: &mut PgConnection, batch: &Batch) -> Result<WriteOutcome, sqlx::Error> {
    if let (Order::Concurrent, [only]) = (batch.order, batch.steps.as_slice()) {
        let changed = query(only.statement()).execute(connection).await?.rows_affected();
        return Ok(if only.ends_batch(changed) { WriteOutcome::Conflict } else { WriteOutcome::Applied });
    }
    let begin = match batch.order {
        Order::Concurrent => "BEGIN ISOLATION LEVEL READ COMMITTED",
        // Each statement after the lock sees what was committed before the lock was free.
        Order::Exclusive => "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(1684370283, 2)",
    };
    sqlx::raw_sql(begin).execute(&mut *connection).await?;
    let mut outcome = WriteOutcome::Applied;
    for step in &batch.steps {
        let changed = query(step.statement()).execute(&mut *connection).await?.rows_affected();
        if step.ends_batch(changed) {
            outcome = WriteOutcome::Conflict;
            break;
        }
    }
    sqlx::raw_sql("COMMIT").execute(connection).await?;
    Ok(outcome)
}

fn query(statement: &Statement) -> Query<'static, Postgres, PgArguments> {
    let query = sqlx::query(statement.text.clone()).persistent(statement.reuse == Reuse::Prepared);
    statement.values.iter().fold(query, |query, value| match value {
        SqlValue::Text(text) => query.bind(text.as_deref().map(without_nul)),
        SqlValue::Integer(number) => query.bind(*number),
    })
}

/// PostgreSQL stores no NUL in text. Nothing that is valid contains one, so a lookup with the replacement finds nothing.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
