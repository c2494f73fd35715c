//! WebSocket handshakes: Origin, syntax, subprotocols, upstream refusals and timeouts.

use std::time::{Duration, Instant};

use tokio_tungstenite::tungstenite::protocol::Message;

use crate::support::*;

#[tokio::test]
async fn foreign_origins_are_1003() {
    let desk = Gateway::setup()
        .toml("[websocket]\norigins = [\"https://intranet.example\"]")
        .toml("[clients]\nitagent = \"https://agents.example/itagent/\"")
        .start()
        .await;
    let xiaoming = desk.sign_in("u1001").await;
    let own = desk.public_url();
    for origin in [own.as_str(), "https://intranet.example", "https://agents.example"] {
        let handshake = xiaoming.handshake("/ws/employee").header("Origin", origin);
        let mut socket = handshake.open().await.unwrap_or_else(|response| panic!("{origin}: {}", response.describe()));
        socket.echo("hello").await;
    }
    xiaoming.websocket("/ws/employee").await.echo("no Origin").await;
    desk.upstream.clear_requests();
    let port = desk.address().port();
    for origin in [
        "https://evil.example".to_owned(),
        "null".to_owned(),
        String::new(),
        "*".to_owned(),
        "http://intranet.example".to_owned(),
        "https://intranet.example:8443".to_owned(),
        "https://intranet.example.evil.example".to_owned(),
        "https://evil-intranet.example".to_owned(),
        "https://sub.intranet.example".to_owned(),
        "https://intranet.example@evil.example".to_owned(),
        format!("https://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{}", port ^ 1),
        format!("http://127.0.0.1.evil.example:{port}"),
        format!("{own}.evil.example"),
        format!("{own}, https://evil.example"),
    ] {
        for path in ["/ws/employee", "/ws/public"] {
            let response = xiaoming.handshake(path).header("Origin", &origin).expect_refused().await;
            assert_eq!(response.status, 403, "`{origin}` at {path}: {}", response.describe());
            response.expect_code(1003);
        }
    }
    let two = xiaoming.handshake("/ws/employee").header("Origin", &own).header("Origin", "https://evil.example");
    let response = two.expect_refused().await;
    assert!(matches!(response.status, 400 | 403), "two origins: {}", response.describe());
    assert!(desk.upstream.requests().is_empty());
}

/// A valid handshake with one text replaced.
fn changed_handshake(desk: &Gateway, xiaoming: &Client, from: &str, to: &str) -> Vec<u8> {
    let good = String::from_utf8(xiaoming.handshake("/api/desk/socket").bytes()).expect("text");
    let bad = good.replacen(from, to, 1);
    assert!(bad != good, "{from} is not in the handshake");
    assert!(bad.contains(&desk.address().to_string()));
    bad.into_bytes()
}

#[tokio::test]
async fn malformed_handshakes_are_refused() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (case, from, to, code) in [
        ("version 12", "Version: 13", "Version: 12", 1426),
        ("version 14", "Version: 13", "Version: 14", 1426),
        ("version 8", "Version: 13", "Version: 8", 1426),
        ("no version", "Sec-WebSocket-Version: 13\r\n", "", 0),
        ("an invalid version", "Version: 13", "Version: thirteen", 0),
        ("a key of 15 bytes", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j", 1400),
        ("a key of 17 bytes", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZTE=", 1400),
        ("a key that is not base64", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j****", 1400),
        ("an empty key", "dGhlIHNhbXBsZSBub25jZQ==", "", 1400),
        ("no key", key, "", 1400),
        ("POST", "GET ", "POST ", 1400),
        ("HTTP/1.0", "HTTP/1.1", "HTTP/1.0", 1400),
        ("another protocol", "Upgrade: websocket", "Upgrade: foo", 1400),
        ("a similar protocol", "Upgrade: websocket", "Upgrade: websockets", 1400),
        ("a list", "Upgrade: websocket", "Upgrade: h2c, websocket", 1400),
    ] {
        let mut connection = desk.connect().await;
        connection.send(&changed_handshake(&desk, &xiaoming, from, to)).await;
        let response = connection.response().await.unwrap_or_else(|| panic!("{case}: closed without a response"));
        match code {
            0 => assert!(matches!(response.status, 400 | 426), "{case}: {}", response.describe()),
            _ => assert_eq!(u64::from(response.status), code - 1000, "{case}: {}", response.describe()),
        }
        if response.status == 426 {
            assert_eq!(response.header("sec-websocket-version"), Some("13"), "RFC 6455, 4.4: {}", response.describe());
        }
        let code = 1000 + u64::from(response.status);
        response.expect_code(code);
    }
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn handshake_headers_are_case_insensitive() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (from, to) in [
        ("Upgrade: websocket", "Upgrade: WebSocket"),
        ("Upgrade: websocket", "UPGRADE: WEBSOCKET"),
        ("Connection: Upgrade", "connection: keep-alive, upgrade"),
        ("Sec-WebSocket-Protocol", "sec-websocket-protocol"),
    ] {
        let response = desk.send_raw(&changed_handshake(&desk, &xiaoming, from, to)).await.expect("a response");
        assert_eq!(response.status, 101, "{to}: {}", response.describe());
    }
    // Without `upgrade` in Connection, the Upgrade header has no effect.
    let response =
        desk.send_raw(&changed_handshake(&desk, &xiaoming, "Connection: Upgrade", "Connection: keep-alive")).await;
    assert!(response.is_none_or(|response| response.status != 101));
}

#[tokio::test]
async fn handshake_is_forwarded_complete() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let handshake = xiaoming
        .handshake("/ws/employee?room=7")
        .header("User-Agent", "browser")
        .header("Cookie", "own=1")
        .header("Sec-WebSocket-Extensions", "permessage-deflate");
    let mut socket = handshake.open().await.unwrap_or_else(|response| panic!("{}", response.describe()));
    socket.echo("hello").await;
    let seen = desk.upstream.only_request();
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("GET", "/ws/employee?room=7"));
    for (name, value) in [
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("user-agent", "browser"),
        ("cookie", "own=1"),
        ("sec-websocket-extensions", "permessage-deflate"),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    assert!(seen.header("connection").is_some_and(|value| value.to_ascii_lowercase().contains("upgrade")));
    assert_eq!(seen.header("sec-websocket-protocol"), None, "the only one offered was the token");
    assert_eq!(seen.header("authorization"), None);
}

#[tokio::test]
async fn subprotocol_is_the_upstreams_choice_or_the_echoed_token() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("bearer.{}", xiaoming.token());
    let header = format!("Bearer {}", xiaoming.token());
    let none: &[&str] = &[];
    for (case, authorization, offered, chosen, seen_upstream, echoed) in [
        ("the token alone", false, &[bearer.as_str()][..], Subprotocol::FirstOffered, none, Some(bearer.as_str())),
        ("the upstream chose none", false, &["chat", &bearer], Subprotocol::None, &["chat"], Some(&bearer)),
        ("the upstream chose", false, &[&bearer, "chat"], Subprotocol::FirstOffered, &["chat"], Some("chat")),
        (
            "the upstream chose the second",
            false,
            &["chat", &bearer, "v2"],
            Subprotocol::Named("v2".into()),
            &["chat", "v2"],
            Some("v2"),
        ),
        ("a token in the header", true, &["chat", "v2"], Subprotocol::FirstOffered, &["chat", "v2"], Some("chat")),
        ("a token in the header, none chosen", true, &["chat"], Subprotocol::None, &["chat"], None),
        ("nothing offered", true, none, Subprotocol::FirstOffered, none, None),
    ] {
        desk.upstream.set_subprotocol(chosen);
        desk.upstream.clear_requests();
        let mut handshake = desk.anonymous().handshake("/ws/employee").protocols(offered);
        if authorization {
            handshake = handshake.header("Authorization", &header);
        }
        let mut socket = handshake.open().await.unwrap_or_else(|response| panic!("{case}: {}", response.describe()));
        assert_eq!(socket.protocol(), echoed, "{case}");
        socket.echo("hello").await;
        let seen = desk.upstream.only_request();
        let offers = seen.header_all("sec-websocket-protocol").join(",");
        let offers: Vec<&str> = offers.split(',').map(str::trim).filter(|offer| !offer.is_empty()).collect();
        assert_eq!(offers, seen_upstream, "{case}");
    }
    let lines =
        desk.anonymous().handshake("/ws/employee").protocols(&["chat"]).header("Sec-WebSocket-Protocol", &bearer);
    desk.upstream.set_subprotocol(Subprotocol::FirstOffered);
    let socket = lines.open().await.unwrap_or_else(|response| panic!("two lines: {}", response.describe()));
    assert_eq!(socket.protocol(), Some("chat"), "two lines");
    assert!(!String::from_utf8_lossy(&desk.upstream.all_bytes()).contains(xiaoming.token()), "the token was forwarded");
}

#[tokio::test]
async fn upstream_subprotocol_that_was_not_offered_is_1502() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for name in ["other", "Chat", "chat, v2", "bearer.a.b.c"] {
        desk.upstream.set_subprotocol(Subprotocol::Named(name.to_owned()));
        let handshake = xiaoming.handshake("/ws/employee").also_protocols(&["chat", "v2"]);
        let response = handshake.expect_refused().await;
        assert_eq!(response.status, 502, "{name}: {}", response.describe());
        response.expect_code(1502);
        let response = xiaoming.handshake("/ws/employee").expect_refused().await;
        assert_eq!(response.status, 502, "{name}, nothing offered but the token: {}", response.describe());
    }
}

#[tokio::test]
async fn upstream_bytes_behind_the_101_are_delivered() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for payload in [b"first".to_vec(), byte_pattern(100), byte_pattern(60_000), byte_pattern(300_000)] {
        let message = Frame::new(BINARY, &payload).bytes();
        desk.upstream.set_behaviour(Behaviour::UpgradeWith(message));
        let mut socket = xiaoming.websocket("/ws/employee").await;
        assert!(socket.next().await == Some(Message::binary(payload.clone())), "{} bytes", payload.len());
        socket.echo("a later message").await;
    }
    // The 101, a message and a close frame in one write.
    let mut all = Frame::new(TEXT, b"only this").bytes();
    all.extend(Frame::close(4321).bytes());
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let accept = async { upstream_connections.next().await.accept_websocket(&all).await };
    let handshake = xiaoming.handshake("/ws/employee");
    let ((_, mut client), ()) = tokio::join!(BufferedStream::open_tunnel(&desk, &handshake), accept);
    assert_eq!(client.read_frame().await, Some(Frame::new(TEXT, b"only this")));
    assert_eq!(client.read_frame().await.and_then(|frame| frame.close_code()), Some(4321));
}

#[tokio::test]
async fn client_bytes_behind_the_handshake_wait_for_the_101() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    for payload in [b"eager".to_vec(), byte_pattern(20_000)] {
        let early = Frame::new(BINARY, &payload).masked().bytes();
        let mut bytes = xiaoming.handshake("/ws/employee").bytes();
        bytes.extend_from_slice(&early);
        let mut connection = desk.connect().await;
        connection.send(&bytes).await;
        let mut upstream_connection = upstream_connections.next().await;
        assert!(
            upstream_connection.stream.is_silent_for(Duration::from_millis(200)).await,
            "an upstream that has not switched protocols would read this as a request"
        );
        upstream_connection.accept_websocket(b"").await;
        connection.response().await.expect("a response").expect_status(101);
        assert!(upstream_connection.stream.read_exactly(early.len()).await == early, "{} bytes", payload.len());
    }
}

#[tokio::test]
async fn refused_upgrade_opens_no_tunnel() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (status, response) in [
        (200, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Own: kept\r\n\r\nhello"),
        (200, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Own: kept\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        (401, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\nX-Own: kept\r\n\r\nhello"),
        (
            404,
            "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Own: kept\r\n\r\nhello",
        ),
        (503, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\nX-Own: kept\r\n\r\nhello"),
    ] {
        let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
        let mut bytes = xiaoming.handshake("/ws/employee").bytes();
        let early = Frame::new(TEXT, b"GET /public/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n").bytes();
        bytes.extend_from_slice(&early);
        let mut connection = desk.connect().await;
        connection.send(&bytes).await;
        let mut upstream_connection = upstream_connections.next().await;
        upstream_connection.stream.send(response.as_bytes()).await;
        let relayed = connection.response().await.expect("a response").expect_status(status);
        assert_eq!((relayed.text().as_str(), relayed.header("x-own")), ("hello", Some("kept")));
        assert!(relayed.header("x-request-id").is_some(), "{}", relayed.describe());
        assert_eq!(relayed.header("x-hop"), None, "named by the upstream's Connection: {}", relayed.describe());
        let mut client = BufferedStream::from_connection(connection);
        client.try_send(b"GET /public/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n").await.ok();
        assert_eq!(client.read_to_end_within(TEST_TIMEOUT).await, b"", "{status}: the connection is closed");
        let seen = upstream_connection.stream.read_until_idle(Duration::from_millis(200)).await;
        assert_eq!(seen, b"", "{status}: bytes were forwarded to the upstream");
    }
    assert!(desk.upstream.requests().iter().all(|seen| seen.target == "/ws/employee"));
}

#[tokio::test]
async fn response_to_a_handshake_that_never_has_a_body_has_no_length() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (status, response) in [
        (204, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
        (304, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        (
            101,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\n",
        ),
        (
            101,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
    ] {
        desk.upstream.set_behaviour(Behaviour::RespondAndClose(response.as_bytes().to_vec()));
        let mut connection = desk.connect().await;
        connection.send(&xiaoming.handshake("/ws/employee").bytes()).await;
        let relayed = connection.response().await.expect("a response").expect_status(status);
        assert_eq!(relayed.header("content-length"), None, "{response:?}: {}", relayed.describe());
        assert_eq!(relayed.header("transfer-encoding"), None, "{response:?}: {}", relayed.describe());
    }
}

#[tokio::test]
async fn ambiguous_response_to_a_handshake_is_1502() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5x\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: +5\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nX-Folded: a\r\n b\r\nConnection: Upgrade\r\n\r\n",
    ] {
        desk.upstream.set_behaviour(Behaviour::RespondAndClose(response.as_bytes().to_vec()));
        let refusal = xiaoming.handshake("/ws/employee").expect_refused().await;
        assert_eq!((refusal.status, refusal.code()), (502, 1502), "{response:?}: {}", refusal.describe());
    }
}

#[tokio::test]
async fn unanswered_handshake_is_1504() {
    let desk = Gateway::with("[websocket]\nhandshake = \"300ms\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    xiaoming.handshake("/ws/employee").expect_refused().await.expect_code(1504);
    desk.upstream.set_behaviour(Behaviour::CloseWithoutResponse);
    xiaoming.handshake("/ws/employee").expect_refused().await.expect_code(1502);
    desk.upstream.set_behaviour(Behaviour::RespondAndClose(b"nonsense\r\n\r\n".to_vec()));
    xiaoming.handshake("/ws/employee").expect_refused().await.expect_code(1502);
    desk.upstream.set_behaviour(Behaviour::Echo);
    xiaoming.websocket("/ws/employee").await.echo("hello").await;
}

#[tokio::test]
async fn stalled_refusal_of_a_handshake_is_1504() {
    let desk = Gateway::with("[websocket]\nhandshake = \"500ms\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let stall = async {
        let mut upstream_connection = upstream_connections.next().await;
        upstream_connection.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
        upstream_connection
    };
    let began = Instant::now();
    let (response, mut upstream_connection) = tokio::join!(xiaoming.handshake("/ws/employee").expect_refused(), stall);
    response.expect_code(1504);
    assert!(began.elapsed() < Duration::from_secs(5), "after {:?}", began.elapsed());
    upstream_connection.stream.read_to_end_within(TEST_TIMEOUT).await;
    eventually("no open socket", || async {
        (desk.metric("deskgate_websockets_open", &[]).await == 0.0).then_some(())
    })
    .await;
}

/// The time for handshakes is the upstream's. A client that reads slowly gets the response as it is.
#[tokio::test]
async fn refusal_of_a_handshake_that_the_client_reads_slowly_is_complete() {
    const LENGTH: usize = 1_000_000;
    const HANDSHAKE: Duration = Duration::from_millis(300);
    let desk = Gateway::with("[websocket]\nhandshake = \"300ms\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&xiaoming.handshake("/ws/employee").bytes()).await;
    let mut upstream = upstream_connections.next().await.stream;
    upstream.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes()).await;
    upstream.send(&vec![b'x'; LENGTH]).await;
    upstream.is_silent_for(3 * HANDSHAKE).await;
    let response = connection.response().await.expect("a response").expect_status(200);
    assert!(response.text() == "x".repeat(LENGTH), "the body is the upstream's");
    assert!(connection.until_end().await.is_empty());
}

#[tokio::test]
async fn refusal_of_a_handshake_has_one_date() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let response = b"HTTP/1.1 403 Forbidden\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n";
    desk.upstream.set_behaviour(Behaviour::RespondAndClose(response.to_vec()));
    let refusal = xiaoming.handshake("/ws/employee").expect_refused().await;
    let dates = refusal.header_all("date");
    assert!(dates.len() == 1 && !dates[0].contains("1970"), "{}", refusal.describe());
}

/// The number of consecutive handshakes; `DESKGATE_HANDSHAKES` overrides it.
fn handshakes() -> usize {
    std::env::var("DESKGATE_HANDSHAKES").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

#[tokio::test]
async fn consecutive_handshakes_all_succeed() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    // The upstream responds as soon as it has read the head.
    for number in 0..handshakes() {
        let mut socket = xiaoming.websocket("/ws/employee").await;
        let text = format!("socket {number}");
        socket.echo(&text).await;
    }
    let greeting = Frame::new(TEXT, b"welcome").bytes();
    desk.upstream.set_behaviour(Behaviour::UpgradeWith(greeting));
    let rounds = (0..handshakes() / 10).map(|round| {
        let xiaoming = &xiaoming;
        async move {
            for number in 0..10 {
                let mut socket = xiaoming.websocket("/ws/employee").await;
                assert_eq!(socket.next().await, Some(Message::text("welcome")), "socket {round}.{number}");
                socket.echo("hello").await;
            }
        }
    });
    use futures::StreamExt;
    futures::stream::iter(rounds).buffer_unordered(8).collect::<Vec<()>>().await;
}
