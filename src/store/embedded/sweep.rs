//! Removes expired records in batches, so that the writer is never held for long.

use std::time::{Duration, Instant};

use futures::FutureExt;

use crate::domain::clock::Timestamp;
use crate::sqlite::SqliteFile;
use crate::store::StoreError;

/// How many rows one change removes. Each is a write that others wait for: some 10 ms.
const BATCH: i64 = 500;

/// How long a ticket is kept after it expires; longer than the delivery window of a confirmed one.
const TICKET_RETENTION: Duration = Duration::from_secs(120);

/// Removes `seen` with its session: a row of a session that is gone would stay.
const SESSIONS: &[&str] = &[
    "DELETE FROM seen WHERE id IN (SELECT id FROM sessions WHERE expires_at <= $1 ORDER BY expires_at, id LIMIT $2)",
    "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE expires_at <= $1 ORDER BY expires_at, id LIMIT $2)",
];

const DENIED: &[&str] = &["DELETE FROM denied WHERE id IN (SELECT id FROM denied WHERE until <= $1 LIMIT $2)"];

const TICKETS: &[&str] = &["DELETE FROM tickets WHERE id IN (SELECT id FROM tickets WHERE expires_at <= $1 LIMIT $2)"];

pub(super) async fn run(file: &SqliteFile, now: Timestamp) -> Result<(), StoreError> {
    delete(file, SESSIONS, now).await?;
    delete(file, DENIED, now).await?;
    delete(file, TICKETS, now.minus(TICKET_RETENTION)).await
}

/// Runs the statements again and again until the last of them finds no full batch.
async fn delete(file: &SqliteFile, statements: &'static [&'static str], end: Timestamp) -> Result<(), StoreError> {
    loop {
        let started = Instant::now();
        let deleted = file
            .write(move |connection| {
                async move {
                    let mut deleted = 0;
                    for statement in statements {
                        let query = sqlx::query(*statement).bind(end.millis()).bind(BATCH);
                        deleted = query.execute(&mut *connection).await?.rows_affected();
                    }
                    Ok(deleted)
                }
                .boxed()
            })
            .await?;
        if i64::try_from(deleted).is_ok_and(|deleted| deleted < BATCH) {
            return Ok(());
        }
        // Half of the disk's time is left to the others.
        tokio::time::sleep(started.elapsed()).await;
    }
}
