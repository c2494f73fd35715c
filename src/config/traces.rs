//! `[traces]`: spans of requests for an OpenTelemetry collector.

use serde::{Deserialize, Serialize};
use url::Url;

use super::{Faults, values};

/// `[traces]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracesConfig {
    /// The collector's address for OTLP over HTTP; none: no traces.
    #[serde(deserialize_with = "values::some_url")]
    pub endpoint: Option<Url>,
    /// The share of requests that are traced, 0 to 1. A trusted proxy's decision in `traceparent` goes before it.
    pub sample: f64,
    /// The `service.name` of the spans.
    pub service: String,
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self { endpoint: None, sample: 0.01, service: "deskgate".to_owned() }
    }
}

impl TracesConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if !(0.0..=1.0).contains(&self.sample) {
            faults.add("traces.sample", format!("{} is not a share between 0 and 1", self.sample));
        }
        if self.service.is_empty() {
            faults.add("traces.service", "must not be empty");
        }
        let Some(endpoint) = &self.endpoint else { return };
        if !matches!(endpoint.scheme(), "http" | "https") {
            faults.add("traces.endpoint", "must begin with http:// or https://; OTLP over gRPC is not supported");
        } else if values::has_credentials(endpoint) || endpoint.query().is_some() {
            faults.add("traces.endpoint", "must not have a user name, a password or a query");
        }
    }

    /// Where spans are posted to.
    pub fn spans_url(&self) -> Option<Url> {
        let mut url = self.endpoint.clone()?;
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Some(url)
    }
}
