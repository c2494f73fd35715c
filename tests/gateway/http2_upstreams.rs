//! Upstreams that speak HTTP/2: requests, trailers and streams of both directions, as gRPC needs them.

use std::time::{Duration, Instant};

use crate::support::*;

async fn start_with(upstream: &Http2Upstream) -> Gateway {
    Gateway::setup().tls().toml(&upstream.settings("")).start().await
}

#[tokio::test]
async fn requests_of_both_versions_reach_an_http2_upstream() {
    let upstream = Http2Upstream::start().await;
    let desk = start_with(&upstream).await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/desk/x?a=b").await.expect_status(200);
    let posted = xiaoming.send("POST", "/api/desk/x?a=b", &[], b"over HTTP/1.1").await.expect_status(200);
    assert_eq!(posted.text(), "over HTTP/1.1");
    let client = xiaoming.http2().await;
    client.send("GET", "/api/desk/x?a=b", &[("te", "trailers")], b"").await.expect_status(200);
    let posted = client.send("POST", "/api/desk/x?a=b", &[], b"over HTTP/2").await.expect_status(200);
    assert_eq!(posted.text(), "over HTTP/2");
    let requests = upstream.requests();
    assert_eq!(requests.len(), 4);
    for request in &requests {
        let header = |name: &str| request.headers.get(name).map(|value| value.to_str().expect("text"));
        assert_eq!(request.version, http::Version::HTTP_2);
        assert_eq!(request.uri.authority().map(|host| host.as_str()), Some(&*desk.address().to_string()));
        assert_eq!(request.uri.path_and_query().map(|target| target.as_str()), Some("/api/desk/x?a=b"));
        assert_eq!(header("x-deskgate-employee-id"), Some("u1001"));
        assert_eq!(header("x-deskgate-roles"), Some("user"));
        assert!(header("x-deskgate-assertion").is_some());
        assert_eq!(header("x-forwarded-host"), Some(&*desk.address().to_string()));
        assert_eq!((header("authorization"), header("connection"), header("host")), (None, None, None));
    }
    let trailers: Vec<bool> = requests.iter().map(|request| request.headers.contains_key("te")).collect();
    assert_eq!(trailers, [false, false, true, false]);
}

#[tokio::test]
async fn client_that_expects_a_100_gets_one() {
    let upstream = Http2Upstream::start().await;
    let desk = Gateway::setup().toml(&upstream.settings("")).start().await;
    let mut connection = desk.connect().await;
    let head = format!("POST /public/x HTTP/1.1\r\nHost: {}\r\nContent-Length: 4\r\n", desk.address());
    connection.send(format!("{head}Expect: 100-continue\r\n\r\n").as_bytes()).await;
    assert_eq!(connection.response().await.expect("a response").status, 100);
    connection.send(b"body").await;
    assert_eq!(connection.response().await.expect("a response").expect_status(200).text(), "body");
    assert!(!upstream.requests()[0].headers.contains_key("expect"));
}

#[tokio::test]
async fn large_upload_of_an_http1_client_arrives_whole() {
    let upstream = Http2Upstream::start().await;
    let desk = Gateway::setup().toml(&upstream.settings("")).start().await;
    let body = byte_pattern(1_000_000);
    let response = desk.anonymous().send("POST", "/public/x", &[], &body).await.expect_status(200);
    assert!(response.body == body);
}

#[tokio::test]
async fn early_response_reaches_an_http1_client_that_still_sends() {
    let upstream = Http2Upstream::start().await;
    let desk = Gateway::setup().toml(&upstream.settings("")).start().await;
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "POST /public/early", "Content-Length: 100000\r\n", &[b'x'; 1000])).await;
    connection.response().await.expect("a response").expect_status(413);
}

/// The rest of a body that has come is sent behind a complete response, but nothing waits for an upstream that does not take it.
#[tokio::test]
async fn next_request_does_not_wait_for_an_answered_upload() {
    let upstream = Http2Upstream::start().await;
    let settings = upstream.settings("answer_timeout = \"5s\"\n");
    // One thread, which sees the response and the rest of the body at once.
    let desk = Gateway::setup().set("server.threads", "1").toml(&settings).start().await;
    for round in 0..12 {
        let mut connection = desk.connect().await;
        connection.send(&raw_request(&desk, "POST /public/stuck", "Content-Length: 100000\r\n", &[b'x'; 60_000])).await;
        upstream.wait_for_stuck(60_000).await;
        desk.pause().await;
        upstream.answer_stuck().await;
        connection.send(&[b'x'; 40_000]).await;
        connection.until_delivered().await;
        let began = Instant::now();
        desk.resume();
        let response = connection.response().await.expect("a response").expect_status(413);
        assert_eq!(response.header("connection"), Some("keep-alive"));
        connection.send(&raw_request(&desk, "GET /public/next", "", b"")).await;
        connection.response().await.expect("a response").expect_status(200);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?} in round {round}", began.elapsed());
    }
}

/// Room on the connection to the upstream is left to the streams that can use it.
#[tokio::test]
async fn client_that_does_not_read_does_not_stop_the_uploads_of_others() {
    let upstream = Http2Upstream::start().await;
    let settings = upstream.settings("answer_timeout = \"60s\"\n");
    let desk = Gateway::setup().set("limits.stalled", "60s").toml(&settings).start().await;
    let mut idle = desk.connect().await;
    idle.send(&raw_request(&desk, "POST /public/endless", "Content-Length: 200000\r\n", &[b'x'; 40_000])).await;
    upstream.wait_for_stuck(40_000).await;
    desk.pause().await;
    idle.send(&[b'x'; 60_000]).await;
    idle.until_delivered().await;
    desk.resume();
    upstream.wait_until_blocked().await;
    upstream.make_room(30_000).await;
    let response = desk.anonymous().send("POST", "/public/x", &[], &byte_pattern(60_000)).await.expect_status(200);
    assert!(response.body == byte_pattern(60_000));
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn response_without_a_body_is_complete_for_an_http1_client() {
    let upstream = Http2Upstream::start().await;
    let desk = Gateway::setup().toml(&upstream.settings("")).start().await;
    let mut connection = desk.connect().await;
    for _ in 0..2 {
        connection.send(&raw_request(&desk, "GET /public/trailers-only", "", b"")).await;
        let response = connection.response().await.expect("a response").expect_status(200);
        assert_eq!(response.header("content-length"), Some("0"));
    }
}

#[tokio::test]
async fn host_cannot_be_nominated_away() {
    let upstream = Http2Upstream::start().await;
    let desk = Gateway::setup().toml(&upstream.settings("")).start().await;
    let headers = [("connection", "host, x-own"), ("x-own", "value")];
    desk.anonymous().send("GET", "/public/x", &headers, b"").await.expect_status(200);
    let request = &upstream.requests()[0];
    assert_eq!(request.uri.authority().map(|host| host.as_str()), Some(&*desk.address().to_string()));
    assert!(!request.headers.contains_key("x-own"));
}

#[tokio::test]
async fn trailers_reach_the_client_without_identity() {
    let upstream = Http2Upstream::start().await;
    let desk = start_with(&upstream).await;
    let xiaoming = desk.sign_in("u1001").await;
    let client = xiaoming.http2().await;
    let trailers = client.trailers("/api/desk/desk.Tickets/Open", b"question").await;
    assert_eq!(trailers.get("grpc-status").map(|value| value.as_bytes()), Some(&b"0"[..]));
    assert_eq!(trailers.len(), 1, "{trailers:?}");
    let only = client.send("POST", "/api/desk/desk.Tickets/trailers-only", &[], b"question").await.expect_status(200);
    assert_eq!(only.header("grpc-status"), Some("12"));
    let mut stream = client.begin("POST", "/api/desk/desk.Tickets/trailers-only", xiaoming.token()).await;
    stream.end();
    assert!(stream.ends_with_the_header().await);
}

#[tokio::test]
async fn both_directions_flow_at_the_same_time() {
    let upstream = Http2Upstream::start().await;
    let desk = start_with(&upstream).await;
    let xiaoming = desk.sign_in("u1001").await;
    let client = xiaoming.http2().await;
    let mut stream = client.begin("POST", "/api/desk/talk", xiaoming.token()).await;
    for piece in [&b"one"[..], b"two", b"three"] {
        stream.send(piece).await;
        assert_eq!(stream.next_piece().await.expect("a piece"), piece);
    }
    stream.end();
    assert_eq!(stream.next_piece().await.expect("the end"), b"");
    assert_eq!(stream.trailers().await.len(), 1);
}

#[tokio::test]
async fn client_of_an_answered_stream_may_be_silent() {
    let upstream = Http2Upstream::start().await;
    let limits = "[limits]\nbody_grace = \"300ms\"\n";
    let desk = Gateway::setup().tls().toml(&upstream.settings("")).toml(limits).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let client = xiaoming.http2().await;
    let mut answered = client.begin("POST", "/api/desk/talk", xiaoming.token()).await;
    answered.send(b"one").await;
    assert_eq!(answered.next_piece().await.expect("a piece"), b"one");
    // The other one is cut for its silence, so at least the grace has passed.
    let mut unanswered = client.begin("POST", "/api/desk/never", xiaoming.token()).await;
    unanswered.send(b"one").await;
    assert!(unanswered.next_piece().await.is_err());
    answered.send(b"two").await;
    assert_eq!(answered.next_piece().await.expect("a piece"), b"two");
}

/// Cancels a request that has reached the upstream, and waits until the upstream's stream is reset.
async fn cancel_a_request(upstream: &Http2Upstream, xiaoming: &Client) -> Http2Client {
    let client = xiaoming.http2().await;
    let before = upstream.requests().len();
    let mut stream = client.begin("POST", "/api/desk/never", xiaoming.token()).await;
    upstream.wait_for_requests(before + 1).await;
    stream.cancel();
    upstream.wait_for_reset().await;
    client
}

#[tokio::test]
async fn cancelled_request_is_reset_at_the_upstream() {
    let upstream = Http2Upstream::start().await;
    let desk = start_with(&upstream).await;
    cancel_a_request(&upstream, &desk.sign_in("u1001").await).await;
}

#[tokio::test]
async fn logout_cuts_an_open_stream() {
    let upstream = Http2Upstream::start().await;
    let desk = start_with(&upstream).await;
    let xiaoming = desk.sign_in("u1001").await;
    let client = desk.sign_in("u1001").await.http2().await;
    let mut stream = client.begin("POST", "/api/desk/talk", xiaoming.token()).await;
    stream.send(b"one").await;
    assert_eq!(stream.next_piece().await.expect("a piece"), b"one");
    xiaoming.post("/api/auth/logout").await.expect_status(200);
    assert!(!matches!(stream.next_piece().await, Ok(piece) if !piece.is_empty()));
}

/// Opens a stream to the upstream that stays open. Without one, a request may find the connection of the one before neither
/// in use nor idle, because Pingora is just moving it, and open another.
async fn hold_a_stream(xiaoming: &Client) -> Http2Stream {
    let mut held = xiaoming.http2().await.begin("POST", "/api/desk/talk", xiaoming.token()).await;
    held.send(b"one").await;
    assert_eq!(held.next_piece().await.expect("a piece"), b"one");
    held
}

#[tokio::test]
async fn connections_are_shared() {
    let upstream = Http2Upstream::start().await;
    let desk = start_with(&upstream).await;
    let xiaoming = desk.sign_in("u1001").await;
    let _held = hold_a_stream(&xiaoming).await;
    let client = xiaoming.http2().await;
    for _ in 0..20 {
        client.send("POST", "/api/desk/x", &[], b"body").await.expect_status(200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn health_checks_connect_each_time() {
    let upstream = Http2Upstream::start().await;
    let settings = upstream.settings("health = { path = \"/health\", every = \"100ms\", expect = [200] }\n");
    let _desk = Gateway::setup().toml(&settings).start().await;
    eventually("three checks", || async { (upstream.connections() >= 3).then_some(()) }).await;
    assert!(upstream.requests().len() <= upstream.connections());
    assert!(upstream.requests().iter().all(|request| request.uri.path() == "/health"));
}

#[tokio::test]
async fn connection_of_a_cancelled_request_is_used_again() {
    let upstream = Http2Upstream::start().await;
    let desk = start_with(&upstream).await;
    let xiaoming = desk.sign_in("u1001").await;
    let _held = hold_a_stream(&xiaoming).await;
    let client = cancel_a_request(&upstream, &xiaoming).await;
    for _ in 0..3 {
        client.send("POST", "/api/desk/x", &[], b"body").await.expect_status(200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn upstream_without_http2_is_1502() {
    let desk = Gateway::setup().tls().toml("[upstreams.helpdesk]\nprotocol = \"http2\"\n").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/desk/x").await.expect_code(1502);
    xiaoming.http2().await.send("POST", "/api/desk/x", &[], b"body").await.expect_code(1502);
}

#[tokio::test]
async fn http2_is_negotiated_over_tls() {
    let (authority, folder) = (CertificateAuthority::new(), tempfile::tempdir().unwrap());
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.certificate()).expect("a file");
    for (offered, expected) in [(&b"h2"[..], 200), (b"http/1.1", 502)] {
        let acceptor = authority.issue().acceptor_with(&[offered], None);
        let upstream = Http2Upstream::start_with(Some(acceptor)).await;
        let settings = upstream.settings(&format!("tls = {{ ca_file = {ca:?} }}\n"));
        let desk = Gateway::setup().toml(&settings).start().await;
        let response = desk.sign_in("u1001").await.send("POST", "/api/desk/x", &[], b"body").await;
        assert_eq!(response.status, expected, "{}", String::from_utf8_lossy(offered));
        assert_eq!(upstream.requests().len(), usize::from(expected == 200));
    }
}

#[tokio::test]
async fn upstream_that_does_not_answer_is_1504() {
    let upstream = Http2Upstream::start().await;
    let settings = upstream.settings("answer_timeout = \"200ms\"\n");
    let desk = Gateway::setup().tls().toml(&settings).start().await;
    desk.sign_in("u1001").await.get("/api/desk/never").await.expect_code(1504);
    upstream.wait_for_reset().await;
}
