//! HTTP proxying: request ids, tracing, forwarding headers, tokens and identity headers.

use crate::support::*;

#[tokio::test]
async fn proxied_responses_have_one_request_id() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response(
        "X-Request-Id: the-upstreams-own\r\nx-request-id: again\r\n",
        b"",
    )));
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

/// The trace id; panics unless `traceparent` is a valid W3C version 00 value.
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
    assert!(value.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "the trace id is kept: {value}");
    assert!(!value.contains("b7ad6b7169203331"), "the gateway adds its own span: {value}");

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
        desk.anonymous().with_header("X-Forwarded-For", nonsense).get("/public/x").await.expect_code(1400);
        assert!(desk.upstream.requests().is_empty(), "{nonsense}");
    }
}

#[tokio::test]
async fn identity_headers_are_stripped_from_responses() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let forged = "X-Deskgate-Employee-Id: m5001\r\nx-deskgate-roles: admin\r\nX_Deskgate_Name: x\r\n\
                  X-DESKGATE-ASSERTION: a.b.c\r\nX-Deskgate-Anything: x\r\nX-Own: kept\r\n";
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response(forged, b"hello")));
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
        let identity_headers: Vec<&String> = response
            .headers
            .iter()
            .map(|(name, _)| name)
            .filter(|name| folded(name).starts_with("x-deskgate"))
            .collect();
        assert!(identity_headers.is_empty(), "{identity_headers:?} in {}", response.describe());
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
    assert!(!everything.contains(xiaoming.token()), "the token was forwarded");

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
