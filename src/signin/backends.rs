//! Whether the backends answer, for the readiness endpoint and the metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::directory::{Directory, DirectoryError};
use crate::sessions::SessionCache;
use crate::store::StoreError;

/// The store and the directory.
pub struct Backends {
    pub(super) sessions: Arc<SessionCache>,
    pub(super) directory: Arc<dyn Directory>,
}

/// What each backend answered; `None` if it did not.
pub struct BackendStatus {
    /// Sessions and tickets.
    pub store: Option<Result<(), StoreError>>,
    /// Employees and roles.
    pub directory: Option<Result<(), DirectoryError>>,
}

impl Backends {
    /// Asks the backends at the same time whether they can work. `None`: no answer within `limit`.
    pub async fn status(&self, limit: Duration) -> BackendStatus {
        let store = tokio::time::timeout(limit, self.sessions.store().ready());
        let directory = tokio::time::timeout(limit, self.directory.ready());
        let (store, directory) = tokio::join!(store, directory);
        BackendStatus { store: store.ok(), directory: directory.ok() }
    }
}
