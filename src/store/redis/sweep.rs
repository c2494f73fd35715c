//! Removes members of the indexes whose session has ended: records expire by themselves, members do not. One gateway at a
//! time sweeps a partition, a few records at a time.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::lookup::BATCH;
use super::records;
use super::script::{RedisCall, ServerScript, script};
use super::{RedisStore, millis};
use crate::domain::partition::Partition;
use crate::store::StoreError;

static PRUNE: LazyLock<ServerScript> = script!("prune.lua");

/// How often a partition is swept, whichever gateway does it.
const INTERVAL: Duration = Duration::from_secs(600);

impl RedisStore {
    pub(super) async fn sweep_partitions(&self) -> Result<(), StoreError> {
        self.denials.forget_expired(self.clock.now());
        let mut swept = Ok(());
        for partition in Partition::all() {
            // The other partitions may have another server.
            swept = swept.and(self.sweep_if_due(partition).await);
        }
        swept
    }

    async fn sweep_if_due(&self, partition: Partition) -> Result<(), StoreError> {
        let lock = RedisCall::command(partition, "SET")
            .arg(self.servers.keys().sweep_lock(partition))
            .arg(1)
            .arg("NX")
            .arg("PX")
            .arg(millis(INTERVAL));
        if self.servers.run::<Option<String>>("sweep", lock).await?.is_none() {
            return Ok(());
        }
        self.sweep_partition(partition).await
    }

    async fn sweep_partition(&self, partition: Partition) -> Result<(), StoreError> {
        let keys = self.servers.keys();
        let mut after: Option<String> = None;
        loop {
            let started = Instant::now();
            let members = self.all_members(partition, after.as_deref()).await?;
            let sessions = members.iter().map(|member| keys.session(partition, records::member_id(member).as_str()));
            let all: Vec<String> = std::iter::once(keys.index(partition)).chain(sessions).collect();
            let prune = RedisCall::script(&PRUNE, partition, &all).arg(&members);
            self.servers.run::<u64>("sweep", prune).await?;
            if members.len() < BATCH {
                return Ok(());
            }
            after = members.into_iter().next_back();
            // Most of the server's time is left to the others.
            tokio::time::sleep(started.elapsed() * 4).await;
        }
    }

    async fn all_members(&self, partition: Partition, after: Option<&str>) -> Result<Vec<String>, StoreError> {
        let call = RedisCall::command(partition, "ZRANGEBYLEX")
            .arg(self.servers.keys().index(partition))
            .arg(after.map_or_else(|| "-".to_owned(), |after| format!("({after}")))
            .arg("+")
            .arg("LIMIT")
            .arg(0)
            .arg(BATCH);
        self.servers.run("sweep", call).await
    }
}
