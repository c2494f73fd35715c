//! The embedded store: sessions and tickets in a SQLite file, claims in memory. How the file is written is left to
//! `sqlite`.

#![expect(clippy::disallowed_methods, reason = "a home of SQL")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use tokio::sync::broadcast;

use super::feed_state::FeedState;
use super::fleet::FleetStore;
use super::in_memory_claims::InMemoryClaims;
use super::once::OnceStore;
use super::rate_leases::ledger::LeaseLedger;
use super::socket_slots::SocketSlots;
use super::sole_gateway::SoleGateway;
use super::work_leases::WorkLeases;
use super::{
    Change, ChangeEvent, KeyInUse, SessionCursor, SessionIdPage, SessionPage, SessionStore, Store, StoreError,
};
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::gateway_status::{GatewayId, GatewayStatus};
use crate::domain::link::PlatformAccount;
use crate::domain::session::{EndCause, KeyId, Session, SessionId, Version};
use crate::domain::write::WriteOutcome;
use crate::sqlite::SqliteFile;

mod fleet;

mod schema;

mod sweep;

mod tickets;

mod transfer;

use fleet::OwnStatus;
use schema::{key_id, platform_account};

/// Inserts only for existing sessions, because the row is deleted with its session. A time after `$2`, the current one, was
/// written before the clock was set back.
const NOTE_SEEN: &str = "INSERT INTO seen
     SELECT sessions.id, json_extract(noted.value, '$[1]') FROM json_each($1) AS noted
     CROSS JOIN sessions WHERE sessions.id = json_extract(noted.value, '$[0]')
     ON CONFLICT (id) DO UPDATE SET at = CASE WHEN at > $2 THEN excluded.at ELSE max(at, excluded.at) END";

/// How many rows of `seen` are written in one change, so that a logout does not wait behind ten thousand of them.
const NOTE_BATCH: usize = 500;

/// How many changes a receiver of the change feed may lag.
const FEED_CAPACITY: usize = 4096;

/// Sessions and tickets in a SQLite file.
pub struct EmbeddedStore {
    file: SqliteFile,
    feed: broadcast::Sender<ChangeEvent>,
    feed_state: FeedState,
    own_status: OwnStatus,
    claims: Arc<InMemoryClaims>,
    clock: Clock,
}

impl EmbeddedStore {
    /// Opens or creates the file. A damaged file is an error: replacing it with an empty one would forget every logout.
    pub async fn open(path: &Path, clock: Clock) -> Result<Self, StoreError> {
        let file = SqliteFile::open(path, |connection| schema::prepare(connection).boxed()).await?;
        let (feed, _) = broadcast::channel(FEED_CAPACITY);
        let claims = Arc::new(InMemoryClaims::new(clock.clone()));
        let (feed_state, own_status) = (FeedState::within_process(), OwnStatus::default());
        Ok(Self { file, feed, feed_state, own_status, claims, clock })
    }

    /// A store whose change feed can fall behind, for tests of what depends on it.
    #[cfg(test)]
    pub(crate) fn with_feed(self, feed_state: FeedState) -> Self {
        Self { feed_state, ..self }
    }

    fn publish(&self, change: Change) {
        // Sending fails only without a receiver, and then there is nothing to update.
        let _ = self.feed.send(ChangeEvent { at: self.clock.uptime(), change });
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

    async fn revoke_all(&self, ids: &[SessionId], lifetime: Duration, cause: EndCause) -> Result<(), StoreError> {
        const REVOKE: [&str; 3] = [
            "DELETE FROM sessions WHERE id IN (SELECT value FROM json_each($1))",
            "DELETE FROM seen WHERE id IN (SELECT value FROM json_each($1))",
            "INSERT INTO denied SELECT value, $2 FROM json_each($1) WHERE true
                 ON CONFLICT (id) DO UPDATE SET until = max(until, excluded.until)",
        ];
        let until = self.clock.now().plus(lifetime).millis();
        let list = write(&ids)?;
        self.file
            .write(move |connection| {
                async move {
                    for query in REVOKE {
                        sqlx::query(query).bind(list.as_str()).bind(until).execute(&mut *connection).await?;
                    }
                    Ok(())
                }
                .boxed()
            })
            .await?;
        for id in ids {
            self.publish(Change::SessionEnded { id: id.clone(), cause });
        }
        Ok(())
    }

    async fn shorten_all(&self, ids: &[SessionId], end: Timestamp) -> Result<Vec<Session>, StoreError> {
        const SHORTEN: &str = "UPDATE sessions SET version = version + 1, expires_at = $2,
                 body = json_set(body, '$.version', version + 1, '$.expires_at', $2)
             WHERE id IN (SELECT value FROM json_each($1)) AND expires_at > $2 RETURNING body";
        let shorten = sqlx::query(SHORTEN).bind(write(&ids)?).bind(end.millis());
        let rows = self.file.write(move |connection| shorten.fetch_all(connection).boxed()).await?;
        let shortened = sessions_of(&rows)?;
        for session in &shortened {
            self.publish(Change::SessionChanged(Box::new(session.clone())));
        }
        Ok(shortened)
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
        sessions_of(&rows)
    }

    async fn last_seen(&self, ids: &[SessionId]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        const LAST_SEEN: &str = "SELECT seen.at FROM json_each($1) AS asked LEFT JOIN seen ON seen.id = asked.value
             ORDER BY asked.key";
        let times: Vec<Option<i64>> = sqlx::query_scalar(LAST_SEEN)
            .bind(write(&ids)?)
            .fetch_all(self.file.readers())
            .await
            .map_err(unavailable)?;
        Ok(times.into_iter().map(|at| at.map(Timestamp::from_millis)).collect())
    }

    async fn note_seen(&self, seen: &[(SessionId, Timestamp)]) -> Result<(), StoreError> {
        for batch in seen.chunks(NOTE_BATCH) {
            let note = sqlx::query(NOTE_SEEN).bind(write(&batch)?).bind(self.clock.now().millis());
            self.file.execute(note).await?;
        }
        Ok(())
    }

    async fn count(&self) -> Result<u64, StoreError> {
        // Without a condition SQLite counts the cells of an index page by page: some 30 ms for a million.
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM sessions")
            .fetch_one(self.file.readers())
            .await
            .map_err(unavailable)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn newest(&self, limit: usize) -> Result<Vec<Session>, StoreError> {
        let rows = sqlx::query("SELECT body FROM sessions WHERE expires_at > $1 ORDER BY issued_at DESC LIMIT $2")
            .bind(self.clock.now().millis())
            .bind(rows_of(limit))
            .fetch_all(self.file.readers())
            .await
            .map_err(unavailable)?;
        sessions_of(&rows)
    }

    async fn page(&self, after: Option<&SessionCursor>, limit: usize) -> Result<SessionPage, StoreError> {
        // Expired records count too: a page must not read all of them in search of a live one.
        const PAGE: &str = "SELECT body, corp_id, employee_id, id, expires_at FROM sessions
             WHERE (corp_id, employee_id, id) > ($1, $2, $3) ORDER BY corp_id, employee_id, id LIMIT $4";
        let (corp_id, employee_id, id): (String, String, String) =
            after.map(|after| parse(after.as_str())).transpose()?.unwrap_or_default();
        let rows = sqlx::query(PAGE)
            .bind(corp_id)
            .bind(employee_id)
            .bind(id)
            .bind(rows_of(limit))
            .fetch_all(self.file.readers())
            .await
            .map_err(unavailable)?;
        let now = self.clock.now().millis();
        let live = rows.iter().filter(|row| row.get::<i64, _>(4) > now);
        let sessions = live.filter_map(decode_or_warn).collect();
        let next = rows.last().filter(|_| rows.len() == limit);
        let next = next
            .map(|row| write(&(row.get::<&str, _>(1), row.get::<&str, _>(2), row.get::<&str, _>(3))))
            .transpose()?;
        Ok(SessionPage { sessions, next: next.map(SessionCursor::new) })
    }

    async fn keys(&self) -> Result<Vec<KeyInUse>, StoreError> {
        // One step of the index per key, however many sessions it has.
        const UNKNOWN: &str = concat!("SELECT id FROM sessions WHERE ", key_id!(), " IS NULL LIMIT 1");
        const NEXT: &str =
            concat!("SELECT ", key_id!(), " FROM sessions WHERE ", key_id!(), " > $1 ORDER BY ", key_id!(), " LIMIT 1");
        let readers = self.file.readers();
        let unknown: Option<String> = sqlx::query_scalar(UNKNOWN).fetch_optional(readers).await.map_err(unavailable)?;
        let in_use = |id| KeyInUse { id, latest: Vec::new() };
        let mut keys: Vec<KeyInUse> = unknown.iter().map(|_| in_use(None)).collect();
        let mut last = String::new();
        while let Some(key) =
            sqlx::query_scalar::<_, String>(NEXT).bind(&last).fetch_optional(readers).await.map_err(unavailable)?
        {
            keys.push(in_use(Some(KeyId::new(key.as_str()))));
            last = key;
        }
        Ok(keys)
    }

    async fn of_key(
        &self,
        key: &KeyInUse,
        end: Timestamp,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionIdPage, StoreError> {
        // In the order of the index, so that no page reads what another has read.
        const OF_KEY: &str = concat!(
            "SELECT id, expires_at FROM sessions WHERE ",
            key_id!(),
            " = $1 AND (expires_at, id) > ($2, $3) ORDER BY expires_at, id LIMIT $4"
        );
        const OF_NONE: &str = concat!(
            "SELECT id, expires_at FROM sessions WHERE ",
            key_id!(),
            " IS NULL AND $1 IS NULL AND (expires_at, id) > ($2, $3) ORDER BY expires_at, id LIMIT $4"
        );
        // Without a cursor after every id that expires at `end`: no text is greater than a blob.
        let place: Option<(i64, String)> = after.map(|after| parse(after.as_str())).transpose()?;
        let key = key.id.as_ref();
        let query = sqlx::query(if key.is_some() { OF_KEY } else { OF_NONE }).bind(key.map(KeyId::as_str));
        let query = match place {
            Some((expires_at, id)) => query.bind(expires_at).bind(id),
            None => query.bind(end.millis()).bind(Vec::<u8>::new()),
        };
        let rows = query.bind(rows_of(limit)).fetch_all(self.file.readers()).await.map_err(unavailable)?;
        let next = rows.last().filter(|_| rows.len() == limit);
        let next = next.map(|row| write(&(row.get::<i64, _>(1), row.get::<&str, _>(0)))).transpose()?;
        let ids = rows.iter().map(|row| SessionId::new(row.get::<&str, _>(0))).collect();
        Ok(SessionIdPage { ids, next: next.map(SessionCursor::new) })
    }

    async fn of_platform_account(&self, account: &PlatformAccount) -> Result<Vec<Session>, StoreError> {
        const OF_ACCOUNT: &str =
            concat!("SELECT body FROM sessions WHERE ", platform_account!(), " = $1 AND expires_at > $2");
        let rows = sqlx::query(OF_ACCOUNT)
            .bind(write(account)?)
            .bind(self.clock.now().millis())
            .fetch_all(self.file.readers())
            .await
            .map_err(unavailable)?;
        sessions_of(&rows)
    }
}

#[async_trait]
impl FleetStore for EmbeddedStore {
    async fn announce(&self, status: &GatewayStatus, _lifetime: Duration) -> Result<(), StoreError> {
        self.own_status.set(status);
        Ok(())
    }

    async fn withdraw(&self, id: &GatewayId) -> Result<(), StoreError> {
        self.own_status.clear(id);
        Ok(())
    }

    async fn gateways(&self) -> Result<Vec<GatewayStatus>, StoreError> {
        Ok(self.own_status.get().into_iter().collect())
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn changes(&self) -> broadcast::Receiver<ChangeEvent> {
        self.feed.subscribe()
    }

    fn feed(&self) -> &FeedState {
        &self.feed_state
    }

    fn claims(&self) -> Arc<dyn OnceStore> {
        self.claims.clone()
    }

    fn leases(&self) -> Arc<dyn WorkLeases> {
        Arc::new(SoleGateway)
    }

    fn socket_slots(&self) -> Option<Arc<dyn SocketSlots>> {
        None
    }

    fn rate_ledger(&self) -> Option<Arc<dyn LeaseLedger>> {
        None
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(self.file.probe().await?)
    }

    async fn failure(&self) {
        self.file.writer_ended().await;
    }

    async fn close(&self) {
        self.file.close().await;
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        self.claims.sweep();
        sweep::run(&self.file, self.clock.now()).await
    }
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

fn rows_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The sessions whose bodies are the first column.
fn sessions_of(rows: &[SqliteRow]) -> Result<Vec<Session>, StoreError> {
    rows.iter().map(|row| parse(row.get::<&str, _>(0))).collect()
}

fn decode_or_warn(row: &SqliteRow) -> Option<Session> {
    match parse(row.get::<&str, _>(0)) {
        Ok(session) => Some(session),
        Err(error) => {
            tracing::warn!(session.id = row.get::<&str, _>(3), %error, "a session cannot be read; nobody can use it");
            None
        }
    }
}
