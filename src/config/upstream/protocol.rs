//! How the gateway speaks to a service: the version of HTTP, and TLS.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::Faults;

/// The version of HTTP that a service gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: negotiated with TLS, expected without (h2c). Only WebSocket handshakes are sent over HTTP/1.1.
    Http2,
}

/// `[upstreams.NAME.tls]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTlsConfig {
    /// PEM file of the authorities whose certificates are trusted; if empty, those of the system.
    pub ca_file: PathBuf,
    /// The name that the service's certificate must have; if empty, the host of the address.
    pub server_name: String,
    /// PEM file of the gateway's own certificate chain, for services that ask for one (mTLS).
    pub cert_file: PathBuf,
    /// PEM file of that certificate's private key.
    pub key_file: PathBuf,
    /// Whether the service's certificate is verified. If not, anyone who can intercept
    /// the connection can read and change all requests.
    pub verify: bool,
}

impl Default for UpstreamTlsConfig {
    fn default() -> Self {
        Self {
            ca_file: PathBuf::new(),
            server_name: String::new(),
            cert_file: PathBuf::new(),
            key_file: PathBuf::new(),
            verify: true,
        }
    }
}

impl UpstreamTlsConfig {
    /// The file of trusted authorities, if one is set.
    pub fn ca_file(&self) -> Option<&Path> {
        Some(self.ca_file.as_path()).filter(|file| !file.as_os_str().is_empty())
    }

    /// The files of the gateway's own certificate and its key, if they are set.
    pub fn client_certificate(&self) -> Option<(&Path, &Path)> {
        let is_set = !self.cert_file.as_os_str().is_empty();
        is_set.then_some((self.cert_file.as_path(), self.key_file.as_path()))
    }

    pub(super) fn check(&self, key: &str, faults: &mut Faults) {
        if self.cert_file.as_os_str().is_empty() != self.key_file.as_os_str().is_empty() {
            faults.add(key, "cert_file and key_file must be set together");
        }
        if !self.verify && self.ca_file().is_some() {
            faults.add(&format!("{key}.verify"), "false ignores ca_file; remove one of them");
        }
    }
}
