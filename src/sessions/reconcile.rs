//! The check of a session that the cache reads before all stored sessions were compared with the directory.
//!
//! A crash between the directory's write and the store's leaves sessions that the directory no longer admits. The store is
//! compared with the directory after a start, which takes a while with many sessions. Until then the cache hands out no
//! session that was not compared by itself.

use async_trait::async_trait;

use super::SessionCache;
use crate::domain::session::{Session, SessionId};
use crate::error::Error;

/// What the comparison of a session came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconciled {
    /// The record is as it should be.
    Unchanged,
    /// The record was corrected or the session ended: it must be read again.
    Changed,
}

/// Compares sessions with what they depend on.
#[async_trait]
pub trait Reconcile: Send + Sync {
    /// Compares one session and corrects what differs. If that fails, the session must not be used.
    async fn reconcile(&self, session: &Session) -> Result<Reconciled, Error>;
}

impl SessionCache {
    /// Has every session that is read from the store compared first, until [`SessionCache::trust_store`].
    pub fn distrust_store(&self, reconciler: impl Reconcile + 'static) {
        self.reconciler.store(Some(std::sync::Arc::new(Box::new(reconciler))));
    }

    /// Uses the sessions of the store as they are from now on.
    pub fn trust_store(&self) {
        self.reconciler.store(None);
    }

    pub(super) fn trusts_store(&self) -> bool {
        self.reconciler.load().is_none()
    }

    /// Reads a session from the store, corrected if necessary.
    pub(super) async fn read(&self, id: &SessionId) -> Result<Option<Session>, Error> {
        let Some(session) = self.store.find(id).await? else { return Ok(None) };
        let Some(reconciler) = self.reconciler.load_full() else { return Ok(Some(session)) };
        match reconciler.reconcile(&session).await? {
            Reconciled::Unchanged => Ok(Some(session)),
            Reconciled::Changed => Ok(self.store.find(id).await?),
        }
    }
}
