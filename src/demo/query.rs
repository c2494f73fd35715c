//! Query parameters, read as the platform reads them.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use url::form_urlencoded::Serializer;

/// The query parameters of a request: of two with the same name the first counts, and an empty value is absent.
pub struct Parameters {
    pairs: Vec<(String, String)>,
}

impl Parameters {
    pub fn of(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        Self { pairs: url::form_urlencoded::parse(query.as_bytes()).into_owned().collect() }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.pairs.iter().find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value.as_str())
    }

    /// Builds a link to the same page with one parameter set and others removed.
    pub fn link(&self, name: &str, value: &str, without: &[&str]) -> String {
        let kept = self.pairs.iter().filter(|(key, _)| key != name && !without.contains(&key.as_str()));
        format!("?{}", Serializer::new(String::new()).extend_pairs(kept).append_pair(name, value).finish())
    }

    /// Builds a link to the same page with one parameter removed.
    pub fn link_without(&self, name: &str) -> String {
        let kept = self.pairs.iter().filter(|(key, _)| key != name);
        format!("?{}", Serializer::new(String::new()).extend_pairs(kept).finish())
    }
}

impl<S: Sync> FromRequestParts<S> for Parameters {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.uri))
    }
}
