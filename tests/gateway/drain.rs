//! SIGTERM: the gateway finishes open requests, closes WebSockets with 1001 and exits.

use std::time::{Duration, Instant};

use crate::support::*;

fn get(desk: &Gateway, target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).into_bytes()
}

/// Waits until `/api/ready` answers 503.
async fn until_not_ready(desk: &Gateway) -> Response {
    eventually("a 503 of /api/ready", || async {
        desk.anonymous().try_send("GET", "/api/ready", &[], b"").await.ok().filter(|response| response.status == 503)
    })
    .await
}

#[tokio::test]
async fn drain_finishes_open_requests() {
    let mut desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut streaming, mut waiting) = (desk.connect().await, desk.connect().await);
    waiting.send(&get(&desk, "/public/waiting")).await;
    let mut silent_upstream = upstream_connections.next().await;
    streaming.send(&get(&desk, "/public/streaming")).await;
    let mut streaming_upstream = upstream_connections.next().await;
    streaming_upstream.stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
    let mut streaming = BufferedStream::from_connection(streaming);
    streaming.read_until(b"first").await;

    desk.signal("TERM");
    until_not_ready(&desk).await;
    streaming_upstream.stream.send(b"4\r\nlast\r\n0\r\n\r\n").await;
    streaming.read_until(b"last\r\n0\r\n\r\n").await;
    silent_upstream.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
    let response = waiting.response().await.expect("a response").expect_status(200);
    assert_eq!(response.text(), "done");
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn ready_is_503_while_draining() {
    let mut desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    desk.anonymous().get("/api/ready").await.expect_code(0);
    let mut connection = desk.connect().await;
    connection.send(&get(&desk, "/public/slow")).await;
    let mut upstream_connection = upstream_connections.next().await;
    desk.signal("TERM");
    assert_eq!(until_not_ready(&desk).await.code(), 1503);
    upstream_connection.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
    assert_eq!(connection.response().await.expect("a response").text(), "done");
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn drain_closes_websockets_with_1001() {
    let mut desk = Gateway::start().await;
    let (xiaoming, alice) = (desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    let mut sockets = vec![xiaoming.websocket("/ws/employee").await, alice.websocket("/ws/agent").await];
    sockets.push(desk.anonymous().websocket("/ws/public").await);
    for socket in &mut sockets {
        socket.echo("hello").await;
    }
    desk.signal("TERM");
    for socket in &mut sockets {
        assert_eq!(socket.close_code_within(Duration::from_secs(5)).await, Some(1001));
    }
    eventually("three closed upstream WebSockets", || async {
        let closed = |event: &&SocketEvent| !matches!(event, SocketEvent::Message(_));
        (desk.upstream.events().iter().filter(closed).count() == 3).then_some(())
    })
    .await;
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn unresponsive_websocket_does_not_delay_the_drain() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    // Neither end of this WebSocket answers a close frame.
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let handshake = xiaoming.handshake("/ws/employee");
    let accept = async {
        let mut upstream_connection = upstream_connections.next().await;
        upstream_connection.accept_websocket(b"").await;
        upstream_connection
    };
    let ((_, mut client), _upstream) = tokio::join!(BufferedStream::open_tunnel(&desk, &handshake), accept);
    let began = Instant::now();
    desk.signal("TERM");
    let frame = client.read_frame().await.expect("a close frame");
    assert_eq!(frame.close_code(), Some(1001), "{frame:?}");
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(15), "the drain took {:?}", began.elapsed());
}

#[tokio::test]
async fn idle_gateway_exits_at_once() {
    let mut desk = Gateway::start().await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    let mut idle = desk.connect().await;
    idle.send(&get(&desk, "/public/x")).await;
    idle.response().await.expect("a response").expect_status(200);
    let began = Instant::now();
    assert_eq!(desk.terminate().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(15), "server.drain is 30 s: {:?}", began.elapsed());
    assert!(idle.closes_within(TEST_TIMEOUT).await, "an idle connection is closed");
}

#[tokio::test]
async fn drain_ends_at_its_time_limit() {
    let mut desk = Gateway::with("[server]\ndrain = \"1s\"").await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    let mut connection = desk.connect().await;
    connection.send(&get(&desk, "/public/never")).await;
    desk.upstream.wait_for_requests(1).await;
    let began = Instant::now();
    assert_eq!(desk.terminate().await.code(), Some(0));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(12), "{took:?}");
}

#[tokio::test]
async fn drain_finishes_uploads_in_progress() {
    let mut desk = Gateway::start().await;
    let mut connection = desk.connect().await;
    let head = format!("POST /public/x HTTP/1.1\r\nHost: {}\r\nContent-Length: 10\r\n\r\nbegin", desk.address());
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    connection.send(head.as_bytes()).await;
    let mut upstream_connection = upstream_connections.next().await;
    assert_eq!(upstream_connection.stream.read_exactly(5).await, b"begin");
    desk.signal("TERM");
    until_not_ready(&desk).await;
    connection.send(b"-rest").await;
    assert_eq!(upstream_connection.stream.read_exactly(5).await, b"-rest");
    upstream_connection.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
    assert_eq!(connection.response().await.expect("a response").text(), "done");
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn acknowledged_writes_survive_a_drain() {
    let mut desk = Gateway::start().await;
    let (live, logged_out) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    logged_out.post("/api/auth/logout").await.expect_code(0);
    assert_eq!(desk.terminate().await.code(), Some(0));
    desk.restart().await;
    live.get("/api/auth/me").await.expect_code(0);
    logged_out.get("/api/auth/me").await.expect_invalid_token();
}
