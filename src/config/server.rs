//! `[server]`: where the gateway listens and who it is.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Faults, HumanDuration};
use crate::domain::language::Language;

/// `[server]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Addresses for clients. Loopback by default: nothing is open to others by accident.
    pub listen: Vec<SocketAddr>,
    /// Address for `/metrics`; never the clients' one, so that monitoring is not public.
    pub admin_listen: SocketAddr,
    /// The address under which browsers and phones reach us; goes into QR codes and redirects.
    pub public_url: Url,
    /// Peers whose `X-Forwarded-For` and `X-Request-Id` are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Opens the development routes and the simulated platform. Only on loopback.
    pub development: bool,
    /// Where keys and the embedded databases live.
    pub data_dir: PathBuf,
    /// The language of messages for callers that name none.
    pub language: Language,
    /// Worker threads; 0 means one per core.
    pub threads: usize,
    /// How long open requests may take to end after SIGTERM.
    pub drain: HumanDuration,
    /// Certificate and key for `listen`; without them it speaks plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
}

/// `[server.tls]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file of the certificate chain.
    pub cert_file: PathBuf,
    /// PEM file of its private key.
    pub key_file: PathBuf,
}

/// Whether the development routes answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Development {
    /// They do.
    On,
    /// They refuse.
    Off,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9090)),
            public_url: local_url("http://127.0.0.1:8080"),
            trusted_proxies: [[127, 0, 0, 0]]
                .into_iter()
                .filter_map(|octets| IpNet::new(octets.into(), 8).ok())
                .chain(IpNet::new(std::net::Ipv6Addr::LOCALHOST.into(), 128))
                .collect(),
            development: false,
            data_dir: PathBuf::from("data"),
            language: Language::English,
            threads: 0,
            drain: HumanDuration::seconds(30),
            tls: None,
        }
    }
}

/// Parses an address written in this source.
#[allow(clippy::expect_used)]
pub(super) fn local_url(text: &str) -> Url {
    // Only called with the literals of the defaults, which the tests of this module parse.
    Url::parse(text).expect("a literal address")
}

impl ServerConfig {
    /// Whether development mode is on.
    pub fn development_mode(&self) -> Development {
        if self.development { Development::On } else { Development::Off }
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        if self.listen.is_empty() {
            faults.add("server.listen", "name at least one address");
        }
        let scheme = self.public_url.scheme();
        if (scheme != "http" && scheme != "https") || self.public_url.host_str().is_none() {
            faults.add("server.public_url", "must be an http or https address");
        } else if self.public_url.path() != "/" || self.public_url.query().is_some() {
            faults.add("server.public_url", "must be an origin: no path, no query");
        }
        if self.development {
            for address in self.listen.iter().chain([&self.admin_listen]) {
                if !address.ip().is_loopback() {
                    let why = format!("development mode listens on loopback only, not on {address}");
                    faults.add("server.development", why);
                }
            }
        }
    }
}
