//! Copies of sessions and of the deny list to another store.

use async_trait::async_trait;

use super::{SessionCursor, StoreError};
use crate::domain::clock::Timestamp;
use crate::domain::session::{Session, SessionId};

/// A session with what a store keeps beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortableSession {
    /// The session.
    pub session: Session,
    /// When it was last used.
    pub last_seen: Option<Timestamp>,
}

/// A token that is refused, whatever record its session has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The session of the token.
    pub id: SessionId,
    /// When it need not be refused any more: the token has expired.
    pub until: Timestamp,
}

/// A page of denials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenialPage {
    /// The denials. There may be more even if there are none.
    pub denials: Vec<Denial>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<SessionCursor>,
}

/// What became of imported sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// Written: the store had no record, or an older one.
    pub written: usize,
    /// Left alone: the store had the same record or a newer one.
    pub kept: usize,
    /// Not written: the store denies their tokens.
    pub denied: usize,
}

impl std::ops::AddAssign for ImportCounts {
    fn add_assign(&mut self, other: Self) {
        self.written += other.written;
        self.kept += other.kept;
        self.denied += other.denied;
    }
}

/// Sessions and denials, out of one store and into another. Both imports can be repeated, and none revives a session: a
/// denial ends its session, and a session whose token is denied is not written.
#[async_trait]
pub trait SessionTransfer: Send + Sync {
    /// About `limit` denials whose tokens have not expired. A shared store may name one twice.
    async fn denials(&self, after: Option<&SessionCursor>, limit: usize) -> Result<DenialPage, StoreError>;

    /// Ends sessions and denies their tokens, for longer if they are denied already. Returns once that is durable.
    async fn import_denials(&self, denials: &[Denial]) -> Result<(), StoreError>;

    /// Writes sessions as they are, with their versions. Returns once that is durable.
    async fn import_sessions(&self, sessions: &[PortableSession]) -> Result<ImportCounts, StoreError>;
}
