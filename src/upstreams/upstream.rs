//! One upstream as it is at the moment: its settings and addresses. A change of the configuration or of a DNS answer makes
//! a new one, which takes over what was learned about the addresses.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pingora_core::upstreams::peer::Peer;

use super::address::{Address, AddressState, Availability, ChosenAddress};
use super::balance::{Affinity, Balancer, TriedAddresses, Turns};
use super::failure::FailureReason;
use super::moment::Moment;
use super::peer::{self, ResolvedAddress, ResolvedNames};
use super::request_limit::{RequestLimit, RequestSlot, UpstreamBusy};
use super::retry_budget::{BudgetVerdict, RetryBudget};
use super::tls::UpstreamTls;
use crate::config::{UpstreamAddress, UpstreamConfig, WeightedAddress};
use crate::metrics::{AddressMetrics, Metrics, UpstreamMetrics};

/// An upstream at one moment.
pub(crate) struct Upstream {
    pub(crate) name: Arc<str>,
    pub(super) presence: Presence,
    pub(super) config: UpstreamConfig,
    pub(super) tls: Option<Arc<UpstreamTls>>,
    pub(super) addresses: Vec<Arc<Address>>,
    balancer: Balancer,
    limit: Option<Arc<RequestLimit>>,
    pub(super) shared: Arc<UpstreamCounters>,
}

/// Whether the configuration has an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Configured,
    /// No longer. Requests that began before may still refer to it.
    Removed,
}

/// What outlives a change of an upstream.
pub(super) struct UpstreamCounters {
    turns: Turns,
    budget: RetryBudget,
    pub(super) metrics: UpstreamMetrics,
    /// Held while an address is ejected, so that no more are than may be.
    pub(super) ejecting: Mutex<()>,
}

impl Upstream {
    /// Builds an upstream with the addresses that its names have, and what `previous` learned about them.
    pub(super) fn build(
        name: &str,
        config: &UpstreamConfig,
        tls: Option<Arc<UpstreamTls>>,
        names: &ResolvedNames,
        previous: Option<&Upstream>,
        metrics: &Metrics,
    ) -> Self {
        let of_address = |address: &str| metrics.of_address(name, address, &FailureReason::LABELS);
        let addresses = addresses(config, tls.as_deref(), names, previous, of_address);
        let limit = previous.and_then(|previous| previous.limit.clone()).filter(|limit| limit.fits(config));
        Self {
            presence: Presence::Configured,
            balancer: Balancer::new(config, &addresses),
            limit: limit.or_else(|| RequestLimit::new(config).map(Arc::new)),
            shared: previous
                .map_or_else(|| Arc::new(UpstreamCounters::new(metrics, name)), |known| known.shared.clone()),
            name: previous.map_or_else(|| name.into(), |known| known.name.clone()),
            config: config.clone(),
            tls,
            addresses,
        }
    }

    /// The same upstream, which the configuration no longer has.
    pub(super) fn removed(&self) -> Self {
        let addresses = self.addresses.clone();
        Self {
            name: self.name.clone(),
            presence: Presence::Removed,
            config: self.config.clone(),
            tls: self.tls.clone(),
            balancer: Balancer::new(&self.config, &addresses),
            addresses,
            limit: self.limit.clone(),
            shared: self.shared.clone(),
        }
    }

    /// Chooses the address of the next attempt and counts the request there. None if no address is known, which is so until
    /// a DNS name has been resolved.
    pub(crate) fn choose(&self, affinity: Affinity, tried: &mut TriedAddresses, now: Instant) -> Option<ChosenAddress> {
        let now = Moment::of(now);
        let index = self.balancer.choose(&self.addresses, &self.shared.turns, affinity, tried, now)?;
        tried.add(index);
        let address = &self.addresses[index];
        self.note_return(address, now);
        Some(ChosenAddress::new(address.clone()))
    }

    /// Whether another address than those tried is available.
    pub(crate) fn has_other(&self, tried: &TriedAddresses) -> bool {
        self.balancer.has_other(&self.addresses, tried, Moment::now())
    }

    /// Whether requests are distributed by session.
    pub(crate) fn needs_affinity(&self) -> bool {
        self.balancer.needs_affinity()
    }

    /// How often a request may be sent to another address.
    pub(crate) fn retries(&self) -> usize {
        self.config.retries
    }

    /// Takes a retry out of the budget and counts it.
    pub(crate) fn spend_retry(&self) -> bool {
        let Self { shared, config, .. } = self;
        let verdict = shared.budget.spend(config.retry_budget, shared.turns.count(), Moment::now());
        let is_granted = verdict == BudgetVerdict::Granted;
        if is_granted {
            shared.metrics.retries.inc();
        }
        is_granted
    }

    /// The longest time of an exchange.
    pub(crate) fn total_timeout(&self) -> Option<Duration> {
        Some(self.config.total_timeout.get()).filter(|timeout| !timeout.is_zero())
    }

    /// Begins a request within the limit of concurrent requests; None if there is no limit.
    pub(crate) fn begin_request(&self) -> Option<impl Future<Output = Result<RequestSlot, UpstreamBusy>>> {
        self.limit.as_ref().map(|limit| limit.begin())
    }

    /// How long clients are told to wait when the upstream is busy.
    pub(crate) fn retry_after(&self) -> Duration {
        self.config.queue_timeout.get().max(Duration::from_secs(1))
    }

    /// Records the response header of an address.
    pub(crate) fn succeeded(&self, address: &Address, latency: Duration) {
        address.state.succeeded(latency);
        self.shared.metrics.seconds.observe(latency.as_secs_f64());
    }

    pub(super) fn availability(&self, address: &Address, now: Moment) -> Availability {
        address.state.availability(now, self.config.slow_start.get())
    }

    /// An address as people write it.
    pub(crate) fn address_name(&self, index: usize) -> Option<&str> {
        self.addresses.get(index).map(|address| address.name())
    }

    /// The addresses as people write them.
    pub(super) fn address_names(&self) -> Vec<&str> {
        self.addresses.iter().map(|address| &*address.state.name).collect()
    }

    /// The DNS names among the addresses.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, u16)> {
        self.config.addresses.iter().filter_map(|entry| match &entry.address {
            UpstreamAddress::Name { host, port } => Some((host.as_str(), *port)),
            UpstreamAddress::Socket(_) | UpstreamAddress::Unix(_) => None,
        })
    }
}

impl UpstreamCounters {
    fn new(metrics: &Metrics, name: &str) -> Self {
        Self {
            turns: Turns::default(),
            budget: RetryBudget::new(Moment::now()),
            metrics: metrics.of_upstream(name),
            ejecting: Mutex::new(()),
        }
    }
}

/// The addresses of a configuration, each once. One that was known before keeps its state.
fn addresses(
    config: &UpstreamConfig,
    tls: Option<&UpstreamTls>,
    names: &ResolvedNames,
    previous: Option<&Upstream>,
    metrics: impl Fn(&str) -> AddressMetrics,
) -> Vec<Arc<Address>> {
    let mut found: Vec<(ResolvedAddress, &WeightedAddress)> = Vec::new();
    for entry in &config.addresses {
        let resolved: Vec<ResolvedAddress> = match &entry.address {
            UpstreamAddress::Socket(address) => vec![ResolvedAddress::Socket(*address)],
            UpstreamAddress::Unix(path) => vec![ResolvedAddress::Unix(path.clone())],
            UpstreamAddress::Name { host, port } => {
                let known = names.get(&(host.clone(), *port)).map_or(&[][..], Vec::as_slice);
                known.iter().map(|address| ResolvedAddress::Socket(*address)).collect()
            }
        };
        let new = resolved.into_iter().filter(|address| !found.iter().any(|(known, _)| known == address));
        found.extend(new.map(|address| (address, entry)).collect::<Vec<_>>());
    }
    let known = |name: &str| {
        let mut known = previous.into_iter().flat_map(|upstream| &upstream.addresses);
        known.find(|address| &*address.state.name == name).map(|address| address.state.clone())
    };
    let built = found.into_iter().filter_map(|(address, entry)| {
        let name = address.to_string();
        let state = known(&name).unwrap_or_else(|| Arc::new(AddressState::new(name)));
        let unchecked = config.health.is_none();
        if unchecked && state.availability(Moment::now(), Duration::ZERO) == Availability::Unhealthy {
            state.set_available_from(Moment::now());
        }
        let mut peer = peer::peer(&address, config)?;
        if let Some(tls) = tls {
            tls.secure(&mut peer, entry.address.host());
        }
        let metrics = metrics(&state.name);
        let pool_key = peer.reuse_hash();
        Some(Arc::new(Address { peer, pool_key, weight: entry.weight, state, metrics }))
    });
    built.collect()
}
