//! `[platform]`: the enterprise messaging platform.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use url::Url;

use super::server::local_url;
use super::{Faults, Span};
use crate::domain::employee::CorpId;
use crate::domain::secret::Secret;

/// Which platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlatformKind {
    /// WeCom.
    Wecom,
    /// Our own simulator of WeCom; development mode only.
    Simulated,
}

/// `[platform]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlatformConfig {
    /// `wecom`, or `simulated` in development mode.
    pub kind: PlatformKind,
    /// The main corporation's identifier.
    pub corp_id: String,
    /// The application's `agentid`; empty: it is left out of authorize URLs.
    pub agent_id: String,
    /// The application's secret. Better in a file: see `secret_file`.
    #[serde(skip_serializing)]
    pub secret: Secret<String>,
    /// File that holds the secret.
    pub secret_file: PathBuf,
    /// Where browsers are sent to authorize.
    pub authorize_url: Url,
    /// The server API.
    pub api_url: Url,
    /// Longest wait for one call.
    pub timeout: Span,
    /// Where the simulated platform listens; port 0 picks a free one.
    pub simulated_listen: SocketAddr,
}

impl Default for PlatformConfig {
    fn default() -> Self {
        Self {
            kind: PlatformKind::Wecom,
            corp_id: String::new(),
            agent_id: String::new(),
            secret: Secret::default(),
            secret_file: PathBuf::new(),
            authorize_url: local_url("https://open.weixin.qq.com/connect/oauth2/authorize"),
            api_url: local_url("https://qyapi.weixin.qq.com/"),
            timeout: Span::seconds(5),
            simulated_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }
}

impl PlatformConfig {
    pub(super) fn check(&self, development: bool, faults: &mut Faults) {
        match self.kind {
            PlatformKind::Simulated => {
                if cfg!(not(feature = "demo")) {
                    let why =
                        "this build has no simulated platform; build with the cargo feature `demo` or set \"wecom\"";
                    faults.add("platform.kind", why);
                }
                if !development {
                    faults.add("platform.kind", "the simulated platform needs server.development = true");
                }
                if !self.simulated_listen.ip().is_loopback() {
                    faults.add("platform.simulated_listen", "must be a loopback address");
                }
            }
            PlatformKind::Wecom => {
                if !CorpId::is_well_formed(&self.corp_id) {
                    faults.add("platform.corp_id", "required: the corporation's identifier (ww…)");
                }
                let in_file = !self.secret_file.as_os_str().is_empty();
                match (self.secret.reveal().is_empty(), in_file) {
                    (true, false) => {
                        faults.add("platform.secret_file", "required: a file with the application's secret")
                    }
                    (false, true) => faults.add("platform.secret", "give either secret or secret_file, not both"),
                    (false, false) => {}
                    (true, true) => {
                        if let Err(error) = std::fs::metadata(&self.secret_file) {
                            let why = format!("{}: {error}", self.secret_file.display());
                            faults.add("platform.secret_file", why);
                        }
                    }
                }
                for (key, url) in [("platform.authorize_url", &self.authorize_url), ("platform.api_url", &self.api_url)]
                {
                    if url.scheme() != "https" && !development {
                        faults.add(key, "must be https outside development mode");
                    }
                }
            }
        }
    }

    /// The application's secret, from wherever it is kept.
    pub fn read_secret(&self) -> std::io::Result<Secret<String>> {
        if self.secret_file.as_os_str().is_empty() {
            return Ok(self.secret.clone());
        }
        Ok(Secret::new(std::fs::read_to_string(&self.secret_file)?.trim().to_owned()))
    }

    /// The main corporation; the simulator's own when none is set.
    pub fn main_corp(&self) -> CorpId {
        match self.kind {
            PlatformKind::Simulated if self.corp_id.is_empty() => CorpId::new("wwdemo"),
            _ => CorpId::new(self.corp_id.as_str()),
        }
    }
}
