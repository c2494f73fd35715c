//! `Host`: the gateway answers under its own names only, so that no other name that resolves to it (DNS rebinding) is served.

use crate::support::*;

/// A gateway in production with these hosts; its public URL and clients are under `127.0.0.1`.
fn production(hosts: &str) -> Setup {
    Gateway::setup().production().toml(&format!("[server]\nhosts = {hosts}"))
}

#[tokio::test]
async fn foreign_hosts_are_1421_on_every_lane() {
    let desk = Gateway::start().await;
    let administrator = desk.sign_in("m5001").await;
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[2001:db8::1]:80"] {
        let foreign = administrator.with_host(host);
        for (lane, method, path) in [
            ("encoded head", "GET", "/public/x"),
            ("Pingora's proxy", "POST", "/public/x"),
            ("own endpoint", "GET", "/api/auth/me"),
            ("sign-in page", "GET", "/api/auth/signin"),
            ("development route", "GET", "/api/dev/users"),
            ("no rule", "GET", "/nowhere"),
        ] {
            let response = foreign.send(method, path, &[], b"").await;
            assert_eq!((response.status, response.code()), (421, 1421), "{host}, {lane}: {}", response.describe());
        }
        let refused = foreign.handshake("/ws/employee").open().await.err();
        refused.unwrap_or_else(|| panic!("{host}: a socket")).expect_code(1421);
        let message = foreign.get("/public/x").await.message().to_owned();
        assert!(message.contains("server.hosts"), "{message}");
    }
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn own_hosts_are_served_in_every_spelling_and_on_every_port() {
    let settings = r#"
        [server]
        public_url = "https://desk.example.com"
        [clients]
        h5 = "https://m.example.com/h5/"
        itagent = "https://desk.example.com/itagent/"
        itadmin = "https://desk.example.com:8443/itadmin/"
    "#;
    let desk = Gateway::setup().production().toml(settings).start().await;
    for host in ["desk.example.com", "DESK.example.COM", "desk.example.com.", "desk.example.com:8443", "m.example.com"]
    {
        desk.anonymous().with_host(host).get("/public/x").await.expect_status(200);
        assert_eq!(desk.upstream.last_request().header("x-forwarded-host"), Some(host));
        let mut socket = desk.anonymous().with_host(host).handshake("/ws/public").expect_accepted().await;
        socket.echo("hello").await;
    }
    for host in ["example.com", "localhost", "127.0.0.1", &desk.address().to_string()] {
        desk.anonymous().with_host(host).get("/public/x").await.expect_code(1421);
    }
}

#[tokio::test]
async fn configured_hosts_replace_the_defaults() {
    let desk = production("[\"desk.example.com\", \"[2001:db8::1]:8443\"]").start().await;
    for (host, served) in [
        ("desk.example.com", true),
        ("desk.example.com:8080", true),
        ("[2001:db8::1]:8443", true),
        ("[2001:db8:0:0::1]:8443", true),
        ("[2001:db8::1]", false),
        ("[2001:db8::1]:443", false),
        ("127.0.0.1", false),
    ] {
        let response = desk.anonymous().with_host(host).get("/public/x").await;
        assert_eq!(response.status, if served { 200 } else { 421 }, "{host}: {}", response.describe());
    }
    let refused = production("[\"https://desk.example.com\"]").try_start().await.err().expect("a refusal");
    assert!(refused.stderr.contains("server.hosts"), "{}", refused.stderr);
}

#[tokio::test]
async fn development_mode_serves_loopback_hosts() {
    let desk = Gateway::start().await;
    for host in ["localhost", "localhost:8080", "desk.localhost", "127.0.0.1", "127.0.0.9:1", "[::1]:8080"] {
        desk.anonymous().with_host(host).get("/public/x").await.expect_status(200);
    }
    let named = Gateway::with("[server]\nhosts = [\"desk.example.com\"]").await;
    for host in ["localhost:8080", "127.0.0.1", "[::1]:8080"] {
        named.anonymous().with_host(host).get("/api/dev/users").await.expect_code(0);
    }
    named.anonymous().with_host("other.example.com").get("/public/x").await.expect_code(1421);
    for real in [Gateway::setup().production(), production("[\"desk.example.com\"]")] {
        real.start().await.anonymous().with_host("localhost").get("/public/x").await.expect_code(1421);
    }
}

#[tokio::test]
async fn ready_answers_under_every_host_and_without_one() {
    let desk = Gateway::setup().production().start().await;
    for host in ["evil.example", "10.1.2.3:8080", "kubernetes"] {
        desk.anonymous().with_host(host).get("/api/ready").await.expect_code(0);
        desk.anonymous().with_host(host).get("/version").await.expect_code(1421);
    }
    desk.send_raw(b"GET /api/ready HTTP/1.0\r\n\r\n").await.expect("a response").expect_code(0);
}

#[tokio::test]
async fn request_without_host_is_refused() {
    let desk = Gateway::start().await;
    desk.send_raw(b"GET /public/x HTTP/1.0\r\n\r\n").await.expect("a response").expect_code(1421);
    desk.send_raw(b"GET /public/x HTTP/1.1\r\n\r\n").await.expect("a response").expect_code(1400);
    assert!(desk.upstream.requests().is_empty());
    let with_host = format!("GET /public/x HTTP/1.0\r\nHost: {}\r\n\r\n", desk.address());
    desk.send_raw(with_host.as_bytes()).await.expect("a response").expect_status(200);
}

#[tokio::test]
async fn foreign_authority_of_http2_is_1421() {
    let desk = Gateway::setup().tls().start().await;
    let anonymous = desk.anonymous().http2().await;
    let foreign = anonymous.with_authority("evil.example");
    for (method, path) in [("GET", "/public/x"), ("POST", "/public/x"), ("GET", "/api/auth/signin")] {
        let response = foreign.send(method, path, &[], b"").await;
        assert_eq!((response.status, response.code()), (421, 1421), "{}", response.describe());
    }
    assert!(desk.upstream.requests().is_empty());
    foreign.get("/api/ready").await.expect_code(0);
    anonymous.with_authority("localhost:1").get("/public/x").await.expect_status(200);
    assert_eq!(desk.upstream.only_request().header("host"), Some("localhost:1"));
}

#[tokio::test]
async fn dev_routes_want_a_loopback_client_and_host() {
    let desk = Gateway::with("[server]\nhosts = [\"127.0.0.1\", \"desk.example.com\"]").await;
    let calls = [("POST", "/api/dev/login"), ("GET", "/api/dev/users"), ("GET", "/api/dev/health")];
    for (method, path) in calls {
        for (case, client) in [
            ("a client elsewhere", desk.anonymous().with_header("X-Forwarded-For", "203.0.113.9")),
            ("another host", desk.anonymous().with_host("desk.example.com")),
        ] {
            let body = br#"{"employee_id":"u1001"}"#;
            let response = client.send(method, path, &[("Content-Type", "application/json")], body).await;
            assert_eq!((response.status, response.code()), (403, 1003), "{case}: {}", response.describe());
            assert!(response.message().contains("localhost"), "{}", response.message());
        }
    }
    desk.anonymous().get("/api/dev/users").await.expect_code(0);
    desk.anonymous().with_header("X-Forwarded-For", "127.0.0.5").get("/api/dev/users").await.expect_code(0);
    desk.anonymous().with_host("desk.example.com").get("/public/x").await.expect_status(200);
}
