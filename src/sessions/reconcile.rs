//! The check of a session that the cache reads before all stored sessions were compared with the directory.
//!
//! A crash between the directory's write and the store's leaves sessions that the directory no longer admits. The store is
//! compared with the directory after a start, which takes a while with many sessions. Until then the cache hands out no
//! session that was not compared by itself.

use std::sync::Arc;

use async_trait::async_trait;

use super::SessionCache;
use crate::domain::session::{Session, SessionId};
use crate::error::Error;

/// Compares sessions with what they depend on.
#[async_trait]
pub trait Reconcile: Send + Sync {
    /// Compares sessions and corrects what differs. Returns those that were corrected or ended: they must be read again. If it
    /// fails, none of the sessions must be used.
    async fn reconcile(&self, sessions: &[Session]) -> Result<Vec<SessionId>, Error>;
}

/// Why the store is not trusted at a moment, if it is not. A comparison of all sessions ends the distrust that there was when
/// it began, and no other.
pub struct StoreDistrust(Option<Arc<Box<dyn Reconcile>>>);

impl SessionCache {
    /// Has every session that is read from the store compared first, until [`SessionCache::trust_store`].
    pub fn distrust_store(&self, reconciler: impl Reconcile + 'static) {
        self.reconciler.store(Some(Arc::new(Box::new(reconciler))));
    }

    /// The distrust that a comparison of all sessions, if it begins now, will end.
    pub fn store_distrust(&self) -> StoreDistrust {
        StoreDistrust(self.reconciler.load_full())
    }

    /// Trusts the sessions of the store again, unless the store was distrusted once more after `ended`: a session that was
    /// compared earlier may have changed since.
    pub fn trust_store(&self, ended: &StoreDistrust) {
        self.reconciler.compare_and_swap(&ended.0, None);
    }

    pub(super) fn trusts_store(&self) -> bool {
        self.reconciler.load().is_none()
    }

    /// Reads a session from the store, corrected if necessary.
    pub(super) async fn read(&self, id: &SessionId) -> Result<Option<Session>, Error> {
        let Some(session) = self.store.find(id).await? else { return Ok(None) };
        let Some(reconciler) = self.reconciler.load_full() else { return Ok(Some(session)) };
        let corrected = reconciler.reconcile(std::slice::from_ref(&session)).await?;
        if corrected.is_empty() { Ok(Some(session)) } else { Ok(self.store.find(id).await?) }
    }

    /// Reads sessions from the store in one go, corrected if necessary.
    pub(super) async fn read_all(&self, ids: &[SessionId]) -> Result<Vec<Option<Session>>, Error> {
        let found = self.store.find_all(ids).await?;
        let Some(reconciler) = self.reconciler.load_full() else { return Ok(found) };
        let present: Vec<Session> = found.iter().flatten().cloned().collect();
        let corrected = reconciler.reconcile(&present).await?;
        if corrected.is_empty() { Ok(found) } else { Ok(self.store.find_all(ids).await?) }
    }
}
