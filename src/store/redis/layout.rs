//! Which primary has which partition. A single server or a Sentinel-managed one has all of them; in a cluster the map
//! follows its slots.
//!
//! The crate's own cluster connection is not used: it hides on which connection a command ran (`WAIT` and the feed need to
//! know), and retries for longer than a request may take. Only the slots of the 64 partitions matter here.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::connect::{Connector, PrimaryAddress, ServerAccess, SlotRange};
use super::keys::RedisKeys;
use super::link::{Backoff, ServerLink};
use crate::config::RedisHost;
use crate::domain::partition::Partition;

/// How often the map of a cluster is read again without a reason.
const REFRESH: Duration = Duration::from_secs(5);

/// How many connections to a primary wait until changes are confirmed. A server reads nothing from a connection that
/// waits, and a sync of its disk takes up to a second.
const CONFIRMED_LINKS: usize = 16;

/// A server that takes writes, and the connections to it.
pub(super) struct Primary {
    connector: Connector,
    calls: OnceLock<ServerLink>,
    confirmed: [OnceLock<ServerLink>; CONFIRMED_LINKS],
}

/// Which of a primary's connections a call uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// The shared one.
    Calls,
    /// The one of the partition whose calls wait until a change is confirmed; others would wait behind them.
    Confirmed,
}

impl Primary {
    pub(super) fn new(connector: Connector) -> Self {
        Self { connector, calls: OnceLock::new(), confirmed: std::array::from_fn(|_| OnceLock::new()) }
    }

    pub(super) fn link(&self, lane: Lane, partition: Partition) -> &ServerLink {
        let link = match lane {
            Lane::Calls => &self.calls,
            Lane::Confirmed => &self.confirmed[usize::from(partition.number()) % CONFIRMED_LINKS],
        };
        link.get_or_init(|| ServerLink::new(self.connector.clone()))
    }

    /// Has later calls use new connections.
    pub(super) fn abandon(&self) {
        for link in std::iter::once(&self.calls).chain(&self.confirmed).filter_map(OnceLock::get) {
            link.abandon_current();
        }
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.connector
    }
}

/// The primaries by partition.
#[derive(Clone, Default)]
pub(super) struct Layout {
    by_partition: Vec<Option<Arc<Primary>>>,
    members: HashMap<RedisHost, Arc<Primary>>,
}

impl Layout {
    /// One primary that has everything.
    pub(super) fn single(connector: Connector) -> Self {
        let primary = Arc::new(Primary::new(connector));
        Self { by_partition: Partition::all().map(|_| Some(primary.clone())).collect(), members: HashMap::new() }
    }

    /// The primary of a partition; `None` while the cluster has none.
    pub(super) fn primary(&self, partition: Partition) -> Option<&Arc<Primary>> {
        self.by_partition.get(usize::from(partition.number()))?.as_ref()
    }

    /// Has later calls of a partition use a new connection.
    pub(super) fn abandon(&self, lane: Lane, partition: Partition) {
        if let Some(primary) = self.primary(partition) {
            primary.link(lane, partition).abandon_current();
        }
    }

    /// Each primary with its partitions.
    pub(super) fn primaries(&self) -> Vec<(Arc<Primary>, Vec<Partition>)> {
        let mut found: Vec<(Arc<Primary>, Vec<Partition>)> = Vec::new();
        for partition in Partition::all() {
            let Some(primary) = self.primary(partition) else { continue };
            match found.iter_mut().find(|(known, _)| Arc::ptr_eq(known, primary)) {
                Some((_, partitions)) => partitions.push(partition),
                None => found.push((primary.clone(), vec![partition])),
            }
        }
        found
    }

    fn is_same_as(&self, other: &Layout) -> bool {
        let same = |left: &Option<Arc<Primary>>, right: &Option<Arc<Primary>>| match (left, right) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right),
            (None, None) => true,
            _ => false,
        };
        self.by_partition.len() == other.by_partition.len()
            && self.by_partition.iter().zip(&other.by_partition).all(|(left, right)| same(left, right))
    }

    /// The layout of these slots. Members that stay keep their connections.
    fn of_slots(&self, slots: &[SlotRange], seeds: &Connector) -> Self {
        let mut members = HashMap::new();
        let by_partition = Partition::all().map(|partition| {
            let slot = RedisKeys::slot(partition);
            let host = &slots.iter().find(|range| (range.first..=range.last).contains(&slot))?.primary;
            let known = || self.members.get(host).cloned();
            let primary = members
                .entry(host.clone())
                .or_insert_with(|| known().unwrap_or_else(|| Arc::new(Primary::new(seeds.to(host.clone())))));
            Some(primary.clone())
        });
        Self { by_partition: by_partition.collect(), members }
    }
}

/// A layout that never changes.
pub(super) fn fixed(access: Arc<ServerAccess>, address: PrimaryAddress) -> (Connector, watch::Receiver<Layout>) {
    let connector = Connector::new(access, address);
    let (_, layout) = watch::channel(Layout::single(connector.clone()));
    (connector, layout)
}

/// Follows the slots of a cluster until the layout is not used any more.
pub(super) async fn follow_cluster(
    seeds: Connector,
    hosts: Vec<RedisHost>,
    layout: watch::Sender<Layout>,
    stale: Arc<Notify>,
) {
    let mut backoff = Backoff::new();
    while !layout.is_closed() {
        let known: Vec<RedisHost> = layout.borrow().members.keys().chain(&hosts).cloned().collect();
        match seeds.cluster_slots(&known).await {
            Ok(slots) => {
                let next = layout.borrow().of_slots(&slots, &seeds);
                if !next.is_same_as(&layout.borrow()) {
                    layout.send_replace(next);
                    backoff.reset();
                }
            }
            Err(error) => tracing::warn!(%error, "the slots of the Redis cluster cannot be read; trying again"),
        }
        // Many calls may find the map stale at the same time, and again before the cluster has settled.
        backoff.pause().await;
        if tokio::time::timeout(REFRESH, stale.notified()).await.is_err() {
            backoff.reset();
        }
    }
}
