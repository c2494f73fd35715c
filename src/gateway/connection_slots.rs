//! The slots of all client connections. A listener takes one before it accepts, so that more clients wait in the kernel's
//! backlog; metrics and a log line tell that they do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::{IntCounter, IntGauge};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::metrics::Metrics;

/// The pause between two log lines about a limit that is reached.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// A number of slots that can change.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    free: Arc<Semaphore>,
    count: Mutex<usize>,
    open: IntGauge,
    limit: IntGauge,
    /// How often a listener had to stop accepting.
    reached: IntCounter,
    warned: Mutex<Option<Instant>>,
}

/// The slot of an open connection; dropping it frees the slot for another one.
#[derive(Debug)]
pub(super) struct OccupiedSlot {
    open: IntGauge,
    _permit: OwnedSemaphorePermit,
}

impl Drop for OccupiedSlot {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl ConnectionSlots {
    pub(crate) fn new(count: usize, metrics: &Metrics) -> Self {
        let count = count.min(Semaphore::MAX_PERMITS);
        let (open, limit) = (metrics.connections_open.clone(), metrics.connections_limit.clone());
        limit.set(to_gauge(count));
        Self {
            free: Arc::new(Semaphore::new(count)),
            count: Mutex::new(count),
            open,
            limit,
            reached: metrics.limit_counter("connections"),
            warned: Mutex::new(None),
        }
    }

    /// Waits for a slot, and tells if there is none.
    pub(super) async fn acquire(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        if let Ok(permit) = self.try_acquire() {
            return Ok(permit);
        }
        self.reached.inc();
        self.warn();
        self.free.clone().acquire_owned().await
    }

    pub(super) fn try_acquire(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.free.clone().try_acquire_owned()
    }

    /// Gives a slot to an accepted connection.
    pub(super) fn occupy(&self, permit: OwnedSemaphorePermit) -> OccupiedSlot {
        self.open.inc();
        OccupiedSlot { open: self.open.clone(), _permit: permit }
    }

    /// Changes the number. If more connections are open than that, none is accepted until enough have ended.
    pub(crate) fn resize(&self, count: usize) {
        let count = count.min(Semaphore::MAX_PERMITS);
        self.limit.set(to_gauge(count));
        let before = std::mem::replace(&mut *lock(&self.count), count);
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

    /// At most once in [`WARNING_INTERVAL`]: at the limit, every connection that ends makes room for one.
    fn warn(&self) {
        let mut warned = lock(&self.warned);
        if warned.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!(
                connections = self.open.get(),
                limit = self.limit.get(),
                "as many clients are connected as there may be: new connections wait in the kernel's queue until others end; \
                 see limits.connections and the limit on open files"
            );
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn to_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
