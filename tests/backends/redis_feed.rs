//! The change feed of a Redis store: nothing is missed, and nothing is believed that a server cannot know.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use deskgate::config::StoreConfig;
use deskgate::domain::clock::Clock;
use deskgate::domain::session::{EndCause, SessionId};
use deskgate::store::{Change, SessionStore, Store};

use crate::redis_servers::config;
use crate::redis_store::{found, open, wait_for};
use crate::servers::redis::groups::LoneSentinel;
use crate::servers::redis::{self, RedisServer};
use crate::servers::tcp_proxy::TcpProxy;
use crate::store::{LIFETIME, next_change, session};

#[tokio::test]
async fn server_that_does_not_say_who_it_is_may_be_another_after_each_reconnect() {
    let permissions = redis::PERMISSIONS.replace("+info ", "");
    let server = RedisServer::start(&[&format!("user {} on >secret {permissions}", redis::USER.0)]);
    let proxy = TcpProxy::start(server.port).await;
    let config = config(&format!("redis://{}:secret@127.0.0.1:{}", redis::USER.0, proxy.port));
    let store = open(&config).await.expect("store");
    let mut changes = store.changes();
    wait_for(&mut changes, |change| matches!(change, Change::CaughtUp)).await;
    for _ in 0..2 {
        proxy.cut();
        wait_for(&mut changes, |change| matches!(change, Change::PrimaryChanged)).await;
    }
}

#[tokio::test]
async fn receiver_that_is_slow_gets_every_change() {
    const SESSIONS: usize = 20_000;
    let config = config(&redis::standalone());
    let (one, other) = (open(&config).await.expect("store"), open(&config).await.expect("store"));
    let mut changes = other.changes();
    let ids: Vec<SessionId> = (0..SESSIONS).map(|number| SessionId::new(format!("s{number}"))).collect();
    one.revoke_all(&ids, LIFETIME, EndCause::Operator).await.expect("revoke");
    let mut left: HashSet<SessionId> = ids.into_iter().collect();
    while !left.is_empty() {
        let Change::SessionEnded { id, .. } = next_change(&mut changes).await else { panic!("a change was missed") };
        left.remove(&id);
    }
}

#[tokio::test]
async fn only_what_most_sentinels_say_counts() {
    let (first, second) = (RedisServer::start(&[]), RedisServer::start(&[]));
    let sentinels = [&second, &first, &first].map(LoneSentinel::start);
    let config = config(&redis::sentinel_url(sentinels.iter().map(|sentinel| sentinel.port)));
    let config = StoreConfig { outage_grace: Duration::from_secs(2).into(), ..config };
    let store = open(&config).await.expect("store");
    let clock = Clock::system();
    store.create(&session("first", &clock)).await.expect("create");
    let has_keys = |server: &RedisServer| server.ask("DBSIZE\r\n").expect("an answer") != ":0\r\n";
    assert!(has_keys(&first) && !has_keys(&second), "the minority was believed");
    let mut changes = store.changes();
    sentinels[1].name(&second);
    wait_for(&mut changes, |change| matches!(change, Change::PrimaryChanged)).await;
    assert_eq!(found(&store, &SessionId::new("first")).await, None, "the store follows the majority");
    store.create(&session("second", &clock)).await.expect("create");
    assert!(has_keys(&second));
}

/// The gateway is cut off from most Sentinels, together with a primary that they may have replaced.
#[tokio::test]
async fn primary_that_most_sentinels_do_not_confirm_is_given_up_after_the_grace() {
    let server = RedisServer::start(&[]);
    let mut sentinels = [&server; 3].map(LoneSentinel::start);
    let config = config(&redis::sentinel_url(sentinels.iter().map(|sentinel| sentinel.port)));
    let grace = Duration::from_secs(2);
    let store = open(&StoreConfig { outage_grace: grace.into(), ..config }).await.expect("store");
    let kept = session("s1", &Clock::system());
    store.create(&kept).await.expect("create");
    let mut changes = store.changes();
    sentinels[0].kill();
    // One of three is none too few: the feed is read on, whatever the first one does.
    let started = Instant::now();
    while started.elapsed() < grace + Duration::from_secs(1) {
        let change = changes.recv().await.expect("a change").change;
        assert!(matches!(change, Change::CaughtUp), "{change:?}");
    }
    let stopped = Instant::now();
    sentinels[1].signal("STOP");
    wait_for(&mut changes, |change| matches!(change, Change::Unconfirmed)).await;
    // It was confirmed a moment before.
    let lasted = stopped.elapsed();
    assert!((grace / 2..=grace + Duration::from_millis(500)).contains(&lasted), "{lasted:?}");
    assert!(store.find(&kept.id).await.is_err(), "no new connection leads to it");
    sentinels[1].signal("CONT");
    wait_for(&mut changes, |change| matches!(change, Change::CaughtUp)).await;
    assert_eq!(found(&store, &kept.id).await, Some(kept));
}
