//! What endpoints need of a request beside its body: query, cookies and the device.

use http::request::Parts;

use crate::error::{BadRequest, Error};
use crate::pipeline::Arrival;
use crate::pipeline::record::shown;
use crate::signin::Device;

/// The parameters of a query.
#[derive(Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    fn of(text: &str) -> Self {
        let pairs = url::form_urlencoded::parse(text.as_bytes()).into_owned().take(64).collect();
        Self { pairs }
    }

    /// The value of a parameter, if it is there. One that stands twice with different values is refused.
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

    /// Whether no parameter stands twice with different values.
    pub fn unambiguous(&self) -> Result<(), BadRequest> {
        let differ = |(name, value): &(String, String)| self.first(name).is_some_and(|first| first != value);
        if self.pairs.iter().any(differ) { Err(BadRequest::Parameter("(one that is there twice)")) } else { Ok(()) }
    }

    /// The first value of a parameter.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that must be there.
    pub fn required(&self, name: &'static str) -> Result<&str, Error> {
        match self.optional(name)? {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(BadRequest::Missing(name).into()),
        }
    }
}

/// What came with a request.
#[derive(Debug)]
pub struct Incoming {
    /// The query.
    pub query: Query,
    /// The cookies, in their order.
    pub cookies: Vec<(String, String)>,
    /// The device.
    pub device: Device,
    /// `Referer`
    pub referer: Option<String>,
    /// `Sec-Fetch-Site`
    pub fetch_site: Option<String>,
    /// `Sec-Fetch-Mode`
    pub fetch_mode: Option<String>,
    /// `Content-Type`, without its parameters.
    pub content_type: Option<String>,
    /// Whether `Content-Encoding` is set.
    pub encoded: bool,
}

impl Incoming {
    /// Looks at a request's head.
    pub fn of(header: &Parts, arrival: &Arrival) -> Self {
        let text = |name: &str| header.headers.get(name).and_then(|value| value.to_str().ok());
        let user_agent = header.headers.get("user-agent").map(|value| String::from_utf8_lossy(value.as_bytes()));
        let cookies = header
            .headers
            .get_all("cookie")
            .iter()
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .take(200)
            .collect();
        let content_type = text("content-type").map(|value| value.split(';').next().unwrap_or_default());
        Self {
            query: Query::of(header.uri.query().unwrap_or_default()),
            cookies,
            device: Device {
                address: arrival.client.to_string(),
                user_agent: shown(&user_agent.unwrap_or_default(), 256).into_owned(),
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
