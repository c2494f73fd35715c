//! Whether the backends answer, for the readiness endpoint.

use std::sync::Arc;

use crate::directory::{Directory, DirectoryError};
use crate::sessions::SessionCache;
use crate::store::StoreError;

/// The store and the directory.
pub struct Backends {
    pub(super) sessions: Arc<SessionCache>,
    pub(super) directory: Arc<dyn Directory>,
}

/// What each backend answered.
pub struct BackendStatus {
    /// Sessions and tickets.
    pub store: Result<(), StoreError>,
    /// Employees and roles.
    pub directory: Result<(), DirectoryError>,
}

impl Backends {
    /// Asks each backend whether it can work.
    pub async fn status(&self) -> BackendStatus {
        BackendStatus { store: self.sessions.store().ready().await, directory: self.directory.ready().await }
    }
}
