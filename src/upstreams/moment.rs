//! Points of monotonic time that fit into an atomic.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Milliseconds of monotonic time. Never 0, which atomics use for "not set".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Later than all others.
    pub(super) const NEVER: Self = Self(u64::MAX);

    pub(crate) fn now() -> Self {
        Self::of(Instant::now())
    }

    pub(crate) fn of(instant: Instant) -> Self {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        // Nothing is older than a day before the first call.
        const BEFORE: Duration = Duration::from_secs(86_400);
        let since = (BEFORE + instant.saturating_duration_since(*STARTED)).as_millis();
        Self(u64::try_from(since).unwrap_or(u64::MAX - 1))
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)).min(u64::MAX - 1))
    }

    /// The time since `earlier`; zero if it is not earlier.
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
