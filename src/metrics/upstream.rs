//! The metrics of upstreams.

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::SECONDS;

/// The metrics of all upstreams, by upstream.
pub(super) struct UpstreamMetricFamilies {
    seconds: HistogramVec,
    retries: IntCounterVec,
    ejections: IntCounterVec,
    failures: IntCounterVec,
    pub(super) healthy: IntGaugeVec,
}

impl UpstreamMetricFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, labels: &[&str]| -> Result<IntCounterVec, prometheus::Error> {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let seconds = HistogramOpts::new(
            "upstream_seconds",
            "Time from choosing the upstream to its response header, by upstream, in seconds.",
        );
        let seconds = HistogramVec::new(seconds.buckets(SECONDS.to_vec()), &["upstream"])?;
        registry.register(Box::new(seconds.clone()))?;
        let healthy = IntGaugeVec::new(
            Opts::new("upstream_healthy", "1 if the address gets requests: neither unhealthy, ejected nor unresolved."),
            &["upstream", "address"],
        )?;
        registry.register(Box::new(healthy.clone()))?;
        Ok(Self {
            seconds,
            retries: counters(
                "upstream_retries_total",
                "Requests sent to another address of their upstream after a failed attempt, by upstream.",
                &["upstream"],
            )?,
            ejections: counters(
                "upstream_ejections_total",
                "Ejections of an address after failures in a row, by upstream.",
                &["upstream"],
            )?,
            failures: counters(
                "upstream_failures_total",
                "Failed attempts to reach an upstream, by upstream and reason.",
                &["upstream", "reason"],
            )?,
            healthy,
        })
    }

    pub(super) fn resolve(&self, name: &str) -> UpstreamMetrics {
        UpstreamMetrics {
            name: name.to_owned(),
            seconds: self.seconds.with_label_values(&[name]),
            retries: self.retries.with_label_values(&[name]),
            ejections: self.ejections.with_label_values(&[name]),
            failures: self.failures.clone(),
        }
    }
}

/// The metrics of one upstream, with their labels resolved.
pub struct UpstreamMetrics {
    name: String,
    pub(crate) seconds: Histogram,
    pub(crate) retries: IntCounter,
    pub(crate) ejections: IntCounter,
    failures: IntCounterVec,
}

impl UpstreamMetrics {
    /// Counts a failed attempt.
    pub(crate) fn count_failure(&self, reason: &str) {
        self.failures.with_label_values(&[self.name.as_str(), reason]).inc();
    }
}
