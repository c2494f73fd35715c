//! Composition root: from the configuration to stores, directory, keys, rules and listeners.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use pingora_core::apps::HttpServerOptions;
use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::protocols::http::v2::server::{H2Options, default_h2_options};
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::HttpProxy;
use pingora_timeout::fast_timeout::set_fast_timeout_to_tokio_threshold;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use url::Url;

use crate::api::{Api, Operations};
use crate::config::{BindProof, Config, LimitsConfig};
use crate::domain::client::Client;
use crate::domain::clock::{Clock, Timestamp};
use crate::gateway::connection::HeadLimits;
use crate::gateway::door::Door;
use crate::gateway::upstreams::Upstreams;
use crate::gateway::{Gateway, SocketSettings};
use crate::metrics::Metrics;
use crate::operate::keys::{KeyDesk, KeySettings};
use crate::operate::{self, Operator};
use crate::pipeline::Gate;
use crate::pipeline::record::OwnMetrics;
use crate::rules::{self, RuleFault, RuleSet};
use crate::signin::devices::Devices;
use crate::signin::password::{PasswordSettings, Passwords};
use crate::signin::roles::Roles;
use crate::signin::{Parts, Settings, SignIn};
use crate::sockets::registry::Registry;
use crate::store::counters::InMemory;
use crate::store::live::Live;
use crate::token::Tokens;
use crate::token::ring::{KeyFault, KeyRing};
use crate::token::seal::Seal;

mod admin;

mod backends;

mod control;

mod fault;

mod follow;

mod lock;

mod simulator;

mod tls;

mod watching;

pub use backends::open_offline;
use backends::{in_directory, open_directory, open_platform, open_store, open_vault};
pub use control::{ControlFault, call};
pub use fault::StartFault;
use follow::{end_with_keys, follow, follow_directory, judge_all_sockets, sweep};
pub use lock::DataLock;
pub use simulator::Simulator;
use watching::Look;

/// Idle connections kept to all upstreams together.
const UPSTREAM_POOL: usize = 1024;

/// Fields count 32 bytes more on HTTP/2 than they have: many short ones must fit.
const SMALLEST_HEADER_LIST: u32 = 64 * 1024;

/// Where rules come from.
#[derive(Debug, Clone)]
pub enum RuleSource {
    /// The configured folder.
    Folder(PathBuf),
    /// The ones that the program ships.
    Shipped,
}

impl RuleSource {
    fn look(&self) -> Look {
        match self {
            RuleSource::Folder(folder) => watching::look(folder),
            RuleSource::Shipped => Look::default(),
        }
    }

    /// Reads and compiles them.
    pub fn load(&self, upstreams: &[&str], metrics: &Metrics) -> Result<RuleSet, Vec<RuleFault>> {
        match self {
            RuleSource::Folder(folder) => rules::load_dir(folder, upstreams, metrics),
            RuleSource::Shipped => {
                let texts: Vec<(String, String)> =
                    rules::SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
                rules::load_texts(&texts, upstreams, metrics)
            }
        }
    }
}

/// A gateway that runs.
pub struct App {
    config: Config,
    rule_source: RuleSource,
    /// What the rule files looked like when they were last read.
    looked: Mutex<Look>,
    gate: Arc<Gate>,
    keys: Arc<KeyDesk>,
    registry: Arc<Registry>,
    operations: Arc<Operations>,
    certificate: Option<tls::Certificate>,
    shutdown: watch::Sender<bool>,
    /// The first client address.
    pub listen: SocketAddr,
    /// The operators' address.
    pub admin: SocketAddr,
    /// The simulated platform, if there is one.
    pub platform: Option<Simulator>,
    _lock: DataLock,
}

impl App {
    /// Opens everything and starts to listen.
    pub async fn start(mut config: Config, rule_source: RuleSource) -> Result<Self, StartFault> {
        let clock = Clock::system();
        let metrics = Arc::new(Metrics::new()?);
        let listeners = listen(&config.server.listen).await?;
        let admin_listener = listen(&[config.server.admin_listen]).await?.remove(0);
        let (listen, admin) = (local(&listeners[0]), local(&admin_listener));
        fill_ports(&mut config, listen.port());

        let data = config.server.data_dir.clone();
        let in_data = |source| StartFault::Data { path: data.clone(), source };
        DataLock::prepare(&data)?;
        let lock = DataLock::wait(&data).await?;
        let looked = Mutex::new(rule_source.look());
        let rules = rule_source.load(&config.upstream_names(), &metrics).map_err(StartFault::Rules)?;
        let key_folder = data.join("keys");
        let keys = open_keys(&config, clock.now())?;
        let seal = Seal::open(&key_folder).map_err(in_data)?;
        let vault = open_vault(&config, &key_folder).map_err(in_data)?;
        let certificate = config.server.tls.as_ref().map(tls::Certificate::open).transpose()?;
        let store = open_store(&data, &clock).await?;
        let directory = open_directory(&config, &clock).await?;
        let (platform, simulator) = open_platform(&config).await?;

        let issuer = config.server.public_url.as_str().trim_end_matches('/').to_owned();
        let tokens = Arc::new(Tokens::new(keys, issuer.clone(), config.token.leeway.get()));
        let live = Arc::new(Live::new(store.clone(), config.token.cache, config.token.lifetime.get()));
        let keys = Arc::new(KeyDesk::new(key_settings(&config), tokens.clone(), live.clone(), clock.clone()));
        let devices = Devices::new(directory.clone(), vault.clone(), clock.clone(), config.otp.issuer.clone());
        devices.renew_secrets().await.map_err(|source| in_directory(&config, source))?;
        let passwords = Arc::new(Passwords::new(PasswordSettings::default()));
        let roles = Roles::new(live.clone(), directory.clone(), config.directory.fallback_role());
        let registry = Arc::new(Registry::default());
        let operations = Arc::new(Operations::default());
        let signin = Arc::new(SignIn::new(
            settings(&config, issuer),
            Parts {
                live: live.clone(),
                directory: directory.clone(),
                platform,
                tokens: tokens.clone(),
                seal,
                devices: devices.clone(),
                passwords: passwords.clone(),
                vault,
                clock: clock.clone(),
                metrics: metrics.clone(),
            },
        ));
        let gate = Arc::new(gate(&config, rules, tokens, live.clone(), metrics.clone(), clock.clone()));
        say_modes(&config, &metrics);

        // Changes are followed before the first request can be answered.
        tokio::spawn(follow(store.changes(), gate.clone(), registry.clone(), signin.clone()));
        tokio::spawn(follow_directory(roles));
        tokio::spawn(end_with_keys(keys.clone(), gate.clone(), registry.clone()));
        tokio::spawn(sweep(store, gate.clone(), signin.clone()));
        let (shutdown, watched) = watch::channel(false);
        let operator = Operator::new(operate::Parts {
            live,
            directory,
            default_role: config.directory.fallback_role(),
            main_corp: config.platform.main_corp(),
            devices,
            passwords,
            keys: keys.clone(),
        });
        control::open(&data, operator).map_err(in_data)?;
        tokio::spawn(admin::serve(admin_listener, metrics.clone(), signin.clone(), watched.clone()));

        let gateway = Gateway {
            gate: gate.clone(),
            api: Api {
                signin,
                operations: operations.clone(),
                limits: config.limits.clone(),
                secure_cookies: config.server.public_url.scheme() == "https",
            },
            upstreams: Upstreams::new(&config.upstreams, &metrics),
            connector: TransportConnector::new(Some(ConnectorOptions::new(UPSTREAM_POOL))),
            sockets: SocketSettings {
                registry: registry.clone(),
                handshake: config.websocket.handshake.get(),
                close_grace: config.websocket.close_grace.get(),
            },
            own_metrics: OwnMetrics::new(&metrics, config.log.requests),
        };
        let door = Arc::new(Door {
            proxy: Arc::new(engine(gateway, &config)),
            tls: certificate.as_ref().map(tls::Certificate::acceptor),
            limits: HeadLimits {
                deadline: config.limits.head_deadline.get(),
                idle: config.limits.idle.get(),
                bytes: config.limits.head_bytes,
                target: config.limits.target_bytes,
                lines: config.limits.headers,
            },
            places: Arc::new(Semaphore::new(config.limits.connections.min(Semaphore::MAX_PERMITS))),
        });
        for listener in listeners {
            tokio::spawn(door.clone().open(listener, watched.clone()));
        }
        Ok(Self {
            config,
            rule_source,
            looked,
            gate,
            keys,
            registry,
            operations,
            certificate,
            shutdown,
            listen,
            admin,
            platform: simulator,
            _lock: lock,
        })
    }

    /// Where browsers reach us.
    pub fn public_url(&self) -> &Url {
        &self.config.server.public_url
    }

    /// Loads rules, keys and certificate anew. What is not sound changes nothing.
    pub async fn reload(&self) -> Result<usize, StartFault> {
        // A command that removes a key meanwhile must not be undone by what was read before it.
        let _alone = self.keys.alone().await;
        let reloaded = self.try_reload();
        self.gate.metrics.config_reload_success.set(i64::from(reloaded.is_ok()));
        if reloaded.is_ok() {
            // A handshake that was judged by the old rules looks at the new ones once more after it has entered.
            self.registry.follow(&self.gate.rules.load());
            judge_all_sockets(&self.gate, &self.registry).await;
        }
        reloaded
    }

    /// Resolves when a rule file has changed; never, when rules are not watched.
    pub async fn rules_changed(&self) {
        match &self.rule_source {
            RuleSource::Folder(folder) if self.config.rules.watch => {
                let loaded = self.looked.lock().unwrap_or_else(PoisonError::into_inner).clone();
                watching::changed(folder, &loaded).await;
            }
            RuleSource::Folder(_) | RuleSource::Shipped => std::future::pending().await,
        }
    }

    fn try_reload(&self) -> Result<usize, StartFault> {
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = self.rule_source.look();
        let rules =
            self.rule_source.load(&self.config.upstream_names(), &self.gate.metrics).map_err(StartFault::Rules)?;
        let keys = self.keys.read()?;
        if let Some(certificate) = &self.certificate {
            certificate.reload()?;
        }
        let count = rules.count();
        self.keys.take(keys);
        self.gate.rules.store(Arc::new(rules));
        loaded(&self.gate.metrics, &self.gate.clock, count);
        Ok(count)
    }

    /// Stops: says so at `/api/ready`, closes sockets with 1001, lets open requests end, up to the
    /// configured time.
    pub async fn stop(self) {
        self.operations.drain();
        self.registry.drain();
        let deadline = tokio::time::Instant::now() + self.config.server.drain.get();
        // Listening goes on while requests end, so that whoever still comes hears why instead of a reset.
        let quiet = async {
            let mut tick = tokio::time::interval(Duration::from_millis(20));
            loop {
                tick.tick().await;
                if self.gate.metrics.requests_in_flight.get() == 0 && self.registry.count() == 0 {
                    break;
                }
            }
        };
        if tokio::time::timeout_at(deadline, quiet).await.is_err() {
            tracing::warn!("some requests did not end in time and are cut");
        }
        let _ = self.shutdown.send(true);
        if let Some(platform) = self.platform {
            platform.stop().await;
        }
    }
}

async fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, StartFault> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        let listener = TcpListener::bind(address).await;
        listeners.push(listener.map_err(|source| StartFault::Listen { address: *address, source })?);
    }
    Ok(listeners)
}

fn local(listener: &TcpListener) -> SocketAddr {
    // A bound listener has an address; the unspecified one only shows that the kernel would not tell.
    listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
}

/// Port 0 in our own addresses means: the port that the first listener got.
fn fill_ports(config: &mut Config, port: u16) {
    let clients = &mut config.clients;
    for url in [&mut config.server.public_url, &mut clients.h5, &mut clients.itagent, &mut clients.itadmin] {
        if url.port() == Some(0) {
            // Only an address without a host refuses a port, and those were refused at load.
            let _ = url.set_port(Some(port));
        }
    }
}

fn key_settings(config: &Config) -> KeySettings {
    KeySettings {
        folder: config.server.data_dir.join("keys"),
        algorithm: config.token.algorithm,
        lead: config.token.key_lead.get(),
        grace: config.token.key_grace.get(),
    }
}

fn open_keys(config: &Config, now: Timestamp) -> Result<KeyRing, KeyFault> {
    let KeySettings { folder, algorithm, grace, .. } = key_settings(config);
    KeyRing::open(&folder, algorithm, grace, now)
}

fn settings(config: &Config, public_url: String) -> Settings {
    Settings {
        platform: config.platform.kind,
        main_corp: config.platform.main_corp(),
        public_url,
        clients: config.clients.clone(),
        ticket: config.ticket.clone(),
        token_lifetime: config.token.lifetime.get(),
        default_role: config.directory.fallback_role(),
        confirm: config.qr.confirm,
        flow_cookie: config.oauth2.require_flow_cookie,
        flow_lifetime: config.oauth2.flow_lifetime.get(),
        otp_valid_for: config.otp.valid_for.get(),
        login_log: config.directory.login_log.get(),
        bind_proof: config.bind.proof,
        development: config.server.development_mode(),
    }
}

fn gate(
    config: &Config,
    rules: RuleSet,
    tokens: Arc<Tokens>,
    live: Arc<Live>,
    metrics: Arc<Metrics>,
    clock: Clock,
) -> Gate {
    loaded(&metrics, &clock, rules.count());
    metrics.config_reload_success.set(1);
    let own = Client::ALL.iter().map(|client| config.clients.url(*client)).chain([&config.server.public_url]);
    let origins = own.chain(&config.websocket.origins).map(|url| url.origin().ascii_serialization()).collect();
    let https = config.server.public_url.scheme() == "https";
    Gate {
        clock,
        trusted_proxies: config.server.trusted_proxies.clone(),
        limits: config.limits.clone(),
        rules: ArcSwap::from_pointee(rules),
        tokens,
        live,
        counters: Arc::new(InMemory::new(config.limits.rate_keys)),
        metrics,
        origins,
        query_token: config.websocket.query_token,
        development: config.server.development_mode(),
        language: config.server.language,
        host: HeaderValue::from_str(config.server.public_url.authority())
            .unwrap_or(HeaderValue::from_static("localhost")),
        scheme: HeaderValue::from_static(if https { "https" } else { "http" }),
    }
}

fn loaded(metrics: &Metrics, clock: &Clock, rules: usize) {
    metrics.rules_loaded.set(i64::try_from(rules).unwrap_or(i64::MAX));
    #[allow(clippy::cast_precision_loss)] // a date in seconds is exact in a double for ages to come
    metrics.config_reload_timestamp.set(clock.now().seconds() as f64);
}

fn engine(gateway: Gateway, config: &Config) -> HttpProxy<Gateway> {
    let most_retries = config.upstreams.values().map(|upstream| upstream.retries).max().unwrap_or(0);
    let conf = ServerConf {
        upstream_keepalive_pool_size: UPSTREAM_POOL,
        max_retries: most_retries + 1,
        ..ServerConf::default()
    };
    // The engine's own timers stay in a tree until their time has come, and nearly all of ours are let go long
    // before: the runtime's cost less then, and keep nothing.
    set_fast_timeout_to_tokio_threshold(Some(Duration::ZERO));
    let mut options = HttpServerOptions::default();
    // Refused by our own pipeline, with our own words.
    options.allow_connect_method_proxying = true;
    options.h2_idle_timeout = Some(config.limits.idle.get());
    let mut proxy = HttpProxy::new(gateway, Arc::new(conf));
    proxy.server_options = Some(options);
    proxy.h2_options = Some(streams(&config.limits));
    proxy.handle_init_modules();
    proxy
}

/// HTTP/2 with room for every head that our own limits allow, as on HTTP/1.1: what is a little too large gets
/// its precise answer from the pipeline, and far more is never collected.
fn streams(limits: &LimitsConfig) -> H2Options {
    let mut options = default_h2_options();
    let twice = u32::try_from(limits.head_bytes * 2).unwrap_or(u32::MAX);
    options.max_header_list_size(twice.max(SMALLEST_HEADER_LIST));
    options
}

/// Says aloud what is convenient and not safe.
fn say_modes(config: &Config, metrics: &Metrics) {
    metrics.development_mode.set(i64::from(config.server.development));
    let open_bind = config.bind.proof == BindProof::None;
    metrics.bind_without_proof.set(i64::from(open_bind));
    if config.server.development {
        tracing::warn!("development mode: /api/dev/login gives tokens to anybody on this machine");
    }
    if open_bind && !config.server.development {
        tracing::error!("bind.proof = \"none\": whoever knows an employee id can sign in as that employee");
    }
}
