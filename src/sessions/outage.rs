//! Remembers that the store could not answer, so that not every request waits for it in vain.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long requests of known sessions do not ask a store that could not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// When the store was last found unavailable.
#[derive(Debug)]
pub(super) struct RecentOutage {
    started: Instant,
    /// Milliseconds after `started`, plus one; 0 if never.
    noted: AtomicU64,
}

impl Default for RecentOutage {
    fn default() -> Self {
        Self { started: Instant::now(), noted: AtomicU64::new(0) }
    }
}

impl RecentOutage {
    /// The store could not answer now.
    pub(super) fn note(&self) {
        self.noted.store(self.elapsed() + 1, Ordering::Relaxed);
    }

    /// Whether the store could not answer a moment ago.
    pub(super) fn is_recent(&self) -> bool {
        let noted = self.noted.load(Ordering::Relaxed);
        noted > 0 && self.elapsed() < noted + PAUSE.as_millis() as u64
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
