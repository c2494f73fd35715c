//! Sessions, the deny list and tickets, behind traits that a shared store can keep as well: every
//! change names the version that it saw, and every change can be heard by other gateways.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{EndCause, Session, SessionId, Version};
use crate::domain::ticket::{ScanId, Ticket, TicketId};
use crate::domain::write::WriteOutcome;
use crate::error::{Error, Part};

pub mod counters;

pub mod embedded;

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or written; nothing was changed.
    #[error("the store is unavailable")]
    Unavailable(#[source] crate::error::Cause),
    /// A record cannot be read as what it should be.
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

/// What other gateways, and other parts of this one, must hear.
#[derive(Debug, Clone)]
pub enum Change {
    /// A session is over.
    SessionEnded {
        /// Which.
        id: SessionId,
        /// Why.
        cause: EndCause,
    },
    /// A session's roles or active role are different.
    SessionChanged(Box<Session>),
    /// A ticket went on to another state.
    TicketMoved(TicketId),
}

/// A change, and when it was published.
#[derive(Debug, Clone)]
pub struct ChangeEvent {
    /// When.
    pub at: Timestamp,
    /// What.
    pub change: Change,
}

/// Sessions and the deny list.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Keeps a new session. Returns only once it is durable.
    async fn create(&self, session: &Session) -> Result<(), StoreError>;

    /// The live session of this id: there, not denied, not expired. The lookup is positive, so a
    /// store that lost its records lets nobody in.
    async fn find(&self, id: &SessionId) -> Result<Option<Session>, StoreError>;

    /// Replaces a session that is still at version `seen`; `session` carries the next one. Returns
    /// only once that is durable. A revoked session stays revoked.
    async fn replace(&self, session: &Session, seen: Version) -> Result<WriteOutcome, StoreError>;

    /// Ends a session and denies its token for `lifetime`. Returns only once that is durable: a user
    /// who has seen the logout answer stays logged out even if this process dies in the next moment.
    async fn revoke(&self, id: &SessionId, lifetime: Duration, cause: EndCause) -> Result<(), StoreError>;

    /// The live sessions of one employee.
    async fn of_employee(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Vec<Session>, StoreError>;

    /// When these sessions were last used, as far as anybody has noted; in their order.
    async fn last_seen(&self, ids: &[SessionId]) -> Result<Vec<Option<Timestamp>>, StoreError>;

    /// Notes when sessions were last used. Coarse and late on purpose: a request costs no write.
    async fn note_seen(&self, seen: &[(SessionId, Timestamp)]) -> Result<(), StoreError>;

    /// All live sessions, newest first, at most `limit`.
    async fn all(&self, limit: usize) -> Result<Vec<Session>, StoreError>;
}

/// QR-code tickets.
#[async_trait]
pub trait TicketStore: Send + Sync {
    /// Keeps a new ticket. Returns only once it is durable.
    async fn create_ticket(&self, ticket: &Ticket) -> Result<(), StoreError>;

    /// The ticket of this id, whatever its state.
    async fn ticket(&self, id: &TicketId) -> Result<Option<Ticket>, StoreError>;

    /// The ticket behind a scanned code.
    async fn ticket_of_scan(&self, id: &ScanId) -> Result<Option<Ticket>, StoreError>;

    /// Replaces a ticket that is still at version `seen`; `ticket` carries the next one. Returns only
    /// once that is durable.
    async fn advance(&self, ticket: &Ticket, seen: Version) -> Result<WriteOutcome, StoreError>;
}

/// Everything a store keeps, and the feed of its changes.
#[async_trait]
pub trait Store: SessionStore + TicketStore {
    /// Changes from now on, those made here included. A listener that falls behind hears
    /// [`broadcast::error::RecvError::Lagged`] and must read its records again.
    fn changes(&self) -> broadcast::Receiver<ChangeEvent>;

    /// Whether it can be read and written now.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Removes what has expired. Only saves space: expiry is judged when a record is read.
    async fn sweep(&self) -> Result<(), StoreError>;
}
