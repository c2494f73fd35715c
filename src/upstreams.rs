//! The services behind the gateway: their addresses, which of them get requests, and how many. Connecting and sending are
//! left to `gateway`.
//!
//! The table of upstreams is replaced as a whole, so that requests read it without a lock. It only grows: rules refer to an
//! upstream by its index, and a reload must not change what a request that is under way refers to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

mod moment;

mod keepalive;

mod peer;

pub(crate) mod tls;

// What is known about an address, and which one a request gets.
mod failure;

mod address;

mod balance;

mod retry_budget;

mod request_limit;

mod upstream;

mod ejection;

// In the background.
mod keyed_loops;

pub(crate) mod health;

pub(crate) mod resolve;

mod status;

pub(crate) use address::{Address, ChosenAddress};
pub(crate) use balance::{Affinity, TriedAddresses};
pub(crate) use failure::{Culprit, FailureReason, TOTAL_TIMEOUT};
pub(crate) use keepalive::tcp_keepalive;
pub(crate) use request_limit::RequestSlot;
pub use status::{AddressStatus, UpstreamRow};
pub(crate) use upstream::Upstream;

use crate::config::{NamedUpstream, UpstreamConfig};
use crate::domain::clock::Clock;
use crate::metrics::Metrics;
use peer::ResolvedNames;
use resolve::FailedNames;
use tls::{UpstreamTlsFault, UpstreamTlsFiles, read_all};
use upstream::Presence;

/// All upstreams. A rule refers to its upstream by index.
pub struct Upstreams {
    table: ArcSwap<Vec<Arc<Upstream>>>,
    /// What DNS names resolved to. Held while the table is replaced.
    names: Mutex<ResolvedNames>,
    failed_names: Mutex<FailedNames>,
    /// The labels of the gauge of healthy addresses.
    shown: Mutex<Vec<(String, String)>>,
    changed: watch::Sender<()>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Upstreams {
    /// Builds the upstreams, in alphabetical order. DNS names have no addresses yet.
    pub(crate) fn new(
        config: &BTreeMap<String, UpstreamConfig>,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Result<Self, UpstreamTlsFault> {
        let upstreams = Self {
            table: ArcSwap::default(),
            names: Mutex::default(),
            failed_names: Mutex::default(),
            shown: Mutex::default(),
            changed: watch::Sender::new(()),
            metrics,
            clock,
        };
        upstreams.apply(config, read_all(config)?);
        Ok(upstreams)
    }

    /// Takes over a configuration. A known name keeps its index and what was learned about its addresses; a new one is
    /// appended; one that is gone stays for the requests that refer to it, without checks. `tls` is what
    /// [`tls::read_all`] read for it.
    pub(crate) fn apply(&self, config: &BTreeMap<String, UpstreamConfig>, mut tls: UpstreamTlsFiles) {
        let names = self.names();
        let mut table: Vec<Arc<Upstream>> = self.table.load().to_vec();
        for upstream in table.iter_mut().filter(|upstream| !config.contains_key(&*upstream.name)) {
            if upstream.presence == Presence::Configured {
                *upstream = Arc::new(upstream.removed());
            }
        }
        for (name, settings) in config {
            let known = table.iter().position(|upstream| *upstream.name == **name);
            let previous = known.map(|index| &*table[index]);
            let built = Arc::new(Upstream::build(name, settings, tls.remove(name), &names, previous, &self.metrics));
            match known {
                Some(index) => table[index] = built,
                None => table.push(built),
            }
        }
        self.replace(table);
    }

    /// The upstreams of a configuration with the indexes that [`apply`](Self::apply) will give them, for loading rules
    /// before it is applied.
    pub(crate) fn named<'a>(&self, config: &'a BTreeMap<String, UpstreamConfig>) -> Vec<NamedUpstream<'a>> {
        let table = self.all();
        let mut next = table.len();
        let indexed = config.iter().map(|(name, settings)| {
            let index = table.iter().position(|upstream| *upstream.name == **name).unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            NamedUpstream::new(name, index, settings)
        });
        indexed.collect()
    }

    /// The upstream of a rule.
    pub(crate) fn at(&self, index: usize) -> Option<Arc<Upstream>> {
        self.table.load().get(index).cloned()
    }

    /// The clock by which failures are dated.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    fn count(&self) -> usize {
        self.table.load().len()
    }

    fn all(&self) -> Guard<Arc<Vec<Arc<Upstream>>>> {
        self.table.load()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn names(&self) -> MutexGuard<'_, ResolvedNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed_names(&self) -> MutexGuard<'_, FailedNames> {
        self.failed_names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown_addresses(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the table; `names` is locked meanwhile.
    fn replace(&self, table: Vec<Arc<Upstream>>) {
        let gone = |upstream: &Upstream, address: &str| {
            let now = table.iter().find(|one| one.name == upstream.name && one.presence == Presence::Configured);
            !now.is_some_and(|now| now.address_names().contains(&address))
        };
        for upstream in self.all().iter() {
            for address in upstream.address_names().into_iter().filter(|address| gone(upstream, address)) {
                self.metrics.remove_address(&upstream.name, address, &FailureReason::LABELS);
            }
        }
        self.table.store(Arc::new(table));
        self.changed.send_replace(());
    }

    /// Whether all names of an upstream have addresses.
    fn has_answers(&self, upstream: &Upstream) -> bool {
        let names = self.names();
        upstream.names().all(|(host, port)| names.contains_key(&(host.to_owned(), port)))
    }

    /// Takes over what the names of an upstream resolved to. Names without an answer keep their addresses.
    fn set_resolved(&self, index: usize, resolved: ResolvedNames) {
        let mut names = self.names();
        names.extend(resolved);
        let mut table: Vec<Arc<Upstream>> = self.table.load().to_vec();
        let Some(upstream) = table.get(index).filter(|upstream| upstream.presence == Presence::Configured) else {
            return;
        };
        let built = Upstream::build(
            &upstream.name,
            &upstream.config,
            upstream.tls.clone(),
            &names,
            Some(upstream),
            &self.metrics,
        );
        let addresses = built.address_names();
        if addresses == upstream.address_names() {
            return;
        }
        tracing::info!(
            target: "deskgate::upstream",
            { upstream.name = &*built.name, addresses = addresses.join(", ") },
            "names resolved"
        );
        table[index] = Arc::new(built);
        self.replace(table);
    }
}

#[cfg(test)]
mod tests;
