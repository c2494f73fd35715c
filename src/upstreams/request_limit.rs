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
mod tests {
    use super::*;
    use crate::config::HumanDuration;

    fn limit(max_requests: usize, queue: usize) -> RequestLimit {
        let queue_timeout = HumanDuration::millis(50);
        RequestLimit::new(&UpstreamConfig { max_requests, queue, queue_timeout, ..Default::default() })
            .expect("a limit")
    }

    #[tokio::test]
    async fn requests_beyond_the_limit_wait_for_one_to_end() {
        let limit = limit(1, 1);
        let first = limit.begin().await.expect("a slot");
        let (second, ()) = tokio::join!(limit.begin(), async { drop(first) });
        assert!(second.is_ok());
    }

    #[tokio::test]
    async fn a_full_queue_and_a_long_wait_are_refused() {
        let limit = limit(1, 1);
        let _first = limit.begin().await.expect("a slot");
        let mut waiting = Box::pin(limit.begin());
        assert!(futures::poll!(&mut waiting).is_pending());
        assert_eq!(limit.begin().await.map(drop), Err(UpstreamBusy), "the queue is full");
        assert_eq!(waiting.await.map(drop), Err(UpstreamBusy), "the wait is over");
        let mut next = Box::pin(limit.begin());
        assert!(futures::poll!(&mut next).is_pending(), "the queue is empty again");
    }

    #[test]
    fn no_limit_is_the_default() {
        assert!(RequestLimit::new(&UpstreamConfig::default()).is_none());
    }
}
