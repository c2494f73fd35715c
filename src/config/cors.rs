//! `[cors]`: other origins whose pages may call the gateway.

use http::HeaderName;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Faults, HumanDuration, values};

/// `[cors]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CorsConfig {
    /// Origins whose pages may call the gateway and read its responses, in addition to those of `[clients]`.
    #[serde(deserialize_with = "values::urls")]
    pub origins: Vec<Url>,
    /// Response headers of upstreams that these pages may read.
    pub expose: Vec<String>,
    /// How long browsers may reuse the answer to a preflight.
    pub max_age: HumanDuration,
}

impl Default for CorsConfig {
    fn default() -> Self {
        Self { origins: Vec::new(), expose: Vec::new(), max_age: HumanDuration::seconds(600) }
    }
}

impl CorsConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        for url in &self.origins {
            let is_origin = matches!(url.scheme(), "http" | "https")
                && url.host_str().is_some()
                && url.path() == "/"
                && url.query().is_none()
                && url.fragment().is_none()
                && !values::has_credentials(url);
            if !is_origin {
                let why = format!("\"{url}\" is not an origin, such as \"https://desk.example.com\"");
                faults.add("cors.origins", why);
            }
        }
        for name in &self.expose {
            if name == "*" || HeaderName::from_bytes(name.as_bytes()).is_err() {
                faults.add("cors.expose", format!("\"{name}\" is not a header name"));
            }
        }
    }
}
