//! The parts of a request that endpoints use besides its body: query, cookies, client device and a few headers.

use http::request::Parts;

use crate::domain::device::ClientDevice;
use crate::domain::own_cookie::{self, CookieScope};
use crate::error::{BadRequest, Error};
use crate::pipeline::Arrival;
use crate::pipeline::record::shown;

/// Most query parameters that are read.
const MAX_PARAMETERS: usize = 64;

/// Most cookies that are read.
const MAX_COOKIES: usize = 200;

/// Longest `User-Agent` that is kept, in characters.
const MAX_USER_AGENT: usize = 256;

/// The parameters of a query.
#[derive(Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    fn of(text: &str) -> Self {
        let pairs = url::form_urlencoded::parse(text.as_bytes()).into_owned().take(MAX_PARAMETERS).collect();
        Self { pairs }
    }

    /// The value of an optional parameter. Refuses one that occurs twice with different values.
    pub fn optional(&self, name: &'static str) -> Result<Option<&str>, BadRequest> {
        let mut found: Option<&str> = None;
        for (_, value) in self.pairs.iter().filter(|(key, _)| key == name) {
            if found.is_some_and(|other| other != value) {
                return Err(BadRequest::Parameter(name));
            }
            found = Some(value);
        }
        Ok(found)
    }

    /// Refuses a query in which a parameter occurs twice with different values.
    pub fn check_unambiguous(&self) -> Result<(), BadRequest> {
        let differ = |(name, value): &(String, String)| self.first(name).is_some_and(|first| first != value);
        if self.pairs.iter().any(differ) { Err(BadRequest::Parameter("(one that is there twice)")) } else { Ok(()) }
    }

    /// The first value of a parameter.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a required parameter; refuses an empty one.
    pub fn required(&self, name: &'static str) -> Result<&str, Error> {
        match self.optional(name)? {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(BadRequest::Missing(name).into()),
        }
    }
}

/// A request to one of the gateway's own endpoints, without its body.
#[derive(Debug)]
pub struct ApiRequest {
    /// The query parameters.
    pub query: Query,
    /// The gateway's cookies without their `__Host-`, in the order of the headers.
    pub cookies: Vec<(String, String)>,
    /// The device that sent the request.
    pub device: ClientDevice,
    /// `Referer`
    pub referer: Option<String>,
    /// `Sec-Fetch-Site`
    pub fetch_site: Option<String>,
    /// `Sec-Fetch-Mode`
    pub fetch_mode: Option<String>,
    /// `Content-Type` in lower case, without parameters.
    pub content_type: Option<String>,
    /// Whether `Content-Encoding` is set.
    pub encoded: bool,
}

impl ApiRequest {
    /// Reads a request head.
    pub fn of(header: &Parts, arrival: &Arrival, scope: CookieScope) -> Self {
        let text = |name: &str| header.headers.get(name).and_then(|value| value.to_str().ok());
        let user_agent = header.headers.get("user-agent").map(|value| String::from_utf8_lossy(value.as_bytes()));
        let cookies = header
            .headers
            .get_all("cookie")
            .iter()
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter_map(|(name, value)| Some((own_name(name, scope)?.to_owned(), value.to_owned())))
            .take(MAX_COOKIES)
            .collect();
        let content_type = text("content-type").map(|value| value.split(';').next().unwrap_or_default());
        Self {
            query: Query::of(header.uri.query().unwrap_or_default()),
            cookies,
            device: ClientDevice {
                address: arrival.client.to_string(),
                user_agent: shown(&user_agent.unwrap_or_default(), MAX_USER_AGENT).into_owned(),
                request_id: arrival.request_id.as_str().to_owned(),
            },
            referer: text("referer").map(str::to_owned),
            fetch_site: text("sec-fetch-site").map(str::to_owned),
            fetch_mode: text("sec-fetch-mode").map(str::to_owned),
            content_type: content_type.map(|value| value.trim().to_ascii_lowercase()),
            encoded: header.headers.contains_key("content-encoding"),
        }
    }

    /// The value of a cookie.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// The name of one of the gateway's cookies without its `__Host-`. On HTTPS a cookie without the prefix is not read:
/// another host of the domain may have planted it.
fn own_name(name: &str, scope: CookieScope) -> Option<&str> {
    let name = match scope {
        CookieScope::Host => name.strip_prefix(own_cookie::HOST_PREFIX)?,
        CookieScope::Plain => name,
    };
    name.starts_with(own_cookie::PREFIX).then_some(name)
}
