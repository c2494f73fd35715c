//! Reloads rules, signing keys and certificates without a restart. All of them are read before any is replaced, so
//! that a faulty file changes nothing.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::StartError;
use super::file_watcher::{self, Fingerprint};
use super::recheck::OpenRecheck;
use super::tls::Certificates;
use super::warnings;
use crate::admin::keys::KeyRotation;
use crate::config::{Config, NamedUpstream};
use crate::domain::clock::Clock;
use crate::explain;
use crate::metrics::Metrics;
use crate::pipeline::Gate;
use crate::rules::{self, RuleFault, RuleSet};
use crate::sockets::registry::Registry;

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

    pub(super) fn load(&self, config: &Config, metrics: &Metrics) -> Result<RuleSet, StartError> {
        *self.loaded() = self.source.fingerprint();
        let rules = self.source.load(&config.named_upstreams(), metrics).map_err(StartError::Rules)?;
        for warning in warnings::of(config, &rules) {
            tracing::warn!("{warning}");
        }
        Ok(rules)
    }

    fn loaded(&self) -> MutexGuard<'_, Fingerprint> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a reload reads and replaces.
pub(super) struct Reloader {
    pub(super) config: Config,
    pub(super) rule_files: RuleFiles,
    pub(super) keys: Arc<KeyRotation>,
    pub(super) certificates: Arc<Certificates>,
    pub(super) gate: Arc<Gate>,
    pub(super) registry: Arc<Registry>,
    pub(super) recheck: Arc<OpenRecheck>,
}

impl Reloader {
    /// Reloads everything and checks what is open against the new rules. Returns the number of rules.
    pub(super) async fn reload(&self) -> Result<usize, StartError> {
        // Otherwise a key that a command removes meanwhile would come back with the ring that was read before.
        let _exclusive = self.keys.lock().await;
        let reloaded = self.replace();
        self.gate.metrics.config_reload_success.set(i64::from(reloaded.is_ok()));
        if reloaded.is_ok() {
            // A handshake or exchange that is not registered yet checks the new rules itself once it is.
            self.registry.apply_rules(&self.gate.rules.load());
            self.recheck.check_all().await;
        }
        reloaded
    }

    fn replace(&self) -> Result<usize, StartError> {
        let rules = self.rule_files.load(&self.config, &self.gate.metrics)?;
        let keys = self.keys.read_folder()?;
        let certificates = self.certificates.read(&self.config.server)?;
        self.certificates.install(certificates);
        if let Some(keys) = keys {
            self.keys.install(keys);
        }
        let rules = Arc::new(rules);
        self.gate.rules.store(rules.clone());
        record_load(&self.gate.metrics, &self.gate.clock, &self.config, &rules);
        Ok(rules.count())
    }

    /// Resolves when a rule file has changed; never, unless `rules.watch` is set.
    pub(super) async fn rules_changed(&self) {
        match &self.rule_files.source {
            RuleSource::Folder(folder) if self.config.rules.watch => {
                let loaded = self.rule_files.loaded().clone();
                let difference = || Some(Fingerprint::of_rules(folder)).filter(|current| *current != loaded);
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
