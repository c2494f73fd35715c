//! Rate-limit counters of one explanation, in which all requests come at the same instant.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::rate::{Charged, Counters, RateKey, Window};

/// Counts requests of one instant. No time passes, so a count never falls.
#[derive(Debug, Default)]
pub(super) struct FixedTimeCounters(Mutex<HashMap<RateKey, u32>>);

impl Counters for FixedTimeCounters {
    fn charge(&self, key: RateKey, window: Window, _: Duration) -> Charged {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key).or_default();
        if *count >= window.limit {
            return Charged::Refused { retry_after: window.per };
        }
        *count += 1;
        Charged::Admitted { left: window.limit - *count }
    }

    fn refund(&self, key: RateKey, _: Window, _: Duration) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&key) {
            *count = count.saturating_sub(1);
        }
    }

    fn sweep(&self, _: Duration) {}

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
