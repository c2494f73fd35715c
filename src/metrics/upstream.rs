//! The metrics of upstreams.

use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::SECONDS;
use super::series::HistogramSeries;

/// The metrics of all upstreams, by upstream, some also by address.
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
                "Ejections of an address after failures in a row, by upstream and address.",
                &["upstream", "address"],
            )?,
            failures: counters(
                "upstream_failures_total",
                "Failed attempts to reach an address of an upstream, by upstream, address and reason.",
                &["upstream", "address", "reason"],
            )?,
            healthy,
        })
    }

    pub(super) fn resolve(&self, name: &str) -> UpstreamMetrics {
        UpstreamMetrics {
            seconds: HistogramSeries::new(&self.seconds, &[name]),
            retries: self.retries.with_label_values(&[name]),
        }
    }

    /// Resolves the labels of an address, so that its counters exist before the first failure.
    pub(super) fn resolve_address(&self, upstream: &str, address: &str, reasons: &[&'static str]) -> AddressMetrics {
        let failures =
            reasons.iter().map(|reason| (*reason, self.failures.with_label_values(&[upstream, address, reason])));
        AddressMetrics {
            ejections: self.ejections.with_label_values(&[upstream, address]),
            failures: failures.collect(),
        }
    }

    /// Removes the counters of an address that its upstream no longer has.
    pub(super) fn remove_address(&self, upstream: &str, address: &str, reasons: &[&'static str]) {
        let _ = self.ejections.remove_label_values(&[upstream, address]);
        for reason in reasons {
            let _ = self.failures.remove_label_values(&[upstream, address, reason]);
        }
    }
}

/// The metrics of one upstream. The counter of retries begins at 0, so that an alert sees the first one.
pub struct UpstreamMetrics {
    pub(crate) seconds: HistogramSeries,
    pub(crate) retries: IntCounter,
}

/// The metrics of one address, with their labels resolved.
pub struct AddressMetrics {
    pub(crate) ejections: IntCounter,
    failures: Box<[(&'static str, IntCounter)]>,
}

impl AddressMetrics {
    /// Counts a failed attempt.
    pub(crate) fn count_failure(&self, reason: &str) {
        if let Some((_, counter)) = self.failures.iter().find(|(known, _)| *known == reason) {
            counter.inc();
        }
    }
}
