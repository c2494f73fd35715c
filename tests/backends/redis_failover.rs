//! Another server takes over: gateways follow it, and nothing that it lost or never had lets anybody in.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use deskgate::config::{StoreConfig, StoreConfirm};
use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::partition::Partition;
use deskgate::domain::session::{EndCause, Session};
use deskgate::store::{Change, SessionStore, Store};

use crate::redis_servers::config;
use crate::redis_store::{found, open, store_prefix, wait_for};
use crate::servers::redis::groups::{RedisCluster, SentinelGroup};
use crate::servers::redis::{self, RedisServer};
use crate::servers::tcp_proxy::TcpProxy;
use crate::store::{LIFETIME, next_change, session};

/// Hardening fault 9: a replica that lags takes over, at the same address.
#[tokio::test]
async fn failover_to_a_lagging_replica_brings_no_session_back() {
    let primary = RedisServer::start(&[]);
    let replica = RedisServer::start(&[&format!("replicaof 127.0.0.1 {}", primary.port)]);
    let proxy = TcpProxy::start(primary.port).await;
    let config = config(&format!("redis://127.0.0.1:{}", proxy.port));
    let store = open(&config).await.expect("store");
    let clock = Clock::system();
    let (live, revoked) = (session("live", &clock), session("revoked", &clock));
    store.create(&live).await.expect("create");
    store.create(&revoked).await.expect("create");
    redis::wait_for_offset(&primary, &replica);
    // From now on the replica receives nothing: the logout is answered and lost.
    replica.ask("REPLICAOF NO ONE\r\n").expect("an answer");
    store.revoke(&revoked.id, LIFETIME, EndCause::Logout).await.expect("revoke");
    let mut changes = store.changes();
    proxy.redirect(replica.port);
    wait_for(&mut changes, |change| matches!(change, Change::PrimaryChanged)).await;
    assert_eq!(found(&store, &revoked.id).await, None, "this gateway remembers the logout");
    assert_eq!(found(&store, &live.id).await.map(|found| found.id), Some(live.id));
    // A gateway that has not received it.
    let fresh = open(&StoreConfig { prefix: store_prefix(&store), ..config }).await.expect("store");
    let started = Instant::now();
    while found(&fresh, &revoked.id).await.is_some() {
        assert!(started.elapsed() < Duration::from_secs(20), "the denial was not written again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let own = fresh.of_employee(&CorpId::new("wwdemo"), &EmployeeId::new("a2001")).await.expect("list");
    assert_eq!(own.len(), 1);
}

/// A name or address that moves to another server leaves open connections at the one before, which still answers.
#[tokio::test]
async fn demoted_server_is_not_asked_any_more() {
    let before = RedisServer::start(&[]);
    let after = RedisServer::start(&[&format!("replicaof 127.0.0.1 {}", before.port)]);
    let proxy = TcpProxy::start(before.port).await;
    let config = config(&format!("redis://127.0.0.1:{}", proxy.port));
    let store = open(&config).await.expect("store");
    let kept = session("kept", &Clock::system());
    store.create(&kept).await.expect("create");
    redis::wait_for_offset(&before, &after);
    let mut changes = store.changes();
    after.ask("REPLICAOF NO ONE\r\n").expect("an answer");
    proxy.redirect_new(after.port);
    before.ask("REPLICAOF 127.0.0.1 1\r\n").expect("an answer");
    wait_for(&mut changes, |change| matches!(change, Change::PrimaryChanged)).await;
    let elsewhere = open(&config).await.expect("store");
    let next = Session { version: kept.version.next(), ..kept.clone() };
    elsewhere.replace(&next, kept.version).await.expect("replace");
    assert_eq!(found(&store, &kept.id).await, Some(next), "the server before still has the old record");
}

#[tokio::test]
async fn replica_in_the_place_of_its_primary_is_not_asked() {
    let server = RedisServer::start(&[]);
    let store = open(&config(&server.url())).await.expect("store");
    let kept = session("kept", &Clock::system());
    store.create(&kept).await.expect("create");
    server.ask("REPLICAOF 127.0.0.1 1\r\n").expect("an answer");
    let started = Instant::now();
    // Nothing is written: only the feed finds it out.
    while store.find(&kept.id).await.is_ok() {
        assert!(started.elapsed() < Duration::from_secs(20), "a replica is asked");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.ask("REPLICAOF NO ONE\r\n").expect("an answer");
    assert_eq!(found(&store, &kept.id).await, Some(kept));
}

#[tokio::test]
async fn gateways_follow_the_primary_that_the_sentinels_elect() {
    follow_the_elected_primary(SentinelGroup::start()).await;
}

#[tokio::test]
async fn sentinels_and_their_primary_are_followed_over_tls() {
    follow_the_elected_primary(SentinelGroup::start_encrypted()).await;
}

async fn follow_the_elected_primary(mut group: SentinelGroup) {
    let store = open(&StoreConfig { ca_file: group.ca_file(), ..config(&group.url()) }).await.expect("store");
    let clock = Clock::system();
    let (live, revoked) = (session("live", &clock), session("revoked", &clock));
    store.create(&live).await.expect("create");
    store.create(&revoked).await.expect("create");
    store.revoke(&revoked.id, LIFETIME, EndCause::Logout).await.expect("revoke");
    redis::wait_for_offset(&group.first, &group.second);
    let mut changes = store.changes();
    group.first.kill();
    wait_for(&mut changes, |change| matches!(change, Change::PrimaryChanged)).await;
    assert_eq!(found(&store, &live.id).await.map(|found| found.id), Some(live.id.clone()));
    assert_eq!(found(&store, &revoked.id).await, None);
    store.revoke(&live.id, LIFETIME, EndCause::Logout).await.expect("the new primary takes writes");
    wait_for(&mut changes, |change| matches!(change, Change::SessionEnded { id, .. } if *id == live.id)).await;
}

#[tokio::test]
async fn gateways_follow_a_cluster_whose_primary_dies() {
    let mut cluster = RedisCluster::start();
    let config = StoreConfig { confirm: StoreConfirm::Replica, ..config(&cluster.url()) };
    let store = open(&config).await.expect("store");
    let clock = Clock::system();
    let sessions: Vec<Session> = (0..200).map(|number| session(&format!("s{number}"), &clock)).collect();
    for kept in &sessions {
        store.create(kept).await.expect("create");
    }
    store.revoke(&sessions[0].id, LIFETIME, EndCause::Logout).await.expect("revoke");
    let mut changes = store.changes();
    let killed = Instant::now();
    cluster.members[0].kill();
    let reads = AtomicU32::new(0);
    wait_for(&mut changes, |change| {
        reads.fetch_add(1, Ordering::Relaxed);
        matches!(change, Change::PrimaryChanged)
    })
    .await;
    // Three primaries, each read four times a second while nothing changes.
    let expected = 20 + 20 * u32::try_from(killed.elapsed().as_secs()).expect("some seconds");
    assert!(reads.load(Ordering::Relaxed) < expected, "the feed does not spin: {reads:?} in {:?}", killed.elapsed());
    assert_eq!(found(&store, &sessions[0].id).await, None);
    for kept in &sessions[1..] {
        assert_eq!(found(&store, &kept.id).await.as_ref(), Some(kept), "a confirmed session survives");
    }
    // The server that took over has no replica any more.
    let store = open(&StoreConfig { confirm: StoreConfirm::None, ..config }).await.expect("store");
    let mut changes = store.changes();
    for kept in &sessions[1..] {
        store.revoke(&kept.id, LIFETIME, EndCause::Logout).await.expect("revoke");
        let ended = next_change(&mut changes).await;
        assert!(matches!(&ended, Change::SessionEnded { id, .. } if *id == kept.id), "{ended:?}");
    }
}

#[tokio::test]
async fn cluster_is_followed_over_tls() {
    let cluster = RedisCluster::start_encrypted();
    let config = StoreConfig { ca_file: cluster.ca_file(), ..config(&cluster.url()) };
    let store = open(&config).await.expect("store");
    let clock = Clock::system();
    let sessions: Vec<Session> = (0..100).map(|number| session(&format!("s{number}"), &clock)).collect();
    for kept in &sessions {
        store.create(kept).await.expect("create");
    }
    cluster.hand_over(0);
    let mut changes = store.changes();
    for kept in &sessions {
        assert_eq!(found(&store, &kept.id).await.as_ref(), Some(kept));
        let started = Instant::now();
        while let Err(error) = store.revoke(&kept.id, LIFETIME, EndCause::Logout).await {
            assert!(started.elapsed() < Duration::from_secs(20), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        wait_for(&mut changes, |change| matches!(change, Change::SessionEnded { id, .. } if *id == kept.id)).await;
    }
    let unknown_authority = StoreConfig { ca_file: Default::default(), ..config };
    assert!(open(&unknown_authority).await.is_err(), "the authority is checked");
}

#[tokio::test]
async fn slots_that_move_are_followed_and_hide_no_session() {
    let cluster = RedisCluster::start();
    let store = open(&config(&cluster.url())).await.expect("store");
    let clock = Clock::system();
    let mut sessions: Vec<Session> = (0..200).map(|number| session(&format!("s{number}"), &clock)).collect();
    for kept in &sessions {
        store.create(kept).await.expect("create");
    }
    let mut changes = store.changes();
    // A slot that is between two members, all of its keys at the other.
    let feed = |kept: &Session| store.servers().keys().key(Partition::of(kept.id.as_str()), "f");
    let of_third = sessions.iter().map(feed).find(|feed| cluster.has_slot_of(2, feed)).expect("many sessions");
    cluster.begin_move(2, 1, &of_third);
    let mut read_at = Vec::new();
    while read_at.last().is_none_or(|last| *last - read_at[0] < Duration::from_secs(1)) {
        let event = tokio::time::timeout(Duration::from_secs(10), changes.recv()).await.expect("the feed is read on");
        read_at.push(event.expect("a change").at);
    }
    cluster.end_move(2, 1, &of_third);
    // A third of all slots, and of the partitions with them.
    let mut moving = cluster.reshard(0, 1, 5461);
    let started = Instant::now();
    while moving.try_wait().expect("redis-cli").is_none() {
        for kept in &sessions {
            // While its own slot moves, a session may be unavailable; it is never gone.
            if let Ok(seen) = store.find(&kept.id).await {
                assert_eq!(seen.as_ref(), Some(kept));
            }
        }
        assert!(started.elapsed() < Duration::from_secs(120), "the slots did not move");
    }
    for kept in &mut sessions {
        assert_eq!(found(&store, &kept.id).await.as_ref(), Some(&*kept));
        let next = Session { version: kept.version.next(), ..kept.clone() };
        store.replace(&next, kept.version).await.expect("replace");
        wait_for(&mut changes, |change| matches!(change, Change::SessionChanged(one) if **one == next)).await;
        *kept = next;
    }
}
