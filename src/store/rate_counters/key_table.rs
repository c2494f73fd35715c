//! A bounded table of the states of keys, for requests of many threads.
//!
//! Access to a known key costs one lookup, a lock that only requests of the same key share, and no allocation. New
//! keys, evictions and sweeps share one more lock, that of the key index; a known key never waits for it.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use papaya::{HashMap, HashMapRef};

use crate::domain::rate::RateKey;

/// The most keys that memory is reserved for at start.
const MAX_RESERVED_KEYS: usize = 1 << 20;

/// The number of random keys among which the one to evict is chosen.
const EVICTION_SAMPLE: usize = 8;

/// The number of keys that a sweep visits before it releases the key index to waiting requests.
const SWEEP_BATCH: usize = 64;

/// What is kept of a key. All times are nanoseconds.
pub(in crate::store) trait KeyedState {
    /// Whether nothing is lost without it.
    fn is_idle(&self, now: u64) -> bool;

    /// What is lost by its eviction.
    fn eviction_cost(&self, now: u64) -> EvictionCost;
}

/// What is lost with an evicted state; compared field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store) struct EvictionCost {
    pub(in crate::store) charges: u64,
    pub(in crate::store) newest: u64,
}

impl EvictionCost {
    const MIN: Self = Self { charges: 0, newest: 0 };
    const MAX: Self = Self { charges: u64::MAX, newest: u64::MAX };
}

/// The states of at most `max_keys` keys.
pub(in crate::store) struct KeyTable<T> {
    pub(super) entries: HashMap<CompactKey, KeyEntry<T>>,
    pub(super) index: Mutex<KeyIndex>,
    max_keys: usize,
}

/// The keys of the map in a list, from which random ones can be drawn for eviction. Every insertion and removal holds
/// this lock, so that map and list agree.
#[derive(Debug)]
pub(super) struct KeyIndex {
    pub(super) keys: Vec<CompactKey>,
    /// The state of the generator that draws samples. They are random because keys that arrive together are adjacent.
    random: u64,
}

/// A [`RateKey`] without the padding of a `u128`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CompactKey {
    rate: u64,
    high: u64,
    low: u64,
}

impl From<RateKey> for CompactKey {
    fn from(key: RateKey) -> Self {
        Self { rate: key.rate, high: (key.subject >> 64) as u64, low: key.subject as u64 }
    }
}

impl<T: KeyedState> KeyTable<T> {
    /// A table for at most `max_keys` keys, and at least one.
    pub(in crate::store) fn new(max_keys: usize) -> Self {
        let random = RandomState::new().hash_one(max_keys);
        // Reserved at start, so that no request waits while a table grows. The kernel provides the pages on first use.
        let reserved = max_keys.min(MAX_RESERVED_KEYS);
        let index = Mutex::new(KeyIndex { keys: Vec::with_capacity(reserved), random });
        Self { entries: HashMap::with_capacity(reserved), index, max_keys: max_keys.max(1) }
    }

    /// Changes the state of a key, if there is one.
    pub(in crate::store) fn with<R>(&self, key: RateKey, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.entries.pin().get(&CompactKey::from(key)).and_then(|entry| entry.with(change))
    }

    /// Changes the state of a key. That of a new key begins with `new`, and is not stored if it is idle afterwards.
    pub(in crate::store) fn with_or_new<R>(
        &self,
        key: RateKey,
        now: u64,
        new: impl FnOnce() -> T,
        mut change: impl FnMut(&mut T) -> R,
    ) -> R {
        let key = CompactKey::from(key);
        let entries = self.entries.pin();
        let known = entries.get(&key).and_then(|entry| entry.with(&mut change));
        known.unwrap_or_else(|| self.insert(&entries, key, now, new, change))
    }

    /// Changes the state of a key that was not in the map a moment ago.
    fn insert<R>(
        &self,
        entries: &PinnedEntries<'_, T>,
        key: CompactKey,
        now: u64,
        new: impl FnOnce() -> T,
        mut change: impl FnMut(&mut T) -> R,
    ) -> R {
        let mut index = lock(&self.index);
        // Another request may have inserted it. While the index is locked, it cannot be evicted again.
        if let Some(result) = entries.get(&key).and_then(|entry| entry.with(&mut change)) {
            return result;
        }
        let mut state = new();
        let result = change(&mut state);
        if !state.is_idle(now) {
            if index.keys.len() < self.max_keys {
                index.keys.push(key);
            } else {
                let position = index.choose_eviction(entries, now);
                let evicted = std::mem::replace(&mut index.keys[position], key);
                if let Some(entry) = entries.get(&evicted) {
                    entry.retire();
                }
                entries.remove(&evicted);
            }
            entries.insert(key, KeyEntry::new(state));
        }
        result
    }

    /// Removes the keys that are idle at `now`.
    pub(in crate::store) fn sweep(&self, now: u64) {
        let mut position = 0;
        loop {
            let entries = self.entries.pin();
            let mut index = lock(&self.index);
            for _ in 0..SWEEP_BATCH {
                let Some(&key) = index.keys.get(position) else { return };
                if entries.get(&key).is_none_or(|entry| entry.retire_if_idle(now)) {
                    entries.remove(&key);
                    // The last key takes this position and is visited next.
                    index.keys.swap_remove(position);
                } else {
                    position += 1;
                }
            }
            drop((entries, index));
            std::thread::yield_now();
        }
    }

    /// The number of keys.
    pub(in crate::store) fn len(&self) -> usize {
        self.entries.len()
    }
}

type PinnedEntries<'a, T> = HashMapRef<'a, CompactKey, KeyEntry<T>, RandomState, papaya::LocalGuard<'a>>;

impl KeyIndex {
    /// The position of the key in a small sample that loses least by eviction: the one with the fewest charges, of
    /// those the one that was not used for the longest time. The index is not empty.
    fn choose_eviction<T: KeyedState>(&mut self, entries: &PinnedEntries<'_, T>, now: u64) -> usize {
        let mut cheapest = (EvictionCost::MAX, 0);
        for _ in 0..EVICTION_SAMPLE {
            let position = self.random_below(self.keys.len());
            let entry = entries.get(&self.keys[position]);
            let cost = entry.map_or(EvictionCost::MIN, |entry| entry.eviction_cost(now));
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

/// The state of one key. It is gone once the entry has left the map: a request that still refers to it goes back to
/// the map, so that later requests see what it changes.
#[derive(Debug)]
pub(super) struct KeyEntry<T>(pub(super) Mutex<Option<T>>);

impl<T: KeyedState> KeyEntry<T> {
    fn new(state: T) -> Self {
        Self(Mutex::new(Some(state)))
    }

    /// Changes the state; None if the entry has left the map.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        lock(&self.0).as_mut().map(change)
    }

    fn eviction_cost(&self, now: u64) -> EvictionCost {
        lock(&self.0).as_ref().map_or(EvictionCost::MIN, |state| state.eviction_cost(now))
    }

    fn retire(&self) {
        *lock(&self.0) = None;
    }

    /// Retires the entry if it is idle; returns whether it is retired.
    fn retire_if_idle(&self, now: u64) -> bool {
        let mut state = lock(&self.0);
        state.take_if(|state| state.is_idle(now));
        state.is_none()
    }
}

/// Locks a mutex also after a panic: states are never left half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
