//! Cross-origin requests (CORS): pages of the clients' origins and of `cors.origins` may call the gateway and read its
//! responses; pages of other origins may not.

use crate::support::*;

const DESK: &str = "https://desk.example";
const PORTAL: &str = "http://localhost:5173";
const FOREIGN: &str = "https://evil.example";

const SETTINGS: &str = r#"
    [clients]
    h5 = "https://desk.example/h5/"
    [cors]
    origins = ["http://localhost:5173"]
    expose = ["X-Total-Count"]
"#;

const RULES: &str = r#"
[[rule]]
name = "one request a minute"
path = "/c/rate"
upstream = "helpdesk"
public = true
rate = [{ by = "address", limit = 1, per = "1m" }]

[[rule]]
name = "items"
path = "/c/items/{id}"
methods = ["GET"]
upstream = "helpdesk"
signed_in = true

[[rule]]
name = "changes of items"
path = "/c/items/{id}"
methods = ["PUT", "DELETE"]
upstream = "helpdesk"
roles = ["agent"]

[[rule]]
name = "CORS by the upstream"
path = "/c/upstream/{*rest}"
methods = ["GET", "PUT"]
upstream = "helpdesk"
signed_in = true
forward_token = true
cors = "upstream"

[[rule]]
name = "CORS by the upstream, from one network"
path = "/c/upstream-network"
upstream = "helpdesk"
signed_in = true
networks = ["10.0.0.0/8"]
cors = "upstream"
"#;

fn setup() -> Setup {
    Gateway::setup().toml(SETTINGS).more_rules(RULES)
}

/// The headers of a preflight.
fn preflight<'a>(origin: &'a str, method: &'a str, headers: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut lines = vec![("Origin", origin), ("Access-Control-Request-Method", method)];
    if !headers.is_empty() {
        lines.push(("Access-Control-Request-Headers", headers));
    }
    lines
}

/// Fails unless the response may be read by pages of `origin` alone.
#[track_caller]
fn expect_readable(response: &Response, origin: &str) {
    let about = response.describe();
    assert_eq!(response.header_all("access-control-allow-origin"), [origin], "{about}");
    assert_eq!(response.header("access-control-allow-credentials"), None, "{about}");
    assert!(varies_by_origin(response), "{about}");
}

/// Fails if the response has a CORS header.
#[track_caller]
fn expect_unreadable(response: &Response) {
    let found: Vec<_> = response.headers.iter().filter(|(name, _)| is_cors(name)).collect();
    assert!(found.is_empty(), "{found:?} in {}", response.describe());
}

fn is_cors(name: &str) -> bool {
    name.to_ascii_lowercase().starts_with("access-control-")
}

fn varies_by_origin(response: &Response) -> bool {
    let lists = response.header_all("vary").join(",");
    lists.split(',').any(|name| name.trim().eq_ignore_ascii_case("origin"))
}

// ---- Preflights.

#[tokio::test]
async fn preflight_allows_exactly_the_methods_of_its_path() {
    let desk = setup().tls().toml(SETTINGS).start().await;
    let client = desk.anonymous();
    let http2 = client.http2().await;
    let all = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    let table = [
        ("/api/auth/me", "GET", "GET, HEAD"),
        ("/api/auth/logout", "POST", "POST"),
        ("/api/auth/sessions", "DELETE", "GET, HEAD, DELETE"),
        ("/api/auth/sessions/x", "DELETE", "DELETE"),
        ("/api/admin/roles/user-roles", "PUT", "GET, HEAD, PUT, DELETE"),
        ("/version", "GET", "GET, HEAD"),
        ("/api/read-only/x", "GET", "GET, HEAD"),
        ("/api/desk/x?y=z", "POST", all),
        ("/c/items/7", "PUT", "GET, HEAD, PUT, DELETE"),
        // The browser compares the methods and refuses.
        ("/api/auth/me", "DELETE", "GET, HEAD"),
        ("/c/items/7", "PATCH", "GET, HEAD, PUT, DELETE"),
    ];
    for (path, method, allowed) in table {
        for origin in [DESK, PORTAL] {
            let lines = preflight(origin, method, "authorization,content-type");
            for response in
                [client.send("OPTIONS", path, &lines, b"").await, http2.send("OPTIONS", path, &lines, b"").await]
            {
                let about = response.describe();
                assert_eq!(response.status, 204, "{about}");
                expect_readable(&response, origin);
                assert_eq!(response.header("access-control-allow-methods"), Some(allowed), "{about}");
                assert_eq!(response.header("access-control-allow-headers"), Some("authorization, content-type"));
                assert_eq!(response.header("access-control-max-age"), Some("600"), "{about}");
                assert_eq!(
                    response.header("vary"),
                    Some("Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
                    "{about}"
                );
                assert_eq!((response.header("content-length"), response.body.len()), (None, 0), "{about}");
                assert!(response.header("x-request-id").is_some(), "{about}");
            }
        }
    }
    assert!(desk.upstream.requests().is_empty(), "the gateway answers");
}

#[tokio::test]
async fn preflight_allows_only_headers_that_are_let_through() {
    let desk = setup().toml("[cors]\nmax_age = \"1h\"").start().await;
    let table = [
        ("", None),
        ("authorization", Some("authorization")),
        ("authorization, content-type,x-csrf-token", Some("authorization, content-type, x-csrf-token")),
        ("x-deskgate-roles,authorization,x-forwarded-for", Some("authorization")),
        ("x_deskgate_roles,x-request-id,x-http-method-override,forwarded,x-real-ip", None),
        ("a b,c", Some("c")),
        // A header name by its syntax, and a wildcard in the response.
        ("*", None),
        ("authorization, *", Some("authorization")),
    ];
    for (requested, allowed) in table {
        for path in ["/api/auth/me", "/api/desk/x"] {
            let response = desk.anonymous().send("OPTIONS", path, &preflight(DESK, "GET", requested), b"").await;
            assert_eq!(response.status, 204, "{}", response.describe());
            assert_eq!(response.header("access-control-allow-headers"), allowed, "{requested} at {path}");
            assert_eq!(response.header("access-control-max-age"), Some("3600"));
        }
    }
}

#[tokio::test]
async fn preflight_of_a_foreign_origin_is_1003() {
    let desk = setup().start().await;
    let own = desk.public_url();
    for origin in [
        FOREIGN,
        "null",
        "*",
        "",
        "http://desk.example",
        "https://desk.example:8443",
        "https://sub.desk.example",
        "https://desk.example.evil.example",
        "https://desk.example/",
        "HTTPS://desk.example",
        // The gateway's own pages need no preflight.
        own.as_str(),
    ] {
        for path in ["/api/auth/me", "/api/desk/x", "/public/x", "/nowhere", "/api/dev/login"] {
            let response =
                desk.anonymous().send("OPTIONS", path, &preflight(origin, "GET", "authorization"), b"").await;
            expect_unreadable(&response);
            assert_eq!(response.code(), 1003, "`{origin}` at {path}: {}", response.describe());
        }
    }
    let two = [("Origin", DESK), ("Origin", FOREIGN), ("Access-Control-Request-Method", "GET")];
    desk.anonymous().send("OPTIONS", "/api/auth/me", &two, b"").await.expect_code(1400);
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn preflight_of_a_path_that_nothing_answers_is_refused() {
    let desk = setup().start().await;
    for path in ["/nowhere", "/api/auth/nowhere", "/metrics"] {
        let response = desk.anonymous().send("OPTIONS", path, &preflight(DESK, "GET", ""), b"").await.expect_code(1404);
        expect_readable(&response, DESK);
    }
    let desk = setup().production().start().await;
    let response = desk.anonymous().send("OPTIONS", "/api/dev/login", &preflight(DESK, "POST", ""), b"").await;
    expect_readable(&response.expect_code(1003), DESK);
}

/// Browsers send preflights without credentials and without a body. Anything else must not pass as one.
#[tokio::test]
async fn options_that_is_no_preflight_is_an_ordinary_request() {
    let desk = setup().start().await;
    let (client, xiaoming) = (desk.anonymous(), desk.sign_in("u1001").await);
    for headers in [vec![], vec![("Origin", DESK)], vec![("Access-Control-Request-Method", "GET")]] {
        let own = client.send("OPTIONS", "/api/auth/me", &headers, b"").await.expect_code(1405);
        assert_eq!(own.header("allow"), Some("GET, HEAD"));
        client.send("OPTIONS", "/api/desk/x", &headers, b"").await.expect_bare_challenge();
        client.send("OPTIONS", "/api/read-only/x", &headers, b"").await.expect_code(1405);
    }
    let lines = preflight(DESK, "GET", "authorization");
    client.send("OPTIONS", "/api/desk/x", &lines, b"a body").await.expect_bare_challenge();
    let with_cookie = [&lines[..], &[("Cookie", "a=b")]].concat();
    client.send("OPTIONS", "/api/desk/x", &with_cookie, b"").await.expect_bare_challenge();
    desk.with_token("not.a.token").send("OPTIONS", "/c/upstream/x", &lines, b"").await.expect_code(1405);
    desk.with_token("not.a.token").send("OPTIONS", "/api/desk/x", &lines, b"").await.expect_invalid_token();
    assert!(desk.upstream.requests().is_empty());
    xiaoming.send("OPTIONS", "/api/desk/x", &lines, b"").await.expect_status(200);
    assert_eq!(desk.upstream.only_request().header("x-deskgate-employee-id"), Some("u1001"));
}

/// HTTP/2 needs no header to announce a body: the stream goes on after the head.
#[tokio::test]
async fn http2_options_with_a_body_is_an_ordinary_request() {
    let desk = setup().tls().toml(SETTINGS).start().await;
    let http2 = desk.anonymous().http2().await;
    let lines = preflight(DESK, "GET", "authorization");
    let with_length = [&lines[..], &[("content-length", "6")]].concat();
    for headers in [&lines, &with_length] {
        http2.send("OPTIONS", "/c/upstream/x", headers, b"a body").await.expect_code(1405);
        http2.send("OPTIONS", "/c/items/7", headers, b"a body").await.expect_code(1405);
        http2.send("OPTIONS", "/api/auth/me", headers, b"a body").await.expect_code(1405);
        http2.send("OPTIONS", "/api/desk/x", headers, b"a body").await.expect_bare_challenge();
    }
    let trailers = http::HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]);
    let with_trailers = http2.try_send("OPTIONS", "/c/upstream/x", &lines, b"", Some(trailers)).await;
    with_trailers.expect("a response").expect_code(1405);
    assert!(desk.upstream.requests().is_empty());
    let no_length = [&lines[..], &[("content-length", "0")]].concat();
    for headers in [&lines, &no_length] {
        http2.send("OPTIONS", "/c/upstream/x", headers, b"").await.expect_status(200);
    }
    // A body in spite of the header is an error of the stream.
    let _ = http2.try_send("OPTIONS", "/c/upstream/x", &no_length, b"a body", None).await;
    assert!(desk.upstream.requests().iter().all(|request| request.body.is_empty()));
}

// ---- Responses.

#[tokio::test]
async fn responses_to_allowed_origins_can_be_read_refusals_included() {
    let desk = setup().tls().toml(SETTINGS).start().await;
    let (client, xiaoming) = (desk.anonymous(), desk.sign_in("u1001").await);
    let (client2, xiaoming2) = (client.http2().await, xiaoming.http2().await);
    client.get("/c/rate").await.expect_status(200);
    let table = [
        ("GET", "/api/auth/me", true, 200),
        ("GET", "/api/desk/x", true, 200),
        ("HEAD", "/api/desk/x", true, 200),
        ("POST", "/api/desk/x", true, 200),
        ("GET", "/.well-known/jwks.json", false, 200),
        ("GET", "/api/auth/me", false, 401),
        ("GET", "/api/desk/x", false, 401),
        ("POST", "/api/desk/x", false, 401),
        ("GET", "/api/agent-desk/x", true, 403),
        ("GET", "/nowhere", true, 404),
        ("POST", "/api/auth/me", true, 405),
        ("GET", "/api/desk/../x", true, 400),
        ("GET", "/c/rate", false, 429),
    ];
    for (method, path, signed_in, status) in table {
        for origin in [DESK, PORTAL, FOREIGN, ""] {
            let headers = if origin.is_empty() { vec![] } else { vec![("Origin", origin)] };
            let (http1, http2) = if signed_in { (&xiaoming, &xiaoming2) } else { (&client, &client2) };
            for response in
                [http1.send(method, path, &headers, b"").await, http2.send(method, path, &headers, b"").await]
            {
                let about = response.describe();
                assert_eq!(response.status, status, "{about}");
                if [DESK, PORTAL].contains(&origin) {
                    expect_readable(&response, origin);
                    let exposed = response.header("access-control-expose-headers");
                    let expected =
                        "X-Request-Id, Retry-After, RateLimit, RateLimit-Policy, WWW-Authenticate, X-Total-Count";
                    assert_eq!(exposed, Some(expected), "{about}");
                } else {
                    expect_unreadable(&response);
                    assert!(varies_by_origin(&response), "{about}");
                }
            }
        }
    }
}

#[tokio::test]
async fn failures_of_the_upstream_can_be_read() {
    let desk = setup().start().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.upstream.set_behaviour(Behaviour::CloseWithoutResponse);
    for method in ["GET", "POST"] {
        let response = xiaoming.send(method, "/api/desk/x", &[("Origin", DESK)], b"").await.expect_code(1502);
        expect_readable(&response, DESK);
    }
}

#[tokio::test]
async fn cors_headers_of_upstreams_are_replaced() {
    let desk = setup().start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let headers = "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n\
                   access-control-expose-headers: X-Secret\r\nVary: Accept-Encoding\r\n";
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response(headers, b"{}")));
    for method in ["GET", "POST"] {
        for path in ["/api/desk/x", "/public/x"] {
            let response = xiaoming.send(method, path, &[("Origin", DESK)], b"").await.expect_status(200);
            expect_readable(&response, DESK);
            assert_eq!(response.header_all("vary"), ["Accept-Encoding", "Origin"], "{}", response.describe());
            assert!(!response.header_all("access-control-expose-headers").join(",").contains("X-Secret"));
            for headers in [vec![("Origin", FOREIGN)], vec![]] {
                expect_unreadable(&xiaoming.send(method, path, &headers, b"").await.expect_status(200));
            }
        }
    }
}

#[tokio::test]
async fn without_other_origins_nothing_is_allowed_and_nothing_added() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let own = desk.public_url();
    let wildcard = ok_response("Access-Control-Allow-Origin: *\r\n", b"{}");
    desk.upstream.set_behaviour(Behaviour::Respond(wildcard));
    for origin in [own.as_str(), FOREIGN] {
        for path in ["/api/auth/me", "/api/desk/x"] {
            let response = xiaoming.send("GET", path, &[("Origin", origin)], b"").await.expect_status(200);
            expect_unreadable(&response);
            assert_eq!(response.header("vary"), None, "{}", response.describe());
            let refused = desk.anonymous().send("OPTIONS", path, &preflight(origin, "GET", ""), b"").await;
            expect_unreadable(&refused.expect_code(1003));
        }
    }
}

// ---- `cors = "upstream"`.

#[tokio::test]
async fn rule_can_leave_cors_to_the_upstream() {
    let desk = setup().start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let headers = "Access-Control-Allow-Origin: https://evil.example\r\nVary: Accept\r\n";
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response(headers, b"{}")));
    for origin in [DESK, FOREIGN] {
        for method in ["GET", "PUT"] {
            let response = xiaoming.send(method, "/c/upstream/x", &[("Origin", origin)], b"").await.expect_status(200);
            assert_eq!(response.header_all("access-control-allow-origin"), [FOREIGN]);
            assert_eq!(response.header_all("vary"), ["Accept"]);
        }
        let refused = desk.anonymous().send("GET", "/c/upstream/x", &[("Origin", origin)], b"").await.expect_code(1001);
        let readable = refused.header("access-control-allow-origin");
        assert_eq!(readable, (origin == DESK).then_some(DESK), "the gateway's refusals follow its own settings");
    }
}

#[tokio::test]
async fn preflight_for_the_upstream_is_forwarded_without_identity() {
    let desk = setup().start().await;
    let headers = "Access-Control-Allow-Origin: https://evil.example\r\nAccess-Control-Allow-Methods: PUT\r\n";
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response(headers, b"")));
    let forged = [("X-Deskgate-Employee-Id", "m5001"), ("x_deskgate_roles", "admin")];
    let lines = [&preflight(FOREIGN, "PUT", "authorization")[..], &forged].concat();
    let response = desk.anonymous().send("OPTIONS", "/c/upstream/x", &lines, b"").await.expect_status(200);
    assert_eq!(response.header("access-control-allow-methods"), Some("PUT"));
    let seen = desk.upstream.only_request();
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("OPTIONS", "/c/upstream/x"));
    assert_eq!((seen.header("origin"), seen.header("access-control-request-method")), (Some(FOREIGN), Some("PUT")));
    assert!(
        seen.headers.iter().all(|(name, _)| !name.replace('_', "-").starts_with("x-deskgate")),
        "{:?}",
        seen.headers
    );
    assert_eq!(seen.header("authorization"), None);

    desk.upstream.clear_requests();
    let client = desk.anonymous();
    let other_method = client.send("OPTIONS", "/c/upstream/x", &preflight(FOREIGN, "POST", ""), b"").await;
    expect_unreadable(&other_method.expect_code(1405));
    let outside = client.send("OPTIONS", "/c/upstream-network", &preflight(DESK, "GET", ""), b"").await;
    expect_readable(&outside.expect_code(1003), DESK);
    assert!(desk.upstream.requests().is_empty());
    let inside = [&preflight(DESK, "GET", "")[..], &[("X-Forwarded-For", "10.1.2.3")]].concat();
    client.send("OPTIONS", "/c/upstream-network", &inside, b"").await.expect_status(200);
}

// ---- Other promises.

/// A token in a handshake can come from a page's storage, so pages of `cors.origins` do not get WebSockets with it.
#[tokio::test]
async fn websocket_origins_are_separate() {
    let desk = setup().start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.handshake("/ws/employee").header("Origin", PORTAL).expect_refused().await.expect_code(1003);
    let socket = xiaoming.handshake("/ws/employee").header("Origin", DESK).open().await;
    socket.unwrap_or_else(|refused| panic!("{}", refused.describe())).echo("hello").await;
}

#[tokio::test]
async fn explain_tells_preflights_from_other_options() {
    let files = setup().write_files().await;
    let own = ["OPTIONS", "/api/auth/me"];
    let ruled = ["OPTIONS", "/c/items/7"];
    let by_upstream = ["OPTIONS", "/c/upstream/x"];
    let page = |origin| ["--origin", origin, "--preflight", "PUT"];
    for (args, expected) in [
        (own.to_vec(), vec!["405 with code 1405", "note: a browser's preflight"]),
        ([&own[..], &page(DESK)].concat(), vec!["204 by the gateway itself", "allows GET, HEAD\n"]),
        ([&ruled[..], &page(PORTAL)].concat(), vec!["204 by the gateway itself", "allows GET, HEAD, PUT, DELETE\n"]),
        ([&ruled[..], &page(FOREIGN)].concat(), vec!["403 with code 1003", "the origin is not one of"]),
        ([&by_upstream[..], &page(FOREIGN)].concat(), vec!["rule `CORS by the upstream`", "forwarded to `helpdesk`"]),
    ] {
        expect_explained(&files, &args, &expected).await;
    }
}

/// Expects parts of an explanation; returns all of it.
async fn expect_explained(files: &GatewayFiles, args: &[&str], expected: &[&str]) -> String {
    let output = files.command(&[&["explain"], args].concat()).await.expect_success();
    for part in expected {
        assert!(output.contains(part), "{args:?}: `{part}` is not in\n{output}");
    }
    output
}

#[tokio::test]
async fn explain_says_what_the_browser_makes_of_the_answer() {
    let files = setup().write_files().await;
    let unreadable = format!("note: a page of {FOREIGN} cannot read the response");
    let handshake = format!("note: a WebSocket handshake from a page of {FOREIGN} is refused with 1003");
    let get = ["GET", "/c/items/7", "--role", "user", "--origin"];
    expect_explained(&files, &[&get[..], &[FOREIGN]].concat(), &["forwarded to", &unreadable, &handshake]).await;
    let allowed = expect_explained(&files, &[&get[..], &[DESK]].concat(), &["forwarded to"]).await;
    assert!(!allowed.contains("note:"), "{allowed}");
    let own = ["GET", "/api/auth/me", "--role", "user", "--origin", FOREIGN];
    let own = expect_explained(&files, &own, &[&unreadable]).await;
    assert!(!own.contains("WebSocket"), "{own}");
    let put = ["PUT", "/c/items/7", "--role", "agent", "--origin", FOREIGN];
    let put = expect_explained(&files, &put, &[&unreadable]).await;
    assert!(!put.contains("WebSocket"), "{put}");
    let by_upstream = ["GET", "/c/upstream/x", "--role", "user", "--origin", FOREIGN];
    expect_explained(&files, &by_upstream, &["note: the upstream decides whether a page", &handshake]).await;
    let refused = ["GET", "/c/upstream/x", "--origin", FOREIGN];
    expect_explained(&files, &refused, &["401 with code 1001", &unreadable]).await;

    let preflight = |path, origin, method| ["OPTIONS", path, "--origin", origin, "--preflight", method];
    for (args, expected) in [
        (preflight("/c/items/7", DESK, "PATCH"), "note: the browser blocks the request: the path has no PATCH"),
        (
            preflight("/c/items/7", DESK, "POST"),
            "note: the path has no POST; browsers send one all the same, and it gets 1405",
        ),
        (preflight("/c/upstream/x", DESK, "PATCH"), "note: the browser blocks the request: the path has no PATCH"),
    ] {
        expect_explained(&files, &args, &["204 by the gateway itself", expected]).await;
    }
    let allowed = expect_explained(&files, &preflight("/c/items/7", DESK, "PUT"), &["204 by the gateway itself"]).await;
    assert!(!allowed.contains("note:"), "{allowed}");
    let blocked = ["405 with code 1405", "note: the browser blocks the request: the path has no PATCH"];
    let blocked = expect_explained(&files, &preflight("/c/upstream/x", FOREIGN, "PATCH"), &blocked).await;
    assert!(!blocked.contains("origin is not one of"), "{blocked}");
}

#[tokio::test]
async fn explain_refuses_preflights_and_origins_that_no_browser_sends() {
    let files = setup().write_files().await;
    for (args, expected) in [
        (vec!["PUT", "/c/items/7", "--origin", DESK, "--preflight", "PUT"], "write `explain OPTIONS /c/items/7 "),
        (vec!["GET", "/c/items/7", "--origin", "desk.example"], "such as https://desk.example.com"),
        (vec!["GET", "/c/items/7", "--origin", "desk.example:8080"], "such as https://desk.example.com"),
        (vec!["GET", "/c/items/7", "--origin", "https://desk.example/h5/"], "browsers send https://desk.example;"),
        (vec!["GET", "/c/items/7", "--origin", "https://desk.example/"], "browsers send https://desk.example;"),
        (vec!["GET", "/c/items/7", "--origin", "https://Desk.example:443"], "browsers send https://desk.example;"),
    ] {
        let output = files.command(&[&["explain"], &args[..]].concat()).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
    expect_explained(&files, &["GET", "/c/items/7", "--role", "user", "--origin", "null"], &["a page of null cannot"])
        .await;
}
