//! A map of bounded size that no client can fill for the others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

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
    end: Duration,
    network: Network,
    /// Its place in the order of arrival.
    place: u64,
    proof: EntryProof,
}

/// Entries that expire, by the monotonic clock. A full table evicts the oldest entry of the network that has most of
/// them, in the IPv6 /48 that has most of them: unproven entries first, proven ones only if there is no other.
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
    pub(super) fn get(&self, key: &Digest, now: Duration) -> Option<&V> {
        self.entries.get(key).filter(|entry| now < entry.end).map(|entry| &entry.value)
    }

    /// Adds an unproven entry, or replaces one.
    pub(super) fn insert(&mut self, key: Digest, value: V, end: Duration, network: Network) {
        self.remove(&key);
        if self.entries.len() >= self.capacity {
            self.evict();
        }
        let place = self.next_place;
        self.next_place += 1;
        self.unproven.add(network, place, key.clone());
        self.entries.insert(key, TableEntry { value, end, network, place, proof: EntryProof::Unproven });
    }

    /// Replaces the value and the end of an entry.
    pub(super) fn replace(&mut self, key: &Digest, value: V, end: Duration) {
        if let Some(entry) = self.entries.get_mut(key) {
            (entry.value, entry.end) = (value, end);
        }
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
    pub(super) fn sweep(&mut self, now: Duration) {
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

/// The entries of each site, and within it of each network. One subscriber may hold a whole IPv6 /48: without sites, its
/// 65536 networks would look like as many clients.
#[derive(Default)]
struct EvictionOrder(BySize<BySize<BTreeMap<u64, Digest>>>);

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
        self.0.change(network.widened(), |site| site.change(network, change));
    }

    fn first(&self) -> Option<&Digest> {
        self.0.first().map(|(_, key)| key)
    }
}

/// Entries, of which one is evicted first.
trait Evictable: Default {
    fn count(&self) -> usize;

    /// The place and key of the entry that is evicted first.
    fn first(&self) -> Option<(u64, &Digest)>;
}

/// The entries of one network, oldest first.
impl Evictable for BTreeMap<u64, Digest> {
    fn count(&self) -> usize {
        self.len()
    }

    fn first(&self) -> Option<(u64, &Digest)> {
        self.first_key_value().map(|(place, key)| (*place, key))
    }
}

/// Groups of entries. The largest group is evicted from; among equally large ones, the one with the older entry.
#[derive(Default)]
struct BySize<G> {
    groups: HashMap<Network, G>,
    ranks: BTreeSet<(usize, Reverse<u64>, Network)>,
    count: usize,
}

impl<G: Evictable> BySize<G> {
    fn change(&mut self, network: Network, change: impl FnOnce(&mut G)) {
        let group = self.groups.entry(network).or_default();
        self.count -= group.count();
        if let Some(rank) = rank(network, group) {
            self.ranks.remove(&rank);
        }
        change(group);
        self.count += group.count();
        match rank(network, group) {
            Some(rank) => {
                self.ranks.insert(rank);
            }
            None => {
                self.groups.remove(&network);
            }
        }
    }
}

impl<G: Evictable> Evictable for BySize<G> {
    fn count(&self) -> usize {
        self.count
    }

    fn first(&self) -> Option<(u64, &Digest)> {
        let (_, _, network) = self.ranks.last()?;
        self.groups.get(network)?.first()
    }
}

/// `None` for an empty group.
fn rank<G: Evictable>(network: Network, group: &G) -> Option<(usize, Reverse<u64>, Network)> {
    group.first().map(|(place, _)| (group.count(), Reverse(place), network))
}

#[cfg(test)]
mod tests;
