//! The configuration: one struct per section, parsed into its final types at load. Unknown keys are
//! faults, and all faults are reported at once with their file and line.

use std::collections::BTreeMap;

use serde::Serialize;

mod clients;

mod faults;

mod load;

mod limits;

mod platform;

mod server;

mod sign_in;

mod store;

mod directory;

mod rules;

mod log;

mod upstream;

mod websocket;

pub use crate::domain::duration::HumanDuration;
pub use clients::ClientsConfig;
pub use directory::DirectoryConfig;
pub use faults::{Fault, Faults};
pub use limits::LimitsConfig;
pub(crate) use load::line_of;
pub use load::{Override, load, load_text};
pub use log::{LogConfig, LogFormat, RequestLines};
pub use platform::{PlatformConfig, PlatformKind};
pub use rules::RulesConfig;
pub use server::{Development, ServerConfig, TlsConfig};
pub use sign_in::{
    BindConfig, BindProof, FlowCookie, Oauth2Config, OtpConfig, QrConfig, QrConfirm, TicketConfig, TokenAlgorithm,
    TokenConfig,
};
pub use store::StoreConfig;
pub use upstream::UpstreamConfig;
pub use websocket::{QueryToken, WebSocketConfig};

/// Everything that can be set.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Config {
    /// `[server]`
    pub server: ServerConfig,
    /// `[limits]`
    pub limits: LimitsConfig,
    /// `[platform]`
    pub platform: PlatformConfig,
    /// `[clients]`
    pub clients: ClientsConfig,
    /// `[token]`
    pub token: TokenConfig,
    /// `[ticket]`
    pub ticket: TicketConfig,
    /// `[qr]`
    pub qr: QrConfig,
    /// `[oauth2]`
    pub oauth2: Oauth2Config,
    /// `[bind]`
    pub bind: BindConfig,
    /// `[otp]`
    pub otp: OtpConfig,
    /// `[websocket]`
    pub websocket: WebSocketConfig,
    /// `[store]`
    pub store: StoreConfig,
    /// `[directory]`
    pub directory: DirectoryConfig,
    /// `[rules]`
    pub rules: RulesConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[upstreams.NAME]`
    pub upstreams: BTreeMap<String, UpstreamConfig>,
}

impl Config {
    /// The names of all upstreams, in their order.
    pub fn upstream_names(&self) -> Vec<&str> {
        self.upstreams.keys().map(String::as_str).collect()
    }

    /// Finds what single values cannot show: settings that contradict each other.
    pub fn check(&self, faults: &mut Faults) {
        self.server.check(faults);
        self.limits.check(faults);
        self.platform.check(self.server.development, faults);
        self.clients.check(faults);
        self.token.check(faults);
        self.ticket.check(faults);
        self.oauth2.check(faults);
        self.otp.check(faults);
        self.store.check(faults);
        self.directory.check(faults);
        for (name, upstream) in &self.upstreams {
            upstream.check(name, faults);
        }
    }
}

#[cfg(test)]
mod tests;
