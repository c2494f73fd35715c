//! `[platform]`: the messaging platform through which employees sign in.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use url::Url;

use super::server::local_url;
use super::{Faults, HumanDuration, values};
use crate::domain::employee::CorpId;
use crate::domain::secret::Secret;

/// Which platform is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlatformKind {
    /// WeCom.
    Wecom,
    /// A simulator of WeCom, in development mode only.
    Simulated,
}

/// `[platform]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlatformConfig {
    /// `wecom`, or `simulated` in development mode.
    pub kind: PlatformKind,
    /// The main corporation's ID (ww…).
    pub corp_id: String,
    /// The application's `agentid`; if empty, authorize URLs do not have one.
    pub agent_id: String,
    /// The application's secret. Prefer `secret_file`.
    #[serde(skip_serializing, deserialize_with = "values::secret")]
    pub secret: Secret<String>,
    /// File with the application's secret.
    pub secret_file: PathBuf,
    /// The page to which browsers are redirected to authorize.
    #[serde(deserialize_with = "values::url")]
    pub authorize_url: Url,
    /// The base URL of the platform's server API.
    #[serde(deserialize_with = "values::url")]
    pub api_url: Url,
    /// Timeout of one API call.
    pub timeout: HumanDuration,
    /// How often the platform is asked whether everyone with a live session or a local password is still a member;
    /// 0: never.
    pub recheck: HumanDuration,
    /// Address of the simulated platform; port 0 picks a free port.
    #[serde(deserialize_with = "values::address")]
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
            timeout: HumanDuration::seconds(5),
            recheck: HumanDuration::seconds(3600),
            simulated_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }
}

impl PlatformConfig {
    pub(super) fn check(&self, development: bool, faults: &mut Faults) {
        if !self.recheck.get().is_zero() && self.recheck < HumanDuration::seconds(1) {
            faults.add("platform.recheck", format!("\"{}\" is too short; set 0 or at least 1s", self.recheck));
        }
        match self.kind {
            PlatformKind::Simulated => {
                if cfg!(not(feature = "demo")) {
                    let why =
                        "this build has no simulated platform; build with the cargo feature `demo` or set \"wecom\"";
                    faults.add("platform.kind", why);
                }
                if !development {
                    faults.add("platform.kind", "\"simulated\" requires server.development = true");
                }
                if !self.simulated_listen.ip().is_loopback() {
                    let why = format!("\"{}\" is not a loopback address", self.simulated_listen);
                    faults.add("platform.simulated_listen", why);
                }
            }
            PlatformKind::Wecom => {
                if !CorpId::is_well_formed(&self.corp_id) {
                    faults.add("platform.corp_id", format!("{:?} is not a corporation ID (ww…)", self.corp_id));
                }
                let in_file = !self.secret_file.as_os_str().is_empty();
                match (self.secret.reveal().is_empty(), in_file) {
                    (true, false) => {
                        faults.add("platform.secret_file", "required: the path of a file with the application's secret")
                    }
                    (false, true) => faults.add("platform.secret", "set either secret or secret_file, not both"),
                    (false, false) => {}
                    (true, true) => {
                        if let Err(error) = std::fs::metadata(&self.secret_file) {
                            let why = format!("{:?} cannot be read: {error}", self.secret_file);
                            faults.add("platform.secret_file", why);
                        }
                    }
                }
                for (key, url) in [("platform.authorize_url", &self.authorize_url), ("platform.api_url", &self.api_url)]
                {
                    if url.scheme() != "https" && !development {
                        faults.add(key, format!("\"{url}\" must use https outside development mode"));
                    }
                }
                if values::has_credentials(&self.authorize_url) {
                    faults.add("platform.authorize_url", "must not have a user name or a password: browsers get it");
                }
            }
        }
    }

    /// Returns the application's secret, from `secret_file` if that is set.
    pub fn read_secret(&self) -> std::io::Result<Secret<String>> {
        if self.secret_file.as_os_str().is_empty() {
            return Ok(self.secret.clone());
        }
        Ok(Secret::new(std::fs::read_to_string(&self.secret_file)?.trim().to_owned()))
    }

    /// The application's `agentid`, if one is set.
    pub fn agent(&self) -> Option<String> {
        (!self.agent_id.is_empty()).then(|| self.agent_id.clone())
    }

    /// The main corporation; without `corp_id` the simulator's.
    pub fn main_corp(&self) -> CorpId {
        match self.kind {
            PlatformKind::Simulated if self.corp_id.is_empty() => CorpId::new("wwdemo"),
            _ => CorpId::new(self.corp_id.as_str()),
        }
    }
}
