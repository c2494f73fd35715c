//! The signed word to upstreams: whoever verifies it with the published keys alone learns who asks, and, where the
//! rule wants it so, what is asked and that it is asked once.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::*;

/// A rule for each kind of assertion, and one that passes the token on as well.
const RULES: &str = r#"
[[rule]]
name = "assertion of the session"
path = "/a/session/{*rest}"
upstream = "helpdesk"
signed_in = true
assertion = "session"

[[rule]]
name = "assertion of the request"
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
name = "assertion of the request, for anyone"
path = "/a/public/{*rest}"
upstream = "helpdesk"
public = true
assertion = "request"

[[rule]]
name = "assertion of the request, and the token"
path = "/a/token-too/{*rest}"
upstream = "helpdesk"
signed_in = true
assertion = "request"
forward_token = true
"#;

const HEADER: &str = "x-deskgate-assertion";

/// The ways that a request can take through the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// A GET without a body.
    Plain,
    /// A POST with a body.
    Body,
    /// A POST over HTTP/2.
    Http2,
    /// A WebSocket's handshake.
    WebSocket,
}

const LANES: [Lane; 4] = [Lane::Plain, Lane::Body, Lane::Http2, Lane::WebSocket];

/// All lanes need TLS: without it nobody agrees on HTTP/2.
async fn house() -> Gateway {
    Gateway::setup().tls().more_rules(RULES).start().await
}

/// Takes a request through and gives what the upstream saw of it.
async fn ask(desk: &Gateway, person: &Client, lane: Lane, target: &str) -> RecordedRequest {
    desk.upstream.clear_requests();
    match lane {
        Lane::Plain => drop(person.get(target).await.expect_status(200)),
        Lane::Body => drop(person.post_body(target, "text/plain", b"hello").await.expect_status(200)),
        Lane::Http2 => drop(person.http2().await.send("POST", target, &[], b"hello").await.expect_status(200)),
        Lane::WebSocket => person.websocket(target).await.echo("hello").await,
    }
    desk.upstream.only_request()
}

/// What the help desk reads in a good assertion.
#[track_caller]
fn believed(verifier: &Verifier, seen: &RecordedRequest) -> Value {
    let assertion = seen.header(HEADER).unwrap_or_else(|| panic!("no assertion with {}", seen.target));
    verifier.assertion(assertion, "helpdesk").unwrap_or_else(|why| panic!("{}: {why}", seen.target))
}

/// Fails unless it holds for exactly this many seconds, and now is one of them.
#[track_caller]
fn expect_life(claims: &Value, seconds: i64) {
    let time = |name: &str| claims[name].as_i64().unwrap_or_else(|| panic!("no {name} in {claims}"));
    assert_eq!(time("exp") - time("iat"), seconds, "{claims}");
    assert_eq!(time("nbf"), time("iat"), "{claims}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() as i64;
    assert!((time("iat")..time("exp")).contains(&now), "fresh: {claims}");
}

/// The texts of an array, in no order.
#[track_caller]
fn set(array: &Value) -> BTreeSet<String> {
    let texts = array.as_array().expect("an array").iter();
    texts.map(|text| text.as_str().expect("a text").to_owned()).collect()
}

// ---- Verified from outside.

#[tokio::test]
async fn published_keys_verify_tokens_and_assertions() {
    for algorithm in ["EdDSA", "ES256"] {
        let setup = Gateway::setup().toml(&format!("[token]\nalgorithm = \"{algorithm}\"")).more_rules(RULES);
        let desk = setup.start().await;
        let verifier = Verifier::of(&desk).await;
        let alice = desk.sign_in("a2001").await;
        let mut told = Vec::new();
        for lane in [Lane::Plain, Lane::Body, Lane::WebSocket] {
            for rule in ["session", "request"] {
                let seen = ask(&desk, &alice, lane, &format!("/a/{rule}/x")).await;
                let header = header_of(seen.header(HEADER).expect("an assertion"));
                assert_eq!(header["alg"], algorithm, "{lane:?} {rule}");
                told.push(believed(&verifier, &seen));
            }
        }
        for claims in &told {
            assert_eq!((&claims["sub"], &claims["corp_id"]), (&json!("a2001"), &json!("wwdemo")), "{claims}");
            assert_eq!(claims["sid"], jti_of(alice.token()), "{claims}");
            assert_eq!(claims["current_role"], "agent", "{claims}");
            assert_eq!(set(&claims["roles"]), set(&json!(["agent", "user"])), "{claims}");
            assert_eq!((&claims["name"], &claims["department"]), (&json!("Alice Chen"), &json!("IT")), "{claims}");
            assert_eq!(claims["login_source"], "dev", "{claims}");
        }
        assert_eq!(header_of(alice.token())["alg"], algorithm);
        let claims = verifier.access_token(alice.token()).expect("a good token");
        assert_eq!((&claims["sub"], &claims["stage"]), (&json!("a2001"), &json!("full")), "{claims}");
    }
}

#[tokio::test]
async fn forged_assertions_fail_verification() {
    for algorithm in ["EdDSA", "ES256"] {
        let desk = Gateway::with(&format!("[token]\nalgorithm = \"{algorithm}\"")).await;
        let verifier = Verifier::of(&desk).await;
        let xiaoming = desk.sign_in("u1001").await;
        let good = ask(&desk, &xiaoming, Lane::Plain, "/api/desk/x").await.header(HEADER).expect("one").to_owned();
        let (header, claims) = (header_of(&good), claims_of(&good));
        let (signed, signature) = good.rsplit_once('.').expect("a signature");
        let [ours, stranger] = match algorithm {
            "EdDSA" => [Signer::of_gateway(&desk, &good), Signer::unknown_ed25519()],
            _ => [Signer::of_gateway(&desk, &good), Signer::unknown_p256()],
        };
        let with = |name: &str, value: Value| {
            let mut changed = claims.clone();
            changed[name] = value;
            changed
        };
        let promoted = with("current_role", json!("admin"));
        let of_kind = |kind: &str| json!({ "typ": kind, "alg": algorithm, "kid": header["kid"] });
        let other_start = if signature.starts_with('A') { "B" } else { "A" };
        let table = [
            (
                "other claims",
                format!("{}.{}.{signature}", base64url(header.to_string()), base64url(promoted.to_string())),
            ),
            ("another signature", format!("{signed}.{other_start}{}", &signature[1..])),
            ("no signature", format!("{signed}.")),
            ("a stranger's key", stranger.token(&header, &promoted)),
            ("for another upstream", ours.token(&header, &with("aud", json!("kb-2")))),
            ("of another gateway", ours.token(&header, &with("iss", json!("https://evil.example")))),
            ("too old", ours.token(&header, &with("exp", json!(claims["iat"].as_i64().expect("iat") - 1)))),
            ("too early", ours.token(&header, &with("nbf", json!(claims["exp"])))),
            ("of another kind", ours.token(&of_kind("at+jwt"), &claims)),
            ("an access token", xiaoming.token().to_owned()),
        ];
        assert!(verifier.assertion(&good, "helpdesk").is_ok(), "{algorithm}");
        assert!(verifier.assertion(&ours.token(&header, &claims), "helpdesk").is_ok(), "we really hold the key");
        for (case, forged) in &table {
            assert!(verifier.assertion(forged, "helpdesk").is_err(), "{algorithm}, {case}");
        }
        assert!(verifier.assertion(&good, "kb-2").is_err(), "{algorithm}: one for the help desk, elsewhere");
        assert!(verifier.access_token(&good).is_err(), "{algorithm}: an assertion is no access token");
        assert!(verifier.access_token(xiaoming.token()).is_ok(), "{algorithm}");
    }
}

#[tokio::test]
async fn assertion_audience_is_one_upstream() {
    let other = Upstream::start().await;
    let rules = ["session", "request"].map(|kind| {
        format!(
            "\n[[rule]]\nname = \"elsewhere, {kind}\"\npath = \"/elsewhere/{kind}/{{*rest}}\"\nupstream = \"kb-2\"\n\
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
        let (here, there) = (here.header(HEADER).expect("one"), there.header(HEADER).expect("one"));
        for (assertion, audience, not) in [(here, "helpdesk", "kb-2"), (there, "kb-2", "helpdesk")] {
            assert_eq!(verifier.assertion(assertion, audience).expect("a good one")["aud"], audience, "{kind}");
            assert!(verifier.assertion(assertion, not).is_err(), "{kind}: {audience}'s is not for {not}");
        }
    }
}

#[tokio::test]
async fn assertion_is_not_an_access_token() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for rule in ["session", "request"] {
        let seen = ask(&desk, &xiaoming, Lane::Plain, &format!("/a/{rule}/x")).await;
        let assertion = seen.header(HEADER).expect("an assertion");
        desk.upstream.clear_requests();
        let forger = desk.with_token(assertion);
        forger.get("/api/desk/x").await.expect_invalid_token();
        forger.get("/api/auth/me").await.expect_invalid_token();
        forger.handshake("/ws/employee").open().await.err().expect("a refusal").expect_invalid_token();
        let asked = desk.anonymous().post_json("/api/auth/verify", &json!({ "token": assertion })).await.expect_code(0);
        assert_eq!(asked.data()["valid"], false);
        assert!(desk.upstream.requests().is_empty());
    }
}

// ---- Of a session.

#[tokio::test]
async fn session_assertion_is_the_default() {
    let desk = house().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    let first = ask(&desk, &xiaoming, Lane::Plain, "/api/desk/x").await.header(HEADER).expect("one").to_owned();
    for lane in LANES {
        for target in
            ["/a/session/x", "/a/session/x?y", if lane == Lane::WebSocket { "/ws/employee" } else { "/public/x" }]
        {
            let seen = ask(&desk, &xiaoming, lane, target).await;
            assert_eq!(seen.header(HEADER), Some(first.as_str()), "{lane:?} {target}: one for all");
            let claims = believed(&verifier, &seen);
            expect_life(&claims, 60);
            for name in ["jti", "htm", "path"] {
                assert_eq!(claims.get(name), None, "{lane:?} {target}: {name}");
            }
            assert_eq!(ReplayGuard::default().take(&claims, &seen), Err("it is not of a request"), "{lane:?}");
        }
    }
}

#[tokio::test]
async fn session_assertion_is_reused_until_stale_or_changed() {
    let desk = Gateway::start().await;
    let verifier = Verifier::of(&desk).await;
    let (alice, again) = (desk.sign_in("a2001").await, desk.sign_in("a2001").await);
    let of = async |person: &Client| {
        ask(&desk, person, Lane::Plain, "/api/desk/x").await.header(HEADER).expect("an assertion").to_owned()
    };
    let first = of(&alice).await;
    for _ in 0..5 {
        assert_eq!(of(&alice).await, first, "signed once per session and upstream");
    }
    assert_ne!(of(&again).await, first, "another session");
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
    assert_ne!(of(&alice).await, first, "it names the same identity as the headers");
    let claims = believed(&verifier, &desk.upstream.last_request());
    assert_eq!(claims["current_role"], "user");
}

// ---- Of a request.

#[tokio::test]
async fn request_assertion_binds_method_and_path_and_is_single_use() {
    let desk = house().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream = ReplayGuard::default();
    let mut all = Vec::new();
    for lane in LANES {
        for target in ["/a/request/x", "/a/request/x", "/a/request/y?z=1"] {
            let seen = ask(&desk, &xiaoming, lane, target).await;
            assert_eq!(seen.header_all("x-deskgate-employee-id"), ["u1001"], "{lane:?}");
            let claims = believed(&verifier, &seen);
            expect_life(&claims, 10);
            let method = if matches!(lane, Lane::Plain | Lane::WebSocket) { "GET" } else { "POST" };
            assert_eq!(claims["htm"], method, "{lane:?} {target}");
            assert_eq!(claims["path"].as_str(), target.split('?').next(), "{lane:?} {target}");
            assert!(claims["jti"].as_str().is_some_and(|id| id.len() >= 22), "128 bits at least: {claims}");
            assert_eq!(upstream.take(&claims, &seen), Ok(()), "{lane:?} {target}");
            all.push((claims, seen));
        }
    }
    for (claims, seen) in &all {
        assert_eq!(upstream.take(claims, seen), Err("seen before"), "{}", seen.target);
        let elsewhere = RecordedRequest { target: "/a/request/another".to_owned(), ..seen.clone() };
        assert_eq!(ReplayGuard::default().take(claims, &elsewhere), Err("another path"));
        let otherwise = RecordedRequest { method: "DELETE".to_owned(), ..seen.clone() };
        assert_eq!(ReplayGuard::default().take(claims, &otherwise), Err("another method"));
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
        ("as it is", "/a/request/x", "/a/request/x"),
        ("with a query", "/a/request/x?path=/b&token=c", "/a/request/x"),
        ("an empty query", "/a/request/x?", "/a/request/x"),
        ("the tail empty", "/a/request/", "/a/request/"),
        ("an escape of a plain letter", "/a/r%65quest/%7ex", "/a/request/~x"),
        ("escapes in lower case", "/a/request/%e6%9e%97", "/a/request/%E6%9E%97"),
        ("a space", "/a/request/x%20y", "/a/request/x%20y"),
        ("absolute", &absolute, "/a/request/x"),
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
            let claims = believed(&verifier, &seen);
            assert_eq!((&claims["path"], &claims["htm"]), (&json!(path), &json!(method)), "{case}");
            assert_eq!(ReplayGuard::default().take(&claims, &seen), Ok(()), "{case}: {}", seen.target);
        }
    }
}

/// The token may go along, but never inside.
#[tokio::test]
async fn forwarded_token_is_not_in_the_assertion() {
    let desk = house().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("Bearer {}", xiaoming.token());
    for lane in [Lane::Plain, Lane::Body, Lane::Http2] {
        let seen = ask(&desk, &xiaoming, lane, "/a/token-too/x").await;
        assert_eq!(seen.header("authorization"), Some(bearer.as_str()), "{lane:?}");
        assert_eq!(ReplayGuard::default().take(&believed(&verifier, &seen), &seen), Ok(()), "{lane:?}");
        let seen = ask(&desk, &xiaoming, lane, "/a/request/x").await;
        assert_eq!(seen.header("authorization"), None, "{lane:?}");
    }
    let query = format!("token={}", xiaoming.token());
    for (rule, passed_on) in [("token-too", true), ("request", false)] {
        let path = format!("/a/{rule}/x");
        desk.upstream.clear_requests();
        desk.anonymous().websocket(&format!("{path}?{query}")).await.echo("hello").await;
        let seen = desk.upstream.only_request();
        assert_eq!(seen.target.contains(&query), passed_on, "{rule}");
        let claims = believed(&verifier, &seen);
        assert_eq!(claims["path"], path.as_str());
        assert!(!claims.to_string().contains(xiaoming.token()), "{claims}");
    }
}

/// What is sent again because a connection had closed is still the same request.
#[tokio::test]
async fn retried_request_carries_the_same_assertion() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut client = desk.connect().await;
    let question = |number: usize| {
        let (host, token) = (desk.address(), xiaoming.token());
        format!("GET /a/request/{number} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n")
    };
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    client.send(question(1).as_bytes()).await;
    let mut first = upstream_connections.next().await;
    first.stream.send(response).await;
    client.response().await.expect("a response").expect_status(200);
    client.send(question(2).as_bytes()).await;
    let unheard = String::from_utf8(first.stream.read_until(b"\r\n\r\n").await).expect("text");
    drop(first);
    let mut second = upstream_connections.next().await;
    let carried = second.request.header(HEADER).expect("an assertion").to_owned();
    assert!(unheard.starts_with("GET /a/request/2 ") && unheard.contains(&carried), "{carried}\n{unheard}");
    second.stream.send(response).await;
    client.response().await.expect("a response").expect_status(200);
}

// ---- None.

#[tokio::test]
async fn assertion_off_sends_only_identity_headers() {
    let desk = house().await;
    let xiaoming = desk.sign_in("u1001").await;
    for lane in LANES {
        let seen = ask(&desk, &xiaoming, lane, "/a/off/x").await;
        assert_eq!(seen.header(HEADER), None, "{lane:?}");
        for name in
            ["employee-id", "name", "corp-id", "department", "roles", "current-role", "login-source", "session-id"]
        {
            assert_eq!(seen.header_all(&format!("x-deskgate-{name}")).len(), 1, "{lane:?}: {name}");
        }
        assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"), "{lane:?}");
    }
}

#[tokio::test]
async fn client_assertion_header_is_stripped() {
    let desk = house().await;
    let xiaoming = desk.sign_in("u1001").await;
    let forger = |person: &Client| {
        let names = ["X-Deskgate-Assertion", "X_Deskgate_Assertion", "x.deskgate.assertion"];
        names.iter().fold(person.clone(), |person, name| person.with_header(name, "forged"))
    };
    for lane in [Lane::Plain, Lane::Body, Lane::WebSocket] {
        for rule in ["session", "request", "off", "public", "token-too"] {
            let seen = ask(&desk, &forger(&xiaoming), lane, &format!("/a/{rule}/x")).await;
            assert!(!String::from_utf8_lossy(&seen.head).contains("forged"), "{lane:?} {rule}");
            assert_eq!(seen.header(HEADER).is_some(), rule != "off", "{lane:?} {rule}");
        }
    }
}

#[tokio::test]
async fn public_rule_adds_an_assertion_only_for_signed_in_clients() {
    let desk = house().await;
    let verifier = Verifier::of(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    for lane in LANES {
        let seen = ask(&desk, &desk.anonymous(), lane, "/a/public/x").await;
        let ours = seen.headers.iter().find(|(name, _)| name.to_ascii_lowercase().starts_with("x-deskgate"));
        assert_eq!(ours, None, "{lane:?}");
        let seen = ask(&desk, &xiaoming, lane, "/a/public/x").await;
        let claims = believed(&verifier, &seen);
        assert_eq!(ReplayGuard::default().take(&claims, &seen), Ok(()), "{lane:?}");
    }
}

// ---- New rules.

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
            (kind(&ask(&desk, &xiaoming, Lane::Plain, "/a/session/x").await) == wanted).then_some(())
        })
        .await;
        for lane in [Lane::Body, Lane::WebSocket] {
            assert_eq!(kind(&ask(&desk, &xiaoming, lane, "/a/session/x").await), wanted, "{lane:?}");
        }
        assert_eq!(kind(&ask(&desk, &xiaoming, Lane::Plain, "/a/off/x").await), "off", "only that rule has changed");
        socket.echo("still here").await;
    }
    let unknown = rules.replacen("assertion = \"session\"", "assertion = \"sometimes\"", 1);
    std::fs::write(desk.rules_file(), unknown).expect("bad rules");
    desk.signal("HUP");
    desk.wait_for_log(&["test.toml", "`sometimes` is not one of session, request, off"]).await;
    assert_eq!(
        kind(&ask(&desk, &xiaoming, Lane::Plain, "/a/session/x").await),
        "request",
        "a bad file changes nothing"
    );
}
