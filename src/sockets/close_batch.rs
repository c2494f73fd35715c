//! WebSockets that are closed at once. The tasks of thousands of sockets share a few threads: if each finished its work
//! before the next one began, the last client would wait for all of it. So every client is sent its close frame first;
//! upstreams, connections and records follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Longest wait for the close frames of the others: one of them may still wait for its handshake.
const BATCH_TIMEOUT: Duration = Duration::from_millis(500);

/// WebSockets that are closed at once.
#[derive(Debug)]
pub(super) struct CloseBatch {
    /// The members that have not tried to send their close frame.
    unsent: AtomicUsize,
    all_sent: Notify,
}

impl CloseBatch {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { unsent: AtomicUsize::new(0), all_sent: Notify::new() })
    }

    /// Adds a socket.
    pub(super) fn join(self: &Arc<Self>) -> BatchMember {
        self.unsent.fetch_add(1, Ordering::AcqRel);
        BatchMember { batch: self.clone(), sent: AtomicBool::new(false) }
    }
}

/// One socket of a batch. Dropping it leaves the batch.
#[derive(Debug)]
pub(super) struct BatchMember {
    batch: Arc<CloseBatch>,
    sent: AtomicBool,
}

impl BatchMember {
    /// Notes that the close frame was sent, or that the client does not read and the others need not wait for it.
    pub(super) fn mark_sent(&self) {
        if !self.sent.swap(true, Ordering::AcqRel) && self.batch.unsent.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.batch.all_sent.notify_waiters();
        }
    }

    /// Waits until all members have sent their close frame, for a limited time.
    pub(super) async fn all_sent(&self) {
        // Before the count is read, so that no notification is missed.
        let notified = self.batch.all_sent.notified();
        if self.batch.unsent.load(Ordering::Acquire) > 0 {
            let _ = tokio::time::timeout(BATCH_TIMEOUT, notified).await;
        }
    }
}

impl Drop for BatchMember {
    fn drop(&mut self) {
        self.mark_sent();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_waits_until_the_last_has_sent_or_is_gone() {
        let batch = CloseBatch::new();
        let (first, second, third) = (batch.join(), batch.join(), batch.join());
        first.mark_sent();
        first.mark_sent();
        let mut waiting = Box::pin(first.all_sent());
        assert_eq!((&mut waiting).now_or_never(), None, "two have not sent");
        second.mark_sent();
        assert_eq!((&mut waiting).now_or_never(), None, "one has not sent");
        drop(third);
        assert_eq!((&mut waiting).now_or_never(), Some(()));
        assert_eq!(second.all_sent().now_or_never(), Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_never_sends_does_not_hold_the_others_for_long() {
        let batch = CloseBatch::new();
        let (first, _handshake) = (batch.join(), batch.join());
        first.mark_sent();
        let began = tokio::time::Instant::now();
        first.all_sent().await;
        assert_eq!(began.elapsed(), BATCH_TIMEOUT);
    }
}
