//! TLS on the public listener: requests, WebSockets, certificate reload, and clients that do not complete a handshake.

use std::time::{Duration, Instant};

use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::support::*;

async fn tls_gateway() -> Gateway {
    Gateway::setup().tls().start().await
}

/// A plain TCP connection to the TLS listener.
async fn connect_plain(desk: &Gateway) -> Connection {
    Connection::open(desk.address()).await
}

/// The certificate of a new connection.
async fn served_certificate(desk: &Gateway) -> Vec<u8> {
    desk.connect().await.stream().certificate().expect("a certificate")
}

fn get(desk: &Gateway, target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).into_bytes()
}

// Requests.

#[tokio::test]
async fn requests_work_with_a_token() {
    let desk = tls_gateway().await;
    let xiaoming = desk.sign_in("u1001").await;
    assert_eq!(xiaoming.get("/api/auth/me").await.expect_code(0).data()["employee_id"], "u1001");
    let response = xiaoming.post_json("/api/desk/x?a=1", &json!({ "hello": "world" })).await.expect_status(200);
    assert!(response.header("x-request-id").is_some(), "{}", response.describe());
    let seen = desk.upstream.only_request();
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/api/desk/x?a=1"));
    assert_eq!(seen.body, br#"{"hello":"world"}"#);
    assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("x-forwarded-host"), Some(desk.address().to_string().as_str()));
    desk.anonymous().get("/api/desk/x").await.expect_bare_challenge();
    desk.with_token("a.b.c").get("/api/desk/x").await.expect_invalid_token();
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    xiaoming.get("/api/desk/x").await.expect_invalid_token();
}

#[tokio::test]
async fn connection_carries_several_requests() {
    let desk = tls_gateway().await;
    let mut connection = desk.connect().await;
    for number in 0..5 {
        connection.send(&get(&desk, &format!("/public/{number}"))).await;
        connection.response().await.expect("a response").expect_status(200);
    }
    let targets: Vec<String> = desk.upstream.requests().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets, ["/public/0", "/public/1", "/public/2", "/public/3", "/public/4"]);
}

#[tokio::test]
async fn client_without_alpn_gets_http1() {
    let desk = tls_gateway().await;
    let place = desk.server_address();
    let client_tls = place.client_tls.as_ref().map(|client_tls| client_tls.with_alpn(&[]));
    let mut connection = Connection::open(ServerAddress { client_tls, ..place }).await;
    assert_eq!(connection.stream().protocol(), None);
    connection.send(&get(&desk, "/public/x")).await;
    connection.response().await.expect("a response").expect_status(200);
}

#[tokio::test]
async fn http2_is_preferred() {
    let desk = tls_gateway().await;
    let place = desk.server_address();
    for (offered, agreed) in [
        (&[&b"http/1.1"[..], b"h2"][..], &b"h2"[..]),
        (&[&b"h2"[..], b"http/1.1"][..], &b"h2"[..]),
        (&[&b"http/1.1"[..]][..], &b"http/1.1"[..]),
    ] {
        let client_tls = place.client_tls.as_ref().map(|client_tls| client_tls.with_alpn(offered));
        let connection = Connection::open(ServerAddress { client_tls, ..place.clone() }).await;
        assert_eq!(connection.stream().protocol().as_deref(), Some(agreed));
    }
    let strange = place.client_tls.as_ref().map(|client_tls| client_tls.with_alpn(&[b"spdy/3"]));
    assert!(Connection::try_open(ServerAddress { client_tls: strange, ..place }).await.is_err(), "nothing in common");
    desk.anonymous().get("/public/x").await.expect_status(200);
}

#[tokio::test]
async fn large_bodies_are_relayed_both_ways() {
    let desk = tls_gateway().await;
    let xiaoming = desk.sign_in("u1001").await;
    let body: Vec<u8> = (0..3 << 20).map(|place: usize| b'a' + (place * 7 % 26) as u8).collect();
    let response = xiaoming.post_body("/api/desk/x", "text/plain", &body).await.expect_status(200);
    assert!(desk.upstream.only_request().body == body, "to the upstream");
    assert!(response.json()["body"].as_str().is_some_and(|echo| echo.as_bytes() == body), "to the client");
}

#[tokio::test]
async fn cookies_are_for_this_host_only() {
    let desk = tls_gateway().await;
    let secure = |response: &Response| {
        let cookies = response.header_all("set-cookie");
        assert!(!cookies.is_empty(), "no cookie in {}", response.describe());
        for cookie in cookies {
            let attributes: Vec<String> = cookie.split(';').map(|part| part.trim().to_ascii_lowercase()).collect();
            assert!(cookie.starts_with("__Host-deskgate_"), "{cookie}");
            for wanted in ["secure", "httponly", "samesite=lax", "path=/"] {
                assert!(attributes.iter().any(|attribute| attribute == wanted), "no {wanted}: {cookie}");
            }
            assert!(!attributes.iter().any(|attribute| attribute.starts_with("domain")), "{cookie}");
        }
    };
    let page: String = url::form_urlencoded::byte_serialize(desk.client_url("h5").as_bytes()).collect();
    secure(&desk.anonymous().get(&format!("/api/auth/oauth2/url?redirect_uri={page}")).await.expect_code(0));

    let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let phone = desk.phone("u1001");
    secure(&phone.scan(ticket["qrcode_url"].as_str().expect("a URL")).await.expect_status(302));
}

#[tokio::test]
async fn cookie_without_the_host_prefix_is_not_read() {
    let desk = tls_gateway().await;
    let phone = desk.phone("u1001");
    let authorize_url = phone.authorize_url(&desk.client_url("h5")).await;
    let callback = phone.authorize(&authorize_url).await;
    let (name, value) = phone.client().jar().pairs().remove(0);
    let plain = name.strip_prefix("__Host-").expect("the prefix");
    let planted = desk.anonymous().with_header("Cookie", &format!("{plain}={value}"));
    let response = planted.get(&callback).await;
    assert!(response.status == 400 && !response.describe().contains("token="), "{}", response.describe());
}

#[tokio::test]
async fn qrcode_and_oauth2_sign_in_work() {
    let desk = tls_gateway().await;
    for client in ["h5", "itagent", "itadmin"] {
        let xiaoming = desk.sign_in_by_oauth2("u1001", client).await;
        assert_eq!(xiaoming.get("/api/auth/me").await.expect_code(0).data()["login_source"], client);
    }
    let xiaoming = desk.sign_in_by_qrcode("u1001").await;
    assert_eq!(xiaoming.get("/api/auth/me").await.expect_code(0).data()["login_source"], "qrcode");
}

#[tokio::test]
async fn ambiguous_requests_are_refused_within_tls() {
    let desk = tls_gateway().await;
    let host = desk.address();
    for (case, request) in [
        (
            "two lengths",
            format!("POST /public/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
        ),
        (
            "a length and chunks",
            format!(
                "POST /public/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        (
            "another transfer coding",
            format!("POST /public/x HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "an invalid chunk size",
            format!(
                "POST /public/x HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n"
            ),
        ),
        ("no host", "GET /public/x HTTP/1.1\r\n\r\n".to_owned()),
        ("bare line feeds", format!("GET /public/x HTTP/1.1\nHost: {host}\n\r\n\r\n")),
        ("a folded header", format!("GET /public/x HTTP/1.1\r\nHost: {host}\r\nX-A: 1\r\n 2\r\n\r\n")),
    ] {
        let mut connection = desk.connect().await;
        let smuggled = format!("GET /public/smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n");
        connection.send(format!("{request}{smuggled}").as_bytes()).await;
        let response = connection.response().await.unwrap_or_else(|| panic!("{case}: no response"));
        assert_eq!(response.status, 400, "{case}: {}", response.describe());
        assert!(connection.until_end().await.is_empty(), "{case}: a second response");
    }
    assert!(desk.upstream.requests().iter().all(|seen| !seen.target.contains("smuggled")));
}

// WebSockets.

#[tokio::test]
async fn websocket_echoes_and_keeps_its_subprotocol() {
    let desk = tls_gateway().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    assert_eq!(
        socket.protocol(),
        Some(format!("bearer.{}", xiaoming.token()).as_str()),
        "the client's subprotocol, echoed"
    );
    socket.echo("hello").await;
    let long = "x".repeat(1 << 20);
    socket.echo(&long).await;
    let seen = desk.upstream.only_request();
    assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert!(!String::from_utf8_lossy(&seen.head).contains(xiaoming.token()), "the token was forwarded");

    desk.upstream.set_subprotocol(Subprotocol::FirstOffered);
    let mut socket = xiaoming.handshake("/ws/employee").also_protocols(&["chat"]).expect_accepted().await;
    assert_eq!(socket.protocol(), Some("chat"), "the upstream's choice");
    socket.echo("hello").await;
    desk.anonymous().handshake("/ws/employee").expect_refused().await.expect_bare_challenge();
    desk.anonymous()
        .handshake("/ws/employee")
        .protocols(&["bearer.a.b.c"])
        .expect_refused()
        .await
        .expect_invalid_token();
}

#[tokio::test]
async fn websocket_origin_must_be_https() {
    let desk = tls_gateway().await;
    let xiaoming = desk.sign_in("u1001").await;
    let own = xiaoming.origin();
    assert!(own.starts_with("https://"), "{own}");
    xiaoming.handshake("/ws/employee").header("Origin", &own).expect_accepted().await.echo("hello").await;
    let connect_plain = own.replace("https://", "http://");
    xiaoming.handshake("/ws/employee").header("Origin", &connect_plain).expect_refused().await.expect_code(1003);
}

#[tokio::test]
async fn bytes_in_the_handshakes_tls_record_are_relayed() {
    let desk = tls_gateway().await;
    let xiaoming = desk.sign_in("u1001").await;
    for round in 0..20 {
        let early = format!("early {round}");
        let behind = Frame::new(TEXT, early.as_bytes()).masked().bytes();
        let mut socket = xiaoming.handshake("/ws/employee").followed_by(&behind).expect_accepted().await;
        assert_eq!(socket.next().await, Some(Message::text(early)));
        socket.echo("a later message").await;
    }
    desk.upstream.set_behaviour(Behaviour::UpgradeWith(Frame::new(TEXT, b"welcome").bytes()));
    for _ in 0..20 {
        let mut socket = xiaoming.websocket("/ws/employee").await;
        assert_eq!(socket.next().await, Some(Message::text("welcome")));
        socket.echo("hello").await;
    }
}

#[tokio::test]
async fn logout_closes_a_websocket_with_4401() {
    let desk = tls_gateway().await;
    let mut times = Vec::new();
    for _ in 0..10 {
        let xiaoming = desk.sign_in("u1001").await;
        let mut socket = xiaoming.websocket("/ws/employee").await;
        xiaoming.post("/api/auth/logout").await.expect_code(0);
        let answered = Instant::now();
        assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
        times.push(answered.elapsed());
        assert_eq!(
            socket.ends_within(Duration::from_millis(2500)).await,
            Some(SocketEnd::Disconnected),
            "the connection ends after the close frame"
        );
    }
    assert_within_revocation_bound(times);
}

#[tokio::test]
async fn logout_closes_a_busy_websocket_between_two_frames() {
    let desk = tls_gateway().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut times = Vec::new();
    for _ in 0..5 {
        let xiaoming = desk.sign_in("u1001").await;
        let handshake = xiaoming.handshake("/ws/employee");
        let accept = async {
            let mut upstream_connection = upstream_connections.next().await;
            upstream_connection.accept_websocket(b"").await;
            upstream_connection.stream
        };
        let ((_, mut client), mut upstream) = tokio::join!(BufferedStream::open_tunnel(&desk, &handshake), accept);
        let piece = Frame::new(BINARY, &[7; 10_000]).bytes();
        let flood = tokio::spawn(async move { while upstream.try_send(&piece).await.is_ok() {} });
        for _ in 0..50 {
            assert_eq!(client.read_frame().await.expect("a frame").payload.len(), 10_000);
        }
        let logout = async {
            xiaoming.post("/api/auth/logout").await.expect_code(0);
            Instant::now()
        };
        // Every frame is complete, and the last one is the close frame.
        let reading = async {
            loop {
                let frame = client.read_frame().await.expect("a close frame before the end");
                if frame.opcode == CLOSE {
                    return (frame.close_code(), Instant::now());
                }
                assert_eq!(frame.payload.len(), 10_000);
            }
        };
        let (answered, (code, closed)) = tokio::join!(logout, within(TEST_TIMEOUT, "the close frame", reading));
        assert_eq!(code, Some(4401));
        let took = closed.saturating_duration_since(answered);
        assert!(took <= Duration::from_secs(1), "{took:?}");
        times.push(took);
        within(TEST_TIMEOUT, "the end of the flood", flood).await.expect("a closed stream");
    }
    assert_within_revocation_bound(times);
}

#[tokio::test]
async fn drain_closes_websockets_with_1001() {
    let mut desk = tls_gateway().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    socket.echo("hello").await;
    desk.signal("TERM");
    assert_eq!(socket.close_code_within(Duration::from_secs(5)).await, Some(1001));
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

// The certificate.

async fn wait_for_certificate(desk: &Gateway, wanted: &CertificateAndKey) {
    eventually("the new certificate", || async { (served_certificate(desk).await == wanted.der).then_some(()) }).await;
}

async fn wait_for_reload_result(desk: &Gateway, value: f64) {
    eventually("the result of the reload", || async {
        (desk.metric("deskgate_config_reload_success", &[]).await == value).then_some(())
    })
    .await;
}

#[tokio::test]
async fn reload_shows_the_new_certificate_and_keeps_connections() {
    let desk = tls_gateway().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    let mut open = desk.connect().await;
    let mut streams = xiaoming.http2().await;
    let old = open.stream().certificate().expect("a certificate");
    for _ in 0..3 {
        let new = desk.new_certificate();
        assert_ne!(new.der, old);
        desk.certificate_files().write(&new);
        desk.signal("HUP");
        wait_for_certificate(&desk, &new).await;
        open.send(&get(&desk, "/public/x")).await;
        open.response().await.expect("an answer on the old connection").expect_status(200);
        streams.get("/api/desk/x").await.expect_status(200);
        socket.echo("still here").await;
        xiaoming.get("/api/auth/me").await.expect_code(0);
    }
    wait_for_reload_result(&desk, 1.0).await;
    desk.signal("TERM");
    streams.wait_for_end().await;
}

/// Unusable files: the fault, the certificate file and the key file; `None` means no file.
fn damaged(one: &CertificateAndKey, other: &CertificateAndKey) -> Vec<(&'static str, Option<String>, Option<String>)> {
    let (certificate, key) = (|| Some(one.certificate.clone()), || Some(one.key.clone()));
    let cut = |text: &str| Some(text[..text.len() / 2].to_owned());
    // Valid base64 in PEM armour without a certificate or key inside.
    let nonsense = |kind: &str| Some(format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n"));
    vec![
        ("no certificate file", None, key()),
        ("no key file", certificate(), None),
        ("an empty certificate file", Some(String::new()), key()),
        ("an empty key file", certificate(), Some(String::new())),
        ("no PEM in the certificate file", Some("not a certificate".to_owned()), key()),
        ("no PEM in the key file", certificate(), Some("not a key".to_owned())),
        ("half a certificate", cut(&one.certificate), key()),
        ("half a key", certificate(), cut(&one.key)),
        ("an invalid certificate", nonsense("CERTIFICATE"), key()),
        ("an invalid key", certificate(), nonsense("PRIVATE KEY")),
        ("the key of another certificate", certificate(), Some(other.key.clone())),
        ("the files swapped", key(), certificate()),
    ]
}

fn write_or_remove(path: &std::path::Path, text: Option<&str>) {
    match text {
        Some(text) => std::fs::write(path, text).expect("a file"),
        // The file may be missing already.
        None => drop(std::fs::remove_file(path)),
    }
}

#[tokio::test]
async fn reload_with_a_damaged_certificate_keeps_the_old_one() {
    let desk = tls_gateway().await;
    let mut socket = desk.sign_in("u1001").await.websocket("/ws/employee").await;
    let files = desk.certificate_files();
    let rule = "\n[[rule]]\nname = \"new\"\npath = \"/new\"\nupstream = \"helpdesk\"\npublic = true\n";
    let rules = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    let mut before = served_certificate(&desk).await;
    for (case, certificate, key) in damaged(&desk.new_certificate(), &desk.new_certificate()) {
        write_or_remove(&files.certificate, certificate.as_deref());
        write_or_remove(&files.key, key.as_deref());
        // Valid changes in the same reload are not applied either.
        write_or_remove(&desk.rules_file(), Some(&format!("{rules}{rule}")));
        desk.signal("HUP");
        wait_for_reload_result(&desk, 0.0).await;
        assert_eq!(served_certificate(&desk).await, before, "{case}");
        desk.anonymous().get("/new").await.expect_code(1404);
        socket.echo("still here").await;

        let good = desk.new_certificate();
        write_or_remove(&desk.rules_file(), Some(&rules));
        files.write(&good);
        desk.signal("HUP");
        wait_for_reload_result(&desk, 1.0).await;
        wait_for_certificate(&desk, &good).await;
        before = good.der;
    }
    eventually("each refusal names the fault and the file", || async {
        let logs = desk.logs();
        let refused = logs.lines().filter(|line| line.contains("server.tls") && line.contains("pem"));
        (refused.count() >= 12).then_some(())
    })
    .await;
}

#[tokio::test]
async fn damaged_certificate_refuses_to_start() {
    let authority = CertificateAuthority::new();
    for (case, certificate, key) in damaged(&authority.issue(), &authority.issue()) {
        let folder = tempfile::tempdir().expect("a folder");
        let files = CertificateFiles::of(folder.path());
        write_or_remove(&files.certificate, certificate.as_deref());
        write_or_remove(&files.key, key.as_deref());
        let (cert_file, key_file) = (files.certificate.display(), files.key.display());
        let tls = format!("[server]\ntls = {{ cert_file = \"{cert_file}\", key_file = \"{key_file}\" }}");
        let refused = match Gateway::setup().tls().toml(&tls).try_start().await {
            Ok(_) => panic!("{case}: the gateway starts"),
            Err(refused) => refused,
        };
        assert_eq!(refused.status.code(), Some(1), "{case}: {}", refused.stderr);
        assert!(refused.stderr.contains("server.tls"), "{case}: no setting named: {}", refused.stderr);
        assert!(refused.stderr.contains(&cert_file.to_string()), "{case}: no file named: {}", refused.stderr);
        assert!(!refused.stderr.contains("panicked"), "{case}: {}", refused.stderr);
        let secret = key.as_deref().and_then(|key| key.lines().nth(1)).filter(|line| line.len() > 20);
        assert!(secret.is_none_or(|line| !refused.stderr.contains(line)), "{case}: the key is in the message");
    }
}

// Clients that do not complete a handshake.

#[tokio::test]
async fn bytes_that_are_no_handshake_close_only_their_connection() {
    let desk = tls_gateway().await;
    for (case, bytes) in [
        ("zeros", &[0; 600][..]),
        ("an oversized record", &[&[0x16, 3, 1, 0xff, 0xff][..], &[0; 400]].concat()),
        ("an alert", &[0x15, 3, 1, 0, 2, 2, 0]),
        ("data before the handshake", &[0x17, 3, 3, 0, 3, 1, 2, 3]),
        ("SSL 2", &[0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10]),
    ] {
        let mut connection = connect_plain(&desk).await;
        connection.send(bytes).await;
        let received = within(TEST_TIMEOUT, case, connection.until_end()).await;
        assert!(!received.starts_with(b"HTTP/"), "{case}: {}", String::from_utf8_lossy(&received));
        desk.anonymous().get("/public/good").await.expect_status(200);
    }
    assert!(desk.upstream.requests().iter().all(|seen| seen.target == "/public/good"));
}

/// A ClientHello of TLS 1.2 or older in a record.
fn client_hello(version: [u8; 2]) -> Vec<u8> {
    let mut body = version.to_vec();
    body.extend([7; 32]);
    body.push(0);
    // ECDHE with AES-CBC, which old versions have, and with AES-GCM.
    body.extend([0, 4, 0xc0, 0x09, 0xc0, 0x2b]);
    body.extend([1, 0]);
    // Curve P-256, uncompressed points.
    body.extend([0, 14, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0]);
    let mut message = vec![1, 0, 0, u8::try_from(body.len()).expect("a short message")];
    message.extend(body);
    let mut record = vec![0x16, 3, 1, 0, u8::try_from(message.len()).expect("a short record")];
    record.extend(message);
    record
}

#[tokio::test]
async fn old_tls_versions_are_refused() {
    const ALERT: u8 = 0x15;
    const FATAL: u8 = 2;
    let desk = tls_gateway().await;
    for (case, version) in [("SSL 3.0", [3, 0]), ("TLS 1.0", [3, 1]), ("TLS 1.1", [3, 2])] {
        let mut connection = connect_plain(&desk).await;
        connection.send(&client_hello(version)).await;
        let received = within(TEST_TIMEOUT, case, connection.until_end()).await;
        assert_eq!((received.first(), received.get(5)), (Some(&ALERT), Some(&FATAL)), "{case}: {received:?}");
    }
    let place = desk.server_address();
    for version in [&TLS12, &TLS13] {
        let client_tls = place.client_tls.as_ref().map(|client_tls| client_tls.with_version(version));
        let mut connection = Connection::open(ServerAddress { client_tls, ..place.clone() }).await;
        connection.send(&get(&desk, "/public/x")).await;
        connection.response().await.expect("a response").expect_status(200);
    }
}

#[tokio::test]
async fn stalled_tls_handshake_is_timed_out() {
    let desk = tls_gateway().await;
    let hello = client_hello([3, 3]);
    let mut waiting = Vec::new();
    for round in 0..50 {
        let mut connection = connect_plain(&desk).await;
        // No byte, a few bytes, or all but the last byte.
        connection.send(&hello[..[0, 3, 20, hello.len() - 1][round % 4]]).await;
        waiting.push(connection);
    }
    let xiaoming = desk.sign_in("u1001").await;
    for _ in 0..20 {
        xiaoming.get("/api/desk/x").await.expect_status(200);
    }
    let ends = waiting.into_iter().map(|mut connection| async move { connection.until_end().await });
    within(TEST_TIMEOUT, "the end of all connections", futures::future::join_all(ends)).await;
    xiaoming.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn aborted_tls_handshake_leaks_nothing() {
    let desk = tls_gateway().await;
    let hello = client_hello([3, 3]);
    for length in [1, 5, 9, 30, hello.len()] {
        for _ in 0..20 {
            let mut connection = connect_plain(&desk).await;
            connection.send(&hello[..length]).await;
            BufferedStream::from_connection(connection).reset();
        }
    }
    desk.anonymous().get("/public/x").await.expect_status(200);
    assert!(!desk.logs().contains("panicked"), "{}", desk.logs());
}

#[tokio::test]
async fn head_deadline_applies_within_tls() {
    let desk = Gateway::setup().tls().toml("[limits]\nhead_deadline = \"500ms\"").start().await;
    let mut silent = desk.connect().await;
    let mut half = desk.connect().await;
    half.send(b"GET /public/x HTTP/1.1\r\nHost: ").await;
    half.response().await.expect("a response").expect_code(1408);
    assert!(silent.closes_within(Duration::from_secs(5)).await, "a silent connection");
    assert!(desk.upstream.requests().is_empty());
}
