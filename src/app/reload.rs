//! Reloads the configuration, rules, signing keys and certificates without a restart. All of them are read before any is
//! replaced, so that a faulty file changes nothing.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};

use super::descriptors::Descriptors;
use super::file_watcher::{self, Fingerprint};
use super::log_watch::LogStreams;
use super::memory_watch::MemoryLimit;
use super::recheck::OpenRecheck;
use super::tls::Certificates;
use super::{StartError, listen, proxy, warnings};
use crate::admin::keys::KeyRotation;
use crate::config::{Config, ConfigChanges, ConfigSource, LimitsConfig, NamedUpstream};
use crate::domain::clock::{Clock, Timestamp};
use crate::explain;
use crate::gateway::accept::Acceptor;
use crate::metrics::Metrics;
use crate::pipeline::Gate;
use crate::rules::{self, RuleFault, RuleSet};
use crate::sockets::registry::Registry;
use crate::upstreams::{self, Upstreams};

/// Where rules come from.
#[derive(Debug, Clone)]
pub enum RuleSource {
    /// The folder `rules.dir`.
    Folder(PathBuf),
    /// The rules compiled into the program.
    Shipped,
}

impl RuleSource {
    /// Reads and compiles the rules and runs their cases.
    pub fn load(&self, upstreams: &[NamedUpstream<'_>], metrics: &Metrics) -> Result<RuleSet, Vec<RuleFault>> {
        let loaded = match self {
            RuleSource::Folder(folder) => rules::load_dir(folder, upstreams, metrics)?,
            RuleSource::Shipped => {
                let texts: Vec<(String, String)> =
                    rules::SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
                rules::load_texts(&texts, upstreams, metrics)?
            }
        };
        explain::check_cases(&loaded)?;
        Ok(loaded)
    }

    /// The source under a configuration, which may have changed since this one was made.
    fn under(&self, config: &Config) -> Self {
        match self {
            RuleSource::Folder(_) => RuleSource::Folder(config.rules.dir.clone()),
            RuleSource::Shipped => RuleSource::Shipped,
        }
    }

    fn fingerprint(&self) -> Fingerprint {
        match self {
            RuleSource::Folder(folder) => Fingerprint::of_rules(folder),
            RuleSource::Shipped => Fingerprint::default(),
        }
    }
}

/// The rules' source, with what its files looked like when they were last read.
pub(super) struct RuleFiles {
    source: RuleSource,
    loaded: Mutex<Fingerprint>,
}

impl RuleFiles {
    pub(super) fn new(source: RuleSource) -> Self {
        Self { source, loaded: Mutex::default() }
    }

    pub(super) fn source(&self) -> &RuleSource {
        &self.source
    }

    /// Loads the rules of a configuration whose upstreams have these indexes.
    pub(super) fn load(
        &self,
        config: &Config,
        upstreams: &[NamedUpstream<'_>],
        metrics: &Metrics,
    ) -> Result<RuleSet, StartError> {
        let source = self.source.under(config);
        *self.loaded() = source.fingerprint();
        let rules = source.load(upstreams, metrics).map_err(StartError::Rules)?;
        for warning in warnings::of(config, &rules) {
            tracing::warn!("{warning}");
        }
        Ok(rules)
    }

    fn loaded(&self) -> MutexGuard<'_, Fingerprint> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the configuration and the rules come from, so that they can be read again, and where records are written.
#[derive(Debug, Clone)]
pub struct Sources {
    /// `None` for a configuration that was not read from a file.
    pub config: Option<ConfigSource>,
    /// The rules.
    pub rules: RuleSource,
    /// The log.
    pub log: LogStreams,
}

/// What a reload reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadScope {
    /// Everything.
    All,
    /// Everything but the configuration, which may be half edited when the rules change.
    WithoutConfig,
}

/// What a reload has done.
#[derive(Debug, Clone)]
pub struct ReloadReport {
    /// The number of rules.
    pub rules: usize,
    /// Whether the rules differ from those before.
    pub rules_changed: bool,
    /// The keys of the configuration that have changed.
    pub changes: ConfigChanges,
}

/// What a reload reads and replaces.
pub(super) struct Reloader {
    /// The configuration in force.
    pub(super) config: Arc<ArcSwap<Config>>,
    pub(super) config_source: Option<ConfigSource>,
    pub(super) rule_files: RuleFiles,
    pub(super) keys: Arc<KeyRotation>,
    pub(super) certificates: Arc<Certificates>,
    pub(super) gate: Arc<Gate>,
    pub(super) registry: Arc<Registry>,
    pub(super) recheck: Arc<OpenRecheck>,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) acceptor: Arc<Acceptor>,
    pub(super) descriptors: Descriptors,
    pub(super) memory: Arc<MemoryLimit>,
    pub(super) last_reload: Arc<LastReload>,
}

/// The result of the last reload.
#[derive(Debug, Default)]
pub(super) struct LastReload(Mutex<Option<ReloadResult>>);

impl LastReload {
    /// The result; `None` if there was no reload.
    pub(super) fn get(&self) -> Option<ReloadResult> {
        self.lock().clone()
    }

    fn set(&self, at: Timestamp, reloaded: &Result<ReloadReport, StartError>) {
        let error = reloaded.as_ref().err().map(ToString::to_string);
        *self.lock() = Some(ReloadResult { at, error });
    }

    fn lock(&self) -> MutexGuard<'_, Option<ReloadResult>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadResult {
    /// When it ended.
    pub at: Timestamp,
    /// Why it was refused; `None` if it was applied.
    pub error: Option<String>,
}

impl Reloader {
    /// Reloads and checks what is open against the new rules.
    pub(super) async fn reload(&self, scope: ReloadScope) -> Result<ReloadReport, StartError> {
        // Otherwise a key that a command removes meanwhile would come back with the ring that was read before.
        let _exclusive = self.keys.lock().await;
        let reloaded = self.replace(scope);
        self.gate.metrics.config_reload_success.set(i64::from(reloaded.is_ok()));
        self.last_reload.set(self.gate.clock.now(), &reloaded);
        if reloaded.is_ok() {
            // A handshake or exchange that is not registered yet checks the new rules itself once it is.
            self.registry.apply_rules(&self.gate.rules.load());
            self.recheck.check_all().await;
        }
        reloaded
    }

    fn replace(&self, scope: ReloadScope) -> Result<ReloadReport, StartError> {
        let (config, changes) = self.read_config(scope)?;
        let named = self.upstreams.named(&config.upstreams);
        let rules = self.rule_files.load(&config, &named, &self.gate.metrics)?;
        let keys = self.keys.read_folder()?;
        let certificates = self.certificates.read(&config.server)?;
        let upstream_tls = upstreams::tls::read_all(&config.upstreams)?;
        // Nothing fails from here on. The upstreams first: the new rules refer to them.
        self.upstreams.apply(&config.upstreams, upstream_tls);
        self.certificates.install(certificates);
        if let Some(keys) = keys {
            self.keys.install(keys);
        }
        let rules = Arc::new(rules);
        let replaced = self.gate.rules.swap(rules.clone());
        self.apply_limits(&config.limits);
        record_load(&self.gate.metrics, &self.gate.clock, &config, &rules);
        self.config.store(Arc::new(config));
        Ok(ReloadReport {
            rules: rules.count(),
            rules_changed: replaced.digest().as_str() != rules.digest().as_str(),
            changes,
        })
    }

    /// The configuration in force with what a reload can change, and all changes in the file.
    fn read_config(&self, scope: ReloadScope) -> Result<(Config, ConfigChanges), StartError> {
        let current = self.config.load();
        match &self.config_source {
            Some(source) if scope == ReloadScope::All => {
                let mut config = source.load().map_err(StartError::Config)?;
                listen::keep_ports(&mut config, &current);
                Ok(current.reloaded(config))
            }
            _ => Ok((Config::clone(&current), ConfigChanges::default())),
        }
    }

    /// Applies limits to the connections and requests that begin from now on.
    fn apply_limits(&self, limits: &LimitsConfig) {
        let Acceptor { connection_slots, connection_limits, limits: client_limits, .. } = &*self.acceptor;
        let descriptors = self.descriptors.for_connections(limits.connections);
        connection_slots.resize(descriptors.connections);
        connection_limits.set(limits.connections_per_address, descriptors.streams);
        client_limits.store(Arc::new(proxy::client_limits(limits, &self.gate)));
        self.memory.set(limits.memory);
        self.gate.limits.store(Arc::new(limits.clone()));
    }

    /// Resolves when a rule file has changed; never, unless `rules.watch` is set.
    pub(super) async fn rules_changed(&self) {
        let config = self.config.load_full();
        match self.rule_files.source.under(&config) {
            RuleSource::Folder(folder) if config.rules.watch => {
                let loaded = self.rule_files.loaded().clone();
                let difference = || Some(Fingerprint::of_rules(&folder)).filter(|current| *current != loaded);
                file_watcher::changed(difference).await;
            }
            RuleSource::Folder(_) | RuleSource::Shipped => std::future::pending().await,
        }
    }
}

/// Sets the metrics of a successful load.
pub(super) fn record_load(metrics: &Metrics, clock: &Clock, config: &Config, rules: &RuleSet) {
    metrics.config_reload_success.set(1);
    metrics.set_config_hash(config.fleet_digest().as_str(), rules.digest().as_str());
    metrics.rules_loaded.set(i64::try_from(rules.count()).unwrap_or(i64::MAX));
    #[allow(clippy::cast_precision_loss)] // seconds since 1970 are exact in a double
    metrics.config_reload_timestamp.set(clock.now().seconds() as f64);
}
