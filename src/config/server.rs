//! `[server]`: addresses, public URL, data directory and TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Faults, HumanDuration, values};
use crate::domain::host::HostEntry;
use crate::domain::language::Language;

/// `[server]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Client addresses. Loopback by default, so that nothing is exposed by accident.
    #[serde(deserialize_with = "values::addresses")]
    pub listen: Vec<SocketAddr>,
    /// Address of `/metrics`. Separate from `listen`, so that monitoring is not public.
    #[serde(deserialize_with = "values::address")]
    pub admin_listen: SocketAddr,
    /// URL under which browsers and phones reach the gateway; used in QR codes and redirects.
    #[serde(deserialize_with = "values::url")]
    pub public_url: Url,
    /// Hosts that requests may name; others get 1421. If empty: those of `public_url` and `[clients]`, and loopback in
    /// development mode.
    #[serde(deserialize_with = "values::hosts")]
    pub hosts: Vec<HostEntry>,
    /// Proxies whose `X-Forwarded-For` and `X-Request-Id` are trusted.
    #[serde(deserialize_with = "values::networks")]
    pub trusted_proxies: Vec<IpNet>,
    /// Which address in the `X-Forwarded-For` of a trusted proxy is the client's.
    pub client_address: ClientAddress,
    /// Enables the development routes and allows the simulated platform. Requires loopback addresses.
    pub development: bool,
    /// Directory of keys and embedded databases. Only one gateway can use it.
    pub data_dir: PathBuf,
    /// File with the secret of a fleet. The keys of cookies, of one-time-password secrets and of the signing keys are
    /// derived from it; if empty, they are generated in `data_dir`.
    pub secret_file: PathBuf,
    /// Secrets that `secret_file` has replaced, or will: what they signed or encrypted stays valid.
    pub old_secret_files: Vec<PathBuf>,
    /// Language of messages for clients that do not ask for one.
    pub language: Language,
    /// Worker threads; 0 means one per core.
    pub threads: usize,
    /// Drain timeout: how long open requests may take to finish once the gateway has stopped accepting.
    pub drain: HumanDuration,
    /// How long after SIGTERM the gateway is not ready but still accepts, until load balancers have noticed.
    pub drain_delay: HumanDuration,
    /// Certificate and key for `listen`; without them it serves plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
}

/// `[server.tls]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file of the certificate chain.
    pub cert_file: PathBuf,
    /// PEM file of the private key.
    pub key_file: PathBuf,
}

/// Which address of an `X-Forwarded-For` is the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAddress {
    /// The first, as the specification says. Only right if the outermost proxy replaces the header: one that appends to it
    /// lets clients choose their address.
    First,
    /// The first from the right that is no trusted proxy.
    Rightmost,
}

/// Whether the development routes are enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Development {
    /// `server.development = true`.
    On,
    /// The development routes refuse every request.
    Off,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9090)),
            public_url: local_url("http://127.0.0.1:8080"),
            hosts: Vec::new(),
            trusted_proxies: [[127, 0, 0, 0]]
                .into_iter()
                .filter_map(|octets| IpNet::new(octets.into(), 8).ok())
                .chain(IpNet::new(std::net::Ipv6Addr::LOCALHOST.into(), 128))
                .collect(),
            client_address: ClientAddress::First,
            development: false,
            data_dir: PathBuf::from("data"),
            secret_file: PathBuf::new(),
            old_secret_files: Vec::new(),
            language: Language::English,
            threads: 0,
            drain: HumanDuration::seconds(30),
            drain_delay: HumanDuration::seconds(0),
            tls: None,
        }
    }
}

/// Parses a URL literal of this source.
#[allow(clippy::expect_used)]
pub(super) fn local_url(text: &str) -> Url {
    // Only called with the literals of the defaults, which the tests of this module parse.
    Url::parse(text).expect("a URL literal")
}

impl ServerConfig {
    /// Development mode as an enum.
    pub fn development_mode(&self) -> Development {
        if self.development { Development::On } else { Development::Off }
    }

    /// The file of the fleet's secret, if one is set.
    pub fn secret_file(&self) -> Option<&Path> {
        Some(self.secret_file.as_path()).filter(|file| !file.as_os_str().is_empty())
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        if self.secret_file().is_none() && !self.old_secret_files.is_empty() {
            faults.add("server.old_secret_files", "requires server.secret_file");
        }
        if self.listen.is_empty() {
            faults.add("server.listen", "[] has no address; set at least one");
        }
        let scheme = self.public_url.scheme();
        if (scheme != "http" && scheme != "https") || self.public_url.host_str().is_none() {
            faults.add("server.public_url", format!("\"{}\" is not an http or https URL", self.public_url));
        } else if self.public_url.path() != "/" || self.public_url.query().is_some() {
            faults.add("server.public_url", format!("\"{}\" must not have a path or a query", self.public_url));
        }
        if self.development {
            for address in self.listen.iter().chain([&self.admin_listen]) {
                if !address.ip().is_loopback() {
                    let why = format!("true requires loopback addresses, and \"{address}\" is not one");
                    faults.add("server.development", why);
                }
            }
        }
    }
}
