//! Assertions to upstreams: the published keys alone verify the caller's identity. A request assertion also binds
//! method and path and is single-use.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::*;

/// One rule per assertion kind, and one that also forwards the token.
const RULES: &str = r#"
[[rule]]
name = "session assertion"
path = "/a/session/{*rest}"
upstream = "helpdesk"
signed_in = true
assertion = "session"

[[rule]]
name = "request assertion"
path = "/a/request/{*rest}"
upstream = "helpdesk"
signed_in = true
assertion = "request"

[[rule]]
name = "no assertion"
path = "/a/off/{*rest}"
upstream = "helpdesk"
signed_in = true
assertion = "off"

[[rule]]
name = "public, request assertion"
path = "/a/public/{*rest}"
upstream = "helpdesk"
public = true
assertion = "request"

[[rule]]
name = "request assertion and token"
path = "/a/token-too/{*rest}"
upstream = "helpdesk"
signed_in = true
assertion = "request"
forward_token = true
"#;

const HEADER: &str = "x-deskgate-assertion";

/// The code paths of a request through the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    /// Its head is forwarded without a header map.
    BodylessGet,
    PostWithBody,
    Http2Post,
    WebSocket,
}

const REQUEST_KINDS: [RequestKind; 4] =
    [RequestKind::BodylessGet, RequestKind::PostWithBody, RequestKind::Http2Post, RequestKind::WebSocket];

/// Starts a gateway with TLS, because HTTP/2 is negotiated over TLS only.
async fn start_with_tls() -> Gateway {
    Gateway::setup().tls().more_rules(RULES).start().await
}

/// Sends a request and returns it as the upstream received it.
async fn send(desk: &Gateway, client: &Client, request_kind: RequestKind, target: &str) -> RecordedRequest {
    desk.upstream.clear_requests();
    match request_kind {
        RequestKind::BodylessGet => drop(client.get(target).await.expect_status(200)),
        RequestKind::PostWithBody => drop(client.post_body(target, "text/plain", b"hello").await.expect_status(200)),
        RequestKind::Http2Post => {
            drop(client.http2().await.send("POST", target, &[], b"hello").await.expect_status(200))
        }
        RequestKind::WebSocket => client.websocket(target).await.echo("hello").await,
    }
    desk.upstream.only_request()
}

/// The claims of a request's assertion, verified as the upstream `helpdesk`.
#[track_caller]
fn verified_claims(verifier: &Verifier, seen: &RecordedRequest) -> Value {
    let assertion = seen.header(HEADER).unwrap_or_else(|| panic!("no assertion with {}", seen.target));
    verifier.assertion(assertion, "helpdesk").unwrap_or_else(|error| panic!("{}: {error}", seen.target))
}

/// Fails unless the assertion has exactly this lifetime and is valid now.
#[track_caller]
fn expect_lifetime(claims: &Value, seconds: i64) {
    let time = |name: &str| claims[name].as_i64().unwrap_or_else(|| panic!("no {name} in {claims}"));
    assert_eq!(time("exp") - time("iat"), seconds, "{claims}");
    assert_eq!(time("nbf"), time("iat"), "{claims}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() as i64;
    assert!((time("iat")..time("exp")).contains(&now), "not valid now: {claims}");
}

/// The strings of an array, without their order.
#[track_caller]
fn set(array: &Value) -> BTreeSet<String> {
    let texts = array.as_array().expect("an array").iter();
    texts.map(|text| text.as_str().expect("a text").to_owned()).collect()
}

// ---- Verification by upstreams.

#[tokio::test]
async fn published_keys_verify_tokens_and_assertions() {
    for algorithm in ["EdDSA", "ES256"] {
        let setup = Gateway::setup().toml(&format!("[token]\nalgorithm = \"{algorithm}\"")).more_rules(RULES);
        let desk = setup.start().await;
        let verifier = Verifier::of(&desk).await;
        let alice = desk.sign_in("a2001").await;
        let mut assertions = Vec::new();
        for request_kind in [RequestKind::BodylessGet, RequestKind::PostWithBody, RequestKind::WebSocket] {
            for rule in ["session", "request"] {
                let seen = send(&desk, &alice, request_kind, &format!("/a/{rule}/x")).await;
                let header = header_of(seen.header(HEADER).expect("an assertion"));
                assert_eq!(header["alg"], algorithm, "{request_kind:?} {rule}");
                assertions.push(verified_claims(&verifier, &seen));
            }
        }
        for claims in &assertions {
            assert_eq!((&claims["sub"], &claims["corp_id"]), (&json!("a2001"), &json!("wwdemo")), "{claims}");
            assert_eq!(claims["sid"], jti_of(alice.token()), "{claims}");
            assert_eq!(claims["current_role"], "agent", "{claims}");
            assert_eq!(set(&claims["roles"]), set(&json!(["agent", "user"])), "{claims}");
            assert_eq!((&claims["name"], &claims["department"]), (&json!("Alice Chen"), &json!("IT")), "{claims}");
            assert_eq!(claims["login_source"], "dev", "{claims}");
        }
        assert_eq!(header_of(alice.token())["alg"], algorithm);
        let claims = verifier.access_token(alice.token()).expect("a valid token");
        assert_eq!((&claims["sub"], &claims["stage"]), (&json!("a2001"), &json!("full")), "{claims}");
    }
}

#[tokio::test]
async fn forged_assertions_fail_verification() {
    for algorithm in ["EdDSA", "ES256"] {
        let desk = Gateway::with(&format!("[token]\nalgorithm = \"{algorithm}\"")).await;
        let verifier = Verifier::of(&desk).await;
        let xiaoming = desk.sign_in("u1001").await;
        let good = send(&desk, &xiaoming, RequestKind::BodylessGet, "/api/desk/x")
            .await
            .header(HEADER)
            .expect("an assertion")
            .to_owned();
        let (header, claims) = (header_of(&good), claims_of(&good));
        let (signed, signature) = good.rsplit_once('.').expect("a signature");
        let [own_key, unknown_key] = match algorithm {
            "EdDSA" => [Signer::of_gateway(&desk, &good), Signer::unknown_ed25519()],
            _ => [Signer::of_gateway(&desk, &good), Signer::unknown_p256()],
        };
        let with = |name: &str, value: Value| {
            let mut changed = claims.clone();
            changed[name] = value;
            changed
        };
        let promoted = with("current_role", json!("admin"));
        let header_of_type = |typ: &str| json!({ "typ": typ, "alg": algorithm, "kid": header["kid"] });
        let other_start = if signature.starts_with('A') { "B" } else { "A" };
        let table = [
            (
                "changed claims",
                format!("{}.{}.{signature}", base64url(header.to_string()), base64url(promoted.to_string())),
            ),
            ("changed signature", format!("{signed}.{other_start}{}", &signature[1..])),
            ("no signature", format!("{signed}.")),
            ("an unknown key", unknown_key.token(&header, &promoted)),
            ("another audience", own_key.token(&header, &with("aud", json!("kb-2")))),
            ("another issuer", own_key.token(&header, &with("iss", json!("https://evil.example")))),
            ("expired", own_key.token(&header, &with("exp", json!(claims["iat"].as_i64().expect("iat") - 1)))),
            ("not valid yet", own_key.token(&header, &with("nbf", json!(claims["exp"])))),
            ("another type", own_key.token(&header_of_type("at+jwt"), &claims)),
            ("an access token", xiaoming.token().to_owned()),
        ];
        assert!(verifier.assertion(&good, "helpdesk").is_ok(), "{algorithm}");
        assert!(
            verifier.assertion(&own_key.token(&header, &claims), "helpdesk").is_ok(),
            "re-signed with the gateway's key"
        );
        for (case, forged) in &table {
            assert!(verifier.assertion(forged, "helpdesk").is_err(), "{algorithm}, {case}");
        }
        assert!(verifier.assertion(&good, "kb-2").is_err(), "{algorithm}: the audience is another upstream");
        assert!(verifier.access_token(&good).is_err(), "{algorithm}: an assertion as access token");
        assert!(verifier.access_token(xiaoming.token()).is_ok(), "{algorithm}");
    }
}

#[tokio::test]
async fn assertion_audience_is_one_upstream() {
    let other = Upstream::start().await;
    let rules = ["session", "request"].map(|kind| {
        format!(
            "\n[[rule]]\nname = \"other upstream, {kind}\"\npath = \"/elsewhere/{kind}/{{*rest}}\"\nupstream = \"kb-2\"\n\
             signed_in = true\nassertion = \"{kind}\"\n"
        )
    });
    let settings = format!("[upstreams.kb-2]\naddresses = [\"{}\"]", other.address());
    let desk = Gateway::setup().toml(&settings).more_rules(RULES).more_rules(&rules.concat()).start().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    for kind in ["session", "request"] {
        xiaoming.get(&format!("/a/{kind}/x")).await.expect_status(200);
        xiaoming.get(&format!("/elsewhere/{kind}/x")).await.expect_status(200);
        let (here, there) = (desk.upstream.last_request(), other.last_request());
        let (here, there) = (here.header(HEADER).expect("an assertion"), there.header(HEADER).expect("an assertion"));
        for (assertion, audience, other) in [(here, "helpdesk", "kb-2"), (there, "kb-2", "helpdesk")] {
            assert_eq!(verifier.assertion(assertion, audience).expect("a valid assertion")["aud"], audience, "{kind}");
            assert!(verifier.assertion(assertion, other).is_err(), "{kind}: the assertion for {audience} at {other}");
        }
    }
}

#[tokio::test]
async fn assertion_is_not_an_access_token() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for rule in ["session", "request"] {
        let seen = send(&desk, &xiaoming, RequestKind::BodylessGet, &format!("/a/{rule}/x")).await;
        let assertion = seen.header(HEADER).expect("an assertion");
        desk.upstream.clear_requests();
        let forger = desk.with_token(assertion);
        forger.get("/api/desk/x").await.expect_invalid_token();
        forger.get("/api/auth/me").await.expect_invalid_token();
        forger.handshake("/ws/employee").open().await.err().expect("a refusal").expect_invalid_token();
        let verified =
            desk.anonymous().post_json("/api/auth/verify", &json!({ "token": assertion })).await.expect_code(0);
        assert_eq!(verified.data()["valid"], false);
        assert!(desk.upstream.requests().is_empty());
    }
}

// ---- Session assertions.

#[tokio::test]
async fn session_assertion_is_the_default() {
    let desk = start_with_tls().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    let first = send(&desk, &xiaoming, RequestKind::BodylessGet, "/api/desk/x")
        .await
        .header(HEADER)
        .expect("an assertion")
        .to_owned();
    for request_kind in REQUEST_KINDS {
        for target in [
            "/a/session/x",
            "/a/session/x?y",
            if request_kind == RequestKind::WebSocket { "/ws/employee" } else { "/public/x" },
        ] {
            let seen = send(&desk, &xiaoming, request_kind, target).await;
            assert_eq!(seen.header(HEADER), Some(first.as_str()), "{request_kind:?} {target}: the same assertion");
            let claims = verified_claims(&verifier, &seen);
            expect_lifetime(&claims, 60);
            for name in ["jti", "htm", "path"] {
                assert_eq!(claims.get(name), None, "{request_kind:?} {target}: {name}");
            }
            assert_eq!(ReplayGuard::default().take(&claims, &seen), Err("no request assertion"), "{request_kind:?}");
        }
    }
}

#[tokio::test]
async fn session_assertion_is_reused_until_stale_or_changed() {
    let desk = Gateway::start().await;
    let verifier = Verifier::of(&desk).await;
    let (alice, other_session) = (desk.sign_in("a2001").await, desk.sign_in("a2001").await);
    let assertion_for = async |client: &Client| {
        send(&desk, client, RequestKind::BodylessGet, "/api/desk/x")
            .await
            .header(HEADER)
            .expect("an assertion")
            .to_owned()
    };
    let first = assertion_for(&alice).await;
    for _ in 0..5 {
        assert_eq!(assertion_for(&alice).await, first, "signed once per session and upstream");
    }
    assert_ne!(assertion_for(&other_session).await, first, "another session");
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
    assert_ne!(assertion_for(&alice).await, first, "a role switch changes the assertion");
    let claims = verified_claims(&verifier, &desk.upstream.last_request());
    assert_eq!(claims["current_role"], "user");
}

/// One rule per scope of a supervisor and one without, for both kinds of assertions.
fn scope_rules() -> String {
    let mut rules =
        "[matrix.auditor]\nconversations = { read = \"own\", create = \"department\", update = \"all\" }\n".to_owned();
    for kind in ["session", "request"] {
        for (name, access) in [
            ("none", "signed_in = true"),
            ("own", "access = \"conversations:read\""),
            ("department", "access = \"conversations:create\""),
            ("all", "access = \"conversations:update\""),
        ] {
            rules.push_str(&format!(
                "\n[[rule]]\nname = \"{kind} {name}\"\npath = \"/scoped/{kind}/{name}\"\nupstream = \"helpdesk\"\n{access}\n\
                 assertion = \"{kind}\"\n"
            ));
        }
    }
    rules
}

#[tokio::test]
async fn assertion_carries_the_granted_scope_and_no_other() {
    let desk = Gateway::setup().tls().more_rules(&scope_rules()).start().await;
    let verifier = Verifier::of(&desk).await;
    desk.command(&["role", "grant", "u1001", "auditor"]).await.expect_success();
    let auditor = desk.sign_in("u1001").await;
    auditor.post_json("/api/auth/switch-role", &json!({ "role": "auditor" })).await.expect_code(0);
    for request_kind in REQUEST_KINDS {
        for kind in ["session", "request"] {
            // Twice: the second round must not reuse the assertion of the scope before.
            for scope in ["none", "own", "department", "all", "none", "own", "department", "all"] {
                let seen = send(&desk, &auditor, request_kind, &format!("/scoped/{kind}/{scope}")).await;
                let expected = (scope != "none").then_some(scope);
                assert_eq!(seen.header("x-deskgate-scope"), expected, "{request_kind:?} {kind} {scope}");
                let claims = verified_claims(&verifier, &seen);
                assert_eq!(claims.get("scope").and_then(Value::as_str), expected, "{request_kind:?} {kind} {scope}");
            }
        }
    }
}

#[tokio::test]
async fn session_assertion_is_signed_once_per_scope() {
    let desk = Gateway::setup().more_rules(&scope_rules()).start().await;
    desk.command(&["role", "grant", "u1001", "auditor"]).await.expect_success();
    let auditor = desk.sign_in("u1001").await;
    auditor.post_json("/api/auth/switch-role", &json!({ "role": "auditor" })).await.expect_code(0);
    let mut distinct = BTreeSet::new();
    for _ in 0..3 {
        for scope in ["none", "own", "department", "all"] {
            let seen = send(&desk, &auditor, RequestKind::BodylessGet, &format!("/scoped/session/{scope}")).await;
            distinct.insert(seen.header(HEADER).expect("an assertion").to_owned());
        }
    }
    assert_eq!(distinct.len(), 4);
}

// ---- Request assertions.

#[tokio::test]
async fn request_assertion_binds_method_and_path_and_is_single_use() {
    let desk = start_with_tls().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream = ReplayGuard::default();
    let mut all = Vec::new();
    for request_kind in REQUEST_KINDS {
        for target in ["/a/request/x", "/a/request/x", "/a/request/y?z=1"] {
            let seen = send(&desk, &xiaoming, request_kind, target).await;
            assert_eq!(seen.header_all("x-deskgate-employee-id"), ["u1001"], "{request_kind:?}");
            let claims = verified_claims(&verifier, &seen);
            expect_lifetime(&claims, 10);
            let method =
                if matches!(request_kind, RequestKind::BodylessGet | RequestKind::WebSocket) { "GET" } else { "POST" };
            assert_eq!(claims["htm"], method, "{request_kind:?} {target}");
            assert_eq!(claims["path"].as_str(), target.split('?').next(), "{request_kind:?} {target}");
            assert!(claims["jti"].as_str().is_some_and(|id| id.len() >= 22), "128 bits at least: {claims}");
            assert_eq!(upstream.take(&claims, &seen), Ok(()), "{request_kind:?} {target}");
            all.push((claims, seen));
        }
    }
    for (claims, seen) in &all {
        assert_eq!(upstream.take(claims, seen), Err("seen before"), "{}", seen.target);
        let other_path = RecordedRequest { target: "/a/request/another".to_owned(), ..seen.clone() };
        assert_eq!(ReplayGuard::default().take(claims, &other_path), Err("another path"));
        let other_method = RecordedRequest { method: "DELETE".to_owned(), ..seen.clone() };
        assert_eq!(ReplayGuard::default().take(claims, &other_method), Err("another method"));
    }
}

#[tokio::test]
async fn concurrent_requests_get_distinct_request_assertions() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let responses = (0..64).map(|_| xiaoming.get("/a/request/x"));
    for response in futures::future::join_all(responses).await {
        response.expect_status(200);
    }
    let ids: BTreeSet<String> =
        desk.upstream.requests().iter().map(|seen| jti_of(seen.header(HEADER).expect("an assertion"))).collect();
    assert_eq!(ids.len(), 64);
}

#[tokio::test]
async fn assertion_path_is_the_matched_and_forwarded_path() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    let absolute = format!("http://{}/a/request/x?y=1", desk.address());
    let table = [
        ("unchanged", "/a/request/x", "/a/request/x"),
        ("with a query", "/a/request/x?path=/b&token=c", "/a/request/x"),
        ("an empty query", "/a/request/x?", "/a/request/x"),
        ("an empty tail", "/a/request/", "/a/request/"),
        ("escaped unreserved characters", "/a/r%65quest/%7ex", "/a/request/~x"),
        ("lower-case escapes", "/a/request/%e6%9e%97", "/a/request/%E6%9E%97"),
        ("a space", "/a/request/x%20y", "/a/request/x%20y"),
        ("an absolute target", &absolute, "/a/request/x"),
    ];
    for (case, target, path) in table {
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            desk.upstream.clear_requests();
            let mut connection = desk.connect().await;
            let (host, token) = (desk.address(), xiaoming.token());
            let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
            connection.send(head.as_bytes()).await;
            connection.response_to_head().await.expect("a response").expect_status(200);
            let seen = desk.upstream.only_request();
            let claims = verified_claims(&verifier, &seen);
            assert_eq!((&claims["path"], &claims["htm"]), (&json!(path), &json!(method)), "{case}");
            assert_eq!(ReplayGuard::default().take(&claims, &seen), Ok(()), "{case}: {}", seen.target);
        }
    }
}

/// A forwarded token is sent beside the assertion, never inside it.
#[tokio::test]
async fn forwarded_token_is_not_in_the_assertion() {
    let desk = start_with_tls().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("Bearer {}", xiaoming.token());
    for request_kind in [RequestKind::BodylessGet, RequestKind::PostWithBody, RequestKind::Http2Post] {
        let seen = send(&desk, &xiaoming, request_kind, "/a/token-too/x").await;
        assert_eq!(seen.header("authorization"), Some(bearer.as_str()), "{request_kind:?}");
        assert_eq!(ReplayGuard::default().take(&verified_claims(&verifier, &seen), &seen), Ok(()), "{request_kind:?}");
        let seen = send(&desk, &xiaoming, request_kind, "/a/request/x").await;
        assert_eq!(seen.header("authorization"), None, "{request_kind:?}");
    }
    let query = format!("token={}", xiaoming.token());
    for (rule, forwarded) in [("token-too", true), ("request", false)] {
        let path = format!("/a/{rule}/x");
        desk.upstream.clear_requests();
        desk.anonymous().websocket(&format!("{path}?{query}")).await.echo("hello").await;
        let seen = desk.upstream.only_request();
        assert_eq!(seen.target.contains(&query), forwarded, "{rule}");
        let claims = verified_claims(&verifier, &seen);
        assert_eq!(claims["path"], path.as_str());
        assert!(!claims.to_string().contains(xiaoming.token()), "{claims}");
    }
}

/// The gateway retries on a new connection when the pooled one was closed: it is still the same request.
#[tokio::test]
async fn retried_request_carries_the_same_assertion() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut client = desk.connect().await;
    let request = |number: usize| {
        let (host, token) = (desk.address(), xiaoming.token());
        format!("GET /a/request/{number} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n")
    };
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    client.send(request(1).as_bytes()).await;
    let mut first = upstream_connections.next().await;
    first.stream.send(response).await;
    client.response().await.expect("a response").expect_status(200);
    client.send(request(2).as_bytes()).await;
    let unanswered = String::from_utf8(first.stream.read_until(b"\r\n\r\n").await).expect("text");
    drop(first);
    let mut second = upstream_connections.next().await;
    let retried = second.request.header(HEADER).expect("an assertion").to_owned();
    assert!(unanswered.starts_with("GET /a/request/2 ") && unanswered.contains(&retried), "{retried}\n{unanswered}");
    second.stream.send(response).await;
    client.response().await.expect("a response").expect_status(200);
}

// ---- No assertion.

#[tokio::test]
async fn assertion_off_sends_only_identity_headers() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await;
    for request_kind in REQUEST_KINDS {
        let seen = send(&desk, &xiaoming, request_kind, "/a/off/x").await;
        assert_eq!(seen.header(HEADER), None, "{request_kind:?}");
        for name in
            ["employee-id", "name", "corp-id", "department", "roles", "current-role", "login-source", "session-id"]
        {
            assert_eq!(seen.header_all(&format!("x-deskgate-{name}")).len(), 1, "{request_kind:?}: {name}");
        }
        assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"), "{request_kind:?}");
    }
}

#[tokio::test]
async fn client_assertion_header_is_stripped() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await;
    let with_forged_headers = |client: &Client| {
        let names = ["X-Deskgate-Assertion", "X_Deskgate_Assertion", "x.deskgate.assertion"];
        names.iter().fold(client.clone(), |client, name| client.with_header(name, "forged"))
    };
    for request_kind in [RequestKind::BodylessGet, RequestKind::PostWithBody, RequestKind::WebSocket] {
        for rule in ["session", "request", "off", "public", "token-too"] {
            let seen = send(&desk, &with_forged_headers(&xiaoming), request_kind, &format!("/a/{rule}/x")).await;
            assert!(!String::from_utf8_lossy(&seen.head).contains("forged"), "{request_kind:?} {rule}");
            assert_eq!(seen.header(HEADER).is_some(), rule != "off", "{request_kind:?} {rule}");
        }
    }
}

#[tokio::test]
async fn public_rule_adds_an_assertion_only_for_signed_in_clients() {
    let desk = start_with_tls().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    for request_kind in REQUEST_KINDS {
        let seen = send(&desk, &desk.anonymous(), request_kind, "/a/public/x").await;
        let identity = seen.headers.iter().find(|(name, _)| name.to_ascii_lowercase().starts_with("x-deskgate"));
        assert_eq!(identity, None, "{request_kind:?}");
        let seen = send(&desk, &xiaoming, request_kind, "/a/public/x").await;
        let claims = verified_claims(&verifier, &seen);
        assert_eq!(ReplayGuard::default().take(&claims, &seen), Ok(()), "{request_kind:?}");
    }
}

// ---- Reload.

#[tokio::test]
async fn reload_changes_the_assertion_kind_and_keeps_websockets() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/a/session/socket").await;
    let rules = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    let kind = |seen: &RecordedRequest| {
        let claims = seen.header(HEADER).map(claims_of);
        claims.map_or("off", |claims| if claims.get("jti").is_some() { "request" } else { "session" })
    };
    for wanted in ["request", "off", "session", "request"] {
        let changed = rules.replacen("assertion = \"session\"", &format!("assertion = \"{wanted}\""), 1);
        std::fs::write(desk.rules_file(), changed).expect("new rules");
        desk.signal("HUP");
        eventually(&format!("the kind {wanted}"), || async {
            (kind(&send(&desk, &xiaoming, RequestKind::BodylessGet, "/a/session/x").await) == wanted).then_some(())
        })
        .await;
        for request_kind in [RequestKind::PostWithBody, RequestKind::WebSocket] {
            assert_eq!(kind(&send(&desk, &xiaoming, request_kind, "/a/session/x").await), wanted, "{request_kind:?}");
        }
        assert_eq!(
            kind(&send(&desk, &xiaoming, RequestKind::BodylessGet, "/a/off/x").await),
            "off",
            "the other rules are unchanged"
        );
        socket.echo("still open").await;
    }
    let unknown = rules.replacen("assertion = \"session\"", "assertion = \"sometimes\"", 1);
    std::fs::write(desk.rules_file(), unknown).expect("invalid rules");
    desk.signal("HUP");
    desk.wait_for_log(&["test.toml", "`sometimes` is not one of session, request, off"]).await;
    assert_eq!(
        kind(&send(&desk, &xiaoming, RequestKind::BodylessGet, "/a/session/x").await),
        "request",
        "invalid rules are not applied"
    );
}
