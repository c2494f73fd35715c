//! Sessions: what one gateway does to a session, the others follow.

use std::time::{Duration, Instant};

use futures::StreamExt;

use crate::fleet::Fleet;
use crate::servers::redis;
use crate::support::*;

#[tokio::test]
async fn sign_in_on_one_gateway_is_valid_on_the_other() {
    let fleet = Fleet::start().await;
    let alice = fleet.gateways[0].sign_in("a2001").await;
    let there = fleet.at(1, &alice);
    let me = there.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(me["employee_id"], "a2001");
    there.get("/api/agent-desk/x").await.expect_status(200);
}

#[tokio::test]
async fn logout_on_one_gateway_ends_tokens_and_sockets_of_the_other_within_100_ms() {
    let fleet = Fleet::start().await;
    let mut times = Vec::new();
    for _ in 0..20 {
        let alice = fleet.gateways[0].sign_in("a2001").await;
        let there = fleet.at(1, &alice);
        let mut socket = there.websocket("/ws/agent").await;
        socket.echo("hello").await;
        alice.post("/api/auth/logout").await.expect_code(0);
        let answered = Instant::now();
        assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
        times.push(answered.elapsed());
        there.get("/api/auth/me").await.expect_invalid_token();
    }
    assert_within_revocation_bound(times);
}

#[tokio::test]
async fn logout_and_a_lost_role_cut_the_event_streams_of_the_other_gateway() {
    const EVENTS: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nevent 1\n\r\n";
    let fleet = Fleet::start().await;
    let there = &fleet.gateways[1];
    for (cause, label) in [("logout", "revoked"), ("a lost role", "forbidden")] {
        let alice = fleet.gateways[0].sign_in("a2001").await;
        let mut connections = UpstreamConnections::intercept(&there.upstream);
        let mut client = BufferedStream::from_connection(there.connect().await);
        let authorization = format!("Authorization: Bearer {}\r\n", alice.token());
        client.send(&raw_request(there, "GET /api/agent-desk/x", &authorization, b"")).await;
        let mut upstream = connections.next().await.stream;
        upstream.send(EVENTS.as_bytes()).await;
        client.read_until(b"event 1\n\r\n").await;
        eventually("an open exchange", || async {
            (there.metric("deskgate_exchanges_open", &[]).await == 1.0).then_some(())
        })
        .await;

        match cause {
            "logout" => drop(alice.post("/api/auth/logout").await.expect_code(0)),
            _ => drop(fleet.gateways[0].command(&["role", "take", "a2001", "agent"]).await.expect_success()),
        }
        client.read_to_end_within(Duration::from_secs(1)).await;
        upstream.read_to_end_within(Duration::from_secs(1)).await;
        let cut = there.metric("deskgate_exchanges_cut_total", &[&format!("cause=\"{label}\"")]).await;
        assert_eq!(cut, 1.0, "{cause}");
    }
}

#[tokio::test]
async fn logout_ends_the_session_everywhere_on_sentinel_and_cluster() {
    for store in [redis::sentinel(), redis::cluster()] {
        let fleet = Fleet::on(&store, 2, "").await;
        let alice = fleet.gateways[0].sign_in("a2001").await;
        let there = fleet.at(1, &alice);
        let mut socket = there.websocket("/ws/agent").await;
        socket.echo("hello").await;
        there.post("/api/auth/logout").await.expect_code(0);
        assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401), "{store}");
        eventually("the other gateway refuses the token", || async {
            (alice.get("/api/auth/me").await.status == 401).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn switched_role_is_seen_on_the_other_gateway() {
    let fleet = Fleet::start().await;
    let alice = fleet.gateways[0].sign_in("a2001").await;
    let there = fleet.at(1, &alice);
    there.get("/api/agent-desk/x").await.expect_status(200);
    let mut socket = there.websocket("/ws/agent").await;
    socket.echo("hello").await;
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4403));
    there.get("/api/agent-desk/x").await.expect_code(1003);
}

/// How many handshakes race a logout on the other gateway.
const RACES: usize = 10_000;

#[tokio::test]
async fn handshake_that_races_a_logout_on_the_other_gateway_loses() {
    let fleet = &Fleet::start().await;
    let races = futures::stream::iter(0..RACES).map(|number| async move {
        let alice = fleet.gateways[number % 2].sign_in("a2001").await;
        let there = fleet.at((number + 1) % 2, &alice);
        let handshake = there.handshake("/ws/agent").open();
        let (opened, logged_out) = tokio::join!(handshake, alice.post("/api/auth/logout"));
        logged_out.expect_code(0);
        if let Ok(mut socket) = opened {
            let code = socket.close_code_within(Duration::from_secs(5)).await;
            assert_eq!(code, Some(4401), "race {number}: the socket outlived its session");
        }
    });
    races.buffer_unordered(8).collect::<Vec<()>>().await;
}
