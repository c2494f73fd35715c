//! Rows 76–81 of the hardening page: what was matched is what is forwarded, and nothing else decides.

use crate::support::*;

/// A secret place inside a public one, so that a path read in two ways would show.
const INNER_RULE: &str = r#"
[[rule]]
name = "a closed room in an open house"
path = "/public/closed/{*rest}"
upstream = "helpdesk"
roles = ["admin"]
"#;

async fn house() -> Gateway {
    Gateway::setup().more_rules(INNER_RULE).start().await
}

/// GET of a target that need not be text.
async fn get(desk: &Gateway, target: &[u8]) -> Option<Answer> {
    let mut bytes = b"GET ".to_vec();
    bytes.extend_from_slice(target);
    bytes.extend_from_slice(format!(" HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).as_bytes());
    desk.raw(&bytes).await
}

#[tokio::test]
async fn row_76_a_path_that_can_be_read_in_two_ways_is_refused() {
    let desk = house().await;
    let administrator = desk.sign_in("m5001").await;
    let table: &[(&str, &[u8])] = &[
        ("dots", b"/public/../api/admin-desk/x"),
        ("dots at the end", b"/public/.."),
        ("dots that stay inside", b"/public/a/../b"),
        ("dots into our own", b"/public/../api/auth/me"),
        ("dots out of our own", b"/api/auth/../admin"),
        ("encoded dots", b"/public/%2e%2e/api/admin-desk/x"),
        ("encoded dots, upper case", b"/public/%2E%2E/api/admin-desk/x"),
        ("half encoded dots", b"/public/.%2e/x"),
        ("half encoded dots, the other half", b"/public/%2e./x"),
        ("two slashes at the front", b"//public/x"),
        ("two slashes at the front, a host", b"//evil.example/public/x"),
        ("two slashes in the middle", b"/public//x"),
        ("two slashes at the end", b"/public/x//"),
        ("an encoded slash", b"/public/a%2fb"),
        ("an encoded slash, upper case", b"/public/a%2Fb"),
        ("an encoded slash as a separator", b"/public%2fx"),
        ("a backslash", b"/public/a\\b"),
        ("a backslash at the front", b"\\public\\x"),
        ("an encoded backslash", b"/public/a%5cb"),
        ("an encoded backslash, upper case", b"/public/..%5C"),
        ("an encoded NUL", b"/public/a%00b"),
        ("an encoded NUL at the end", b"/public/x%00"),
        ("a NUL", b"/public/a\0b"),
        ("no UTF-8", b"/public/%ff"),
        ("half a character", b"/public/%e6%9e"),
        ("an overlong dot", b"/public/%c0%ae%c0%ae/x"),
        ("an overlong slash", b"/public/a%c0%afb"),
        ("a surrogate", b"/public/%ed%a0%80"),
        ("raw bytes that are no UTF-8", b"/public/\xff\xfe"),
        ("no hexadecimal", b"/public/%zz"),
        ("half an escape", b"/public/%4"),
        ("a lone percent sign", b"/public/%"),
        ("a percent sign in the middle", b"/public/100%/x"),
        ("IIS's own escape", b"/public/%u002e%u002e/x"),
        ("a tab", b"/public/a\tb"),
    ];
    for (case, target) in table {
        let answer = get(&desk, target).await.unwrap_or_else(|| panic!("{case}: closed without a word"));
        assert_eq!(answer.status, 400, "{case}: {}", answer.describe());
        answer.expect_code(1400);
    }
    for (case, target) in table {
        if let Ok(target) = std::str::from_utf8(target) {
            let answer = administrator.get(target).await;
            assert_eq!(answer.code(), 1400, "{case}, with a token that opens everything");
        }
    }
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn a_space_in_the_target_is_not_mended() {
    // RFC 9112, 3.2: such a line may be made to pass filters; to correct it and go on is what it is made for.
    let desk = house().await;
    for target in ["/public/a b", "/public/x y HTTP/1.1", "/public/x?a b"] {
        let answer = get(&desk, target.as_bytes()).await.expect("an answer");
        assert_eq!(answer.status, 400, "{target}: {}", answer.describe());
        answer.expect_code(1400);
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn upgrades_and_other_methods_are_read_as_strictly() {
    let desk = house().await;
    let anton = desk.sign_in("a2001").await;
    for target in ["/ws/../ws/agent", "/ws//agent", "/ws/%2e%2e/ws/agent", "/ws%2fagent", "/ws/agent%00"] {
        anton.handshake(target).open().await.err().expect("a refusal").expect_code(1400);
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            anton.send(method, target, &[], b"").await.expect_code(1400);
        }
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn row_76_no_spelling_opens_a_closed_path() {
    let desk = house().await;
    let alice = desk.sign_in("u1001").await;
    for target in [
        "/public/closed/x",
        "/public/%63losed/x",
        "/public/c%6c%6fsed/x",
        "/%70ublic/closed/x",
        "/public/./closed/x",
        "/public/%2e/closed/x",
        "/./public/closed/x",
        "/public/..;/public/closed/x",
        "/public/a/..;/closed/x",
        "/api/admin-desk/x",
        "/api/%61dmin-desk/x",
        "/api/admin-desk/%78",
        "/api/admin-desk/x;/public/x",
        "/api/admin-desk/x#/public/x",
        "/api/admin-desk/x?/public/x",
        "/api/admin-desk/x?a=/public/x",
        "/api/admin-desk/x?..%2f..%2fpublic/x",
    ] {
        for person in [&desk.anyone(), &alice] {
            desk.upstream.forget();
            let answer = person.get(target).await;
            if answer.status == 200 {
                // Only a path that nobody can take for the closed one may pass, and only as it was written.
                let seen = desk.upstream.only_request();
                assert_eq!(seen.target, target);
                let path = target.split(['?', '#']).next().unwrap_or_default();
                let looser = path.split('/').map(|part| part.split(';').next().unwrap_or_default());
                let looser: Vec<&str> = looser.filter(|part| !part.is_empty() && *part != ".").collect();
                assert!(
                    !looser.contains(&"..") && !looser.starts_with(&["public", "closed"]) && !path.contains('%'),
                    "{target} reached the upstream"
                );
                continue;
            }
            assert!(matches!(answer.status, 400 | 401 | 403 | 404), "{target}: {}", answer.describe());
            assert!(desk.upstream.requests().is_empty(), "{target}");
        }
    }
}

#[tokio::test]
async fn row_77_the_query_never_decides() {
    let desk = house().await;
    let alice = desk.sign_in("u1001").await;
    for query in
        ["x=/api/admin-desk/x", "/../api/admin-desk/x", "path=..%2f..%2fapi%2fadmin-desk", "a=b#c", "%zz", "%00"]
    {
        let target = format!("/public/x?{query}");
        desk.upstream.forget();
        let answer = desk.anyone().get(&target).await;
        match answer.status {
            // A fragment is no part of a request; without it the target is the same.
            200 => assert_eq!(desk.upstream.only_request().target, target.split('#').next().unwrap_or_default()),
            _ => {
                answer.expect_code(1400);
                assert!(desk.upstream.requests().is_empty(), "{target}");
            }
        }
    }
    desk.anyone().get("/public/x?x=/api/admin-desk/x").await.expect_status(200);
    desk.upstream.forget();
    for target in
        ["/api/admin-desk/x?x=/public/x", "/api/admin-desk/x?/public/x", "/api/admin-desk/x?path=/api/auth/qrcode"]
    {
        desk.anyone().get(target).await.expect_bare_challenge();
        alice.get(target).await.expect_code(1003);
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn an_escape_that_changes_nothing_matches_and_is_forwarded_alike() {
    let desk = house().await;
    for target in
        ["/public/caf%C3%A9", "/public/%E6%9E%97%E5%B0%8F%E9%9B%A8", "/public/a%20b", "/public/a%3Fb", "/public/a%23b"]
    {
        desk.upstream.forget();
        desk.anyone().get(target).await.expect_status(200);
        assert_eq!(desk.upstream.only_request().target, target);
    }
    // Twice encoded: once decoded it is a harmless name. It may be refused, but never be decoded on the way.
    for target in ["/public/%252e%252e/x", "/public/a%252fb", "/public/%25", "/public/a%2500"] {
        desk.upstream.forget();
        let answer = desk.anyone().get(target).await;
        match answer.status {
            200 => assert_eq!(desk.upstream.only_request().target, target),
            _ => {
                answer.expect_code(1400);
            }
        }
    }
}

#[tokio::test]
async fn a_path_is_matched_in_its_own_case_and_length() {
    let desk = house().await;
    let administrator = desk.sign_in("m5001").await;
    for target in
        ["/PUBLIC/x", "/Public/x", "/public", "/publicx", "/publi", "/api/desk", "/ws/employee/", "/ws/employee/x"]
    {
        administrator.get(target).await.expect_code(1404);
    }
    administrator.get("/public/Closed/x").await.expect_status(200);
}

#[tokio::test]
async fn row_78_an_absolute_target_counts_only_for_our_own_host() {
    let desk = house().await;
    let address = desk.address();
    for (case, target, host) in [
        ("our own", format!("http://{address}/public/x"), address.to_string()),
        ("another host", "http://evil.example/public/x".to_owned(), address.to_string()),
        ("another host on both", "http://evil.example/public/x".to_owned(), "evil.example".to_owned()),
        ("our own, another Host", format!("http://{address}/public/x"), "evil.example".to_owned()),
        ("another scheme", format!("ftp://{address}/public/x"), address.to_string()),
        ("user information", format!("http://a@{address}/public/x"), address.to_string()),
    ] {
        desk.upstream.forget();
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = desk.raw(bytes.as_bytes()).await.expect("an answer");
        match answer.status {
            200 => {
                let seen = desk.upstream.only_request();
                assert_eq!(seen.target, "/public/x", "{case}");
                let forwarded = seen.header("x-forwarded-host").unwrap_or_default().to_owned();
                assert!(case != "another host" || !forwarded.contains("evil"), "{case}: {forwarded}");
                assert!(case != "our own, another Host" || !forwarded.contains("evil"), "{case}: {forwarded}");
            }
            _ => {
                answer.expect_code(1400);
                assert!(desk.upstream.requests().is_empty(), "{case}");
            }
        }
        // The path inside an absolute target is judged like any other.
        let closed = target.replace("/public/", "/public/closed/");
        desk.upstream.forget();
        let bytes = format!("GET {closed} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = desk.raw(bytes.as_bytes()).await.expect("an answer");
        assert!(matches!(answer.status, 400 | 401), "{case}: {}", answer.describe());
        assert!(desk.upstream.requests().is_empty(), "{case}");
    }
}

#[tokio::test]
async fn row_78_a_host_that_is_none_is_refused() {
    let desk = house().await;
    let address = desk.address();
    for (case, host) in [
        ("user information", format!("a@{address}")),
        ("a path", format!("{address}/public")),
        ("a space", format!("{address} evil.example")),
        ("a list", format!("{address}, evil.example")),
        ("a port that is a word", "127.0.0.1:http".to_owned()),
        ("a port below nought", "127.0.0.1:-1".to_owned()),
        ("a port beyond the last", "127.0.0.1:99999".to_owned()),
        ("half a bracket", "[::1".to_owned()),
        ("markup", "<script>".to_owned()),
    ] {
        let bytes = format!("GET /public/x HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = desk.raw(bytes.as_bytes()).await.expect("an answer");
        assert_eq!(answer.status, 400, "{case}: {}", answer.describe());
        answer.expect_code(1400);
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn row_79_health_checkers_are_nobody_special() {
    let desk = house().await;
    for agent in ["GoogleHC/1.0", "kube-probe/1.30", "ELB-HealthChecker/2.0", "Envoy/HC", "Consul Health Check"] {
        desk.anyone().with_header("User-Agent", agent).get("/api/desk/x").await.expect_bare_challenge();
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn row_80_methods_that_no_upstream_should_see_are_refused() {
    let desk = house().await;
    let administrator = desk.sign_in("m5001").await;
    let address = desk.address();
    for line in [
        "TRACE /public/x".to_owned(),
        "TRACK /public/x".to_owned(),
        format!("CONNECT {address}"),
        "CONNECT /public/x".to_owned(),
        "get /public/x".to_owned(),
        "Get /public/x".to_owned(),
        "G\u{cb}T /public/x".to_owned(),
        "G(T /public/x".to_owned(),
        " GET /public/x".to_owned(),
        "GET  /public/x".to_owned(),
    ] {
        let bytes = format!("{line} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        if let Some(answer) = desk.raw(bytes.as_bytes()).await {
            assert!(matches!(answer.status, 400 | 404 | 405 | 501), "{line}: {}", answer.describe());
        }
    }
    administrator.send("TRACE", "/api/desk/x", &[], b"").await.expect_code(1405);
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn row_80_a_refused_method_is_told_those_that_the_path_has() {
    let desk = house().await;
    let every = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    for (path, code, allow) in [
        ("/api/auth/me", 1405, Some("GET, HEAD")),
        ("/api/auth/logout", 1405, Some("POST")),
        ("/api/auth/sessions", 1405, Some("GET, HEAD, DELETE")),
        ("/api/auth/sessions/x", 1405, Some("DELETE")),
        ("/api/auth/nothing", 1404, None),
        ("/api/read-only/x", 1405, Some("GET, HEAD")),
        ("/public/x", 1405, Some(every)),
        ("/nowhere", 1404, None),
    ] {
        for method in ["TRACE", "FOO", "get", "CONNECT"] {
            let answer = desk.anyone().send(method, path, &[], b"").await;
            assert_eq!(answer.code(), code, "{method} {path}: {}", answer.describe());
            assert_eq!(answer.header("allow"), allow, "{method} {path}");
        }
    }
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn row_80_no_header_changes_the_method_or_the_path() {
    let desk = house().await;
    let alice = desk.sign_in("u1001").await;
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"] {
        alice.send("POST", "/api/read-only/x", &[(name, "GET")], b"").await.expect_code(1405);
        assert!(desk.upstream.requests().is_empty());
        alice.send("GET", "/api/read-only/x", &[(name, "DELETE")], b"").await.expect_status(200);
        let seen = desk.upstream.only_request();
        assert_eq!((seen.method.as_str(), seen.header(name)), ("GET", None));
        desk.upstream.forget();
    }
    for name in ["X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Uri", "X-Forwarded-Prefix", "X-Original-URI"] {
        desk.anyone().send("GET", "/api/admin-desk/x", &[(name, "/public/x")], b"").await.expect_bare_challenge();
        desk.anyone().send("GET", "/nowhere", &[(name, "/public/x")], b"").await.expect_code(1404);
        assert!(desk.upstream.requests().is_empty(), "{name}");
        desk.anyone().send("GET", "/public/x", &[(name, "/api/admin-desk/x")], b"").await.expect_status(200);
        let seen = desk.upstream.only_request();
        assert!(!String::from_utf8_lossy(&seen.head).contains("admin-desk"), "{name} arrived");
        desk.upstream.forget();
    }
}

#[tokio::test]
async fn what_is_for_operators_is_not_for_the_public() {
    let desk = house().await;
    for target in ["/metrics", "/metrics/", "/api/metrics", "/debug/pprof", "/admin"] {
        desk.anyone().get(target).await.expect_code(1404);
    }
    let real = Gateway::setup().production().start().await;
    real.anyone().post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
    for target in ["/api/dev/users", "/api/dev/health"] {
        real.anyone().get(target).await.expect_code(1003);
    }
    // An encoded letter is the same endpoint or none, but no way around its rule.
    let answer = real.anyone().get("/api/dev/%75sers").await;
    assert!(matches!(answer.status, 400 | 403 | 404), "{}", answer.describe());
}

#[tokio::test]
async fn a_rule_cannot_be_put_over_our_own_endpoints() {
    let over = r#"
[[rule]]
name = "over everything"
path = "/api/{*rest}"
upstream = "helpdesk"
public = true
"#;
    match Gateway::setup().more_rules(over).try_start().await {
        // To refuse the rule is as good as never to use it there.
        Err(_) => {}
        Ok(desk) => {
            desk.anyone().get("/api/auth/me").await.expect_bare_challenge();
            desk.anyone().get("/api/ready").await.expect_code(0);
            assert!(desk.upstream.requests().is_empty());
        }
    }
}
