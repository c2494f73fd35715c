//! How current the change feed of a store is. The session cache may be used only while it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::domain::clock::Clock;

/// What the change feed allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FeedTrust {
    /// Every change up to a moment ago was applied: cached sessions are used.
    Current,
    /// The feed has not been read for `store.feed_stale`: the store is asked about each request. While it cannot answer,
    /// cached sessions are used.
    Stale,
    /// The feed has not been read for `store.outage_grace`: only the store's own answer counts.
    Lost,
}

/// When the change feed was last read to its end.
#[derive(Debug)]
pub struct FeedState {
    limits: Option<FeedLimits>,
    /// [`Clock::running`] in nanoseconds; 0 before the first read.
    read_at: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct FeedLimits {
    stale: Duration,
    lost: Duration,
}

impl FeedState {
    /// The feed of a store within this process, which cannot fall behind.
    pub fn within_process() -> Self {
        Self { limits: None, read_at: AtomicU64::new(0) }
    }

    /// A feed that is stale after `stale` without a read and lost after `lost`, and lost until the first read.
    pub fn new(stale: Duration, lost: Duration) -> Self {
        Self { limits: Some(FeedLimits { stale, lost }), read_at: AtomicU64::new(0) }
    }

    /// Records that the feed was read to its end by a read that began at `at`.
    pub fn note_read(&self, at: Duration) {
        self.read_at.fetch_max(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).max(1), Ordering::AcqRel);
    }

    /// What the feed allows now. A feed within this process does not read the clock.
    pub fn trust(&self, clock: &Clock) -> FeedTrust {
        let Some(limits) = self.limits else { return FeedTrust::Current };
        match self.age(clock) {
            Some(age) if age <= limits.stale => FeedTrust::Current,
            Some(age) if age <= limits.lost => FeedTrust::Stale,
            Some(_) | None => FeedTrust::Lost,
        }
    }

    /// How long ago the feed was last read; `None` before the first read.
    pub fn age(&self, clock: &Clock) -> Option<Duration> {
        let read_at = self.read_at.load(Ordering::Acquire);
        (read_at > 0).then(|| clock.running().saturating_sub(Duration::from_nanos(read_at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_is_current_then_stale_then_lost() {
        let clock = Clock::system();
        let feed = FeedState::new(Duration::from_secs(1), Duration::from_secs(30));
        assert_eq!(feed.trust(&clock), FeedTrust::Lost, "never read");
        feed.note_read(clock.running());
        assert_eq!(feed.trust(&clock), FeedTrust::Current);
        clock.advance(Duration::from_secs(2));
        assert_eq!(feed.trust(&clock), FeedTrust::Stale);
        clock.advance(Duration::from_secs(29));
        assert_eq!(feed.trust(&clock), FeedTrust::Lost);
        feed.note_read(clock.running());
        assert_eq!(feed.trust(&clock), FeedTrust::Current);
    }

    #[test]
    fn without_grace_a_stale_feed_is_lost() {
        let clock = Clock::system();
        let feed = FeedState::new(Duration::from_secs(1), Duration::ZERO);
        feed.note_read(clock.running());
        assert_eq!(feed.trust(&clock), FeedTrust::Current);
        clock.advance(Duration::from_secs(2));
        assert_eq!(feed.trust(&clock), FeedTrust::Lost);
    }

    #[test]
    fn feed_within_the_process_is_always_current() {
        let clock = Clock::system();
        clock.advance(Duration::from_secs(3600));
        assert_eq!(FeedState::within_process().trust(&clock), FeedTrust::Current);
    }
}
