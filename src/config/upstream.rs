//! `[upstreams.NAME]`: a service behind the gateway.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Faults, HumanDuration, values};

/// Whether a service tells upper from lower case in paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathCase {
    /// Not known: rules match by case, and `deskgate check` warns where that may let clients bypass one.
    #[default]
    Undeclared,
    /// It does, as RFC 3986 says.
    Sensitive,
    /// It answers `/Admin` as it answers `/admin`, so rules must match both.
    Insensitive,
}

/// An upstream as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct NamedUpstream<'a> {
    /// The name.
    pub name: &'a str,
    /// Whether its rules tell upper from lower case.
    pub path_case: PathCase,
}

impl<'a> From<&'a str> for NamedUpstream<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, path_case: PathCase::Undeclared }
    }
}

/// `[upstreams.NAME]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// Addresses of the service; requests are distributed round-robin.
    #[serde(deserialize_with = "values::addresses")]
    pub addresses: Vec<SocketAddr>,
    /// Whether the service tells upper from lower case in paths.
    pub path_case: PathCase,
    /// Timeout to connect (1502).
    pub connect_timeout: HumanDuration,
    /// Timeout until the response head (1504), and between two reads of the body.
    pub answer_timeout: HumanDuration,
    /// Keep-alive timeout of unused connections.
    pub idle: HumanDuration,
    /// Retries after a failed connect, each on the next address.
    pub retries: usize,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            path_case: PathCase::Undeclared,
            connect_timeout: HumanDuration::seconds(2),
            answer_timeout: HumanDuration::seconds(60),
            idle: HumanDuration::seconds(60),
            retries: 1,
        }
    }
}

impl UpstreamConfig {
    pub(super) fn check(&self, name: &str, faults: &mut Faults) {
        let key = format!("upstreams.{name}");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            faults.add(&key, format!("{name:?} is not a valid name; use letters, digits, `_` and `-`"));
        }
        if self.addresses.is_empty() {
            faults.add(&format!("{key}.addresses"), "required: set at least one address");
        }
        if self.retries > 3 {
            faults.add(&format!("{key}.retries"), format!("{} is too many; use at most 3", self.retries));
        }
    }
}
