//! Builds the services on top of the backends. It starts nothing; listeners and background tasks are left to `listen` and
//! `background`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;

use super::backends::{directory_error, open_directory, open_store};
use super::error::data_error;
use super::recheck::OpenRecheck;
use super::secrets::{self, FleetSecrets, key_folder};
use super::simulator::{self, Simulator};
use super::{DataLock, StartError, warnings};
use crate::admin::keys::{DirectoryKeys, KeyError, KeyRotation, KeySettings, KeyStorage, OpenedKeys};
use crate::admin::{Admin, AdminParts};
use crate::config::{Config, PlatformKind, ServerConfig};
use crate::directory::Directory;
use crate::domain::clock::Clock;
use crate::domain::rate::SharedCounters;
use crate::error::chain;
use crate::metrics::Metrics;
use crate::pipeline::Gate;
use crate::pipeline::client_address::TrustedProxies;
use crate::pipeline::cors::CorsPolicy;
use crate::pipeline::journal::RequestJournal;
use crate::pipeline::redirect::RedirectTarget;
use crate::platform::Platform;
use crate::platform::wecom::{WecomPlatform, WecomSettings};
use crate::rules::RuleSet;
use crate::rules::rate::Rate;
use crate::sessions::SessionCache;
use crate::signin::devices::Devices;
use crate::signin::password::{PasswordSettings, Passwords};
use crate::signin::roles::Roles;
use crate::signin::{Dependencies, Settings, SignInServices};
use crate::sockets::registry::Registry;
use crate::store::Store;
use crate::store::rate_counters::InMemoryRateCounters;
use crate::store::rate_leases::{LeasedRates, RateLeaseSettings};
use crate::token::Tokens;
use crate::token::key_folder::KeyFolder;
use crate::token::vault::Vault;
use crate::upstreams::{self, Upstreams};

/// Everything that listeners, background tasks and the control socket share.
pub(super) struct Services {
    pub(super) metrics: Arc<Metrics>,
    pub(super) databases: Databases,
    pub(super) gate: Arc<Gate>,
    pub(super) signin: Arc<SignInServices>,
    pub(super) roles: Roles,
    pub(super) keys: Arc<KeyRotation>,
    pub(super) admin: Arc<Admin>,
    pub(super) registry: Arc<Registry>,
    pub(super) recheck: Arc<OpenRecheck>,
    pub(super) simulator: Option<Simulator>,
    /// Rate limits that all gateways on the store count together.
    pub(super) shared_rates: Option<LeasedRates>,
    pub(super) upstreams: Arc<Upstreams>,
}

/// The store and the directory.
#[derive(Clone)]
pub(super) struct Databases {
    pub(super) store: Arc<dyn Store>,
    pub(super) directory: Arc<dyn Directory>,
}

impl Databases {
    /// Closes both, so that their files are complete by themselves.
    pub(super) async fn close(&self) {
        self.store.close().await;
        self.directory.close().await;
    }
}

/// What a command works with while no gateway is running.
pub struct Offline {
    /// The services that execute commands.
    pub admin: Admin,
    databases: Databases,
    _lock: Option<DataLock>,
}

impl Offline {
    /// Closes the files. Changes that a command has acknowledged are durable without it.
    pub async fn close(self) {
        self.databases.close().await;
    }
}

/// What both the gateway and an offline command open: keys, store, directory and the services on top of them.
struct Core {
    clock: Clock,
    store: Arc<dyn Store>,
    directory: Arc<dyn Directory>,
    sessions: Arc<SessionCache>,
    tokens: Arc<Tokens>,
    keys: Arc<KeyRotation>,
    secrets: Option<FleetSecrets>,
    vault: Arc<Vault>,
    devices: Devices,
    passwords: Arc<Passwords>,
}

/// Opens all backends of a gateway. The caller holds the data lock.
pub(super) async fn services(config: &Config, rules: RuleSet, metrics: Arc<Metrics>) -> Result<Services, StartError> {
    let core = core(config, &metrics).await?;
    core.devices.renew_secrets().await.map_err(|source| directory_error(config, source))?;
    warn_about_durability(&*core.directory).await;
    let (platform, simulator) = open_platform(config).await?;
    let signin = Arc::new(signin(config, &core, platform, metrics.clone())?);
    let roles = Roles::new(core.sessions.clone(), core.directory.clone(), config.directory.fallback_role());
    // Before the first request, until the background task has compared all sessions.
    roles.distrust_store();
    let shared_rates = shared_rates(config, &core, &metrics);
    let gate = Arc::new(gate(config, rules, &core, metrics.clone(), shared_rates.clone()));
    let registry = Arc::new(Registry::new(core.store.socket_slots()));
    let upstreams = Arc::new(Upstreams::new(&config.upstreams, metrics.clone(), core.clock.clone())?);
    upstreams::resolve::before_start(&upstreams).await;
    Ok(Services {
        recheck: Arc::new(OpenRecheck::new(gate.clone(), registry.clone())),
        gate,
        shared_rates,
        roles,
        admin: Arc::new(admin(config, &core, Some(upstreams.clone()))),
        upstreams,
        registry,
        metrics,
        signin,
        databases: core.databases(),
        keys: core.keys,
        simulator,
    })
}

/// Opens the backends for a command that no gateway on this machine can execute. Holds the data lock meanwhile, unless
/// nothing that the command uses is in the data directory: then gateways elsewhere run beside it.
pub async fn open_offline(config: &Config) -> Result<Offline, StartError> {
    let lock = config.uses_data_dir().then(|| DataLock::acquire_for_command(&config.server.data_dir)).transpose()?;
    let core = core(config, &Arc::new(Metrics::new()?)).await?;
    Ok(Offline { admin: admin(config, &core, None), databases: core.databases(), _lock: lock })
}

impl Core {
    fn databases(&self) -> Databases {
        Databases { store: self.store.clone(), directory: self.directory.clone() }
    }
}

async fn core(config: &Config, metrics: &Arc<Metrics>) -> Result<Core, StartError> {
    let clock = Clock::system();
    let secrets = FleetSecrets::read(&config.server)?;
    let vault = secrets::vault(config, secrets.as_ref())?;
    // At the same time: each checks its whole file.
    let (store, directory) = tokio::try_join!(open_store(config, &clock, metrics), open_directory(config, &clock))?;
    let databases = Databases { store: store.clone(), directory: directory.clone() };
    let (storage, opened) = match open_keys(config, secrets.as_ref(), &directory, &clock).await {
        Ok(keys) => keys,
        Err(error) => {
            databases.close().await;
            return Err(error.into());
        }
    };
    let tokens = Arc::new(Tokens::new(opened.ring, issuer(config), config.token.leeway.get()));
    let (lifetime, leeway) = (config.token.lifetime.get(), config.token.leeway.get());
    let sessions = Arc::new(SessionCache::new(store.clone(), config.token.cache, lifetime, leeway));
    Ok(Core {
        keys: Arc::new(KeyRotation::new(
            key_settings(config),
            storage,
            opened.generation,
            tokens.clone(),
            sessions.clone(),
            clock.clone(),
        )),
        devices: Devices::new(directory.clone(), vault.clone(), clock.clone(), config.otp.issuer.clone()),
        passwords: Arc::new(Passwords::new(PasswordSettings::default())),
        clock,
        store,
        directory,
        sessions,
        tokens,
        secrets,
        vault,
    })
}

/// The `iss` of our tokens: the public URL without its final slash.
pub(super) fn issuer(config: &Config) -> String {
    config.server.public_url.as_str().trim_end_matches('/').to_owned()
}

fn key_settings(config: &Config) -> KeySettings {
    KeySettings {
        algorithm: config.token.algorithm,
        lead: config.token.key_lead.get(),
        grace: config.token.key_grace.get(),
    }
}

/// Opens the signing keys: in the directory with a fleet's secret, otherwise in the key folder.
async fn open_keys(
    config: &Config,
    secrets: Option<&FleetSecrets>,
    directory: &Arc<dyn Directory>,
    clock: &Clock,
) -> Result<(KeyStorage, OpenedKeys), KeyError> {
    let storage = key_storage(config, secrets, directory).await?;
    let folder = KeyFolder::new(key_folder(config));
    let opened = storage.open(&key_settings(config), &folder, clock.now()).await?;
    Ok((storage, opened))
}

/// Where the signing keys are.
pub(super) async fn key_storage(
    config: &Config,
    secrets: Option<&FleetSecrets>,
    directory: &Arc<dyn Directory>,
) -> Result<KeyStorage, KeyError> {
    match secrets {
        Some(secrets) => Ok(KeyStorage::Directory(DirectoryKeys::new(directory.clone(), secrets.key_vault()))),
        None if directory.key_records().await?.records.is_empty() => {
            Ok(KeyStorage::Folder(KeyFolder::new(key_folder(config))))
        }
        None => Err(KeyError::NoSecret),
    }
}

/// Logs what the directory's server would lose in a crash.
async fn warn_about_durability(directory: &dyn Directory) {
    match directory.durability_risks().await {
        Ok(risks) => risks.into_iter().for_each(|risk| tracing::warn!("{}", warnings::of_durability(risk))),
        Err(error) => tracing::warn!(error = %chain(&error), "the settings of the directory's server cannot be read"),
    }
}

/// Connects to WeCom, or to the simulator in development.
async fn open_platform(config: &Config) -> Result<(Arc<dyn Platform>, Option<Simulator>), StartError> {
    let platform = &config.platform;
    let (settings, simulator) = match platform.kind {
        PlatformKind::Simulated => {
            let (simulator, settings) = simulator::start(config).await?;
            (settings, Some(simulator))
        }
        PlatformKind::Wecom => {
            let settings = WecomSettings {
                corp_id: platform.main_corp(),
                agent_id: platform.agent(),
                secret: platform.read_secret().map_err(data_error(&platform.secret_file))?,
                authorize_url: platform.authorize_url.clone(),
                api_url: platform.api_url.clone(),
                timeout: platform.timeout.get(),
            };
            (settings, None)
        }
    };
    Ok((Arc::new(WecomPlatform::new(settings)?), simulator))
}

fn signin(
    config: &Config,
    core: &Core,
    platform: Arc<dyn Platform>,
    metrics: Arc<Metrics>,
) -> Result<SignInServices, StartError> {
    let cookies = secrets::cookies(config, core.secrets.as_ref())?;
    Ok(SignInServices::new(
        Settings {
            main_corp: config.platform.main_corp(),
            public_url: issuer(config),
            clients: config.clients.clone(),
            ticket: config.ticket.clone(),
            token_lifetime: config.token.lifetime.get(),
            default_role: config.directory.fallback_role(),
            confirm: config.qr.confirm,
            flow_cookie: config.oauth2.require_flow_cookie,
            flow_lifetime: config.oauth2.flow_lifetime.get(),
            step_up_lifetime: config.otp.valid_for.get(),
            recheck: config.platform.recheck.get(),
            enrol_within: config.otp.enrol_within.get(),
            log_retention: config.directory.login_log.get(),
            bind_proof: config.bind.proof,
            bind_approval: config.bind.approval,
            conceal: config.agents.conceal,
            development: config.server.development_mode(),
        },
        Dependencies {
            sessions: core.sessions.clone(),
            directory: core.directory.clone(),
            platform,
            tokens: core.tokens.clone(),
            cookies,
            devices: core.devices.clone(),
            passwords: core.passwords.clone(),
            vault: core.vault.clone(),
            callback_vault: secrets::callback_vault(core.secrets.as_ref()),
            clock: core.clock.clone(),
            metrics,
        },
    ))
}

fn admin(config: &Config, core: &Core, upstreams: Option<Arc<Upstreams>>) -> Admin {
    Admin::new(AdminParts {
        sessions: core.sessions.clone(),
        directory: core.directory.clone(),
        default_role: config.directory.fallback_role(),
        main_corp: config.platform.main_corp(),
        devices: core.devices.clone(),
        passwords: core.passwords.clone(),
        keys: core.keys.clone(),
        upstreams,
    })
}

/// The leases of shared rate limits; `None` if the store serves one gateway.
fn shared_rates(config: &Config, core: &Core, metrics: &Metrics) -> Option<LeasedRates> {
    let settings = RateLeaseSettings { max_keys: config.limits.rate_keys, outage: config.rates.outage };
    core.store.rate_ledger().map(|ledger| LeasedRates::new(ledger, settings, core.clock.clone(), metrics))
}

fn gate(
    config: &Config,
    rules: RuleSet,
    core: &Core,
    metrics: Arc<Metrics>,
    shared_rates: Option<LeasedRates>,
) -> Gate {
    let server = &config.server;
    Gate {
        clock: core.clock.clone(),
        proxies: trusted_proxies(server),
        limits: Arc::new(ArcSwap::from_pointee(config.limits.clone())),
        rules: ArcSwap::from_pointee(rules),
        tokens: core.tokens.clone(),
        sessions: core.sessions.clone(),
        invalid_tokens: Rate::of_invalid_tokens(config.limits.invalid_tokens),
        counters: Arc::new(InMemoryRateCounters::new(config.limits.rate_keys)),
        shared_counters: shared_rates.map(|rates| Arc::new(rates) as Arc<dyn SharedCounters>),
        metrics,
        hosts: config.allowed_hosts(),
        origins: config.websocket_origins(),
        cors: CorsPolicy::new(config),
        query_token: config.websocket.query_token,
        development: server.development_mode(),
        language: server.language,
        scheme: HeaderValue::from_static(if server.public_url.scheme() == "https" { "https" } else { "http" }),
        hsts: server.hsts().and_then(|lifetime| format!("max-age={}", lifetime.as_secs()).parse().ok()),
        redirects: RedirectTarget::new(&server.public_url, &server.hosts),
        journal: Arc::new(RequestJournal::new(core.clock.clone())),
    }
}

/// The proxies in front of the gateway.
pub(super) fn trusted_proxies(server: &ServerConfig) -> TrustedProxies {
    TrustedProxies {
        networks: server.trusted_proxies.clone(),
        forwarded: server.forwarded,
        client_address: server.client_address,
    }
}
