//! Open WebSockets: the relay of frames, slow peers, limits, and the end of either side.

use std::time::Duration;

use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::support::*;

#[tokio::test]
async fn messages_of_every_kind_are_relayed_both_ways() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    for message in [
        Message::text(""),
        Message::text("hello"),
        Message::text("\u{6797}\u{5c0f}\u{96e8} \u{1f600}"),
        Message::binary(vec![]),
        Message::binary(vec![0, 1, 254, 255]),
        Message::binary(byte_pattern(125)),
        Message::binary(byte_pattern(126)),
        Message::binary(byte_pattern(65_535)),
        Message::binary(byte_pattern(65_536)),
        Message::text("a".repeat(100_000)),
    ] {
        socket.send_message(message.clone()).await;
        assert!(socket.next().await == Some(message.clone()), "the echo of {} bytes", message.len());
    }
    // The pong comes from the upstream, with the payload of the ping.
    socket.send_message(Message::Ping(b"are you there"[..].into())).await;
    assert_eq!(socket.next().await, Some(Message::Pong(b"are you there"[..].into())));
    assert!(desk.upstream.events().contains(&SocketEvent::Message(Message::Ping(b"are you there"[..].into()))));
    socket.send_message(Message::Pong(b"unsolicited"[..].into())).await;
    socket.echo("after an unsolicited pong").await;
    assert!(desk.upstream.events().contains(&SocketEvent::Message(Message::Pong(b"unsolicited"[..].into()))));
}

#[tokio::test]
async fn large_messages_are_relayed_both_ways() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    for _ in 0..2 {
        let message = Message::binary(byte_pattern(4 << 20));
        socket.send_message(message.clone()).await;
        assert!(socket.next().await == Some(message), "the echo of 4 MB");
    }
    socket.echo("a small message").await;
}

#[tokio::test]
async fn frames_are_relayed_unchanged() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut client, mut upstream) =
        open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    let frames = [
        Frame::new(TEXT, b"one").unfinished(),
        Frame::new(PING, b"in between"),
        Frame::new(CONTINUATION, b"").unfinished(),
        Frame::new(CONTINUATION, &byte_pattern(70_000)).unfinished(),
        Frame::new(PONG, b""),
        Frame::new(CONTINUATION, b"end"),
        Frame::new(BINARY, &byte_pattern(126)),
        // Reserved bits and opcodes belong to extensions and are relayed.
        Frame { opcode: 0x41, ..Frame::new(TEXT, b"compressed") },
    ];
    let down: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
    let up: Vec<u8> = frames.iter().flat_map(|frame| frame.clone().masked().bytes()).collect();
    client.send(&up).await;
    assert!(upstream.read_exactly(up.len()).await == up, "client to upstream");
    upstream.send(&down).await;
    assert!(client.read_exactly(down.len()).await == down, "upstream to client");
    // Byte by byte: the relay must not wait for complete frames.
    for byte in &up[..200] {
        client.send(&[*byte]).await;
        assert_eq!(upstream.read_exactly(1).await, [*byte]);
    }
    for byte in &down[..200] {
        upstream.send(&[*byte]).await;
        assert_eq!(client.read_exactly(1).await, [*byte]);
    }
}

#[tokio::test]
async fn both_directions_are_relayed_concurrently() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (client, upstream) = open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    let data = byte_pattern(3 << 20);
    let up = Frame::new(BINARY, &data).masked().bytes();
    let down = Frame::new(BINARY, &data).bytes();
    let exchange = |end: BufferedStream, out: Vec<u8>, expected: Vec<u8>| async move {
        let (stream, unread) = end.into_parts();
        let (mut from, mut to) = stream.into_split();
        let write = async { tokio::io::AsyncWriteExt::write_all(&mut to, &out).await.expect("an open stream") };
        let read = async {
            let mut got = unread;
            let had = got.len();
            got.resize(expected.len(), 0);
            tokio::io::AsyncReadExt::read_exact(&mut from, &mut got[had..]).await.expect("all of it");
            assert!(got == expected, "the bytes on the other side");
        };
        tokio::join!(write, read);
    };
    let all = async { tokio::join!(exchange(client, up.clone(), down.clone()), exchange(upstream, down, up)) };
    within(TEST_TIMEOUT, "3 MB both ways at once", all).await;
}

/// A tunnel holds neither buffers nor what its handshake needed. `make bench` measures the same with 5,000 sessions.
#[tokio::test]
async fn idle_websocket_takes_little_memory() {
    const OPENED: usize = 400;
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let open = async |count: usize| {
        let mut sockets = Vec::new();
        for _ in 0..count {
            let mut socket = xiaoming.websocket("/ws/employee").await;
            socket.echo("before it is idle").await;
            sockets.push(socket);
        }
        sockets
    };
    // What the first ones take is in use from then on: code, pages of the heap, the session.
    let first = open(100).await;
    let before = desk.memory_kib("RssAnon");
    let more = open(OPENED).await;
    let bytes = desk.memory_kib("RssAnon").saturating_sub(before) * 1024 / OPENED;
    assert!(bytes < 3 * 1024, "{bytes} bytes for each");
    drop((first, more));
}

#[tokio::test]
async fn client_that_does_not_read_is_backpressured() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut other = xiaoming.websocket("/ws/employee").await;
    other.echo("before").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut client, mut upstream) =
        open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    let before = desk.memory_kib("VmRSS");
    let flood = Frame::new(BINARY, &byte_pattern(1 << 20)).bytes();
    let sent = upstream.send_until_blocked(&flood, 64 << 20).await;
    let grown = desk.memory_kib("VmRSS").saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB for one client that does not read");
    other.echo("another WebSocket").await;
    xiaoming.get("/api/auth/me").await.expect_code(0);
    // No byte is lost.
    let got = client.read_exactly(sent).await;
    assert!(got.iter().zip(flood.iter().cycle()).all(|(got, sent)| got == sent), "the bytes of the flood");
}

#[tokio::test]
async fn upstream_that_does_not_read_is_backpressured() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut other = xiaoming.websocket("/ws/employee").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut client, mut upstream) =
        open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    let before = desk.memory_kib("VmRSS");
    let flood = Frame::new(BINARY, &byte_pattern(1 << 20)).masked().bytes();
    let sent = client.send_until_blocked(&flood, 64 << 20).await;
    let grown = desk.memory_kib("VmRSS").saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB for one upstream that does not read");
    other.echo("another WebSocket").await;
    // The other direction of the same WebSocket is not blocked.
    let reply = Frame::new(TEXT, b"still talking").bytes();
    upstream.send(&reply).await;
    assert_eq!(client.read_exactly(reply.len()).await, reply);
    let got = upstream.read_exactly(sent).await;
    assert!(got.iter().zip(flood.iter().cycle()).all(|(got, sent)| got == sent), "the bytes of the flood");
}

#[tokio::test]
async fn open_websockets_count_as_connections() {
    let desk = Gateway::with("[limits]\nconnections = 3").await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut sockets = Vec::new();
    for _ in 0..3 {
        let mut socket = xiaoming.websocket("/ws/employee").await;
        socket.echo("hello").await;
        sockets.push(socket);
    }
    let mut fourth = BufferedStream::from_connection(desk.connect().await);
    fourth.send(format!("GET /public/x HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).as_bytes()).await;
    assert!(fourth.is_silent_for(Duration::from_millis(500)).await, "a fourth connection is served");
    for socket in &mut sockets {
        socket.echo("still here").await;
    }
    assert!(desk.upstream.requests().iter().all(|seen| seen.target == "/ws/employee"));
    sockets.pop();
    fourth.read_until(b"HTTP/1.1 200 OK\r\n").await;
}

#[tokio::test]
async fn idle_websocket_outlives_request_timeouts() {
    let desk = Gateway::setup()
        .toml("[limits]\nidle = \"1s\"\nhead_deadline = \"500ms\"")
        .toml("[websocket]\nhandshake = \"500ms\"")
        .toml("[upstreams.helpdesk]\nanswer_timeout = \"500ms\"\nidle = \"500ms\"")
        .start()
        .await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    socket.echo("before").await;
    // Waits until two idle connections were closed.
    for _ in 0..2 {
        assert!(desk.connect().await.closes_within(Duration::from_secs(8)).await);
    }
    socket.echo("after").await;
}

#[tokio::test]
async fn close_frames_are_relayed_both_ways() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for code in [1000, 1001, 3000, 4999] {
        let mut socket = xiaoming.websocket("/ws/employee").await;
        socket.echo("hello").await;
        let close_frame = CloseFrame { code: CloseCode::from(code), reason: "bye".into() };
        socket.send_message(Message::Close(Some(close_frame))).await;
        assert_eq!(socket.close_code_within(TEST_TIMEOUT).await, Some(code), "the upstream's close frame");
        assert_eq!(desk.upstream.events().last(), Some(&SocketEvent::Closed(Some(code))));
    }
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut client, mut upstream) =
        open_tunnel(&desk, &mut upstream_connections, &xiaoming.handshake("/ws/employee")).await;
    let close_frame = Frame::new(CLOSE, b"\x10\xe1because").bytes();
    upstream.send(&close_frame).await;
    assert_eq!(client.read_exactly(close_frame.len()).await, close_frame, "code and reason");
    let response = Frame::new(CLOSE, b"\x10\xe1").masked().bytes();
    client.send(&response).await;
    assert_eq!(upstream.read_exactly(response.len()).await, response, "the client's close frame");
    drop(upstream);
    assert_eq!(client.read_to_end_within(TEST_TIMEOUT).await, b"");
}

#[tokio::test]
async fn end_of_one_side_closes_the_other() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let handshake = xiaoming.handshake("/ws/employee");

    let (mut client, mut upstream) = open_tunnel(&desk, &mut upstream_connections, &handshake).await;
    let last = Frame::new(TEXT, b"last words").bytes();
    upstream.send(&last).await;
    drop(upstream);
    assert_eq!(client.read_to_end_within(TEST_TIMEOUT).await, last, "the upstream disconnected");

    let (mut client, mut upstream) = open_tunnel(&desk, &mut upstream_connections, &handshake).await;
    let last = Frame::new(TEXT, b"last words").masked().bytes();
    client.send(&last).await;
    drop(client);
    assert_eq!(upstream.read_to_end_within(TEST_TIMEOUT).await, last, "the client disconnected");

    let (mut client, upstream) = open_tunnel(&desk, &mut upstream_connections, &handshake).await;
    upstream.reset();
    assert_eq!(client.read_to_end_within(TEST_TIMEOUT).await, b"", "the upstream was reset");
    let (client, mut upstream) = open_tunnel(&desk, &mut upstream_connections, &handshake).await;
    client.reset();
    assert_eq!(upstream.read_to_end_within(TEST_TIMEOUT).await, b"", "the client was reset");
    eventually("no open sockets", || async {
        (desk.metric("deskgate_websockets_open", &[]).await == 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn open_websockets_are_counted_by_rule() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let open = async |rule: &str| desk.metric("deskgate_websockets_open", &[&format!("rule=\"{rule}\"")]).await;
    let mut first = alice.websocket("/ws/agent").await;
    let mut second = alice.websocket("/ws/employee").await;
    first.echo("hello").await;
    second.echo("hello").await;
    assert_eq!((open("agent socket").await, open("employee socket").await), (1.0, 1.0));
    drop(first);
    eventually("one WebSocket less", || async { (open("agent socket").await == 0.0).then_some(()) }).await;
    assert_eq!(open("employee socket").await, 1.0);
    second.echo("still here").await;
}
