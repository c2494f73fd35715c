//! Bounds the retries of an upstream: if most requests fail, retries would only double its load.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::moment::Moment;

/// How many retries a second are always allowed, so that a few requests are worth their retries.
const ALWAYS: f64 = 10.0;

/// The most retries that can be saved up.
const MOST: f64 = 1000.0;

/// A token bucket that fills with requests and with time. Only retries touch it.
#[derive(Debug)]
pub(super) struct RetryBudget {
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    retries: f64,
    /// When and at which request it was last filled.
    filled: Moment,
    requests: u64,
}

impl RetryBudget {
    pub(super) fn new(now: Moment) -> Self {
        Self { bucket: Mutex::new(Bucket { retries: ALWAYS, filled: now, requests: 0 }) }
    }

    /// Takes a retry out of the budget, which has `percent` retries per hundred requests.
    pub(super) fn spend(&self, percent: u32, requests: u64, now: Moment) -> BudgetVerdict {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        #[allow(clippy::cast_precision_loss)] // the order of magnitude suffices
        let earned = requests.saturating_sub(bucket.requests) as f64 * f64::from(percent) / 100.0;
        let elapsed: Duration = now.since(bucket.filled);
        let retries = (bucket.retries + earned + elapsed.as_secs_f64() * ALWAYS).min(MOST);
        let verdict = if retries < 1.0 { BudgetVerdict::Exhausted } else { BudgetVerdict::Granted };
        let spent = if verdict == BudgetVerdict::Granted { 1.0 } else { 0.0 };
        *bucket = Bucket { retries: retries - spent, filled: now.max(bucket.filled), requests };
        verdict
    }
}

/// Whether a retry is within the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BudgetVerdict {
    Granted,
    Exhausted,
}

#[cfg(test)]
mod tests;
