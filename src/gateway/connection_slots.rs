//! The slots of all client connections. A listener takes one before it accepts, so that more clients wait in the kernel's
//! backlog.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// A number of slots that can change.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    free: Arc<Semaphore>,
    count: Mutex<usize>,
}

impl ConnectionSlots {
    pub(crate) fn new(count: usize) -> Self {
        let count = count.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(count)), count: Mutex::new(count) }
    }

    pub(super) async fn acquire(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.free.clone().acquire_owned().await
    }

    pub(super) fn try_acquire(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.free.clone().try_acquire_owned()
    }

    /// Changes the number. If more connections are open than that, none is accepted until enough have ended.
    pub(crate) fn resize(&self, count: usize) {
        let count = count.min(Semaphore::MAX_PERMITS);
        let before = std::mem::replace(&mut *self.count.lock().unwrap_or_else(PoisonError::into_inner), count);
        self.free.add_permits(count.saturating_sub(before));
        let mut superfluous = before.saturating_sub(count);
        superfluous -= self.free.forget_permits(superfluous);
        if superfluous > 0 {
            let (free, superfluous) = (self.free.clone(), u32::try_from(superfluous).unwrap_or(u32::MAX));
            tokio::spawn(async move {
                if let Ok(permits) = free.acquire_many(superfluous).await {
                    permits.forget();
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
