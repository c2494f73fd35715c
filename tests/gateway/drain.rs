//! SIGTERM: the gateway stops accepting, finishes open requests, closes WebSockets with 1001 and exits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;

fn get(desk: &Gateway, target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).into_bytes()
}

/// The upstream's response to an open request.
const DONE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";

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
    desk.until_not_accepting().await;
    streaming_upstream.stream.send(b"4\r\nlast\r\n0\r\n\r\n").await;
    streaming.read_until(b"last\r\n0\r\n\r\n").await;
    silent_upstream.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
    let response = waiting.response().await.expect("a response").expect_status(200);
    assert_eq!(response.text(), "done");
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn drain_ends_keep_alive_with_the_response() {
    let mut desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let upload = raw_request(&desk, "POST /public/x", "Content-Length: 4\r\n", b"body");
    let (mut download_client, mut upload_client) = (desk.connect().await, desk.connect().await);
    download_client.send(&get(&desk, "/public/x")).await;
    let mut download = upstream_connections.next().await;
    upload_client.send(&upload).await;
    let mut upload = upstream_connections.next().await;
    desk.signal("TERM");
    desk.until_not_accepting().await;
    for (client, upstream) in [(&mut download_client, &mut download), (&mut upload_client, &mut upload)] {
        upstream.stream.send(DONE).await;
        let response = client.response().await.expect("a response").expect_status(200);
        assert_eq!(response.header("connection"), Some("close"), "{}", response.describe());
        assert!(client.closes_within(TEST_TIMEOUT).await, "the connection is closed after the response");
    }
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn request_whose_head_has_begun_is_answered_during_a_drain() {
    let mut desk = Gateway::start().await;
    let (mut own, mut proxied) = (desk.connect().await, desk.connect().await);
    let (ready, public) = (get(&desk, "/api/ready"), get(&desk, "/public/x"));
    for (client, request) in [(&mut own, &ready), (&mut proxied, &public)] {
        // A complete exchange first, so that the connection is one that is kept alive.
        client.send(request).await;
        client.response().await.expect("a response").expect_status(200);
        client.send(&request[..10]).await;
    }
    // Holds the drain, so that its length does not depend on the two unfinished heads.
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut holding = desk.connect().await;
    holding.send(&get(&desk, "/public/held")).await;
    let mut held = upstream_connections.next().await;
    desk.signal("TERM");
    desk.until_not_accepting().await;
    own.send(&ready[10..]).await;
    let response = own.response().await.expect("a response");
    assert_eq!((response.code(), response.header("connection")), (1503, Some("close")), "{}", response.describe());
    proxied.send(&public[10..]).await;
    let mut upstream_connection = upstream_connections.next().await;
    for (client, upstream) in [(&mut proxied, &mut upstream_connection), (&mut holding, &mut held)] {
        upstream.stream.send(DONE).await;
        assert_eq!(client.response().await.expect("a response").text(), "done");
    }
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn gateway_accepts_but_is_not_ready_during_the_drain_delay() {
    let mut desk = Gateway::with("[server]\ndrain_delay = \"2s\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    let began = Instant::now();
    desk.signal("TERM");
    let response = eventually("a 503 of /api/ready", || async {
        let response = desk.anonymous().get("/api/ready").await;
        (response.status == 503).then_some(response)
    });
    assert_eq!(response.await.code(), 1503);
    xiaoming.get("/api/desk/x").await.expect_status(200);
    socket.echo("still open").await;
    assert_eq!(socket.close_code_within(TEST_TIMEOUT).await, Some(1001));
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

/// Sends one request after the other, on new connections where the gateway closes one, until it accepts no more.
/// Returns how many were answered. A connection may close before the first byte of a response, never later.
async fn send_until_refused(server: ServerAddress, request: Arc<[u8]>, answered: Arc<AtomicUsize>) {
    while let Ok(mut connection) = Connection::try_open(server.clone()).await {
        loop {
            connection.send(&request).await;
            let response = connection.try_response(BodyFraming::FromHead).await;
            let Some(response) = response.expect("a complete response") else { break };
            assert_eq!(response.status, 200, "{}", response.describe());
            answered.fetch_add(1, Ordering::Relaxed);
            if response.header("connection") == Some("close") {
                assert!(connection.closes_within(TEST_TIMEOUT).await, "a connection that was said to close");
                break;
            }
        }
    }
}

#[tokio::test]
async fn busy_clients_lose_no_request_to_a_drain() {
    let mut desk = Gateway::start().await;
    let answered = Arc::<AtomicUsize>::default();
    let requests: [Arc<[u8]>; 2] =
        [get(&desk, "/public/x").into(), raw_request(&desk, "POST /public/x", "Content-Length: 4\r\n", b"body").into()];
    let clients: Vec<_> = (0..32)
        .map(|number| send_until_refused(desk.server_address(), requests[number % 2].clone(), answered.clone()))
        .map(tokio::spawn)
        .collect();
    eventually("200 responses", || async { (answered.load(Ordering::Relaxed) >= 200).then_some(()) }).await;
    desk.signal("TERM");
    for client in clients {
        within(TEST_TIMEOUT, "the end of a client", client).await.expect("a client that lost nothing");
    }
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn parked_polls_are_answered_when_the_drain_begins() {
    let mut desk = Gateway::start().await;
    let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data()["ticket"].clone();
    let target = format!("/api/auth/scan/status?wait=25&ticket={}", ticket.as_str().expect("a ticket"));
    let mut polls = Vec::new();
    for _ in 0..3 {
        let mut poll = desk.connect().await;
        poll.send(&get(&desk, &target)).await;
        polls.push(poll);
    }
    desk.wait_for_requests_in_flight(3.0).await;
    let began = Instant::now();
    desk.signal("TERM");
    for poll in &mut polls {
        let response = poll.response().await.expect("a response").expect_code(0);
        assert_eq!(response.header("connection"), Some("close"), "{}", response.describe());
    }
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(15), "the polls wait for 25 s: {:?}", began.elapsed());
}

#[tokio::test]
async fn connections_without_a_request_do_not_delay_the_exit() {
    let mut desk = Gateway::setup().tls().start().await;
    // One never begins the TLS handshake, one sends no HTTP/2 preface, one answers no GOAWAY.
    let _silent = tokio::net::TcpStream::connect(desk.address()).await.expect("a connection");
    let client_tls = desk.server_address().client_tls.expect("TLS").with_alpn(&[b"h2"]);
    let server = ServerAddress { client_tls: Some(client_tls), ..desk.server_address() };
    let _no_preface = Stream::connect(&server).await.expect("a connection");
    let mut deaf = BufferedStream::new(Stream::connect(&server).await.expect("a connection"), Vec::new());
    deaf.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    deaf.read_exactly(9).await;
    let began = Instant::now();
    assert_eq!(desk.terminate().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(8), "the handshake may take 10 s: {:?}", began.elapsed());
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
async fn drain_spreads_the_close_frames_of_websockets() {
    let mut desk = Gateway::start().await;
    let mut sockets = Vec::new();
    for _ in 0..50 {
        sockets.push(desk.anonymous().websocket("/ws/public").await);
    }
    desk.signal("TERM");
    let closed = sockets.into_iter().map(|mut socket| {
        tokio::spawn(async move {
            let code = socket.close_code_within(TEST_TIMEOUT).await;
            (code, Instant::now())
        })
    });
    let mut times = Vec::new();
    for socket in closed.collect::<Vec<_>>() {
        let (code, at) = socket.await.expect("a socket");
        assert_eq!(code, Some(1001));
        times.push(at);
    }
    let first = times.iter().min().expect("a time");
    let apart = times.iter().max().expect("a time").duration_since(*first);
    assert!(apart >= Duration::from_millis(500), "50 clients are told to reconnect within {apart:?}");
    let soon = times.iter().filter(|at| at.duration_since(*first) < apart / 4).count();
    assert!(soon < 35, "{soon} of 50 in the first quarter of {apart:?}");
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
    assert!(connection.response().await.is_none());
    desk.wait_for_log(&["drain timeout", r#""requests":1"#]).await;
    desk.wait_for_log(&["/public/never", "cut: it was still open at the end of the drain"]).await;
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
    desk.until_not_accepting().await;
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
