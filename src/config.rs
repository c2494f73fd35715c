//! The configuration: one struct per section, parsed into its final types at load, so that nothing parses settings per
//! request. Unknown keys are faults, and all faults are reported at once with file and line.

use std::collections::BTreeMap;

use serde::Serialize;

mod changes;

mod clients;

mod cors;

mod faults;

mod load;

mod limits;

mod listener;

mod paths;

mod platform;

mod server;

mod sign_in;

mod values;

mod redact;

mod store;

mod directory;

mod rules;

mod rates;

mod audit;

mod show;

mod log;

mod traces;

mod upstream;

mod websocket;

use crate::domain::client::Client;
pub use crate::domain::duration::HumanDuration;
use crate::domain::host::{AllowedHosts, LoopbackHosts};
use crate::domain::secret::Digest;
pub use audit::{AUDIT_FILE, AuditConfig, AuditOutput};
pub use changes::ConfigChanges;
pub use clients::ClientsConfig;
pub use cors::CorsConfig;
pub use directory::{DatabaseUrl, DirectoryConfig};
pub use faults::{ConfigFault, Faults, KeyPlaces};
pub use limits::LimitsConfig;
pub use listener::{CertificateConfig, ListenerConfig};
pub(crate) use load::line_of;
pub use load::{ConfigSource, Override, ReadConfig, load, load_text, read};
pub use log::{LogConfig, LogFormat, RequestLines};
pub use platform::{PlatformConfig, PlatformKind};
pub use rates::RatesConfig;
pub use rules::RulesConfig;
pub use server::{ClientAddress, Development, ForwardedHeaders, ServerConfig};
pub use show::{ShownSection, ShownSetting, inline_toml};
pub use sign_in::{
    AgentsConfig, BindApproval, BindConfig, BindProof, Concealment, FlowCookie, Oauth2Config, OtpConfig, QrConfig,
    QrConfirm, TicketConfig, TokenAlgorithm, TokenConfig,
};
pub use store::{RedisAddress, RedisHost, RedisLayout, RedisTls, StoreConfig, StoreConfirm, StoreTarget, StoreUrl};
pub use traces::TracesConfig;
pub use upstream::{
    Balance, EjectionConfig, HealthConfig, NamedUpstream, PathCase, UpstreamAddress, UpstreamConfig, UpstreamProtocol,
    UpstreamTlsConfig, WeightedAddress,
};
pub use websocket::{QueryToken, WebSocketConfig};

/// All settings.
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
    /// `[agents]`
    pub agents: AgentsConfig,
    /// `[otp]`
    pub otp: OtpConfig,
    /// `[cors]`
    pub cors: CorsConfig,
    /// `[websocket]`
    pub websocket: WebSocketConfig,
    /// `[store]`
    pub store: StoreConfig,
    /// `[directory]`
    pub directory: DirectoryConfig,
    /// `[rules]`
    pub rules: RulesConfig,
    /// `[rates]`
    pub rates: RatesConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[audit]`
    pub audit: AuditConfig,
    /// `[traces]`
    pub traces: TracesConfig,
    /// `[upstreams.NAME]`
    pub upstreams: BTreeMap<String, UpstreamConfig>,
}

/// A section's name and its check.
type SectionCheck<'a> = (&'static str, &'a dyn Fn(&mut Faults));

impl Config {
    /// All upstreams in alphabetical order, with the indexes that they have at a start. A reload gets them from the table of
    /// upstreams, where a known name keeps its index.
    pub fn named_upstreams(&self) -> Vec<NamedUpstream<'_>> {
        let upstreams = self.upstreams.iter().enumerate();
        upstreams.map(|(index, (name, upstream))| NamedUpstream::new(name, index, upstream)).collect()
    }

    /// The origins whose pages may open WebSockets: our own URLs' and `websocket.origins`.
    pub fn websocket_origins(&self) -> Vec<String> {
        let own = Client::ALL.iter().map(|client| self.clients.url(*client)).chain([&self.server.public_url]);
        own.chain(&self.websocket.origins).map(|url| url.origin().ascii_serialization()).collect()
    }

    /// The hosts that requests may name: `server.hosts`, otherwise those of our own URLs. Development mode adds loopback, where
    /// alone its endpoints answer.
    pub fn allowed_hosts(&self) -> AllowedHosts {
        let loopback = if self.server.development { LoopbackHosts::Allowed } else { LoopbackHosts::NotAllowed };
        if !self.server.hosts.is_empty() {
            return AllowedHosts { entries: self.server.hosts.clone(), loopback };
        }
        let urls = Client::ALL.iter().map(|client| self.clients.url(*client)).chain([&self.server.public_url]);
        let entries = urls.filter_map(|url| url.host_str()?.parse().ok()).collect();
        AllowedHosts { entries, loopback }
    }

    /// Whether sessions, the directory or keys are in `server.data_dir`. A gateway of a fleet has only its lock and its control
    /// socket there.
    pub fn uses_data_dir(&self) -> bool {
        !self.store.is_shared() || !self.directory.is_shared() || self.server.secret_file().is_none()
    }

    /// The digest of what should be the same on all gateways of a fleet: everything but a gateway's own addresses, files
    /// and log.
    pub fn fleet_digest(&self) -> Digest {
        let own = ServerConfig::default();
        let server = ServerConfig {
            listen: own.listen,
            listeners: own.listeners,
            certificates: own.certificates,
            admin_listen: own.admin_listen,
            data_dir: own.data_dir,
            threads: own.threads,
            tls: None,
            ..self.server.clone()
        };
        let mut common = Config {
            server,
            rules: RulesConfig::default(),
            log: LogConfig::default(),
            audit: AuditConfig::default(),
            traces: TracesConfig::default(),
            ..self.clone()
        };
        for (_, path) in common.paths_mut() {
            path.clear();
        }
        // Passwords are not serialized. Serializing cannot fail: all keys are text.
        Digest::of(&[&serde_json::to_string(&common).unwrap_or_default()])
    }

    /// Adds faults that single values do not show: values out of range and settings that contradict each other. Skips
    /// a section whose keys have faults, because it holds defaults that the operator did not choose.
    fn check(&self, faults: &mut Faults) {
        let sections: [SectionCheck<'_>; 14] = [
            ("server", &|faults| self.server.check(faults)),
            ("limits", &|faults| self.limits.check(faults)),
            ("platform", &|faults| self.platform.check(self.server.development, faults)),
            ("clients", &|faults| self.clients.check(faults)),
            ("token", &|faults| self.token.check(faults)),
            ("ticket", &|faults| self.ticket.check(faults)),
            ("oauth2", &|faults| self.oauth2.check(faults)),
            ("otp", &|faults| self.otp.check(faults)),
            ("cors", &|faults| self.cors.check(faults)),
            ("store", &|faults| self.store.check(faults)),
            ("directory", &|faults| self.directory.check(faults)),
            ("log", &|faults| self.log.check(faults)),
            ("audit", &|faults| self.audit.check(faults)),
            ("traces", &|faults| self.traces.check(faults)),
        ];
        // Read before the sections are checked: what the platform needs depends on this key.
        let mode_is_known = !faults.any_in("server.development");
        for (name, check) in sections {
            if !faults.any_in(name) && (mode_is_known || name != "platform") {
                check(faults);
            }
        }
        if !["server", "store", "directory"].iter().any(|section| faults.any_in(section)) {
            self.check_sharing(faults);
        }
        self.check_secrets(faults);
        for (name, upstream) in &self.upstreams {
            if !faults.any_in(&format!("upstreams.{name}")) {
                upstream.check(name, faults);
            }
        }
    }

    /// A fleet's secret takes the place of the key files of one gateway.
    fn check_secrets(&self, faults: &mut Faults) {
        if self.server.secret_file().is_some() && !self.otp.key_file.as_os_str().is_empty() {
            let why = "the key is derived from server.secret_file; move this file to otp.old_key_files";
            faults.add("otp.key_file", why);
        }
        if self.store.is_shared() && self.server.secret_file().is_none() && !faults.any_in("store") {
            let why = "gateways that share a store share their keys, too: create a secret with `deskgate secret new FILE` and \
                       set server.secret_file on all of them";
            faults.add("server.secret_file", why);
        }
    }

    /// Sessions of a fleet need the employees of a fleet: one disabled on a gateway would stay enabled on the others.
    fn check_sharing(&self, faults: &mut Faults) {
        if self.store.is_shared() && !self.directory.is_shared() && !self.server.development {
            faults.add(
                "directory.url",
                "store.url is shared by several gateways, so the directory must be too; use \"postgres://…\"",
            );
        }
    }
}

#[cfg(test)]
mod tests;
