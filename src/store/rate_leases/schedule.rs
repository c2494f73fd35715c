//! When leases are to be reviewed. Each leased key is in it once, whatever its traffic.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::domain::rate::RateKey;

/// Reviews that are due within this time are done together.
const TICK: Duration = Duration::from_millis(10);

/// The longest wait without a lease.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The leased keys by the time of their next review, in nanoseconds.
#[derive(Default)]
pub(super) struct ReviewSchedule {
    reviews: Mutex<Reviews>,
    earlier: Notify,
}

#[derive(Default)]
struct Reviews {
    by_time: BTreeSet<(u64, RateKey)>,
    by_key: HashMap<RateKey, u64>,
}

impl ReviewSchedule {
    /// Sets when a key is to be reviewed next.
    pub(super) fn insert(&self, at: u64, key: RateKey) {
        let is_first = {
            let mut reviews = self.lock();
            if let Some(before) = reviews.by_key.insert(key, at) {
                reviews.by_time.remove(&(before, key));
            }
            reviews.by_time.insert((at, key));
            reviews.by_time.first() == Some(&(at, key))
        };
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// Removes and returns what is due.
    pub(super) fn due(&self, now: u64) -> Vec<RateKey> {
        let mut reviews = self.lock();
        let later = reviews.by_time.split_off(&(now.saturating_add(1), RateKey { rate: 0, subject: 0 }));
        let due = std::mem::replace(&mut reviews.by_time, later);
        for (_, key) in &due {
            reviews.by_key.remove(key);
        }
        due.into_iter().map(|(_, key)| key).collect()
    }

    /// All keys.
    pub(super) fn keys(&self) -> Vec<RateKey> {
        self.lock().by_key.keys().copied().collect()
    }

    /// Waits until something is due.
    pub(super) async fn next_due(&self, now: u64) {
        let first = self.lock().by_time.first().map(|(at, _)| Duration::from_nanos(at.saturating_sub(now)));
        let wait = first.unwrap_or(LONGEST_WAIT).max(TICK);
        // What is inserted meanwhile may be due earlier.
        let _ = tokio::time::timeout(wait, self.earlier.notified()).await;
    }

    fn lock(&self) -> MutexGuard<'_, Reviews> {
        self.reviews.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
