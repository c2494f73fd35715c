//! The Redis store: sessions, tickets and the change feed on servers that several gateways share.
//!
//! Every record belongs to a partition ([`Partition`]), whose keys share a hash tag: a change and its announcement on the
//! partition's feed are one script on one slot. Questions that span partitions ask all of them in one round trip per
//! server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Mutex, broadcast, watch};
use tokio::task::AbortHandle;

use self::denials::DenialMemory;
use super::feed_state::FeedState;
use super::once::OnceStore;
use super::rate_leases::ledger::LeaseLedger;
use super::socket_slots::SocketSlots;
use super::work_leases::WorkLeases;
use super::{ChangeEvent, DurabilityGap, Store, StoreError};
use crate::config::StoreConfig;
use crate::domain::clock::Clock;
use crate::domain::secret::random_name;
use crate::metrics::Metrics;

mod claims;
mod connect;
mod denials;
mod exchange;
mod feed;
mod fleet;
mod inspect;
mod keys;
mod layout;
mod leases;
mod link;
mod lookup;
mod own_slots;
mod rates;
mod records;
mod revoke;
mod script;
mod servers;
mod sessions;
mod socket_slots;
mod sweep;
mod tickets;
mod transfer;

pub use claims::RedisClaims;
pub use keys::RedisKeys;
pub use leases::RedisLeases;
pub use rates::RedisRateLedger;
pub use script::{RedisCall, ServerScript};
pub use servers::RedisServers;
pub use socket_slots::RedisSocketSlots;

/// How many entries the feed of a partition keeps, about: what a gateway can miss and catch up with.
const FEED_CAPACITY: usize = 4096;

/// How long the feed of a partition without changes is kept.
const FEED_LIFETIME: Duration = Duration::from_secs(7 * 86_400);

/// How many changes a receiver may lag.
const RECEIVER_CAPACITY: usize = 4096;

/// How long the result of a readiness check counts: many may ask at once.
const READY_INTERVAL: Duration = Duration::from_secs(1);

/// Sessions, tickets and the change feed on Redis servers.
pub struct RedisStore {
    servers: Arc<RedisServers>,
    clock: Clock,
    changes: broadcast::Sender<ChangeEvent>,
    feed_state: FeedState,
    claims: Arc<RedisClaims>,
    leases: Arc<RedisLeases>,
    socket_slots: Arc<RedisSocketSlots>,
    denials: Arc<DenialMemory>,
    feed: AbortHandle,
    feed_ended: watch::Receiver<()>,
    gaps: Vec<DurabilityGap>,
    /// When the store was last found writable or not.
    ready: Mutex<Option<(Duration, Result<(), String>)>>,
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

impl RedisStore {
    /// Opens the servers of `[store]` and follows their change feed. Fails if they do not answer within a few seconds.
    pub async fn open(config: &StoreConfig, clock: Clock, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        let servers = Arc::new(RedisServers::open(config, metrics).await?);
        let gaps = inspect::inspect(&servers, config.confirm).await?;
        let (changes, _) = broadcast::channel(RECEIVER_CAPACITY);
        let feed_state = FeedState::new(clock.clone(), config.feed_stale.get(), config.outage_grace.get());
        let denials = Arc::new(DenialMemory::default());
        let follower = feed::Follower::start(
            feed::FeedParts {
                servers: servers.clone(),
                clock: clock.clone(),
                changes: changes.clone(),
                denials: denials.clone(),
            },
            config,
        )
        .await?;
        let (ended, feed_ended) = watch::channel(());
        let feed = tokio::spawn(async move {
            let _ended = ended;
            follower.run().await;
        })
        .abort_handle();
        // Another one after each start: what a gateway that died has held is not this one's.
        let gateway = random_name(16);
        Ok(Self {
            claims: Arc::new(RedisClaims::new(servers.clone())),
            leases: Arc::new(RedisLeases::new(servers.clone(), &gateway)),
            socket_slots: Arc::new(RedisSocketSlots::new(servers.clone(), &gateway)),
            servers,
            clock,
            changes,
            feed_state,
            denials,
            feed,
            feed_ended,
            gaps,
            ready: Mutex::default(),
        })
    }

    /// The servers, for the other parts of the store.
    pub fn servers(&self) -> &Arc<RedisServers> {
        &self.servers
    }
}

#[async_trait]
impl Store for RedisStore {
    fn changes(&self) -> broadcast::Receiver<ChangeEvent> {
        self.changes.subscribe()
    }

    fn feed(&self) -> &FeedState {
        &self.feed_state
    }

    fn claims(&self) -> Arc<dyn OnceStore> {
        self.claims.clone()
    }

    fn leases(&self) -> Arc<dyn WorkLeases> {
        self.leases.clone()
    }

    fn socket_slots(&self) -> Option<Arc<dyn SocketSlots>> {
        Some(self.socket_slots.clone())
    }

    fn rate_ledger(&self) -> Option<Arc<dyn LeaseLedger>> {
        Some(Arc::new(RedisRateLedger::new(self.servers.clone())))
    }

    fn durability_gaps(&self) -> Vec<DurabilityGap> {
        self.gaps.clone()
    }

    async fn ready(&self) -> Result<(), StoreError> {
        let mut ready = self.ready.lock().await;
        let now = self.clock.running();
        if let Some((at, result)) = &*ready
            && now.saturating_sub(*at) < READY_INTERVAL
        {
            return result.clone().map_err(|why| StoreError::Unavailable(why.into()));
        }
        let result = self.servers.probe().await;
        *ready = Some((now, result.as_ref().copied().map_err(|error| crate::error::chain(error))));
        result
    }

    async fn failure(&self) {
        // The sender is dropped when the task ends.
        while self.feed_ended.clone().changed().await.is_ok() {}
    }

    async fn close(&self) {
        self.servers.close();
        self.feed.abort();
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        self.sweep_partitions().await
    }
}

/// A duration in whole milliseconds.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
