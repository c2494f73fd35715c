//! The metrics of one rule. Its series appear when a request uses them; the requests that follow only increment them.

use std::sync::{Arc, OnceLock};

use prometheus::{IntCounter, IntCounterVec};

use super::Metrics;
use super::exemplar::{Exemplar, Exemplars};
use super::series::{CounterSeries, GaugeSeries, HistogramSeries};

/// The `method` label. Unknown methods share `other`, so that clients cannot create series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum MethodLabel {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// Anything else.
    Other,
}

impl MethodLabel {
    const NAMES: [&'static str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"];

    /// The label of a request method.
    pub fn of(method: &str) -> Self {
        match method {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            _ => Self::Other,
        }
    }
}

const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The metrics of one rule.
#[derive(Debug)]
pub struct RuleMetrics {
    requests: RequestCounters,
    seconds: HistogramSeries,
    exemplars: Arc<Exemplars>,
    /// Requests that the rule allowed.
    pub allowed: CounterSeries,
    /// Requests that the rule denied.
    pub denied: CounterSeries,
    /// Requests that the rule would have allowed in shadow mode.
    pub shadow_allowed: CounterSeries,
    /// Requests that the rule or one of its rate limits would have denied in shadow mode.
    pub shadow_denied: CounterSeries,
    /// Its rate limits.
    pub rate: RateMetrics,
    /// Its open WebSockets.
    pub websockets_open: GaugeSeries,
    /// Its exchanges that have run longer than a second.
    pub exchanges_open: GaugeSeries,
}

/// Rate limit metrics of a rule, or of the gateway's own endpoints.
#[derive(Debug)]
pub struct RateMetrics {
    /// Charges within the limit.
    pub allowed: CounterSeries,
    /// Requests refused.
    pub denied: CounterSeries,
    /// Requests that a rate limit in shadow mode would have refused.
    pub shadow_denied: CounterSeries,
}

impl RateMetrics {
    pub(super) fn new(metrics: &Metrics, rule: &str) -> Self {
        Self {
            allowed: CounterSeries::new(&metrics.rate, &[rule, "allow"]),
            denied: CounterSeries::new(&metrics.rate, &[rule, "deny"]),
            shadow_denied: CounterSeries::new(&metrics.shadow, &[rule, "deny"]),
        }
    }
}

impl RuleMetrics {
    pub(super) fn new(metrics: &Metrics, rule: &str) -> Self {
        Self {
            requests: RequestCounters::new(&metrics.requests, rule),
            seconds: HistogramSeries::new(&metrics.request_seconds, &[rule]),
            exemplars: metrics.exemplars.clone(),
            allowed: CounterSeries::new(&metrics.authz, &[rule, "allow"]),
            denied: CounterSeries::new(&metrics.authz, &[rule, "deny"]),
            shadow_allowed: CounterSeries::new(&metrics.shadow, &[rule, "allow"]),
            shadow_denied: CounterSeries::new(&metrics.shadow, &[rule, "deny"]),
            rate: RateMetrics::new(metrics, rule),
            websockets_open: GaugeSeries::new(&metrics.websockets_open, &[rule]),
            exchanges_open: GaugeSeries::new(&metrics.exchanges_open, &[rule]),
        }
    }

    /// Counts an answered request and its duration; a sampled one is the new exemplar of its bucket.
    pub fn count_request(&self, method: MethodLabel, status: u16, seconds: f64, exemplar: Option<Exemplar>) {
        if let Some(exemplar) = exemplar {
            self.exemplars.observe(&self.requests.rule, seconds, exemplar);
        }
        self.requests.of(method, status).inc();
        self.seconds.observe(seconds);
    }
}

/// The counters of a rule's requests, by method and status class.
#[derive(Debug)]
struct RequestCounters {
    family: IntCounterVec,
    rule: Box<str>,
    counters: [[OnceLock<IntCounter>; CLASSES.len()]; MethodLabel::NAMES.len()],
}

impl RequestCounters {
    fn new(family: &IntCounterVec, rule: &str) -> Self {
        let none = [const { [const { OnceLock::new() }; CLASSES.len()] }; MethodLabel::NAMES.len()];
        Self { family: family.clone(), rule: rule.into(), counters: none }
    }

    fn of(&self, method: MethodLabel, status: u16) -> &IntCounter {
        let class = match status / 100 {
            class @ 1..=5 => usize::from(class),
            _ => 0,
        };
        let method = method as usize;
        // Both arrays have an element for each label.
        self.counters[method][class]
            .get_or_init(|| self.family.with_label_values(&[&*self.rule, MethodLabel::NAMES[method], CLASSES[class]]))
    }
}

#[cfg(test)]
mod tests;
