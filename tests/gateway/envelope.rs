//! The response envelope (section 1 of the contract), also for malformed requests.

use std::collections::BTreeSet;

use crate::support::*;

/// Endpoints of the gateway: method and path.
const ENDPOINTS: &[(&str, &str)] = &[
    ("GET", "/api/auth/qrcode"),
    ("GET", "/api/auth/scan/status"),
    ("GET", "/api/auth/oauth2/url"),
    ("GET", "/api/auth/oauth2/callback"),
    ("POST", "/api/auth/verify"),
    ("POST", "/api/auth/logout"),
    ("GET", "/api/auth/me"),
    ("POST", "/api/auth/switch-role"),
    ("POST", "/api/auth/bind"),
    ("GET", "/api/auth/page.css"),
    ("GET", "/api/auth/signin.js"),
    ("GET", "/api/auth/bind.js"),
    ("POST", "/api/dev/login"),
    ("GET", "/api/dev/users"),
    ("GET", "/api/dev/health"),
    ("GET", "/api/ready"),
    ("GET", "/version"),
    ("GET", "/.well-known/jwks.json"),
];

fn is_chinese(text: &str) -> bool {
    text.chars().any(|character| ('\u{4e00}'..='\u{9fff}').contains(&character))
}

#[tokio::test]
async fn wrong_method_is_1405_with_allow() {
    let desk = Gateway::start().await;
    for (method, path) in ENDPOINTS {
        for other in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            if other == *method {
                continue;
            }
            let response = desk.anonymous().send(other, path, &[], b"").await;
            assert_eq!(response.status, 405, "{other} {path}: {}", response.describe());
            let response = response.expect_code(1405);
            let allow = response.header("allow").expect("Allow");
            let allowed: Vec<&str> = allow.split(',').map(str::trim).collect();
            assert!(allowed.contains(method) && !allowed.contains(&other), "{other} {path}: Allow: {allow}");
            assert_eq!(allowed.contains(&"GET"), allowed.contains(&"HEAD"), "{other} {path}: Allow: {allow}");
        }
    }
}

#[tokio::test]
async fn path_without_a_rule_is_1404() {
    let desk = Gateway::start().await;
    let administrator = desk.sign_in("m5001").await;
    for path in [
        "/",
        "/nowhere",
        "/api",
        "/api/",
        "/api/auth",
        "/api/auth/",
        "/api/auth/nothing",
        "/api/auth/me/",
        "/API/AUTH/ME",
    ] {
        for client in [&desk.anonymous(), &administrator] {
            client.get(path).await.expect_code(1404);
            client.post_json(path, &json!({})).await.expect_code(1404);
        }
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn rule_methods_refuse_other_methods() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/read-only/x").await.expect_status(200);
    desk.upstream.clear_requests();
    let response = xiaoming.post("/api/read-only/x").await.expect_code(1405);
    assert!(response.header("allow").is_some_and(|allow| allow.contains("GET")), "{}", response.describe());
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn auth_responses_are_no_store() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    // The gateway's own table includes pages, styles and scripts.
    for row in deskgate::endpoints::TABLE.iter().filter(|row| row.path.starts_with("/api/auth/")) {
        for client in [&desk.anonymous(), &desk.with_token("a.b.c"), &xiaoming] {
            for method in [row.method, "PUT"] {
                let response = client.send(method, row.path.replace("{id}", "x").as_str(), &[], b"").await;
                assert_eq!(response.header("cache-control"), Some("no-store"), "{}", response.describe());
                assert_eq!(response.header("etag"), None, "{}", response.describe());
            }
        }
    }
    let response = desk.anonymous().get("/api/auth/nothing").await;
    assert_eq!(response.header("cache-control"), Some("no-store"), "{}", response.describe());
    let response =
        desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await.expect_code(0);
    assert_eq!(response.header("cache-control"), Some("no-store"), "RFC 6750: the response has a token");
}

#[tokio::test]
async fn every_response_has_its_own_request_id() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut seen = BTreeSet::new();
    let responses = [
        xiaoming.get("/api/auth/me").await,
        desk.anonymous().get("/api/auth/me").await,
        desk.anonymous().get("/nowhere").await,
        desk.anonymous().get("/api/auth/oauth2/callback").await,
        desk.anonymous().get("/.well-known/jwks.json").await,
        xiaoming.get("/api/desk/x").await,
        xiaoming.get("/api/agent-desk/x").await,
        xiaoming.websocket("/ws/employee").await.response().clone(),
        xiaoming.handshake("/ws/agent").expect_refused().await,
    ];
    let count = responses.len();
    for response in responses {
        let id =
            response.header("x-request-id").unwrap_or_else(|| panic!("no X-Request-Id in {}", response.describe()));
        seen.insert(id.to_owned());
    }
    assert_eq!(seen.len(), count, "{seen:?}");
}

#[tokio::test]
async fn request_id_is_the_same_for_upstream_and_client() {
    let desk = Gateway::start().await;
    let response = desk.sign_in("u1001").await.get("/api/desk/x").await.expect_status(200);
    assert_eq!(response.header("x-request-id"), desk.upstream.last_request().header("x-request-id"));
}

#[tokio::test]
async fn request_id_of_a_trusted_peer_is_kept() {
    let desk = Gateway::start().await;
    let request_id = "0af7651916cd43dd8448eb211c80319c";
    let response = desk.anonymous().with_header("X-Request-Id", request_id).get("/api/auth/me").await.expect_code(1001);
    assert_eq!(response.json()["request_id"], request_id);

    let long = "a".repeat(5000);
    for (case, id) in [
        ("empty", ""),
        ("a space", "a b"),
        ("a quote", "a\"b"),
        ("markup", "<script>"),
        ("a line break in JSON", "a\\nb"),
        ("long", &long),
    ] {
        let response = desk.anonymous().with_header("X-Request-Id", id).get("/public/x").await.expect_status(200);
        let assigned = response.header("x-request-id").expect("X-Request-Id");
        assert!(assigned != id && !assigned.is_empty(), "{case}: {assigned}");
        assert_eq!(desk.upstream.last_request().header("x-request-id"), Some(assigned), "{case}");
    }
}

#[tokio::test]
async fn request_id_of_an_untrusted_peer_is_replaced() {
    let desk = Gateway::with("[server]\ntrusted_proxies = []").await;
    let request_id = "0af7651916cd43dd8448eb211c80319c";
    let response = desk.anonymous().with_header("X-Request-Id", request_id).get("/public/x").await.expect_status(200);
    assert_ne!(response.header("x-request-id"), Some(request_id));
    assert_ne!(desk.upstream.last_request().header("x-request-id"), Some(request_id));
}

#[tokio::test]
async fn messages_follow_accept_language() {
    let desk = Gateway::start().await;
    let in_chinese = Gateway::with("[server]\nlanguage = \"zh-CN\"").await;
    for (accept, chinese, chinese_by_default) in [
        (None, false, true),
        (Some("zh-CN"), true, true),
        (Some("zh"), true, true),
        (Some("zh-TW,zh;q=0.9"), true, true),
        (Some("en"), false, false),
        (Some("en-US,en;q=0.9,zh;q=0.1"), false, false),
        (Some("en;q=0.1, zh-CN;q=0.8"), true, true),
        (Some("fr, de"), false, true),
        (Some("fr, zh;q=0.5"), true, true),
        (Some(";;;q=,"), false, true),
    ] {
        for (desk, chinese) in [(&desk, chinese), (&in_chinese, chinese_by_default)] {
            let anonymous = match accept {
                Some(accept) => desk.anonymous().with_header("Accept-Language", accept),
                None => desk.anonymous(),
            };
            for path in ["/api/auth/me", "/nowhere"] {
                let response = anonymous.get(path).await;
                let code = response.code();
                assert!(code == 1001 || code == 1404, "the code does not depend on the language");
                assert_eq!(is_chinese(&response.message()), chinese, "{accept:?} {path}: {}", response.message());
            }
        }
    }
}

#[tokio::test]
async fn body_must_be_declared_as_json() {
    let desk = Gateway::start().await;
    let body = br#"{"token":"a"}"#;
    for kind in
        ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"]
    {
        desk.anonymous().post_body("/api/auth/verify", kind, body).await.expect_code(0);
    }
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "json", ""]
    {
        let response = desk.anonymous().post_body("/api/auth/verify", kind, body).await;
        assert_eq!(response.code(), 1415, "{kind}");
        response.expect_code(1415);
    }
    desk.anonymous().send("POST", "/api/auth/verify", &[], body).await.expect_code(1415);
    let compressed = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")];
    desk.anonymous().send("POST", "/api/auth/verify", &compressed, body).await.expect_code(1415);
}

#[tokio::test]
async fn invalid_json_bodies_are_refused() {
    let desk = Gateway::start().await;
    let deep = format!("{{\"token\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let table: &[(&str, &[u8])] = &[
        ("an empty body", b""),
        ("white space", b"  "),
        ("a truncated object", b"{"),
        ("a truncated string", b"{\"token\":\"a"),
        ("a trailing comma", b"{\"token\":\"a\",}"),
        ("trailing data", b"{\"token\":\"a\"} x"),
        ("a second object", b"{\"token\":\"a\"}{\"token\":\"b\"}"),
        ("the same key twice", b"{\"token\":\"a\",\"token\":\"b\"}"),
        ("the same key twice, once escaped", b"{\"token\":\"a\",\"\\u0074oken\":\"b\"}"),
        ("an array", b"[\"a\"]"),
        ("a string", b"\"a\""),
        ("a number", b"1"),
        ("null", b"null"),
        ("a number instead of a string", b"{\"token\":1}"),
        ("a huge number", b"{\"token\":1e999}"),
        ("an object instead of a string", b"{\"token\":{}}"),
        ("null instead of a string", b"{\"token\":null}"),
        ("a comment", b"{\"token\":\"a\"} // x"),
        ("single quotes", b"{'token':'a'}"),
        ("NaN", b"{\"token\":NaN}"),
        ("a raw line break in a string", b"{\"token\":\"a\nb\"}"),
        ("invalid UTF-8", b"{\"token\":\"\xff\xfe\"}"),
        ("a lone surrogate", b"{\"token\":\"\\ud800\"}"),
        ("UTF-16", b"\xff\xfe{\x00\"\x00t\x00"),
        ("a byte order mark", b"\xef\xbb\xbf{\"token\":\"a\"}"),
        ("ten thousand nested lists", deep.as_bytes()),
    ];
    for (case, body) in table {
        let response = desk.anonymous().post_body("/api/auth/verify", "application/json", body).await;
        assert_eq!(response.code(), 1400, "{case}");
        response.expect_code(1400);
    }
}

#[tokio::test]
async fn unused_json_members_are_validated() {
    let desk = Gateway::start().await;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = format!("{}1{}", "{\"a\":".repeat(5_000), "}".repeat(5_000));
    let table: &[(&str, &str, u64)] = &[
        ("null", "null", 0),
        ("one of everything", r#"{"a":[1,-2,3.5,"x",true,null,{}],"b":{"a":1e308}}"#, 0),
        ("the same name at two levels and in two list items", r#"{"a":{"a":[{"a":1},{"a":2}]}}"#, 0),
        ("a few levels", &nested(30), 0),
        ("a name twice", r#"1,"zz":2"#, 1400),
        ("a name twice, once escaped", r#"1,"\u007az":2"#, 1400),
        ("a nested name twice", r#"{"a":1,"b":2,"a":1}"#, 1400),
        ("a nested name twice, once escaped", r#"[{"a":1,"\u0061":2}]"#, 1400),
        ("an empty name twice", r#"{"":1,"":2}"#, 1400),
        ("ten thousand nested lists", &nested(10_000), 1400),
        ("five thousand nested objects", &objects, 1400),
        ("a number out of range", "1e999", 1400),
        ("a nested number out of range", r#"{"a":[-1e999]}"#, 1400),
        ("a lone surrogate", r#""\ud800""#, 1400),
    ];
    for (case, unknown, code) in table {
        for body in [format!(r#"{{"token":"a","zz":{unknown}}}"#), format!(r#"{{"zz":{unknown},"token":"a"}}"#)] {
            let response = desk.anonymous().post_body("/api/auth/verify", "application/json", body.as_bytes()).await;
            assert_eq!(response.code(), *code, "{case}: {}", response.describe());
        }
    }
}

#[tokio::test]
async fn large_body_is_1413() {
    let desk = Gateway::start().await;
    let fits = format!("{{\"token\":\"{}\"}}", "a".repeat(65_536 - 12));
    assert_eq!(fits.len(), 65_536);
    desk.anonymous().post_body("/api/auth/verify", "application/json", fits.as_bytes()).await.expect_code(0);
    let large = format!("{fits} ");
    desk.anonymous().post_body("/api/auth/verify", "application/json", large.as_bytes()).await.expect_code(1413);

    let head =
        format!("POST /api/auth/verify HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n", desk.address());
    let announced = format!("{head}Content-Length: 10000000\r\n\r\n");
    let response = desk.send_raw(announced.as_bytes()).await.expect("a response before the body");
    response.expect_code(1413);
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n", large.len());
    let response = desk.send_raw(chunked.as_bytes()).await.expect("a response before the end of the body");
    response.expect_code(1413);
}

#[tokio::test]
async fn refusals_reveal_no_internals() {
    let desk = Gateway::start().await;
    let data_dir = desk.data_dir().display().to_string();
    let responses = [
        desk.anonymous().get("/nowhere").await,
        desk.anonymous().get("/api/auth/me").await,
        desk.anonymous().post_body("/api/auth/verify", "application/json", b"{").await,
        desk.anonymous().post_json("/api/auth/bind", &json!({ "employee_id": "'" })).await,
        desk.anonymous().get("/api/auth/oauth2/url?redirect_uri=http://evil.example/").await,
    ];
    for response in responses {
        let whole = response.describe().to_ascii_lowercase();
        for word in ["sqlite", "select ", "panicked", "src/", ".rs:", data_dir.as_str(), "pingora"] {
            assert!(!whole.contains(word), "`{word}` in {whole}");
        }
    }
}
