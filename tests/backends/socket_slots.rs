//! The contract of `SocketSlots`, on stores that several gateways share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deskgate::config::StoreConfig;
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::partition::Partition;
use deskgate::store::redis::{RedisCall, RedisServers, RedisSocketSlots};
use deskgate::store::socket_slots::{SlotOutcome, SocketSlot, SocketSlots};

use crate::redis_servers::{config, open};
use crate::servers::redis::groups::RedisCluster;
use crate::servers::redis::{self, RedisServer};

async fn gateway(config: &StoreConfig, id: &str) -> RedisSocketSlots {
    RedisSocketSlots::new(Arc::new(open(config).await.expect("servers")), id)
}

fn slot(employee: &str, number: u64) -> SocketSlot {
    SocketSlot::new(&(CorpId::new("wwdemo"), EmployeeId::new(employee)), "a rule", number)
}

async fn take(gateway: &RedisSocketSlots, slot: &SocketSlot, most: usize) -> SlotOutcome {
    gateway.take(slot, most).await.expect("a slot")
}

/// Tries to take a slot until that has the outcome. Frees what was taken for nothing.
async fn eventually(gateway: &RedisSocketSlots, slot: &SocketSlot, most: usize, expected: SlotOutcome) {
    let tries = async {
        loop {
            match gateway.take(slot, most).await {
                Ok(outcome) if outcome == expected => return,
                Ok(SlotOutcome::Taken) => gateway.free(slot.clone()),
                Ok(SlotOutcome::Exhausted) | Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), tries).await;
    assert!(in_time.is_ok(), "never {expected:?}");
}

async fn slots_are_counted_over_all_gateways(config: StoreConfig) {
    let (one, two) = (gateway(&config, "one").await, gateway(&config, "two").await);
    let numbers = 0..25;
    let all = numbers.flat_map(|number| [(&one, slot("raced", number)), (&two, slot("raced", number))]);
    let outcomes =
        futures::future::join_all(all.map(|(gateway, slot)| async move { take(gateway, &slot, 5).await })).await;
    let taken = outcomes.iter().filter(|outcome| **outcome == SlotOutcome::Taken).count();
    assert_eq!(taken, 5, "of fifty at the same time");

    let (first, second, third) = (slot("u1001", 1), slot("u1001", 2), slot("u1001", 3));
    assert_eq!(take(&one, &first, 2).await, SlotOutcome::Taken);
    assert_eq!(take(&one, &first, 1).await, SlotOutcome::Taken, "it has the slot");
    assert_eq!(take(&two, &first, 2).await, SlotOutcome::Taken, "the same number on another gateway");
    assert_eq!(take(&two, &second, 2).await, SlotOutcome::Exhausted);
    assert_eq!(take(&two, &slot("a2001", 3), 2).await, SlotOutcome::Taken, "another employee");
    one.free(first.clone());
    eventually(&two, &second, 2, SlotOutcome::Taken).await;
    one.hold(first);
    two.free(second);
    eventually(&two, &third, 2, SlotOutcome::Exhausted).await;
}

#[tokio::test]
async fn slots_are_counted_over_all_gateways_of_one_server() {
    slots_are_counted_over_all_gateways(config(&redis::standalone())).await;
}

#[tokio::test]
async fn slots_are_counted_over_all_gateways_of_a_cluster() {
    slots_are_counted_over_all_gateways(config(&redis::cluster())).await;
}

#[tokio::test]
async fn slots_of_a_dead_gateway_are_freed() {
    let config = config(&redis::standalone());
    let (one, two) = (gateway(&config, "one").await, gateway(&config, "two").await);
    assert_eq!(take(&one, &slot("u1001", 1), 1).await, SlotOutcome::Taken);
    assert_eq!(take(&two, &slot("u1001", 1), 1).await, SlotOutcome::Exhausted);
    drop(one);
    eventually(&two, &slot("u1001", 1), 1, SlotOutcome::Taken).await;
}

#[tokio::test]
async fn slots_of_open_sockets_return_after_the_server_lost_them() {
    let mut server = RedisServer::start(&[]);
    let config = config(&server.url());
    let (one, two) = (gateway(&config, "one").await, gateway(&config, "two").await);
    assert_eq!(take(&one, &slot("u1001", 1), 1).await, SlotOutcome::Taken);
    server.kill();
    assert!(two.take(&slot("u1001", 1), 1).await.is_err());
    // Freed while the server is away, and so when it is back.
    let freed = slot("a2001", 1);
    one.hold(freed.clone());
    one.free(freed.clone());
    server.restart();
    eventually(&two, &slot("u1001", 1), 1, SlotOutcome::Exhausted).await;
    eventually(&two, &freed, 1, SlotOutcome::Taken).await;
}

/// Until when a gateway counts as alive in the partition of a slot.
async fn announced_until(servers: &RedisServers, gateway: &str, slot: &SocketSlot) -> f64 {
    let partition = Partition::of(slot.group.as_str());
    let score =
        RedisCall::command(partition, "ZSCORE").arg(servers.keys().key(partition, "og")).arg(format!("{gateway}.0"));
    servers.run("test", score).await.expect("the gateway is known")
}

#[tokio::test]
async fn slots_on_the_other_servers_work_while_one_is_away() {
    let cluster = RedisCluster::of_two_primaries();
    let config = StoreConfig { timeout: Duration::from_millis(500).into(), ..config(&cluster.url()) };
    let (one, two) = (gateway(&config, "one").await, gateway(&config, "two").await);
    let servers = open(&config).await.expect("servers");
    let member = |slot: &SocketSlot| cluster.member_of(&servers.keys().key(Partition::of(slot.group.as_str()), "og"));
    let slots: Vec<SocketSlot> = (0..64).map(|number| slot(&format!("u{number}"), 1)).collect();
    let (away, here): (Vec<_>, Vec<_>) = slots.into_iter().partition(|slot| member(slot) == 0);
    for slot in away.iter().chain(&here) {
        assert_eq!(take(&one, slot, 1).await, SlotOutcome::Taken);
    }

    cluster.members[0].signal("STOP");
    let before = announced_until(&servers, "one", &here[1]).await;
    for slot in &away {
        one.free(slot.clone());
    }
    one.free(here[0].clone());
    eventually(&two, &here[0], 1, SlotOutcome::Taken).await;
    let started = Instant::now();
    while announced_until(&servers, "one", &here[1]).await <= before {
        assert!(started.elapsed() < Duration::from_secs(9), "the gateway is taken for dead where it is alive");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    cluster.members[0].signal("CONT");
    for slot in &away {
        eventually(&two, slot, 1, SlotOutcome::Taken).await;
    }
    assert_eq!(take(&two, &here[1], 1).await, SlotOutcome::Exhausted);
}
