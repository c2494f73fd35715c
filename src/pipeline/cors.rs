//! Cross-origin requests of browsers (CORS): whose pages may read responses, and what a preflight is told.
//!
//! A response names one origin, never `*`, and never allows credentials: clients send tokens, and the cookies of the
//! sign-in pages belong to these pages alone. Whether the announced request would be permitted is left to the request
//! itself; a preflight carries no token.

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, VARY};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::head::{Fields, RequestHead, lists};
use crate::config::Config;
use crate::domain::client::Client;
use crate::domain::header_line::write_line;
use crate::domain::hop_by_hop::is_hop_by_hop;
use crate::domain::spoofable::SpoofableHeader;
use crate::error::{Error, Forbidden};

/// The gateway's own response headers that pages may read.
const EXPOSED: [&str; 5] = ["X-Request-Id", "Retry-After", "RateLimit", "RateLimit-Policy", "WWW-Authenticate"];

/// Which origins may call the gateway.
#[derive(Debug)]
pub struct CorsPolicy {
    origins: Vec<Arc<CorsOrigin>>,
    max_age: HeaderValue,
}

/// An origin whose pages may read responses, with the encoded values of its headers.
#[derive(Debug)]
pub struct CorsOrigin {
    name: HeaderValue,
    exposed: HeaderValue,
}

impl CorsPolicy {
    /// The origins of `[clients]` and `[cors]`, without the gateway's own.
    pub fn new(config: &Config) -> Self {
        let names: Vec<&str> = EXPOSED.into_iter().chain(config.cors.expose.iter().map(String::as_str)).collect();
        // Checked at load; without it only the headers that browsers always show can be read.
        let exposed = HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static(""));
        let own = config.server.public_url.origin();
        let clients = Client::ALL.iter().map(|client| config.clients.url(*client));
        let mut origins: Vec<Arc<CorsOrigin>> = Vec::new();
        for url in clients.chain(&config.cors.origins).filter(|url| url.origin() != own) {
            // An ASCII serialization is always a header value.
            let Ok(name) = HeaderValue::try_from(url.origin().ascii_serialization()) else { continue };
            if origins.iter().all(|known| known.name != name) {
                origins.push(Arc::new(CorsOrigin { name, exposed: exposed.clone() }));
            }
        }
        Self { origins, max_age: config.cors.max_age.get().as_secs().into() }
    }

    /// What the response to a request with this `Origin` says.
    pub fn cross_origin(&self, origin: Option<&[u8]>) -> CrossOrigin {
        if self.origins.is_empty() {
            return CrossOrigin::Off;
        }
        let allowed = origin.and_then(|origin| self.origins.iter().find(|allowed| allowed.name.as_bytes() == origin));
        allowed.map_or(CrossOrigin::Denied, |allowed| CrossOrigin::Allowed(allowed.clone()))
    }
}

/// What a response says about other origins.
#[derive(Debug, Clone, Default)]
pub enum CrossOrigin {
    /// Nothing: no other origin is configured.
    #[default]
    Off,
    /// That it depends on the origin. The request has none, or one that is not allowed.
    Denied,
    /// That pages of this origin may read it.
    Allowed(Arc<CorsOrigin>),
}

impl CrossOrigin {
    /// Adds the headers of a response.
    pub fn write(&self, headers: &mut HeaderMap) {
        match self {
            CrossOrigin::Off => return,
            CrossOrigin::Denied => {}
            CrossOrigin::Allowed(origin) => {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.name.clone());
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, origin.exposed.clone());
            }
        }
        // Also where no origin is allowed: a cache must not give that response to a page of an allowed origin.
        let varies = |line: &HeaderValue| lists(line.as_bytes(), "origin") || lists(line.as_bytes(), "*");
        if !headers.get_all(VARY).iter().any(varies) {
            headers.append(VARY, HeaderValue::from_static("Origin"));
        }
    }

    /// Adds the same headers as lines of HTTP/1.1 to a response whose `Vary` names the origin already, or does not.
    pub fn write_lines(&self, varies: bool, out: &mut Vec<u8>) {
        match self {
            CrossOrigin::Off => return,
            CrossOrigin::Denied => {}
            CrossOrigin::Allowed(origin) => {
                write_line(out, ACCESS_CONTROL_ALLOW_ORIGIN.as_str(), origin.name.as_bytes());
                write_line(out, ACCESS_CONTROL_EXPOSE_HEADERS.as_str(), origin.exposed.as_bytes());
            }
        }
        if !varies {
            write_line(out, VARY.as_str(), b"Origin");
        }
    }
}

/// A preflight: a browser's question whether a page may send a request.
pub struct PreflightRequest<'a> {
    origin: &'a [u8],
    /// The method of the announced request.
    pub method: &'a str,
    headers: &'a [&'a [u8]],
}

impl<'a> PreflightRequest<'a> {
    /// Reads the preflight that a request is, if it is one. Browsers send them without credentials and without a body;
    /// an OPTIONS with either is an ordinary request.
    pub fn of(head: &RequestHead<'_>, fields: &'a Fields<'a>) -> Option<Self> {
        let (origin, method) = (fields.origin?, fields.requested_method?);
        let is_bare = fields.authorization.is_none() && fields.cookies.is_empty() && !head.has_body(fields);
        let method = std::str::from_utf8(method).unwrap_or_default();
        (head.method == "OPTIONS" && is_bare).then_some(Self { origin, method, headers: &fields.requested_headers })
    }

    /// Refuses a preflight of an origin that is not allowed.
    pub fn check_origin(&self, policy: &CorsPolicy) -> Result<(), Error> {
        match policy.cross_origin(Some(self.origin)) {
            CrossOrigin::Allowed(_) => Ok(()),
            CrossOrigin::Off | CrossOrigin::Denied => Err(Forbidden::CrossOrigin.into()),
        }
    }

    /// The answer for a path with these methods.
    pub fn answer(&self, policy: &CorsPolicy, methods: String) -> PreflightAnswer {
        let names = self.headers.iter().flat_map(|line| line.split(|byte| *byte == b','));
        let names = names.filter_map(|name| std::str::from_utf8(name.trim_ascii()).ok());
        let headers: Vec<&str> = names.filter(|name| is_let_through(name)).collect();
        PreflightAnswer { methods, headers: headers.join(", "), max_age: policy.max_age.clone() }
    }
}

/// Whether a header from a page is read by the gateway or reaches the upstream as it was sent.
fn is_let_through(name: &str) -> bool {
    let is_replaced =
        ["x-request-id", "host", "cookie", "content-length"].iter().any(|it| it.eq_ignore_ascii_case(name));
    HeaderName::from_bytes(name.as_bytes()).is_ok()
        // A header name by its syntax, and a wildcard in the answer.
        && name != "*"
        && !is_replaced
        && SpoofableHeader::of(name.as_bytes()).is_none()
        && !is_hop_by_hop(name.as_bytes())
}

/// The gateway's answer to a preflight, or to OPTIONS about the server as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreflightAnswer {
    /// The methods of the path.
    pub methods: String,
    /// The requested headers that are let through; may be empty.
    pub headers: String,
    /// How long the browser may reuse the answer, in seconds.
    pub max_age: HeaderValue,
}

impl PreflightAnswer {
    /// The methods that the gateway accepts for one path or another.
    pub fn of_server(policy: &CorsPolicy) -> Self {
        let methods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS".to_owned();
        Self { methods, headers: String::new(), max_age: policy.max_age.clone() }
    }
}

#[cfg(test)]
mod tests;
