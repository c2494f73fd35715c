//! The ledgers of shared rate limits: a hash each, in the partition of its name. A share is used once `store.confirm` holds:
//! a failover that lost it would have it leased to another gateway as well.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;

use super::script::script;
use super::{RedisCall, RedisServers, ServerScript};
use crate::store::StoreError;
use crate::store::rate_leases::ledger::{LeaseAsk, LeaseGrant, LeaseLedger, LedgerName};

static LEASE: LazyLock<ServerScript> = script!("rate_lease.lua");
static TAKE_BACK: LazyLock<ServerScript> = script!("rate_take_back.lua");

/// The ledgers on Redis servers.
pub struct RedisRateLedger {
    servers: Arc<RedisServers>,
}

impl RedisRateLedger {
    /// The ledgers on these servers.
    pub fn new(servers: Arc<RedisServers>) -> Self {
        Self { servers }
    }

    fn call(&self, script: &'static ServerScript, name: &LedgerName) -> RedisCall {
        let key = self.servers.keys().key(name.partition, &format!("r:{}", name.digest));
        RedisCall::script(script, name.partition, &[key])
    }
}

#[async_trait]
impl LeaseLedger for RedisRateLedger {
    async fn ask(&self, name: &LedgerName, ask: &LeaseAsk) -> Result<LeaseGrant, StoreError> {
        let mut call = self.call(&LEASE, name).arg(&ask.record).arg(ask.sequence).arg(ask.window.limit);
        call = call.arg(microseconds(ask.window.per)).arg(microseconds(ask.validity));
        call = call.arg(ask.held).arg(ask.need).arg(ask.want).arg(ask.charge);
        for (count, left) in &ask.admitted {
            call = call.arg(*count).arg(microseconds(*left));
        }
        let (share, charged, entry, retry_after, gateways, at) = self.servers.change("rate_lease", call).await?;
        Ok(LeaseGrant { share, charged, entry, retry_after: Duration::from_micros(retry_after), gateways, at })
    }

    async fn take_back(&self, name: &LedgerName, entry: u64) -> Result<(), StoreError> {
        self.servers.change("rate_take_back", self.call(&TAKE_BACK, name).arg(entry)).await
    }
}

/// Windows of more than a century are as good as one: Redis counts in floating-point numbers.
fn microseconds(time: Duration) -> u64 {
    const CENTURY: u64 = 100 * 366 * 86_400 * 1_000_000;
    u64::try_from(time.as_micros()).unwrap_or(CENTURY).min(CENTURY)
}
