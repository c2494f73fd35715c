//! Query parameters as the platform reads them: any encoding, the first of equals, empty is absent.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// The parameters of a request.
pub struct Parameters {
    pairs: Vec<(String, String)>,
}

impl Parameters {
    /// The value, unless it is absent or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.pairs.iter().find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value.as_str())
    }

    /// All of them in order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }
}

impl<S: Sync> FromRequestParts<S> for Parameters {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self { pairs: url::form_urlencoded::parse(query.as_bytes()).into_owned().collect() })
    }
}
