//! /api/ready, /version, /metrics and /.well-known/jwks.json: endpoints for operators and token verifiers.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::support::*;

#[tokio::test]
async fn ready_reports_each_component() {
    let desk = Gateway::start().await;
    let data = desk.anonymous().get("/api/ready").await.expect_code(0).data();
    assert!(data.as_object().is_some_and(|parts| !parts.is_empty()), "{data}");
    let text = data.to_string();
    for part in ["store", "directory"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[tokio::test]
async fn version_reports_the_build() {
    let desk = Gateway::start().await;
    let data = desk.anonymous().get("/version").await.expect_code(0).data();
    assert_eq!(data["name"], "deskgate");
    assert_eq!(data["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn metrics_are_on_the_admin_listener_only() {
    let desk = Gateway::start().await;
    let administrator = desk.sign_in("m5001").await;
    for path in ["/metrics", "/metrics/", "/api/metrics"] {
        desk.anonymous().get(path).await.expect_code(1404);
        administrator.get(path).await.expect_code(1404);
    }
    let admin = Client::new(desk.admin_address());
    let response = admin.get("/metrics").await.expect_status(200);
    assert!(
        response.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")),
        "{}",
        response.describe()
    );
    for path in ["/api/auth/qrcode", "/api/dev/users", "/api/desk/x", "/public/x"] {
        let response = admin.get(path).await;
        assert!((400..500).contains(&response.status), "the admin listener serves {path}: {}", response.describe());
    }
    assert!(desk.upstream.requests().is_empty(), "nothing is proxied from the admin listener");
}

#[tokio::test]
async fn metrics_of_the_contract_exist() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/desk/x").await.expect_status(200);
    xiaoming.get("/api/agent-desk/x").await.expect_code(1003);
    xiaoming.send("GET", "/public/x", &[("X_Deskgate_Roles", "admin")], b"").await.expect_status(200);
    desk.with_token("a.b.c").get("/api/desk/x").await.expect_invalid_token();
    let mut socket = xiaoming.websocket("/ws/employee").await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    socket.ends_within(TEST_TIMEOUT).await.expect("an end");
    desk.sign_in_by_qrcode("u1001").await;
    eventually("the closed WebSocket in the metrics", || async {
        (desk.metric("deskgate_websockets_closed_total", &[]).await > 0.0).then_some(())
    })
    .await;

    let page = desk.metrics().await;
    for name in [
        "requests_total",
        "request_seconds",
        "overhead_seconds",
        "requests_in_flight",
        "authn_total",
        "authz_total",
        "identity_headers_removed_total",
        "refusals_total",
        "platform_circuit_open",
        "platform_token_age_seconds",
        "store_up",
        "directory_up",
        "upstream_healthy",
        "upstream_retries_total",
        "log_lines_dropped_total",
        "signin_total",
        "tickets_total",
        "sessions_issued_total",
        "sessions_ended_total",
        "sessions_live",
        "session_cache_total",
        "websockets_open",
        "websockets_closed_total",
        "websocket_close_seconds",
        "password_checks",
        "password_checks_most",
        "upstream_seconds",
        "revocation_seconds",
        "revocation_feed_up",
        "feed_lag_seconds",
        "rules_loaded",
        "config_reload_success",
        "config_reload_timestamp_seconds",
        "config_hash_info",
        "development_mode",
        "bind_without_proof",
        "build_info",
    ] {
        let full = format!("deskgate_{name}");
        let has_sample = ["{", " ", "_bucket{", "_count"].iter().any(|end| page.contains(&format!("\n{full}{end}")));
        assert!(has_sample, "{full} is missing");
        assert!(page.contains(&format!("# HELP {full} ")), "{full} has no help text");
    }
}

#[tokio::test]
async fn requests_and_sign_ins_are_counted() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/desk/x").await.expect_status(200);
    xiaoming.get("/api/agent-desk/x").await.expect_code(1003);
    xiaoming.post("/api/auth/logout").await.expect_code(0);

    let requests = desk.metric("deskgate_requests_total", &[r#"rule="everyone signed in""#, r#"method="GET""#]).await;
    assert_eq!(requests, 1.0);
    assert_eq!(desk.metric("deskgate_sessions_issued_total", &[r#"method="dev""#]).await, 1.0);
    // The change feed counts the end shortly after the logout response.
    eventually("the logout is counted", || async {
        (desk.metric("deskgate_sessions_ended_total", &[r#"cause="logout""#]).await == 1.0).then_some(())
    })
    .await;
    assert_eq!(desk.metric("deskgate_rules_loaded", &[]).await, 9.0);
}

#[tokio::test]
async fn sessions_ended_by_an_operator_are_counted() {
    let desk = Gateway::start().await;
    // The change feed counts the end shortly after the command's response.
    let ended = async |count: f64| {
        eventually("the session's end is counted", || async {
            (desk.metric("deskgate_sessions_ended_total", &[r#"cause="operator""#]).await == count).then_some(())
        })
        .await;
    };
    for count in 1..=2 {
        let xiaoming = desk.sign_in("u1001").await;
        let output = desk.command(&["session", "end", &jti_of(xiaoming.token())]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ended(f64::from(count)).await;
    }
    assert_eq!(desk.metric("deskgate_sessions_ended_total", &[r#"cause="logout""#]).await, 0.0);
}

#[tokio::test]
async fn sessions_ended_total_says_why_a_session_ended() {
    let desk = Gateway::start().await;
    let causes = desk.metrics().await.matches("deskgate_sessions_ended_total{cause=").count();
    assert_eq!(causes, 10, "every cause is there before the first session ends");
    let partner = "wwpartner/p7001";
    let link = async || {
        desk.command(&["employee", "link", "add", partner, "s3001"]).await.expect_success();
        desk.sign_in_by_oauth2(partner, "h5").await
    };
    for (cause, employee, command) in [
        ("disabled", "u1001", &["employee", "disable", "u1001"][..]),
        ("removed", "c4001", &["employee", "remove", "c4001", "--yes"]),
        ("roles_lost", "a2001", &["role", "take", "a2001", "agent"]),
        ("unlinked", partner, &["employee", "link", "remove", partner, "--yes"]),
        ("left", "m5001", &[]),
    ] {
        let client = if employee == partner { link().await } else { desk.sign_in(employee).await };
        match command {
            [] => {
                desk.set_platform_switches(json!({ "members": { employee: "left" } })).await;
                desk.phone(employee).oauth2(&desk.client_url("h5")).await.expect_status(302);
            }
            _ if cause == "roles_lost" => {
                desk.command(&["role", "take", "a2001", "user"]).await.expect_success();
                desk.command(command).await.expect_success();
            }
            _ => drop(desk.command(command).await.expect_success()),
        }
        client.get("/api/auth/me").await.expect_invalid_token();
        // The change feed counts the end shortly after the response.
        eventually(cause, || async {
            let label = format!("cause=\"{cause}\"");
            (desk.metric("deskgate_sessions_ended_total", &[&label]).await == 1.0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn refusals_of_gateway_endpoints_are_logged_with_their_path() {
    let desk = Gateway::start().await;
    desk.anonymous().get("/api/auth/me").await.expect_bare_challenge();
    desk.anonymous().post_body("/api/dev/login", "application/json", b"junk").await.expect_code(1400);
    for (path, code) in [("/api/auth/me", 1001), ("/api/dev/login", 1400)] {
        desk.wait_for_log(&[&format!(r#""rule.name":"{path}""#), &format!("refused with {code}")]).await;
    }
}

#[tokio::test]
async fn metric_labels_never_come_from_requests() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    // Every rule and code once: a series appears when it is first used.
    let mut before = 0;
    for number in 0..50 {
        if number == 1 {
            before = desk.metrics().await.lines().count();
        }
        xiaoming.get(&format!("/api/desk/kilroy-{number}?q=kilroy")).await.expect_status(200);
        desk.anonymous().get(&format!("/nowhere/kilroy-{number}")).await.expect_code(1404);
        let agent = format!("kilroy/{number}");
        desk.anonymous().with_header("User-Agent", &agent).get("/api/auth/me").await.expect_bare_challenge();
        desk.anonymous().send(&format!("KILROY{number}"), "/public/x", &[], b"").await;
    }
    // The address of the upstream comes from the configuration.
    let page = desk.metrics().await.replace(&desk.upstream.address().to_string(), "");
    for word in ["kilroy", "KILROY", "u1001", "127.0.0.1", xiaoming.token()] {
        assert_eq!(page.lines().find(|line| line.contains(word)), None, "{word} is in a label");
    }
    let after = page.lines().count();
    assert!(before > 0 && after < before + 10, "the metrics grew from {before} to {after} lines");
}

#[tokio::test]
async fn jwks_verifies_issued_tokens() {
    for (algorithm, kind, curve) in [("EdDSA", "OKP", "Ed25519"), ("ES256", "EC", "P-256")] {
        let desk = Gateway::with(&format!("[token]\nalgorithm = \"{algorithm}\"")).await;
        let xiaoming = desk.sign_in("u1001").await;
        let header = header_of(xiaoming.token());
        assert_eq!((&header["alg"], &header["typ"]), (&json!(algorithm), &json!("at+jwt")));

        let response = desk.anonymous().get("/.well-known/jwks.json").await.expect_status(200);
        assert!(response.header("content-type").is_some_and(|kind| kind.contains("json")), "{}", response.describe());
        let set = response.json();
        let keys = set["keys"].as_array().expect("a JWK set");
        for key in keys {
            for secret in ["d", "k", "p", "q"] {
                assert!(key.get(secret).is_none(), "the JWKS has private key material: {set}");
            }
        }
        let key = keys.iter().find(|key| key["kid"] == header["kid"]).expect("the token's key");
        assert_eq!((&key["kty"], &key["crv"]), (&json!(kind), &json!(curve)));

        let coordinate = |name: &str| URL_SAFE_NO_PAD.decode(key[name].as_str().expect("a number")).expect("base64url");
        let (message, signature) = xiaoming.token().rsplit_once('.').expect("a signature");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
        let verified = match kind {
            "OKP" => UnparsedPublicKey::new(&ED25519, coordinate("x")).verify(message.as_bytes(), &signature),
            _ => {
                let point = [vec![4], coordinate("x"), coordinate("y")].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message.as_bytes(), &signature)
            }
        };
        assert!(verified.is_ok(), "{algorithm}");
        xiaoming.get("/api/desk/x").await.expect_status(200);
    }
}

/// Fails unless the response is a complete 304: validators and caching headers, and no header of a body.
#[track_caller]
fn expect_not_modified(case: &str, response: &Response, tag: &str) {
    assert_eq!(response.status, 304, "{case}: {}", response.describe());
    assert_eq!(response.header("etag"), Some(tag), "{case}");
    assert_eq!(response.header("cache-control"), Some("public, max-age=300"), "{case}");
    assert!(response.header("x-request-id").is_some_and(|id| !id.is_empty()), "{case}: {}", response.describe());
    for name in ["content-length", "transfer-encoding", "content-type"] {
        assert_eq!(response.header(name), None, "{case}: {name}");
    }
    assert!(response.body.is_empty(), "{case}: {}", response.describe());
}

const JWKS: &str = "/.well-known/jwks.json";

#[tokio::test]
async fn jwks_is_cacheable_and_revalidated_by_etag() {
    let desk = Gateway::setup().tls().start().await;
    let anonymous = desk.anonymous();
    let response = anonymous.get(JWKS).await.expect_status(200);
    assert_eq!(response.header("cache-control"), Some("public, max-age=300"));
    let tag = response.header("etag").expect("an ETag").to_owned();
    assert!(tag.len() > 20 && tag.starts_with('"') && tag.ends_with('"'), "not a strong ETag: {tag}");
    assert_eq!(anonymous.get(JWKS).await.header("etag"), Some(tag.as_str()), "the ETag of unchanged keys");
    let head = anonymous.send("HEAD", JWKS, &[], b"").await.expect_status(200);
    for name in ["etag", "cache-control", "content-type", "content-length"] {
        assert_eq!(head.header(name), response.header(name), "{name}");
    }
    assert_eq!(head.header("content-length"), Some(response.body.len().to_string().as_str()));

    let (weak, listed) = (format!("W/{tag}"), format!("\"other\", {tag}"));
    let http2 = anonymous.http2().await;
    for (case, value) in
        [("the ETag", tag.as_str()), ("the weak ETag", &weak), ("in a list", &listed), ("anything", "*")]
    {
        let headers = [("if-none-match", value)];
        for method in ["GET", "HEAD"] {
            expect_not_modified(case, &anonymous.send(method, JWKS, &headers, b"").await, &tag);
            expect_not_modified(case, &http2.send(method, JWKS, &headers, b"").await, &tag);
        }
    }
    for (case, value) in [("another ETag", "\"other\""), ("an invalid ETag", "other"), ("an empty value", "")] {
        let other = anonymous.send("GET", JWKS, &[("If-None-Match", value)], b"").await.expect_status(200);
        assert_eq!(other.body, response.body, "{case}");
    }
    for path in ["/version", "/api/ready"] {
        let other = anonymous.send("GET", path, &[("If-None-Match", "*")], b"").await.expect_code(0);
        assert_eq!((other.header("etag"), other.header("cache-control")), (None, Some("no-store")), "{path}");
    }
}

#[tokio::test]
async fn connection_stays_open_after_304() {
    let desk = Gateway::start().await;
    let mut connection = desk.connect().await;
    for condition in ["", "If-None-Match: *\r\n", "If-None-Match: *\r\n", ""] {
        let request = format!("GET {JWKS} HTTP/1.1\r\nHost: {}\r\n{condition}\r\n", desk.address());
        connection.send(request.as_bytes()).await;
        let response = connection.response().await.expect("a response");
        assert_eq!(response.status, if condition.is_empty() { 200 } else { 304 }, "{}", response.describe());
        assert_ne!(response.header("connection"), Some("close"), "{}", response.describe());
    }
}

#[tokio::test]
async fn jwks_etag_changes_with_the_keys() {
    let mut desk = Gateway::with("[token]\nalgorithm = \"EdDSA\"").await;
    let before = desk.anonymous().get(JWKS).await.expect_status(200);
    let tag = before.header("etag").expect("an ETag");
    desk.restart().await;
    expect_not_modified("a restart", &desk.anonymous().send("GET", JWKS, &[("If-None-Match", tag)], b"").await, tag);
    let config = std::fs::read_to_string(desk.config_file()).expect("the configuration");
    std::fs::write(desk.config_file(), config.replace("EdDSA", "ES256")).expect("a new configuration");
    desk.restart().await;
    let after = desk.anonymous().send("GET", JWKS, &[("If-None-Match", tag)], b"").await.expect_status(200);
    assert_ne!(after.header("etag"), Some(tag));
    assert_eq!(after.json()["keys"].as_array().map(Vec::len), Some(2), "{}", after.describe());
}

#[tokio::test]
async fn access_token_has_the_contracts_claims() {
    let desk = Gateway::start().await;
    let zhou_min = desk.sign_in("m5001").await;
    let claims = claims_of(zhou_min.token());
    let mut names: Vec<&str> = claims.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    let mut expected = vec![
        "iss",
        "aud",
        "sub",
        "jti",
        "iat",
        "nbf",
        "exp",
        "corp_id",
        "name",
        "roles",
        "current_role",
        "login_source",
        "stage",
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(claims["iss"], desk.public_url().as_str());
    assert_eq!(claims["aud"], "deskgate");
    assert_eq!((&claims["sub"], &claims["corp_id"]), (&json!("m5001"), &json!("wwdemo")));
    assert_eq!((&claims["current_role"], &claims["stage"]), (&json!("admin"), &json!("full")));
    let (issued, expires) = (claims["iat"].as_i64().expect("seconds"), claims["exp"].as_i64().expect("seconds"));
    assert_eq!(expires - issued, 8 * 3600, "{claims}");
    assert!(jti_of(zhou_min.token()).len() >= 22, "128 bits at least");
}
