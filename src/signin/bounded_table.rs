//! A map of bounded size that no client can fill for the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::domain::clock::Timestamp;
use crate::domain::network::Network;
use crate::domain::secret::Digest;

/// Whether an entry stands for something that the platform confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryProof {
    Unproven,
    Proven,
}

struct TableEntry<V> {
    value: V,
    end: Timestamp,
    network: Network,
    /// Its place in the order of arrival.
    place: u64,
    proof: EntryProof,
}

/// Entries that expire. A full table evicts the oldest entry of the network that has most of them: unproven entries
/// first, proven ones only if there is no other.
pub(super) struct BoundedTable<V> {
    capacity: usize,
    entries: HashMap<Digest, TableEntry<V>>,
    unproven: EvictionOrder,
    proven: EvictionOrder,
    next_place: u64,
}

impl<V> BoundedTable<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let (unproven, proven) = Default::default();
        Self { capacity, entries: HashMap::new(), unproven, proven, next_place: 0 }
    }

    /// The value of an entry that has not expired.
    pub(super) fn get(&self, key: &Digest, now: Timestamp) -> Option<&V> {
        self.entries.get(key).filter(|entry| now < entry.end).map(|entry| &entry.value)
    }

    /// Adds an unproven entry, or replaces one.
    pub(super) fn insert(&mut self, key: Digest, value: V, end: Timestamp, network: Network) {
        self.remove(&key);
        if self.entries.len() >= self.capacity {
            self.evict();
        }
        let place = self.next_place;
        self.next_place += 1;
        self.unproven.add(network, place, key.clone());
        self.entries.insert(key, TableEntry { value, end, network, place, proof: EntryProof::Unproven });
    }

    /// Keeps an entry longer than all unproven ones.
    pub(super) fn prove(&mut self, key: &Digest) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if entry.proof == EntryProof::Unproven {
            entry.proof = EntryProof::Proven;
            self.unproven.remove(entry.network, entry.place);
            self.proven.add(entry.network, entry.place, key.clone());
        }
    }

    pub(super) fn remove(&mut self, key: &Digest) {
        let Some(entry) = self.entries.remove(key) else { return };
        match entry.proof {
            EntryProof::Unproven => self.unproven.remove(entry.network, entry.place),
            EntryProof::Proven => self.proven.remove(entry.network, entry.place),
        }
    }

    /// Removes the entries that have expired.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let expired: Vec<Digest> =
            self.entries.iter().filter(|(_, entry)| now >= entry.end).map(|(key, _)| key.clone()).collect();
        expired.iter().for_each(|key| self.remove(key));
    }

    fn evict(&mut self) {
        if let Some(key) = self.unproven.first().or_else(|| self.proven.first()).cloned() {
            self.remove(&key);
        }
    }
}

/// The entries of each network, oldest first, and the networks by their number of entries.
#[derive(Default)]
struct EvictionOrder {
    by_network: HashMap<Network, BTreeMap<u64, Digest>>,
    by_size: BTreeSet<(usize, Network)>,
}

impl EvictionOrder {
    fn add(&mut self, network: Network, place: u64, key: Digest) {
        self.change(network, |entries| {
            entries.insert(place, key);
        });
    }

    fn remove(&mut self, network: Network, place: u64) {
        self.change(network, |entries| {
            entries.remove(&place);
        });
    }

    fn change(&mut self, network: Network, change: impl FnOnce(&mut BTreeMap<u64, Digest>)) {
        let entries = self.by_network.entry(network).or_default();
        self.by_size.remove(&(entries.len(), network));
        change(entries);
        if entries.is_empty() {
            self.by_network.remove(&network);
        } else {
            self.by_size.insert((entries.len(), network));
        }
    }

    /// The oldest entry of the network that has most.
    fn first(&self) -> Option<&Digest> {
        let (_, network) = self.by_size.last()?;
        self.by_network.get(network)?.values().next()
    }
}

#[cfg(test)]
mod tests;
