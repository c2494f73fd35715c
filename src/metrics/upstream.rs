//! The metrics of one upstream, with their labels resolved.

use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::Metrics;

/// The metrics of one upstream.
pub struct UpstreamMetrics {
    name: String,
    pub(crate) seconds: Histogram,
    pub(crate) retries: IntCounter,
    pub(crate) ejections: IntCounter,
    failures: IntCounterVec,
}

impl UpstreamMetrics {
    pub(super) fn resolve(metrics: &Metrics, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            seconds: metrics.upstream_seconds.with_label_values(&[name]),
            retries: metrics.upstream_retries.with_label_values(&[name]),
            ejections: metrics.upstream_ejections.with_label_values(&[name]),
            failures: metrics.upstream_failures.clone(),
        }
    }

    /// Counts a failed attempt.
    pub(crate) fn count_failure(&self, reason: &str) {
        self.failures.with_label_values(&[self.name.as_str(), reason]).inc();
    }
}
