//! `[server]`: addresses, public URL, data directory and TLS. Listeners with settings of their own are in `listener`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use super::{CertificateConfig, Faults, HumanDuration, ListenerConfig, values};
use crate::domain::host::HostEntry;
use crate::domain::language::Language;

/// `[server]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Client addresses. Loopback by default, so that nothing is exposed by accident; no default beside `listeners`.
    #[serde(deserialize_with = "values::some_addresses", serialize_with = "or_default_listen")]
    pub listen: Option<Vec<SocketAddr>>,
    /// Client addresses that differ from each other: plain or TLS, with settings of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerConfig>,
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
    /// Which headers carry the client's address, host and scheme: to upstreams, and from `trusted_proxies`.
    pub forwarded: ForwardedHeaders,
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
    /// Whether HTTP/1.1 requests take the fast lane. Otherwise Pingora's HTTP server reads all requests.
    pub fast_lane: bool,
    /// Drain timeout: how long open requests may take to finish once the gateway has stopped accepting.
    pub drain: HumanDuration,
    /// How long after SIGTERM the gateway is not ready but still accepts, until load balancers have noticed.
    pub drain_delay: HumanDuration,
    /// How long browsers may use nothing but HTTPS for our host (`Strict-Transport-Security`); only sent over TLS, and only if
    /// `public_url` is https. 0: not sent.
    pub hsts: HumanDuration,
    /// How long open requests may take to finish before the new process of `serve --upgrade` opens the databases in
    /// `data_dir`; new connections wait meanwhile.
    pub upgrade_drain: HumanDuration,
    /// Certificate and key for `listen`; without them it serves plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<CertificateConfig>,
    /// Certificates for the host names that clients ask for (SNI), beside that of `tls`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateConfig>,
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

/// The headers that carry what a proxy knows about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForwardedHeaders {
    /// Reads and writes `X-Forwarded-For` and its kin.
    #[serde(rename = "x-forwarded")]
    XForwarded,
    /// Reads and writes `Forwarded` (RFC 7239).
    #[serde(rename = "rfc7239")]
    Rfc7239,
    /// Reads `X-Forwarded-For` and writes both.
    #[serde(rename = "both")]
    Both,
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
            listen: None,
            listeners: Vec::new(),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9090)),
            public_url: local_url("http://127.0.0.1:8080"),
            hosts: Vec::new(),
            trusted_proxies: [[127, 0, 0, 0]]
                .into_iter()
                .filter_map(|octets| IpNet::new(octets.into(), 8).ok())
                .chain(IpNet::new(std::net::Ipv6Addr::LOCALHOST.into(), 128))
                .collect(),
            forwarded: ForwardedHeaders::XForwarded,
            client_address: ClientAddress::First,
            development: false,
            data_dir: PathBuf::from("data"),
            secret_file: PathBuf::new(),
            old_secret_files: Vec::new(),
            language: Language::English,
            threads: 0,
            fast_lane: true,
            drain: HumanDuration::seconds(30),
            drain_delay: HumanDuration::seconds(0),
            hsts: HumanDuration::seconds(0),
            upgrade_drain: HumanDuration::seconds(5),
            tls: None,
            certificates: Vec::new(),
        }
    }
}

/// Shows the default address in place of none.
fn or_default_listen<S: Serializer>(listen: &Option<Vec<SocketAddr>>, serializer: S) -> Result<S::Ok, S::Error> {
    listen.as_deref().unwrap_or(&[ServerConfig::DEFAULT_LISTEN]).serialize(serializer)
}

/// Parses a URL literal of this source.
#[allow(clippy::expect_used)]
pub(super) fn local_url(text: &str) -> Url {
    // Only called with the literals of the defaults, which the tests of this module parse.
    Url::parse(text).expect("a URL literal")
}

impl ServerConfig {
    pub(super) const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

    /// Development mode as an enum.
    pub fn development_mode(&self) -> Development {
        if self.development { Development::On } else { Development::Off }
    }

    /// The lifetime of `Strict-Transport-Security`, if it is sent over TLS.
    pub fn hsts(&self) -> Option<Duration> {
        Some(self.hsts.get()).filter(|lifetime| !lifetime.is_zero() && self.public_url.scheme() == "https")
    }

    /// The file of the fleet's secret, if one is set.
    pub fn secret_file(&self) -> Option<&Path> {
        Some(self.secret_file.as_path()).filter(|file| !file.as_os_str().is_empty())
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        if self.secret_file().is_none() && !self.old_secret_files.is_empty() {
            faults.add("server.old_secret_files", "requires server.secret_file");
        }
        self.check_listeners(faults);
        let scheme = self.public_url.scheme();
        if (scheme != "http" && scheme != "https") || self.public_url.host_str().is_none() {
            faults.add("server.public_url", format!("\"{}\" is not an http or https URL", self.public_url));
        } else if self.public_url.path() != "/" || self.public_url.query().is_some() {
            faults.add("server.public_url", format!("\"{}\" must not have a path or a query", self.public_url));
        } else if values::has_credentials(&self.public_url) {
            faults.add("server.public_url", "must not have a user name or a password: browsers get it");
        }
        if !self.hsts.get().is_zero() && self.hsts.get().as_secs() == 0 {
            faults.add("server.hsts", format!("\"{}\" is too short; use at least \"1s\"", self.hsts));
        }
        if self.development {
            let addresses = self.client_listeners().into_iter().map(|listener| listener.address);
            for address in addresses.chain([self.admin_listen]) {
                if !address.ip().is_loopback() {
                    let why = format!("true requires loopback addresses, and \"{address}\" is not one");
                    faults.add("server.development", why);
                }
            }
        }
    }
}
