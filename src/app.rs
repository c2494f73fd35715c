//! Composition root: the order in which the gateway starts and stops. Each step has a file of its own, and nothing here
//! serves a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::api::ready::Readiness;
use crate::config::{BindProof, Config, HumanDuration};
use crate::gateway::drain_signal::DrainSignal;
use crate::metrics::Metrics;
use crate::signin::SignInServices;
use crate::store::rate_leases::LeasedRates;

// Start, in this order.
mod listen;

mod lock;

mod tls;

mod secrets;

mod backends;

mod wire;

mod simulator;

mod proxy;

// While it runs.
mod tasks;

mod background;

mod clock_watch;

mod feed_watch;

mod recheck;

mod shared_rates;

mod control;

mod admin_listener;

mod announce;

mod reload;

mod file_watcher;

mod warnings;

// Stop.
mod drain;

mod error;

// For `deskgate check`, `deskgate backup` and `deskgate store copy`.
mod check;

mod backup;

mod copy;

use announce::Announcer;
pub use backup::{BackupError, back_up};
pub use check::{FileCheck, check_files};
pub use control::{ControlError, send_command};
pub use copy::{CopyRefusal, copy_state};
use drain::Drain;
pub use error::StartError;
use listen::Listeners;
pub use lock::DataLock;
pub use reload::RuleSource;
use reload::{Reloader, RuleFiles};
pub use simulator::Simulator;
pub use tasks::TaskFailure;
use tasks::TaskSet;
use tls::Certificates;
use wire::Databases;
pub use wire::{Offline, open_offline};

/// A running gateway.
pub struct App {
    reloader: Reloader,
    readiness: Arc<Readiness>,
    tasks: TaskSet,
    drain: Arc<DrainSignal>,
    signin: Arc<SignInServices>,
    databases: Databases,
    announcer: Announcer,
    shared_rates: Option<LeasedRates>,
    listen: Vec<SocketAddr>,
    /// The address of `/metrics`.
    pub admin: SocketAddr,
    /// The simulated platform in development.
    pub platform: Option<Simulator>,
    _lock: DataLock,
}

impl App {
    /// Opens everything and starts to accept requests. On an error nothing keeps running.
    pub async fn start(mut config: Config, rule_source: RuleSource) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::new()?);
        let listeners = Listeners::bind(&config.server)?;
        let (listen, admin) = (listeners.client_addresses(), listeners.admin_address());
        listen::fill_ports(&mut config, &listeners);

        let lock = DataLock::acquire(&config.server.data_dir).await?;
        let rule_files = RuleFiles::new(rule_source);
        let rules = rule_files.load(&config, &metrics)?;
        let certificates = Arc::new(Certificates::open(&config.server, &metrics)?);
        let services = wire::services(&config, rules, metrics.clone()).await?;
        let control = control::bind(&config.server.data_dir).map_err(error::data_error(&config.server.data_dir))?;
        reload::record_load(&metrics, &services.gate.clock, &config, &services.gate.rules.load());
        count_unsafe_settings(&config, &metrics);
        for warning in warnings::of_store(&services.databases.store.durability_gaps()) {
            tracing::warn!("{warning}");
        }

        let readiness = Arc::new(Readiness::new(config.server.development_mode(), services.gate.clock.clone()));
        let drain = Arc::<DrainSignal>::default();
        let gateway = proxy::gateway(&config, &services, &readiness, &drain);
        let acceptor = proxy::acceptor(&config, gateway);
        let page = admin_listener::MetricsPage {
            metrics,
            signin: services.signin.clone(),
            readiness: readiness.clone(),
            upstreams: services.upstreams.clone(),
        };
        let tasks = TaskSet::default();
        background::start(&tasks, &services);
        tasks.spawn("control socket", control::serve(control, services.admin));
        listeners.start(&tasks, acceptor, &certificates, &wire::trusted_proxies(&config.server), page);
        if !certificates.is_empty() {
            tasks.spawn("certificate watcher", certificates.clone().watch());
        }
        let store = services.databases.store.clone();
        let announcer =
            Announcer::new(&config, listen::first(&listen), store, services.gate.clone(), services.registry.clone());
        tasks.spawn("announcement", announcer.clone().run());

        let (keys, gate, registry, recheck) = (services.keys, services.gate, services.registry, services.recheck);
        Ok(Self {
            reloader: Reloader { config, rule_files, keys, certificates, gate, registry, recheck },
            readiness,
            tasks,
            drain,
            signin: services.signin,
            databases: services.databases,
            announcer,
            shared_rates: services.shared_rates,
            listen,
            admin,
            platform: services.simulator,
            _lock: lock,
        })
    }

    /// The client addresses, separated by commas.
    pub fn listen_list(&self) -> String {
        self.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// The URL under which browsers reach the gateway.
    pub fn public_url(&self) -> &Url {
        &self.reloader.config.server.public_url
    }

    /// How long [`App::stop`] waits for open requests.
    pub fn drain_timeout(&self) -> HumanDuration {
        self.reloader.config.server.drain
    }

    /// Reloads rules, keys and certificates, and returns the number of rules. On an error nothing changes.
    pub async fn reload(&self) -> Result<usize, StartError> {
        self.reloader.reload().await
    }

    /// Resolves when a watched rule file has changed; never, unless `rules.watch` is set.
    pub async fn rules_changed(&self) {
        self.reloader.rules_changed().await;
    }

    /// Resolves when a background task has died. The process must then [`App::abort`].
    pub async fn task_failure(&self) -> TaskFailure {
        self.tasks.failure().await
    }

    /// Is not ready for `server.drain_delay`, drains for at most `server.drain` and then stops the background tasks.
    pub async fn stop(self) {
        let server = &self.reloader.config.server;
        let (delay, limit) = (server.drain_delay.get(), server.drain.get());
        self.shut_down(delay, limit).await;
    }

    /// Stops without waiting for open requests. Sockets are closed with 1001, for which they get the usual
    /// `websocket.close_grace`. For a gateway whose change feed or another task is dead: continuing to serve would
    /// accept sessions that were revoked.
    pub async fn abort(self) {
        let limit = self.reloader.config.websocket.close_grace.get();
        self.shut_down(Duration::ZERO, limit).await;
    }

    async fn shut_down(self, delay: Duration, limit: Duration) {
        let Reloader { gate, registry, .. } = &self.reloader;
        let drain = Drain {
            readiness: &self.readiness,
            signal: &self.drain,
            signin: &self.signin,
            registry,
            metrics: &gate.metrics,
        };
        drain.run(delay, limit).await;
        self.tasks.stop().await;
        self.announcer.withdraw().await;
        if let Some(rates) = &self.shared_rates {
            rates.close().await;
        }
        if let Some(platform) = self.platform {
            platform.stop().await;
        }
        self.databases.close().await;
    }
}

/// Shows unsafe settings as metrics.
fn count_unsafe_settings(config: &Config, metrics: &Metrics) {
    metrics.development_mode.set(i64::from(config.server.development));
    metrics.bind_without_proof.set(i64::from(config.bind.proof == BindProof::None));
}
