//! Faults of the messaging platform: only sign-ins are affected.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::*;

async fn sign_in_error(desk: &Gateway, member: &str) -> (String, String) {
    let response = desk.phone(member).oauth2(&desk.client_url("h5")).await.expect_status(302);
    let location = response.location();
    assert!(location.starts_with(&desk.client_url("h5")), "{location}");
    assert!(!location.contains("token="), "{location}");
    let part = |name| fragment_parameter(&location, name).unwrap_or_default();
    (part("error"), part("error_code"))
}

/// Starts a gateway with the platform at this URL.
async fn with_platform(api_url: &str, development: bool) -> Gateway {
    let settings = format!(
        "[server]\ndevelopment = {development}\n[platform]\nkind = \"wecom\"\ncorp_id = \"wwdemo\"\nsecret = \"secret\"\n\
         timeout = \"500ms\"\napi_url = \"{api_url}\""
    );
    Gateway::with(&settings).await
}

/// Requests an authorize URL and calls the callback with an invented code.
async fn callback_with_invented_code(desk: &Gateway) -> Response {
    let phone = desk.phone("u1001");
    phone.authorize_url(&desk.client_url("h5")).await;
    phone.client().get("/api/auth/oauth2/callback?code=code&state=auth_login").await
}

#[tokio::test]
async fn platform_outage_affects_only_sign_ins() {
    let unlimited = "[[endpoint]]\npath = \"/api/auth/qrcode\"\nrate = []\n";
    let desk = Gateway::setup().more_rules(unlimited).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let server_error = ("server_error".to_owned(), "1005".to_owned());
    desk.set_platform_switches(json!({ "bad_gateway": { "*": "all" } })).await;
    for _ in 0..5 {
        assert_eq!(sign_in_error(&desk, "u1001").await, server_error, "a 502 that is no JSON");
    }
    // The circuit is open: new sign-ins are refused at once with Retry-After.
    let page: String = url::form_urlencoded::byte_serialize(desk.client_url("h5").as_bytes()).collect();
    for target in ["/api/auth/qrcode".to_owned(), format!("/api/auth/oauth2/url?redirect_uri={page}")] {
        let response = desk.anonymous().get(&target).await;
        let wait: u64 = response.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((1..=60).contains(&wait), "{wait}");
        assert!(response.expect_code(1503).text().contains("WeCom"));
    }
    xiaoming.get("/api/auth/me").await.expect_code(0);
    xiaoming.get("/api/desk/x").await.expect_status(200);
    desk.anonymous().get("/api/ready").await.expect_code(0);
    let errors = |class| desk.metric("deskgate_platform_errors_total", class);
    assert_eq!(errors(&["call=\"identify\"", "class=\"unavailable\""]).await, 5.0);

    desk.set_platform_switches(json!({})).await;
    eventually("a call after the circuit closed", || async {
        let response = desk.anonymous().get("/api/auth/qrcode").await;
        (response.status == 200).then_some(())
    })
    .await;
    desk.sign_in_by_qrcode("u1001").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn slow_platform_delays_only_sign_ins() {
    let desk = Gateway::with("[platform]\ntimeout = \"500ms\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    let phone = desk.phone("u1001");
    let callback = phone.authorize(&phone.authorize_url(&desk.client_url("h5")).await).await;
    desk.set_platform_switches(json!({ "slow_milliseconds": { "*": 30_000 } })).await;
    let start = Instant::now();
    let waiting = phone.client().get(&callback);
    let others = async {
        for _ in 0..20 {
            xiaoming.get("/api/desk/x").await.expect_status(200);
        }
        start.elapsed()
    };
    let (response, others) = tokio::join!(waiting, others);
    assert_eq!(fragment_parameter(&response.location(), "error_code").as_deref(), Some("1005"));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(others < Duration::from_secs(5), "{others:?}");
}

#[tokio::test]
async fn untrusted_platform_certificate_is_refused() {
    let authority = CertificateAuthority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let acceptor = authority.issue().acceptor();
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let handshake = acceptor.accept(stream).await;
            let Ok(mut stream) = handshake else { continue };
            let mut bytes = vec![0; 1024];
            // A request here means that the untrusted certificate was accepted.
            if let Ok(count @ 1..) = stream.read(&mut bytes).await {
                let _ = sender.send(String::from_utf8_lossy(&bytes[..count]).into_owned());
            }
            let _ = stream.shutdown().await;
        }
    });
    for development in [true, false] {
        let desk = with_platform(&format!("https://127.0.0.1:{port}/"), development).await;
        let response = callback_with_invented_code(&desk).await;
        assert_eq!(
            fragment_parameter(&response.location(), "error_code").as_deref(),
            Some("1005"),
            "{}",
            response.describe()
        );
        desk.wait_for_log(&["the platform is unavailable", "certificate"]).await;
    }
    assert!(received.try_recv().is_err(), "the secret was sent to an untrusted server");
}

#[tokio::test]
async fn unreachable_platform_redirects_with_server_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let desk = with_platform(&format!("http://{address}/"), true).await;
    let response = callback_with_invented_code(&desk).await;
    assert_eq!(
        fragment_parameter(&response.location(), "error").as_deref(),
        Some("server_error"),
        "{}",
        response.describe()
    );
}

#[tokio::test]
async fn expired_platform_token_is_refreshed_during_a_sign_in() {
    let desk = Gateway::start().await;
    desk.sign_in_by_oauth2("u1001", "h5").await;
    let revoke = Client::new(desk.platform_address()).post("/simulator/tokens/revoke").await;
    assert!(revoke.status < 300, "{}", revoke.describe());
    let people = (0..10).map(|_| desk.sign_in_by_oauth2("u1001", "h5"));
    for person in futures::future::join_all(people).await {
        person.get("/api/auth/me").await.expect_code(0);
    }
    let calls = Client::new(desk.platform_address()).get("/simulator/calls").await.text();
    let calls: Value = serde_json::from_str(&calls).expect("JSON");
    assert_eq!(calls["/cgi-bin/gettoken"], 2, "more than one refresh: {calls}");
}

#[tokio::test]
async fn malformed_platform_responses_sign_nobody_in() {
    let desk = Gateway::start().await;
    for (case, switches, error, code) in [
        (
            "a page instead of JSON",
            json!({ "bad_gateway": { "/cgi-bin/auth/getuserinfo": 1 } }),
            "server_error",
            "1005",
        ),
        ("too busy", json!({ "busy": { "/cgi-bin/auth/getuserinfo": 1 } }), "server_error", "1005"),
        ("an outsider", json!({ "members": { "u1001": "outsider" } }), "access_denied", "1003"),
        ("a customer", json!({ "members": { "u1001": "customer" } }), "access_denied", "1003"),
        ("not activated", json!({ "members": { "u1001": "not_activated" } }), "access_denied", "1003"),
        ("our address is refused", json!({ "denied_addresses": ["127.0.0.1"] }), "server_error", "1005"),
        ("a code that is too old", json!({ "code_lifetime_seconds": 0 }), "invalid_code", "1400"),
        ("refused at the scan", json!({ "deny_at_scan": true }), "access_denied", "1400"),
    ] {
        desk.set_platform_switches(switches).await;
        assert_eq!(sign_in_error(&desk, "u1001").await, (error.to_owned(), code.to_owned()), "{case}");
    }
    desk.wait_for_log(&["trusted IP addresses"]).await;
    desk.set_platform_switches(json!({ "return_appid": true, "bad_gateway": { "/cgi-bin/department/get": "all" } }))
        .await;
    desk.sign_in_by_oauth2("u1001", "h5").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn oversized_or_redirecting_platform_responses_are_refused() {
    for (case, head) in [
        ("ten megabytes", "HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n".to_owned() + &" ".repeat(1 << 20)),
        ("a redirect", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_owned()),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; 2048];
                let _ = stream.read(&mut bytes).await;
                let _ = stream.write_all(head.as_bytes()).await;
            }
        });
        let desk = with_platform(&format!("http://{address}/"), true).await;
        let response = callback_with_invented_code(&desk).await;
        assert_eq!(fragment_parameter(&response.location(), "error_code").as_deref(), Some("1005"), "{case}");
    }
}

#[tokio::test]
async fn codes_and_tokens_are_absent_from_urls_and_logs() {
    let desk = Gateway::start().await;
    let phone = desk.phone("u1001");
    let callback = phone.authorize(&phone.authorize_url(&desk.client_url("h5")).await).await;
    let code = query_parameter(&callback, "code").expect("a code");
    let response = phone.client().get(&callback).await.expect_status(302);
    let location = response.location();
    let token = fragment_parameter(&location, "token").expect("a token");
    let (sent, _) = location.split_once('#').expect("a fragment");
    assert!(!sent.contains(&token) && !sent.contains(&code), "a secret in the part of the URL that is sent: {sent}");
    assert_eq!(response.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    desk.wait_for_log(&["/api/auth/oauth2/callback"]).await;
    let logs = desk.logs();
    assert!(!logs.contains(&token) && !logs.contains(&code), "a secret is in the log");
}

#[tokio::test]
async fn flood_of_junk_codes_affects_only_its_sender() {
    let desk = Gateway::start().await;
    let flood = Phone::new(desk.anonymous().with_header("X-Forwarded-For", "203.0.113.7"), "u1001");
    let mut refused = 0;
    for number in 0..150 {
        flood.authorize_url(&desk.client_url("h5")).await;
        let response =
            flood.client().get(&format!("/api/auth/oauth2/callback?code=junk{number}&state=auth_login")).await;
        match fragment_parameter(&response.location(), "error_code").as_deref() {
            Some("1400") => {}
            Some("1429") => refused += 1,
            other => panic!("{other:?}: {}", response.describe()),
        }
    }
    let calls = desk.metric("deskgate_platform_errors_total", &["call=\"identify\"", "class=\"invalid_code\""]).await;
    assert_eq!((calls, refused), (120.0, 30), "the platform is asked no more often");
    assert_eq!(desk.metric("deskgate_limit_reached_total", &["limit=\"invalid_codes\""]).await, 30.0);
    let body = json!({ "employee_id": "a2001", "code": "junk" });
    flood.client().post_json("/api/agents/login", &body).await.expect_code(1429);

    desk.anonymous().get("/api/auth/qrcode").await.expect_code(0);
    desk.sign_in_by_oauth2("u1001", "h5").await;
    desk.sign_in_by_qrcode("a2001").await;
}
