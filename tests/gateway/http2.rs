//! HTTP/2: the same rules and responses as HTTP/1.1, and limits against hostile frames.

use std::time::{Duration, Instant};

use futures::future::join_all;
use http::HeaderMap;

use crate::support::*;

/// The GOAWAY error code of a flood.
const ENHANCE_YOUR_CALM: u32 = 11;

/// A flood stops when the gateway reads nothing for this long.
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);

async fn start_with_tls() -> Gateway {
    Gateway::setup().tls().start().await
}

/// Fails unless new connections are served within 5 s.
async fn expect_others_served(desk: &Gateway, case: &str) {
    let began = Instant::now();
    let anonymous = desk.anonymous();
    anonymous.get("/api/ready").await.expect_code(0);
    anonymous.http2().await.get("/api/ready").await.expect_code(0);
    assert!(began.elapsed() < Duration::from_secs(5), "{case}: {:?}", began.elapsed());
}

// ---- Well-formed requests.

#[tokio::test]
async fn gateway_endpoints_respond() {
    let desk = start_with_tls().await;
    let anonymous = desk.anonymous().http2().await;
    anonymous.get("/api/ready").await.expect_code(0);
    anonymous.get("/api/auth/qrcode").await.expect_code(0);
    let signed_in =
        anonymous.post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await.expect_code(0).data();
    let token = signed_in["token"].as_str().expect("a token").to_owned();
    let verified = anonymous.post_json("/api/auth/verify", &json!({ "token": token })).await.expect_code(0).data();
    assert_eq!((&verified["valid"], &verified["employee_id"]), (&json!(true), &json!("u1001")));

    let xiaoming = desk.with_token(&token).http2().await;
    let me = xiaoming.get("/api/auth/me").await.expect_code(0);
    assert_eq!(me.data()["employee_id"], "u1001");
    assert_eq!(me.header("cache-control"), Some("no-store"));
    xiaoming.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
    xiaoming.send("POST", "/api/auth/logout", &[], b"").await.expect_code(0);
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    desk.with_token(&token).get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn upstream_gets_an_http1_request_with_identity_headers() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await;
    let streams = xiaoming.http2().await;
    let response = streams.post_json("/api/desk/x?a=1", &json!({ "hello": "world" })).await.expect_status(200);
    let seen = desk.upstream.only_request();
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/api/desk/x?a=1"));
    assert!(seen.head.starts_with(b"POST /api/desk/x?a=1 HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&seen.head));
    assert_eq!(seen.body, br#"{"hello":"world"}"#);
    let address = desk.address().to_string();
    for (name, value) in [
        ("host", address.as_str()),
        ("x-forwarded-host", &address),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-deskgate-employee-id", "u1001"),
        ("x-deskgate-current-role", "user"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    for name in ["x-deskgate-assertion", "x-deskgate-session-id", "traceparent"] {
        assert!(seen.header(name).is_some(), "no {name}:\n{}", String::from_utf8_lossy(&seen.head));
    }
    assert_eq!(seen.header("x-request-id"), response.header("x-request-id"));
    assert!(!String::from_utf8_lossy(&seen.head).contains(xiaoming.token()), "the token reached the upstream");
}

#[tokio::test]
async fn all_rule_methods_are_forwarded() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await.http2().await;
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        desk.upstream.clear_requests();
        let response = xiaoming.send(method, "/api/desk/x", &[], b"").await.expect_status(200);
        assert_eq!(desk.upstream.only_request().method, method);
        assert_eq!(response.body.is_empty(), method == "HEAD", "{}", response.describe());
    }
}

#[tokio::test]
async fn look_alike_identity_headers_are_stripped() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await;
    let forged = [
        ("x-deskgate-employee-id", "admin"),
        ("x-deskgate-roles", "admin"),
        ("x-deskgate-new", "forged"),
        ("x_deskgate_employee_id", "admin"),
        ("x-deskgate_current-role", "admin"),
        ("x.deskgate.roles", "admin"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-user", "admin"),
        ("x-original-url", "/api/admin-desk/x"),
        ("forwarded", "for=10.0.0.1"),
    ];
    for (client, target, employee) in
        [(xiaoming.clone(), "/api/desk/x", Some("u1001")), (desk.anonymous(), "/public/x", None)]
    {
        desk.upstream.clear_requests();
        client.http2().await.send("GET", target, &forged, b"").await.expect_status(200);
        let seen = desk.upstream.only_request();
        let head = String::from_utf8_lossy(&seen.head).into_owned();
        assert_eq!(seen.header("x-deskgate-employee-id"), employee, "{head}");
        assert_eq!(seen.header("x-forwarded-proto"), Some("https"), "{head}");
        assert!(seen.headers.iter().all(|(name, _)| !name.contains(['_', '.'])), "{head}");
        for word in ["admin", "forged", "for=10"] {
            let found = seen.headers.iter().any(|(_, value)| value.contains(word));
            assert!(!found, "{target}: {word} in\n{head}");
        }
    }
    assert!(desk.metric("deskgate_identity_headers_removed_total", &[]).await >= 6.0);
}

#[tokio::test]
async fn identity_headers_in_trailers_are_dropped() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await.http2().await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-deskgate-employee-id", "admin".parse().expect("a value"));
    trailers.insert("x-deskgate-roles", "admin".parse().expect("a value"));
    xiaoming
        .try_send("POST", "/api/desk/x", &[], b"hello", Some(trailers))
        .await
        .expect("a response")
        .expect_status(200);
    assert_eq!(desk.upstream.only_request().body, b"hello");
    let all = String::from_utf8_lossy(&desk.upstream.all_bytes()).into_owned();
    assert!(!all.contains("admin"), "{all}");
}

#[tokio::test]
async fn cookie_fields_are_joined_for_the_upstream() {
    let desk = start_with_tls().await;
    let anonymous = desk.anonymous().http2().await;
    anonymous.send("GET", "/public/x", &[("cookie", "a=1"), ("cookie", "b=2")], b"").await.expect_status(200);
    assert_eq!(desk.upstream.only_request().header_all("cookie"), ["a=1; b=2"], "RFC 9113, section 8.2.3");
}

#[tokio::test]
async fn bodies_are_relayed_complete_both_ways() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await.http2().await;
    let body: Vec<u8> = (0..700_000).map(|index: usize| b'a' + (index * 7 % 26) as u8).collect();
    let length = body.len().to_string();
    for headers in [&[("content-length", length.as_str())][..], &[]] {
        desk.upstream.clear_requests();
        let response = xiaoming.send("POST", "/api/desk/x", headers, &body).await.expect_status(200);
        assert!(desk.upstream.only_request().body == body, "{headers:?}: to the upstream");
        assert!(
            response.json()["body"].as_str().is_some_and(|echo| echo.as_bytes() == body),
            "{headers:?}: to the client"
        );
    }
}

#[tokio::test]
async fn refusals_match_http1() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await;
    let (anonymous, forged) = (desk.anonymous(), desk.with_token("a.b.c"));
    for (case, client, method, target, code) in [
        ("no token", &anonymous, "GET", "/api/desk/x", 1001),
        ("no token at a gateway endpoint", &anonymous, "GET", "/api/auth/me", 1001),
        ("an invalid token", &forged, "GET", "/api/desk/x", 1001),
        ("a role not held", &xiaoming, "GET", "/api/admin-desk/x", 1003),
        ("no rule", &xiaoming, "GET", "/nowhere", 1404),
        ("no rule, no token", &anonymous, "GET", "/nowhere", 1404),
        ("a method that the rule does not name", &xiaoming, "POST", "/api/read-only/x", 1405),
        ("a method that the endpoint does not have", &xiaoming, "DELETE", "/api/auth/me", 1405),
        ("TRACE", &xiaoming, "TRACE", "/api/desk/x", 1405),
        ("an unknown method", &xiaoming, "BREW", "/api/desk/x", 1405),
        ("a parent segment", &xiaoming, "GET", "/public/../api/admin-desk/x", 1400),
        ("an encoded parent segment", &xiaoming, "GET", "/public/%2e%2e/api/admin-desk/x", 1400),
        ("an encoded slash", &xiaoming, "GET", "/public/a%2fb", 1400),
        ("an encoded backslash", &xiaoming, "GET", "/public/a%5cb", 1400),
        ("two slashes", &xiaoming, "GET", "/public//x", 1400),
        ("an encoded NUL", &xiaoming, "GET", "/public/%00", 1400),
        ("an invalid escape", &xiaoming, "GET", "/public/%zz", 1400),
        ("invalid UTF-8", &xiaoming, "GET", "/public/%ff", 1400),
    ] {
        let http1 = client.send(method, target, &[], b"").await.expect_code(code);
        let http2 = client.http2().await.send(method, target, &[], b"").await.expect_code(code);
        assert_eq!(http2.message(), http1.message(), "{case}");
        for name in ["www-authenticate", "allow", "cache-control", "content-type"] {
            assert_eq!(http2.header(name), http1.header(name), "{case}: {name}");
        }
    }
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn repeated_security_headers_are_refused() {
    let desk = start_with_tls().await;
    let (one, two) = (desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    let second = format!("Bearer {}", two.token());
    let streams = one.http2().await;
    streams.send("GET", "/api/desk/x", &[("authorization", &second)], b"").await.expect_code(1400);
    streams.send("GET", "/api/desk/x", &[("expect", "nonsense")], b"").await.expect_status(417);
    assert!(desk.upstream.requests().is_empty());
    streams.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn every_response_has_its_own_request_id() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await.http2().await;
    let mut ids = std::collections::BTreeSet::new();
    for target in ["/api/desk/x", "/public/x", "/api/auth/me", "/nowhere", "/public/../x", "/api/admin-desk/x"] {
        for _ in 0..3 {
            let response = xiaoming.get(target).await;
            let id = response.header("x-request-id").unwrap_or_else(|| panic!("no id: {}", response.describe()));
            assert!(ids.insert(id.to_owned()), "{id} twice");
        }
    }
    let response = xiaoming.send("GET", "/api/auth/me", &[("x-request-id", "from-a-trusted-peer")], b"").await;
    assert_eq!(response.header("x-request-id"), Some("from-a-trusted-peer"));
}

#[tokio::test]
async fn hundred_streams_run_concurrently() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await.http2().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let requests = join_all((0..100).map(|number| {
        let xiaoming = &xiaoming;
        async move { (number, xiaoming.get(&format!("/api/desk/{number}")).await) }
    }));
    // The upstream answers none before all have arrived.
    let responses = async {
        let mut waiting = Vec::new();
        for _ in 0..100 {
            waiting.push(upstream_connections.next().await);
        }
        for upstream_connection in waiting.iter_mut().rev() {
            let body = upstream_connection.request.target.clone();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            upstream_connection.stream.send(response.as_bytes()).await;
        }
        waiting
    };
    let (responses, _upstream) = tokio::join!(requests, responses);
    for (number, response) in responses {
        assert_eq!(response.expect_status(200).text(), format!("/api/desk/{number}"), "the response of another stream");
    }
}

#[tokio::test]
async fn each_stream_is_authorized_separately() {
    let desk = start_with_tls().await;
    let (xiaoming, alice) = (desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    let bearer = |client: &Client| format!("Bearer {}", client.token());
    let streams = desk.anonymous().http2().await;
    let (xiaomings, alices) = (bearer(&xiaoming), bearer(&alice));
    for _ in 0..10 {
        for (authorization, employee) in [(&xiaomings, "u1001"), (&alices, "a2001")] {
            streams.send("GET", "/api/desk/x", &[("authorization", authorization)], b"").await.expect_status(200);
            assert_eq!(desk.upstream.last_request().header("x-deskgate-employee-id"), Some(employee));
        }
        streams.get("/api/desk/x").await.expect_bare_challenge();
    }
}

#[tokio::test]
async fn drain_sends_goaway_and_finishes_open_streams() {
    let mut desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut streams = xiaoming.http2().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let upstream = async {
        let mut upstream_connection = upstream_connections.next().await;
        desk.signal("TERM");
        // Streams that cross the GOAWAY are served; later ones are the client's to send elsewhere.
        eventually("a GOAWAY", || async { streams.try_send("GET", "/api/ready", &[], b"", None).await.err() }).await;
        upstream_connection.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
        upstream_connection
    };
    let (response, _upstream) = tokio::join!(streams.get("/api/desk/x"), upstream);
    assert_eq!(response.expect_status(200).text(), "done");
    streams.wait_for_end().await;
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn upstream_failure_is_1502_and_ends_only_its_stream() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await.http2().await;
    for _ in 0..5 {
        desk.upstream.set_behaviour(Behaviour::CloseWithoutResponse);
        xiaoming.get("/api/desk/x").await.expect_code(1502);
        desk.upstream.set_behaviour(Behaviour::RespondAndClose(b"nonsense\r\n\r\n".to_vec()));
        xiaoming.get("/api/desk/x").await.expect_code(1502);
        desk.upstream.set_behaviour(Behaviour::Echo);
        xiaoming.get("/api/desk/x").await.expect_status(200);
    }
}

// ---- Size limits.

#[tokio::test]
async fn oversized_heads_are_refused() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await.http2().await;
    let (large, larger) = ("x".repeat(40_000), "x".repeat(72_000));
    xiaoming.send("GET", "/api/desk/x", &[("x-large", &large)], b"").await.expect_code(1431);
    xiaoming.send("GET", "/api/desk/x", &[("x-large", &larger)], b"").await.expect_status(431);
    let names: Vec<String> = (0..110).map(|number| format!("x-line-{number}")).collect();
    let lines: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    xiaoming.send("GET", "/api/desk/x", &lines, b"").await.expect_code(1431);
    let target = |length: usize| format!("/api/desk/?{}", "x".repeat(length - "/api/desk/?".len()));
    for length in [16_385, 33_000, 60_000] {
        xiaoming.get(&target(length)).await.expect_code(1414);
    }
    xiaoming.get(&format!("/api/desk/{}", "x".repeat(8_192))).await.expect_code(1414);
    assert!(desk.upstream.requests().is_empty());
    xiaoming.get(&target(16_384)).await.expect_status(200);
    xiaoming.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn head_limit_is_configurable() {
    let desk = Gateway::setup().tls().toml("[limits]\nhead_bytes = 200000").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let (within_limit, above_limit) = ("x".repeat(150_000), "x".repeat(210_000));
    let streams = xiaoming.http2().await;
    streams.send("GET", "/api/desk/x", &[("x-large", &within_limit)], b"").await.expect_status(200);
    assert!(desk.upstream.only_request().header("x-large").is_some_and(|value| value == within_limit));
    streams.send("GET", "/api/desk/x", &[("x-large", &above_limit)], b"").await.expect_code(1431);
    xiaoming.with_header("x-large", &above_limit).get("/api/desk/x").await.expect_code(1431);
}

#[tokio::test]
async fn oversized_body_for_a_gateway_endpoint_is_1413() {
    let desk = start_with_tls().await;
    let anonymous = desk.anonymous().http2().await;
    let body = json!({ "token": "x".repeat(200_000) });
    anonymous.post_json("/api/auth/verify", &body).await.expect_code(1413);
    let length = body.to_string().len().to_string();
    let headers = [("content-type", "application/json"), ("content-length", length.as_str())];
    anonymous.send("POST", "/api/auth/verify", &headers, body.to_string().as_bytes()).await.expect_code(1413);
    anonymous.get("/api/ready").await.expect_code(0);
}

// ---- Malformed requests (attack 87).

#[tokio::test]
async fn malformed_requests_are_reset() {
    let desk = start_with_tls().await;
    let address = desk.address().to_string();
    let get = || HeaderBlock::get(&desk, "/public/x");
    let pseudo =
        |fields: &[(&str, &str)]| fields.iter().fold(HeaderBlock::default(), |block, (n, v)| block.field(n, v));
    for (case, block) in [
        ("transfer-encoding", get().field("transfer-encoding", "chunked")),
        ("connection", get().field("connection", "close")),
        ("connection that names an identity header", get().field("connection", "x-deskgate-employee-id")),
        ("keep-alive", get().field("keep-alive", "timeout=5")),
        ("proxy-connection", get().field("proxy-connection", "close")),
        ("upgrade", get().field("upgrade", "websocket")),
        ("te other than trailers", get().field("te", "gzip")),
        ("an upper-case name", get().field("X-Upper", "x")),
        ("an upper-case identity header", get().field("X-Deskgate-Roles", "admin")),
        ("a line break in a value", get().field("x-a", "a\r\nx-deskgate-roles: admin")),
        ("a bare CR in a value", get().field("x-a", "a\rb")),
        ("a bare LF in a value", get().field("x-a", "a\nb")),
        ("a NUL in a value", get().field("x-a", "a\0b")),
        ("a line break in a name", get().field("x-a\r\nx-b", "a")),
        ("a colon in a name", get().field("x-a: b", "a")),
        ("a space in a name", get().field("x a", "a")),
        ("an empty name", get().field("", "a")),
        ("a length without a body", get().field("content-length", "5")),
        ("a malformed length", get().field("content-length", "+0")),
        ("two different lengths", get().field("content-length", "0").field("content-length", "1")),
        ("a line break in the path", HeaderBlock::get(&desk, "/public/x\r\nHost: evil")),
        ("a space in the path", HeaderBlock::get(&desk, "/public/x HTTP/1.1")),
        ("an empty path", HeaderBlock::get(&desk, "")),
        ("a line break in the method", HeaderBlock::of(&desk, "GET /x HTTP/1.1\r\nx:", "/public/x")),
        ("two paths", get().field(":path", "/public/y")),
        (
            "a pseudo-header after a header",
            pseudo(&[
                (":method", "GET"),
                (":scheme", "https"),
                ("x-a", "b"),
                (":authority", &address),
                (":path", "/public/x"),
            ]),
        ),
        ("an unknown pseudo-header", get().field(":unknown", "x")),
        ("a response pseudo-header", get().field(":status", "200")),
        ("no method", pseudo(&[(":scheme", "https"), (":authority", &address), (":path", "/public/x")])),
        ("no path", pseudo(&[(":method", "GET"), (":scheme", "https"), (":authority", &address)])),
        ("no scheme", pseudo(&[(":method", "GET"), (":authority", &address), (":path", "/public/x")])),
    ] {
        let mut frames = Http2Connection::open(&desk).await;
        frames.send(&Http2Frame::request(1, &block)).await;
        let reaction = frames.reaction(1).await;
        assert!(matches!(reaction, PeerReaction::Reset(_) | PeerReaction::GoAway(_)), "{case}: {reaction:?}");
        assert!(desk.upstream.requests().is_empty(), "{case}: {:#?}", desk.upstream.requests());
    }
    let mut frames = Http2Connection::open(&desk).await;
    frames.send(&Http2Frame::request(1, &get().field("te", "trailers").field("content-length", "0"))).await;
    assert_eq!(frames.reaction(1).await, PeerReaction::Responded, "a well-formed request");
    assert_eq!(desk.upstream.only_request().target, "/public/x");
}

#[tokio::test]
async fn content_length_mismatch_is_reset() {
    let desk = start_with_tls().await;
    for (case, declared, body) in [("shorter", "5", &b"abc"[..]), ("longer", "3", b"abcde"), ("none", "5", b"")] {
        let block = HeaderBlock::of(&desk, "POST", "/public/x").field("content-length", declared);
        for separately in [false, true] {
            desk.upstream.clear_requests();
            let mut frames = Http2Connection::open(&desk).await;
            let (head, data) = (Http2Frame::head(1, &block), Http2Frame::last_data(1, body));
            if separately {
                frames.send(&head).await;
                frames.send(&data).await;
            } else {
                frames.send_all(&[head, data]).await;
            }
            let reaction = frames.reaction(1).await;
            assert!(matches!(reaction, PeerReaction::Reset(_) | PeerReaction::GoAway(_)), "{case}: {reaction:?}");
            // The gateway may have forwarded the head before the mismatch showed, but never a complete request.
            let complete =
                |seen: &RecordedRequest| seen.header("content-length") == Some(seen.body.len().to_string().as_str());
            assert!(!desk.upstream.requests().iter().any(complete), "{case}: {:#?}", desk.upstream.requests());
        }
    }
    for declared in ["5", "3000"] {
        let block = HeaderBlock::of(&desk, "POST", "/api/auth/verify")
            .field("content-type", "application/json")
            .field("content-length", declared);
        let mut frames = Http2Connection::open(&desk).await;
        frames.send_all(&[Http2Frame::head(1, &block), Http2Frame::last_data(1, br#"{"token":"x"}"#)]).await;
        let reaction = frames.reaction(1).await;
        assert!(matches!(reaction, PeerReaction::Reset(_) | PeerReaction::GoAway(_)), "{declared}: {reaction:?}");
    }
    expect_others_served(&desk, "afterwards").await;
}

#[tokio::test]
async fn host_that_differs_from_authority_is_1400() {
    let desk = start_with_tls().await;
    let anonymous = desk.anonymous().http2().await;
    let address = desk.address().to_string();
    for host in ["evil.example", "127.0.0.1", "127.0.0.1:1", "", "user@127.0.0.1"] {
        let response = anonymous.send("GET", "/public/x", &[("host", host)], b"").await;
        assert_eq!(response.status, 400, "{host}: {}", response.describe());
    }
    anonymous.send("GET", "/public/x", &[("host", &address), ("host", "evil.example")], b"").await.expect_status(400);
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
    anonymous.send("GET", "/public/x", &[("host", &address)], b"").await.expect_status(200);
    assert_eq!(desk.upstream.only_request().header("host"), Some(address.as_str()));
}

#[tokio::test]
async fn absolute_url_in_path_is_refused() {
    let desk = start_with_tls().await;
    for target in ["https://evil.example/public/x", "*", "public/x", "\\public\\x"] {
        let mut frames = Http2Connection::open(&desk).await;
        frames.send(&Http2Frame::request(1, &HeaderBlock::get(&desk, target))).await;
        // The gateway may answer or reset; nothing may reach the upstream.
        frames.reaction(1).await;
        expect_others_served(&desk, target).await;
        assert!(desk.upstream.requests().is_empty(), "{target}: {:#?}", desk.upstream.requests());
    }
}

#[tokio::test]
async fn websockets_and_connect_on_streams_are_refused() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut frames = Http2Connection::open(&desk).await;
    let settings = frames.next().await.expect("settings");
    assert_eq!((settings.kind, settings.flags), (FrameKind::Settings, 0));
    let offered = settings.payload.chunks(6).any(|setting| setting[..2] == [0, 8] && setting[2..] != [0; 4]);
    assert!(!offered, "SETTINGS_ENABLE_CONNECT_PROTOCOL: {settings:?}");

    let extended = HeaderBlock::of(&desk, "CONNECT", "/ws/employee")
        .field(":protocol", "websocket")
        .field("authorization", &format!("Bearer {}", xiaoming.token()))
        .field("sec-websocket-version", "13");
    frames.send(&Http2Frame::head(1, &extended)).await;
    let reaction = frames.reaction(1).await;
    assert!(matches!(reaction, PeerReaction::Reset(_) | PeerReaction::GoAway(_)), "{reaction:?}");

    // A browser's HTTP/1.1 handshake without the headers that HTTP/2 forbids.
    let headers = [("sec-websocket-version", "13"), ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")];
    let response = xiaoming.http2().await.send("GET", "/ws/employee", &headers, b"").await;
    assert_ne!(response.status, 101, "{}", response.describe());
    let protocol = format!("bearer.{}", xiaoming.token());
    let anonymous = desk.anonymous().http2().await;
    anonymous.send("GET", "/ws/employee", &[("sec-websocket-protocol", &protocol)], b"").await.expect_bare_challenge();
    anonymous.get(&format!("/ws/employee?token={}", xiaoming.token())).await.expect_bare_challenge();

    let authority = desk.upstream.address().to_string();
    let mut frames = Http2Connection::open(&desk).await;
    let connect = HeaderBlock::default().field(":method", "CONNECT").field(":authority", &authority);
    frames.send(&Http2Frame::head(1, &connect)).await;
    frames.reaction(1).await;
    assert!(desk.upstream.requests().iter().all(|seen| !seen.is_upgrade() && seen.method == "GET"));
    assert_eq!(desk.metric("deskgate_websockets_open", &[]).await, 0.0);
}

// ---- Floods (attack 88).

#[tokio::test]
async fn rapid_reset_closes_the_connection() {
    let desk = start_with_tls().await;
    let block = HeaderBlock::get(&desk, "/public/x");
    let mut frames = Http2Connection::open(&desk).await;
    let resets: Vec<Http2Frame> = (0..200)
        .map(|number| number * 2 + 1)
        .flat_map(|stream| [Http2Frame::request(stream, &block), Http2Frame::rst_stream_cancel(stream)])
        .collect();
    frames.send_all(&resets).await;
    let reaction = frames.connection_end().await;
    assert_eq!(reaction, PeerReaction::GoAway(ENHANCE_YOUR_CALM));
    assert!(frames.ends_within(TEST_TIMEOUT).await);
    expect_others_served(&desk, "afterwards").await;
    let seen = desk.upstream.requests().len();
    assert!(seen < 100, "{seen} of 200 cancelled requests reached the upstream");
}

#[tokio::test]
async fn streams_above_the_limit_are_refused() {
    for (settings, most) in [("", 100), ("[limits]\nstreams_per_connection = 20", 20)] {
        let desk = Gateway::setup().tls().toml(settings).start().await;
        desk.upstream.set_behaviour(Behaviour::NeverRespond);
        let block = HeaderBlock::get(&desk, "/public/x");
        let mut frames = Http2Connection::open(&desk).await;
        let many: Vec<Http2Frame> = (0..most + 50).map(|number| Http2Frame::request(number * 2 + 1, &block)).collect();
        frames.send_all(&many).await;
        let reaction = frames.reaction((most + 49) * 2 + 1).await;
        assert!(matches!(reaction, PeerReaction::Reset(_) | PeerReaction::GoAway(_)), "{reaction:?}");
        expect_others_served(&desk, "meanwhile").await;
        let seen = desk.upstream.requests().len();
        assert!(seen <= most as usize, "{seen} of at most {most}");
    }
}

#[tokio::test]
async fn concurrent_requests_of_one_address_are_limited() {
    const MOST: usize = 20;
    let settings = "[limits]\nconnections_per_address = 20\n[server]\ntrusted_proxies = []";
    let desk = Gateway::setup().tls().toml(settings).start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let clients = [desk.anonymous().http2().await, desk.anonymous().http2().await];
    let mut waiting = Vec::new();
    for number in 0..MOST {
        let method = if number % 2 == 0 { "GET" } else { "POST" };
        let sending = clients[number / (MOST / 2)].send(method, "/public/x", &[], b"");
        let mut sending = Box::pin(sending);
        let upstream = tokio::select! {
            response = &mut sending => panic!("{response:?}"),
            upstream = upstream_connections.next() => upstream,
        };
        waiting.push((sending, upstream));
    }
    for client in &clients {
        let refused = client.get("/public/x").await.expect_status(429);
        assert_eq!(refused.code(), 1429);
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(desk.metric("deskgate_limit_reached_total", &["limit=\"streams_per_address\""]).await, 2.0);
    for (sending, mut upstream) in waiting {
        upstream.stream.send(&ok_response("", b"done")).await;
        sending.await.expect_status(200);
    }
    desk.upstream.set_behaviour(Behaviour::Echo);
    clients[0].get("/public/x").await.expect_status(200);
}

#[tokio::test]
async fn provoked_resets_close_the_connection() {
    let desk = start_with_tls().await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    let block = HeaderBlock::of(&desk, "POST", "/public/x");
    let mut frames = Http2Connection::open(&desk).await;
    // A window overflow makes the gateway reset the stream ("MadeYouReset").
    let mut sent = 0;
    for batch in 0..100 {
        let bytes: Vec<u8> = (0..40)
            .map(|number| (batch * 40 + number) * 2 + 1)
            .flat_map(|stream| {
                let overflow = Http2Frame::new(FrameKind::WindowUpdate, 0, stream, &[0x7f, 0xff, 0xff, 0xff]);
                [Http2Frame::head(stream, &block).bytes(), overflow.bytes()].concat()
            })
            .collect();
        sent += frames.flood(&bytes, 1, WRITE_TIMEOUT).await;
    }
    let reaction = frames.connection_end().await;
    assert_eq!(reaction, PeerReaction::GoAway(ENHANCE_YOUR_CALM), "after {sent} batches");
    desk.upstream.set_behaviour(Behaviour::Echo);
    expect_others_served(&desk, "afterwards").await;
}

#[tokio::test]
async fn continuation_flood_closes_the_connection() {
    let desk = start_with_tls().await;
    let before = desk.memory_kib("VmRSS");
    let fragment = HeaderBlock::default().field("x-more", &"x".repeat(900));
    for (case, payload) in [("empty fragments", &[][..]), ("large fragments", &fragment.bytes)] {
        let mut frames = Http2Connection::open(&desk).await;
        let block = HeaderBlock::get(&desk, "/public/x");
        frames.send(&Http2Frame::new(FrameKind::Headers, END_STREAM, 1, &block.bytes)).await;
        let continuation = Http2Frame::new(FrameKind::Continuation, 0, 1, payload).bytes();
        let sent = frames.flood(&continuation, 20_000, WRITE_TIMEOUT).await;
        let reaction = frames.connection_end().await;
        assert!(
            matches!(reaction, PeerReaction::GoAway(_) | PeerReaction::Disconnected),
            "{case}: {reaction:?} after {sent}"
        );
        expect_others_served(&desk, case).await;
    }
    assert!(desk.upstream.requests().is_empty());
    let growth = desk.memory_kib("VmRSS").saturating_sub(before);
    assert!(growth < 16 * 1024, "{growth} KiB");
}

#[tokio::test]
async fn hpack_bomb_is_refused() {
    let desk = start_with_tls().await;
    let before = desk.memory_kib("VmRSS");
    let mut frames = Http2Connection::open(&desk).await;
    // 12 KB on the wire decode to 40 MB of fields.
    for number in 0..20 {
        let block =
            HeaderBlock::get(&desk, "/public/x").indexed_field("x-bomb", &"x".repeat(3_500)).repeat_newest(12_000);
        frames.flood(&Http2Frame::request(number * 2 + 1, &block).bytes(), 1, WRITE_TIMEOUT).await;
    }
    frames.reaction(1).await;
    expect_others_served(&desk, "afterwards").await;
    assert!(desk.upstream.requests().is_empty(), "{:?}", desk.upstream.requests().len());
    let growth = desk.memory_kib("VmRSS").saturating_sub(before);
    assert!(growth < 16 * 1024, "{growth} KiB");
}

#[tokio::test]
async fn empty_data_flood_closes_the_connection() {
    let desk = start_with_tls().await;
    let mut frames = Http2Connection::open(&desk).await;
    frames.send(&Http2Frame::head(1, &HeaderBlock::of(&desk, "POST", "/public/x"))).await;
    let empty = Http2Frame::new(FrameKind::Data, 0, 1, b"").bytes();
    let sent = frames.flood(&empty.repeat(10), 2_000, WRITE_TIMEOUT).await;
    let reaction = frames.connection_end().await;
    assert!(
        matches!(reaction, PeerReaction::GoAway(_) | PeerReaction::Disconnected),
        "{reaction:?} after {sent}0 frames"
    );
    expect_others_served(&desk, "afterwards").await;
    assert!(desk.upstream.requests().iter().all(|seen| seen.body.is_empty()));
}

#[tokio::test]
async fn floods_of_control_frames_close_the_connection() {
    let desk = start_with_tls().await;
    let before = desk.memory_kib("VmRSS");
    let floods = [
        ("pings", Http2Frame::new(FrameKind::Ping, 0, 0, &[7; 8])),
        ("settings", Http2Frame::new(FrameKind::Settings, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("empty settings", Http2Frame::new(FrameKind::Settings, 0, 0, b"")),
        ("window updates", Http2Frame::new(FrameKind::WindowUpdate, 0, 0, &[0, 0, 0, 1])),
        ("priorities", Http2Frame::new(FrameKind::Other(2), 0, 1, &[0, 0, 0, 0, 16])),
        ("frames of an unknown type", Http2Frame::new(FrameKind::Other(0x42), 0, 0, &[7; 8])),
    ];
    for (number, (case, frame)) in floods.iter().enumerate() {
        let mut frames = Http2Connection::open(&desk).await;
        // The client reads nothing meanwhile, so the gateway would have to buffer its replies.
        let thousand = frame.bytes().repeat(1_000);
        let (sent, ()) =
            tokio::join!(frames.flood(&thousand, 200, Duration::from_secs(5)), expect_others_served(&desk, case));
        // The gateway stops reading while its replies wait; now they are read.
        let reaction = frames.connection_end().await;
        assert!(
            matches!(reaction, PeerReaction::GoAway(ENHANCE_YOUR_CALM) | PeerReaction::Disconnected),
            "{case}: {reaction:?} after {sent}"
        );
        expect_others_served(&desk, case).await;
        let growth = desk.memory_kib("VmRSS").saturating_sub(before);
        assert!(growth < 16 * 1024, "{case}: {growth} KiB");
        let floods = desk.metric("deskgate_limit_reached_total", &["limit=\"http2_frames\""]).await;
        assert_eq!(floods, (number + 1) as f64, "{case}");
    }
}

#[tokio::test]
async fn flood_of_control_frames_is_told_to_calm_down() {
    let desk = start_with_tls().await;
    let mut frames = Http2Connection::open(&desk).await;
    let pings = Http2Frame::new(FrameKind::Ping, 1, 0, &[7; 8]).bytes().repeat(20_000);
    frames.send_bytes(&pings).await;
    assert_eq!(frames.connection_end().await, PeerReaction::GoAway(ENHANCE_YOUR_CALM));
    assert!(frames.ends_within(TEST_TIMEOUT).await);
}

#[tokio::test]
async fn client_that_updates_windows_for_every_frame_is_not_cut() {
    let desk = start_with_tls().await;
    let body = byte_pattern(96 << 20);
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response("", &body)));
    let mut frames = Http2Connection::open(&desk).await;
    frames.send(&Http2Frame::request(1, &HeaderBlock::get(&desk, "/public/x"))).await;
    let mut received = 0;
    while received < body.len() {
        let frame = frames.next().await.expect("an open connection");
        assert_ne!(frame.kind, FrameKind::RstStream, "after {received} bytes");
        if frame.kind == FrameKind::Data && !frame.payload.is_empty() {
            received += frame.payload.len();
            let more = u32::try_from(frame.payload.len()).expect("a frame").to_be_bytes();
            let updates = [0, 1].map(|stream| Http2Frame::new(FrameKind::WindowUpdate, 0, stream, &more));
            frames.send_all(&updates).await;
        }
    }
}

#[tokio::test]
async fn malformed_frames_close_the_connection() {
    let desk = start_with_tls().await;
    for (case, frame) in [
        ("a request on stream 0", Http2Frame::request(0, &HeaderBlock::get(&desk, "/public/x"))),
        ("a request on an even stream", Http2Frame::request(2, &HeaderBlock::get(&desk, "/public/x"))),
        ("data on a stream that is not open", Http2Frame::last_data(1, b"x")),
        ("a frame above the maximum size", Http2Frame::new(FrameKind::Ping, 0, 0, &[0; 20_000])),
        ("settings of an invalid length", Http2Frame::new(FrameKind::Settings, 0, 0, &[0; 5])),
        ("a ping of an invalid length", Http2Frame::new(FrameKind::Ping, 0, 0, &[0; 4])),
        ("a continuation without a header block", Http2Frame::new(FrameKind::Continuation, END_HEADERS, 1, b"")),
        ("an undecodable header block", Http2Frame::new(FrameKind::Headers, END_HEADERS | END_STREAM, 1, &[0xff; 40])),
    ] {
        let mut frames = Http2Connection::open(&desk).await;
        frames.send(&frame).await;
        let reaction = frames.connection_end().await;
        assert!(matches!(reaction, PeerReaction::GoAway(_) | PeerReaction::Disconnected), "{case}: {reaction:?}");
    }
    let mut frames = Http2Connection::connect_without_preface(&desk).await;
    frames.send_bytes(b"GET /public/x HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(frames.ends_within(TEST_TIMEOUT).await, "no preface");
    expect_others_served(&desk, "afterwards").await;
    assert!(desk.upstream.requests().is_empty());
}

// ---- Timeouts.

#[tokio::test]
async fn idle_connection_is_closed() {
    let desk = Gateway::setup().tls().toml("[limits]\nidle = \"1s\"").start().await;
    let (mut unused, mut used) = (Http2Connection::open(&desk).await, desk.anonymous().http2().await);
    used.get("/public/x").await.expect_status(200);
    let began = Instant::now();
    used.wait_for_end().await;
    let took = began.elapsed();
    assert!(took > Duration::from_millis(800) && took < Duration::from_secs(5), "{took:?}");
    assert!(unused.ends_within(Duration::from_secs(5)).await, "an unused connection");

    let mut pinging = Http2Connection::open(&desk).await;
    let began = Instant::now();
    // Pings do not count as requests.
    while pinging.flood(&Http2Frame::new(FrameKind::Ping, 0, 0, &[7; 8]).bytes(), 1, WRITE_TIMEOUT).await == 1 {
        assert!(began.elapsed() < Duration::from_secs(8), "kept open by pings");
        if tokio::time::timeout(Duration::from_millis(50), pinging.connection_end()).await.is_ok() {
            break;
        }
    }
}

#[tokio::test]
async fn connection_with_an_open_stream_is_not_idle() {
    let desk = Gateway::setup().tls().toml("[limits]\nidle = \"1s\"").start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let (mut idle, busy) = (desk.anonymous().http2().await, desk.anonymous().http2().await);
    let upstream = async {
        let mut upstream_connection = upstream_connections.next().await;
        idle.wait_for_end().await;
        upstream_connection.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
        upstream_connection
    };
    let (response, _upstream) = tokio::join!(busy.get("/public/x"), upstream);
    assert_eq!(response.expect_status(200).text(), "done");
}

#[tokio::test]
async fn incomplete_head_is_timed_out() {
    let desk = Gateway::setup().tls().toml("[limits]\nidle = \"1s\"\nhead_deadline = \"500ms\"").start().await;
    let mut silent = Http2Connection::connect_without_preface(&desk).await;
    let mut partial_preface = Http2Connection::connect_without_preface(&desk).await;
    partial_preface.send_bytes(b"PRI * HTTP/2.0\r\n").await;
    let mut partial_block = Http2Connection::open(&desk).await;
    partial_block
        .send(&Http2Frame::new(FrameKind::Headers, END_STREAM, 1, &HeaderBlock::get(&desk, "/public/x").bytes))
        .await;
    let mut partial_frame = Http2Connection::open(&desk).await;
    partial_frame.send_bytes(&Http2Frame::request(1, &HeaderBlock::get(&desk, "/public/x")).bytes()[..20]).await;
    let limit = Duration::from_secs(5);
    for (case, frames) in [
        ("no bytes", &mut silent),
        ("an incomplete preface", &mut partial_preface),
        ("an incomplete header block", &mut partial_block),
        ("an incomplete frame", &mut partial_frame),
    ] {
        assert!(frames.ends_within(limit).await, "{case}");
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn stalled_body_for_an_upstream_is_timed_out() {
    let settings = "[upstreams.helpdesk]\nanswer_timeout = \"500ms\"";
    let desk = Gateway::setup().tls().toml(settings).start().await;
    let mut frames = Http2Connection::open(&desk).await;
    frames.send(&Http2Frame::head(1, &HeaderBlock::of(&desk, "POST", "/public/x"))).await;
    let reaction = within(Duration::from_secs(5), "a response", frames.reaction(1)).await;
    assert!(matches!(reaction, PeerReaction::Responded | PeerReaction::Reset(_)), "{reaction:?}");
    expect_others_served(&desk, "afterwards").await;
}

#[tokio::test]
async fn stalled_body_for_a_gateway_endpoint_is_1408() {
    let desk = Gateway::setup().tls().toml("[limits]\nbody_deadline = \"500ms\"").start().await;
    let block = HeaderBlock::of(&desk, "POST", "/api/auth/verify").field("content-type", "application/json");
    let mut frames = Http2Connection::open(&desk).await;
    frames.send(&Http2Frame::head(1, &block)).await;
    let reaction = within(Duration::from_secs(5), "a response", frames.reaction(1)).await;
    assert!(matches!(reaction, PeerReaction::Responded | PeerReaction::Reset(_)), "{reaction:?}");
    expect_others_served(&desk, "afterwards").await;
}
