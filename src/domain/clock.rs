//! The only reader of the wall clock, which tests can move.

#![expect(clippy::disallowed_methods, reason = "the home of the wall clock")]

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since 1970.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// From whole seconds since 1970, as JWT claims carry them.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Milliseconds since 1970.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since 1970, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// How long until `later`; zero when it has passed.
    pub fn until(self, later: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }

    /// Whole seconds until `later`, rounded up, so that half a second left is not zero.
    pub fn seconds_until(self, later: Timestamp) -> u64 {
        u64::try_from(self.until(later).as_millis().div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// This time plus `span`.
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This time less `span`.
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// `2026-01-02T03:04:05.678Z`, as responses show it: always of the same length, so that the strings sort by time.
    pub fn iso8601(self) -> String {
        let Ok(moment) = time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000) else {
            return String::new();
        };
        let (year, month, day) = (moment.year(), u8::from(moment.month()), moment.day());
        let (hour, minute, second) = (moment.hour(), moment.minute(), moment.second());
        let millis = moment.millisecond();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// The injected clock. Clones share their offset, which tests can move.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// Zero in production: only [`Clock::advance`] changes it.
    offset_millis: Arc<AtomicI64>,
}

impl Clock {
    /// The system clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// The current time. A system clock before 1970 counts as 1970, which makes every token invalid.
    pub fn now(&self) -> Timestamp {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = i64::try_from(machine.as_millis()).unwrap_or(i64::MAX);
        Timestamp(millis.saturating_add(self.offset_millis.load(Ordering::Relaxed)))
    }

    /// Monotonic time since the first call in this process.
    pub fn running(&self) -> Duration {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        let moved = u64::try_from(self.offset_millis.load(Ordering::Relaxed)).unwrap_or(0);
        STARTED.elapsed() + Duration::from_millis(moved)
    }

    /// Moves this clock and its clones forward.
    pub fn advance(&self, span: Duration) {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        self.offset_millis.fetch_add(millis, Ordering::Relaxed);
    }
}
