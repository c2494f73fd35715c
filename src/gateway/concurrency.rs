//! Limits how many requests are carried at once while the gateway is saturated. Each request in progress occupies memory,
//! and with thousands of them every step of each waits for that memory: the same cores then answer half as many. So a
//! request waits until one before it has ended. It has cost next to nothing by then: at most its head has been read.
//!
//! What waits for a slow upstream or a slow client needs no core. Requests therefore count only while they are young, and
//! the limit grows as long as requests wait although a core is idle.
//!
//! Readiness and sign-in do not wait: a load balancer that gets no answer takes the gateway out, and an employee who cannot
//! sign in cannot work at all. A request that would wait for too long is refused at once, and so is every one while memory
//! is short.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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

/// How long a request waits before it is read, so that an urgent one is recognized.
const LONGEST_UNREAD_WAIT: Duration = Duration::from_millis(100);

/// How long the turns are counted before the number of requests that may wait follows from them.
const TURN_COUNT_INTERVAL: Duration = Duration::from_millis(500);

/// The share of the requests that each thread always carries which urgent ones may add.
const URGENT_SHARE: usize = 4;

/// Whether a request may go before others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    Normal,
    /// Readiness and sign-in.
    Urgent,
}

impl Urgency {
    /// The urgency of a request for this path.
    pub(super) fn of(path: &[u8]) -> Self {
        const URGENT: [&[u8]; 3] = [b"/api/ready", b"/api/auth/", b"/api/agents/login"];
        if URGENT.iter().any(|prefix| path.starts_with(prefix)) { Self::Urgent } else { Self::Normal }
    }
}

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
    /// How many may wait: as many as can begin in time.
    most_waiting: AtomicUsize,
    /// How many that waited have had their turn.
    turns_taken: AtomicU64,
    /// The urgent requests in progress that did not wait.
    urgent: AtomicUsize,
    /// Whether memory is short. The limit is 0 then, so that requests that have room need not look.
    short_of_memory: AtomicBool,
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
pub(super) struct ConcurrencySlot<'a> {
    /// When the request began.
    pub(super) began: std::time::Instant,
    limit: &'a ConcurrencyLimit,
    period: u64,
    urgency: Urgency,
}

impl Drop for ConcurrencySlot<'_> {
    fn drop(&mut self) {
        self.limit.period(self.period).end(self.period);
        if self.urgency == Urgency::Urgent {
            self.limit.urgent.fetch_sub(1, Ordering::AcqRel);
        }
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
            most_waiting: AtomicUsize::new(usize::MAX),
            turns_taken: AtomicU64::new(0),
            urgent: AtomicUsize::new(0),
            short_of_memory: AtomicBool::new(false),
            turns: Semaphore::new(0),
            needs_adjusting: Notify::new(),
        }
    }

    /// Begins a request as soon as there is room for it, in the order of the calls. Two calls at the same moment may
    /// exceed the limit by one. `urgency` is only asked for if the request would have to wait.
    pub(super) async fn begin(&self, urgency: impl FnOnce() -> Urgency) -> Result<ConcurrencySlot<'_>, Saturated> {
        let mut began = Instant::now();
        let mut period = self.period_at(began);
        let young = self.young(period);
        let is_waiting = self.waiting.load(Ordering::Acquire) > 0;
        let mut begins_as = Urgency::Normal;
        if young >= self.limit.load(Ordering::Relaxed) || is_waiting {
            if urgency() == Urgency::Urgent && self.has_room_for_urgent() {
                begins_as = Urgency::Urgent;
            } else {
                self.wait().await?;
                began = Instant::now();
                period = self.period_at(began);
            }
        } else if young >= self.least {
            self.needs_adjusting.notify_one();
        }
        self.period(period).begin(period);
        Ok(ConcurrencySlot { began: began.into_std(), limit: self, period, urgency: begins_as })
    }

    /// Begins a request that has not been read behind those that wait. None if none does, or not soon: then it must be read,
    /// because it may be urgent.
    pub(super) async fn begin_if_others_wait(&self) -> Option<ConcurrencySlot<'_>> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let begun = tokio::time::timeout(LONGEST_UNREAD_WAIT, self.begin(|| Urgency::Normal)).await;
        begun.ok().and_then(Result::ok)
    }

    /// Counts an urgent request, unless there are too many: no client may take all cores with them.
    fn has_room_for_urgent(&self) -> bool {
        let others = self.urgent.fetch_add(1, Ordering::AcqRel);
        let has_room = others < self.least / URGENT_SHARE;
        if !has_room {
            self.urgent.fetch_sub(1, Ordering::AcqRel);
        }
        has_room
    }

    async fn wait(&self) -> Result<(), Saturated> {
        let is_hopeless = self.waiting.load(Ordering::Acquire) >= self.most_waiting.load(Ordering::Relaxed);
        if is_hopeless || self.short_of_memory.load(Ordering::Acquire) {
            return Err(Saturated);
        }
        let _waiting = Waiting::begin(&self.waiting);
        // Adjusting also begins a request that came too late to be woken by the end of another.
        self.needs_adjusting.notify_one();
        let turn = tokio::time::timeout(LONGEST_WAIT, self.turns.acquire()).await;
        let turn = turn.map_err(|_| Saturated)?.map_err(|_| Saturated)?;
        turn.forget();
        self.turns_taken.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn current_period(&self) -> u64 {
        self.period_at(Instant::now())
    }

    fn period_at(&self, moment: Instant) -> u64 {
        // Shifted, so that the places of the periods before the first count as old.
        (moment.duration_since(self.started).as_millis() / PERIOD.as_millis()) as u64 + YOUNG_PERIODS
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
            let mut turns = TurnCount::of(&self);
            while self.may_be_reached() {
                tokio::time::sleep(ADJUST_INTERVAL).await;
                let busy = BusyTime::of(&runtime);
                self.adjust(busy.is_saturated_since(&earlier));
                earlier = busy;
                if turns.at.elapsed() >= TURN_COUNT_INTERVAL {
                    self.most_waiting.store(turns.possible_in_time(&self), Ordering::Relaxed);
                    turns = TurnCount::of(&self);
                }
            }
            self.most_waiting.store(usize::MAX, Ordering::Relaxed);
        }
    }

    fn may_be_reached(&self) -> bool {
        self.young(self.current_period()) >= self.least || self.waiting.load(Ordering::Acquire) > 0
    }

    /// Refuses all requests but urgent ones while memory is short.
    pub(crate) fn set_short_of_memory(&self, is_short: bool) {
        let was_short = self.short_of_memory.swap(is_short, Ordering::AcqRel);
        if is_short {
            // At every call: an adjustment that had begun before may have raised it again.
            self.limit.store(0, Ordering::Relaxed);
        } else if was_short {
            self.limit.store(self.least, Ordering::Relaxed);
        }
    }

    /// Adjusts the limit to what happened since the last call, and begins what has room now.
    fn adjust(&self, is_saturated: bool) {
        if self.short_of_memory.load(Ordering::Acquire) {
            return;
        }
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

/// How many requests have had their turn at one moment.
struct TurnCount {
    at: Instant,
    taken: u64,
}

impl TurnCount {
    fn of(limit: &ConcurrencyLimit) -> Self {
        Self { at: Instant::now(), taken: limit.turns_taken.load(Ordering::Relaxed) }
    }

    /// How many can have their turn within [`LONGEST_WAIT`] if it goes on like since then.
    fn possible_in_time(&self, limit: &ConcurrencyLimit) -> usize {
        let taken = limit.turns_taken.load(Ordering::Relaxed) - self.taken;
        let possible = u128::from(taken) * LONGEST_WAIT.as_millis() / self.at.elapsed().as_millis().max(1);
        usize::try_from(possible).unwrap_or(usize::MAX).max(limit.least)
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
