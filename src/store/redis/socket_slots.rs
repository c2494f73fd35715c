//! Slots of open WebSockets in Redis: a set per employee and rule, of `GATEWAY:NUMBER`.
//!
//! A slot counts while its gateway is alive. Gateways announce themselves in each partition in which they have slots, in
//! one round trip per server whatever the number of WebSockets; rejected: an expiry for each slot, which every WebSocket
//! would have to renew. A gateway that finds itself unknown (its servers lost data, or it stood still for long) announces
//! its slots again.
//!
//! Changes that cannot be written wait per partition, so that a server that is away does not delay those of the others.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::own_slots::{OwnSlots, SlotChange, SlotName};
use super::script::script;
use super::{RedisCall, RedisServers, ServerScript, millis};
use crate::domain::partition::Partition;
use crate::store::StoreError;
use crate::store::socket_slots::{SlotOutcome, SocketSlot, SocketSlots};

/// How often a gateway announces itself, and how long each time.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(3);
const ANNOUNCED_FOR: Duration = Duration::from_secs(10);

/// How long a set is kept after its last change. Only the sets of gateways that died grow so old.
const GROUP_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Most changes of a partition that are written in one round trip.
const BATCH: usize = 100;

static TAKE: LazyLock<ServerScript> = script!("take_slot.lua");
static ANNOUNCE: LazyLock<ServerScript> = script!("announce_gateway.lua");
static HOLD: LazyLock<ServerScript> = script!("hold_slot.lua");

/// Slots on shared servers.
pub struct RedisSocketSlots {
    inner: Arc<SlotServers>,
    /// Wakes the task that writes changes, and ends it when it is dropped.
    wake: mpsc::Sender<()>,
}

struct SlotServers {
    servers: Arc<RedisServers>,
    /// Identifies this gateway.
    gateway: String,
    own: Mutex<HashMap<Partition, OwnSlots>>,
    /// Serializes writes: a change must not overtake an earlier one of the same slot.
    write_lock: tokio::sync::Mutex<()>,
}

/// What a server answers to an attempt to take a slot.
const UNKNOWN_GATEWAY: i8 = -1;
const TAKEN: i8 = 1;

impl RedisSocketSlots {
    /// For the gateway with this id, on these servers.
    pub fn new(servers: Arc<RedisServers>, gateway: &str) -> Self {
        let (own, write_lock) = (Mutex::default(), tokio::sync::Mutex::default());
        let inner = Arc::new(SlotServers { servers, gateway: gateway.to_owned(), own, write_lock });
        let (wake, woken) = mpsc::channel(1);
        tokio::spawn(inner.clone().run(woken));
        Self { inner, wake }
    }

    fn change(&self, slot: SocketSlot, change: SlotChange) {
        self.inner.own().entry(partition_of(&slot)).or_default().change(slot, change);
        // Fails if the task is about to look anyway, or has ended with the runtime.
        let _ = self.wake.try_send(());
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
        let partition = partition_of(slot);
        let mut name = self.inner.name(partition);
        let mut answer = self.inner.take(slot, name, most).await?;
        if answer == UNKNOWN_GATEWAY {
            self.inner.return_to(partition).await?;
            name = self.inner.name(partition);
            answer = self.inner.take(slot, name, most).await?;
        }
        match answer {
            TAKEN => {
                self.inner.own().entry(partition).or_default().note_taken(slot.clone(), name);
                Ok(SlotOutcome::Taken)
            }
            UNKNOWN_GATEWAY => Err(StoreError::Unavailable("the gateway is not known to the store".into())),
            _ => Ok(SlotOutcome::Exhausted),
        }
    }

    fn hold(&self, slot: SocketSlot) {
        self.change(slot, SlotChange::Hold);
    }

    fn free(&self, slot: SocketSlot) {
        self.change(slot, SlotChange::Free);
    }
}

impl SlotServers {
    fn own(&self) -> MutexGuard<'_, HashMap<Partition, OwnSlots>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of this gateway in a partition.
    fn name(&self, partition: Partition) -> SlotName {
        self.own().get(&partition).map(OwnSlots::name).unwrap_or_default()
    }

    fn group_key(&self, slot: &SocketSlot) -> String {
        self.servers.keys().key(partition_of(slot), &format!("o:{}", slot.group.as_str()))
    }

    fn gateways_key(&self, partition: Partition) -> String {
        self.servers.keys().key(partition, "og")
    }

    async fn take(&self, slot: &SocketSlot, name: SlotName, most: usize) -> Result<i8, StoreError> {
        let partition = partition_of(slot);
        let call = RedisCall::script(&TAKE, partition, &[self.group_key(slot), self.gateways_key(partition)])
            .arg(name.gateway(&self.gateway))
            .arg(name.member(&self.gateway, slot))
            .arg(most)
            .arg(millis(GROUP_LIFETIME));
        self.servers.run("slot", call).await
    }

    /// Announces this gateway in partitions. In those that did not know it, its slots are to be written again.
    async fn announce(&self, partitions: &[Partition]) -> Result<(), StoreError> {
        let announce = |partition: &Partition| {
            RedisCall::script(&ANNOUNCE, *partition, &[self.gateways_key(*partition)])
                .arg(self.name(*partition).gateway(&self.gateway))
                .arg(millis(ANNOUNCED_FOR))
        };
        let calls: Vec<RedisCall> = partitions.iter().map(announce).collect();
        let mut failed = Ok(());
        for (partition, known) in partitions.iter().zip(self.servers.run_each::<u8>("slots", &calls).await) {
            match known {
                Ok(0) => self.own().entry(*partition).or_default().write_all_again(),
                Ok(_) => {}
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    /// Announces this gateway in a partition that did not know it, and all of its slots.
    async fn return_to(&self, partition: Partition) -> Result<(), StoreError> {
        self.announce(&[partition]).await?;
        while !self.write_changes(&[partition]).await.is_empty() {}
        let is_written = self.own().get(&partition).is_none_or(OwnSlots::is_written);
        is_written.then_some(()).ok_or_else(|| StoreError::Unavailable("slots could not be written".into()))
    }

    /// Writes some of the changes of each partition. Returns the partitions that have more and whose servers answered; what
    /// fails waits for the next time.
    async fn write_changes(&self, partitions: &[Partition]) -> Vec<Partition> {
        let _lock = self.write_lock.lock().await;
        let changes: Vec<(SlotName, SocketSlot, SlotChange)> = {
            let own = self.own();
            partitions.iter().filter_map(|partition| own.get(partition)).flat_map(|own| own.unwritten(BATCH)).collect()
        };
        let calls: Vec<RedisCall> =
            changes.iter().map(|(name, slot, change)| self.write_call(*name, slot, *change)).collect();
        let written = self.servers.run_each::<()>("slots", &calls).await;
        let mut own = self.own();
        let mut answered: HashSet<Partition> = HashSet::new();
        for ((name, slot, change), _) in changes.iter().zip(written).filter(|(_, written)| written.is_ok()) {
            answered.insert(partition_of(slot));
            own.entry(partition_of(slot)).or_default().note_written(*name, slot, *change);
        }
        answered.into_iter().filter(|partition| own.get(partition).is_some_and(OwnSlots::has_changes)).collect()
    }

    /// The partitions in which this holds for the slots of this gateway.
    fn partitions(&self, is_wanted: impl Fn(&OwnSlots) -> bool) -> Vec<Partition> {
        self.own().iter().filter(|(_, own)| is_wanted(own)).map(|(partition, _)| *partition).collect()
    }

    fn write_call(&self, name: SlotName, slot: &SocketSlot, change: SlotChange) -> RedisCall {
        let (partition, group, member) = (partition_of(slot), self.group_key(slot), name.member(&self.gateway, slot));
        match change {
            SlotChange::Hold => RedisCall::script(&HOLD, partition, &[group]).arg(member).arg(millis(GROUP_LIFETIME)),
            SlotChange::Free => RedisCall::command(partition, "SREM").arg(group).arg(member),
        }
    }

    /// Writes changes and announces this gateway, until no one can change a slot any more.
    async fn run(self: Arc<Self>, mut woken: mpsc::Receiver<()>) {
        let mut tick = tokio::time::interval(ANNOUNCE_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut left: Vec<Partition> = Vec::new();
        loop {
            tokio::select! {
                changed = woken.recv(), if left.is_empty() => {
                    if changed.is_none() {
                        return;
                    }
                }
                () = std::future::ready(()), if !left.is_empty() => {}
                _ = tick.tick() => {
                    // The next tick tries again; until then other gateways count these slots as before.
                    let _ = self.announce(&self.partitions(OwnSlots::has_slots)).await;
                }
            }
            left = self.write_changes(&self.partitions(OwnSlots::has_changes)).await;
        }
    }
}

fn partition_of(slot: &SocketSlot) -> Partition {
    Partition::of(slot.group.as_str())
}
