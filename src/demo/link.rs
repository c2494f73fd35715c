//! Links to the platform's pages: their query parameters, read as the platform reads them, and the redirect to the
//! application's callback.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use url::Url;
use url::form_urlencoded::Serializer;

use super::members::CORP_ID;
use super::pages::{self, PlatformNotice};
use super::path;
use super::switches::Switches;

/// The longest `state` that the platform accepts.
const LONGEST_STATE: usize = 128;

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

/// Why a page of the platform rejects its link.
pub enum LinkFault {
    /// This parameter is missing or invalid.
    Parameter(&'static str),
    /// No application trusts the domain of this `redirect_uri`.
    UntrustedDomain(String),
}

impl From<&'static str> for LinkFault {
    fn from(parameter: &'static str) -> Self {
        LinkFault::Parameter(parameter)
    }
}

impl LinkFault {
    pub fn response(self) -> Response {
        match self {
            LinkFault::Parameter(name) => pages::notice(PlatformNotice::InvalidParameter(name)),
            LinkFault::UntrustedDomain(uri) => {
                let mut query = Serializer::new(String::new());
                query.append_pair("err_type", "domain_err").append_pair("uri", &uri);
                found(&format!("{}?{}", path::URI_CONFIRM, query.finish()))
            }
        }
    }
}

/// The application's callback: `redirect_uri` and the `state` to return.
#[derive(Debug, Clone)]
pub struct CallbackTarget {
    redirect_uri: Url,
    state: String,
}

impl CallbackTarget {
    /// Reads `redirect_uri` and `state`. A `redirect_uri` that was encoded twice has no domain, so the platform
    /// reports it as untrusted.
    pub fn read(parameters: &Parameters) -> Result<Self, LinkFault> {
        let given = parameters.get("redirect_uri").ok_or("redirect_uri")?;
        let parsed = Url::parse(given).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(redirect_uri) = parsed else {
            let encoded_twice = is_encoded_twice(given).then(|| LinkFault::UntrustedDomain(given.to_owned()));
            return Err(encoded_twice.unwrap_or(LinkFault::Parameter("redirect_uri")));
        };
        let state = parameters.get("state").unwrap_or_default();
        if state.len() > LONGEST_STATE {
            return Err("state".into());
        }
        if !state.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            // WeCom's own examples break its documented rule, so this is no error.
            tracing::warn!(state, "`state` is documented to be letters and digits only");
        }
        Ok(Self { redirect_uri, state: state.to_owned() })
    }

    /// The domain that must be trusted.
    pub fn domain(&self) -> String {
        domain(&self.redirect_uri)
    }

    /// Redirects with a code, or with `state` alone after a denial.
    pub fn redirect(&self, switches: &Switches, code: Option<&str>) -> Response {
        let mut target = self.redirect_uri.clone();
        {
            // `query_pairs_mut` appends and leaves the existing query as it is.
            let mut query = target.query_pairs_mut();
            if let Some(code) = code {
                query.append_pair("code", code);
            }
            query.append_pair("state", &self.state);
            if switches.return_appid {
                query.append_pair("appid", CORP_ID);
            }
        }
        if switches.duplicate_callback {
            return pages::duplicate_callback(target.as_str());
        }
        found(target.as_str())
    }
}

fn is_encoded_twice(text: &str) -> bool {
    let decoded: String = url::form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name).collect();
    decoded != text && Url::parse(&decoded).is_ok_and(|url| url.has_host())
}

/// The domain of a URL as `trusted_domains` lists it: the host, with the port if it is not the scheme's default.
pub fn domain(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Builds a 302 response.
pub fn found(target: &str) -> Response {
    match HeaderValue::from_str(target) {
        Ok(target) => (StatusCode::FOUND, [(header::LOCATION, target)]).into_response(),
        // Unreachable: a serialised URL is ASCII.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
