//! Single-use claims in Redis: a key each, which expires.
//!
//! The claims of one network that the platform has not confirmed are listed per kind and partition. A network that makes
//! more than the list holds loses its own oldest ones, as in the memory of one gateway; all networks of an IPv6 /48 share
//! a list. Lists of other networks are not touched, so no network crowds out another.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;

use super::lookup::key_lifetime;
use super::script::script;
use super::{RedisCall, RedisServers, ServerScript};
use crate::domain::partition::Partition;
use crate::domain::write::WriteOutcome;
use crate::store::StoreError;
use crate::store::once::{ClaimKey, ClaimOutcome, OnceStore};

/// Unconfirmed claims of one network, kind and partition: 6,400 of a kind in all partitions.
const MAX_UNCONFIRMED: usize = 100;

static CLAIM: LazyLock<ServerScript> = script!("claim.lua");
static SETTLE: LazyLock<ServerScript> = script!("settle.lua");
static RELEASE: LazyLock<ServerScript> = script!("release.lua");

/// Claims on shared servers.
pub struct RedisClaims {
    servers: Arc<RedisServers>,
}

/// The keys of one claim.
struct ClaimNames {
    partition: Partition,
    /// The claim's, without its digest.
    prefix: String,
    claim: String,
    /// The list of its network.
    network: String,
}

impl ClaimNames {
    fn keys(&self) -> [String; 2] {
        [self.claim.clone(), self.network.clone()]
    }
}

impl RedisClaims {
    /// On these servers.
    pub fn new(servers: Arc<RedisServers>) -> Self {
        Self { servers }
    }

    fn names(&self, key: &ClaimKey) -> ClaimNames {
        let (keys, kind, digest) = (self.servers.keys(), key.kind.as_str(), key.digest.as_str());
        let partition = Partition::of(digest);
        let prefix = keys.key(partition, &format!("c:{kind}:"));
        let network = keys.key(partition, &format!("cn:{kind}:{:x}", key.network.widened().number()));
        ClaimNames { partition, claim: format!("{prefix}{digest}"), prefix, network }
    }
}

#[async_trait]
impl OnceStore for RedisClaims {
    async fn claim(&self, key: &ClaimKey, value: &str, lifetime: Duration) -> Result<ClaimOutcome, StoreError> {
        let names = self.names(key);
        let call = RedisCall::script(&CLAIM, names.partition, &names.keys())
            .arg(value)
            .arg(key_lifetime(lifetime))
            .arg(key.digest.as_str())
            .arg(MAX_UNCONFIRMED)
            .arg(&names.prefix);
        let taken: Option<String> = self.servers.change("claim", call).await?;
        Ok(taken.map_or(ClaimOutcome::First, ClaimOutcome::Taken))
    }

    async fn claimed(&self, key: &ClaimKey) -> Result<Option<String>, StoreError> {
        let names = self.names(key);
        self.servers.run("claimed", RedisCall::command(names.partition, "GET").arg(&names.claim)).await
    }

    async fn settle(
        &self,
        key: &ClaimKey,
        seen: &str,
        value: &str,
        lifetime: Duration,
    ) -> Result<WriteOutcome, StoreError> {
        let names = self.names(key);
        let call = RedisCall::script(&SETTLE, names.partition, &names.keys())
            .arg(seen)
            .arg(value)
            .arg(key_lifetime(lifetime))
            .arg(key.digest.as_str());
        let written: u8 = self.servers.change("settle", call).await?;
        Ok(if written == 1 { WriteOutcome::Applied } else { WriteOutcome::Conflict })
    }

    async fn release(&self, key: &ClaimKey, seen: &str) -> Result<(), StoreError> {
        let names = self.names(key);
        let call = RedisCall::script(&RELEASE, names.partition, &names.keys()).arg(seen).arg(key.digest.as_str());
        self.servers.run("release", call).await
    }

    async fn prove(&self, key: &ClaimKey) -> Result<(), StoreError> {
        let names = self.names(key);
        let call = RedisCall::command(names.partition, "ZREM").arg(&names.network).arg(key.digest.as_str());
        self.servers.run("prove", call).await
    }
}
