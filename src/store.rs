//! Traits for sessions, the deny list, tickets and the change feed, and the backends that implement them. Which changes
//! a session may see is decided in `sessions`.
//!
//! The traits suit a store that several gateways share: every conditional write names the version that it read, and
//! every change is published on the change feed. `embedded` is a file of one gateway, `redis` is shared.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::link::PlatformAccount;
use crate::domain::partition::Partition;
use crate::domain::session::{EndCause, KeyId, Session, SessionId, Version};
use crate::domain::ticket::{ScanDigest, Ticket, TicketDigest};
use crate::domain::write::WriteOutcome;
use crate::error::{Error, Part};
use crate::sqlite::SqliteFileError;
use feed_state::FeedState;
use fleet::FleetStore;
use once::OnceStore;
use rate_leases::ledger::LeaseLedger;
use socket_slots::SocketSlots;
use transfer::SessionTransfer;
use work_leases::WorkLeases;

mod bounded_table;

pub mod embedded;

pub mod feed_state;

pub mod fleet;

pub mod in_memory_claims;

pub mod once;

pub mod rate_counters;

pub mod rate_leases;

pub mod socket_slots;

pub mod sole_gateway;

pub mod transfer;

pub mod work_leases;

pub mod redis;

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or written. A shared store may have made the change all the same: the answer was lost, or
    /// `store.confirm` did not hold in time. Every change can be repeated.
    #[error("the store is unavailable")]
    Unavailable(#[source] crate::error::Cause),
    /// A record cannot be decoded.
    #[error("a record of the store is damaged")]
    Damaged(#[source] crate::error::Cause),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(cause) => Error::Unavailable { part: Part::Store, cause: Some(cause) },
            StoreError::Damaged(cause) => Error::unexpected(Part::Store, cause),
        }
    }
}

impl From<SqliteFileError> for StoreError {
    fn from(error: SqliteFileError) -> Self {
        match error {
            SqliteFileError::Unavailable(cause) => StoreError::Unavailable(cause),
            SqliteFileError::Damaged(cause) => StoreError::Damaged(cause),
        }
    }
}

/// A change that the session cache, open sockets and long polls must apply.
#[derive(Debug, Clone)]
pub enum Change {
    /// A session was revoked.
    SessionEnded {
        /// The session's id.
        id: SessionId,
        /// Why it was revoked.
        cause: EndCause,
    },
    /// A session record was replaced.
    SessionChanged(Box<Session>),
    /// A ticket changed its state.
    TicketMoved(TicketDigest),
    /// Changes of a partition may have been missed: what is cached or open of its records must be read again.
    Missed(Partition),
    /// Every change that was made before [`ChangeEvent::at`], on any gateway, was sent before this one. A shared store sends
    /// it after each read of its feed, with the time at which the read began; of several reads, the earliest. The task that
    /// applies the changes calls [`FeedState::note_applied`]: the cache is current once they are applied, not once they are read.
    CaughtUp,
    /// The store is read from a server of which nobody has been able to say for `store.outage_grace` that it is still the
    /// primary: what was applied says nothing about other gateways. Requests are refused and what is open is closed until
    /// the next [`Change::CaughtUp`].
    Unconfirmed,
    /// Another server has become the primary of some partitions, or one has lost what it had. What it has not received is
    /// lost: sessions may be as they were before their last changes. Denials that this gateway has received are written again.
    PrimaryChanged,
}

/// A change with the time at which it was published.
#[derive(Debug, Clone)]
pub struct ChangeEvent {
    /// When the change was published: [`Clock::uptime`](crate::domain::clock::Clock::uptime). For a change that a shared store
    /// announces, by the clock of its server: if that clock is behind, the change looks older than it is; if it is ahead,
    /// it looks as if it were published when it was read.
    pub at: Duration,
    /// The change.
    pub change: Change,
}

/// Where the next page begins, in words of the store that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCursor(String);

impl SessionCursor {
    fn new(place: String) -> Self {
        Self(place)
    }

    fn as_str(&self) -> &str {
        &self.0
    }
}

/// A page of live sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<Session>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<SessionCursor>,
}

/// A page of sessions of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionIdPage {
    /// The sessions. There may be more even if there are none.
    pub ids: Vec<SessionId>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<SessionCursor>,
}

/// A signing key that sessions record, as [`SessionStore::keys`] found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInUse {
    /// The key; `None` stands for the sessions that record none.
    pub id: Option<KeyId>,
    /// The last expiry of its sessions in each partition, in words of the store. Empty if the store finds them without it.
    latest: Vec<Option<String>>,
}

/// Sessions and the deny list.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Stores a new session. Returns once it is durable.
    async fn create(&self, session: &Session) -> Result<(), StoreError>;

    /// The session with this id if it exists, is not denied and has not expired. The lookup is positive: a store that
    /// lost its records lets nobody in.
    async fn find(&self, id: &SessionId) -> Result<Option<Session>, StoreError>;

    /// The sessions with these ids, in their order, each as [`SessionStore::find`] returns it. One that cannot be decoded is
    /// left out: nobody can use it.
    async fn find_all(&self, ids: &[SessionId]) -> Result<Vec<Option<Session>>, StoreError> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.push(match self.find(id).await {
                Err(StoreError::Damaged(cause)) => {
                    tracing::warn!(session.id = id.as_str(), error = %cause, "a session cannot be read; nobody can use it");
                    None
                }
                session => session?,
            });
        }
        Ok(found)
    }

    /// Replaces a session that is still at version `seen`; `session` carries the next one. Returns
    /// once that is durable. A revoked session stays revoked.
    async fn replace(&self, session: &Session, seen: Version) -> Result<WriteOutcome, StoreError>;

    /// Revokes sessions and denies their tokens for `lifetime`. Returns once that is durable: a user who has seen the
    /// logout response stays logged out even if this process dies at once. Those of one partition are one change: a caller
    /// with many sessions revokes them in parts. After a failure some or all of them may be revoked.
    async fn revoke_all(&self, ids: &[SessionId], lifetime: Duration, cause: EndCause) -> Result<(), StoreError>;

    /// Revokes one session.
    async fn revoke(&self, id: &SessionId, lifetime: Duration, cause: EndCause) -> Result<(), StoreError> {
        self.revoke_all(std::slice::from_ref(id), lifetime, cause).await
    }

    /// Brings the expiry of sessions forward to `end`, and returns those that expired later. Returns once that is
    /// durable. Those of one partition are one change.
    async fn shorten_all(&self, ids: &[SessionId], end: Timestamp) -> Result<Vec<Session>, StoreError>;

    /// The live sessions of one employee.
    async fn of_employee(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Vec<Session>, StoreError>;

    /// Those of an employee's live sessions that can be read now, and the failure of the others: while one server of a
    /// cluster is away, the sessions on the others can be ended.
    async fn readable_of_employee(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
    ) -> (Vec<Session>, Result<(), StoreError>) {
        match self.of_employee(corp_id, employee_id).await {
            Ok(sessions) => (sessions, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        }
    }

    /// When these sessions were last used, in the order of `ids`; `None` where nothing was recorded.
    async fn last_seen(&self, ids: &[SessionId]) -> Result<Vec<Option<Timestamp>>, StoreError>;

    /// Records when sessions were last used. Called in batches, so that a request costs no write.
    async fn note_seen(&self, seen: &[(SessionId, Timestamp)]) -> Result<(), StoreError>;

    /// How many sessions there are, those of all gateways on the store; expired ones count until they are swept. Cheap
    /// enough to be asked for every few seconds.
    async fn count(&self) -> Result<u64, StoreError>;

    /// At most `limit` live sessions, newest first.
    async fn newest(&self, limit: usize) -> Result<Vec<Session>, StoreError>;

    /// The live sessions among the next `limit` records; those of an employee stand together within a partition. A record
    /// that cannot be decoded is left out: nobody can use its session.
    async fn page(&self, after: Option<&SessionCursor>, limit: usize) -> Result<SessionPage, StoreError>;

    /// The signing keys that sessions record. A key whose sessions have all ended early may be among them.
    async fn keys(&self) -> Result<Vec<KeyInUse>, StoreError>;

    /// At most `limit` sessions of a key that expire after `end`. Sessions that were created since [`SessionStore::keys`] may
    /// be missing.
    async fn of_key(
        &self,
        key: &KeyInUse,
        end: Timestamp,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionIdPage, StoreError>;

    /// Notes that the sessions of a key on a page of [`SessionStore::of_key`], which began at `after` and was followed by
    /// `next`, expire at `end` at the latest: nobody need look at them again. A store that finds the sessions of a key
    /// without reading others needs no such note.
    async fn settle_key(
        &self,
        _key: &KeyInUse,
        _end: Timestamp,
        _after: Option<&SessionCursor>,
        _next: Option<&SessionCursor>,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    /// The live sessions that a platform account of a connected corporation has opened.
    async fn of_platform_account(&self, account: &PlatformAccount) -> Result<Vec<Session>, StoreError>;
}

/// QR-code tickets.
#[async_trait]
pub trait TicketStore: Send + Sync {
    /// Stores a new ticket. Returns once it is durable.
    async fn create_ticket(&self, ticket: &Ticket) -> Result<(), StoreError>;

    /// The ticket with this id, in any state.
    async fn ticket(&self, id: &TicketDigest) -> Result<Option<Ticket>, StoreError>;

    /// The ticket with this scan id.
    async fn ticket_of_scan(&self, id: &ScanDigest) -> Result<Option<Ticket>, StoreError>;

    /// Replaces a ticket that is still at version `seen`; `ticket` carries the next one. Returns
    /// once that is durable.
    async fn advance(&self, ticket: &Ticket, seen: Version) -> Result<WriteOutcome, StoreError>;
}

/// What the servers of a shared store would lose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurabilityGap {
    /// A restart loses everything.
    NothingOnDisk,
    /// A crash loses what was changed since the last snapshot.
    SnapshotsOnly,
    /// A crash of the machine loses a second.
    SyncEverySecond,
    /// A crash of the machine loses what its system has not written yet.
    SyncBySystem,
    /// Records are removed when memory is full, by this policy.
    Eviction(String),
    /// A server has no replica.
    NoReplica,
    /// A primary that is cut off from its replicas goes on accepting changes, which a failover discards.
    WritesWithoutReplica,
    /// Changes are answered before a replica has them.
    Unconfirmed,
}

/// A store with its change feed.
#[async_trait]
pub trait Store: FleetStore + SessionStore + SessionTransfer + TicketStore {
    /// Subscribes to changes, including those made by this gateway. A receiver that lags gets
    /// [`broadcast::error::RecvError::Lagged`] and must read its records again.
    fn changes(&self) -> broadcast::Receiver<ChangeEvent>;

    /// How current the change feed is.
    fn feed(&self) -> &FeedState;

    /// Single-use claims.
    fn claims(&self) -> Arc<dyn OnceStore>;

    /// Leases of background work.
    fn leases(&self) -> Arc<dyn WorkLeases>;

    /// The WebSockets of each employee; `None` if no other gateway shares the store.
    fn socket_slots(&self) -> Option<Arc<dyn SocketSlots>>;

    /// The ledgers of shared rate limits; `None` if no other gateway shares the store.
    fn rate_ledger(&self) -> Option<Arc<dyn LeaseLedger>>;

    /// What the servers of a shared store would lose, as their settings were at the start.
    fn durability_gaps(&self) -> Vec<DurabilityGap> {
        Vec::new()
    }

    /// Checks that the store can be read and written now.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Resolves when a task of the store has died, so that it cannot be written any more.
    async fn failure(&self);

    /// Completes every write that was accepted and closes the store. Later writes fail.
    async fn close(&self);

    /// Removes expired records, a few at a time: other writes do not wait for all of them. Saves space only: reads check
    /// the expiry.
    async fn sweep(&self) -> Result<(), StoreError>;
}
