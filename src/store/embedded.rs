//! The embedded store: sessions and tickets in a SQLite file. How the file is written is left to `sqlite`.

#![expect(clippy::disallowed_methods, reason = "a home of SQL")]

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use sqlx::{Row, SqliteConnection};
use tokio::sync::broadcast;

use super::{Change, ChangeEvent, SessionStore, Store, StoreError, TicketStore};
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{EndCause, Session, SessionId, Version};
use crate::domain::ticket::{ScanId, Ticket, TicketId};
use crate::domain::write::WriteOutcome;
use crate::sqlite::{SqliteFile, SqliteFileError};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS sessions (
        id TEXT PRIMARY KEY, corp_id TEXT NOT NULL, employee_id TEXT NOT NULL,
        version INTEGER NOT NULL, issued_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, body TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS sessions_of_employee ON sessions (corp_id, employee_id);
    CREATE INDEX IF NOT EXISTS sessions_by_end ON sessions (expires_at);
    CREATE TABLE IF NOT EXISTS denied (id TEXT PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS tickets (
        id TEXT PRIMARY KEY, scan_id TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL, expires_at INTEGER NOT NULL, body TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS tickets_by_end ON tickets (expires_at);
    PRAGMA user_version = 1;
";

/// Inserts only for existing sessions, because the row is deleted with its session.
const NOTE_SEEN: &str = "INSERT INTO seen SELECT id, $2 FROM sessions WHERE id = $1
     ON CONFLICT (id) DO UPDATE SET at = max(at, excluded.at)";

/// How many changes a receiver of the change feed may lag.
const FEED_CAPACITY: usize = 4096;

/// How long a ticket is kept after it expires; longer than the delivery window of a confirmed one.
const TICKET_RETENTION: Duration = Duration::from_secs(120);

/// Sessions and tickets in a SQLite file.
pub struct EmbeddedStore {
    file: SqliteFile,
    feed: broadcast::Sender<ChangeEvent>,
    clock: Clock,
}

impl EmbeddedStore {
    /// Opens or creates the file. A damaged file is an error: replacing it with an empty one would forget every logout.
    pub async fn open(path: &Path, clock: Clock) -> Result<Self, StoreError> {
        let file = SqliteFile::open(path, |connection| prepare(connection).boxed()).await?;
        let (feed, _) = broadcast::channel(FEED_CAPACITY);
        Ok(Self { file, feed, clock })
    }

    fn publish(&self, change: Change) {
        // Sending fails only without a receiver, and then there is nothing to update.
        let _ = self.feed.send(ChangeEvent { at: self.clock.now(), change });
    }

    /// Replaces a record if it is still at version `seen`.
    async fn update(
        &self,
        query: &'static str,
        id: &str,
        body: String,
        next: Version,
        seen: Version,
        expires_at: Timestamp,
    ) -> Result<WriteOutcome, StoreError> {
        let change = sqlx::query(query).bind(next.0).bind(body).bind(id).bind(seen.0).bind(expires_at.millis());
        let changed = self.file.execute(change).await?;
        Ok(if changed == 0 { WriteOutcome::Conflict } else { WriteOutcome::Applied })
    }

    async fn ticket_where(&self, query: &'static str, key: &str) -> Result<Option<Ticket>, StoreError> {
        let row = sqlx::query(query).bind(key).fetch_optional(self.file.readers()).await.map_err(unavailable)?;
        row.map(|row| parse(row.get::<&str, _>(0))).transpose()
    }
}

#[async_trait]
impl SessionStore for EmbeddedStore {
    async fn create(&self, session: &Session) -> Result<(), StoreError> {
        let body = write(session)?;
        let insert = sqlx::query("INSERT INTO sessions VALUES ($1, $2, $3, $4, $5, $6, $7)")
            .bind(session.id.as_str())
            .bind(session.corp_id.as_str())
            .bind(session.employee_id.as_str())
            .bind(session.version.0)
            .bind(session.issued_at.millis())
            .bind(session.expires_at.millis())
            .bind(body);
        self.file.execute(insert).await?;
        Ok(())
    }

    async fn find(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        const LIVE: &str = "SELECT body FROM sessions WHERE id = $1 AND expires_at > $2
             AND NOT EXISTS (SELECT 1 FROM denied WHERE denied.id = sessions.id)";
        let row = sqlx::query(LIVE)
            .bind(id.as_str())
            .bind(self.clock.now().millis())
            .fetch_optional(self.file.readers())
            .await
            .map_err(unavailable)?;
        row.map(|row| parse(row.get::<&str, _>(0))).transpose()
    }

    async fn replace(&self, session: &Session, seen: Version) -> Result<WriteOutcome, StoreError> {
        const QUERY: &str =
            "UPDATE sessions SET version = $1, body = $2, expires_at = $5 WHERE id = $3 AND version = $4
             AND NOT EXISTS (SELECT 1 FROM denied WHERE denied.id = sessions.id)";
        let body = write(session)?;
        let outcome = self.update(QUERY, session.id.as_str(), body, session.version, seen, session.expires_at).await?;
        if outcome == WriteOutcome::Applied {
            self.publish(Change::SessionChanged(Box::new(session.clone())));
        }
        Ok(outcome)
    }

    async fn revoke(&self, id: &SessionId, lifetime: Duration, cause: EndCause) -> Result<(), StoreError> {
        let until = self.clock.now().plus(lifetime).millis();
        let denied = id.clone();
        self.file
            .write(move |connection| {
                async move {
                    for query in ["DELETE FROM sessions WHERE id = $1", "DELETE FROM seen WHERE id = $1"] {
                        sqlx::query(query).bind(denied.as_str()).execute(&mut *connection).await?;
                    }
                    sqlx::query("INSERT INTO denied VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET until = max(until, excluded.until)")
                        .bind(denied.as_str())
                        .bind(until)
                        .execute(connection)
                        .await
                        .map(|_| ())
                }
                .boxed()
            })
            .await?;
        self.publish(Change::SessionEnded { id: id.clone(), cause });
        Ok(())
    }

    async fn of_employee(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Vec<Session>, StoreError> {
        let rows = sqlx::query(
            "SELECT body FROM sessions WHERE corp_id = $1 AND employee_id = $2 AND expires_at > $3 ORDER BY issued_at DESC",
        )
        .bind(corp_id.as_str())
        .bind(employee_id.as_str())
        .bind(self.clock.now().millis())
        .fetch_all(self.file.readers())
        .await
        .map_err(unavailable)?;
        rows.iter().map(|row| parse(row.get::<&str, _>(0))).collect()
    }

    async fn last_seen(&self, ids: &[SessionId]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let at: Option<i64> = sqlx::query_scalar("SELECT at FROM seen WHERE id = $1")
                .bind(id.as_str())
                .fetch_optional(self.file.readers())
                .await
                .map_err(unavailable)?;
            found.push(at.map(Timestamp::from_millis));
        }
        Ok(found)
    }

    async fn note_seen(&self, seen: &[(SessionId, Timestamp)]) -> Result<(), StoreError> {
        // In batches, so that a logout does not wait behind ten thousand of them.
        for batch in seen.chunks(500) {
            let batch = batch.to_vec();
            self.file
                .write(move |connection| {
                    async move {
                        for (id, at) in batch {
                            sqlx::query(NOTE_SEEN)
                                .bind(id.as_str())
                                .bind(at.millis())
                                .execute(&mut *connection)
                                .await?;
                        }
                        Ok(())
                    }
                    .boxed()
                })
                .await?;
        }
        Ok(())
    }

    async fn all(&self, limit: usize) -> Result<Vec<Session>, StoreError> {
        let rows = sqlx::query("SELECT body FROM sessions WHERE expires_at > $1 ORDER BY issued_at DESC LIMIT $2")
            .bind(self.clock.now().millis())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.file.readers())
            .await
            .map_err(unavailable)?;
        rows.iter().map(|row| parse(row.get::<&str, _>(0))).collect()
    }
}

#[async_trait]
impl TicketStore for EmbeddedStore {
    async fn create_ticket(&self, ticket: &Ticket) -> Result<(), StoreError> {
        let body = write(ticket)?;
        let insert = sqlx::query("INSERT INTO tickets VALUES ($1, $2, $3, $4, $5)")
            .bind(ticket.id.as_str())
            .bind(ticket.scan_id.as_str())
            .bind(ticket.version.0)
            .bind(ticket.expires_at.millis())
            .bind(body);
        self.file.execute(insert).await?;
        Ok(())
    }

    async fn ticket(&self, id: &TicketId) -> Result<Option<Ticket>, StoreError> {
        self.ticket_where("SELECT body FROM tickets WHERE id = $1", id.as_str()).await
    }

    async fn ticket_of_scan(&self, id: &ScanId) -> Result<Option<Ticket>, StoreError> {
        self.ticket_where("SELECT body FROM tickets WHERE scan_id = $1", id.as_str()).await
    }

    async fn advance(&self, ticket: &Ticket, seen: Version) -> Result<WriteOutcome, StoreError> {
        const QUERY: &str =
            "UPDATE tickets SET version = $1, body = $2, expires_at = $5 WHERE id = $3 AND version = $4";
        let body = write(ticket)?;
        let outcome = self.update(QUERY, ticket.id.as_str(), body, ticket.version, seen, ticket.expires_at).await?;
        if outcome == WriteOutcome::Applied {
            self.publish(Change::TicketMoved(ticket.id.clone()));
        }
        Ok(outcome)
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn changes(&self) -> broadcast::Receiver<ChangeEvent> {
        self.feed.subscribe()
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(self.file.probe().await?)
    }

    async fn close(&self) {
        self.file.close().await;
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let old_ticket = now.millis().saturating_sub(i64::try_from(TICKET_RETENTION.as_millis()).unwrap_or(0));
        self.file
            .write(move |connection| {
                async move {
                    for (query, end) in [
                        ("DELETE FROM seen WHERE id IN (SELECT id FROM sessions WHERE expires_at <= $1)", now.millis()),
                        ("DELETE FROM sessions WHERE expires_at <= $1", now.millis()),
                        ("DELETE FROM denied WHERE until <= $1", now.millis()),
                        ("DELETE FROM tickets WHERE expires_at <= $1", old_ticket),
                    ] {
                        sqlx::query(query).bind(end).execute(&mut *connection).await?;
                    }
                    Ok(())
                }
                .boxed()
            })
            .await?;
        Ok(())
    }
}

/// Creates the tables. A file that a newer program has written is refused.
async fn prepare(connection: &mut SqliteConnection) -> Result<(), SqliteFileError> {
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

fn unavailable(cause: impl Into<crate::error::Cause>) -> StoreError {
    StoreError::Unavailable(cause.into())
}

fn damaged(cause: impl Into<crate::error::Cause>) -> StoreError {
    StoreError::Damaged(cause.into())
}

fn write<T: serde::Serialize>(record: &T) -> Result<String, StoreError> {
    serde_json::to_string(record).map_err(damaged)
}

fn parse<T: serde::de::DeserializeOwned>(body: &str) -> Result<T, StoreError> {
    serde_json::from_str(body).map_err(damaged)
}
