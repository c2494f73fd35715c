//! The only reader of the wall clock, which tests can move.
//!
//! What is measured (a timeout, a rate, the age of something in memory) uses [`Clock::running`], which never jumps, or
//! [`Clock::uptime`] where the world goes on without a suspended machine. What is compared with a token or a record, or shown to people, uses [`Clock::now`], which an administrator, NTP or a resumed
//! machine may set.

#![expect(clippy::disallowed_methods, reason = "the home of the wall clock")]

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
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

    /// Whether this time is more than `leeway` after `now`: written by a clock that was ahead, or that was set back since.
    /// In whole seconds, as tokens count them.
    pub fn is_ahead_of(self, now: Timestamp, leeway: Duration) -> bool {
        self.seconds() > now.plus(leeway).seconds()
    }

    /// Parses a time such as `2026-01-02T03:04:05Z` or `2026-01-02T11:04:05+08:00` (RFC 3339).
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let moment = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()?;
        i64::try_from(moment.unix_timestamp_nanos().div_euclid(1_000_000)).ok().map(Self)
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

/// How far a time in a record may be ahead of the clock. Clocks are set back by less in everyday use.
pub const RECORD_LEEWAY: Duration = Duration::from_secs(30);

/// The injected clock. Clones share their offsets, which tests can move.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    offsets: Arc<ClockOffsets>,
}

/// How far tests have moved a clock, in milliseconds. Zero in production.
#[derive(Debug, Default)]
struct ClockOffsets {
    wall: AtomicI64,
    running: AtomicU64,
    suspended: AtomicU64,
}

/// The clock that also counts the time in which the machine was suspended. Elsewhere than on Linux the monotonic one does.
#[cfg(target_os = "linux")]
const UPTIME: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const UPTIME: ClockId = ClockId::CLOCK_MONOTONIC;

impl Clock {
    /// The system clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// The current time. A system clock before 1970 counts as 1970, which makes every token invalid.
    pub fn now(&self) -> Timestamp {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = i64::try_from(machine.as_millis()).unwrap_or(i64::MAX);
        Timestamp(millis.saturating_add(self.offsets.wall.load(Ordering::Relaxed)))
    }

    /// The current time in nanoseconds since 1970, for spans, whose order within a millisecond matters.
    pub fn unix_nanos(&self) -> u64 {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = i64::try_from(machine.as_nanos()).unwrap_or(i64::MAX);
        let offset = self.offsets.wall.load(Ordering::Relaxed).saturating_mul(1_000_000);
        u64::try_from(nanos.saturating_add(offset)).unwrap_or(0)
    }

    /// Monotonic time since the first call in this process. It stands still while the machine is suspended.
    pub fn running(&self) -> Duration {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        STARTED.elapsed() + Duration::from_millis(self.offsets.running.load(Ordering::Relaxed))
    }

    /// Monotonic time since the machine was started, in which it may have been suspended.
    pub fn uptime(&self) -> Duration {
        // The system has this clock, or never had it: then suspensions are found by `app::clock_watch` alone.
        let machine = clock_gettime(UPTIME).map_or_else(|_| self.running(), Duration::from);
        let moved = self.offsets.running.load(Ordering::Relaxed) + self.offsets.suspended.load(Ordering::Relaxed);
        machine + Duration::from_millis(moved)
    }

    /// Waits until the wall clock reaches `end`, also if it is set back meanwhile. If it is set forward, the wait may end
    /// late: `app::clock_watch` finds what a jump has ended.
    pub async fn sleep_until(&self, end: Timestamp) {
        loop {
            let left = self.now().until(end);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Moves this clock and its clones forward: time passes.
    pub fn advance(&self, span: Duration) {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        self.offsets.wall.fetch_add(millis, Ordering::Relaxed);
        self.offsets.running.fetch_add(millis.unsigned_abs(), Ordering::Relaxed);
    }

    /// Suspends the machine of this clock and its clones.
    pub fn suspend(&self, span: Duration) {
        self.set_forward(span);
        self.offsets.suspended.fetch_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Sets the wall clock of this clock and its clones forward: no time passes.
    pub fn set_forward(&self, span: Duration) {
        self.offsets.wall.fetch_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Sets the wall clock of this clock and its clones back.
    pub fn set_back(&self, span: Duration) {
        self.offsets.wall.fetch_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_with_their_offset() {
        let table = [
            ("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:05.000Z")),
            ("2026-01-02T11:04:05.678+08:00", Some("2026-01-02T03:04:05.678Z")),
            ("2026-01-02", None),
            ("2026-01-02T03:04:05", None),
            ("yesterday", None),
        ];
        for (text, expected) in table {
            assert_eq!(Timestamp::parse_rfc3339(text).map(Timestamp::iso8601).as_deref(), expected, "{text}");
        }
    }
}
