//! The metrics of refused requests, by error code.

use std::sync::OnceLock;

use prometheus::{IntCounter, IntCounterVec};

use crate::error::Code;

/// Counts refused requests.
#[derive(Debug)]
pub struct RefusalMetrics {
    family: IntCounterVec,
    counters: [OnceLock<IntCounter>; Code::ALL.len()],
}

impl RefusalMetrics {
    /// The codes of failures begin at 0, so that an alert sees the first one.
    pub(super) fn new(family: IntCounterVec) -> Self {
        let metrics = Self { family, counters: [const { OnceLock::new() }; Code::ALL.len()] };
        for code in Code::ALL.into_iter().filter(|code| code.status().is_server_error()) {
            metrics.counter(code);
        }
        metrics
    }

    /// Counts one refusal.
    pub fn count(&self, code: Code) {
        if let Some(counter) = self.counter(code) {
            counter.inc();
        }
    }

    fn counter(&self, code: Code) -> Option<&IntCounter> {
        let index = Code::ALL.iter().position(|known| *known == code)?;
        Some(self.counters.get(index)?.get_or_init(|| self.family.with_label_values(&[&code.number().to_string()])))
    }
}
