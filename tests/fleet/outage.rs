//! Redis that is killed, hangs or comes back empty: nobody is let in who should not be, and nothing needs a restart.

use std::time::{Duration, Instant};

use crate::fleet::Fleet;
use crate::servers::redis::RedisServer;
use crate::servers::redis::groups::RedisCluster;
use crate::support::*;

const PERSISTENT: [&str; 2] = ["appendonly yes", "appendfsync always"];

#[tokio::test]
async fn known_sessions_go_on_for_the_outage_grace_and_everything_else_is_1503() {
    let mut server = RedisServer::start(&PERSISTENT);
    let fleet = Fleet::on(&server.url(), 2, "[store]\noutage_grace = \"4s\"\n").await;
    let alice = fleet.gateways[0].sign_in("a2001").await;
    let unseen = fleet.at(1, &alice);
    let mut socket = alice.websocket("/ws/agent").await;
    socket.echo("hello").await;
    alice.get("/api/agent-desk/x").await.expect_status(200);
    server.kill();
    let killed = Instant::now();

    alice.get("/api/agent-desk/x").await.expect_status(200);
    socket.echo("still open").await;
    alice.post("/api/auth/logout").await.expect_code(1503);
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(1503);
    let login = json!({ "employee_id": "a2001" });
    fleet.gateways[0].anonymous().post_json("/api/dev/login", &login).await.expect_code(1503);
    let begun = Instant::now();
    unseen.get("/api/auth/me").await.expect_code(1503);
    assert!(begun.elapsed() < Duration::from_secs(1), "a refusal must be quick: {:?}", begun.elapsed());
    eventually("the gateway is not ready", || async { (alice.get("/api/ready").await.status == 503).then_some(()) })
        .await;

    eventually("the grace is over", || async { (alice.get("/api/agent-desk/x").await.status == 503).then_some(()) })
        .await;
    assert!(killed.elapsed() >= Duration::from_secs(3), "the grace was too short: {:?}", killed.elapsed());
    assert_eq!(socket.close_code_within(Duration::from_secs(5)).await, Some(1013));

    server.restart();
    eventually("the session is valid again", || async {
        (alice.get("/api/agent-desk/x").await.status == 200).then_some(())
    })
    .await;
    // Refused while the gateway drops the connections to the server from before. It may have been done all the same, and is 401 then.
    eventually("a logout", || async { matches!(alice.post("/api/auth/logout").await.status, 200 | 401).then_some(()) })
        .await;
    eventually("the logout has reached the other gateway", || async {
        (unseen.get("/api/auth/me").await.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn known_sessions_go_on_for_the_outage_grace_also_right_after_the_start() {
    let mut server = RedisServer::start(&[]);
    // A read of the change feed waits for a quarter of it, so that none has ended when the server dies.
    let fleet = Fleet::on(&server.url(), 1, "[store]\nfeed_stale = \"30s\"\noutage_grace = \"60s\"\n").await;
    let alice = fleet.gateways[0].sign_in("a2001").await;
    let mut socket = alice.websocket("/ws/agent").await;
    alice.get("/api/agent-desk/x").await.expect_status(200);
    fleet.gateways[0].wait_for_log(&["all sessions agree with the directory"]).await;
    server.kill();
    alice.post("/api/auth/logout").await.expect_code(1503);
    alice.get("/api/agent-desk/x").await.expect_status(200);
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, None);
    socket.echo("still open").await;
}

#[tokio::test]
async fn redis_that_restarts_empty_lets_nobody_in() {
    let mut server = RedisServer::start(&[]);
    let fleet = Fleet::on(&server.url(), 2, "").await;
    let alice = fleet.gateways[0].sign_in("a2001").await;
    let there = fleet.at(1, &alice);
    there.get("/api/auth/me").await.expect_code(0);
    let mut socket = there.websocket("/ws/agent").await;
    socket.echo("hello").await;
    server.kill();
    server.restart();
    for client in [&alice, &there] {
        eventually("the session is gone", || async { (client.get("/api/auth/me").await.status == 401).then_some(()) })
            .await;
    }
    assert_eq!(socket.close_code_within(Duration::from_secs(5)).await, Some(4401));
    fleet.gateways[1].sign_in("a2001").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn redis_that_restarts_with_its_data_closes_no_websocket() {
    let mut server = RedisServer::start(&PERSISTENT);
    let fleet = Fleet::on(&server.url(), 1, "").await;
    let gateway = &fleet.gateways[0];
    let mut open = Vec::new();
    for _ in 0..20 {
        let alice = gateway.sign_in("a2001").await;
        open.push((alice.websocket("/ws/agent").await, alice));
    }
    server.kill();
    server.restart();
    gateway.wait_for_log(&["another server has become a primary of the store"]).await;
    // It is applied after the sessions of all sockets were read again.
    let (mut socket, alice) = open.pop().expect("a socket");
    eventually("a logout", || async { (alice.post("/api/auth/logout").await.code() == 0).then_some(()) }).await;
    assert_eq!(socket.close_code_within(Duration::from_secs(5)).await, Some(4401));
    for (socket, _) in &mut open {
        socket.echo("still open").await;
    }
}

#[tokio::test]
async fn redis_that_hangs_is_answered_by_1503_within_the_time_limit() {
    let server = RedisServer::start(&[]);
    let fleet = Fleet::on(&server.url(), 2, "[store]\noutage_grace = \"0s\"\ntimeout = \"1s\"\n").await;
    let alice = fleet.gateways[0].sign_in("a2001").await;
    alice.get("/api/agent-desk/x").await.expect_status(200);
    server.signal("STOP");
    eventually("known sessions are refused without a grace", || async {
        (alice.get("/api/agent-desk/x").await.status == 503).then_some(())
    })
    .await;
    let begun = Instant::now();
    alice.get("/api/agent-desk/x").await.expect_code(1503);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    server.signal("CONT");
    eventually("the session is valid again", || async {
        (alice.get("/api/agent-desk/x").await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn dead_primary_of_a_cluster_signs_nobody_out_and_closes_no_socket() {
    let mut cluster = RedisCluster::start();
    // A session that its replica does not have yet would be lost with the primary.
    let fleet = Fleet::on(&cluster.url(), 1, "[store]\nconfirm = \"replica\"\ntimeout = \"2s\"\n").await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let client = fleet.gateways[0].sign_in("a2001").await;
        let mut socket = client.websocket("/ws/agent").await;
        socket.echo("hello").await;
        clients.push((client, socket));
    }
    let killed = Instant::now();
    cluster.members[0].kill();
    // The cluster does not elect another primary before this.
    while killed.elapsed() < Duration::from_millis(1500) {
        for (client, socket) in &mut clients {
            client.get("/api/agent-desk/x").await.expect_status(200);
            socket.echo("still open").await;
        }
    }
    let (first, _) = &clients[0];
    eventually("another primary", || async { (first.get("/api/ready").await.status == 200).then_some(()) }).await;
    for (client, socket) in &mut clients {
        eventually("the session", || async { (client.get("/api/agent-desk/x").await.status == 200).then_some(()) })
            .await;
        socket.echo("still open").await;
    }
}
