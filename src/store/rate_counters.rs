//! In-memory rate-limit counters of this process: one sliding window per key, with a bound on the number of keys. Which
//! keys a request is charged to is left to `rules::rate`; counting within one window to [`sliding_window`].
//!
//! A charge of a known key costs one lookup, a lock that only requests of the same key share, and no allocation. New
//! keys, evictions and sweeps share one more lock, that of the key index; a known key never waits for it.
//!
//! Memory: a key and its counter are one allocation of 256 bytes; with the tables around it a key takes 320 to 350
//! (measured with 100,000 keys). When `max_keys` is reached, a new key evicts one with few charges. An attacker who
//! invents keys therefore evicts other invented keys, which have one charge each, and not those near their limit. An
//! evicted key starts from zero.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use papaya::{HashMap, HashMapRef};

use crate::domain::rate::{Charged, Counters, RateKey, Window};

mod sliding_window;

use sliding_window::{SlidingWindow, nanoseconds};

/// The most keys that memory is reserved for at start.
const MAX_RESERVED_KEYS: usize = 1 << 20;

/// The number of random keys among which the one to evict is chosen.
const EVICTION_SAMPLE: usize = 8;

/// The number of keys that a sweep visits before it releases the key index to waiting requests.
const SWEEP_BATCH: usize = 64;

/// How late a request may be charged after its timestamp without missing charges that a sweep has removed.
const MAX_LATENESS: Duration = Duration::from_secs(1);

/// Rate-limit counters in the memory of this process.
pub struct InMemoryRateCounters {
    counters: HashMap<CompactKey, KeyCounter>,
    index: Mutex<KeyIndex>,
    max_keys: usize,
}

/// The keys of the map in a list, from which random ones can be drawn for eviction. Every insertion and removal holds
/// this lock, so that map and list agree.
#[derive(Debug)]
struct KeyIndex {
    keys: Vec<CompactKey>,
    /// The state of the generator that draws samples. They are random because keys that arrive together are adjacent.
    random: u64,
}

/// A [`RateKey`] without the padding of a `u128`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CompactKey {
    rate: u64,
    high: u64,
    low: u64,
}

impl From<RateKey> for CompactKey {
    fn from(key: RateKey) -> Self {
        Self { rate: key.rate, high: (key.subject >> 64) as u64, low: key.subject as u64 }
    }
}

impl InMemoryRateCounters {
    /// Counters for at most `max_keys` keys, and at least one.
    pub fn new(max_keys: usize) -> Self {
        let random = RandomState::new().hash_one(max_keys);
        // Reserved at start, so that no request waits while a table grows. The kernel provides the pages on first use.
        let reserved = max_keys.min(MAX_RESERVED_KEYS);
        let index = Mutex::new(KeyIndex { keys: Vec::with_capacity(reserved), random });
        Self { counters: HashMap::with_capacity(reserved), index, max_keys: max_keys.max(1) }
    }

    /// Charges a key that was not in the map a moment ago.
    fn charge_new_key(&self, counters: &PinnedCounters<'_>, key: CompactKey, window: Window, now: u64) -> Charged {
        let mut index = lock(&self.index);
        // Another request may have inserted it. While the index is locked, it cannot be evicted again.
        if let Some(charged) = counters.get(&key).and_then(|counter| counter.charge(window, now)) {
            return charged;
        }
        let mut sliding_window = SlidingWindow::new(now);
        let charged = sliding_window.charge(window, now);
        // A refused charge is not counted, so there is nothing to store.
        if matches!(charged, Charged::Admitted { .. }) {
            if index.keys.len() < self.max_keys {
                index.keys.push(key);
            } else {
                let position = index.choose_eviction(counters, now);
                let evicted = std::mem::replace(&mut index.keys[position], key);
                if let Some(counter) = counters.get(&evicted) {
                    counter.retire();
                }
                counters.remove(&evicted);
            }
            counters.insert(key, KeyCounter::new(sliding_window));
        }
        charged
    }
}

impl Counters for InMemoryRateCounters {
    fn charge(&self, key: RateKey, window: Window, now: Duration) -> Charged {
        let (key, now) = (CompactKey::from(key), nanoseconds(now));
        let counters = self.counters.pin();
        let charged = counters.get(&key).and_then(|counter| counter.charge(window, now));
        charged.unwrap_or_else(|| self.charge_new_key(&counters, key, window, now))
    }

    fn refund(&self, key: RateKey, _window: Window, at: Duration) {
        if let Some(counter) = self.counters.pin().get(&CompactKey::from(key)) {
            counter.refund(nanoseconds(at));
        }
    }

    fn sweep(&self, now: Duration) {
        let Some(now) = now.checked_sub(MAX_LATENESS).map(nanoseconds) else { return };
        let mut position = 0;
        loop {
            let counters = self.counters.pin();
            let mut index = lock(&self.index);
            for _ in 0..SWEEP_BATCH {
                let Some(&key) = index.keys.get(position) else { return };
                if counters.get(&key).is_none_or(|counter| counter.retire_if_idle(now)) {
                    counters.remove(&key);
                    // The last key takes this position and is visited next.
                    index.keys.swap_remove(position);
                } else {
                    position += 1;
                }
            }
            drop((counters, index));
            std::thread::yield_now();
        }
    }

    fn len(&self) -> usize {
        self.counters.len()
    }
}

type PinnedCounters<'a> = HashMapRef<'a, CompactKey, KeyCounter, RandomState, papaya::LocalGuard<'a>>;

impl KeyIndex {
    /// The position of the key in a small sample that loses least by eviction: the one with the fewest charges, of
    /// those the one that was not used for the longest time. The index is not empty.
    fn choose_eviction(&mut self, counters: &PinnedCounters<'_>, now: u64) -> usize {
        let mut cheapest = (EvictionCost::MAX, 0);
        for _ in 0..EVICTION_SAMPLE {
            let position = self.random_below(self.keys.len());
            let counter = counters.get(&self.keys[position]);
            let cost = counter.map_or(EvictionCost::MIN, |counter| counter.eviction_cost(now));
            cheapest = cheapest.min((cost, position));
            // An idle or invented key: a longer search would be most of the cost of an attack.
            if cost.charges <= 1 {
                break;
            }
        }
        cheapest.1
    }

    /// A number below `end` from a linear congruential generator, which is good enough for sampling.
    fn random_below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 32) as usize % end
    }
}

/// What is lost with an evicted counter; compared field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionCost {
    charges: u64,
    newest: u64,
}

impl EvictionCost {
    const MIN: Self = Self { charges: 0, newest: 0 };
    const MAX: Self = Self { charges: u64::MAX, newest: u64::MAX };
}

/// The counter of one key. It holds no window once it has left the map: a request that still refers to it goes back to
/// the map, so that later requests see its charge.
#[derive(Debug)]
struct KeyCounter(Mutex<Option<SlidingWindow>>);

impl KeyCounter {
    fn new(window: SlidingWindow) -> Self {
        Self(Mutex::new(Some(window)))
    }

    /// Charges the key; None if the counter has left the map.
    fn charge(&self, window: Window, now: u64) -> Option<Charged> {
        lock(&self.0).as_mut().map(|counted| counted.charge(window, now))
    }

    fn refund(&self, at: u64) {
        if let Some(counted) = lock(&self.0).as_mut() {
            counted.refund(at);
        }
    }

    fn eviction_cost(&self, now: u64) -> EvictionCost {
        let counted = lock(&self.0);
        counted
            .as_ref()
            .map_or(EvictionCost::MIN, |counted| EvictionCost { charges: counted.count(now), newest: counted.newest() })
    }

    fn retire(&self) {
        *lock(&self.0) = None;
    }

    /// Retires the counter if no charge counts any more; returns whether it is retired.
    fn retire_if_idle(&self, now: u64) -> bool {
        let mut counted = lock(&self.0);
        counted.take_if(|counted| counted.count(now) == 0);
        counted.is_none()
    }
}

/// Locks a mutex also after a panic: counters are never left half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
