//! The queue for password hashing: a few hashes run at once, some wait, further ones are rejected with a retry time.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The queue is full, or a slot waited too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords are being checked")]
pub struct Busy {
    /// When to retry: by then every slot taken now has run or timed out. At least a second.
    pub retry_after: Duration,
}

/// The queue. Slots run in the order in which they were reserved; a dropped slot is freed.
#[derive(Debug)]
pub(super) struct HashQueue {
    /// Running and waiting slots together.
    slots: Arc<Semaphore>,
    slots_total: usize,
    /// Running slots.
    running: Arc<Semaphore>,
    running_total: usize,
    longest_wait: Duration,
}

/// A reserved slot in the queue.
#[derive(Debug)]
pub struct QueueSlot {
    slot: OwnedSemaphorePermit,
    running: Arc<Semaphore>,
    longest_wait: Duration,
}

/// The permission to hash now.
#[derive(Debug)]
pub(super) struct HashPermit {
    // Fields drop in this order: running is released before the slot, so that no hash ever runs without a slot.
    _running: OwnedSemaphorePermit,
    _slot: OwnedSemaphorePermit,
}

impl HashQueue {
    pub(super) fn new(parallel: NonZeroUsize, waiting: usize, longest_wait: Duration) -> Self {
        let running_total = parallel.get().min(Semaphore::MAX_PERMITS);
        let slots_total = running_total.saturating_add(waiting).min(Semaphore::MAX_PERMITS);
        Self {
            slots: Arc::new(Semaphore::new(slots_total)),
            slots_total,
            running: Arc::new(Semaphore::new(running_total)),
            running_total,
            longest_wait,
        }
    }

    /// Reserves a slot, or fails if the queue is full.
    pub(super) fn reserve(&self) -> Result<QueueSlot, Busy> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| self.busy())?;
        Ok(QueueSlot { slot, running: Arc::clone(&self.running), longest_wait: self.longest_wait })
    }

    pub(super) fn busy(&self) -> Busy {
        busy(self.longest_wait)
    }

    pub(super) fn running(&self) -> usize {
        self.running_total - self.running.available_permits()
    }

    pub(super) fn waiting(&self) -> usize {
        // The two semaphores are read one after the other, so the difference could briefly be negative.
        (self.slots_total - self.slots.available_permits()).saturating_sub(self.running())
    }
}

impl QueueSlot {
    /// Waits until the slot may run, at most for the longest wait.
    pub(super) async fn wait(self) -> Result<HashPermit, Busy> {
        match timeout(self.longest_wait, self.running.acquire_owned()).await {
            Ok(Ok(running)) => Ok(HashPermit { _running: running, _slot: self.slot }),
            // The semaphores are never closed; if one were, no hash could run.
            Ok(Err(_)) | Err(_) => Err(busy(self.longest_wait)),
        }
    }
}

fn busy(longest_wait: Duration) -> Busy {
    Busy { retry_after: longest_wait.max(Duration::from_secs(1)) }
}

#[cfg(test)]
mod tests;
