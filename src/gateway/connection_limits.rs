//! Limits the connections of one address, so that no client takes the slots of all others, and the concurrent requests on
//! its HTTP/2 connections, each of which may hold a connection to an upstream.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;

use super::connection_slots::OccupiedSlot;
use crate::domain::network::Network;

/// Counters are spread over this many locks, each held for one map operation.
const SHARDS: usize = 64;

/// A /48 may have the connections of this many /64 networks. A provider may hand each customer a /64 of the same /48;
/// one customer may also hold all of it.
const NETWORKS_PER_SITE: usize = 4;

/// The open connections of each address: IPv4 as it is, IPv6 by /64 and /48.
pub(crate) struct ConnectionLimits {
    /// The connections of an address; 0: no limit.
    most: AtomicUsize,
    /// The requests on all HTTP/2 connections.
    streams: Arc<StreamCount>,
    /// Load balancers, which carry the connections of many clients.
    exempt: Vec<IpNet>,
    shards: Vec<Mutex<HashMap<Network, NetworkUse>>>,
    hasher: RandomState,
}

/// What a network has open.
#[derive(Default)]
struct NetworkUse {
    connections: usize,
    /// Shared with the network's connections, so that a request takes no lock.
    streams: Arc<AtomicUsize>,
}

/// Requests on HTTP/2 connections, and how many there may be.
#[derive(Debug)]
struct StreamCount {
    most: AtomicUsize,
    open: AtomicUsize,
}

/// Why a request on an HTTP/2 connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamRefusal {
    /// Its client has as many as it may have connections.
    Client,
    /// All clients together have as many as there are descriptors for connections to upstreams.
    Process,
}

/// A connection's slot; dropping it frees the slot for another connection.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    _occupied: OccupiedSlot,
    counted: CountedClient,
}

impl ConnectionSlot {
    pub(super) fn new(occupied: OccupiedSlot, counted: CountedClient) -> Self {
        Self { _occupied: occupied, counted }
    }

    /// The client's counts, for the streams of the connection.
    pub(super) fn counted(&self) -> &CountedClient {
        &self.counted
    }
}

/// One connection in the counts of its client: none, of its address, or of its /64 and /48.
#[derive(Debug, Clone)]
pub(super) struct CountedClient {
    networks: Arc<Vec<CountedConnection>>,
    all: Arc<StreamCount>,
}

impl CountedClient {
    /// Counts a request on an HTTP/2 connection.
    pub(super) fn begin_stream(&self) -> Result<CountedStream, StreamRefusal> {
        for (place, network) in self.networks.iter().enumerate() {
            if network.streams.fetch_add(1, Ordering::Relaxed) >= network.most {
                end_stream(&self.networks[..=place]);
                return Err(StreamRefusal::Client);
            }
        }
        // If all have too many, it is dropped and not counted.
        let stream = CountedStream(self.clone());
        let others = self.all.open.fetch_add(1, Ordering::Relaxed);
        if others < self.all.most.load(Ordering::Relaxed) { Ok(stream) } else { Err(StreamRefusal::Process) }
    }
}

/// One request in the counts of its client.
#[derive(Debug)]
pub(super) struct CountedStream(CountedClient);

impl Drop for CountedStream {
    fn drop(&mut self) {
        end_stream(&self.0.networks);
        self.0.all.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn end_stream(networks: &[CountedConnection]) {
    for network in networks {
        network.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection in the count of its network.
struct CountedConnection {
    limits: Arc<ConnectionLimits>,
    network: Network,
    most: usize,
    streams: Arc<AtomicUsize>,
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
            Some(network) if network.connections > 1 => network.connections -= 1,
            _ => drop(counts.remove(&self.network)),
        }
    }
}

impl ConnectionLimits {
    /// At most `most` connections of an address (0: no limit), and `streams` requests on all HTTP/2 connections.
    pub(crate) fn new(most: usize, exempt: Vec<IpNet>, streams: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let streams = Arc::new(StreamCount { most: AtomicUsize::new(streams), open: AtomicUsize::new(0) });
        Self { most: AtomicUsize::new(most), streams, exempt, shards, hasher: RandomState::new() }
    }

    /// Changes the limits of [`ConnectionLimits::new`]; what is open stays.
    pub(crate) fn set(&self, most: usize, streams: usize) {
        self.most.store(most, Ordering::Relaxed);
        self.streams.most.store(streams, Ordering::Relaxed);
    }

    /// Counts a connection, unless its address has as many as it may.
    pub(super) fn open(self: &Arc<Self>, address: IpAddr) -> Option<CountedClient> {
        let address = address.to_canonical();
        let most = self.most.load(Ordering::Relaxed);
        if most == 0 || self.exempt.iter().any(|network| network.contains(&address)) {
            return Some(self.counted(Vec::new()));
        }
        let mut counted = vec![self.count(Network::of(address), most)?];
        if let Some(site) = Network::site(address) {
            // If the site has too many, `counted` is dropped and not counted.
            counted.push(self.count(site, most.saturating_mul(NETWORKS_PER_SITE))?);
        }
        Some(self.counted(counted))
    }

    fn counted(&self, networks: Vec<CountedConnection>) -> CountedClient {
        CountedClient { networks: Arc::new(networks), all: self.streams.clone() }
    }

    fn count(self: &Arc<Self>, network: Network, most: usize) -> Option<CountedConnection> {
        let mut counts = self.shard(network).lock().unwrap_or_else(PoisonError::into_inner);
        let used = counts.entry(network).or_default();
        if used.connections >= most {
            return None;
        }
        used.connections += 1;
        Some(CountedConnection { limits: self.clone(), network, most, streams: used.streams.clone() })
    }

    fn shard(&self, network: Network) -> &Mutex<HashMap<Network, NetworkUse>> {
        let index = usize::try_from(self.hasher.hash_one(network) % SHARDS as u64).unwrap_or_default();
        &self.shards[index]
    }
}

#[cfg(test)]
mod tests;
