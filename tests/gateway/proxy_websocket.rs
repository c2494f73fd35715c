//! Section 5, WebSockets: who gets in, what passes, and how a socket ends.

use std::time::{Duration, Instant};

use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::support::*;

/// A second more than `websocket.close_grace`, for a machine that has other things to do.
const CUT: Duration = Duration::from_millis(2500);

/// A tunnel with the test at both ends.
async fn tunnel(desk: &Gateway, visits: &mut Visits, handshake: &Handshake) -> (End, End) {
    let accept = async {
        let mut visit = visits.next().await;
        visit.accept(b"").await;
        visit.end
    };
    let ((_, client), upstream) = tokio::join!(End::through(desk, handshake), accept);
    (client, upstream)
}

/// The refusal of a handshake; fails when it is let in.
async fn refusal(handshake: Handshake) -> Answer {
    match handshake.open().await {
        Ok(_) => panic!("the handshake was let in"),
        Err(answer) => answer,
    }
}

fn large(length: usize) -> Vec<u8> {
    (0..length).map(|place| ((place / 253) ^ (place * 7)) as u8).collect()
}

// ---- Who gets in.

#[tokio::test]
async fn the_token_is_read_from_the_three_places_in_their_order() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let good = alice.token();
    let (header, bad_header) = (format!("Bearer {good}"), "Bearer a.b.c".to_owned());
    let (protocol, bad_protocol) = (format!("bearer.{good}"), "bearer.a.b.c".to_owned());
    let (query, bad_query) = (format!("/ws/employee?token={good}"), "/ws/employee?token=a.b.c".to_owned());
    let plain = "/ws/employee".to_owned();
    for (case, target, authorization, offered, gets_in) in [
        ("header", &plain, Some(&header), None, true),
        ("subprotocol", &plain, None, Some(&protocol), true),
        ("query", &query, None, None, true),
        ("header before subprotocol", &plain, Some(&header), Some(&bad_protocol), true),
        ("header before query", &bad_query, Some(&header), None, true),
        ("subprotocol before query", &bad_query, None, Some(&protocol), true),
        ("header before both", &bad_query, Some(&header), Some(&bad_protocol), true),
        ("a bad header decides", &plain, Some(&bad_header), Some(&protocol), false),
        ("a bad header decides, whatever the query", &query, Some(&bad_header), None, false),
        ("a bad subprotocol decides", &query, None, Some(&bad_protocol), false),
        ("a bad query", &bad_query, None, None, false),
    ] {
        desk.upstream.forget();
        let mut handshake = desk.anyone().handshake(target);
        if let Some(value) = authorization {
            handshake = handshake.header("Authorization", value);
        }
        if let Some(offer) = offered {
            handshake = handshake.protocols(&[offer]);
        }
        match handshake.open().await {
            Ok(mut socket) => {
                assert!(gets_in, "{case}");
                socket.echo("hello").await;
                let seen = desk.upstream.only_request();
                let head = String::from_utf8_lossy(&seen.head).into_owned();
                assert_eq!(seen.target, "/ws/employee", "{case}");
                assert!(!head.contains(good) && !head.contains("a.b.c"), "{case}: a token went along:\n{head}");
                assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"), "{case}");
            }
            Err(answer) => {
                assert!(!gets_in, "{case}: {}", answer.describe());
                answer.expect_invalid_token();
                assert!(desk.upstream.requests().is_empty(), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn without_a_token_there_is_no_101() {
    let desk = Gateway::start().await;
    let anyone = desk.anyone();
    refusal(anyone.handshake("/ws/employee")).await.expect_bare_challenge();
    refusal(anyone.handshake("/ws/employee").protocols(&["chat"])).await.expect_bare_challenge();
    for empty in ["bearer.", "chat, bearer."] {
        let answer = refusal(anyone.handshake("/ws/employee").protocols(&[empty])).await;
        assert_eq!(answer.status, 401, "{empty}: {}", answer.describe());
        answer.expect_code(1001);
    }
    for scheme in ["Basic YTpi", "Digest a", "Negotiate a", "Bearer", "Bearer  "] {
        refusal(anyone.handshake("/ws/employee").header("Authorization", scheme)).await.expect_bare_challenge();
    }
    let token = desk.sign_in("u1001").await.token().to_owned();
    let cookie = format!("token={token}; access_token={token}");
    refusal(anyone.handshake("/ws/employee").header("Cookie", &cookie)).await.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn the_rule_of_the_socket_decides() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    refusal(alice.handshake("/ws/agent")).await.expect_code(1003);
    refusal(alice.handshake("/ws/nowhere")).await.expect_code(1404);
    assert!(desk.upstream.requests().is_empty());
    alice.websocket("/ws/employee").await.echo("hello").await;
    desk.sign_in("a2001").await.websocket("/ws/agent").await.echo("hello").await;
    desk.anyone().websocket("/ws/public").await.echo("hello").await;
}

#[tokio::test]
async fn two_different_tokens_in_the_same_place_are_refused() {
    let desk = Gateway::start().await;
    let (one, two) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    let (first, second) = (format!("bearer.{}", one.token()), format!("bearer.{}", two.token()));
    let anyone = desk.anyone();
    refusal(anyone.handshake("/ws/employee").protocols(&[&first, &second])).await.expect_code(1400);
    refusal(anyone.handshake("/ws/employee").protocols(&[&first, "chat", &second])).await.expect_code(1400);
    let lines = anyone.handshake("/ws/employee").protocols(&[&first]).header("Sec-WebSocket-Protocol", &second);
    refusal(lines).await.expect_code(1400);
    let query = format!("/ws/employee?token={}&token={}", one.token(), two.token());
    refusal(anyone.handshake(&query)).await.expect_code(1400);
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn the_query_token_is_removed_and_counted() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let count = async || desk.metric("deskgate_websocket_query_tokens_total", &[]).await;
    assert_eq!(count().await, 0.0);
    for (number, (before, after)) in
        [("", ""), ("?a=1&", "?a=1"), ("?a=%20&b=c&", "?a=%20&b=c")].into_iter().enumerate()
    {
        let start = if before.is_empty() { "?" } else { before };
        let target = format!("/ws/employee{start}token={}", alice.token());
        desk.anyone().websocket(&target).await.echo("hello").await;
        assert_eq!(desk.upstream.last_request().target, format!("/ws/employee{after}"));
        assert_eq!(count().await, number as f64 + 1.0);
    }
    let middle = format!("/ws/employee?a=1&token={}&b=2", alice.token());
    desk.anyone().websocket(&middle).await.echo("hello").await;
    assert_eq!(desk.upstream.last_request().target, "/ws/employee?a=1&b=2");
    alice.websocket("/ws/employee?mytoken=x&tokens=y").await.echo("hello").await;
    assert_eq!(desk.upstream.last_request().target, "/ws/employee?mytoken=x&tokens=y");
    assert_eq!(count().await, 4.0, "only those that used it");
    assert!(!String::from_utf8_lossy(&desk.upstream.all_bytes()).contains(alice.token()));
    assert!(!desk.logs().contains(alice.token()), "the token is in the log");
}

#[tokio::test]
async fn a_token_in_disguise_does_not_reach_the_upstream() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let token = alice.token();
    for name in ["%74oken", "t%6Fken", "%74%6f%6b%65%6e"] {
        for path in ["/ws/employee", "/ws/public"] {
            desk.upstream.forget();
            let target = format!("{path}?a=1&{name}={token}&b=2");
            alice.websocket(&target).await.echo("hello").await;
            assert_eq!(desk.upstream.only_request().target, format!("{path}?a=1&b=2"), "{name}");
            // Whether it opens the door or not, it stays here.
            drop(desk.anyone().handshake(&target).open().await);
        }
    }
    let offered = format!("bearer.{token}");
    for offer in ["bearer.x", "chat, bearer.x", &offered] {
        alice.with_header("Sec-WebSocket-Protocol", offer).get("/api/desk/x").await.expect_status(200);
        desk.anyone().with_header("Sec-WebSocket-Protocol", offer).get("/public/x").await.expect_status(200);
    }
    let seen = String::from_utf8_lossy(&desk.upstream.all_bytes()).into_owned();
    assert!(!seen.contains(token) && !seen.contains("bearer."), "a token went along:\n{seen}");
}

#[tokio::test]
async fn the_query_token_can_be_switched_off() {
    let desk = Gateway::with("[websocket]\nquery_token = false").await;
    let alice = desk.sign_in("u1001").await;
    let target = format!("/ws/employee?token={}", alice.token());
    refusal(desk.anyone().handshake(&target)).await.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
    alice.websocket("/ws/employee").await.echo("hello").await;
}

#[tokio::test]
async fn the_query_token_is_for_sockets_only() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let query = format!("token={}", alice.token());
    desk.anyone().get(&format!("/api/desk/x?{query}")).await.expect_bare_challenge();
    desk.anyone().get(&format!("/ws/employee?{query}")).await.expect_bare_challenge();
    let protocol = format!("bearer.{}", alice.token());
    desk.anyone().with_header("Sec-WebSocket-Protocol", &protocol).get("/api/desk/x").await.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn a_page_from_elsewhere_opens_no_socket() {
    let desk = Gateway::setup()
        .toml("[websocket]\norigins = [\"https://intranet.example\"]")
        .toml("[clients]\nitagent = \"https://agents.example/itagent/\"")
        .start()
        .await;
    let alice = desk.sign_in("u1001").await;
    let own = desk.public_url();
    for origin in [own.as_str(), "https://intranet.example", "https://agents.example"] {
        let handshake = alice.handshake("/ws/employee").header("Origin", origin);
        let mut socket = handshake.open().await.unwrap_or_else(|answer| panic!("{origin}: {}", answer.describe()));
        socket.echo("hello").await;
    }
    alice.websocket("/ws/employee").await.echo("no Origin: no browser").await;
    desk.upstream.forget();
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
            let answer = refusal(alice.handshake(path).header("Origin", &origin)).await;
            assert_eq!(answer.status, 403, "`{origin}` at {path}: {}", answer.describe());
            answer.expect_code(1003);
        }
    }
    let two = alice.handshake("/ws/employee").header("Origin", &own).header("Origin", "https://evil.example");
    let answer = refusal(two).await;
    assert!(matches!(answer.status, 400 | 403), "two origins: {}", answer.describe());
    assert!(desk.upstream.requests().is_empty());
}

/// A good handshake with one thing changed.
fn changed(desk: &Gateway, alice: &Client, from: &str, to: &str) -> Vec<u8> {
    let good = String::from_utf8(alice.handshake("/api/desk/socket").bytes()).expect("text");
    let bad = good.replacen(from, to, 1);
    assert!(bad != good, "nothing to change: {from}");
    assert!(bad.contains(&desk.address().to_string()));
    bad.into_bytes()
}

#[tokio::test]
async fn a_handshake_that_is_none_is_refused() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (case, from, to, code) in [
        ("version 12", "Version: 13", "Version: 12", 1426),
        ("version 14", "Version: 13", "Version: 14", 1426),
        ("version 8", "Version: 13", "Version: 8", 1426),
        ("no version", "Sec-WebSocket-Version: 13\r\n", "", 0),
        ("a version that is none", "Version: 13", "Version: thirteen", 0),
        ("a key of 15 bytes", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j", 1400),
        ("a key of 17 bytes", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZTE=", 1400),
        ("a key that is no base64", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j****", 1400),
        ("an empty key", "dGhlIHNhbXBsZSBub25jZQ==", "", 1400),
        ("no key", key, "", 1400),
        ("POST", "GET ", "POST ", 1400),
        ("HTTP/1.0", "HTTP/1.1", "HTTP/1.0", 1400),
        ("h2c", "Upgrade: websocket", "Upgrade: h2c", 1400),
        ("another protocol", "Upgrade: websocket", "Upgrade: foo", 1400),
        ("one like it", "Upgrade: websocket", "Upgrade: websockets", 1400),
        ("a list", "Upgrade: websocket", "Upgrade: h2c, websocket", 1400),
    ] {
        let mut connection = desk.connect().await;
        connection.send(&changed(&desk, &alice, from, to)).await;
        let answer = connection.answer().await.unwrap_or_else(|| panic!("{case}: closed without a word"));
        match code {
            0 => assert!(matches!(answer.status, 400 | 426), "{case}: {}", answer.describe()),
            _ => assert_eq!(u64::from(answer.status), code - 1000, "{case}: {}", answer.describe()),
        }
        if answer.status == 426 {
            assert_eq!(answer.header("sec-websocket-version"), Some("13"), "RFC 6455, 4.4: {}", answer.describe());
        }
        let code = 1000 + u64::from(answer.status);
        answer.expect_code(code);
    }
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn words_of_the_handshake_may_be_written_in_any_case() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for (from, to) in [
        ("Upgrade: websocket", "Upgrade: WebSocket"),
        ("Upgrade: websocket", "UPGRADE: WEBSOCKET"),
        ("Connection: Upgrade", "connection: keep-alive, upgrade"),
        ("Sec-WebSocket-Protocol", "sec-websocket-protocol"),
    ] {
        let answer = desk.raw(&changed(&desk, &alice, from, to)).await.expect("an answer");
        assert_eq!(answer.status, 101, "{to}: {}", answer.describe());
    }
    // Without the word in Connection it asks for nothing that passes this hop.
    let answer = desk.raw(&changed(&desk, &alice, "Connection: Upgrade", "Connection: keep-alive")).await;
    assert!(answer.is_none_or(|answer| answer.status != 101));
}

#[tokio::test]
async fn the_handshake_reaches_the_upstream_whole() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let handshake = alice
        .handshake("/ws/employee?room=7")
        .header("User-Agent", "browser")
        .header("Cookie", "own=1")
        .header("Sec-WebSocket-Extensions", "permessage-deflate");
    let mut socket = handshake.open().await.unwrap_or_else(|answer| panic!("{}", answer.describe()));
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
async fn the_subprotocol_is_negotiated_with_the_upstream_and_the_token_is_echoed_otherwise() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let bearer = format!("bearer.{}", alice.token());
    let header = format!("Bearer {}", alice.token());
    let none: &[&str] = &[];
    for (case, authorization, offered, chosen, seen_upstream, echoed) in [
        ("the token alone", false, &[bearer.as_str()][..], Chosen::First, none, Some(bearer.as_str())),
        ("the upstream chose none", false, &["chat", &bearer], Chosen::Nothing, &["chat"], Some(&bearer)),
        ("the upstream chose", false, &[&bearer, "chat"], Chosen::First, &["chat"], Some("chat")),
        (
            "the upstream chose the second",
            false,
            &["chat", &bearer, "v2"],
            Chosen::Named("v2".into()),
            &["chat", "v2"],
            Some("v2"),
        ),
        ("a token in the header", true, &["chat", "v2"], Chosen::First, &["chat", "v2"], Some("chat")),
        ("a token in the header, none chosen", true, &["chat"], Chosen::Nothing, &["chat"], None),
        ("nothing offered", true, none, Chosen::First, none, None),
    ] {
        desk.upstream.choose(chosen);
        desk.upstream.forget();
        let mut handshake = desk.anyone().handshake("/ws/employee").protocols(offered);
        if authorization {
            handshake = handshake.header("Authorization", &header);
        }
        let mut socket = handshake.open().await.unwrap_or_else(|answer| panic!("{case}: {}", answer.describe()));
        assert_eq!(socket.protocol(), echoed, "{case}");
        socket.echo("hello").await;
        let seen = desk.upstream.only_request();
        let offers = seen.header_all("sec-websocket-protocol").join(",");
        let offers: Vec<&str> = offers.split(',').map(str::trim).filter(|offer| !offer.is_empty()).collect();
        assert_eq!(offers, seen_upstream, "{case}");
    }
    let lines = desk.anyone().handshake("/ws/employee").protocols(&["chat"]).header("Sec-WebSocket-Protocol", &bearer);
    desk.upstream.choose(Chosen::First);
    let socket = lines.open().await.unwrap_or_else(|answer| panic!("two lines: {}", answer.describe()));
    assert_eq!(socket.protocol(), Some("chat"), "two lines");
    assert!(!String::from_utf8_lossy(&desk.upstream.all_bytes()).contains(alice.token()), "the token went along");
}

#[tokio::test]
async fn a_rule_may_pass_the_token_on() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let bearer = format!("bearer.{}", alice.token());
    alice.websocket("/api/token-too/socket").await.echo("hello").await;
    assert_eq!(desk.upstream.last_request().header("sec-websocket-protocol"), Some(bearer.as_str()));
}

#[tokio::test]
async fn a_protocol_that_was_not_offered_is_1502() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for name in ["other", "Chat", "chat, v2", "bearer.a.b.c"] {
        desk.upstream.choose(Chosen::Named(name.to_owned()));
        let handshake = alice.handshake("/ws/employee").also_protocols(&["chat", "v2"]);
        let answer = refusal(handshake).await;
        assert_eq!(answer.status, 502, "{name}: {}", answer.describe());
        answer.expect_code(1502);
        let answer = refusal(alice.handshake("/ws/employee")).await;
        assert_eq!(answer.status, 502, "{name}, nothing offered but the token: {}", answer.describe());
    }
}

// ---- What passes.

#[tokio::test]
async fn messages_of_every_kind_pass_both_ways() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut socket = alice.websocket("/ws/employee").await;
    for message in [
        Message::text(""),
        Message::text("hello"),
        Message::text("\u{6797}\u{5c0f}\u{96e8} \u{1f600}"),
        Message::binary(vec![]),
        Message::binary(vec![0, 1, 254, 255]),
        Message::binary(large(125)),
        Message::binary(large(126)),
        Message::binary(large(65_535)),
        Message::binary(large(65_536)),
        Message::text("a".repeat(100_000)),
    ] {
        socket.send_message(message.clone()).await;
        assert!(socket.next().await == Some(message.clone()), "the echo of {} bytes", message.len());
    }
    // The upstream's own answer to a ping, with the ping's own bytes.
    socket.send_message(Message::Ping(b"are you there"[..].into())).await;
    assert_eq!(socket.next().await, Some(Message::Pong(b"are you there"[..].into())));
    assert!(desk.upstream.events().contains(&SocketEvent::Message(Message::Ping(b"are you there"[..].into()))));
    socket.send_message(Message::Pong(b"unasked"[..].into())).await;
    socket.echo("after an unasked pong").await;
    assert!(desk.upstream.events().contains(&SocketEvent::Message(Message::Pong(b"unasked"[..].into()))));
}

#[tokio::test]
async fn large_messages_pass_both_ways() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut socket = alice.websocket("/ws/employee").await;
    for _ in 0..2 {
        let message = Message::binary(large(4 << 20));
        socket.send_message(message.clone()).await;
        assert!(socket.next().await == Some(message), "the echo of 4 MB");
    }
    socket.echo("and a small one").await;
}

#[tokio::test]
async fn frames_are_not_touched() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    let frames = [
        Frame::new(TEXT, b"one").unfinished(),
        Frame::new(PING, b"in between"),
        Frame::new(CONTINUATION, b"").unfinished(),
        Frame::new(CONTINUATION, &large(70_000)).unfinished(),
        Frame::new(PONG, b""),
        Frame::new(CONTINUATION, b"end"),
        Frame::new(BINARY, &large(126)),
        // Reserved bits and opcodes are the ends' business: extensions use them.
        Frame { opcode: 0x41, ..Frame::new(TEXT, b"compressed") },
    ];
    let down: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
    let up: Vec<u8> = frames.iter().flat_map(|frame| frame.clone().masked().bytes()).collect();
    client.send(&up).await;
    assert!(upstream.exactly(up.len()).await == up, "client to upstream");
    upstream.send(&down).await;
    assert!(client.exactly(down.len()).await == down, "upstream to client");
    // A byte at a time: frames have no right to arrive whole.
    for byte in &up[..200] {
        client.send(&[*byte]).await;
        assert_eq!(upstream.exactly(1).await, [*byte]);
    }
    for byte in &down[..200] {
        upstream.send(&[*byte]).await;
        assert_eq!(client.exactly(1).await, [*byte]);
    }
}

#[tokio::test]
async fn both_directions_flow_at_once() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let (client, upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    let data = large(3 << 20);
    let up = Frame::new(BINARY, &data).masked().bytes();
    let down = Frame::new(BINARY, &data).bytes();
    let exchange = |end: End, out: Vec<u8>, expected: Vec<u8>| async move {
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
    within(PATIENCE, "3 MB both ways at once", all).await;
}

/// The gateway's memory in KiB.
fn resident(desk: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", desk.pid())).expect("a running gateway");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

#[tokio::test]
async fn a_client_that_does_not_read_costs_little_and_nobody_else() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut other = alice.websocket("/ws/employee").await;
    other.echo("before").await;
    let mut visits = Visits::at(&desk.upstream);
    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    let before = resident(&desk);
    let flood = Frame::new(BINARY, &large(1 << 20)).bytes();
    let sent = upstream.send_until_stuck(&flood, 64 << 20).await;
    let grown = resident(&desk).saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB for one client that does not read");
    other.echo("others live on").await;
    alice.get("/api/auth/me").await.expect_code(0);
    // And nothing of it is lost.
    let got = client.exactly(sent).await;
    assert!(got.iter().zip(flood.iter().cycle()).all(|(got, sent)| got == sent), "the bytes of the flood");
}

#[tokio::test]
async fn an_upstream_that_does_not_read_costs_little_and_nobody_else() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut other = alice.websocket("/ws/employee").await;
    let mut visits = Visits::at(&desk.upstream);
    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    let before = resident(&desk);
    let flood = Frame::new(BINARY, &large(1 << 20)).masked().bytes();
    let sent = client.send_until_stuck(&flood, 64 << 20).await;
    let grown = resident(&desk).saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB for one upstream that does not read");
    other.echo("others live on").await;
    // The other direction of the same socket is not held up.
    let reply = Frame::new(TEXT, b"still talking").bytes();
    upstream.send(&reply).await;
    assert_eq!(client.exactly(reply.len()).await, reply);
    let got = upstream.exactly(sent).await;
    assert!(got.iter().zip(flood.iter().cycle()).all(|(got, sent)| got == sent), "the bytes of the flood");
}

#[tokio::test]
async fn bytes_that_come_with_the_101_are_delivered() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for payload in [b"first".to_vec(), large(100), large(60_000), large(300_000)] {
        let message = Frame::new(BINARY, &payload).bytes();
        desk.upstream.behave(Behaviour::UpgradeWith(message));
        let mut socket = alice.websocket("/ws/employee").await;
        assert!(socket.next().await == Some(Message::binary(payload.clone())), "{} bytes", payload.len());
        socket.echo("and then").await;
    }
    // Together with its end.
    let mut all = Frame::new(TEXT, b"only this").bytes();
    all.extend(Frame::close(4321).bytes());
    let mut visits = Visits::at(&desk.upstream);
    let accept = async { visits.next().await.accept(&all).await };
    let shake = alice.handshake("/ws/employee");
    let ((_, mut client), ()) = tokio::join!(End::through(&desk, &shake), accept);
    assert_eq!(client.frame().await, Some(Frame::new(TEXT, b"only this")));
    assert_eq!(client.frame().await.and_then(|frame| frame.close_code()), Some(4321));
}

#[tokio::test]
async fn bytes_behind_the_handshake_arrive_after_the_101() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    for payload in [b"eager".to_vec(), large(20_000)] {
        let early = Frame::new(BINARY, &payload).masked().bytes();
        let mut bytes = alice.handshake("/ws/employee").bytes();
        bytes.extend_from_slice(&early);
        let mut connection = desk.connect().await;
        connection.send(&bytes).await;
        let mut visit = visits.next().await;
        assert!(
            visit.end.is_silent_for(Duration::from_millis(200)).await,
            "an upstream that has not switched protocols would read this as a request"
        );
        visit.accept(b"").await;
        connection.answer().await.expect("an answer").expect_status(101);
        assert!(visit.end.exactly(early.len()).await == early, "{} bytes", payload.len());
    }
}

#[tokio::test]
async fn an_upstream_that_refuses_the_upgrade_opens_no_tunnel() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for (status, answer) in [
        (200, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Own: kept\r\n\r\nhello"),
        (200, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Own: kept\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        (401, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\nX-Own: kept\r\n\r\nhello"),
        (404, "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nX-Own: kept\r\n\r\nhello"),
        (503, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\nX-Own: kept\r\n\r\nhello"),
    ] {
        let mut visits = Visits::at(&desk.upstream);
        let mut bytes = alice.handshake("/ws/employee").bytes();
        let early = Frame::new(TEXT, b"GET /public/smuggled HTTP/1.1\r\nHost: a\r\n\r\n").bytes();
        bytes.extend_from_slice(&early);
        let mut connection = desk.connect().await;
        connection.send(&bytes).await;
        let mut visit = visits.next().await;
        visit.end.send(answer.as_bytes()).await;
        let relayed = connection.answer().await.expect("an answer").expect_status(status);
        assert_eq!((relayed.text().as_str(), relayed.header("x-own")), ("hello", Some("kept")));
        assert!(relayed.header("x-request-id").is_some(), "{}", relayed.describe());
        let mut client = End::of(connection);
        client.try_send(b"GET /public/smuggled HTTP/1.1\r\nHost: a\r\n\r\n").await.ok();
        assert_eq!(client.rest_within(PATIENCE).await, b"", "{status}: the connection is closed");
        let seen = visit.end.rest_or_silence(Duration::from_millis(200)).await;
        assert_eq!(seen, b"", "{status}: nothing went on to the upstream");
    }
    assert!(desk.upstream.requests().iter().all(|seen| seen.target == "/ws/employee"));
}

#[tokio::test]
async fn an_upstream_that_never_answers_the_handshake_is_1504() {
    let desk = Gateway::with("[websocket]\nhandshake = \"300ms\"").await;
    let alice = desk.sign_in("u1001").await;
    desk.upstream.behave(Behaviour::Hang);
    refusal(alice.handshake("/ws/employee")).await.expect_code(1504);
    desk.upstream.behave(Behaviour::HangUp);
    refusal(alice.handshake("/ws/employee")).await.expect_code(1502);
    desk.upstream.behave(Behaviour::AnswerAndClose(b"nonsense\r\n\r\n".to_vec()));
    refusal(alice.handshake("/ws/employee")).await.expect_code(1502);
    desk.upstream.behave(Behaviour::Echo);
    alice.websocket("/ws/employee").await.echo("hello").await;
}

#[tokio::test]
async fn an_upstream_that_stalls_while_it_declines_is_1504() {
    let desk = Gateway::with("[websocket]\nhandshake = \"500ms\"").await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let stall = async {
        let mut visit = visits.next().await;
        visit.end.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
        visit
    };
    let began = Instant::now();
    let (answer, mut visit) = tokio::join!(refusal(alice.handshake("/ws/employee")), stall);
    answer.expect_code(1504);
    assert!(began.elapsed() < Duration::from_secs(5), "after {:?}", began.elapsed());
    visit.end.rest_within(PATIENCE).await;
    eventually("no open socket", || async {
        (desk.metric("deskgate_websockets_open", &[]).await == 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn open_sockets_take_their_places_among_the_allowed_connections() {
    let desk = Gateway::with("[limits]\nconnections = 3").await;
    let alice = desk.sign_in("u1001").await;
    let mut sockets = Vec::new();
    for _ in 0..3 {
        let mut socket = alice.websocket("/ws/employee").await;
        socket.echo("hello").await;
        sockets.push(socket);
    }
    let mut fourth = End::of(desk.connect().await);
    fourth.send(format!("GET /public/x HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).as_bytes()).await;
    assert!(fourth.is_silent_for(Duration::from_millis(500)).await, "a fourth connection is served");
    for socket in &mut sockets {
        socket.echo("still here").await;
    }
    assert!(desk.upstream.requests().iter().all(|seen| seen.target == "/ws/employee"));
    sockets.pop();
    fourth.until(b"HTTP/1.1 200 OK\r\n").await;
}

#[tokio::test]
async fn an_idle_socket_outlives_every_timeout_of_requests() {
    let desk = Gateway::setup()
        .toml("[limits]\nidle = \"1s\"\nhead_deadline = \"500ms\"")
        .toml("[websocket]\nhandshake = \"500ms\"")
        .toml("[upstreams.helpdesk]\nanswer_timeout = \"500ms\"\nidle = \"500ms\"")
        .start()
        .await;
    let alice = desk.sign_in("u1001").await;
    let mut socket = alice.websocket("/ws/employee").await;
    socket.echo("before").await;
    // Time passes: connections without a request come and are closed.
    for _ in 0..2 {
        assert!(desk.connect().await.closes_within(Duration::from_secs(8)).await);
    }
    socket.echo("after").await;
}

// ---- How it ends.

#[tokio::test]
async fn close_frames_pass_both_ways() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for code in [1000, 1001, 3000, 4999] {
        let mut socket = alice.websocket("/ws/employee").await;
        socket.echo("hello").await;
        let farewell = CloseFrame { code: CloseCode::from(code), reason: "bye".into() };
        socket.send_message(Message::Close(Some(farewell))).await;
        assert_eq!(socket.closed_within(PATIENCE).await, Some(code), "the upstream's answer");
        assert_eq!(desk.upstream.events().last(), Some(&SocketEvent::Closed(Some(code))));
    }
    let mut visits = Visits::at(&desk.upstream);
    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    let farewell = Frame::new(CLOSE, b"\x10\xe1because").bytes();
    upstream.send(&farewell).await;
    assert_eq!(client.exactly(farewell.len()).await, farewell, "code and reason");
    let answer = Frame::new(CLOSE, b"\x10\xe1").masked().bytes();
    client.send(&answer).await;
    assert_eq!(upstream.exactly(answer.len()).await, answer, "the client's answer");
    drop(upstream);
    assert_eq!(client.rest_within(PATIENCE).await, b"");
}

#[tokio::test]
async fn the_end_of_one_side_is_the_end_of_the_other() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let shake = alice.handshake("/ws/employee");

    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &shake).await;
    let last = Frame::new(TEXT, b"last words").bytes();
    upstream.send(&last).await;
    drop(upstream);
    assert_eq!(client.rest_within(PATIENCE).await, last, "the upstream went");

    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &shake).await;
    let last = Frame::new(TEXT, b"last words").masked().bytes();
    client.send(&last).await;
    drop(client);
    assert_eq!(upstream.rest_within(PATIENCE).await, last, "the client went");

    let (mut client, upstream) = tunnel(&desk, &mut visits, &shake).await;
    upstream.reset();
    assert_eq!(client.rest_within(PATIENCE).await, b"", "the upstream was reset");
    let (client, mut upstream) = tunnel(&desk, &mut visits, &shake).await;
    client.reset();
    assert_eq!(upstream.rest_within(PATIENCE).await, b"", "the client was reset");
    eventually("no open sockets", || async {
        (desk.metric("deskgate_websockets_open", &[]).await == 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn logout_closes_an_idle_socket_with_4401_at_once() {
    let desk = Gateway::start().await;
    let mut times = Vec::new();
    for _ in 0..10 {
        let alice = desk.sign_in("u1001").await;
        let mut socket = alice.websocket("/ws/employee").await;
        alice.post("/api/auth/logout").await.expect_code(0);
        let answered = Instant::now();
        assert_eq!(socket.closed_within(Duration::from_secs(1)).await, Some(4401));
        times.push(answered.elapsed());
        assert_eq!(socket.ends_within(CUT).await, Some(Ending::Cut), "and then the connection ends");
    }
    within_the_bound(times);
    eventually("an upstream that knows", || async {
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

#[tokio::test]
async fn logout_closes_twenty_sockets_at_once() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let other = desk.sign_in("u1001").await;
    let mut sockets = Vec::new();
    for _ in 0..20 {
        let mut socket = alice.websocket("/ws/employee").await;
        socket.echo("hello").await;
        sockets.push(socket);
    }
    assert_eq!(desk.metric("deskgate_websockets_open", &["rule=\"employee socket\""]).await, 20.0);
    let mut bystander = other.websocket("/ws/employee").await;
    alice.post("/api/auth/logout").await.expect_code(0);
    let answered = Instant::now();
    let endings = sockets.iter_mut().map(|socket| async move {
        assert_eq!(socket.closed_within(Duration::from_secs(1)).await, Some(4401));
        answered.elapsed()
    });
    let times: Vec<Duration> = futures::future::join_all(endings).await;
    within_the_bound(times);
    bystander.echo("another session goes on").await;
}

#[tokio::test]
async fn logout_closes_a_busy_socket_between_two_frames() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    let piece = Frame::new(BINARY, &large(10_000)).bytes();
    let flood = tokio::spawn(async move { while upstream.try_send(&piece).await.is_ok() {} });
    let mut read = 0;
    while read < 50 {
        assert_eq!(client.frame().await.expect("a frame").payload.len(), 10_000);
        read += 1;
    }
    let logout = alice.post("/api/auth/logout");
    // Every frame on the way to the end is whole, and the last one says why.
    let reading = async {
        loop {
            let frame = client.frame().await.expect("a close frame before the end");
            if frame.opcode == CLOSE {
                return frame.close_code();
            }
            assert_eq!(frame.payload.len(), 10_000);
        }
    };
    let (answer, code) = tokio::join!(logout, within(PATIENCE, "the close frame", reading));
    answer.expect_code(0);
    assert_eq!(code, Some(4401));
    within(PATIENCE, "the end of the flood", flood).await.expect("a cut stream");
}

#[tokio::test]
async fn logout_in_the_middle_of_a_message_cuts() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    let whole = Frame::new(BINARY, &large(1 << 20)).bytes();
    let half = &whole[..1 << 19];
    upstream.send(half).await;
    assert!(client.exactly(half.len()).await == half);
    alice.post("/api/auth/logout").await.expect_code(0);
    // A close frame here would be read as part of the message.
    assert_eq!(client.rest_within(CUT).await, b"", "nothing but the end");
    upstream.rest_within(CUT).await;
}

#[tokio::test]
async fn logout_in_the_middle_of_a_message_waits_for_its_end() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    let whole = Frame::new(BINARY, &large(1 << 18)).bytes();
    let (half, rest) = whole.split_at(1 << 17);
    upstream.send(half).await;
    assert!(client.exactly(half.len()).await == half);
    alice.post("/api/auth/logout").await.expect_code(0);
    upstream.send(rest).await;
    assert!(client.exactly(rest.len()).await == rest, "the rest of the frame");
    assert_eq!(client.frame().await.and_then(|frame| frame.close_code()), Some(4401));
}

#[tokio::test]
async fn logout_cuts_a_client_that_does_not_read() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let (_client, mut upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    let flood = Frame::new(BINARY, &large(1 << 20)).bytes();
    upstream.send_until_stuck(&flood, 64 << 20).await;
    alice.post("/api/auth/logout").await.expect_code(0);
    upstream.rest_within(CUT).await;
    eventually("no open sockets", || async {
        (desk.metric("deskgate_websockets_open", &[]).await == 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn nothing_passes_after_the_close_frame() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let (mut client, mut upstream) = tunnel(&desk, &mut visits, &alice.handshake("/ws/employee")).await;
    alice.post("/api/auth/logout").await.expect_code(0);
    assert_eq!(client.frame().await.and_then(|frame| frame.close_code()), Some(4401));
    client.try_send(&Frame::new(TEXT, b"too late").masked().bytes()).await.ok();
    upstream.try_send(&Frame::new(TEXT, b"too late").bytes()).await.ok();
    assert_eq!(client.rest_within(CUT).await, b"", "to the client");
    let told = upstream.rest_within(CUT).await;
    assert!(!told.windows(8).any(|window| window == b"too late"), "to the upstream");
    if let Some((frame, _)) = Frame::parse(&told) {
        assert_eq!(frame.opcode, CLOSE, "{frame:?}");
        assert!(frame.mask.is_some(), "whatever comes from a client's side is masked");
        assert!(frame.last);
    }
}

#[tokio::test]
async fn an_expired_token_closes_its_sockets_with_4401() {
    let desk = Gateway::with("[token]\nlifetime = \"2s\"\nleeway = \"0s\"").await;
    let alice = desk.sign_in("u1001").await;
    let began = Instant::now();
    let mut idle = alice.websocket("/ws/employee").await;
    let mut busy = alice.websocket("/ws/employee").await;
    busy.echo("hello").await;
    let mut public = desk.anyone().websocket("/ws/public").await;
    assert_eq!(idle.closed_within(Duration::from_secs(5)).await, Some(4401));
    assert!(began.elapsed() > Duration::from_millis(800), "after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(4), "after {:?}", began.elapsed());
    assert_eq!(busy.closed_within(Duration::from_secs(1)).await, Some(4401));
    refusal(alice.handshake("/ws/employee")).await.expect_invalid_token();
    public.echo("nobody's token").await;
}

#[tokio::test]
async fn a_role_that_was_taken_closes_the_sockets_that_need_it_with_4403() {
    let desk = Gateway::start().await;
    let (anton, mara) = (desk.sign_in("a2001").await, desk.sign_in("m5001").await);
    mara.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(0);
    let mut needs_it = anton.websocket("/ws/agent").await;
    let mut needs_none = anton.websocket("/ws/employee").await;
    let mut somebody_else = mara.websocket("/ws/agent").await;
    for socket in [&mut needs_it, &mut needs_none, &mut somebody_else] {
        socket.echo("hello").await;
    }
    let output = desk.command(&["role", "take", "a2001", "agent"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(needs_it.closed_within(Duration::from_secs(1)).await, Some(4403));
    needs_none.echo("this one needs no role").await;
    somebody_else.echo("not mine").await;
    refusal(anton.handshake("/ws/agent")).await.expect_code(1003);
    anton.post("/api/auth/logout").await.expect_code(0);
    assert_eq!(needs_none.closed_within(Duration::from_secs(1)).await, Some(4401), "it is still registered");
}

#[tokio::test]
async fn every_way_in_can_be_shut() {
    let desk = Gateway::start().await;
    for place in ["header", "subprotocol", "query"] {
        let alice = desk.sign_in("u1001").await;
        let handshake = match place {
            "header" => {
                desk.anyone().handshake("/ws/employee").header("Authorization", &format!("bearer {}", alice.token()))
            }
            "subprotocol" => alice.handshake("/ws/employee"),
            _ => desk.anyone().handshake(&format!("/ws/employee?token={}", alice.token())),
        };
        let mut socket = handshake.open().await.unwrap_or_else(|answer| panic!("{place}: {}", answer.describe()));
        alice.post("/api/auth/logout").await.expect_code(0);
        assert_eq!(socket.closed_within(Duration::from_secs(1)).await, Some(4401), "{place}");
    }
}

#[tokio::test]
async fn a_handshake_that_races_a_logout_loses() {
    let desk = Gateway::start().await;
    for round in 0..200 {
        let alice = desk.sign_in("u1001").await;
        // One handshake after the other until one is refused: some are under way while the session ends.
        let shakes = || async {
            let mut sockets = Vec::new();
            loop {
                match alice.handshake("/ws/employee").open().await {
                    Ok(socket) => sockets.push(socket),
                    Err(answer) => {
                        answer.expect_invalid_token();
                        return sockets;
                    }
                }
                assert!(sockets.len() < 1000, "round {round}: a logout that never comes to pass");
            }
        };
        let (answer, one, two, three) = tokio::join!(alice.post("/api/auth/logout"), shakes(), shakes(), shakes());
        answer.expect_code(0);
        for mut socket in one.into_iter().chain(two).chain(three) {
            let ending = socket.ends_within(Duration::from_secs(3)).await;
            assert_eq!(ending, Some(Ending::Code(4401)), "round {round}");
        }
    }
    eventually("no open sockets", || async {
        (desk.metric("deskgate_websockets_open", &[]).await == 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_logout_while_the_upstream_thinks_about_the_handshake_wins() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&alice.handshake("/ws/employee").bytes()).await;
    let mut visit = visits.next().await;
    alice.post("/api/auth/logout").await.expect_code(0);
    let accept = async {
        // The gateway may have hung up already: that is as good.
        let key = visit.request.header("sec-websocket-key").expect("a key").to_owned();
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
        let secret = Frame::new(TEXT, b"secret").bytes();
        let mut bytes = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        )
        .into_bytes();
        bytes.extend(secret);
        visit.end.try_send(&bytes).await.ok();
        visit.end.rest_within(PATIENCE).await;
    };
    let client = async {
        let answer = connection.answer().await;
        match answer {
            Some(answer) if answer.status == 101 => {
                let mut client = End::of(connection);
                let frame = client.frame().await.expect("a close frame");
                assert_eq!(frame.close_code(), Some(4401), "{frame:?}");
                assert_eq!(client.rest_within(PATIENCE).await, b"");
            }
            Some(answer) => drop(answer.expect_invalid_token()),
            None => {}
        }
    };
    tokio::join!(accept, client);
}

/// How many handshakes in a row; `DESKGATE_HANDSHAKES` asks for more.
fn handshakes() -> usize {
    std::env::var("DESKGATE_HANDSHAKES").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

#[tokio::test]
async fn no_handshake_is_torn_down() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    // The upstream answers in the moment in which it has read the head.
    for number in 0..handshakes() {
        let mut socket = alice.websocket("/ws/employee").await;
        let text = format!("socket {number}");
        socket.echo(&text).await;
    }
    let greeting = Frame::new(TEXT, b"welcome").bytes();
    desk.upstream.behave(Behaviour::UpgradeWith(greeting));
    let rounds = (0..handshakes() / 10).map(|round| {
        let alice = &alice;
        async move {
            for number in 0..10 {
                let mut socket = alice.websocket("/ws/employee").await;
                assert_eq!(socket.next().await, Some(Message::text("welcome")), "socket {round}.{number}");
                socket.echo("hello").await;
            }
        }
    });
    use futures::StreamExt;
    futures::stream::iter(rounds).buffer_unordered(8).collect::<Vec<()>>().await;
}

#[tokio::test]
async fn open_sockets_are_counted_by_rule() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    let open = async |rule: &str| desk.metric("deskgate_websockets_open", &[&format!("rule=\"{rule}\"")]).await;
    let mut first = anton.websocket("/ws/agent").await;
    let mut second = anton.websocket("/ws/employee").await;
    first.echo("hello").await;
    second.echo("hello").await;
    assert_eq!((open("agent socket").await, open("employee socket").await), (1.0, 1.0));
    drop(first);
    eventually("one socket less", || async { (open("agent socket").await == 0.0).then_some(()) }).await;
    assert_eq!(open("employee socket").await, 1.0);
    second.echo("still here").await;
}
