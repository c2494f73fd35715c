//! `[upstreams.NAME]`: a service behind the gateway.

use serde::{Deserialize, Serialize};

mod address;

mod health;

mod protocol;

use super::{Faults, HumanDuration};
use crate::domain::host::HostEntry;
pub use address::{UpstreamAddress, WeightedAddress};
pub use health::{EjectionConfig, HealthConfig};
pub use protocol::{UpstreamProtocol, UpstreamTlsConfig};

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
    /// The place in the gateway's table of upstreams, which rules refer to.
    pub index: usize,
    /// Whether its rules tell upper from lower case.
    pub path_case: PathCase,
    /// The version of HTTP that it gets.
    pub protocol: UpstreamProtocol,
    /// The `Host` that it gets instead of the client's.
    pub host: Option<&'a str>,
}

impl<'a> NamedUpstream<'a> {
    /// An upstream with these settings at this place.
    pub fn new(name: &'a str, index: usize, settings: &'a UpstreamConfig) -> Self {
        Self {
            name,
            index,
            path_case: settings.path_case,
            protocol: settings.protocol,
            host: Some(settings.host.as_str()).filter(|host| !host.is_empty()),
        }
    }
}

impl<'a> From<&'a str> for NamedUpstream<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, index: 0, path_case: PathCase::default(), protocol: UpstreamProtocol::default(), host: None }
    }
}

/// How requests are distributed over the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// To the address with the fewest requests in flight, by weight.
    LeastConnections,
    /// Each session to its own address (consistent hashing); without a session, each client address.
    Session,
}

/// `[upstreams.NAME]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// Addresses of the service.
    pub addresses: Vec<WeightedAddress>,
    /// How requests are distributed over the addresses.
    pub balance: Balance,
    /// How often DNS names are looked up. If that fails, the last addresses stay in use.
    pub resolve: HumanDuration,
    /// Whether the service tells upper from lower case in paths.
    pub path_case: PathCase,
    /// The version of HTTP that the service gets.
    pub protocol: UpstreamProtocol,
    /// The `Host` that the service gets; if empty, the client's.
    pub host: String,
    /// TLS to the service; without it, plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTlsConfig>,
    /// Active checks of the addresses; without them, only failed requests show that one is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthConfig>,
    /// When an address whose requests fail gets none for a while.
    pub ejection: EjectionConfig,
    /// How long an address that returns gets less than its share.
    pub slow_start: HumanDuration,
    /// Retries of a request, each on another address if one is usable.
    pub retries: usize,
    /// The most retries per hundred requests. Ten a second are always allowed.
    pub retry_budget: u32,
    /// Timeout to connect (1504).
    pub connect_timeout: HumanDuration,
    /// Timeout until the response head (1504), and between two reads of the body.
    pub answer_timeout: HumanDuration,
    /// Timeout of the whole exchange (1504, or a cut if the response has begun); 0s: none.
    pub total_timeout: HumanDuration,
    /// Keep-alive timeout of unused connections.
    pub idle: HumanDuration,
    /// The most concurrent requests; 0: no limit. A WebSocket counts until it is open.
    pub max_requests: usize,
    /// How many requests beyond `max_requests` wait; more are refused with 1503.
    pub queue: usize,
    /// How long they wait before they are refused with 1503.
    pub queue_timeout: HumanDuration,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            balance: Balance::RoundRobin,
            resolve: HumanDuration::seconds(30),
            path_case: PathCase::Undeclared,
            protocol: UpstreamProtocol::Http1,
            host: String::new(),
            tls: None,
            health: None,
            ejection: EjectionConfig::default(),
            slow_start: HumanDuration::seconds(10),
            retries: 1,
            retry_budget: 20,
            connect_timeout: HumanDuration::seconds(2),
            answer_timeout: HumanDuration::seconds(60),
            total_timeout: HumanDuration::seconds(0),
            idle: HumanDuration::seconds(60),
            max_requests: 0,
            queue: 100,
            queue_timeout: HumanDuration::seconds(1),
        }
    }
}

impl UpstreamConfig {
    /// The most retries that can be configured.
    pub const MOST_RETRIES: usize = 3;

    pub(super) fn check(&self, name: &str, faults: &mut Faults) {
        let key = format!("upstreams.{name}");
        let at = |field: &str| format!("{key}.{field}");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            faults.add(&key, format!("{name:?} is not a valid name; use letters, digits, `_` and `-`"));
        }
        if self.addresses.is_empty() {
            faults.add(&at("addresses"), "required: set at least one address");
        }
        if let Some(entry) = self.addresses.iter().find(|entry| !(1..=100).contains(&entry.weight)) {
            faults.add(&at("addresses"), format!("weight {} is not between 1 and 100", entry.weight));
        }
        if self.resolve < HumanDuration::seconds(1) {
            faults.add(&at("resolve"), format!("\"{}\" is too short; use at least 1s", self.resolve));
        }
        if self.retries > Self::MOST_RETRIES {
            faults.add(&at("retries"), format!("{} is too many; use at most {}", self.retries, Self::MOST_RETRIES));
        }
        if self.retry_budget > 100 {
            faults.add(&at("retry_budget"), format!("{} is more than 100 per cent", self.retry_budget));
        }
        if !self.host.is_empty() && self.host.parse::<HostEntry>().is_err() {
            let why = format!("{:?} is not a host with an optional port, such as \"desk.internal\"", self.host);
            faults.add(&at("host"), why);
        }
        if let Some(tls) = &self.tls {
            tls.check(&at("tls"), faults);
            let has_socket = self.addresses.iter().any(|entry| matches!(entry.address, UpstreamAddress::Unix(_)));
            if has_socket && tls.server_name.is_empty() {
                faults
                    .add(&at("tls.server_name"), "required: a Unix socket has no host that the certificate could have");
            }
        }
        if let Some(health) = &self.health {
            health.check(&at("health"), faults);
        }
        self.ejection.check(&at("ejection"), faults);
    }
}
