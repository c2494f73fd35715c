//! Limits the concurrent requests to an upstream, so that a slow one does not collect all of the gateway's memory and
//! connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::UpstreamConfig;

/// The most concurrent requests to an upstream, and a short queue in front of it.
#[derive(Debug)]
pub(super) struct RequestLimit {
    most: usize,
    queue: usize,
    timeout: Duration,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A request within the limit; dropping it lets the next one begin.
#[derive(Debug)]
pub(crate) struct RequestSlot {
    _permit: OwnedSemaphorePermit,
}

/// The upstream has as many requests as it may have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UpstreamBusy;

impl RequestLimit {
    pub(super) fn new(config: &UpstreamConfig) -> Option<Self> {
        let most = Some(config.max_requests).filter(|most| *most > 0)?.min(Semaphore::MAX_PERMITS);
        let (queue, timeout) = (config.queue, config.queue_timeout.get());
        Some(Self { most, queue, timeout, slots: Arc::new(Semaphore::new(most)), waiting: AtomicUsize::new(0) })
    }

    /// Whether a limit with these settings would be the same.
    pub(super) fn fits(&self, config: &UpstreamConfig) -> bool {
        let wanted = (config.max_requests, config.queue, config.queue_timeout.get());
        wanted == (self.most, self.queue, self.timeout)
    }

    /// Begins a request, or waits in the queue for one before it to end.
    pub(super) async fn begin(&self) -> Result<RequestSlot, UpstreamBusy> {
        if let Ok(permit) = self.slots.clone().try_acquire_owned() {
            return Ok(RequestSlot { _permit: permit });
        }
        let _waiting = QueuedRequest::join(self)?;
        let permit = tokio::time::timeout(self.timeout, self.slots.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| UpstreamBusy)?.map_err(|_| UpstreamBusy)?;
        Ok(RequestSlot { _permit: permit })
    }
}

/// A place in the queue.
struct QueuedRequest<'a>(&'a AtomicUsize);

impl<'a> QueuedRequest<'a> {
    fn join(limit: &'a RequestLimit) -> Result<Self, UpstreamBusy> {
        let place = Self(&limit.waiting);
        let before = limit.waiting.fetch_add(1, Ordering::Relaxed);
        if before < limit.queue { Ok(place) } else { Err(UpstreamBusy) }
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
