//! The metrics of traces.

use prometheus::{IntCounter, IntCounterVec};

/// What became of the spans of sampled requests.
#[derive(Debug, Clone)]
pub struct TraceMetrics {
    /// The collector has taken them.
    pub exported: IntCounter,
    /// The collector did not want them.
    pub rejected: IntCounter,
    /// The collector could not be reached, or failed.
    pub failed: IntCounter,
    /// The collector was too slow.
    pub queue_full: IntCounter,
}

impl TraceMetrics {
    pub(super) fn resolve(family: &IntCounterVec) -> Self {
        let of = |result: &str| family.with_label_values(&[result]);
        Self { exported: of("exported"), rejected: of("rejected"), failed: of("failed"), queue_full: of("queue_full") }
    }
}
