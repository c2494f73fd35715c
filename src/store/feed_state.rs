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

/// Up to when the changes of the feed were applied.
#[derive(Debug)]
pub struct FeedState {
    limits: Option<FeedLimits>,
    /// [`Clock::uptime`] in nanoseconds; 0 before the first [`note_applied`](FeedState::note_applied).
    applied_at: AtomicU64,
    /// Reads that began before do not count. In nanoseconds like `applied_at`.
    forgotten_at: AtomicU64,
}

#[derive(Debug)]
struct FeedLimits {
    clock: Clock,
    stale: Duration,
    lost: Duration,
}

impl FeedState {
    /// The feed of a store within this process, which cannot fall behind.
    pub fn within_process() -> Self {
        Self { limits: None, applied_at: AtomicU64::new(0), forgotten_at: AtomicU64::new(0) }
    }

    /// A feed that is stale after `stale` without a read and lost after `lost`, and lost until
    /// [`note_applied`](Self::note_applied) is called for the first time.
    pub fn new(clock: Clock, stale: Duration, lost: Duration) -> Self {
        Self { limits: Some(FeedLimits { clock, stale, lost }), ..Self::within_process() }
    }

    /// Records that every change that was made before `at`, by [`Clock::uptime`], was applied. Called at the start, while nothing
    /// is cached, and by the task that applies the changes, for each [`Change::CaughtUp`](super::Change::CaughtUp); a store
    /// does not call it.
    pub fn note_applied(&self, at: Duration) {
        self.applied_at.fetch_max(nanos(at), Ordering::AcqRel);
    }

    /// Makes the feed as if it had never been read, because the machine may have stood still: only a read that begins
    /// from now on counts.
    pub fn forget(&self) {
        if let Some(limits) = &self.limits {
            self.forgotten_at.store(nanos(limits.clock.uptime()), Ordering::Release);
        }
    }

    /// Records that what was applied cannot be relied on: the feed is lost until the next read. Called for
    /// [`Change::Unconfirmed`](super::Change::Unconfirmed).
    pub fn note_unconfirmed(&self) {
        self.applied_at.store(0, Ordering::Release);
    }

    /// What the feed allows now. A feed within this process does not read the clock.
    pub fn trust(&self) -> FeedTrust {
        let Some(limits) = &self.limits else { return FeedTrust::Current };
        match self.age() {
            Some(age) if age <= limits.stale => FeedTrust::Current,
            Some(age) if age <= limits.lost => FeedTrust::Stale,
            Some(_) | None => FeedTrust::Lost,
        }
    }

    /// Up to how long ago every change was applied: zero within this process, `None` before the first [`note_applied`](Self::note_applied).
    pub fn age(&self) -> Option<Duration> {
        let Some(limits) = &self.limits else { return Some(Duration::ZERO) };
        let applied_at = self.applied_at.load(Ordering::Acquire);
        (applied_at > self.forgotten_at.load(Ordering::Acquire))
            .then(|| limits.clock.uptime().saturating_sub(Duration::from_nanos(applied_at)))
    }

    /// Whether the feed was forgotten so recently that its next read is not late.
    pub fn is_catching_up(&self) -> bool {
        let Some(limits) = &self.limits else { return false };
        let forgotten_at = self.forgotten_at.load(Ordering::Acquire);
        forgotten_at > 0 && limits.clock.uptime() <= Duration::from_nanos(forgotten_at) + limits.stale
    }

    /// How long the feed must stay silent until it is lost; zero if it is.
    pub fn time_left(&self) -> Duration {
        let Some(limits) = &self.limits else { return Duration::MAX };
        self.age().map_or(Duration::ZERO, |age| limits.stale.max(limits.lost).saturating_sub(age))
    }

    /// Whether the feed can fall behind.
    pub fn is_shared(&self) -> bool {
        self.limits.is_some()
    }
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_is_current_then_stale_then_lost() {
        let clock = Clock::system();
        let feed = FeedState::new(clock.clone(), Duration::from_secs(1), Duration::from_secs(30));
        assert_eq!(feed.trust(), FeedTrust::Lost, "never read");
        assert!(!feed.is_catching_up());
        feed.note_applied(clock.uptime());
        assert_eq!(feed.trust(), FeedTrust::Current);
        clock.advance(Duration::from_secs(2));
        assert_eq!(feed.trust(), FeedTrust::Stale);
        clock.advance(Duration::from_secs(29));
        assert_eq!(feed.trust(), FeedTrust::Lost);
        feed.note_applied(clock.uptime());
        assert_eq!(feed.trust(), FeedTrust::Current);
        feed.note_unconfirmed();
        assert_eq!(feed.trust(), FeedTrust::Lost);
        feed.note_applied(clock.uptime());
        assert_eq!(feed.trust(), FeedTrust::Current);
    }

    #[test]
    fn without_grace_a_stale_feed_is_lost() {
        let clock = Clock::system();
        let feed = FeedState::new(clock.clone(), Duration::from_secs(1), Duration::ZERO);
        feed.note_applied(clock.uptime());
        assert_eq!(feed.trust(), FeedTrust::Current);
        clock.advance(Duration::from_secs(2));
        assert_eq!(feed.trust(), FeedTrust::Lost);
    }

    #[test]
    fn suspended_machine_has_not_read_the_feed() {
        let clock = Clock::system();
        let feed = FeedState::new(clock.clone(), Duration::from_secs(1), Duration::from_secs(30));
        feed.note_applied(clock.uptime());
        let running = clock.running();
        clock.suspend(Duration::from_secs(3600));
        assert!(clock.running() - running < Duration::from_secs(1800), "timers stood still");
        assert_eq!(feed.trust(), FeedTrust::Lost);
    }

    #[test]
    fn forgotten_feed_is_lost_until_a_later_read() {
        let clock = Clock::system();
        let feed = FeedState::new(clock.clone(), Duration::from_secs(1), Duration::from_secs(30));
        let before = clock.uptime();
        feed.note_applied(before);
        feed.forget();
        assert_eq!((feed.trust(), feed.age()), (FeedTrust::Lost, None));
        assert!(feed.is_catching_up());
        feed.note_applied(before);
        assert_eq!(feed.trust(), FeedTrust::Lost, "the answer of a read that began before");
        clock.advance(Duration::from_secs(2));
        assert!(!feed.is_catching_up(), "the next read is late");
        feed.note_applied(clock.uptime());
        assert_eq!(feed.trust(), FeedTrust::Current);
    }

    #[test]
    fn feed_within_the_process_is_always_current() {
        let feed = FeedState::within_process();
        feed.forget();
        assert_eq!(feed.trust(), FeedTrust::Current);
    }
}
