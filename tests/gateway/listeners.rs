//! Several listeners, each with settings of its own: plain and TLS, HTTP/2 without TLS, redirects to HTTPS, HSTS.

use crate::support::*;

/// Serves HTTPS on the first listener, and these listeners besides.
fn https_and(listeners: &str) -> Setup {
    Gateway::setup().tls().toml(listeners)
}

const PLAIN: &str = "[[server.listeners]]\naddress = \"127.0.0.1:0\"\n";

// Plain and TLS.

#[tokio::test]
async fn listeners_serve_plain_http_and_https_side_by_side() {
    let second = "[[server.listeners]]\naddress = \"127.0.0.1:0\"\ntls = true\n";
    let desk = https_and(&format!("{PLAIN}{second}")).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for server in [desk.tls_listener(0), desk.listener(1).into(), desk.tls_listener(2)] {
        let client = Client::new(server).with_token(xiaoming.token());
        client.get("/api/desk/x").await.expect_status(200);
        assert_eq!(desk.upstream.last_request().header("x-deskgate-employee-id"), Some("u1001"));
        client.with_token("a.b.c").get("/api/desk/x").await.expect_invalid_token();
    }
}

#[tokio::test]
async fn an_address_in_use_names_the_setting() {
    let desk = Gateway::start().await;
    let taken = format!("[[server.listeners]]\naddress = \"{}\"\n", desk.address());
    let refused = match Gateway::setup().toml(&taken).try_start().await {
        Ok(_) => panic!("two gateways listen on one address"),
        Err(refused) => refused,
    };
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("server.listeners"), "{}", refused.stderr);
}

#[tokio::test]
async fn plain_http_on_a_tls_port_is_1400_and_says_so() {
    let desk = https_and("").start().await;
    let large =
        [raw_request(&desk, "POST /public/x", "Content-Length: 1000000\r\n", b""), vec![b'x'; 1_000_000]].concat();
    for (case, bytes) in [
        ("a request", raw_request(&desk, "GET /public/x", "", b"")),
        ("a request with a body", large),
        ("the first byte of a request", b"G".to_vec()),
        ("another method", b"options * HTTP/1.1\r\n\r\n".to_vec()),
        ("HTTP/2 without TLS", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
    ] {
        let mut connection = Connection::open(desk.address()).await;
        connection.send(&bytes).await;
        let response = connection.response().await.unwrap_or_else(|| panic!("{case}: no response"));
        assert_eq!(response.status, 400, "{case}");
        let response = response.expect_code(1400);
        assert!(response.message().contains("https://"), "{case}: {}", response.describe());
        assert_eq!(response.header("connection"), Some("close"), "{case}");
        let id = response.header("x-request-id").expect("a request id");
        let line = desk.wait_for_log(&["deskgate::request", &format!(r#""request.id":"{id}""#)]).await;
        assert!(line.contains(r#""client.address":"127.0.0.1""#) && line.contains(r#""code":1400"#), "{case}: {line}");
        assert!(connection.until_end().await.is_empty(), "{case}: more than one response");
    }
    let mut connection = Connection::open(desk.address()).await;
    connection.send(&raw_request(&desk, "HEAD /public/x", "", b"")).await;
    let refused = connection.until_end().await;
    assert!(refused.starts_with(b"HTTP/1.1 400 ") && refused.ends_with(b"\r\n\r\n"), "a HEAD has no body");
    desk.anonymous().get("/public/good").await.expect_status(200);
    assert!(desk.upstream.requests().iter().all(|seen| seen.target == "/public/good"));
    eventually("six refusals", || async {
        let refused = desk.metric("deskgate_connections_refused_total", &["reason=\"plain_http\""]).await;
        (refused == 6.0).then_some(())
    })
    .await;
}

// HTTP/2 without TLS.

#[tokio::test]
async fn h2c_listener_serves_http2_and_http1() {
    let desk = Gateway::setup().toml(&format!("{PLAIN}h2c = true\n")).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let server = ServerAddress::from(desk.listener(1));
    let streams = Http2Client::open(&server, Some(xiaoming.token().to_owned())).await;
    let calls = (0..20).map(|number| {
        let streams = &streams;
        async move { streams.get(&format!("/api/desk/{number}")).await.expect_status(200) }
    });
    futures::future::join_all(calls).await;
    streams.post_json("/api/desk/x", &json!({ "a": 1 })).await.expect_status(200);
    assert_eq!(desk.upstream.last_request().body, br#"{"a":1}"#);
    Http2Client::open(&server, None).await.get("/api/desk/x").await.expect_bare_challenge();

    let client = Client::new(server.clone()).with_token(xiaoming.token());
    client.get("/api/desk/x").await.expect_status(200);
    client.websocket("/ws/employee").await.echo("hello").await;
    let mut slow = Connection::open(server).await;
    for byte in raw_request(&desk, "PUT /public/x", "Content-Length: 0\r\n", b"").chunks(1).take(8) {
        slow.send(byte).await;
    }
    let rest = raw_request(&desk, "PUT /public/x", "Content-Length: 0\r\n", b"");
    slow.send(&rest[8..]).await;
    slow.response().await.expect("a response").expect_status(200);
}

#[tokio::test]
async fn h2c_is_off_unless_the_listener_has_it() {
    let desk = Gateway::start().await;
    let response = desk.send_raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("a response");
    assert_eq!((response.status, response.code()), (505, 1400));
}

#[tokio::test]
async fn silent_connection_to_an_h2c_listener_is_timed_out() {
    let settings = format!("[limits]\nhead_deadline = \"300ms\"\n{PLAIN}h2c = true\n");
    let desk = Gateway::setup().toml(&settings).start().await;
    for bytes in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n"] {
        let mut connection = Connection::open(desk.listener(1)).await;
        connection.send(bytes).await;
        within(TEST_TIMEOUT, "the end", connection.until_end()).await;
    }
}

// Redirects.

#[tokio::test]
async fn redirecting_listener_sends_every_request_to_the_public_url() {
    let desk = https_and(&format!("{PLAIN}redirect = true\n")).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let plain = Client::new(desk.listener(1));
    for (method, target, canonical) in [
        ("GET", "/public/x?a=1&b=%20", "/public/x?a=1&b=%20"),
        ("GET", "/", "/"),
        ("GET", "/nowhere", "/nowhere"),
        ("POST", "/api/auth/verify", "/api/auth/verify"),
        ("GET", "/api/ready/x", "/api/ready/x"),
        ("GET", "/public/%41", "/public/A"),
    ] {
        for client in [plain.clone(), plain.with_token(xiaoming.token()), plain.with_token("a.b.c")] {
            let response = client.send(method, target, &[], b"").await.expect_status(308);
            assert_eq!(
                response.header("location").unwrap_or_default(),
                format!("{}{canonical}", desk.public_url()),
                "{method} {target}"
            );
            assert_eq!(response.header("strict-transport-security"), None);
        }
    }
    plain.get("/api/ready").await.expect_status(200);
    assert!(desk.upstream.requests().is_empty(), "a request was forwarded");
    let refused = plain.handshake("/ws/public").expect_refused().await;
    assert_eq!(refused.status, 308, "{}", refused.describe());
}

#[tokio::test]
async fn redirect_never_leads_to_another_host() {
    let desk = https_and(&format!("{PLAIN}redirect = true\n")).start().await;
    let plain = Client::new(desk.listener(1));
    plain.with_host("evil.example").get("/public/x").await.expect_code(1421);
    for target in ["//evil.example/", "/\\evil.example", "/%2f/evil.example", "/public/../..//evil.example"] {
        plain.get(target).await.expect_code(1400);
    }
    for target in ["/@evil.example/", "/.evil.example", "/public/x?next=//evil.example"] {
        let location = plain.get(target).await.expect_status(308).header("location").expect("a location").to_owned();
        assert!(location.starts_with(&format!("{}/", desk.public_url())), "{target}: {location}");
    }
    let absolute = format!("GET http://evil.example/x HTTP/1.1\r\nHost: {}\r\n\r\n", desk.listener(1));
    let mut connection = Connection::open(desk.listener(1)).await;
    connection.send(absolute.as_bytes()).await;
    connection.response().await.expect("a response").expect_code(1400);
}

#[tokio::test]
async fn redirect_keeps_a_host_of_the_configuration() {
    let settings = format!("[server]\nhosts = [\"127.0.0.1\", \"admin.example.test\"]\n{PLAIN}redirect = true\n");
    let desk = https_and(&settings).start().await;
    let plain = Client::new(desk.listener(1));
    let admin = format!("https://admin.example.test:{}", desk.address().port());
    for (host, origin) in [
        ("admin.example.test", &admin),
        ("ADMIN.example.test:8080", &admin),
        ("127.0.0.1", &desk.public_url()),
        // Accepted in development mode only, and not among the configured ones.
        ("localhost", &desk.public_url()),
    ] {
        let response = plain.with_host(host).get("/x?a=1").await.expect_status(308);
        assert_eq!(response.header("location").unwrap_or_default(), format!("{origin}/x?a=1"), "{host}");
    }
    plain.with_host("evil.example").get("/x").await.expect_code(1421);
}

// HSTS.

#[tokio::test]
async fn hsts_is_in_every_response_over_tls_and_in_no_other() {
    let desk = https_and(&format!("[server]\nhsts = \"365d\"\n{PLAIN}")).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let own = "max-age=31536000";
    let upstreams = "Strict-Transport-Security: max-age=1; includeSubDomains\r\n";
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response(upstreams, b"hello")));
    let plain = Client::new(desk.listener(1)).with_token(xiaoming.token());
    for (case, method, path) in [
        ("an own endpoint", "GET", "/api/auth/me"),
        ("encoded head", "GET", "/api/desk/x"),
        ("Pingora's proxy", "POST", "/api/desk/x"),
        ("a refusal", "GET", "/nowhere"),
    ] {
        let response = xiaoming.send(method, path, &[], b"").await;
        assert_eq!(response.header_all("strict-transport-security"), [own], "{case}");
        let response = plain.send(method, path, &[], b"").await;
        let kept = response.header("strict-transport-security");
        assert_ne!(kept, Some(own), "{case}, without TLS");
    }
    let streams = xiaoming.http2().await;
    for path in ["/api/auth/me", "/api/desk/x", "/nowhere"] {
        assert_eq!(streams.get(path).await.header("strict-transport-security"), Some(own), "{path} over HTTP/2");
    }
    let response = streams.post_json("/api/desk/x", &json!({})).await;
    assert_eq!(response.header_all("strict-transport-security"), [own], "the proxy for HTTP/2");
}

#[tokio::test]
async fn hsts_is_off_by_default_and_the_upstreams_own_is_kept() {
    let desk = https_and("").start().await;
    assert_eq!(desk.anonymous().get("/api/ready").await.header("strict-transport-security"), None);
    let upstreams = "Strict-Transport-Security: max-age=1\r\n";
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response(upstreams, b"hello")));
    let response = desk.anonymous().get("/public/x").await;
    assert_eq!(response.header("strict-transport-security"), Some("max-age=1"));
}
