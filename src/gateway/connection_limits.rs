//! Limits the connections of one address, so that no client takes the slots of all others.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use tokio::sync::OwnedSemaphorePermit;

use crate::domain::network::Network;

/// Counters are spread over this many locks, each held for one map operation.
const SHARDS: usize = 64;

/// A /48 may have the connections of this many /64 networks. A provider may hand each customer a /64 of the same /48;
/// one customer may also hold all of it.
const NETWORKS_PER_SITE: usize = 4;

/// The open connections of each address: IPv4 as it is, IPv6 by /64 and /48.
pub(crate) struct ConnectionLimits {
    most: usize,
    /// Load balancers, which carry the connections of many clients.
    exempt: Vec<IpNet>,
    shards: Vec<Mutex<HashMap<Network, usize>>>,
    hasher: RandomState,
}

/// A connection's slot; dropping it frees the slot for another connection.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    _permit: OwnedSemaphorePermit,
    _counted: Vec<CountedConnection>,
}

impl ConnectionSlot {
    pub(super) fn new(permit: OwnedSemaphorePermit, counted: Vec<CountedConnection>) -> Self {
        Self { _permit: permit, _counted: counted }
    }
}

/// One connection in the count of its network.
pub(super) struct CountedConnection {
    limits: Arc<ConnectionLimits>,
    network: Network,
}

impl std::fmt::Debug for CountedConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CountedConnection").field(&self.network).finish()
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut counts = self.limits.shard(self.network).lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(&self.network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.network)),
        }
    }
}

impl ConnectionLimits {
    /// At most `most` connections of an address; 0: no limit.
    pub(crate) fn new(most: usize, exempt: Vec<IpNet>) -> Self {
        Self { most, exempt, shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    /// Counts a connection, unless its address has as many as it may.
    pub(super) fn open(self: &Arc<Self>, address: IpAddr) -> Option<Vec<CountedConnection>> {
        let address = address.to_canonical();
        if self.most == 0 || self.exempt.iter().any(|network| network.contains(&address)) {
            return Some(Vec::new());
        }
        let client = self.count(Network::of(address), self.most)?;
        let Some(site) = Network::site(address) else { return Some(vec![client]) };
        // If the site has too many, `client` is dropped and not counted.
        let site = self.count(site, self.most.saturating_mul(NETWORKS_PER_SITE))?;
        Some(vec![client, site])
    }

    fn count(self: &Arc<Self>, network: Network, most: usize) -> Option<CountedConnection> {
        let mut counts = self.shard(network).lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(network).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(CountedConnection { limits: self.clone(), network })
    }

    fn shard(&self, network: Network) -> &Mutex<HashMap<Network, usize>> {
        let index = usize::try_from(self.hasher.hash_one(network) % SHARDS as u64).unwrap_or_default();
        &self.shards[index]
    }
}

#[cfg(test)]
mod tests;
