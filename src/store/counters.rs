//! How much each client has used of its rates, in memory.
//!
//! A charge of a known key costs one lookup, a lock that only requests of the same key share, and no
//! allocation. New keys, evictions and sweeps share one more lock, the roster's; a known key never
//! waits for it.
//!
//! A counter keeps the admissions as a few runs, each with its count and the time of its *last* one.
//! A whole run counts until that last one has fallen out of the window, so no window of any start
//! ever admits more than the limit. Rejected: a token bucket admits up to twice the limit in some
//! windows, fixed windows do too, and a full log takes memory as large as the limit. Slots of atomics
//! without a lock were rejected because racing requests at the edge refuse each other there.
//!
//! Memory: a key and its counter are one allocation of 256 bytes; with the tables around it a key takes
//! 320 to 350 (measured with 100,000). There are never more than `most_keys`: whoever invents keys
//! pushes out other invented keys, which have one charge each, and not those that are close to their
//! limit. A key that is pushed out starts anew.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use papaya::{HashMap, HashMapRef};

use crate::domain::rate::{Charged, Counters, RateKey, Window};

/// Runs that a counter remembers. A limit below this is counted exactly.
const RUNS: usize = 16;

/// A run of a larger limit is shorter than this part of the window, which is by how much too long a charge
/// may count. Fifteen of them touch any window; the sixteenth is for requests that are a little late.
const RUNS_IN_WINDOW: u64 = RUNS as u64 - 2;

/// Most keys that room is made for before they come.
const MOST_ROOM: usize = 1 << 20;

/// Keys looked at to find one to evict.
const SAMPLE: usize = 8;

/// Keys swept before new ones are let in between.
const SWEPT_AT_ONCE: usize = 64;

/// How long after its time a request may come and still find all that it must be counted with, whatever was swept.
const LATENESS: Duration = Duration::from_secs(1);

/// Counters of this process alone.
pub struct InMemory {
    counters: HashMap<HeldKey, Counter>,
    roster: Mutex<Roster>,
    most_keys: usize,
}

/// The keys in the map, in places: to find one to evict without a look at all of them. Whoever puts a key into
/// the map or takes one out holds the roster meanwhile, so that the two are always the same.
#[derive(Debug)]
struct Roster {
    keys: Vec<HeldKey>,
    /// Draws the samples. Random, because keys that came together have places together.
    draws: u64,
}

/// A key as it is stored: without the gap that a `u128` would leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HeldKey {
    rate: u64,
    high: u64,
    low: u64,
}

impl From<RateKey> for HeldKey {
    fn from(key: RateKey) -> Self {
        Self { rate: key.rate, high: (key.subject >> 64) as u64, low: key.subject as u64 }
    }
}

impl InMemory {
    /// Counters for at most `most_keys` keys, and for one at least.
    pub fn new(most_keys: usize) -> Self {
        let draws = RandomState::new().hash_one(most_keys);
        // Room from the start, so that nobody waits while a table is moved to a larger one. Memory is taken as it fills.
        let room = most_keys.min(MOST_ROOM);
        let roster = Mutex::new(Roster { keys: Vec::with_capacity(room), draws });
        Self { counters: HashMap::with_capacity(room), roster, most_keys: most_keys.max(1) }
    }

    /// Charges a key that was not there a moment ago.
    fn charge_new(&self, counters: &Pinned<'_>, key: HeldKey, window: Window, now: u64) -> Charged {
        let mut roster = unpoisoned(&self.roster);
        // Somebody else may have brought it. As long as the roster is held, nobody evicts it again.
        if let Some(charged) = counters.get(&key).and_then(|counter| counter.charge(window, now)) {
            return charged;
        }
        let mut runs = Runs::new(now);
        let charged = runs.charge(window, now);
        // A refusal leaves nothing to remember.
        if matches!(charged, Charged::Admitted { .. }) {
            if roster.keys.len() < self.most_keys {
                roster.keys.push(key);
            } else {
                let place = roster.lightest(counters, now);
                let evicted = std::mem::replace(&mut roster.keys[place], key);
                if let Some(counter) = counters.get(&evicted) {
                    counter.retire();
                }
                counters.remove(&evicted);
            }
            counters.insert(key, Counter(Mutex::new(runs)));
        }
        charged
    }
}

impl Counters for InMemory {
    fn charge(&self, key: RateKey, window: Window, now: Duration) -> Charged {
        let (key, now) = (HeldKey::from(key), nanoseconds(now));
        let counters = self.counters.pin();
        let known = counters.get(&key).and_then(|counter| counter.charge(window, now));
        known.unwrap_or_else(|| self.charge_new(&counters, key, window, now))
    }

    fn refund(&self, key: RateKey, _window: Window, at: Duration) {
        if let Some(counter) = self.counters.pin().get(&HeldKey::from(key)) {
            unpoisoned(&counter.0).refund(nanoseconds(at));
        }
    }

    fn sweep(&self, now: Duration) {
        let Some(now) = now.checked_sub(LATENESS).map(nanoseconds) else { return };
        let mut place = 0;
        loop {
            let counters = self.counters.pin();
            let mut roster = unpoisoned(&self.roster);
            for _ in 0..SWEPT_AT_ONCE {
                let Some(&key) = roster.keys.get(place) else { return };
                if counters.get(&key).is_none_or(|counter| counter.retire_if_idle(now)) {
                    counters.remove(&key);
                    // The last key moves here, and is looked at next.
                    roster.keys.swap_remove(place);
                } else {
                    place += 1;
                }
            }
            drop((counters, roster));
            std::thread::yield_now();
        }
    }

    fn len(&self) -> usize {
        self.counters.len()
    }
}

type Pinned<'a> = HashMapRef<'a, HeldKey, Counter, RandomState, papaya::LocalGuard<'a>>;

impl Roster {
    /// The place in a small sample whose key loses least: the one with the fewest charges, or else of those the one
    /// that was longest not used. There must be a key.
    fn lightest(&mut self, counters: &Pinned<'_>, now: u64) -> usize {
        let mut lightest = (Weight::MAX, 0);
        for _ in 0..SAMPLE {
            let place = draw(&mut self.draws, self.keys.len());
            let weight = counters.get(&self.keys[place]).map_or(Weight::MIN, |counter| counter.weight(now));
            lightest = lightest.min((weight, place));
            // Idle or invented: to look for one that loses less would be most of the cost of an attack.
            if weight.charges <= 1 {
                break;
            }
        }
        lightest.1
    }
}

/// What would be lost with a counter: the less, the smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    charges: u64,
    newest: u64,
}

impl Weight {
    const MIN: Self = Self { charges: 0, newest: 0 };
    const MAX: Self = Self { charges: u64::MAX, newest: u64::MAX };
}

/// The counter of one key. One that left the map is retired: a request that still holds it goes back to the map,
/// so that a charge is never made where the next request does not see it.
#[derive(Debug)]
struct Counter(Mutex<Runs>);

impl Counter {
    /// Charges, unless it is retired.
    fn charge(&self, window: Window, now: u64) -> Option<Charged> {
        let mut runs = unpoisoned(&self.0);
        if runs.retired { None } else { Some(runs.charge(window, now)) }
    }

    fn weight(&self, now: u64) -> Weight {
        let runs = unpoisoned(&self.0);
        Weight { charges: runs.in_window(now), newest: runs.newest() }
    }

    fn retire(&self) {
        unpoisoned(&self.0).retired = true;
    }

    fn retire_if_idle(&self, now: u64) -> bool {
        let mut runs = unpoisoned(&self.0);
        runs.retired |= runs.in_window(now) == 0;
        runs.retired
    }
}

/// The admissions of one key. All times are nanoseconds.
#[derive(Debug)]
struct Runs {
    /// The last time of each run, oldest first. They ascend; every admission is at or before its run's.
    last: [u64; RUNS],
    /// The admissions of each run: at least one, and zero where there is no run.
    counts: [u32; RUNS],
    /// How many runs there are, at most `RUNS`: every index below is smaller.
    used: u8,
    retired: bool,
    /// Whether a run was dropped to make place for another.
    dropped: bool,
    /// The length of the window at the last charge.
    per: u64,
    /// When the newest run began.
    began: u64,
    /// Admissions before this may be forgotten.
    remembered_from: u64,
}

impl Runs {
    fn new(now: u64) -> Self {
        Self {
            last: [0; RUNS],
            counts: [0; RUNS],
            used: 0,
            retired: false,
            dropped: false,
            per: 0,
            began: 0,
            remembered_from: now,
        }
    }

    fn charge(&mut self, window: Window, now: u64) -> Charged {
        let per = nanoseconds(window.per);
        if self.per != per {
            self.per = per;
            // What the old window had no need of is not held against the new one.
            self.dropped = false;
        }
        let limit = u64::from(window.limit);
        let used = self.in_window(now);
        if used >= limit || self.is_forgotten(now) {
            return Charged::Refused { retry_after: Duration::from_nanos(self.wait(used, limit, now)) };
        }
        self.add(window.limit, now);
        Charged::Admitted { left: u32::try_from(limit - used - 1).unwrap_or(u32::MAX) }
    }

    /// How many count at `now`. Those after it do too: of a request that comes late, every window that it falls
    /// into has to hold, also those that end after it.
    fn in_window(&self, now: u64) -> u64 {
        self.runs().map(|(last, count)| if self.leaves(last) > now { count } else { 0 }).sum()
    }

    /// The last time and the count of each run, oldest first.
    fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        let used = usize::from(self.used);
        self.last.iter().zip(&self.counts).take(used).map(|(&last, &count)| (last, u64::from(count)))
    }

    /// When a run with this last time stops to count.
    fn leaves(&self, last: u64) -> u64 {
        last.saturating_add(self.per)
    }

    /// Whether a run would still count at `now` that has been dropped. Only for a request that comes later than
    /// a whole run after its time.
    fn is_forgotten(&self, now: u64) -> bool {
        self.dropped && self.leaves(self.remembered_from - 1) > now
    }

    /// How long until enough runs have left for one more to fit.
    fn wait(&self, used: u64, limit: u64, now: u64) -> u64 {
        if limit == 0 {
            return self.per;
        }
        let mut free_at = if self.is_forgotten(now) { self.leaves(self.remembered_from - 1) } else { now };
        let mut too_many = (used + 1).saturating_sub(limit);
        for (last, count) in self.runs() {
            if too_many == 0 {
                break;
            }
            if self.leaves(last) > now {
                too_many = too_many.saturating_sub(count);
                free_at = free_at.max(self.leaves(last));
            }
        }
        free_at - now
    }

    /// Counts one more, in the newest run or a new one.
    fn add(&mut self, limit: u32, now: u64) {
        let longest = if limit < RUNS as u32 { 1 } else { self.per.div_ceil(RUNS_IN_WINDOW).max(1) };
        let used = usize::from(self.used);
        // With every run still counting there is no place. It happens only after the window has changed; the
        // newest run then gets longer, which errs on the safe side.
        let no_place = used == RUNS && self.leaves(self.last[0]) > now;
        // One that comes late counts as if it came with the newest, so that the times ascend.
        let is_late = now <= self.newest();
        if used > 0 && (no_place || is_late || now.saturating_sub(self.began) < longest) {
            self.counts[used - 1] = self.counts[used - 1].saturating_add(1);
            self.last[used - 1] = self.last[used - 1].max(now);
            return;
        }
        if used == RUNS {
            self.dropped = true;
            self.remembered_from = self.remembered_from.max(self.last[0] + 1);
            self.remove(0);
        }
        let place = usize::from(self.used);
        self.last[place] = now;
        self.counts[place] = 1;
        self.began = now;
        self.used += 1;
    }

    /// Takes one admission of the time `at` back. If it came late it may be in a later run than the one it is taken
    /// from; then the rest counts longer than it should, never shorter.
    fn refund(&mut self, at: u64) {
        if at < self.remembered_from {
            return;
        }
        let runs = &self.last[..usize::from(self.used)];
        let Some(place) = runs.iter().position(|&last| last >= at) else { return };
        self.counts[place] -= 1;
        if self.counts[place] == 0 {
            self.remove(place);
        }
    }

    fn remove(&mut self, place: usize) {
        self.last.copy_within(place + 1.., place);
        self.counts.copy_within(place + 1.., place);
        self.counts[RUNS - 1] = 0;
        self.used -= 1;
        if place == usize::from(self.used) {
            // Whoever comes next is a run's length after the beginning of the one that is the newest now.
            self.began = 0;
        }
    }

    /// The time of the last admission.
    fn newest(&self) -> u64 {
        self.last[..usize::from(self.used)].last().copied().unwrap_or(0)
    }
}

/// A number below `end`, by Knuth's generator: it need not be good, only different each time.
fn draw(state: &mut u64, end: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 32) as usize % end
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A counter is never left half-changed, so one that was poisoned is as good as any.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
