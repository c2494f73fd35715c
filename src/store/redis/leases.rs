//! Leases of background work in Redis: a key each, which holds the gateway that has the lease and expires with it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;

use super::lookup::key_lifetime;
use super::script::script;
use super::{RedisCall, RedisServers, ServerScript};
use crate::domain::partition::Partition;
use crate::store::StoreError;
use crate::store::work_leases::{LeaseOutcome, Work, WorkLeases};

static ACQUIRE: LazyLock<ServerScript> = script!("acquire.lua");
static END_LEASE: LazyLock<ServerScript> = script!("end_lease.lua");

/// Leases on shared servers.
pub struct RedisLeases {
    servers: Arc<RedisServers>,
    /// Identifies this gateway.
    gateway: String,
}

impl RedisLeases {
    /// For the gateway with this id, on these servers.
    pub fn new(servers: Arc<RedisServers>, gateway: &str) -> Self {
        Self { servers, gateway: gateway.to_owned() }
    }

    fn call(&self, script: &'static ServerScript, work: Work) -> RedisCall {
        let partition = Partition::of(work.as_str());
        let key = self.servers.keys().key(partition, &format!("l:{}", work.as_str()));
        RedisCall::script(script, partition, &[key]).arg(&self.gateway)
    }
}

#[async_trait]
impl WorkLeases for RedisLeases {
    async fn acquire(&self, work: Work, lifetime: Duration) -> Result<LeaseOutcome, StoreError> {
        let granted: u8 = self.servers.run("lease", self.call(&ACQUIRE, work).arg(key_lifetime(lifetime))).await?;
        Ok(if granted == 1 { LeaseOutcome::Granted } else { LeaseOutcome::HeldElsewhere })
    }

    async fn end(&self, work: Work) -> Result<(), StoreError> {
        self.servers.run("lease", self.call(&END_LEASE, work)).await
    }
}
