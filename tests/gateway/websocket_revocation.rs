//! Open WebSockets: logout, expiry and lost roles close them.

use std::time::{Duration, Instant};

use crate::support::*;

/// A second more than `websocket.close_grace`, for slow machines.
const CLOSE_DEADLINE: Duration = Duration::from_millis(2500);

#[tokio::test]
async fn logout_closes_an_idle_websocket_with_4401() {
    let desk = Gateway::start().await;
    let mut times = Vec::new();
    for _ in 0..10 {
        let xiaoming = desk.sign_in("u1001").await;
        let mut socket = xiaoming.websocket("/ws/employee").await;
        xiaoming.post("/api/auth/logout").await.expect_code(0);
        let answered = Instant::now();
        assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
        times.push(answered.elapsed());
        assert_eq!(
            socket.ends_within(CLOSE_DEADLINE).await,
            Some(SocketEnd::Disconnected),
            "the connection ends after the close frame"
        );
    }
    assert_within_revocation_bound(times);
    eventually("ten closed WebSockets at the upstream", || async {
        let over = |event: &&SocketEvent| !matches!(event, SocketEvent::Message(_));
        (desk.upstream.events().iter().filter(over).count() == 10).then_some(())
    })
    .await;
    eventually("ten closed sockets in the metrics", || async {
        let open = desk.metric("deskgate_websockets_open", &[]).await;
        let closed = desk.metric("deskgate_websockets_closed_total", &[]).await;
        ((open, closed) == (0.0, 10.0)).then_some(())
    })
    .await;
}

/// One thread has another scheduler than several.
#[tokio::test]
async fn logout_closes_websockets_while_requests_are_answered_on_one_thread_and_on_two() {
    for threads in [1, 2] {
        let desk = Gateway::with(&format!("[server]\nthreads = {threads}\n")).await;
        let bystander = desk.sign_in("u1001").await;
        let mut times = Vec::new();
        for _ in 0..10 {
            let xiaoming = desk.sign_in("u1001").await;
            let mut socket = xiaoming.websocket("/ws/employee").await;
            socket.echo("hello").await;
            let requests = (0..20).map(|_| bystander.get("/api/desk/x"));
            let (logged_out, responses) =
                tokio::join!(xiaoming.post("/api/auth/logout"), futures::future::join_all(requests));
            logged_out.expect_code(0);
            let answered = Instant::now();
            assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401), "{threads}");
            times.push(answered.elapsed());
            for response in responses {
                response.expect_status(200);
            }
            xiaoming.get("/api/desk/x").await.expect_invalid_token();
        }
        assert_within_revocation_bound(times);
    }
}

#[tokio::test]
async fn logout_closes_twenty_websockets_with_4401() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let other = desk.sign_in("u1001").await;
    let mut sockets = Vec::new();
    for _ in 0..20 {
        let mut socket = xiaoming.websocket("/ws/employee").await;
        socket.echo("hello").await;
        sockets.push(socket);
    }
    assert_eq!(desk.metric("deskgate_websockets_open", &["rule=\"employee socket\""]).await, 20.0);
    let mut bystander = other.websocket("/ws/employee").await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    let answered = Instant::now();
    let endings = sockets.iter_mut().map(|socket| async move {
        assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
        answered.elapsed()
    });
    let times: Vec<Duration> = futures::future::join_all(endings).await;
    assert_within_revocation_bound(times);
    bystander.echo("another session stays open").await;
}

#[tokio::test]
async fn every_client_gets_its_close_frame_before_the_first_upstream_does() {
    const SOCKETS: usize = 300;
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut clients, mut upstreams) = (Vec::new(), Vec::new());
    for _ in 0..SOCKETS {
        let (client, upstream) =
            open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
        clients.push(client);
        upstreams.push(upstream);
    }
    let upstream_frames = upstreams.iter_mut().map(|upstream| Box::pin(upstream.read_frame()));
    let first_upstream_frame = futures::future::select_all(upstream_frames);
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    within(TEST_TIMEOUT, "the first upstream's close frame", first_upstream_frame).await;
    // What has not been sent by now stays unsent.
    desk.signal("STOP");
    let told = clients.iter_mut().map(|client| async {
        let frame = tokio::time::timeout(Duration::from_millis(500), client.read_frame()).await;
        frame.ok().flatten().and_then(|frame| frame.close_code())
    });
    let told: Vec<Option<u16>> = futures::future::join_all(told).await;
    desk.signal("CONT");
    assert_eq!(told.iter().filter(|code| **code == Some(4401)).count(), SOCKETS);
    eventually("no open sockets", || async {
        (desk.metric("deskgate_websockets_open", &[]).await == 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn logout_closes_a_busy_websocket_between_two_frames() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut client, mut upstream) =
        open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    let piece = Frame::new(BINARY, &byte_pattern(10_000)).bytes();
    let flood = tokio::spawn(async move { while upstream.try_send(&piece).await.is_ok() {} });
    let mut read = 0;
    while read < 50 {
        assert_eq!(client.read_frame().await.expect("a frame").payload.len(), 10_000);
        read += 1;
    }
    let logout = xiaoming.post("/api/auth/logout");
    // Every frame is complete, and the last one is the close frame.
    let reading = async {
        loop {
            let frame = client.read_frame().await.expect("a close frame before the end");
            if frame.opcode == CLOSE {
                return frame.close_code();
            }
            assert_eq!(frame.payload.len(), 10_000);
        }
    };
    let (response, code) = tokio::join!(logout, within(TEST_TIMEOUT, "the close frame", reading));
    response.expect_code(0);
    assert_eq!(code, Some(4401));
    within(TEST_TIMEOUT, "the end of the flood", flood).await.expect("a closed stream");
}

#[tokio::test]
async fn logout_disconnects_in_the_middle_of_an_unfinished_frame() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut client, mut upstream) =
        open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    let whole = Frame::new(BINARY, &byte_pattern(1 << 20)).bytes();
    let half = &whole[..1 << 19];
    upstream.send(half).await;
    assert!(client.read_exactly(half.len()).await == half);
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    // A close frame here would be read as payload of the unfinished frame.
    assert_eq!(client.read_to_end_within(CLOSE_DEADLINE).await, b"", "only the end of the stream");
    upstream.read_to_end_within(CLOSE_DEADLINE).await;
}

#[tokio::test]
async fn logout_sends_4401_after_the_current_frame() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut client, mut upstream) =
        open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    let whole = Frame::new(BINARY, &byte_pattern(1 << 18)).bytes();
    let (half, rest) = whole.split_at(1 << 17);
    upstream.send(half).await;
    assert!(client.read_exactly(half.len()).await == half);
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    upstream.send(rest).await;
    assert!(client.read_exactly(rest.len()).await == rest, "the rest of the frame");
    assert_eq!(client.read_frame().await.and_then(|frame| frame.close_code()), Some(4401));
}

#[tokio::test]
async fn logout_disconnects_a_client_that_does_not_read() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (_client, mut upstream) =
        open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    let flood = Frame::new(BINARY, &byte_pattern(1 << 20)).bytes();
    upstream.send_until_blocked(&flood, 64 << 20).await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    upstream.read_to_end_within(CLOSE_DEADLINE).await;
    eventually("no open sockets", || async {
        (desk.metric("deskgate_websockets_open", &[]).await == 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn nothing_is_relayed_after_the_close_frame() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut client, mut upstream) =
        open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    assert_eq!(client.read_frame().await.and_then(|frame| frame.close_code()), Some(4401));
    client.try_send(&Frame::new(TEXT, b"too late").masked().bytes()).await.ok();
    upstream.try_send(&Frame::new(TEXT, b"too late").bytes()).await.ok();
    assert_eq!(client.read_to_end_within(CLOSE_DEADLINE).await, b"", "to the client");
    let received = upstream.read_to_end_within(CLOSE_DEADLINE).await;
    assert!(!received.windows(8).any(|window| window == b"too late"), "to the upstream");
    if let Some((frame, _)) = Frame::parse(&received) {
        assert_eq!(frame.opcode, CLOSE, "{frame:?}");
        assert!(frame.mask.is_some(), "frames to the upstream are masked");
        assert!(frame.last);
    }
}

#[tokio::test]
async fn token_expiry_closes_websockets_with_4401() {
    let desk = Gateway::with("[token]\nlifetime = \"2s\"\nleeway = \"0s\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    let began = Instant::now();
    let mut idle = xiaoming.websocket("/ws/employee").await;
    let mut busy = xiaoming.websocket("/ws/employee").await;
    busy.echo("hello").await;
    let mut public = desk.anonymous().websocket("/ws/public").await;
    assert_eq!(idle.close_code_within(Duration::from_secs(5)).await, Some(4401));
    assert!(began.elapsed() > Duration::from_millis(800), "after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(4), "after {:?}", began.elapsed());
    assert_eq!(busy.close_code_within(Duration::from_secs(1)).await, Some(4401));
    xiaoming.handshake("/ws/employee").expect_refused().await.expect_invalid_token();
    public.echo("no token").await;
}

#[tokio::test]
async fn revoked_role_closes_websockets_that_need_it_with_4403() {
    let desk = Gateway::start().await;
    let (alice, zhou_min) = (desk.sign_in("a2001").await, desk.sign_in("m5001").await);
    zhou_min.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(0);
    let mut needs_it = alice.websocket("/ws/agent").await;
    let mut needs_none = alice.websocket("/ws/employee").await;
    let mut other_employee = zhou_min.websocket("/ws/agent").await;
    for socket in [&mut needs_it, &mut needs_none, &mut other_employee] {
        socket.echo("hello").await;
    }
    let output = desk.command(&["role", "take", "a2001", "agent"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(needs_it.close_code_within(Duration::from_secs(1)).await, Some(4403));
    needs_none.echo("this one needs no role").await;
    other_employee.echo("another employee's WebSocket").await;
    alice.handshake("/ws/agent").expect_refused().await.expect_code(1003);
    alice.post("/api/auth/logout").await.expect_code(0);
    assert_eq!(
        needs_none.close_code_within(Duration::from_secs(1)).await,
        Some(4401),
        "the WebSocket is still registered"
    );
}

#[tokio::test]
async fn logout_closes_websockets_of_every_token_source() {
    let desk = Gateway::start().await;
    for place in ["header", "subprotocol", "query"] {
        let xiaoming = desk.sign_in("u1001").await;
        let handshake = match place {
            "header" => desk
                .anonymous()
                .handshake("/ws/employee")
                .header("Authorization", &format!("bearer {}", xiaoming.token())),
            "subprotocol" => xiaoming.handshake("/ws/employee"),
            _ => desk.anonymous().handshake(&format!("/ws/employee?token={}", xiaoming.token())),
        };
        let mut socket = handshake.open().await.unwrap_or_else(|response| panic!("{place}: {}", response.describe()));
        xiaoming.post("/api/auth/logout").await.expect_code(0);
        assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401), "{place}");
    }
}

#[tokio::test]
async fn handshake_racing_a_logout_is_closed_with_4401() {
    let desk = Gateway::start().await;
    for round in 0..200 {
        let xiaoming = desk.sign_in("u1001").await;
        // Opens WebSockets until one is refused, so that some handshakes overlap the logout.
        let open_until_refused = || async {
            let mut sockets = Vec::new();
            loop {
                match xiaoming.handshake("/ws/employee").open().await {
                    Ok(socket) => sockets.push(socket),
                    Err(response) => {
                        response.expect_invalid_token();
                        return sockets;
                    }
                }
                assert!(sockets.len() < 1000, "round {round}: the logout has no effect");
            }
        };
        let (response, one, two, three) = tokio::join!(
            xiaoming.post("/api/auth/logout"),
            open_until_refused(),
            open_until_refused(),
            open_until_refused()
        );
        response.expect_code(0);
        for mut socket in one.into_iter().chain(two).chain(three) {
            let ending = socket.ends_within(Duration::from_secs(3)).await;
            assert_eq!(ending, Some(SocketEnd::Code(4401)), "round {round}");
        }
    }
    eventually("no open sockets", || async {
        (desk.metric("deskgate_websockets_open", &[]).await == 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn logout_during_a_pending_handshake_opens_no_websocket() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&xiaoming.handshake("/ws/employee").bytes()).await;
    let mut upstream_connection = upstream_connections.next().await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    let accept = async {
        // The gateway may have closed the connection already, which is also correct.
        let key = upstream_connection.request.header("sec-websocket-key").expect("a key").to_owned();
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
        let secret = Frame::new(TEXT, b"secret").bytes();
        let mut bytes = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        )
        .into_bytes();
        bytes.extend(secret);
        upstream_connection.stream.try_send(&bytes).await.ok();
        upstream_connection.stream.read_to_end_within(TEST_TIMEOUT).await;
    };
    let client = async {
        let response = connection.response().await;
        match response {
            Some(response) if response.status == 101 => {
                let mut client = BufferedStream::from_connection(connection);
                let frame = client.read_frame().await.expect("a close frame");
                assert_eq!(frame.close_code(), Some(4401), "{frame:?}");
                assert_eq!(client.read_to_end_within(TEST_TIMEOUT).await, b"");
            }
            Some(response) => drop(response.expect_invalid_token()),
            None => {}
        }
    };
    tokio::join!(accept, client);
}
