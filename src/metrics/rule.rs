//! The metrics of one rule, with labels resolved when the rule is loaded. Requests only increment them.

use prometheus::{Histogram, IntCounter, IntGauge};

use super::Metrics;

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
    requests: Vec<[IntCounter; CLASSES.len()]>,
    seconds: Histogram,
    /// Requests that the rule allowed.
    pub allowed: IntCounter,
    /// Requests that the rule denied.
    pub denied: IntCounter,
    /// Requests that the rule would have allowed in shadow mode.
    pub shadow_allowed: IntCounter,
    /// Requests that the rule or one of its rate limits would have denied in shadow mode.
    pub shadow_denied: IntCounter,
    /// Its rate limits.
    pub rate: RateMetrics,
    /// Its open WebSockets.
    pub websockets_open: IntGauge,
    /// Its exchanges that have run longer than a second.
    pub exchanges_open: IntGauge,
}

/// Rate limit metrics of a rule, or of the gateway's own endpoints.
#[derive(Debug)]
pub struct RateMetrics {
    /// Charges within the limit.
    pub allowed: IntCounter,
    /// Requests refused.
    pub denied: IntCounter,
    /// Requests that a rate limit in shadow mode would have refused.
    pub shadow_denied: IntCounter,
}

impl RateMetrics {
    pub(super) fn resolve(metrics: &Metrics, rule: &str) -> Self {
        Self {
            allowed: metrics.rate.with_label_values(&[rule, "allow"]),
            denied: metrics.rate.with_label_values(&[rule, "deny"]),
            shadow_denied: metrics.shadow.with_label_values(&[rule, "deny"]),
        }
    }
}

impl RuleMetrics {
    pub(super) fn resolve(metrics: &Metrics, rule: &str) -> Self {
        let requests = MethodLabel::NAMES
            .iter()
            .map(|method| CLASSES.map(|class| metrics.requests.with_label_values(&[rule, method, class])))
            .collect();
        Self {
            requests,
            seconds: metrics.request_seconds.with_label_values(&[rule]),
            allowed: metrics.authz.with_label_values(&[rule, "allow"]),
            denied: metrics.authz.with_label_values(&[rule, "deny"]),
            shadow_allowed: metrics.shadow.with_label_values(&[rule, "allow"]),
            shadow_denied: metrics.shadow.with_label_values(&[rule, "deny"]),
            rate: RateMetrics::resolve(metrics, rule),
            websockets_open: metrics.websockets_open.with_label_values(&[rule]),
            exchanges_open: metrics.exchanges_open.with_label_values(&[rule]),
        }
    }

    /// Counts an answered request and its duration.
    pub fn count_request(&self, method: MethodLabel, status: u16, seconds: f64) {
        let class = match status / 100 {
            class @ 1..=5 => usize::from(class),
            _ => 0,
        };
        if let Some(classes) = self.requests.get(method as usize) {
            classes[class].inc();
        }
        self.seconds.observe(seconds);
    }
}
