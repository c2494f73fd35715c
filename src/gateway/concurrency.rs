//! Limits how many requests are carried at once while the gateway is saturated. Each request in progress occupies memory,
//! and with thousands of them every step of each waits for that memory: the same cores then answer half as many. So a
//! request waits until one before it has ended. It has cost next to nothing by then: at most its head has been read.
//!
//! What waits for a slow upstream or a slow client needs no core. Requests therefore count only while they are young, and
//! the limit grows as long as requests wait although a core is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::RuntimeMetrics;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// How many young requests each thread always carries: enough to keep it busy, few enough for its cache.
const PER_THREAD: usize = 64;

/// More than this is no limit.
const LARGEST: usize = 1 << 20;

/// The length of a period, and how many of them a request counts in: it is young for 60 to 80 ms.
const PERIOD: Duration = Duration::from_millis(20);
const YOUNG_PERIODS: u64 = 4;

/// How often the limit is adjusted while it may be reached.
const ADJUST_INTERVAL: Duration = Duration::from_millis(5);

/// The threads are saturated if together they were busy for this share of their time, in percent.
const SATURATED: u32 = 90;

/// How long a request waits. A client that has waited longer is told to come back.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How many requests may be in progress.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    /// The limit never falls below it.
    least: usize,
    limit: AtomicUsize,
    started: Instant,
    /// The young requests in progress by the period in which they began.
    periods: [Period; YOUNG_PERIODS as usize],
    waiting: AtomicUsize,
    /// Wakes requests in the order in which they began to wait. It holds a permit only while one is being woken.
    turns: Semaphore,
    /// Wakes the task that adjusts the limit.
    needs_adjusting: Notify,
}

/// The requests that began in one period: its number in the upper bits, how many of them are in progress in the lower.
#[derive(Debug, Default)]
struct Period(AtomicU64);

impl Period {
    /// Where the number begins. It suffices for centuries.
    const NUMBER: u32 = 24;
    const COUNT: u64 = (1 << Self::NUMBER) - 1;

    fn begin(&self, number: u64) {
        let first = number << Self::NUMBER | 1;
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |value| {
            Some(if value >> Self::NUMBER == number { value + 1 } else { first })
        });
    }

    /// Ends a request, unless the period is over and its place taken by a later one.
    fn end(&self, number: u64) {
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |value| {
            (value >> Self::NUMBER == number).then(|| value - 1)
        });
    }

    /// How many requests are in progress if the period is not older than `oldest`.
    fn count_since(&self, oldest: u64) -> usize {
        let value = self.0.load(Ordering::Acquire);
        if value >> Self::NUMBER < oldest { 0 } else { (value & Self::COUNT) as usize }
    }
}

/// A request in progress; dropping it lets the next one begin.
#[derive(Debug)]
pub(super) struct ConcurrencySlot {
    limit: Arc<ConcurrencyLimit>,
    period: u64,
}

impl Drop for ConcurrencySlot {
    fn drop(&mut self) {
        self.limit.period(self.period).end(self.period);
        if self.limit.waiting.load(Ordering::Acquire) > 0 {
            self.limit.wake_next();
        }
    }
}

/// The gateway cannot serve a request in time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Saturated;

/// A request that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::AcqRel);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ConcurrencyLimit {
    pub(crate) fn new(threads: usize) -> Self {
        let least = PER_THREAD * threads.max(1);
        Self {
            least,
            limit: AtomicUsize::new(least),
            started: Instant::now(),
            periods: Default::default(),
            waiting: AtomicUsize::new(0),
            turns: Semaphore::new(0),
            needs_adjusting: Notify::new(),
        }
    }

    /// Begins a request as soon as there is room for it, in the order of the calls. Two calls at the same moment may
    /// exceed the limit by one.
    pub(super) async fn begin(self: &Arc<Self>) -> Result<ConcurrencySlot, Saturated> {
        let mut period = self.current_period();
        let young = self.young(period);
        let is_waiting = self.waiting.load(Ordering::Acquire) > 0;
        if young >= self.limit.load(Ordering::Relaxed) || is_waiting {
            self.wait().await?;
            period = self.current_period();
        } else if young >= self.least {
            self.needs_adjusting.notify_one();
        }
        self.period(period).begin(period);
        Ok(ConcurrencySlot { limit: self.clone(), period })
    }

    /// Begins a request behind those that wait; None if none does.
    pub(super) async fn begin_if_others_wait(self: &Arc<Self>) -> Option<ConcurrencySlot> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.begin().await.ok()
    }

    async fn wait(&self) -> Result<(), Saturated> {
        let _waiting = Waiting::begin(&self.waiting);
        // Adjusting also begins a request that came too late to be woken by the end of another.
        self.needs_adjusting.notify_one();
        let turn = tokio::time::timeout(LONGEST_WAIT, self.turns.acquire()).await;
        let turn = turn.map_err(|_| Saturated)?.map_err(|_| Saturated)?;
        turn.forget();
        Ok(())
    }

    fn current_period(&self) -> u64 {
        // Shifted, so that the places of the periods before the first count as old.
        (self.started.elapsed().as_millis() / PERIOD.as_millis()) as u64 + YOUNG_PERIODS
    }

    fn period(&self, number: u64) -> &Period {
        &self.periods[(number % YOUNG_PERIODS) as usize]
    }

    /// The young requests in progress in a period.
    fn young(&self, current: u64) -> usize {
        let oldest = current - (YOUNG_PERIODS - 1);
        self.periods.iter().map(|period| period.count_since(oldest)).sum()
    }

    fn wake_next(&self) {
        if self.turns.available_permits() == 0 && self.young(self.current_period()) < self.limit.load(Ordering::Relaxed)
        {
            self.turns.add_permits(1);
        }
    }

    /// Adjusts the limit for as long as the process runs.
    pub(crate) async fn adjust_forever(self: Arc<Self>) {
        let runtime = tokio::runtime::Handle::current().metrics();
        loop {
            self.needs_adjusting.notified().await;
            let mut earlier = BusyTime::of(&runtime);
            while self.may_be_reached() {
                tokio::time::sleep(ADJUST_INTERVAL).await;
                let busy = BusyTime::of(&runtime);
                self.adjust(busy.is_saturated_since(&earlier));
                earlier = busy;
            }
        }
    }

    fn may_be_reached(&self) -> bool {
        self.young(self.current_period()) >= self.least || self.waiting.load(Ordering::Acquire) > 0
    }

    /// Adjusts the limit to what happened since the last call, and begins what has room now.
    fn adjust(&self, is_saturated: bool) {
        let limit = self.limit.load(Ordering::Relaxed);
        let waiting = self.waiting.load(Ordering::Acquire);
        let adjusted = if is_saturated {
            limit - limit / 8
        } else if waiting > 0 {
            limit * 2
        } else {
            limit
        };
        let adjusted = adjusted.clamp(self.least, LARGEST);
        self.limit.store(adjusted, Ordering::Relaxed);
        // Requests that are no longer young make room without ending.
        let room = adjusted.saturating_sub(self.young(self.current_period())).min(waiting);
        self.turns.add_permits(room.saturating_sub(self.turns.available_permits()));
    }
}

/// How long the threads of the runtime have been busy at one moment.
struct BusyTime {
    at: Instant,
    busy: Vec<Duration>,
}

impl BusyTime {
    fn of(runtime: &RuntimeMetrics) -> Self {
        let busy = (0..runtime.num_workers()).map(|worker| runtime.worker_total_busy_duration(worker)).collect();
        Self { at: Instant::now(), busy }
    }

    /// Whether all threads together have had next to no idle time.
    fn is_saturated_since(&self, earlier: &BusyTime) -> bool {
        let busy: Duration = self.busy.iter().zip(&earlier.busy).map(|(now, then)| now.saturating_sub(*then)).sum();
        let threads = u32::try_from(self.busy.len()).unwrap_or(u32::MAX);
        busy * 100 >= (self.at - earlier.at) * threads * SATURATED
    }
}

#[cfg(test)]
mod tests;
