//! The beginning of the drain, as listeners, connections and responses see it. Waiting for its end is left to `app`.

use std::sync::atomic::{AtomicBool, Ordering};

use pingora_core::server::ShutdownWatch;
use tokio::sync::watch;

/// What happens to the connections that wait in the kernel's backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// They are accepted: closing the listener would reset them.
    Accept,
    /// They are left to the process that listens on the same socket from now on.
    Leave,
}

/// Tells listeners and connections that the gateway drains, and counts those that are left.
pub(crate) struct DrainSignal {
    /// Every request reads this, and the channel would take a lock.
    begun: AtomicBool,
    leaves_backlog: AtomicBool,
    sender: watch::Sender<bool>,
    /// Has not seen the signal. Its clones neither, so they also report a drain that began before they were made.
    unseen: ShutdownWatch,
}

impl Default for DrainSignal {
    fn default() -> Self {
        let (sender, unseen) = watch::channel(false);
        Self { begun: AtomicBool::new(false), leaves_backlog: AtomicBool::new(false), sender, unseen }
    }
}

impl DrainSignal {
    /// Begins the drain and wakes every listener and every connection.
    pub(crate) fn begin(&self, backlog: Backlog) {
        self.leaves_backlog.store(backlog == Backlog::Leave, Ordering::Release);
        self.begun.store(true, Ordering::Release);
        self.sender.send_replace(true);
    }

    pub(super) fn leaves_backlog(&self) -> bool {
        self.leaves_backlog.load(Ordering::Acquire)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// For a listener or a connection, which counts as open as long as it holds this.
    pub(super) fn subscribe(&self) -> ShutdownWatch {
        self.unseen.clone()
    }

    /// Whether a listener or a connection is still open. WebSockets do not count.
    pub(crate) fn has_open_connections(&self) -> bool {
        // One receiver is our own.
        self.sender.receiver_count() > 1
    }
}
