//! Reads at the start what the servers would lose, and whether they can confirm what `store.confirm` promises. What the user
//! may not ask is left out.

use std::collections::HashMap;

use ::redis::FromRedisValue;

use super::connect::field;
use super::script::RedisCall;
use super::servers::RedisServers;
use crate::config::StoreConfirm;
use crate::domain::partition::Partition;
use crate::store::{DurabilityGap, StoreError};

/// The first version that has `WAITAOF`.
const WAITAOF_SINCE: (u32, u32) = (7, 2);

/// What a server says about itself.
#[derive(Debug, Default)]
struct ServerFacts {
    version: Option<(u32, u32)>,
    append_only: Option<bool>,
    fsync: Option<String>,
    snapshots: Option<bool>,
    eviction: Option<String>,
    replicas: Option<u32>,
    min_replicas: Option<u32>,
}

impl ServerFacts {
    async fn read(servers: &RedisServers, partition: Partition) -> Self {
        let info: String = permitted(servers, RedisCall::command(partition, "INFO")).await.unwrap_or_default();
        let setting = async |name: &str| {
            let call = RedisCall::command(partition, "CONFIG").arg("GET").arg(name);
            permitted::<HashMap<String, String>>(servers, call).await?.remove(name)
        };
        Self {
            version: field(&info, "redis_version").and_then(version),
            append_only: field(&info, "aof_enabled").map(|enabled| enabled == "1"),
            fsync: setting("appendfsync").await,
            snapshots: setting("save").await.map(|save| !save.is_empty()),
            eviction: field(&info, "maxmemory_policy").map(str::to_owned),
            replicas: field(&info, "connected_slaves").and_then(|count| count.parse().ok()),
            min_replicas: setting("min-replicas-to-write").await.and_then(|count| count.parse().ok()),
        }
    }

    fn has_waitaof(&self) -> bool {
        self.version.is_some_and(|version| version >= WAITAOF_SINCE)
    }

    /// Whether `WAITAOF` can be asked; it waits in vain if nothing syncs the disk.
    fn confirms_syncs(&self) -> bool {
        self.has_waitaof() && self.append_only != Some(false) && self.fsync.as_deref() != Some("no")
    }

    /// Whether every answered change is on disk.
    fn syncs_always(&self) -> bool {
        self.append_only == Some(true) && self.fsync.as_deref() == Some("always")
    }

    fn gaps(&self, confirm: StoreConfirm) -> Vec<DurabilityGap> {
        let mut gaps = Vec::new();
        match (self.append_only, self.snapshots, self.fsync.as_deref()) {
            (Some(false), Some(false), _) => gaps.push(DurabilityGap::NothingOnDisk),
            (Some(false), _, _) => gaps.push(DurabilityGap::SnapshotsOnly),
            (Some(true), _, Some("everysec")) if confirm != StoreConfirm::Fsync => {
                gaps.push(DurabilityGap::SyncEverySecond);
            }
            (Some(true), _, Some("no")) => gaps.push(DurabilityGap::SyncBySystem),
            _ => {}
        }
        if let Some(policy) = self.eviction.as_deref().filter(|policy| *policy != "noeviction") {
            gaps.push(DurabilityGap::Eviction(policy.to_owned()));
        }
        match (self.replicas, self.min_replicas) {
            (Some(0), _) => gaps.push(DurabilityGap::NoReplica),
            (Some(_), Some(0)) => gaps.push(DurabilityGap::WritesWithoutReplica),
            _ => {}
        }
        if confirm == StoreConfirm::None && self.replicas.is_some_and(|count| count > 0) {
            gaps.push(DurabilityGap::Unconfirmed);
        }
        gaps
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

async fn permitted<T: FromRedisValue>(servers: &RedisServers, call: RedisCall) -> Option<T> {
    servers.run("inspect", call).await.ok()
}

/// What the servers would lose. Fails if they cannot confirm what `store.confirm` promises.
pub(super) async fn inspect(servers: &RedisServers, confirm: StoreConfirm) -> Result<Vec<DurabilityGap>, StoreError> {
    let primaries = servers.layout().borrow().primaries();
    let mut all: Vec<ServerFacts> = Vec::new();
    for partition in primaries.iter().filter_map(|(_, partitions)| partitions.first()) {
        all.push(ServerFacts::read(servers, *partition).await);
    }
    if confirm == StoreConfirm::Fsync {
        match fsync_proof(&all) {
            Some(FsyncProof::Waiting) => {}
            Some(FsyncProof::EveryAnswer) => servers.sync_without_waiting(),
            None => {
                let why = "store.confirm = \"fsync\" needs appendonly yes on all servers, with appendfsync always, or with \
                           everysec and WAITAOF (Redis 7.2)";
                return Err(StoreError::Unavailable(why.into()));
            }
        }
    }
    let mut gaps: Vec<DurabilityGap> = Vec::new();
    for gap in all.iter().flat_map(|facts| facts.gaps(confirm)) {
        if !gaps.contains(&gap) {
            gaps.push(gap);
        }
    }
    Ok(gaps)
}

/// How the servers show that a change is on disk.
#[derive(Debug, PartialEq, Eq)]
enum FsyncProof {
    /// They answer `WAITAOF`.
    Waiting,
    /// They answer no change before it is on disk.
    EveryAnswer,
}

/// What all servers can do: a change is asked about in the same way wherever it is.
fn fsync_proof(all: &[ServerFacts]) -> Option<FsyncProof> {
    if all.iter().all(ServerFacts::confirms_syncs) {
        return Some(FsyncProof::Waiting);
    }
    all.iter().all(ServerFacts::syncs_always).then_some(FsyncProof::EveryAnswer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable() -> ServerFacts {
        ServerFacts {
            version: Some((7, 2)),
            append_only: Some(true),
            fsync: Some("always".to_owned()),
            snapshots: Some(true),
            eviction: Some("noeviction".to_owned()),
            replicas: Some(1),
            min_replicas: Some(1),
        }
    }

    #[test]
    fn every_way_to_lose_changes_is_named() {
        let some = |text: &str| Some(text.to_owned());
        let table = [
            (durable(), vec![]),
            (
                ServerFacts { append_only: Some(false), snapshots: Some(false), ..durable() },
                vec![DurabilityGap::NothingOnDisk],
            ),
            (ServerFacts { append_only: Some(false), ..durable() }, vec![DurabilityGap::SnapshotsOnly]),
            (ServerFacts { fsync: some("everysec"), ..durable() }, vec![DurabilityGap::SyncEverySecond]),
            (ServerFacts { fsync: some("no"), ..durable() }, vec![DurabilityGap::SyncBySystem]),
            (
                ServerFacts { eviction: some("allkeys-lru"), ..durable() },
                vec![DurabilityGap::Eviction("allkeys-lru".to_owned())],
            ),
            (ServerFacts { replicas: Some(0), ..durable() }, vec![DurabilityGap::NoReplica]),
            (ServerFacts { min_replicas: Some(0), ..durable() }, vec![DurabilityGap::WritesWithoutReplica]),
            (ServerFacts::default(), vec![]),
        ];
        for (facts, expected) in table {
            assert_eq!(facts.gaps(StoreConfirm::Replica), expected, "{facts:?}");
        }
        assert_eq!(durable().gaps(StoreConfirm::None), [DurabilityGap::Unconfirmed]);
        assert_eq!(version("7.0.15"), Some((7, 0)));
        assert!(!ServerFacts { version: version("6.2.7"), ..durable() }.has_waitaof());
    }

    #[test]
    fn all_servers_prove_in_the_same_way_that_a_change_is_on_disk() {
        let old = || ServerFacts { version: Some((7, 0)), ..durable() };
        let every_second = || ServerFacts { fsync: Some("everysec".to_owned()), ..durable() };
        let table = [
            ("WAITAOF on all", vec![durable(), every_second()], Some(FsyncProof::Waiting)),
            ("always on all", vec![durable(), old()], Some(FsyncProof::EveryAnswer)),
            ("one without WAITAOF, another that does not always sync", vec![old(), every_second()], None),
            ("neither", vec![ServerFacts { fsync: Some("everysec".to_owned()), ..old() }], None),
            ("nothing syncs", vec![ServerFacts { fsync: Some("no".to_owned()), ..durable() }], None),
            ("no file", vec![ServerFacts { append_only: Some(false), ..durable() }], None),
        ];
        for (case, servers, expected) in table {
            assert_eq!(fsync_proof(&servers), expected, "{case}");
        }
    }
}
