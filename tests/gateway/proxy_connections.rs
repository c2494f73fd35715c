//! HTTP proxying: connection reuse, retries, balancing and upstream failures.

use std::time::Duration;

use futures::future::join_all;

use crate::support::*;

#[tokio::test]
async fn connections_are_reused_on_both_sides() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("Authorization: Bearer {}\r\n", xiaoming.token());
    let mut connection = desk.connect().await;
    for number in 0..10 {
        let body = format!("body {number}");
        let headers = format!("{bearer}Content-Length: {}\r\n", body.len());
        connection.send(&raw_request(&desk, &format!("POST /api/desk/{number}"), &headers, body.as_bytes())).await;
        let response =
            connection.response().await.unwrap_or_else(|| panic!("the connection was closed after {number}"));
        assert_eq!(response.json()["body"], body);
    }
    assert!(desk.upstream.connections() <= 2, "{} connections for sequential requests", desk.upstream.connections());
}

#[tokio::test]
async fn connections_of_bodyless_gets_are_reused() {
    let desk = Gateway::start().await;
    let mut connection = desk.connect().await;
    for number in 0..10 {
        connection.send(&raw_request(&desk, &format!("GET /public/{number}"), "", b"")).await;
        connection.response().await.unwrap_or_else(|| panic!("closed after {number}")).expect_status(200);
    }
    assert!(desk.upstream.connections() <= 2, "{} connections for sequential requests", desk.upstream.connections());
}

/// An upstream may close an idle connection at the moment of its reuse. The retry is safe: the request is a GET and
/// the upstream has not processed it.
#[tokio::test]
async fn request_on_a_closed_pooled_connection_is_retried() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut client = desk.connect().await;
    client.send(&raw_request(&desk, "GET /public/1", "", b"")).await;
    let mut first = upstream_connections.next().await;
    first.stream.send(&ok_response("", b"one")).await;
    assert_eq!(client.response().await.expect("a response").text(), "one");
    client.send(&raw_request(&desk, "GET /public/2", "", b"")).await;
    first.stream.read_until(b"/public/2").await;
    drop(first);
    let mut second = upstream_connections.next().await;
    assert_eq!(second.request.target, "/public/2");
    second.stream.send(&ok_response("", b"two")).await;
    assert_eq!(client.response().await.expect("a response").text(), "two");
}

/// A body is sent again as a whole, also an empty one, of which only the end is sent.
#[tokio::test]
async fn chunked_body_on_a_closed_pooled_connection_is_retried() {
    for fast_lane in ["true", "false"] {
        let desk = Gateway::setup().set("server.fast_lane", fast_lane).start().await;
        let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
        let mut client = desk.connect().await;
        client.send(&raw_request(&desk, "GET /public/1", "", b"")).await;
        let mut pooled = upstream_connections.next().await;
        pooled.stream.send(&ok_response("", b"one")).await;
        client.response().await.expect("a response").expect_status(200);
        for body in ["0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"] {
            let request = raw_request(&desk, "PUT /public/2", "Transfer-Encoding: chunked\r\n", body.as_bytes());
            client.send(&request).await;
            pooled.stream.read_until(format!("\r\n\r\n{body}").as_bytes()).await;
            drop(pooled);
            let mut second = upstream_connections.next().await;
            assert_eq!(second.request.target, "/public/2", "fast_lane={fast_lane}");
            let sent = second.stream.read_until(b"0\r\n\r\n").await;
            assert_eq!(String::from_utf8_lossy(&sent), body, "fast_lane={fast_lane}");
            second.stream.send(&ok_response("", b"two")).await;
            assert_eq!(client.response().await.expect("a response").text(), "two", "fast_lane={fast_lane}");
            pooled = second;
        }
    }
}

/// A client that speaks HTTP/2 may end its body with an empty frame.
#[tokio::test]
async fn empty_body_of_an_http2_client_on_a_closed_pooled_connection_is_retried() {
    // One thread pools the connection before it writes the response.
    let desk = Gateway::setup().tls().set("server.threads", "1").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let client = xiaoming.http2().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut stream = client.begin("GET", "/api/desk/1", xiaoming.token()).await;
    let mut pooled = upstream_connections.next().await;
    pooled.stream.send(&ok_response("", b"one")).await;
    assert_eq!(stream.next_piece().await.expect("a response"), b"one");
    let mut stream = client.begin("PUT", "/api/desk/2", xiaoming.token()).await;
    pooled.stream.read_until(b"PUT /api/desk/2 ").await;
    pooled.stream.read_until(b"\r\n\r\n").await;
    stream.end();
    pooled.stream.read_until(b"0\r\n\r\n").await;
    drop(pooled);
    let mut second = upstream_connections.next().await;
    assert_eq!(second.stream.read_until(b"0\r\n\r\n").await, b"0\r\n\r\n");
    second.stream.send(&ok_response("", b"two")).await;
    assert_eq!(stream.next_piece().await.expect("a response"), b"two");
}

#[tokio::test]
async fn truncated_response_is_not_retried() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut client = desk.connect().await;
    client.send(&raw_request(&desk, "GET /public/1", "", b"")).await;
    let mut first = upstream_connections.next().await;
    first.stream.send(b"HTTP/1.1 20").await;
    drop(first);
    client.response().await.expect("a response").expect_code(1502);
    assert!(upstream_connections.has_none_within(Duration::from_millis(300)).await, "the retry uses a new connection");
}

#[tokio::test]
async fn upstream_connection_closes_when_the_client_disconnects() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    for part in ["", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"] {
        let mut client = BufferedStream::from_connection(desk.connect().await);
        client.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
        let mut upstream_connection = upstream_connections.next().await;
        upstream_connection.stream.send(part.as_bytes()).await;
        drop(client);
        assert_eq!(upstream_connection.stream.read_to_end_within(TEST_TIMEOUT).await, b"", "{part:?}");
    }
    desk.wait_for_log(&["the client disconnected before the response"]).await;
}

#[tokio::test]
async fn each_request_on_a_connection_is_authorized() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("Authorization: Bearer {}\r\n", xiaoming.token());
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "GET /api/desk/x", &bearer, b"")).await;
    connection.response().await.expect("a response").expect_status(200);
    connection.send(&raw_request(&desk, "GET /api/desk/x", "", b"")).await;
    connection.response().await.expect("a response").expect_bare_challenge();
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "GET /api/desk/x", &bearer, b"")).await;
    connection.response().await.expect("a response").expect_status(200);
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    connection.send(&raw_request(&desk, "GET /api/desk/x", &bearer, b"")).await;
    connection.response().await.expect("a response").expect_invalid_token();
}

#[tokio::test]
async fn connection_close_is_honoured() {
    let desk = Gateway::start().await;
    for target in ["/public/x", "/api/ready"] {
        let mut connection = desk.connect().await;
        connection.send(&raw_request(&desk, &format!("GET {target}"), "Connection: close\r\n", b"")).await;
        connection.response().await.expect("a response").expect_status(200);
        assert!(connection.closes_within(TEST_TIMEOUT).await, "{target}");
    }
    let mut connection = desk.connect().await;
    connection.send(format!("GET /public/x HTTP/1.0\r\nHost: {}\r\n\r\n", desk.address()).as_bytes()).await;
    connection.response().await.expect("a response").expect_status(200);
    assert!(connection.closes_within(TEST_TIMEOUT).await, "HTTP/1.0");
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
    assert_eq!((one.requests().len(), two.requests().len()), (12, 12), "WebSockets are balanced too");
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
    assert_eq!(live.requests().len(), 20, "each address once");
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
        ("it closes the connection", Behaviour::CloseWithoutResponse),
        ("it sends no HTTP", Behaviour::RespondAndClose(b"220 mail.example ESMTP\r\n\r\n".to_vec())),
        ("half a head", Behaviour::RespondAndClose(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec())),
        ("an endless head", Behaviour::RespondAndClose(endless.into_bytes())),
    ] {
        desk.upstream.set_behaviour(behaviour);
        // A POST is never retried.
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
        ("an invalid chunk", &bad_chunk, false),
        ("a length that is never reached", &short, true),
        ("chunks that stop coming", &chunked, true),
    ] {
        desk.upstream.set_behaviour(match open {
            true => Behaviour::Respond(bytes.clone()),
            false => Behaviour::RespondAndClose(bytes.clone()),
        });
        let outcome = desk.anonymous().try_send("GET", "/public/x", &[], b"").await;
        // Where nothing was sent yet, the client is told.
        if let Ok(response) = outcome {
            assert_eq!(response.code(), 1502, "{case}: the response looks complete, {}", response.describe());
        }
    }
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
    let mut upstream_connection = upstream_connections.next().await;
    upstream_connection.stream.send(&chunked).await;
    let mut client = BufferedStream::from_connection(connection);
    client.read_until(b"only this").await;
    upstream_connection.stream.reset();
    let rest = client.read_to_end_within(TEST_TIMEOUT).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "a reset looks like a regular end: {}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let desk = Gateway::with("[limits]\nstalled = \"500ms\"").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
    let mut upstream_connection = upstream_connections.next().await;
    // Far more than the socket buffers hold.
    let response = ok_response("", &byte_pattern(64 << 20));
    assert!(upstream_connection.stream.try_send(&response).await.is_err(), "the upstream could send everything");
    let received = BufferedStream::from_connection(connection).read_to_end_within(TEST_TIMEOUT).await;
    assert!(received.len() < response.len(), "the whole response was buffered for a client that does not read");
    desk.anonymous().get("/api/ready").await.expect_code(0);
}

#[tokio::test]
async fn truncated_upload_is_truncated_for_the_upstream() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "POST /public/x", "Content-Length: 100\r\n", b"only this")).await;
    let mut upstream_connection = upstream_connections.next().await;
    assert_eq!(upstream_connection.stream.read_exactly(9).await, b"only this");
    drop(connection);
    assert_eq!(upstream_connection.stream.read_to_end_within(TEST_TIMEOUT).await, b"");

    let mut connection = desk.connect().await;
    connection
        .send(&raw_request(&desk, "POST /public/x", "Transfer-Encoding: chunked\r\n", b"9\r\nonly this\r\n"))
        .await;
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
    let mut bytes = ok_response("", b"honest");
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
    connection.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
    let mut upstream_connection = upstream_connections.next().await;
    upstream_connection
        .stream
        .send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    upstream_connection.stream.try_send(b"raw bytes").await.ok();
    let response = connection.response().await;
    assert!(response.as_ref().is_none_or(|response| response.status == 502), "{}", response.unwrap().describe());
    let mut client = BufferedStream::from_connection(connection);
    client.try_send(b"GET /public/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n").await.ok();
    let seen = upstream_connection.stream.read_to_end_within(TEST_TIMEOUT).await;
    assert!(seen.is_empty(), "through a tunnel: {}", String::from_utf8_lossy(&seen));
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

/// Opens a connection from this loopback address and sends a request; `None` if the gateway closes it unanswered.
async fn connect_from(desk: &Gateway, source: &str) -> Option<tokio::net::TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{source}:0").parse().expect("an address")).expect("a loopback address");
    let mut stream = socket.connect(desk.address()).await.expect("a connection");
    let request = format!("GET /version HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address());
    let mut first = [0; 12];
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.ok()?;
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut first).await.ok()?;
    assert_eq!(&first, b"HTTP/1.1 200");
    Some(stream)
}

#[tokio::test]
async fn connections_of_one_address_are_limited() {
    let settings = "[limits]\nconnections_per_address = 3\n[server]\ntrusted_proxies = [\"127.0.0.1/32\"]";
    let desk = Gateway::with(settings).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(connect_from(&desk, "127.0.0.5").await.expect("a connection within the limit"));
    }
    assert!(connect_from(&desk, "127.0.0.5").await.is_none(), "a fourth connection");
    assert!(connect_from(&desk, "127.0.0.6").await.is_some(), "another address");
    assert_eq!(desk.metric("deskgate_limit_reached_total", &["limit=\"connections_per_address\""]).await, 1.0);
    for _ in 0..5 {
        held.push(connect_from(&desk, "127.0.0.1").await.expect("a trusted proxy is exempt"));
    }
    held.remove(0);
    eventually("room after a connection was closed", || connect_from(&desk, "127.0.0.5")).await;
}

/// Clients that connect while none is accepted wait in the kernel's backlog. Beyond it their handshake would be dropped
/// and repeated a second later.
#[tokio::test]
async fn a_thousand_clients_at_once_fit_the_backlog() {
    let desk = Gateway::with("[limits]\nconnections = 1").await;
    let mut served = desk.connect().await;
    served.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
    served.response().await.expect("a response").expect_status(200);
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("a limit of the kernel");
    let most: usize = most.trim().parse().expect("a number");
    let waiting = join_all((0..most.min(1000)).map(|_| desk.connect()));
    let mut waiting = within(TEST_TIMEOUT, "the connections", waiting).await;
    drop(served);
    let next = waiting.first_mut().expect("a connection");
    next.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
    next.response().await.expect("a response").expect_status(200);
}
