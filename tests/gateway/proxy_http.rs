//! HTTP proxying: requests and responses are relayed unchanged and streamed.

use crate::support::*;

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
            connection.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
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
        connection.send(&raw_request(&desk, "POST /public/x", "Transfer-Encoding: chunked\r\n", body)).await;
        let response = connection.response().await.expect("a response");
        assert_eq!(response.text(), "first, second");
        assert_eq!(desk.upstream.last_request().body, b"hello worldworld");
    }
}

#[tokio::test]
async fn large_bodies_are_relayed_both_ways() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let (up, down) = (byte_pattern(6 << 20), byte_pattern((5 << 20) + 1));
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response("", &down)));
    let response = xiaoming.post_body("/api/desk/x", "application/octet-stream", &up).await.expect_status(200);
    assert!(response.body == down, "{} bytes received down", response.body.len());
    assert!(desk.upstream.last_request().body == up, "{} bytes went up", desk.upstream.last_request().body.len());

    let mut chunks = Vec::new();
    for piece in up.chunks(70_001) {
        chunks.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunks.extend_from_slice(piece);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "PUT /public/x", "Transfer-Encoding: chunked\r\n", &chunks)).await;
    let response = connection.response().await.expect("a response");
    assert!(response.body == down, "{} bytes received down", response.body.len());
    assert!(desk.upstream.last_request().body == up, "{} bytes went up", desk.upstream.last_request().body.len());
}

#[tokio::test]
async fn response_without_length_ends_with_the_connection() {
    let desk = Gateway::start().await;
    let body = byte_pattern(100_000);
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
    connection.send(&raw_request(&desk, "POST /public/x", "Content-Length: 10\r\n", b"begin")).await;

    // The upstream has the first half before the client has sent the second.
    let mut upstream_connection = upstream_connections.next().await;
    assert_eq!(upstream_connection.stream.read_exactly(5).await, b"begin");
    connection.send(b"-rest").await;
    assert_eq!(upstream_connection.stream.read_exactly(5).await, b"-rest");

    // The client has the first half of the response before the upstream has sent the second.
    let (first, last) = (byte_pattern(200_000), b"last");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", first.len() + last.len());
    upstream_connection.stream.send(head.as_bytes()).await;
    upstream_connection.stream.send(&first).await;
    let mut client = BufferedStream::from_connection(connection);
    client.read_until(b"\r\n\r\n").await;
    // The last bytes of a piece may stay in a buffer; most of it must arrive.
    client.read_exactly(first.len() - 16 * 1024).await;
    upstream_connection.stream.send(last).await;
    assert!(client.read_exactly(16 * 1024 + last.len()).await.ends_with(last));
}

#[tokio::test]
async fn event_streams_are_relayed() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "GET /public/events", "Accept: text/event-stream\r\n", b"")).await;
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

/// The head of a bodyless GET is forwarded as bytes, that of other requests from a header map. The upstream must see no difference.
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
            // `TE` is hop-by-hop and therefore removed; a request with it takes Pingora's lane, with a header map.
            for other_lane in ["", "TE: trailers\r\n"] {
                let lines = format!("{credentials}{headers}{other_lane}");
                desk.send_raw(&raw_request(&desk, &format!("GET {target}"), &lines, b"")).await.expect("a response");
            }
            let seen = desk.upstream.wait_for_requests(2).await;
            let comparable = |seen: &RecordedRequest| {
                let line = |(name, value): &(String, String)| match name.to_ascii_lowercase() {
                    // New for every request, except for the caller's trace id.
                    name if name == "x-request-id" => (name, value.len().to_string()),
                    name if name == "traceparent" => (name, value.contains("4bf92f3577b34da6").to_string()),
                    name => (name, value.clone()),
                };
                let mut lines: Vec<(String, String)> = seen.headers.iter().map(line).collect();
                lines.sort();
                (seen.target.clone(), lines)
            };
            assert_eq!(comparable(&seen[0]), comparable(&seen[1]), "{target} {headers:?}");
            assert!(seen[0].headers.len() > 5, "{target}: the two paths differ");
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
        client.send(&raw_request(&desk, "GET /public/x", lane, b"")).await;
        let received = client.read_until(b"\r\n\r\nok").await;
        let received = String::from_utf8_lossy(&received);
        let (interim, response) = received.split_once("\r\n\r\n").expect("two heads");
        assert!(interim.starts_with("HTTP/1.1 103 ") && interim.contains("/a.css"), "{lane:?}: {received}");
        assert!(response.starts_with("HTTP/1.1 200 "), "{lane:?}: {received}");
    }
}

#[tokio::test]
async fn failure_after_an_interim_response_has_its_code() {
    let desk = Gateway::start().await;
    desk.upstream.set_behaviour(Behaviour::RespondAndClose(b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec()));
    for lane in ["", "TE: trailers\r\n"] {
        let mut client = BufferedStream::from_connection(desk.connect().await);
        client.send(&raw_request(&desk, "GET /public/x", lane, b"")).await;
        let received = client.read_to_end_within(TEST_TIMEOUT).await;
        let received = String::from_utf8_lossy(&received);
        assert!(received.contains("HTTP/1.1 502") && received.contains("\"code\":1502"), "{lane:?}: {received}");
    }
}

#[tokio::test]
async fn http10_request_is_forwarded_with_its_host() {
    let desk = Gateway::start().await;
    let address = desk.address().to_string();
    let response = desk.send_raw(format!("GET /public/x HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await;
    response.expect("a response").expect_status(200);
    assert_eq!(desk.upstream.only_request().header("host"), Some(address.as_str()));
}

#[tokio::test]
async fn head_is_answered_without_body() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("Authorization: Bearer {}\r\n", xiaoming.token());
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "HEAD /api/desk/x", &bearer, b"")).await;
    let response = connection.response_to_head().await.expect("a response").expect_status(200);
    assert!(response.header("content-length").is_some_and(|length| length != "0"), "{}", response.describe());
    assert_eq!(desk.upstream.last_request().method, "HEAD");
    // The next bytes on the connection belong to the next response.
    connection.send(&raw_request(&desk, "GET /api/desk/y", &bearer, b"")).await;
    assert_eq!(connection.response().await.expect("a response").json()["target"], "/api/desk/y");

    connection.send(&raw_request(&desk, "HEAD /api/desk/x", "", b"")).await;
    connection.response_to_head().await.expect("a response").expect_status(401);
    let mut rest = BufferedStream::from_connection(connection);
    rest.try_send(&raw_request(&desk, "GET /public/z", "Connection: close\r\n", b"")).await.ok();
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
    connection.send(&raw_request(&desk, "POST /api/desk/x", &headers, b"")).await;
    let upstream = async {
        let mut upstream_connection = upstream_connections.next().await;
        if upstream_connection.request.header("expect").is_some() {
            upstream_connection.stream.send(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        assert_eq!(upstream_connection.stream.read_exactly(5).await, b"hello");
        upstream_connection.stream.send(&ok_response("", b"done")).await;
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
    connection.send(&raw_request(&desk, "POST /api/auth/verify", &headers, b"")).await;
    connection.response().await.expect("a response").expect_status(100);
    connection.send(body).await;
    let response = connection.response().await.expect("a response").expect_code(0);
    assert_eq!(response.data()["valid"], false);
}
