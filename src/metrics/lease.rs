//! The metrics of leases of shared rate limits.

use prometheus::{IntCounter, IntCounterVec};

/// What the store answered when it was asked for a share of a rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum LeaseResult {
    /// More than before, or a single request.
    Granted,
    /// The same share for longer.
    Renewed,
    /// Less than needed: the limit is used up, or others need their part.
    Refused,
    /// A share was given back.
    Returned,
    /// Nothing: it did not answer in time.
    Failed,
}

impl LeaseResult {
    const NAMES: [&'static str; 5] = ["granted", "renewed", "refused", "returned", "failed"];
}

/// Counts the questions to the store, by result.
#[derive(Debug)]
pub struct LeaseMetrics([IntCounter; LeaseResult::NAMES.len()]);

impl LeaseMetrics {
    pub(super) fn resolve(counters: &IntCounterVec) -> Self {
        Self(LeaseResult::NAMES.map(|name| counters.with_label_values(&[name])))
    }

    /// Counts one question.
    pub fn count(&self, result: LeaseResult) {
        self.0[result as usize].inc();
    }

    /// How many questions were asked.
    pub fn total(&self) -> u64 {
        self.0.iter().map(IntCounter::get).sum()
    }
}
