//! The one gateway that uses an embedded store: it knows itself, and nobody else reads it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::gateway_status::{GatewayId, GatewayStatus};

/// What this process has announced.
#[derive(Debug, Default)]
pub(super) struct OwnStatus(Mutex<Option<GatewayStatus>>);

impl OwnStatus {
    pub(super) fn set(&self, status: &GatewayStatus) {
        *self.lock() = Some(status.clone());
    }

    pub(super) fn clear(&self, id: &GatewayId) {
        self.lock().take_if(|status| status.id == *id);
    }

    pub(super) fn get(&self) -> Option<GatewayStatus> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<GatewayStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
