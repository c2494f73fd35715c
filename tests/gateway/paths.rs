//! Request paths: the matched path is the forwarded path (attacks 76 to 81 of `docs/threats.md`).

use crate::support::*;

/// A protected path inside a public one, to detect paths that are read in two ways.
const INNER_RULE: &str = r#"
[[rule]]
name = "protected path inside a public one"
path = "/public/closed/{*rest}"
upstream = "helpdesk"
roles = ["admin"]
"#;

async fn desk_with_inner_rule() -> Gateway {
    Gateway::setup().more_rules(INNER_RULE).start().await
}

/// GET of a target that need not be valid UTF-8.
async fn get(desk: &Gateway, target: &[u8]) -> Option<Response> {
    let mut bytes = b"GET ".to_vec();
    bytes.extend_from_slice(target);
    bytes.extend_from_slice(format!(" HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).as_bytes());
    desk.send_raw(&bytes).await
}

#[tokio::test]
async fn ambiguous_paths_are_refused() {
    let desk = desk_with_inner_rule().await;
    let administrator = desk.sign_in("m5001").await;
    let table: &[(&str, &[u8])] = &[
        ("dots", b"/public/../api/admin-desk/x"),
        ("dots at the end", b"/public/.."),
        ("dots that stay inside", b"/public/a/../b"),
        ("dots into a gateway endpoint", b"/public/../api/auth/me"),
        ("dots out of a gateway endpoint", b"/api/auth/../admin"),
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
        ("invalid hexadecimal", b"/public/%zz"),
        ("incomplete escape", b"/public/%4"),
        ("a lone percent sign", b"/public/%"),
        ("a percent sign in the middle", b"/public/100%/x"),
        ("IIS %u escape", b"/public/%u002e%u002e/x"),
        ("a tab", b"/public/a\tb"),
        ("a semicolon", b"/public/a;b"),
        ("an encoded semicolon", b"/public/a%3bb"),
        ("an encoded semicolon behind dots", b"/public/..%3B/api/admin-desk/x"),
        ("an encoded blank before a segment", b"/public/%20closed/x"),
        ("an encoded blank after a segment", b"/public/closed%20/x"),
        ("an encoded blank at the end", b"/public/x%20"),
        ("an encoded blank alone", b"/public/%20"),
        ("a no-break space after a segment", b"/public/closed%C2%A0/x"),
        ("an ideographic space before a segment", b"/public/%E3%80%80closed/x"),
    ];
    for (case, target) in table {
        let response = get(&desk, target).await.unwrap_or_else(|| panic!("{case}: closed without a response"));
        assert_eq!(response.status, 400, "{case}: {}", response.describe());
        response.expect_code(1400);
    }
    for (case, target) in table {
        if let Ok(target) = std::str::from_utf8(target) {
            let response = administrator.get(target).await;
            assert_eq!(response.code(), 1400, "{case}, with an administrator's token");
        }
    }
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn space_in_the_target_is_refused() {
    // RFC 9112, 3.2: correcting such a request line helps attackers to bypass filters.
    let desk = desk_with_inner_rule().await;
    for target in ["/public/a b", "/public/x y HTTP/1.1", "/public/x?a b"] {
        let response = get(&desk, target.as_bytes()).await.expect("a response");
        assert_eq!(response.status, 400, "{target}: {}", response.describe());
        response.expect_code(1400);
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn path_checks_apply_to_upgrades_and_all_methods() {
    let desk = desk_with_inner_rule().await;
    let alice = desk.sign_in("a2001").await;
    for target in ["/ws/../ws/agent", "/ws//agent", "/ws/%2e%2e/ws/agent", "/ws%2fagent", "/ws/agent%00"] {
        alice.handshake(target).open().await.err().expect("a refusal").expect_code(1400);
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            alice.send(method, target, &[], b"").await.expect_code(1400);
        }
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn no_path_spelling_bypasses_a_rule() {
    let desk = desk_with_inner_rule().await;
    let xiaoming = desk.sign_in("u1001").await;
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
        for person in [&desk.anonymous(), &xiaoming] {
            desk.upstream.clear_requests();
            let response = person.get(target).await;
            if response.status == 200 {
                // Only a path that no upstream can read as the protected one may pass, and only unchanged.
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
            assert!(matches!(response.status, 400 | 401 | 403 | 404), "{target}: {}", response.describe());
            assert!(desk.upstream.requests().is_empty(), "{target}");
        }
    }
}

#[tokio::test]
async fn query_and_fragment_do_not_affect_rule_matching() {
    let desk = desk_with_inner_rule().await;
    let xiaoming = desk.sign_in("u1001").await;
    for query in
        ["x=/api/admin-desk/x", "/../api/admin-desk/x", "path=..%2f..%2fapi%2fadmin-desk", "a=b#c", "%zz", "%00"]
    {
        let target = format!("/public/x?{query}");
        desk.upstream.clear_requests();
        let response = desk.anonymous().get(&target).await;
        match response.status {
            // A fragment is not part of a request target; the rest is forwarded unchanged.
            200 => assert_eq!(desk.upstream.only_request().target, target.split('#').next().unwrap_or_default()),
            _ => {
                response.expect_code(1400);
                assert!(desk.upstream.requests().is_empty(), "{target}");
            }
        }
    }
    desk.anonymous().get("/public/x?x=/api/admin-desk/x").await.expect_status(200);
    desk.upstream.clear_requests();
    for target in
        ["/api/admin-desk/x?x=/public/x", "/api/admin-desk/x?/public/x", "/api/admin-desk/x?path=/api/auth/qrcode"]
    {
        desk.anonymous().get(target).await.expect_bare_challenge();
        xiaoming.get(target).await.expect_code(1003);
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn equivalent_percent_encodings_match_the_same_rule() {
    let desk = desk_with_inner_rule().await;
    for target in
        ["/public/caf%C3%A9", "/public/%E6%9E%97%E5%B0%8F%E9%9B%A8", "/public/a%20b", "/public/a%3Fb", "/public/a%23b"]
    {
        desk.upstream.clear_requests();
        desk.anonymous().get(target).await.expect_status(200);
        assert_eq!(desk.upstream.only_request().target, target);
    }
    // Encoded twice: may be refused, but must not be decoded before forwarding.
    for target in ["/public/%252e%252e/x", "/public/a%252fb", "/public/%25", "/public/a%2500"] {
        desk.upstream.clear_requests();
        let response = desk.anonymous().get(target).await;
        match response.status {
            200 => assert_eq!(desk.upstream.only_request().target, target),
            _ => {
                response.expect_code(1400);
            }
        }
    }
}

/// A guarded literal inside an open tail.
const LITERAL_RULES: &str = r#"
[[rule]]
name = "purge"
path = "/v1/jobs:purge"
upstream = "helpdesk"
roles = ["admin"]

[[rule]]
name = "socket of the queue"
path = "/v1/queue@main"
upstream = "helpdesk"
roles = ["admin"]

[[rule]]
name = "the rest of version 1"
path = "/v1/{*rest}"
upstream = "helpdesk"
public = true
"#;

#[tokio::test]
async fn escapes_of_bare_characters_are_decoded_before_matching_and_forwarding() {
    let desk = Gateway::setup().more_rules(LITERAL_RULES).start().await;
    let administrator = desk.sign_in("m5001").await;
    for target in [
        "/v1/jobs:purge",
        "/v1/jobs%3Apurge",
        "/v1/jobs%3apurge",
        "/v1/%6Aobs%3A%70urge",
        "/%761/jobs%3Apurge",
        "/v1/queue%40main",
    ] {
        desk.upstream.clear_requests();
        for method in ["GET", "POST"] {
            desk.anonymous().send(method, target, &[], b"").await.expect_bare_challenge();
        }
        let refused = desk.anonymous().handshake(target).open().await.err();
        refused.unwrap_or_else(|| panic!("{target}: a socket")).expect_code(1001);
        assert!(desk.upstream.requests().is_empty(), "{target}");

        let decoded = if target.contains("queue") { "/v1/queue@main" } else { "/v1/jobs:purge" };
        for method in ["GET", "POST"] {
            administrator.send(method, target, &[], b"").await.expect_status(200);
            assert_eq!(desk.upstream.last_request().target, decoded, "{method} {target}");
        }
        let _socket = administrator.websocket(target).await;
        assert_eq!(desk.upstream.last_request().target, decoded, "the handshake of {target}");
    }
    for (target, forwarded) in [
        ("/v1/a%21%24%26%27%28%29%2A%2B%2C%3D%3A%40%2D%2E%5F%7Eb", "/v1/a!$&'()*+,=:@-._~b"),
        ("/v1/file%2Etxt?q=%3A", "/v1/file.txt?q=%3A"),
        ("/v1/a%20b%3Fc%23d%5Be%5D", "/v1/a%20b%3Fc%23d%5Be%5D"),
        ("/v1/caf%c3%a9", "/v1/caf%C3%A9"),
    ] {
        for method in ["GET", "POST"] {
            desk.anonymous().send(method, target, &[], b"").await.expect_status(200);
            assert_eq!(desk.upstream.last_request().target, forwarded, "{method} {target}");
        }
    }
}

#[tokio::test]
async fn path_match_is_case_sensitive_and_complete() {
    let desk = desk_with_inner_rule().await;
    let administrator = desk.sign_in("m5001").await;
    for target in
        ["/PUBLIC/x", "/Public/x", "/public", "/publicx", "/publi", "/api/desk", "/ws/employee/", "/ws/employee/x"]
    {
        administrator.get(target).await.expect_code(1404);
    }
    administrator.get("/public/Closed/x").await.expect_status(200);
}

#[tokio::test]
async fn rules_of_an_upstream_that_ignores_case_match_every_spelling() {
    let settings = "[upstreams.helpdesk]\npath_case = \"insensitive\"";
    let desk = Gateway::setup().more_rules(INNER_RULE).toml(settings).start().await;
    let administrator = desk.sign_in("m5001").await;
    for target in
        ["/public/closed/x", "/public/CLOSED/x", "/PUBLIC/Closed/X", "/Public/%43losed/x", "/public/c%4COSED/x"]
    {
        desk.upstream.clear_requests();
        for method in ["GET", "POST"] {
            desk.anonymous().send(method, target, &[], b"").await.expect_bare_challenge();
        }
        assert!(desk.upstream.requests().is_empty(), "{target}");
        administrator.get(target).await.expect_status(200);
        let forwarded = target.replace("%43", "C").replace("%4C", "L");
        assert_eq!(desk.upstream.only_request().target, forwarded, "forwarded as it was sent");
        let explained = desk.command(&["explain", "GET", target]).await;
        let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
        assert!(
            explained.contains("rule `protected path inside a public one`") && explained.contains("1001"),
            "{explained}"
        );
    }
    desk.anonymous().get("/PUBLIC/other").await.expect_status(200);
    desk.anonymous().handshake("/WS/Employee").open().await.err().expect("a refusal").expect_code(1001);
    administrator.websocket("/WS/Employee").await.echo("hello").await;
}

#[tokio::test]
async fn conditions_ignore_the_case_of_paths_if_the_upstream_does() {
    let rule = "[[rule]]\nname = \"all but secrets\"\npath = \"/files/{*rest}\"\nupstream = \"helpdesk\"\npublic = true\n\
        when = '!request.path.startsWith(\"/files/Secret\")'\n";
    let settings = "[upstreams.helpdesk]\npath_case = \"insensitive\"";
    let desk = Gateway::setup().more_rules(rule).toml(settings).start().await;
    for target in ["/files/secret/x", "/files/SECRET/x", "/FILES/Secret/X", "/files/s%45cret", "/files/%C5%BFecret"] {
        desk.upstream.clear_requests();
        desk.anonymous().get(target).await.expect_code(1003);
        desk.anonymous().handshake(target).open().await.err().expect("a refusal").expect_code(1003);
        assert!(desk.upstream.requests().is_empty(), "{target}");
        let explained = desk.command(&["explain", "GET", target]).await;
        let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
        assert!(explained.contains("1003") && explained.contains("(paths ignoring case)"), "{explained}");
    }
    desk.upstream.clear_requests();
    desk.anonymous().get("/Files/Open").await.expect_status(200);
    assert_eq!(desk.upstream.only_request().target, "/Files/Open", "forwarded as it was sent");
}

#[tokio::test]
async fn rules_that_differ_only_in_case_are_refused_if_the_upstream_ignores_it() {
    let rule = INNER_RULE.replace("/public/closed/", "/public/CLOSED/").replace("inside a", "inside the same");
    let settings = "[upstreams.helpdesk]\npath_case = \"insensitive\"";
    let rules = format!("{INNER_RULE}{rule}");
    let refused = Gateway::setup().more_rules(&rules).toml(settings).try_start().await.err().expect("a refusal");
    assert!(
        refused.stderr.contains("already belongs to rule `protected path inside a public one`"),
        "{}",
        refused.stderr
    );
    Gateway::setup().more_rules(&rules).start().await;
}

#[tokio::test]
async fn absolute_target_must_name_the_gateways_host() {
    let desk = desk_with_inner_rule().await;
    let address = desk.address();
    for (case, target, host) in [
        ("the gateway's host", format!("http://{address}/public/x"), address.to_string()),
        ("another host", "http://evil.example/public/x".to_owned(), address.to_string()),
        ("another host in target and Host", "http://evil.example/public/x".to_owned(), "evil.example".to_owned()),
        ("the gateway's host, another Host header", format!("http://{address}/public/x"), "evil.example".to_owned()),
        ("another scheme", format!("ftp://{address}/public/x"), address.to_string()),
        ("user information", format!("http://a@{address}/public/x"), address.to_string()),
    ] {
        desk.upstream.clear_requests();
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let response = desk.send_raw(bytes.as_bytes()).await.expect("a response");
        match response.status {
            200 => {
                let seen = desk.upstream.only_request();
                assert_eq!(seen.target, "/public/x", "{case}");
                let forwarded = seen.header("x-forwarded-host").unwrap_or_default().to_owned();
                assert!(case != "another host" || !forwarded.contains("evil"), "{case}: {forwarded}");
                assert!(
                    case != "the gateway's host, another Host header" || !forwarded.contains("evil"),
                    "{case}: {forwarded}"
                );
            }
            _ => {
                let is_foreign = case == "another host in target and Host";
                response.expect_code(if is_foreign { 1421 } else { 1400 });
                assert!(desk.upstream.requests().is_empty(), "{case}");
            }
        }
        // The path of an absolute target follows the same rules.
        let closed = target.replace("/public/", "/public/closed/");
        desk.upstream.clear_requests();
        let bytes = format!("GET {closed} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let response = desk.send_raw(bytes.as_bytes()).await.expect("a response");
        assert!(matches!(response.status, 400 | 401 | 421), "{case}: {}", response.describe());
        assert!(desk.upstream.requests().is_empty(), "{case}");
    }
}

#[tokio::test]
async fn invalid_host_headers_are_refused() {
    let desk = desk_with_inner_rule().await;
    let address = desk.address();
    for (case, host) in [
        ("user information", format!("a@{address}")),
        ("a path", format!("{address}/public")),
        ("a space", format!("{address} evil.example")),
        ("a list", format!("{address}, evil.example")),
        ("a port that is not a number", "127.0.0.1:http".to_owned()),
        ("a negative port", "127.0.0.1:-1".to_owned()),
        ("a port above 65535", "127.0.0.1:99999".to_owned()),
        ("half a bracket", "[::1".to_owned()),
        ("markup", "<script>".to_owned()),
    ] {
        let bytes = format!("GET /public/x HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let response = desk.send_raw(bytes.as_bytes()).await.expect("a response");
        assert_eq!(response.status, 400, "{case}: {}", response.describe());
        response.expect_code(1400);
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn health_checker_user_agents_get_no_bypass() {
    let desk = desk_with_inner_rule().await;
    for agent in ["GoogleHC/1.0", "kube-probe/1.30", "ELB-HealthChecker/2.0", "Envoy/HC", "Consul Health Check"] {
        desk.anonymous().with_header("User-Agent", agent).get("/api/desk/x").await.expect_bare_challenge();
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn trace_connect_and_unknown_methods_are_refused() {
    let desk = desk_with_inner_rule().await;
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
        if let Some(response) = desk.send_raw(bytes.as_bytes()).await {
            assert!(matches!(response.status, 400 | 404 | 405 | 501), "{line}: {}", response.describe());
        }
    }
    administrator.send("TRACE", "/api/desk/x", &[], b"").await.expect_code(1405);
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn method_not_allowed_lists_the_allowed_methods() {
    let desk = desk_with_inner_rule().await;
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
            let response = desk.anonymous().send(method, path, &[], b"").await;
            assert_eq!(response.code(), code, "{method} {path}: {}", response.describe());
            assert_eq!(response.header("allow"), allow, "{method} {path}");
        }
    }
    assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
}

#[tokio::test]
async fn override_headers_change_neither_method_nor_path() {
    let desk = desk_with_inner_rule().await;
    let xiaoming = desk.sign_in("u1001").await;
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"] {
        xiaoming.send("POST", "/api/read-only/x", &[(name, "GET")], b"").await.expect_code(1405);
        assert!(desk.upstream.requests().is_empty());
        xiaoming.send("GET", "/api/read-only/x", &[(name, "DELETE")], b"").await.expect_status(200);
        let seen = desk.upstream.only_request();
        assert_eq!((seen.method.as_str(), seen.header(name)), ("GET", None));
        desk.upstream.clear_requests();
    }
    for name in ["X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Uri", "X-Forwarded-Prefix", "X-Original-URI"] {
        desk.anonymous().send("GET", "/api/admin-desk/x", &[(name, "/public/x")], b"").await.expect_bare_challenge();
        desk.anonymous().send("GET", "/nowhere", &[(name, "/public/x")], b"").await.expect_code(1404);
        assert!(desk.upstream.requests().is_empty(), "{name}");
        desk.anonymous().send("GET", "/public/x", &[(name, "/api/admin-desk/x")], b"").await.expect_status(200);
        let seen = desk.upstream.only_request();
        assert!(!String::from_utf8_lossy(&seen.head).contains("admin-desk"), "{name} arrived");
        desk.upstream.clear_requests();
    }
}

#[tokio::test]
async fn operator_endpoints_are_not_public() {
    let desk = desk_with_inner_rule().await;
    for target in ["/metrics", "/metrics/", "/api/metrics", "/debug/pprof", "/admin"] {
        desk.anonymous().get(target).await.expect_code(1404);
    }
    let real = Gateway::setup().production().start().await;
    real.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
    for target in ["/api/dev/users", "/api/dev/health"] {
        real.anonymous().get(target).await.expect_code(1003);
    }
    // An encoded letter must not bypass the rule of the endpoint.
    let response = real.anonymous().get("/api/dev/%75sers").await;
    assert!(matches!(response.status, 400 | 403 | 404), "{}", response.describe());
}

#[tokio::test]
async fn rules_cannot_shadow_gateway_endpoints() {
    let over = r#"
[[rule]]
name = "over everything"
path = "/api/{*rest}"
upstream = "helpdesk"
public = true
"#;
    match Gateway::setup().more_rules(over).try_start().await {
        // Refusing to start with such a rule is also correct.
        Err(_) => {}
        Ok(desk) => {
            desk.anonymous().get("/api/auth/me").await.expect_bare_challenge();
            desk.anonymous().get("/api/ready").await.expect_code(0);
            assert!(desk.upstream.requests().is_empty());
        }
    }
}
