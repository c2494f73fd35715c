//! `[[server.listeners]]` and `[[server.certificates]]`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Faults, ServerConfig, values};

/// `[[server.listeners]]`: an address for clients, with settings of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerConfig {
    /// The address.
    #[serde(deserialize_with = "values::address")]
    pub address: SocketAddr,
    /// Serves HTTPS, with a certificate of `server.certificates` or `server.tls`.
    #[serde(default)]
    pub tls: bool,
    /// Accepts HTTP/2 without TLS from clients that know it in advance (prior knowledge).
    #[serde(default)]
    pub h2c: bool,
    /// Expects the PROXY protocol (v1 or v2) from peers in `server.trusted_proxies`; others are refused.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Redirects every request to `server.public_url`, except `/api/ready`.
    #[serde(default)]
    pub redirect: bool,
    /// File with the authorities whose client certificates are accepted; if set, clients must have one.
    #[serde(default)]
    pub client_ca_file: PathBuf,
}

impl ListenerConfig {
    /// An address of `server.listen`.
    fn short(address: SocketAddr, tls: bool) -> Self {
        Self { address, tls, h2c: false, proxy_protocol: false, redirect: false, client_ca_file: PathBuf::new() }
    }

    /// The file of the authorities of client certificates, if clients must have one.
    pub fn client_ca_file(&self) -> Option<&Path> {
        Some(self.client_ca_file.as_path()).filter(|file| !file.as_os_str().is_empty())
    }

    fn check(&self, server: &ServerConfig, faults: &mut Faults) {
        let mut add = |why: &str| faults.add("server.listeners", format!("\"{}\": {why}", self.address));
        if self.tls && !server.has_certificate() {
            add("tls = true requires a certificate; add [[server.certificates]]");
        }
        if self.tls && self.h2c {
            add("h2c = true is for plain listeners; with TLS, clients negotiate HTTP/2");
        }
        if self.proxy_protocol && server.trusted_proxies.is_empty() {
            add(
                "proxy_protocol = true would refuse every connection; list the load balancers in server.trusted_proxies",
            );
        }
        if self.redirect && self.tls {
            add("redirect = true is for plain listeners");
        }
        if self.redirect && server.public_url.scheme() != "https" {
            add("redirect = true requires a server.public_url with https");
        }
        if !self.tls && self.client_ca_file().is_some() {
            add("client_ca_file requires tls = true");
        }
    }
}

/// `[[server.certificates]]` and `server.tls`: a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateConfig {
    /// PEM file of the certificate chain, the server's own certificate first.
    pub cert_file: PathBuf,
    /// PEM file of the private key.
    pub key_file: PathBuf,
    /// DER file of an OCSP response, which is stapled to the certificate.
    #[serde(default)]
    pub ocsp_file: PathBuf,
}

impl CertificateConfig {
    /// The file of the OCSP response, if there is one.
    pub fn ocsp_file(&self) -> Option<&Path> {
        Some(self.ocsp_file.as_path()).filter(|file| !file.as_os_str().is_empty())
    }
}

impl ServerConfig {
    /// All listeners for clients: those of `listen`, then those of `listeners`. `listen` has a default only if there are
    /// no others.
    pub fn client_listeners(&self) -> Vec<ListenerConfig> {
        let short = match &self.listen {
            Some(addresses) => addresses.as_slice(),
            None if self.listeners.is_empty() => &[Self::DEFAULT_LISTEN],
            None => &[],
        };
        let short = short.iter().map(|address| ListenerConfig::short(*address, self.tls.is_some()));
        short.chain(self.listeners.iter().cloned()).collect()
    }

    fn has_certificate(&self) -> bool {
        self.tls.is_some() || !self.certificates.is_empty()
    }

    pub(super) fn check_listeners(&self, faults: &mut Faults) {
        let listeners = self.client_listeners();
        if listeners.is_empty() {
            faults.add("server.listen", "[] has no address; set at least one");
        }
        for (place, listener) in listeners.iter().enumerate() {
            let address = listener.address;
            if address.port() != 0 && listeners[..place].iter().any(|other| other.address == address) {
                let key = if self.listeners.contains(listener) { "server.listeners" } else { "server.listen" };
                faults.add(key, format!("\"{address}\" is listed twice"));
            }
        }
        for listener in &self.listeners {
            listener.check(self, faults);
        }
        if !self.certificates.is_empty() && !listeners.iter().any(|listener| listener.tls) {
            let why = "no listener serves HTTPS; set tls = true for one of [[server.listeners]]";
            faults.add("server.certificates", why);
        }
    }
}
