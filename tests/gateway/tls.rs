//! TLS on the clients' port: everything works as it does without, the certificate can be exchanged, and nobody who
//! does not speak it holds anybody up.

use std::time::{Duration, Instant};

use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::support::*;

async fn secured() -> Gateway {
    Gateway::setup().tls().start().await
}

/// A connection of TCP alone, to a port where TLS is spoken.
async fn plain(desk: &Gateway) -> Connection {
    Connection::open(desk.address()).await
}

/// The certificate that a new connection is shown.
async fn shown(desk: &Gateway) -> Vec<u8> {
    desk.connect().await.stream().certificate().expect("a certificate")
}

fn get(desk: &Gateway, target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).into_bytes()
}

// ---- Requests.

#[tokio::test]
async fn requests_work_with_a_token() {
    let desk = secured().await;
    let alice = desk.sign_in("u1001").await;
    assert_eq!(alice.get("/api/auth/me").await.expect_code(0).data()["employee_id"], "u1001");
    let answer = alice.post_json("/api/desk/x?a=1", &json!({ "hello": "world" })).await.expect_status(200);
    assert!(answer.header("x-request-id").is_some(), "{}", answer.describe());
    let seen = desk.upstream.only_request();
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/api/desk/x?a=1"));
    assert_eq!(seen.body, br#"{"hello":"world"}"#);
    assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("x-forwarded-host"), Some(desk.address().to_string().as_str()));
    desk.anyone().get("/api/desk/x").await.expect_bare_challenge();
    desk.bearing("a.b.c").get("/api/desk/x").await.expect_invalid_token();
    alice.post("/api/auth/logout").await.expect_code(0);
    alice.get("/api/desk/x").await.expect_invalid_token();
}

#[tokio::test]
async fn a_connection_carries_one_request_after_the_other() {
    let desk = secured().await;
    let mut connection = desk.connect().await;
    for number in 0..5 {
        connection.send(&get(&desk, &format!("/public/{number}"))).await;
        connection.answer().await.expect("an answer").expect_status(200);
    }
    let targets: Vec<String> = desk.upstream.requests().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets, ["/public/0", "/public/1", "/public/2", "/public/3", "/public/4"]);
}

#[tokio::test]
async fn a_client_without_protocol_negotiation_gets_http1() {
    let desk = secured().await;
    let place = desk.place();
    let trust = place.trust.as_ref().map(|trust| trust.offering(&[]));
    let mut connection = Connection::open(Place { trust, ..place }).await;
    assert_eq!(connection.stream().protocol(), None);
    connection.send(&get(&desk, "/public/x")).await;
    connection.answer().await.expect("an answer").expect_status(200);
}

#[tokio::test]
async fn http2_comes_first_where_both_can_it() {
    let desk = secured().await;
    let place = desk.place();
    for (offered, agreed) in [
        (&[&b"http/1.1"[..], b"h2"][..], &b"h2"[..]),
        (&[&b"h2"[..], b"http/1.1"][..], &b"h2"[..]),
        (&[&b"http/1.1"[..]][..], &b"http/1.1"[..]),
    ] {
        let trust = place.trust.as_ref().map(|trust| trust.offering(offered));
        let connection = Connection::open(Place { trust, ..place.clone() }).await;
        assert_eq!(connection.stream().protocol().as_deref(), Some(agreed));
    }
    let strange = place.trust.as_ref().map(|trust| trust.offering(&[b"spdy/3"]));
    assert!(Connection::try_open(Place { trust: strange, ..place }).await.is_err(), "nothing in common");
    desk.anyone().get("/public/x").await.expect_status(200);
}

#[tokio::test]
async fn a_large_body_passes_whole_both_ways() {
    let desk = secured().await;
    let alice = desk.sign_in("u1001").await;
    let body: Vec<u8> = (0..3 << 20).map(|place: usize| b'a' + (place * 7 % 26) as u8).collect();
    let answer = alice.post_body("/api/desk/x", "text/plain", &body).await.expect_status(200);
    assert!(desk.upstream.only_request().body == body, "to the upstream");
    assert!(answer.json()["body"].as_str().is_some_and(|echo| echo.as_bytes() == body), "and back");
}

#[tokio::test]
async fn cookies_are_for_tls_only() {
    let desk = secured().await;
    let secure = |answer: &Answer| {
        let cookies = answer.header_all("set-cookie");
        assert!(!cookies.is_empty(), "no cookie in {}", answer.describe());
        for cookie in cookies {
            let attributes: Vec<String> = cookie.split(';').map(|part| part.trim().to_ascii_lowercase()).collect();
            for wanted in ["secure", "httponly", "samesite=lax"] {
                assert!(attributes.iter().any(|attribute| attribute == wanted), "no {wanted}: {cookie}");
            }
        }
    };
    let page: String = url::form_urlencoded::byte_serialize(desk.client_url("h5").as_bytes()).collect();
    secure(&desk.anyone().get(&format!("/api/auth/oauth2/url?redirect_uri={page}")).await.expect_code(0));

    let ticket = desk.anyone().get("/api/auth/qrcode").await.expect_code(0).data();
    let phone = desk.phone("u1001");
    secure(&phone.scan(ticket["qrcode_url"].as_str().expect("a URL")).await.expect_status(302));
}

#[tokio::test]
async fn both_ways_to_sign_in_work() {
    let desk = secured().await;
    for client in ["h5", "itagent", "itadmin"] {
        let alice = desk.sign_in_by_oauth2("u1001", client).await;
        assert_eq!(alice.get("/api/auth/me").await.expect_code(0).data()["login_source"], client);
    }
    let alice = desk.sign_in_by_qrcode("u1001").await;
    assert_eq!(alice.get("/api/auth/me").await.expect_code(0).data()["login_source"], "qrcode");
}

// ---- WebSockets.

#[tokio::test]
async fn a_socket_echoes_and_keeps_its_subprotocol() {
    let desk = secured().await;
    let alice = desk.sign_in("u1001").await;
    let mut socket = alice.websocket("/ws/employee").await;
    assert_eq!(socket.protocol(), Some(format!("bearer.{}", alice.token()).as_str()), "the client's own, echoed");
    socket.echo("hello").await;
    let long = "x".repeat(1 << 20);
    socket.echo(&long).await;
    let seen = desk.upstream.only_request();
    assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert!(!String::from_utf8_lossy(&seen.head).contains(alice.token()), "the token stays here");

    desk.upstream.choose(Chosen::First);
    let mut socket = alice.handshake("/ws/employee").also_protocols(&["chat"]).accepted().await;
    assert_eq!(socket.protocol(), Some("chat"), "the upstream's choice");
    socket.echo("hello").await;
    desk.anyone().handshake("/ws/employee").refused().await.expect_bare_challenge();
    desk.anyone().handshake("/ws/employee").protocols(&["bearer.a.b.c"]).refused().await.expect_invalid_token();
}

#[tokio::test]
async fn only_pages_of_the_secured_origin_open_sockets() {
    let desk = secured().await;
    let alice = desk.sign_in("u1001").await;
    let own = alice.origin();
    assert!(own.starts_with("https://"), "{own}");
    alice.handshake("/ws/employee").header("Origin", &own).accepted().await.echo("hello").await;
    let plain = own.replace("https://", "http://");
    alice.handshake("/ws/employee").header("Origin", &plain).refused().await.expect_code(1003);
}

#[tokio::test]
async fn bytes_in_the_same_record_as_the_handshake_are_not_lost() {
    let desk = secured().await;
    let alice = desk.sign_in("u1001").await;
    for round in 0..20 {
        let early = format!("early {round}");
        let behind = Frame::new(TEXT, early.as_bytes()).masked().bytes();
        let mut socket = alice.handshake("/ws/employee").with_bytes_behind(&behind).accepted().await;
        assert_eq!(socket.next().await, Some(Message::text(early)));
        socket.echo("and further").await;
    }
    desk.upstream.behave(Behaviour::UpgradeWith(Frame::new(TEXT, b"welcome").bytes()));
    for _ in 0..20 {
        let mut socket = alice.websocket("/ws/employee").await;
        assert_eq!(socket.next().await, Some(Message::text("welcome")));
        socket.echo("hello").await;
    }
}

#[tokio::test]
async fn logout_closes_a_socket_with_4401_at_once() {
    let desk = secured().await;
    let mut times = Vec::new();
    for _ in 0..10 {
        let alice = desk.sign_in("u1001").await;
        let mut socket = alice.websocket("/ws/employee").await;
        alice.post("/api/auth/logout").await.expect_code(0);
        let answered = Instant::now();
        assert_eq!(socket.closed_within(Duration::from_secs(1)).await, Some(4401));
        times.push(answered.elapsed());
        assert_eq!(socket.ends_within(Duration::from_millis(2500)).await, Some(Ending::Cut), "and then it ends");
    }
    within_the_bound(times);
}

#[tokio::test]
async fn logout_closes_a_flooded_socket_between_two_frames() {
    let desk = secured().await;
    let mut visits = Visits::at(&desk.upstream);
    let mut times = Vec::new();
    for _ in 0..5 {
        let alice = desk.sign_in("u1001").await;
        let shake = alice.handshake("/ws/employee");
        let accept = async {
            let mut visit = visits.next().await;
            visit.accept(b"").await;
            visit.end
        };
        let ((_, mut client), mut upstream) = tokio::join!(End::through(&desk, &shake), accept);
        let piece = Frame::new(BINARY, &[7; 10_000]).bytes();
        let flood = tokio::spawn(async move { while upstream.try_send(&piece).await.is_ok() {} });
        for _ in 0..50 {
            assert_eq!(client.frame().await.expect("a frame").payload.len(), 10_000);
        }
        let logout = async {
            alice.post("/api/auth/logout").await.expect_code(0);
            Instant::now()
        };
        // Every frame on the way to the end is whole, and the last one says why.
        let reading = async {
            loop {
                let frame = client.frame().await.expect("a close frame before the end");
                if frame.opcode == CLOSE {
                    return (frame.close_code(), Instant::now());
                }
                assert_eq!(frame.payload.len(), 10_000);
            }
        };
        let (answered, (code, closed)) = tokio::join!(logout, within(PATIENCE, "the close frame", reading));
        assert_eq!(code, Some(4401));
        let took = closed.saturating_duration_since(answered);
        assert!(took <= Duration::from_secs(1), "{took:?}");
        times.push(took);
        within(PATIENCE, "the end of the flood", flood).await.expect("a cut stream");
    }
    within_the_bound(times);
}

#[tokio::test]
async fn a_drain_closes_sockets_with_1001() {
    let mut desk = secured().await;
    let alice = desk.sign_in("u1001").await;
    let mut socket = alice.websocket("/ws/employee").await;
    socket.echo("hello").await;
    desk.signal("TERM");
    assert_eq!(socket.closed_within(Duration::from_secs(5)).await, Some(1001));
    assert_eq!(desk.ended().await.code(), Some(0));
}

// ---- The certificate.

async fn until_shown(desk: &Gateway, wanted: &Pair) {
    eventually("the new certificate", || async { (shown(desk).await == wanted.der).then_some(()) }).await;
}

async fn until_reload_is(desk: &Gateway, value: f64) {
    eventually("the outcome of a reload", || async {
        (desk.metric("deskgate_config_reload_success", &[]).await == value).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_new_certificate_is_shown_after_a_reload_and_nobody_is_dropped() {
    let desk = secured().await;
    let alice = desk.sign_in("u1001").await;
    let mut socket = alice.websocket("/ws/employee").await;
    let mut open = desk.connect().await;
    let mut streams = alice.http2().await;
    let old = open.stream().certificate().expect("a certificate");
    for _ in 0..3 {
        let new = desk.new_certificate();
        assert_ne!(new.der, old);
        desk.certificate_files().write(&new);
        assert_ne!(shown(&desk).await, new.der, "not before it is asked for");
        desk.signal("HUP");
        until_shown(&desk, &new).await;
        open.send(&get(&desk, "/public/x")).await;
        open.answer().await.expect("an answer on the old connection").expect_status(200);
        streams.get("/api/desk/x").await.expect_status(200);
        socket.echo("still here").await;
        alice.get("/api/auth/me").await.expect_code(0);
    }
    until_reload_is(&desk, 1.0).await;
    desk.signal("TERM");
    streams.ended().await;
}

/// Files that cannot be used: what is wrong, the certificate file and the key file; `None` is no file at all.
fn damaged(one: &Pair, other: &Pair) -> Vec<(&'static str, Option<String>, Option<String>)> {
    let (certificate, key) = (|| Some(one.certificate.clone()), || Some(one.key.clone()));
    let cut = |text: &str| Some(text[..text.len() / 2].to_owned());
    // Well-formed base64 in the armour, and nothing that means anything inside.
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
        ("nonsense as a certificate", nonsense("CERTIFICATE"), key()),
        ("nonsense as a key", certificate(), nonsense("PRIVATE KEY")),
        ("the key of another certificate", certificate(), Some(other.key.clone())),
        ("the files exchanged", key(), certificate()),
    ]
}

fn put(path: &std::path::Path, text: Option<&str>) {
    match text {
        Some(text) => std::fs::write(path, text).expect("a file"),
        // It may be missing already.
        None => drop(std::fs::remove_file(path)),
    }
}

#[tokio::test]
async fn a_damaged_certificate_at_a_reload_changes_nothing() {
    let desk = secured().await;
    let mut socket = desk.sign_in("u1001").await.websocket("/ws/employee").await;
    let files = desk.certificate_files();
    let rule = "\n[[rule]]\nname = \"new\"\npath = \"/new\"\nupstream = \"helpdesk\"\npublic = true\n";
    let rules = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    let mut before = shown(&desk).await;
    for (case, certificate, key) in damaged(&desk.new_certificate(), &desk.new_certificate()) {
        put(&files.certificate, certificate.as_deref());
        put(&files.key, key.as_deref());
        // What is sound beside it is not taken over either.
        put(&desk.rules_file(), Some(&format!("{rules}{rule}")));
        desk.signal("HUP");
        until_reload_is(&desk, 0.0).await;
        assert_eq!(shown(&desk).await, before, "{case}");
        desk.anyone().get("/new").await.expect_code(1404);
        socket.echo("still here").await;

        let good = desk.new_certificate();
        put(&desk.rules_file(), Some(&rules));
        files.write(&good);
        desk.signal("HUP");
        until_reload_is(&desk, 1.0).await;
        until_shown(&desk, &good).await;
        before = good.der;
    }
    let refused = desk.logs().lines().filter(|line| line.contains("server.tls") && line.contains("pem")).count();
    assert_eq!(refused, 12, "each refusal says what and where:\n{}", desk.logs());
}

#[tokio::test]
async fn a_damaged_certificate_at_the_start_is_refused_with_a_reason() {
    let authority = Authority::new();
    for (case, certificate, key) in damaged(&authority.issue(), &authority.issue()) {
        let folder = tempfile::tempdir().expect("a folder");
        let files = CertificateFiles::of(folder.path());
        put(&files.certificate, certificate.as_deref());
        put(&files.key, key.as_deref());
        let (cert_file, key_file) = (files.certificate.display(), files.key.display());
        let tls = format!("[server]\ntls = {{ cert_file = \"{cert_file}\", key_file = \"{key_file}\" }}");
        let refused = match Gateway::setup().tls().toml(&tls).try_start().await {
            Ok(_) => panic!("{case}: it starts"),
            Err(refused) => refused,
        };
        assert_eq!(refused.status.code(), Some(1), "{case}: {}", refused.stderr);
        assert!(refused.stderr.contains("server.tls"), "{case}: which setting? {}", refused.stderr);
        assert!(refused.stderr.contains(&cert_file.to_string()), "{case}: which file? {}", refused.stderr);
        assert!(!refused.stderr.contains("panicked"), "{case}: {}", refused.stderr);
        let secret = key.as_deref().and_then(|key| key.lines().nth(1)).filter(|line| line.len() > 20);
        assert!(secret.is_none_or(|line| !refused.stderr.contains(line)), "{case}: the key itself is told");
    }
}

// ---- Those who do not speak it.

#[tokio::test]
async fn plain_bytes_end_the_connection_and_nothing_else() {
    let desk = secured().await;
    let request = get(&desk, "/public/x");
    for (case, bytes) in [
        ("a plain request", &request[..]),
        ("zeros", &[0; 600]),
        ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("a record longer than any may be", &[&[0x16, 3, 1, 0xff, 0xff][..], &[0; 400]].concat()),
        ("an alert", &[0x15, 3, 1, 0, 2, 2, 0]),
        ("data before the handshake", &[0x17, 3, 3, 0, 3, 1, 2, 3]),
        ("SSL 2", &[0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10]),
    ] {
        let mut connection = plain(&desk).await;
        connection.send(bytes).await;
        let said = within(PATIENCE, case, connection.until_end()).await;
        assert!(!said.starts_with(b"HTTP/"), "{case}: {}", String::from_utf8_lossy(&said));
        desk.anyone().get("/public/good").await.expect_status(200);
    }
    assert!(desk.upstream.requests().iter().all(|seen| seen.target == "/public/good"));
}

/// The first message of a TLS client up to version 1.2, in a record: only the version is of interest.
fn client_hello(version: [u8; 2]) -> Vec<u8> {
    let mut body = version.to_vec();
    body.extend([7; 32]);
    body.push(0);
    // ECDHE with AES in CBC and in GCM: the former is what old versions have.
    body.extend([0, 4, 0xc0, 0x09, 0xc0, 0x2b]);
    body.extend([1, 0]);
    // The curve P-256 and uncompressed points.
    body.extend([0, 14, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0]);
    let mut message = vec![1, 0, 0, u8::try_from(body.len()).expect("a short message")];
    message.extend(body);
    let mut record = vec![0x16, 3, 1, 0, u8::try_from(message.len()).expect("a short record")];
    record.extend(message);
    record
}

#[tokio::test]
async fn old_versions_are_refused() {
    const ALERT: u8 = 0x15;
    const FATAL: u8 = 2;
    let desk = secured().await;
    for (case, version) in [("SSL 3.0", [3, 0]), ("TLS 1.0", [3, 1]), ("TLS 1.1", [3, 2])] {
        let mut connection = plain(&desk).await;
        connection.send(&client_hello(version)).await;
        let said = within(PATIENCE, case, connection.until_end()).await;
        assert_eq!((said.first(), said.get(5)), (Some(&ALERT), Some(&FATAL)), "{case}: {said:?}");
    }
    let place = desk.place();
    for version in [&TLS12, &TLS13] {
        let trust = place.trust.as_ref().map(|trust| trust.only(version));
        let mut connection = Connection::open(Place { trust, ..place.clone() }).await;
        connection.send(&get(&desk, "/public/x")).await;
        connection.answer().await.expect("an answer").expect_status(200);
    }
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_cut_and_holds_nobody_up() {
    let desk = secured().await;
    let hello = client_hello([3, 3]);
    let mut waiting = Vec::new();
    for round in 0..50 {
        let mut connection = plain(&desk).await;
        // Nothing at all, a few bytes, or everything but the last one.
        connection.send(&hello[..[0, 3, 20, hello.len() - 1][round % 4]]).await;
        waiting.push(connection);
    }
    let alice = desk.sign_in("u1001").await;
    for _ in 0..20 {
        alice.get("/api/desk/x").await.expect_status(200);
    }
    let ends = waiting.into_iter().map(|mut connection| async move { connection.until_end().await });
    within(PATIENCE, "the end of all of them", futures::future::join_all(ends)).await;
    alice.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_the_handshake_leaves_nothing_behind() {
    let desk = secured().await;
    let hello = client_hello([3, 3]);
    for length in [1, 5, 9, 30, hello.len()] {
        for _ in 0..20 {
            let mut connection = plain(&desk).await;
            connection.send(&hello[..length]).await;
            End::of(connection).reset();
        }
    }
    desk.anyone().get("/public/x").await.expect_status(200);
    assert!(!desk.logs().contains("panicked"), "{}", desk.logs());
}

#[tokio::test]
async fn the_head_deadline_holds_within_tls() {
    let desk = Gateway::setup().tls().toml("[limits]\nhead_deadline = \"500ms\"").start().await;
    let mut silent = desk.connect().await;
    let mut half = desk.connect().await;
    half.send(b"GET /public/x HTTP/1.1\r\nHost: ").await;
    half.answer().await.expect("an answer").expect_code(1408);
    assert!(silent.closes_within(Duration::from_secs(5)).await, "a connection without a word");
    assert!(desk.upstream.requests().is_empty());
}
