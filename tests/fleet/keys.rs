//! Signing keys of a fleet: a change on one gateway reaches all, and one gateway updates the sessions for all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deskgate::config::{HumanDuration, StoreConfig, StoreUrl};
use deskgate::domain::clock::Clock;
use deskgate::domain::session::{KeyId, Session, SessionId};
use deskgate::metrics::Metrics;
use deskgate::store::SessionStore;
use deskgate::store::redis::RedisStore;

use crate::fleet::Fleet;
use crate::servers::redis::{self, RedisServer};
use crate::servers::tcp_proxy::{Answers, TcpProxy};
use crate::support::*;

/// How long a change of the keys may take to reach all gateways.
const KEY_CHANGE_BOUND: Duration = Duration::from_secs(1);

const UPDATED: &str = "sessions ended or shortened with their key";

fn key_of(client: &Client) -> String {
    header_of(client.token())["kid"].as_str().expect("a kid").to_owned()
}

/// How often each gateway has ended sessions with their key.
fn updates(fleet: &Fleet) -> Vec<usize> {
    fleet.gateways.iter().map(|gateway| gateway.logs().matches(UPDATED).count()).collect()
}

async fn until_compared(gateway: &Gateway) {
    gateway.wait_for_log(&["all sessions agree with the directory"]).await;
}

#[tokio::test]
async fn removed_key_is_refused_everywhere_within_a_second_and_one_gateway_ends_its_sessions() {
    let fleet = Fleet::on(&redis::standalone(), 3, "").await;
    let mut sessions = Vec::new();
    for number in 0..30 {
        sessions.push(fleet.gateways[number % 3].sign_in("a2001").await);
    }
    let there = fleet.at(2, &sessions[0]);
    let mut socket = there.websocket("/ws/agent").await;
    socket.echo("hello").await;
    fleet.gateways[1].command(&["key", "rotate", "--now"]).await.expect_success();
    assert_eq!(updates(&fleet), [0, 0, 0], "a replaced key stays valid for as long as its sessions");

    let removed = fleet.gateways[1].command(&["key", "remove", &key_of(&there), "--yes", "--json"]).await;
    let answered = Instant::now();
    assert_eq!(socket.close_code_within(KEY_CHANGE_BOUND).await, Some(4401));
    eventually("a refusal on the others", || async {
        (there.get("/api/auth/me").await.status == 401 && sessions[0].get("/api/auth/me").await.status == 401)
            .then_some(())
    })
    .await;
    assert!(answered.elapsed() < KEY_CHANGE_BOUND, "{:?}", answered.elapsed());
    let removed: Value = serde_json::from_str(&removed.expect_success()).expect("JSON");
    assert_eq!(removed["sessions"], 30, "{removed}");

    // Each gateway looks for sessions that are left, at the latest after the next change.
    fleet.gateways[0].command(&["key", "rotate", "--now"]).await.expect_success();
    assert_eq!(updates(&fleet), [0, 1, 0]);
    for other in [0, 2] {
        let revocations = fleet.gateways[other].metric("deskgate_store_seconds_count", &["op=\"revoke\""]).await;
        assert_eq!(revocations, 0.0, "gateway {other} repeats nothing");
    }
}

#[tokio::test]
async fn key_removed_from_a_machine_without_a_gateway_is_refused_everywhere() {
    let fleet = Fleet::start().await;
    let alice = fleet.gateways[0].sign_in("a2001").await;
    let there = fleet.at(1, &alice);
    let mut socket = there.websocket("/ws/agent").await;
    socket.echo("hello").await;
    let elsewhere = fleet.setup_another().write_files().await;
    elsewhere.command(&["key", "rotate", "--now"]).await.expect_success();
    let removed = elsewhere.command(&["key", "remove", &key_of(&alice), "--yes", "--json"]).await.expect_success();
    assert_eq!(socket.close_code_within(KEY_CHANGE_BOUND).await, Some(4401));
    let removed: Value = serde_json::from_str(&removed).expect("JSON");
    assert_eq!(removed["sessions"], 1, "{removed}");
    for client in [&alice, &there] {
        eventually("a refusal", || async { (client.get("/api/auth/me").await.status == 401).then_some(()) }).await;
    }
    assert_eq!(updates(&fleet), [0, 0]);
}

/// The store of a fleet, as another gateway sees it.
async fn open_store(url: &str, prefix: &str) -> RedisStore {
    let config = StoreConfig {
        url: StoreUrl::new(url),
        prefix: prefix.to_owned(),
        timeout: HumanDuration::seconds(5),
        ..StoreConfig::default()
    };
    RedisStore::open(&config, Clock::system(), Arc::new(Metrics::new().expect("metrics"))).await.expect("a store")
}

#[tokio::test]
async fn gateway_that_is_killed_while_it_ends_the_sessions_of_a_key_is_replaced_by_another() {
    const SESSIONS: usize = 640;
    let server = RedisServer::start(&[]);
    let mut fleet = Fleet::on(&server.url(), 1, "").await;
    // Every answer of the store takes its time at the second gateway: it needs seconds for all sessions.
    let proxy = TcpProxy::start(server.port).await;
    let slow = fleet.setup_another().toml(&format!("[store]\nurl = \"redis://127.0.0.1:{}\"\n", proxy.port));
    fleet.gateways.push(slow.start().await);
    for gateway in &fleet.gateways {
        until_compared(gateway).await;
    }
    let alice = fleet.gateways[1].sign_in("a2001").await;
    let (store, clock, old) = (open_store(&server.url(), &fleet.prefix).await, Clock::system(), key_of(&alice));
    for number in 0..SESSIONS {
        let session = Session {
            id: SessionId::new(format!("copy{number}")),
            key_id: Some(KeyId::new(old.as_str())),
            issued_at: clock.now(),
            expires_at: clock.now().plus(Duration::from_secs(600)),
            ..Session::sample()
        };
        store.create(&session).await.expect("a session");
    }
    let left = async || store.newest(2 * SESSIONS).await.expect("sessions").len();
    fleet.gateways[0].command(&["key", "rotate", "--now"]).await.expect_success();
    proxy.set(Answers::Delay(Duration::from_millis(20)));

    let mut command = fleet.gateways[1].spawn_command(&["key", "remove", &old, "--yes"]);
    eventually("the end of some sessions", || async { (left().await < SESSIONS).then_some(()) }).await;
    fleet.gateways[1].sigkill();
    assert!(left().await > 0, "the update was quicker than the test");
    command.wait().expect("the command ends with its gateway");
    assert_eq!(updates(&fleet), [0, 0]);

    eventually("the end of the other sessions", || async { (left().await == 0).then_some(()) }).await;
    fleet.gateways[0].wait_for_log(&[UPDATED]).await;
    fleet.at(0, &alice).get("/api/auth/me").await.expect_invalid_token();
}
