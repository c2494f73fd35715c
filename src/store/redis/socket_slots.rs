//! Slots of open WebSockets in Redis: a set per employee and rule, of `GATEWAY:NUMBER`.
//!
//! A slot counts while its gateway is alive. Gateways announce themselves in each partition in which they have slots, in
//! one round trip per server whatever the number of WebSockets; rejected: an expiry for each slot, which every WebSocket
//! would have to renew. A gateway that finds itself unknown (its servers lost data, or it stood still for long) announces
//! its slots again.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::{RedisCall, RedisServers, ServerScript};
use crate::domain::partition::Partition;
use crate::store::StoreError;
use crate::store::socket_slots::{SlotOutcome, SocketSlot, SocketSlots};

/// How often a gateway announces itself, and how long each time.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(3);
const ANNOUNCED_FOR: Duration = Duration::from_secs(10);

/// How long a set is kept after its last change. Only the sets of gateways that died grow so old.
const GROUP_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Most changes written in one round trip.
const BATCH: usize = 500;

static TAKE: LazyLock<ServerScript> = LazyLock::new(|| ServerScript::new(include_str!("scripts/take_slot.lua")));
static ANNOUNCE: LazyLock<ServerScript> =
    LazyLock::new(|| ServerScript::new(include_str!("scripts/announce_gateway.lua")));
static HOLD: LazyLock<ServerScript> = LazyLock::new(|| ServerScript::new(include_str!("scripts/hold_slot.lua")));

/// Slots on shared servers.
pub struct RedisSocketSlots {
    inner: Arc<SlotServers>,
    changes: mpsc::UnboundedSender<SlotChange>,
}

/// A change that is written in the background.
enum SlotChange {
    Hold(SocketSlot),
    Free(SocketSlot),
}

struct SlotServers {
    servers: Arc<RedisServers>,
    /// Identifies this gateway.
    gateway: String,
    /// The slots of this gateway.
    own: Mutex<OwnSlots>,
}

type OwnSlots = HashMap<Partition, HashSet<SocketSlot>>;

/// What a server answers to an attempt to take a slot.
const UNKNOWN_GATEWAY: i8 = -1;
const TAKEN: i8 = 1;

impl RedisSocketSlots {
    /// For the gateway with this id, on these servers.
    pub fn new(servers: Arc<RedisServers>, gateway: &str) -> Self {
        let inner = Arc::new(SlotServers { servers, gateway: gateway.to_owned(), own: Mutex::default() });
        let (changes, received) = mpsc::unbounded_channel();
        tokio::spawn(inner.clone().run(received));
        Self { inner, changes }
    }

    fn change(&self, change: SlotChange) {
        // Fails only after the task has ended with the runtime.
        let _ = self.changes.send(change);
    }
}

impl fmt::Debug for RedisSocketSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSocketSlots").field("gateway", &self.inner.gateway).finish_non_exhaustive()
    }
}

#[async_trait]
impl SocketSlots for RedisSocketSlots {
    async fn take(&self, slot: &SocketSlot, most: usize) -> Result<SlotOutcome, StoreError> {
        let mut answer = self.inner.take(slot, most).await?;
        if answer == UNKNOWN_GATEWAY {
            self.inner.announce(&[partition_of(slot)]).await?;
            answer = self.inner.take(slot, most).await?;
        }
        match answer {
            TAKEN => {
                self.inner.own().entry(partition_of(slot)).or_default().insert(slot.clone());
                Ok(SlotOutcome::Taken)
            }
            UNKNOWN_GATEWAY => Err(StoreError::Unavailable("the gateway is not known to the store".into())),
            _ => Ok(SlotOutcome::Exhausted),
        }
    }

    fn hold(&self, slot: SocketSlot) {
        self.inner.own().entry(partition_of(&slot)).or_default().insert(slot.clone());
        self.change(SlotChange::Hold(slot));
    }

    fn free(&self, slot: SocketSlot) {
        let mut own = self.inner.own();
        if let Some(slots) = own.get_mut(&partition_of(&slot)) {
            slots.remove(&slot);
            if slots.is_empty() {
                own.remove(&partition_of(&slot));
            }
        }
        drop(own);
        self.change(SlotChange::Free(slot));
    }
}

impl SlotServers {
    fn own(&self) -> MutexGuard<'_, OwnSlots> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn group_key(&self, slot: &SocketSlot) -> String {
        self.servers.keys().key(partition_of(slot), &format!("o:{}", slot.group.as_str()))
    }

    fn gateways_key(&self, partition: Partition) -> String {
        self.servers.keys().key(partition, "og")
    }

    fn member(&self, slot: &SocketSlot) -> String {
        format!("{}:{}", self.gateway, slot.number)
    }

    async fn take(&self, slot: &SocketSlot, most: usize) -> Result<i8, StoreError> {
        let partition = partition_of(slot);
        let call = RedisCall::script(&TAKE, partition, &[self.group_key(slot), self.gateways_key(partition)])
            .arg(&self.gateway)
            .arg(self.member(slot))
            .arg(most)
            .arg(millis(GROUP_LIFETIME));
        self.servers.run("slot", call).await
    }

    /// Announces this gateway in partitions, and its slots in those that did not know it.
    async fn announce(&self, partitions: &[Partition]) -> Result<(), StoreError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let announce = |partition: &Partition| {
            RedisCall::script(&ANNOUNCE, *partition, &[self.gateways_key(*partition)])
                .arg(&self.gateway)
                .arg(millis(ANNOUNCED_FOR))
        };
        let calls: Vec<RedisCall> = partitions.iter().map(announce).collect();
        let known: Vec<u8> = self.servers.run_all("slots", &calls).await?;
        let unknown = partitions.iter().zip(known).filter(|(_, known)| *known == 0).map(|(partition, _)| partition);
        let lost: Vec<SlotChange> = {
            let own = self.own();
            unknown.filter_map(|partition| own.get(partition)).flatten().cloned().map(SlotChange::Hold).collect()
        };
        for batch in lost.chunks(BATCH) {
            self.write(batch).await?;
        }
        Ok(())
    }

    async fn write(&self, changes: &[SlotChange]) -> Result<(), StoreError> {
        let call = |change: &SlotChange| match change {
            SlotChange::Hold(slot) => RedisCall::script(&HOLD, partition_of(slot), &[self.group_key(slot)])
                .arg(self.member(slot))
                .arg(millis(GROUP_LIFETIME)),
            SlotChange::Free(slot) => {
                RedisCall::command(partition_of(slot), "SREM").arg(self.group_key(slot)).arg(self.member(slot))
            }
        };
        let calls: Vec<RedisCall> = changes.iter().map(call).collect();
        self.servers.run_all::<()>("slots", &calls).await?;
        Ok(())
    }

    /// Writes changes and announces this gateway, until no one can change a slot any more.
    async fn run(self: Arc<Self>, mut received: mpsc::UnboundedReceiver<SlotChange>) {
        let mut tick = tokio::time::interval(ANNOUNCE_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut unwritten: Vec<SlotChange> = Vec::new();
        loop {
            tokio::select! {
                count = received.recv_many(&mut unwritten, BATCH), if unwritten.is_empty() => {
                    if count == 0 {
                        return;
                    }
                }
                _ = tick.tick() => {
                    let partitions: Vec<Partition> = self.own().keys().copied().collect();
                    // The next tick tries again; until then other gateways count these slots as before.
                    let _ = self.announce(&partitions).await;
                }
            }
            // What cannot be written waits for the next tick, and later changes behind it.
            if !unwritten.is_empty() && self.write(&unwritten).await.is_ok() {
                unwritten.clear();
            }
        }
    }
}

fn partition_of(slot: &SocketSlot) -> Partition {
    Partition::of(slot.group.as_str())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
