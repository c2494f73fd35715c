//! In-memory rate-limit counters of this process: one sliding window per key, with a bound on the number of keys. Which
//! keys a request is charged to is left to `rules::rate`; counting within one window to [`sliding_window`].
//!
//! A charge of a known key costs one lookup, a lock that only requests of the same key share, and no allocation: see
//! [`key_table`].
//!
//! Memory: a key and its counter are one allocation of 256 bytes; with the tables around it a key takes 320 to 350
//! (measured with 100,000 keys). When `max_keys` is reached, a new key evicts one with few charges. An attacker who
//! invents keys therefore evicts other invented keys, which have one charge each, and not those near their limit. An
//! evicted key starts from zero.

use std::time::Duration;

use crate::domain::rate::{Charged, Counters, RateKey, Window};

pub(super) mod key_table;

pub(super) mod sliding_window;

use key_table::{EvictionCost, KeyTable, KeyedState};
use sliding_window::{SlidingWindow, nanoseconds};

/// How late a request may be charged after its timestamp without missing charges that a sweep has removed.
const MAX_LATENESS: Duration = Duration::from_secs(1);

/// Rate-limit counters in the memory of this process.
pub struct InMemoryRateCounters(KeyTable<SlidingWindow>);

impl InMemoryRateCounters {
    /// Counters for at most `max_keys` keys, and at least one.
    pub fn new(max_keys: usize) -> Self {
        Self(KeyTable::new(max_keys))
    }
}

impl Counters for InMemoryRateCounters {
    fn charge(&self, key: RateKey, window: Window, now: Duration) -> Charged {
        let now = nanoseconds(now);
        // A refused charge is not counted, so nothing is stored of a key that is refused at once.
        self.0.with_or_new(key, now, || SlidingWindow::new(now), |counted| counted.charge(window, now))
    }

    fn refund(&self, key: RateKey, _window: Window, at: Duration) {
        self.0.with(key, |counted| counted.refund(nanoseconds(at)));
    }

    fn sweep(&self, now: Duration) {
        if let Some(now) = now.checked_sub(MAX_LATENESS) {
            self.0.sweep(nanoseconds(now));
        }
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl KeyedState for SlidingWindow {
    fn is_idle(&self, now: u64) -> bool {
        self.count(now) == 0
    }

    fn eviction_cost(&self, now: u64) -> EvictionCost {
        EvictionCost { charges: self.count(now), newest: self.newest() }
    }
}

#[cfg(test)]
mod tests;
