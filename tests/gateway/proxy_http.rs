//! Section 5, plain HTTP: what the client said is what the upstream hears, and what it answers is what the client gets.

use std::time::Duration;

use crate::support::*;

/// A request as bytes; header lines as they are to stand there, each with its line end.
fn request(desk: &Gateway, line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{line} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", desk.address()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Bytes of which no two stretches are alike.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| ((place / 251) ^ (place * 31)) as u8).collect()
}

/// An answer of an upstream.
fn ok(headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[tokio::test]
async fn request_is_forwarded_unchanged() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (method, target, body) in [
        ("GET", "/api/desk/a", ""),
        ("GET", "/api/desk/a/", ""),
        ("GET", "/api/desk/a?b=c&d=%2F..%2F&e=//&f=/../&g=\\&h", ""),
        ("GET", "/api/desk/a?b=c?d=e", ""),
        ("GET", "/api/desk/caf%C3%A9/%E6%9E%97?q=%E9%9B%A8", ""),
        ("GET", "/api/desk/a:b@c!$&'()*+,=-._~", ""),
        ("POST", "/api/desk/a", "hello"),
        ("POST", "/api/desk/empty", ""),
        ("PUT", "/api/desk/a", "{\"a\":1}"),
        ("PATCH", "/api/desk/a", "\0\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
        ("DELETE", "/api/desk/a", "why"),
        ("DELETE", "/api/desk/a", ""),
        ("OPTIONS", "/api/desk/a", ""),
    ] {
        desk.upstream.clear_requests();
        let response = xiaoming.send(method, target, &[("X-Own", "kept")], body.as_bytes()).await;
        assert_eq!(response.status, 200, "{method} {target}: {}", response.describe());
        let seen = desk.upstream.only_request();
        assert_eq!((seen.method.as_str(), seen.target.as_str()), (method, target));
        assert_eq!(String::from_utf8_lossy(&seen.body), body, "{method} {target}");
        assert_eq!(seen.header("x-own"), Some("kept"), "{method} {target}");
    }
}

#[tokio::test]
async fn response_is_relayed_unchanged() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (status, reason, body) in [
        (200, "OK", "hello"),
        (201, "Created", ""),
        (301, "Moved Permanently", "there"),
        (302, "Found", ""),
        (400, "Bad Request", "not an envelope"),
        (401, "Unauthorized", "the upstream's own business"),
        (403, "Forbidden", "the upstream's own business"),
        (404, "Not Found", "{\"own\":\"error\"}"),
        (418, "I'm a teapot", "short and stout"),
        (500, "Internal Server Error", "oops"),
        (503, "Service Unavailable", "later"),
    ] {
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Length: {}\r\nContent-Type: text/x-own\r\nSet-Cookie: a=1; Path=/\r\n\
             Set-Cookie: b=2; Path=/\r\nLocation: /elsewhere\r\nX-Own: kept\r\n\r\n{body}",
            body.len()
        );
        desk.upstream.set_behaviour(Behaviour::Respond(head.into_bytes()));
        for person in [&desk.anonymous(), &xiaoming] {
            let response = person.get("/public/x").await.expect_status(status);
            assert_eq!(response.text(), body, "{status}");
            assert_eq!(response.header_all("set-cookie"), ["a=1; Path=/", "b=2; Path=/"], "{status}");
            assert_eq!(response.header("content-type"), Some("text/x-own"), "{status}");
            assert_eq!(response.header("location"), Some("/elsewhere"), "{status}");
            assert_eq!(response.header("x-own"), Some("kept"), "{status}");
        }
    }
}

#[tokio::test]
async fn bodyless_responses_stay_bodyless() {
    let desk = Gateway::start().await;
    for status in ["204 No Content", "304 Not Modified"] {
        desk.upstream
            .set_behaviour(Behaviour::Respond(format!("HTTP/1.1 {status}\r\nETag: \"a\"\r\n\r\n").into_bytes()));
        let mut connection = desk.connect().await;
        for _ in 0..2 {
            connection.send(&request(&desk, "GET /public/x", "", b"")).await;
            let response = connection.response().await.expect("a response");
            assert_eq!(response.status.to_string(), status[..3]);
            assert_eq!(response.header("etag"), Some("\"a\""), "{}", response.describe());
        }
    }
}

#[tokio::test]
async fn chunked_bodies_are_relayed_both_ways() {
    let desk = Gateway::start().await;
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst,\r\n7\r\n second\r\n0\r\n\r\n";
    desk.upstream.set_behaviour(Behaviour::Respond(response.into()));
    let mut connection = desk.connect().await;
    for _ in 0..2 {
        let body = b"5\r\nhello\r\n1\r\n \r\n00A\r\nworldworld\r\n0\r\n\r\n";
        connection.send(&request(&desk, "POST /public/x", "Transfer-Encoding: chunked\r\n", body)).await;
        let response = connection.response().await.expect("a response");
        assert_eq!(response.text(), "first, second");
        assert_eq!(desk.upstream.last_request().body, b"hello worldworld");
    }
}

#[tokio::test]
async fn large_bodies_are_relayed_both_ways() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let (up, down) = (pattern(6 << 20), pattern((5 << 20) + 1));
    desk.upstream.set_behaviour(Behaviour::Respond(ok("", &down)));
    let response = xiaoming.post_body("/api/desk/x", "application/octet-stream", &up).await.expect_status(200);
    assert!(response.body == down, "{} bytes came down", response.body.len());
    assert!(desk.upstream.last_request().body == up, "{} bytes went up", desk.upstream.last_request().body.len());

    let mut chunks = Vec::new();
    for piece in up.chunks(70_001) {
        chunks.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunks.extend_from_slice(piece);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "PUT /public/x", "Transfer-Encoding: chunked\r\n", &chunks)).await;
    let response = connection.response().await.expect("a response");
    assert!(response.body == down, "{} bytes came down", response.body.len());
    assert!(desk.upstream.last_request().body == up, "{} bytes went up", desk.upstream.last_request().body.len());
}

#[tokio::test]
async fn response_without_length_ends_with_the_connection() {
    let desk = Gateway::start().await;
    let body = pattern(100_000);
    let mut bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
    bytes.extend_from_slice(&body);
    desk.upstream.set_behaviour(Behaviour::RespondAndClose(bytes));
    assert!(desk.anonymous().get("/public/x").await.expect_status(200).body == body);
}

#[tokio::test]
async fn bodies_are_streamed() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "POST /public/x", "Content-Length: 10\r\n", b"begin")).await;

    // The upstream has the first half while the client still holds the second.
    let mut upstream_connection = upstream_connections.next().await;
    assert_eq!(upstream_connection.stream.read_exactly(5).await, b"begin");
    connection.send(b"-rest").await;
    assert_eq!(upstream_connection.stream.read_exactly(5).await, b"-rest");

    // And the client has the first half of the answer while the upstream still holds the second.
    let (first, last) = (pattern(200_000), b"last");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", first.len() + last.len());
    upstream_connection.stream.send(head.as_bytes()).await;
    upstream_connection.stream.send(&first).await;
    let mut client = BufferedStream::from_connection(connection);
    client.read_until(b"\r\n\r\n").await;
    // The end of a piece may wait in a buffer for more to come; its bulk may not.
    client.read_exactly(first.len() - 16 * 1024).await;
    upstream_connection.stream.send(last).await;
    assert!(client.read_exactly(16 * 1024 + last.len()).await.ends_with(last));
}

#[tokio::test]
async fn event_streams_are_relayed() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /public/events", "Accept: text/event-stream\r\n", b"")).await;
    let mut upstream_connection = upstream_connections.next().await;
    upstream_connection
        .stream
        .send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    let mut client = BufferedStream::from_connection(connection);
    for number in 0..20 {
        let event = format!("data: {number}\n\n");
        upstream_connection.stream.send(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await;
        client.read_until(event.as_bytes()).await;
    }
}

#[tokio::test]
async fn connections_are_reused_on_both_sides() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("Authorization: Bearer {}\r\n", xiaoming.token());
    let mut connection = desk.connect().await;
    for number in 0..10 {
        let body = format!("body {number}");
        let headers = format!("{bearer}Content-Length: {}\r\n", body.len());
        connection.send(&request(&desk, &format!("POST /api/desk/{number}"), &headers, body.as_bytes())).await;
        let response =
            connection.response().await.unwrap_or_else(|| panic!("the connection was closed after {number}"));
        assert_eq!(response.json()["body"], body);
    }
    assert!(desk.upstream.connections() <= 2, "{} connections for one after the other", desk.upstream.connections());
}

#[tokio::test]
async fn fast_path_connections_are_reused() {
    let desk = Gateway::start().await;
    let mut connection = desk.connect().await;
    for number in 0..10 {
        connection.send(&request(&desk, &format!("GET /public/{number}"), "", b"")).await;
        connection.response().await.unwrap_or_else(|| panic!("closed after {number}")).expect_status(200);
    }
    assert!(desk.upstream.connections() <= 2, "{} connections for one after the other", desk.upstream.connections());
}

/// A plain question is carried as bytes, everything else as a header map; which of the two must not show.
#[tokio::test]
async fn both_paths_send_the_same_request_upstream() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let forged = "X-Deskgate-Roles: admin\r\nX_Deskgate_Name: eve\r\nX-Forwarded-For: 9.9.9.9\r\nForwarded: for=9.9.9.9\r\n\
                  X-Original-URL: /admin\r\nSec-WebSocket-Protocol: bearer.x\r\nX-Request-Id: 12345678\r\n\
                  traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
    let usual = "Accept: text/html\r\nAccept-Language: zh-CN\r\nCookie: a=1; b=2\r\nX-Own: one\r\nX-Own: two\r\n\
                 Connection: keep-alive\r\n";
    let bearer = format!("Authorization: Bearer {}\r\n", xiaoming.token());
    for (target, credentials) in [("/api/desk/x?a=b", bearer.as_str()), ("/public/%7Ex", ""), ("/public/x", &bearer)] {
        for headers in [String::new(), usual.to_owned(), forged.to_owned(), format!("{usual}{forged}")] {
            desk.upstream.clear_requests();
            // `TE` concerns one connection only: it is taken out, and with it a question is not plain any more.
            for other_lane in ["", "TE: trailers\r\n"] {
                let lines = format!("{credentials}{headers}{other_lane}");
                desk.send_raw(&request(&desk, &format!("GET {target}"), &lines, b"")).await.expect("a response");
            }
            let seen = desk.upstream.wait_for_requests(2).await;
            let told = |seen: &RecordedRequest| {
                let line = |(name, value): &(String, String)| match name.to_ascii_lowercase() {
                    // New for every request but for the trace that the caller began.
                    name if name == "x-request-id" => (name, value.len().to_string()),
                    name if name == "traceparent" => (name, value.contains("4bf92f3577b34da6").to_string()),
                    name => (name, value.clone()),
                };
                let mut lines: Vec<(String, String)> = seen.headers.iter().map(line).collect();
                lines.sort();
                (seen.target.clone(), lines)
            };
            assert_eq!(told(&seen[0]), told(&seen[1]), "{target} {headers:?}");
            assert!(seen[0].headers.len() > 5, "{target}: the request is told about");
        }
    }
}

#[tokio::test]
async fn interim_responses_are_relayed_first() {
    let desk = Gateway::start().await;
    let both = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n\
                 HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    desk.upstream.set_behaviour(Behaviour::Respond(both.to_vec()));
    for lane in ["", "TE: trailers\r\n"] {
        let mut client = BufferedStream::from_connection(desk.connect().await);
        client.send(&request(&desk, "GET /public/x", lane, b"")).await;
        let heard = client.read_until(b"\r\n\r\nok").await;
        let heard = String::from_utf8_lossy(&heard);
        let (interim, response) = heard.split_once("\r\n\r\n").expect("two heads");
        assert!(interim.starts_with("HTTP/1.1 103 ") && interim.contains("/a.css"), "{lane:?}: {heard}");
        assert!(response.starts_with("HTTP/1.1 200 "), "{lane:?}: {heard}");
    }
}

#[tokio::test]
async fn failure_after_an_interim_response_has_its_code() {
    let desk = Gateway::start().await;
    desk.upstream.set_behaviour(Behaviour::RespondAndClose(b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec()));
    for lane in ["", "TE: trailers\r\n"] {
        let mut client = BufferedStream::from_connection(desk.connect().await);
        client.send(&request(&desk, "GET /public/x", lane, b"")).await;
        let heard = client.read_to_end_within(TEST_TIMEOUT).await;
        let heard = String::from_utf8_lossy(&heard);
        assert!(heard.contains("HTTP/1.1 502") && heard.contains("\"code\":1502"), "{lane:?}: {heard}");
    }
}

/// An upstream may close an idle connection at the very moment at which it is used again. Asking twice does no
/// harm then, as the question is a GET and nobody has heard it.
#[tokio::test]
async fn request_on_a_closed_pooled_connection_is_retried() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut client = desk.connect().await;
    client.send(&request(&desk, "GET /public/1", "", b"")).await;
    let mut first = upstream_connections.next().await;
    first.stream.send(&ok("", b"one")).await;
    assert_eq!(client.response().await.expect("a response").text(), "one");
    client.send(&request(&desk, "GET /public/2", "", b"")).await;
    first.stream.read_until(b"/public/2").await;
    drop(first);
    let mut second = upstream_connections.next().await;
    assert_eq!(second.request.target, "/public/2");
    second.stream.send(&ok("", b"two")).await;
    assert_eq!(client.response().await.expect("a response").text(), "two");
}

#[tokio::test]
async fn truncated_response_is_not_retried() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut client = desk.connect().await;
    client.send(&request(&desk, "GET /public/1", "", b"")).await;
    let mut first = upstream_connections.next().await;
    first.stream.send(b"HTTP/1.1 20").await;
    drop(first);
    client.response().await.expect("a response").expect_code(1502);
    assert!(upstream_connections.has_none_within(Duration::from_millis(300)).await, "asked again on a new connection");
}

#[tokio::test]
async fn upstream_connection_closes_when_the_client_disconnects() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    for part in ["", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"] {
        let mut client = BufferedStream::from_connection(desk.connect().await);
        client.send(&request(&desk, "GET /public/x", "", b"")).await;
        let mut upstream_connection = upstream_connections.next().await;
        upstream_connection.stream.send(part.as_bytes()).await;
        drop(client);
        assert_eq!(upstream_connection.stream.read_to_end_within(TEST_TIMEOUT).await, b"", "{part:?}");
    }
    desk.wait_for_log(&["the client went away before its answer"]).await;
}

#[tokio::test]
async fn each_request_on_a_connection_is_authorized() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("Authorization: Bearer {}\r\n", xiaoming.token());
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /api/desk/x", &bearer, b"")).await;
    connection.response().await.expect("a response").expect_status(200);
    connection.send(&request(&desk, "GET /api/desk/x", "", b"")).await;
    connection.response().await.expect("a response").expect_bare_challenge();
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /api/desk/x", &bearer, b"")).await;
    connection.response().await.expect("a response").expect_status(200);
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    connection.send(&request(&desk, "GET /api/desk/x", &bearer, b"")).await;
    connection.response().await.expect("a response").expect_invalid_token();
}

#[tokio::test]
async fn connection_close_is_honoured() {
    let desk = Gateway::start().await;
    for target in ["/public/x", "/api/ready"] {
        let mut connection = desk.connect().await;
        connection.send(&request(&desk, &format!("GET {target}"), "Connection: close\r\n", b"")).await;
        connection.response().await.expect("a response").expect_status(200);
        assert!(connection.closes_within(TEST_TIMEOUT).await, "{target}");
    }
    let mut connection = desk.connect().await;
    connection.send(format!("GET /public/x HTTP/1.0\r\nHost: {}\r\n\r\n", desk.address()).as_bytes()).await;
    connection.response().await.expect("a response").expect_status(200);
    assert!(connection.closes_within(TEST_TIMEOUT).await, "HTTP/1.0");
}

#[tokio::test]
async fn http10_request_without_host_is_forwarded_with_one() {
    let desk = Gateway::start().await;
    let response = desk.send_raw(b"GET /public/x HTTP/1.0\r\n\r\n").await.expect("a response");
    response.expect_status(200);
    let seen = desk.upstream.only_request();
    assert!(seen.header("host").is_some_and(|host| !host.is_empty()), "{}", String::from_utf8_lossy(&seen.head));
}

#[tokio::test]
async fn head_is_answered_without_body() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("Authorization: Bearer {}\r\n", xiaoming.token());
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "HEAD /api/desk/x", &bearer, b"")).await;
    let response = connection.response_to_head().await.expect("a response").expect_status(200);
    assert!(response.header("content-length").is_some_and(|length| length != "0"), "{}", response.describe());
    assert_eq!(desk.upstream.last_request().method, "HEAD");
    // What comes next on the connection is the next answer, and nothing that belonged to the first.
    connection.send(&request(&desk, "GET /api/desk/y", &bearer, b"")).await;
    assert_eq!(connection.response().await.expect("a response").json()["target"], "/api/desk/y");

    connection.send(&request(&desk, "HEAD /api/desk/x", "", b"")).await;
    connection.response_to_head().await.expect("a response").expect_status(401);
    let mut rest = BufferedStream::from_connection(connection);
    rest.try_send(&request(&desk, "GET /public/z", "Connection: close\r\n", b"")).await.ok();
    let rest = rest.read_to_end_within(TEST_TIMEOUT).await;
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    let headers =
        format!("Authorization: Bearer {}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", xiaoming.token());
    connection.send(&request(&desk, "POST /api/desk/x", &headers, b"")).await;
    let upstream = async {
        let mut upstream_connection = upstream_connections.next().await;
        if upstream_connection.request.header("expect").is_some() {
            upstream_connection.stream.send(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        assert_eq!(upstream_connection.stream.read_exactly(5).await, b"hello");
        upstream_connection.stream.send(&ok("", b"done")).await;
        upstream_connection
    };
    let client = async {
        connection.response().await.expect("a response").expect_status(100);
        connection.send(b"hello").await;
        let response = connection.response().await.expect("a response").expect_status(200);
        assert_eq!(response.text(), "done");
    };
    tokio::join!(upstream, client);
}

#[tokio::test]
async fn gateway_endpoints_answer_expect_100_continue() {
    let desk = Gateway::start().await;
    let body = br#"{"token":"a.b.c"}"#;
    let headers =
        format!("Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n", body.len());
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "POST /api/auth/verify", &headers, b"")).await;
    connection.response().await.expect("a response").expect_status(100);
    connection.send(body).await;
    let response = connection.response().await.expect("a response").expect_code(0);
    assert_eq!(response.data()["valid"], false);
}

#[tokio::test]
async fn upstream_addresses_are_balanced() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    let addresses = format!("[upstreams.helpdesk]\naddresses = [\"{}\", \"{}\"]", one.address(), two.address());
    let desk = Gateway::with(&addresses).await;
    for _ in 0..20 {
        desk.anonymous().get("/public/x").await.expect_status(200);
    }
    assert_eq!((one.requests().len(), two.requests().len()), (10, 10));
    for _ in 0..4 {
        desk.anonymous().websocket("/ws/public").await.echo("hello").await;
    }
    assert_eq!((one.requests().len(), two.requests().len()), (12, 12), "sockets take turns as well");
}

#[tokio::test]
async fn dead_upstream_address_is_skipped() {
    let (dead, live) = (Upstream::start().await, Upstream::start().await);
    dead.stop_listening().await;
    let addresses = format!("[upstreams.helpdesk]\naddresses = [\"{}\", \"{}\"]", dead.address(), live.address());
    let desk = Gateway::with(&addresses).await;
    for number in 0..10 {
        let response = desk.anonymous().post_body("/public/x", "text/plain", b"once").await;
        assert_eq!(response.status, 200, "{number}: {}", response.describe());
        desk.anonymous().websocket("/ws/public").await.echo("hello").await;
    }
    assert_eq!(live.requests().len(), 20, "each of them once");
}

#[tokio::test]
async fn unreachable_upstream_is_1502() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/desk/x").await.expect_status(200);
    desk.upstream.stop_listening().await;
    xiaoming.get("/api/desk/x").await.expect_code(1502);
    xiaoming.post_body("/api/desk/x", "text/plain", b"hello").await.expect_code(1502);
    xiaoming.handshake("/ws/employee").open().await.err().expect("a refusal").expect_code(1502);
    xiaoming.get("/api/auth/me").await.expect_code(0);
    desk.upstream.resume_listening().await;
    xiaoming.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn invalid_upstream_response_is_1502() {
    let desk = Gateway::start().await;
    let endless = format!("HTTP/1.1 200 OK\r\nX-Long: {}", "a".repeat(2 << 20));
    for (case, behaviour) in [
        ("it hangs up", Behaviour::CloseWithoutResponse),
        ("it talks nonsense", Behaviour::RespondAndClose(b"220 mail.example ESMTP\r\n\r\n".to_vec())),
        ("half a head", Behaviour::RespondAndClose(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec())),
        ("a head without end", Behaviour::RespondAndClose(endless.into_bytes())),
    ] {
        desk.upstream.set_behaviour(behaviour);
        // A POST is not sent twice, whatever happens to the first.
        let response = desk.anonymous().post_body("/public/x", "text/plain", b"hello").await;
        assert_eq!(response.status, 502, "{case}: {}", response.describe());
        response.expect_code(1502);
    }
}

#[tokio::test]
async fn unresponsive_upstream_is_1504() {
    let desk = Gateway::with("[upstreams.helpdesk]\nanswer_timeout = \"300ms\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    xiaoming.get("/api/desk/x").await.expect_code(1504);
    xiaoming.post_body("/api/desk/x", "text/plain", b"hello").await.expect_code(1504);
    desk.upstream.set_behaviour(Behaviour::Echo);
    xiaoming.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn truncated_response_is_truncated_for_the_client() {
    let desk = Gateway::with("[upstreams.helpdesk]\nanswer_timeout = \"500ms\"").await;
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this".to_vec();
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n".to_vec();
    let half_chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nonly this".to_vec();
    let bad_chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\nxyz\r\n".to_vec();
    for (case, bytes, open) in [
        ("a length that is not reached", &short, false),
        ("chunks without an end", &chunked, false),
        ("half a chunk", &half_chunk, false),
        ("no chunk", &bad_chunk, false),
        ("a length that is never reached", &short, true),
        ("chunks that stop coming", &chunked, true),
    ] {
        desk.upstream.set_behaviour(match open {
            true => Behaviour::Respond(bytes.clone()),
            false => Behaviour::RespondAndClose(bytes.clone()),
        });
        let outcome = desk.anonymous().try_send("GET", "/public/x", &[], b"").await;
        assert!(outcome.is_err(), "{case}: a whole answer, {}", outcome.unwrap().describe());
    }
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /public/x", "", b"")).await;
    let mut upstream_connection = upstream_connections.next().await;
    upstream_connection.stream.send(&chunked).await;
    let mut client = BufferedStream::from_connection(connection);
    client.read_until(b"only this").await;
    upstream_connection.stream.reset();
    let rest = client.read_to_end_within(TEST_TIMEOUT).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "a reset is no end: {}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let desk = Gateway::with("[limits]\nstalled = \"500ms\"").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /public/x", "", b"")).await;
    let mut upstream_connection = upstream_connections.next().await;
    // Far more than the kernel keeps for anybody.
    let response = ok("", &pattern(64 << 20));
    assert!(upstream_connection.stream.try_send(&response).await.is_err(), "the upstream got rid of everything");
    let came = BufferedStream::from_connection(connection).read_to_end_within(TEST_TIMEOUT).await;
    assert!(came.len() < response.len(), "all of it was kept for somebody who did not read");
    desk.anonymous().get("/api/ready").await.expect_code(0);
}

#[tokio::test]
async fn truncated_upload_is_truncated_for_the_upstream() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "POST /public/x", "Content-Length: 100\r\n", b"only this")).await;
    let mut upstream_connection = upstream_connections.next().await;
    assert_eq!(upstream_connection.stream.read_exactly(9).await, b"only this");
    drop(connection);
    assert_eq!(upstream_connection.stream.read_to_end_within(TEST_TIMEOUT).await, b"");

    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "POST /public/x", "Transfer-Encoding: chunked\r\n", b"9\r\nonly this\r\n")).await;
    let mut upstream_connection = upstream_connections.next().await;
    upstream_connection.stream.read_until(b"only this\r\n").await;
    drop(connection);
    let rest = upstream_connection.stream.read_to_end_within(TEST_TIMEOUT).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn second_response_reaches_no_client() {
    let desk = Gateway::start().await;
    let poison = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    let mut bytes = ok("", b"honest");
    bytes.extend_from_slice(poison);
    desk.upstream.set_behaviour(Behaviour::Respond(bytes));
    for number in 0..20 {
        let response = desk.anonymous().get("/public/x").await.expect_status(200);
        assert_eq!(response.text(), "honest", "request {number}");
    }
    desk.upstream.set_behaviour(Behaviour::Echo);
    for number in 0..20 {
        let target = format!("/public/{number}");
        assert_eq!(desk.anonymous().get(&target).await.expect_status(200).json()["target"], target);
    }
}

#[tokio::test]
async fn unrequested_101_opens_no_tunnel() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /public/x", "", b"")).await;
    let mut upstream_connection = upstream_connections.next().await;
    upstream_connection
        .stream
        .send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    upstream_connection.stream.try_send(b"raw bytes").await.ok();
    let response = connection.response().await;
    assert!(response.as_ref().is_none_or(|response| response.status == 502), "{}", response.unwrap().describe());
    let mut client = BufferedStream::from_connection(connection);
    client.try_send(b"GET /public/smuggled HTTP/1.1\r\nHost: a\r\n\r\n").await.ok();
    let seen = upstream_connection.stream.read_to_end_within(TEST_TIMEOUT).await;
    assert!(seen.is_empty(), "through a tunnel: {}", String::from_utf8_lossy(&seen));
}

#[tokio::test]
async fn proxied_responses_have_one_request_id() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.upstream
        .set_behaviour(Behaviour::Respond(ok("X-Request-Id: the-upstreams-own\r\nx-request-id: again\r\n", b"")));
    let response = xiaoming.get("/api/desk/x").await.expect_status(200);
    let id = response.header("x-request-id").expect("X-Request-Id");
    assert_ne!(id, "the-upstreams-own");
    assert_eq!(desk.upstream.last_request().header("x-request-id"), Some(id));

    desk.upstream.set_behaviour(Behaviour::Echo);
    let socket = xiaoming.websocket("/ws/employee").await;
    let id = socket.response().header("x-request-id").expect("X-Request-Id on the 101");
    assert_eq!(desk.upstream.last_request().header("x-request-id"), Some(id));
}

#[tokio::test]
async fn request_id_is_kept_only_from_trusted_peers() {
    let (trusting, wary) = (Gateway::start().await, Gateway::with("[server]\ntrusted_proxies = []").await);
    let long = "a".repeat(5000);
    for (given, kept) in [
        ("0af7651916cd43dd8448eb211c80319c", true),
        ("", false),
        ("two words", false),
        ("a\"b", false),
        ("a{b}", false),
        ("\u{96e8}", false),
        (&long, false),
    ] {
        for (desk, kept) in [(&trusting, kept), (&wary, false)] {
            desk.upstream.clear_requests();
            let response =
                desk.anonymous().with_header("X-Request-Id", given).get("/public/x").await.expect_status(200);
            let used = response.header("x-request-id").expect("X-Request-Id");
            assert_eq!(used == given, kept, "{given:.40}");
            assert_eq!(desk.upstream.only_request().header("x-request-id"), Some(used), "{given:.40}");
        }
    }
    let two = [("X-Request-Id", "first"), ("X-Request-Id", "second")];
    let response = trusting.anonymous().send("GET", "/public/x", &two, b"").await.expect_status(200);
    let used = response.header("x-request-id").expect("X-Request-Id");
    assert_eq!(trusting.upstream.last_request().header("x-request-id"), Some(used));
}

/// Fails unless this is a `traceparent` of W3C's version 00.
#[track_caller]
fn trace_of(seen: &RecordedRequest) -> String {
    let value = seen.header("traceparent").expect("traceparent");
    let parts: Vec<&str> = value.split('-').collect();
    let hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let zero = |text: &str| text.bytes().all(|b| b == b'0');
    assert!(
        matches!(parts[..], ["00", trace, span, flags] if hex(trace, 32) && hex(span, 16) && hex(flags, 2) && !zero(trace) && !zero(span)),
        "{value}"
    );
    value.to_owned()
}

#[tokio::test]
async fn trace_context_is_propagated() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        xiaoming.get("/api/desk/x").await.expect_status(200);
        seen.insert(trace_of(&desk.upstream.last_request())[3..35].to_owned());
        let _socket = xiaoming.websocket("/ws/employee").await;
        seen.insert(trace_of(&desk.upstream.last_request())[3..35].to_owned());
    }
    assert_eq!(seen.len(), 6, "{seen:?}");

    let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    desk.anonymous().with_header("traceparent", given).get("/public/x").await.expect_status(200);
    let value = trace_of(&desk.upstream.last_request());
    assert!(value.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "the trace goes on: {value}");
    assert!(!value.contains("b7ad6b7169203331"), "as a span of our own: {value}");

    for bad in [
        "",
        "nonsense",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra",
    ] {
        desk.anonymous().with_header("traceparent", bad).get("/public/x").await.expect_status(200);
        trace_of(&desk.upstream.last_request());
    }
    let two = [("traceparent", given), ("traceparent", given)];
    desk.anonymous().send("GET", "/public/x", &two, b"").await.expect_status(200);
    trace_of(&desk.upstream.last_request());
}

#[tokio::test]
async fn forwarding_headers_of_untrusted_peers_are_replaced() {
    let desk = Gateway::with("[server]\ntrusted_proxies = []").await;
    let xiaoming = desk.sign_in("u1001").await;
    let address = desk.address().to_string();
    let forged = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-For", "evil.example"),
        ("X_Forwarded_For", "6.6.6.6"),
        ("x-forwarded_for", "6.6.6.6"),
        ("X.Forwarded.For", "6.6.6.6"),
        ("X-Forwarded-Proto", "evil"),
        ("X-Forwarded-Host", "evil.example"),
        ("X_Forwarded_Host", "evil.example"),
        ("X-Forwarded-Port", "666"),
        ("X-Forwarded-Server", "evil.example"),
        ("X-Forwarded-Uri", "/evil"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X-Forwarded-Method", "EVIL"),
        ("Forwarded", "for=6.6.6.6;host=evil.example;proto=evil"),
        ("X-Original-URL", "/evil"),
        ("X-Original-Url", "/evil"),
        ("X_Original_URL", "/evil"),
        ("X-Rewrite-URL", "/evil"),
        ("X-HTTP-Method-Override", "EVIL"),
        ("X-HTTP-Method", "EVIL"),
        ("X-Method-Override", "EVIL"),
    ];
    let mut heads = Vec::new();
    xiaoming.send("GET", "/api/desk/x", &forged, b"").await.expect_status(200);
    heads.push(desk.upstream.last_request());
    desk.anonymous().send("GET", "/public/x", &forged, b"").await.expect_status(200);
    heads.push(desk.upstream.last_request());
    let handshake = forged
        .iter()
        .fold(xiaoming.handshake("/ws/employee"), |handshake, (name, value)| handshake.header(name, value));
    let _socket = handshake.open().await.unwrap_or_else(|response| panic!("{}", response.describe()));
    heads.push(desk.upstream.last_request());
    for seen in heads {
        let head = String::from_utf8_lossy(&seen.head).to_ascii_lowercase();
        assert!(!head.contains("evil") && !head.contains("6.6.6.6") && !head.contains(": 666"), "{head}");
        assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"), "{head}");
        assert_eq!(seen.header("x-forwarded-proto"), Some("http"), "{head}");
        assert_eq!(seen.header("x-forwarded-host"), Some(address.as_str()), "{head}");
    }
}

#[tokio::test]
async fn forwarding_headers_are_set() {
    let desk = Gateway::start().await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    let seen = desk.upstream.last_request();
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-host"), Some(desk.address().to_string().as_str()));
}

#[tokio::test]
async fn trusted_peers_supply_only_the_client_address() {
    let desk = Gateway::start().await;
    let first_of = |seen: &RecordedRequest| {
        let all = seen.header("x-forwarded-for").expect("X-Forwarded-For").to_owned();
        all.split(',').next().unwrap_or_default().trim().to_owned()
    };
    for (given, client) in [
        (vec!["203.0.113.7"], "203.0.113.7"),
        (vec!["203.0.113.7, 10.0.0.1"], "203.0.113.7"),
        (vec!["203.0.113.7", "10.0.0.1"], "203.0.113.7"),
        (vec!["2001:db8::7"], "2001:db8::7"),
    ] {
        let mut headers: Vec<(&str, &str)> = given.iter().map(|value| ("X-Forwarded-For", *value)).collect();
        headers.extend([
            ("X-Forwarded-Proto", "evil"),
            ("X-Forwarded-Host", "evil.example"),
            ("Forwarded", "for=evil"),
        ]);
        desk.anonymous().send("GET", "/public/x", &headers, b"").await.expect_status(200);
        let seen = desk.upstream.last_request();
        assert_eq!(first_of(&seen), client, "{given:?}");
        assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
        assert!(!String::from_utf8_lossy(&seen.head).contains("evil"), "{}", String::from_utf8_lossy(&seen.head));
    }
    for nonsense in ["", "evil.example", "unknown", "203.0.113.7.9", "evil, 203.0.113.7", "999.1.1.1"] {
        desk.upstream.clear_requests();
        let response = desk.anonymous().with_header("X-Forwarded-For", nonsense).get("/public/x").await;
        if response.status == 400 {
            assert!(desk.upstream.requests().is_empty());
            continue;
        }
        let seen = desk.upstream.only_request();
        assert!(first_of(&seen).parse::<std::net::IpAddr>().is_ok(), "{nonsense}: {}", first_of(&seen));
        assert!(!String::from_utf8_lossy(&seen.head).contains("evil"), "{nonsense}");
    }
}

#[tokio::test]
async fn identity_headers_are_stripped_from_responses() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let forged = "X-Deskgate-Employee-Id: m5001\r\nx-deskgate-roles: admin\r\nX_Deskgate_Name: x\r\n\
                  X-DESKGATE-ASSERTION: a.b.c\r\nX-Deskgate-Anything: x\r\nX-Own: kept\r\n";
    desk.upstream.set_behaviour(Behaviour::Respond(ok(forged, b"hello")));
    let mut responses = vec![
        desk.anonymous().get("/public/x").await.expect_status(200),
        xiaoming.get("/api/desk/x").await.expect_status(200),
        xiaoming.handshake("/ws/employee").open().await.err().expect("no 101"),
    ];
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let handshake = xiaoming.handshake("/ws/employee");
    let accept = async { upstream_connections.next().await.accept_websocket_with(forged, b"").await };
    let ((response, _end), ()) = tokio::join!(BufferedStream::open_tunnel(&desk, &handshake), accept);
    responses.push(response);
    for response in responses {
        let folded = |name: &str| name.to_ascii_lowercase().replace(['_', '.'], "-");
        let ours: Vec<&String> = response
            .headers
            .iter()
            .map(|(name, _)| name)
            .filter(|name| folded(name).starts_with("x-deskgate"))
            .collect();
        assert!(ours.is_empty(), "{ours:?} in {}", response.describe());
        assert_eq!(response.header("x-own"), Some("kept"), "{}", response.describe());
    }
}

#[tokio::test]
async fn token_is_stripped_unless_the_rule_forwards_it() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for target in ["/api/desk/x", "/public/x"] {
        xiaoming.with_header("Cookie", "own=1").get(target).await.expect_status(200);
        let seen = desk.upstream.last_request();
        assert_eq!(seen.header("authorization"), None, "{target}");
        assert_eq!(seen.header("cookie"), Some("own=1"), "{target}");
    }
    let _socket = xiaoming.websocket("/ws/employee").await;
    let everything = String::from_utf8_lossy(&desk.upstream.all_bytes()).into_owned();
    assert!(!everything.contains(xiaoming.token()), "the token went along");

    xiaoming.get("/api/token-too/x").await.expect_status(200);
    let expected = format!("Bearer {}", xiaoming.token());
    assert_eq!(desk.upstream.last_request().header("authorization"), Some(expected.as_str()));
}

#[tokio::test]
async fn token_is_verified_on_every_route() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    for _ in 0..5 {
        alice.get("/api/agent-desk/x").await.expect_status(200);
        alice.get("/api/admin-desk/x").await.expect_code(1003);
        alice.get("/api/desk/x").await.expect_status(200);
    }
    let rounds = (0..50).map(|_| async {
        let (yes, no) = tokio::join!(alice.get("/api/agent-desk/x"), alice.get("/api/admin-desk/x"));
        yes.expect_status(200);
        no.expect_code(1003);
    });
    futures::future::join_all(rounds).await;
    assert!(desk.upstream.requests().iter().all(|seen| !seen.target.starts_with("/api/admin-desk")));
}

#[tokio::test]
async fn refusal_names_the_missing_role() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (path, role) in [("/api/agent-desk/x", "agent"), ("/api/admin-desk/x", "admin")] {
        let response = xiaoming.get(path).await.expect_code(1003);
        assert!(response.message().contains(role), "{}", response.message());
        let challenge = response.header("www-authenticate").unwrap_or_default();
        assert!(challenge.contains("error=\"insufficient_scope\""), "RFC 6750: {}", response.describe());
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn concurrent_clients_get_their_own_responses() {
    let desk = Gateway::start().await;
    let people = [desk.sign_in("u1001").await, desk.sign_in("a2001").await, desk.sign_in("m5001").await];
    let ids = ["u1001", "a2001", "m5001"];
    let requests = (0..150).map(|number| {
        let (person, id) = (&people[number % 3], ids[number % 3]);
        async move {
            let target = format!("/api/desk/{number}");
            let response = person.get(&target).await.expect_status(200).json();
            assert_eq!(response["target"], target);
            let headers = response["headers"].as_array().expect("headers");
            let seen = headers
                .iter()
                .find(|line| line[0].as_str().is_some_and(|n| n.eq_ignore_ascii_case("x-deskgate-employee-id")));
            assert_eq!(seen.map(|line| &line[1]), Some(&json!(id)), "{target}");
        }
    });
    within(Duration::from_secs(60), "150 answers", futures::future::join_all(requests)).await;
}
