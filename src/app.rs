//! Composition root: the order in which the gateway starts and stops. Each step has a file of its own, and nothing here
//! serves a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use url::Url;

use crate::api::ready::Readiness;
use crate::config::{BindProof, Config, HumanDuration};
use crate::gateway::drain_signal::DrainSignal;
use crate::metrics::Metrics;
use crate::signin::SignInServices;
use crate::store::rate_leases::LeasedRates;
use crate::traces::{SpanExporter, TraceTarget, Tracer};

// Start, in this order.
mod inherited;

mod lock;

mod listen;

mod tls;

mod secrets;

mod backends;

mod wire;

mod descriptors;

mod simulator;

mod proxy;

// While it runs.
mod tasks;

mod background;

mod clock_watch;

mod feed_watch;

mod recheck;

mod shared_rates;

mod audit_stream;

mod log_watch;

mod memory_watch;

mod control;

mod control_client;

mod follower;

mod gateway_control;

mod service_manager;

mod admin_listener;

mod announce;

mod reload;

mod file_watcher;

mod warnings;

// Stop.
mod drain;

mod handover;

mod descriptor_passing;

mod error;

// For `deskgate check`, `deskgate backup` and `deskgate store copy`.
mod check;

mod backup;

mod copy;

use announce::Announcer;
pub use audit_stream::{AuditStream, AuditWriter, Rotation};
pub use backup::{BackupError, back_up};
pub use check::{FileCheck, check_files};
pub use control_client::{ControlError, send_command, send_gateway_command};
pub use copy::{CopyRefusal, copy_state};
use descriptors::Descriptors;
use drain::{Drain, DrainCause, DrainTimes};
pub use error::StartError;
pub use follower::{FollowError, FollowUpdate, GatewayFollower};
pub use gateway_control::{
    BackendReport, GatewayAnswer, GatewayCommand, GatewayReport, PlatformReport, ReloadRequest, ReloadSummary,
    UpstreamReport,
};
use gateway_control::{GatewayControl, ReportSources};
use handover::HandOver;
pub use handover::{HandOverStep, Predecessor, Successor};
pub use inherited::Inherited;
use listen::Listeners;
pub use lock::DataLock;
pub use log_watch::{AuditQueue, LogStreams};
use memory_watch::MemoryLimit;
use reload::{LastReload, Reloader, RuleFiles};
pub use reload::{ReloadReport, ReloadResult, ReloadScope, RuleSource, Sources};
pub use service_manager::{ServiceManager, StartKind, activated_sockets};
pub use simulator::Simulator;
pub use tasks::TaskFailure;
use tasks::TaskSet;
use tls::Certificates;
use wire::{Databases, Services};
pub use wire::{Offline, open_offline};

/// How many commands may wait for a reload.
const MOST_WAITING_RELOADS: usize = 4;

/// How long the end of a drain waits for the collector of traces.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

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
    log: LogStreams,
    tracer: Option<Arc<Tracer>>,
    hand_over: HandOver,
    successors: Mutex<mpsc::Receiver<Successor>>,
    reload_requests: Mutex<mpsc::Receiver<ReloadRequest>>,
}

impl App {
    /// Opens everything and starts to accept requests. On an error nothing keeps running.
    pub async fn start(mut config: Config, sources: Sources, mut inherited: Inherited) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::new()?);
        // First: the message about a gateway that runs already is better than the one about an address in use.
        let lock = match inherited.lock.take() {
            Some(lock) => lock,
            None => DataLock::acquire(&config.server.data_dir).await?,
        };
        let mut listeners = Listeners::bind(&config.server, &mut inherited)?;
        for address in inherited.unused() {
            tracing::warn!("closing the socket of {address}, which another process has opened: no setting names it");
        }
        let (listen, admin) = (listeners.client_addresses(), listeners.admin_address());
        listen::fill_ports(&mut config, &listeners);

        let rule_files = RuleFiles::new(sources.rules);
        let rules = rule_files.load(&config, &config.named_upstreams(), &metrics)?;
        let certificates = Arc::new(Certificates::open(&config.server, &metrics)?);
        let services = wire::services(&config, rules, metrics.clone()).await?;
        let descriptors = Descriptors::claim(&config)?;
        // After everything that can fail: a process that this one replaces still has its own.
        let control = control::bind(&config.server.data_dir).map_err(error::data_error(&config.server.data_dir))?;
        reload::record_load(&metrics, &services.gate.clock, &config, &services.gate.rules.load());
        count_unsafe_settings(&config, &metrics);
        for warning in warnings::of_store(&services.databases.store.durability_gaps()) {
            tracing::warn!("{warning}");
        }

        let readiness = Arc::new(Readiness::new(config.server.development_mode(), services.gate.clock.clone()));
        let drain = Arc::<DrainSignal>::default();
        let (tracer, exporter) = traces(&config, &services)?.unzip();
        let gateway = proxy::gateway(&config, &services, &readiness, &drain, tracer.clone(), descriptors);
        let idle_connections = gateway.connector.sweep();
        let acceptor = Arc::new(proxy::acceptor(&config, gateway, descriptors));
        let tasks = TaskSet::default();
        tasks.spawn("idle connections", idle_connections);
        tasks.spawn("log watch", sources.log.clone().watch(metrics.clone()));
        let pages = admin_listener::AdminPages {
            metrics,
            store: services.databases.store.clone(),
            signin: services.signin.clone(),
            readiness: readiness.clone(),
            upstreams: services.upstreams.clone(),
        };
        if let Some(exporter) = exporter {
            tasks.spawn("trace exporter", exporter.run());
        }
        background::start(&tasks, &services);
        let (hand_over, successors) = HandOver::new(&config, listeners.take_sockets(), lock);
        let config = Arc::new(ArcSwap::from_pointee(config));
        let last_reload = Arc::<LastReload>::default();
        let (reloads, reload_requests) = mpsc::channel(MOST_WAITING_RELOADS);
        let gateway_control = GatewayControl {
            journal: services.gate.journal.clone(),
            report: ReportSources {
                config: config.clone(),
                listeners: listen.iter().map(ToString::to_string).collect(),
                admin_listener: admin.to_string(),
                started_at: services.gate.clock.now(),
                started: services.gate.clock.uptime(),
                gate: services.gate.clone(),
                metrics: services.metrics.clone(),
                registry: services.registry.clone(),
                store: services.databases.store.clone(),
                signin: services.signin.clone(),
                readiness: readiness.clone(),
                upstreams: services.upstreams.clone(),
                last_reload: last_reload.clone(),
            },
            reloads,
        };
        tasks.spawn("control socket", control::serve(control, services.admin, gateway_control, hand_over.clone()));
        let memory = MemoryLimit::new(config.load().limits.memory);
        let concurrency = acceptor.app.concurrency.clone();
        tasks.spawn("memory watch", memory_watch::run(memory.clone(), concurrency, services.metrics.clone()));
        listeners.start(&tasks, &acceptor, &certificates, &wire::trusted_proxies(&config.load().server), pages);
        if !certificates.is_empty() {
            tasks.spawn("certificate watcher", certificates.clone().watch());
        }
        let store = services.databases.store.clone();
        let announcer = Announcer::new(
            config.clone(),
            listen::first(&listen),
            store,
            services.gate.clone(),
            services.registry.clone(),
        );
        tasks.spawn("announcement", announcer.clone().run());

        let (keys, gate, registry, recheck) = (services.keys, services.gate, services.registry, services.recheck);
        Ok(Self {
            reloader: Reloader {
                config,
                config_source: sources.config,
                rule_files,
                keys,
                certificates,
                gate,
                registry,
                recheck,
                upstreams: services.upstreams,
                acceptor,
                descriptors,
                memory,
                last_reload,
            },
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
            log: sources.log,
            tracer,
            hand_over,
            successors: Mutex::new(successors),
            reload_requests: Mutex::new(reload_requests),
        })
    }

    /// The client addresses, separated by commas.
    pub fn listen_list(&self) -> String {
        self.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// The URL under which browsers reach the gateway.
    pub fn public_url(&self) -> Url {
        self.config().server.public_url.clone()
    }

    /// How long [`App::stop`] waits for open requests.
    pub fn drain_timeout(&self) -> HumanDuration {
        self.config().server.drain
    }

    /// The configuration in force.
    fn config(&self) -> Arc<Config> {
        self.reloader.config.load_full()
    }

    /// Reloads configuration, rules, keys and certificates, and opens the audit file again. On an error nothing else changes.
    pub async fn reload(&self, scope: ReloadScope) -> Result<ReloadReport, StartError> {
        if scope == ReloadScope::All {
            self.log.reopen();
        }
        self.reloader.reload(scope).await
    }

    /// Resolves when a watched rule file has changed; never, unless `rules.watch` is set.
    pub async fn rules_changed(&self) {
        self.reloader.rules_changed().await;
    }

    /// Resolves when a command asks for a reload, and waits for its result.
    pub async fn reload_requested(&self) -> ReloadRequest {
        match self.reload_requests.lock().await.recv().await {
            Some(request) => request,
            // The control socket, whose task holds the other end, never ends by itself.
            None => std::future::pending().await,
        }
    }

    /// Resolves when a background task has died. The process must then [`App::abort`].
    pub async fn task_failure(&self) -> TaskFailure {
        self.tasks.failure().await
    }

    /// Resolves when another process is to take the place of this one, see [`HandOverStep`].
    pub async fn successor(&self) -> Successor {
        match self.successors.lock().await.recv().await {
            Some(successor) => successor,
            // The control socket, whose task holds the other end, never ends by itself.
            None => std::future::pending().await,
        }
    }

    /// Drains for a successor that accepts requests already.
    pub async fn stop_replaced(self) {
        let limit = self.drain_timeout().get();
        let _ = self.hand_over.close();
        self.shut_down(DrainCause::HandOver, DrainTimes { delay: Duration::ZERO, limit, spread: limit / 2 }).await;
    }

    /// Drains and closes the databases for a successor that is to open them. New connections wait meanwhile, so it takes at
    /// most `server.upgrade_drain`.
    pub async fn release(self) -> Result<Released, StartError> {
        let limit = self.upgrade_drain().get();
        let config = Config::clone(&self.config());
        let Reloader { config_source, rule_files, .. } = &self.reloader;
        let sources =
            Sources { config: config_source.clone(), rules: rule_files.source().clone(), log: self.log.clone() };
        let kept = self.hand_over.close().map_err(|error| StartError::HandOver(error.to_string()))?;
        self.shut_down(DrainCause::HandOver, DrainTimes { delay: Duration::ZERO, limit, spread: limit / 2 }).await;
        Ok(Released { config, sources, kept })
    }

    /// How long [`App::release`] waits for open requests.
    pub fn upgrade_drain(&self) -> HumanDuration {
        let server = &self.config().server;
        server.upgrade_drain.min(server.drain)
    }

    /// Is not ready for `server.drain_delay`, drains for at most `server.drain` and then stops the background tasks.
    pub async fn stop(self) {
        let config = self.config();
        let (delay, limit) = (config.server.drain_delay.get(), config.server.drain.get());
        // Otherwise connections would wait in a backlog that nobody accepts from.
        let _ = self.hand_over.close();
        self.shut_down(DrainCause::Stop, DrainTimes { delay, limit, spread: limit / 2 }).await;
    }

    /// Stops without waiting for open requests. Sockets are closed with 1001, for which they get the usual
    /// `websocket.close_grace`. For a gateway whose change feed or another task is dead: continuing to serve would
    /// accept sessions that were revoked.
    pub async fn abort(self) {
        let limit = self.config().websocket.close_grace.get();
        let _ = self.hand_over.close();
        self.shut_down(DrainCause::Stop, DrainTimes { delay: Duration::ZERO, limit, spread: Duration::ZERO }).await;
    }

    async fn shut_down(self, cause: DrainCause, times: DrainTimes) {
        let Reloader { gate, registry, .. } = &self.reloader;
        let drain = Drain {
            cause,
            readiness: &self.readiness,
            signal: &self.drain,
            signin: &self.signin,
            registry,
            metrics: &gate.metrics,
        };
        drain.run(times).await;
        if let Some(tracer) = &self.tracer
            && timeout(FLUSH_TIMEOUT, tracer.flush()).await.is_err()
        {
            tracing::warn!("the collector of traces does not answer: the last spans are lost");
        }
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

/// A gateway that has closed everything for its successor, but for the listening sockets.
pub struct Released {
    config: Config,
    sources: Sources,
    kept: Inherited,
}

impl Released {
    /// Waits until the successor accepts requests. An error says why it has failed, and this gateway must [`resume`].
    ///
    /// [`resume`]: Released::resume
    pub async fn replace_by(&self, successor: Successor) -> std::io::Result<()> {
        successor.replace(&self.kept).await
    }

    /// Opens everything again, on the same sockets.
    pub async fn resume(self) -> Result<App, StartError> {
        App::start(self.config, self.sources, self.kept).await
    }
}

/// Does as much of a start as is possible while another process has the data directory: what fails here does not disturb that one.
pub fn prepare_upgrade(config: &Config, inherited: &mut Inherited) -> Result<(), StartError> {
    descriptors::foresee(config)?;
    listen::bind_missing(config, inherited)
}

/// Shows unsafe settings as metrics.
fn count_unsafe_settings(config: &Config, metrics: &Metrics) {
    metrics.development_mode.set(i64::from(config.server.development));
    metrics.bind_without_proof.set(i64::from(config.bind.proof == BindProof::None));
}

/// The tracer and its exporter; None without `traces.endpoint`.
fn traces(config: &Config, services: &Services) -> Result<Option<(Arc<Tracer>, SpanExporter)>, StartError> {
    let Some(url) = config.traces.spans_url() else { return Ok(None) };
    let instance = crate::domain::secret::random_name(16);
    let target = TraceTarget::new(url, &config.traces.service, &instance)
        .map_err(|error| StartError::Traces(error.to_string()))?;
    let (clock, metrics) = (services.gate.clock.clone(), services.metrics.traces());
    Ok(Some(Tracer::new(config.traces.sample, clock, metrics, target)))
}
