//! What `deskgate status` shows: the state of the running process, gathered when it is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};

use crate::api::ready::Readiness;
use crate::app::reload::{LastReload, ReloadResult};
use crate::config::{Config, PlatformKind};
use crate::domain::clock::Timestamp;
use crate::error::chain;
use crate::metrics::Metrics;
use crate::pipeline::Gate;
use crate::signin::SignInServices;
use crate::sockets::registry::Registry;
use crate::store::Store;
use crate::upstreams::{AddressStatus, Upstreams};

/// A backend that takes longer to answer is unavailable.
const BACKEND_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a running gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayReport {
    /// The program's version.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// The process id.
    pub pid: u32,
    /// When the process began to accept requests.
    pub started_at: Timestamp,
    /// The seconds since then, measured by the monotonic clock.
    pub uptime_seconds: u64,
    /// Whether load balancers may send requests.
    pub ready: bool,
    /// Why not.
    pub not_ready: Vec<String>,
    /// Whether development mode is on.
    pub development: bool,
    /// The client addresses.
    pub listeners: Vec<String>,
    /// The address of `/metrics`.
    pub admin_listener: String,
    /// The digest of the settings that must be the same on all gateways.
    pub config_digest: String,
    /// The digest of the rules.
    pub rules_digest: String,
    /// The number of rules.
    pub rules: usize,
    /// The last reload; `None` if there was none.
    pub last_reload: Option<ReloadResult>,
    /// Sessions in the store, those of all gateways on it; `None` if it does not answer.
    pub sessions: Option<u64>,
    /// Open WebSockets.
    pub websockets: usize,
    /// Open client connections, WebSockets included.
    pub connections: i64,
    /// The most client connections.
    pub connections_limit: i64,
    /// Requests in flight.
    pub requests_in_flight: i64,
    /// Sessions, tickets and rate limits.
    pub store: BackendReport,
    /// Employees, roles and agents.
    pub directory: BackendReport,
    /// The messaging platform.
    pub platform: PlatformReport,
    /// Each upstream.
    pub upstreams: Vec<UpstreamReport>,
}

/// The state of the store or the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendReport {
    /// `embedded` or `redis`; `sqlite` or `postgres`.
    pub kind: String,
    /// Why it cannot be used; `None` if it can.
    pub error: Option<String>,
    /// The age of what was last read from the change feed, in milliseconds; only of a shared store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_lag_ms: Option<u64>,
}

/// The state of the messaging platform's client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformReport {
    /// `wecom` or `simulated`.
    pub kind: String,
    /// The seconds for which the circuit is open; `None` while calls are made.
    pub circuit_open_seconds: Option<u64>,
}

/// How many addresses of an upstream get requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamReport {
    /// The upstream's name.
    pub name: String,
    /// How many get requests.
    pub healthy: usize,
    /// How many there are, names that are not resolved included.
    pub total: usize,
}

/// What a report is gathered from.
#[derive(Clone)]
pub(in crate::app) struct ReportSources {
    pub(in crate::app) config: Arc<ArcSwap<Config>>,
    pub(in crate::app) listeners: Vec<String>,
    pub(in crate::app) admin_listener: String,
    pub(in crate::app) started_at: Timestamp,
    pub(in crate::app) started: Duration,
    pub(in crate::app) gate: Arc<Gate>,
    pub(in crate::app) metrics: Arc<Metrics>,
    pub(in crate::app) registry: Arc<Registry>,
    pub(in crate::app) store: Arc<dyn Store>,
    pub(in crate::app) signin: Arc<SignInServices>,
    pub(in crate::app) readiness: Arc<Readiness>,
    pub(in crate::app) upstreams: Arc<Upstreams>,
    pub(in crate::app) last_reload: Arc<LastReload>,
}

impl ReportSources {
    /// Asks every part at the same time.
    pub(super) async fn report(&self) -> GatewayReport {
        let config = self.config.load_full();
        let (backends, sessions) = tokio::join!(
            self.signin.backends.status(BACKEND_TIMEOUT),
            tokio::time::timeout(BACKEND_TIMEOUT, self.store.count()),
        );
        let no_answer = || format!("no answer within {} s", BACKEND_TIMEOUT.as_secs());
        let store_error = backends.store.map_or_else(|| Some(no_answer()), |ready| ready.err().map(|why| chain(&why)));
        let directory_error =
            backends.directory.map_or_else(|| Some(no_answer()), |ready| ready.err().map(|why| chain(&why)));
        let mut not_ready = Vec::new();
        not_ready.extend(store_error.as_ref().map(|why| format!("store: {why}")));
        not_ready.extend(directory_error.as_ref().map(|why| format!("directory: {why}")));
        if self.readiness.is_draining() {
            not_ready.push("the gateway drains".to_owned());
        }
        let lag = self.store.feed().age().filter(|_| config.store.is_shared());
        let rules = self.gate.rules.load();
        let circuit = self.signin.circuit_open_for();
        GatewayReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("DESKGATE_COMMIT").to_owned(),
            pid: std::process::id(),
            started_at: self.started_at,
            uptime_seconds: self.gate.clock.uptime().saturating_sub(self.started).as_secs(),
            ready: not_ready.is_empty(),
            not_ready,
            development: config.server.development,
            listeners: self.listeners.clone(),
            admin_listener: self.admin_listener.clone(),
            config_digest: config.fleet_digest().as_str().to_owned(),
            rules_digest: rules.digest().as_str().to_owned(),
            rules: rules.count(),
            last_reload: self.last_reload.get(),
            sessions: sessions.ok().and_then(Result::ok),
            websockets: self.registry.count_sockets(),
            connections: self.metrics.connections_open.get(),
            connections_limit: self.metrics.connections_limit.get(),
            requests_in_flight: self.metrics.requests_in_flight.get(),
            store: BackendReport {
                kind: if config.store.is_shared() { "redis" } else { "embedded" }.to_owned(),
                error: store_error,
                feed_lag_ms: lag.map(|lag| u64::try_from(lag.as_millis()).unwrap_or(u64::MAX)),
            },
            directory: BackendReport {
                kind: if config.directory.is_shared() { "postgres" } else { "sqlite" }.to_owned(),
                error: directory_error,
                feed_lag_ms: None,
            },
            platform: PlatformReport {
                kind: match config.platform.kind {
                    PlatformKind::Wecom => "wecom",
                    PlatformKind::Simulated => "simulated",
                }
                .to_owned(),
                circuit_open_seconds: circuit.map(|left| left.as_secs().max(1)),
            },
            upstreams: self.upstreams(),
        }
    }

    fn upstreams(&self) -> Vec<UpstreamReport> {
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for row in self.upstreams.rows() {
            let (healthy, total) = counts.entry(row.upstream).or_default();
            *total += 1;
            *healthy += usize::from(matches!(row.state, AddressStatus::Healthy | AddressStatus::SlowStart));
        }
        counts.into_iter().map(|(name, (healthy, total))| UpstreamReport { name, healthy, total }).collect()
    }
}
