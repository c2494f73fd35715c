//! Identity headers (attacks 69 to 75 of `docs/threats.md`): upstreams trust them, so only the gateway may set them.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::Connection as _;

use crate::support::*;

/// The identity headers of the contract, without their prefix.
const NAMES: [&str; 10] = [
    "Employee-Id",
    "Name",
    "Corp-Id",
    "Department",
    "Roles",
    "Current-Role",
    "Login-Source",
    "Session-Id",
    "Scope",
    "Assertion",
];

/// The value of every forged header.
const FORGED: &str = "forged";

/// A description and a function that respells a header name.
type Spelling = (&'static str, fn(&str) -> String);

/// Spellings that some upstream treats as the same name.
const SPELLINGS: [Spelling; 9] = [
    ("unchanged", |name| name.to_owned()),
    ("lower case", |name| name.to_ascii_lowercase()),
    ("upper case", |name| name.to_ascii_uppercase()),
    ("underscores", |name| name.replace('-', "_")),
    ("lower case, underscores", |name| name.to_ascii_lowercase().replace('-', "_")),
    ("upper case, underscores", |name| name.to_ascii_uppercase().replace('-', "_")),
    ("dots", |name| name.replace('-', ".")),
    ("the first dash as underscore", |name| name.replacen('-', "_", 1)),
    ("mixed separators", |name| name.replacen('-', "_", 1).replacen('-', ".", 1).to_ascii_lowercase()),
];

fn forged(spell: fn(&str) -> String) -> Vec<(String, &'static str)> {
    NAMES.iter().map(|name| (spell(&format!("X-Deskgate-{name}")), FORGED)).collect()
}

fn as_headers<'a>(lines: &'a [(String, &'a str)]) -> Vec<(&'a str, &'a str)> {
    lines.iter().map(|(name, value)| (name.as_str(), *value)).collect()
}

/// The identity headers of a request, with names normalised as a lenient upstream does.
fn identity_of(seen: &RecordedRequest) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in &seen.headers {
        let normalised = name.to_ascii_lowercase().replace(['_', '.', ' '], "-");
        if let Some(short) = normalised.strip_prefix("x-deskgate-") {
            found.entry(short.to_owned()).or_default().push(value.clone());
        }
    }
    found
}

/// Fails unless the request has exactly the identity headers of u1001, each once.
#[track_caller]
fn expect_xiaoming(case: &str, seen: &RecordedRequest, xiaoming: &Client) {
    let found = identity_of(seen);
    for (name, values) in &found {
        assert_eq!(values.len(), 1, "{case}: {name} occurs {} times", values.len());
        assert!(!values[0].contains(FORGED), "{case}: {name}: {}", values[0]);
    }
    let value = |name: &str| found.get(name).map(|values| values[0].as_str());
    assert_eq!(value("employee-id"), Some("u1001"), "{case}");
    assert_eq!(value("corp-id"), Some("wwdemo"), "{case}");
    assert_eq!(value("roles"), Some("user"), "{case}");
    assert_eq!(value("current-role"), Some("user"), "{case}");
    assert_eq!(value("login-source"), Some("dev"), "{case}");
    assert_eq!(value("session-id"), Some(jti_of(xiaoming.token()).as_str()), "{case}");
    assert!(value("assertion").is_some(), "{case}: no assertion");
    assert!(value("name").is_some() && value("department").is_some(), "{case}: {found:?}");
}

#[track_caller]
fn expect_no_identity(case: &str, seen: &RecordedRequest) {
    let found = identity_of(seen);
    assert!(found.is_empty(), "{case}: {found:?}");
    assert!(!String::from_utf8_lossy(&seen.head).contains(FORGED), "{case}");
}

/// Opens a WebSocket with these headers and returns the handshake as the upstream received it.
async fn handshake(desk: &Gateway, handshake: Handshake, headers: &[(&str, &str)]) -> RecordedRequest {
    let handshake = headers.iter().fold(handshake, |handshake, (name, value)| handshake.header(name, value));
    let mut socket = handshake.open().await.unwrap_or_else(|response| panic!("{}", response.describe()));
    socket.echo("hello").await;
    desk.upstream.last_request()
}

async fn removed_headers(desk: &Gateway) -> f64 {
    desk.metric("deskgate_identity_headers_removed_total", &[]).await
}

#[tokio::test]
async fn forged_identity_headers_are_stripped_in_every_spelling() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (spelling, spell) in SPELLINGS {
        let lines = forged(spell);
        let headers = as_headers(&lines);
        let before = removed_headers(&desk).await;
        desk.upstream.clear_requests();

        desk.anonymous().send("GET", "/public/x", &headers, b"").await.expect_status(200);
        expect_no_identity(&format!("{spelling}, public"), &desk.upstream.last_request());
        xiaoming.send("GET", "/api/desk/x", &headers, b"").await.expect_status(200);
        expect_xiaoming(&format!("{spelling}, signed in"), &desk.upstream.last_request(), &xiaoming);
        xiaoming.send("POST", "/api/token-too/x", &headers, b"hello").await.expect_status(200);
        expect_xiaoming(&format!("{spelling}, token forwarded"), &desk.upstream.last_request(), &xiaoming);
        let seen = handshake(&desk, xiaoming.handshake("/ws/employee"), &headers).await;
        expect_xiaoming(&format!("{spelling}, socket"), &seen, &xiaoming);
        let seen = handshake(&desk, desk.anonymous().handshake("/ws/public"), &headers).await;
        expect_no_identity(&format!("{spelling}, public socket"), &seen);

        assert_eq!(desk.upstream.requests().len(), 5, "{spelling}");
        let counted = removed_headers(&desk).await - before;
        assert_eq!(counted, 5.0 * NAMES.len() as f64, "{spelling}: removed headers");
    }
}

/// Headers that upstreams read as the client's address.
const ADDRESS_HEADERS: [&str; 17] = [
    "True-Client-IP",
    "X-Client-IP",
    "CF-Connecting-IP",
    "X-Cluster-Client-IP",
    "X-Real-IP",
    "WL-Proxy-Client-IP",
    "Proxy-Client-IP",
    "HTTP-Client-IP",
    "Remote-Addr",
    "X-Remote-Addr",
    "X-Remote-IP",
    "X-ProxyUser-Ip",
    "X-Envoy-External-Address",
    "Ali-CDN-Real-IP",
    "X-Azure-ClientIP",
    "X-Azure-SocketIP",
    "X-Appengine-User-IP",
];

#[tokio::test]
async fn address_proxy_and_request_id_headers_are_stripped_in_every_spelling() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (spelling, spell) in SPELLINGS {
        // As the gateway reads an id, this one is too short to be kept from a trusted proxy.
        let names = ADDRESS_HEADERS.iter().chain(&["Proxy", "X-Request-Id", "HTTP-X-Forwarded-For"]);
        let lines: Vec<(String, &str)> = names.map(|name| (spell(name), FORGED)).collect();
        let headers = as_headers(&lines);
        let count = async |kind: &str| desk.metric("deskgate_identity_headers_removed_total", &[kind]).await;
        let before = [count("kind=\"address\"").await, count("kind=\"proxy\"").await, count("kind=\"folded\"").await];
        desk.upstream.clear_requests();

        desk.anonymous().send("GET", "/public/x", &headers, b"").await.expect_status(200);
        xiaoming.send("GET", "/api/desk/x", &headers, b"").await.expect_status(200);
        xiaoming.send("POST", "/api/desk/x", &headers, b"hello").await.expect_status(200);
        handshake(&desk, xiaoming.handshake("/ws/employee"), &headers).await;

        let seen = desk.upstream.requests();
        assert_eq!(seen.len(), 4, "{spelling}");
        for request in seen {
            let head = String::from_utf8_lossy(&request.head).into_owned();
            assert!(!head.contains(FORGED), "{spelling}: {head}");
            assert!(request.header("x-request-id").is_some(), "{spelling}: {head}");
        }
        let after = [count("kind=\"address\"").await, count("kind=\"proxy\"").await, count("kind=\"folded\"").await];
        let look_alikes = if spell("X-Request-Id").eq_ignore_ascii_case("X-Request-Id") { 0.0 } else { 4.0 };
        let counted = [after[0] - before[0], after[1] - before[1], after[2] - before[2]];
        assert_eq!(counted, [4.0 * ADDRESS_HEADERS.len() as f64, 4.0, look_alikes], "{spelling}");
    }
    let kept = [("X-Client-Version", "7"), ("X-Request-Ids", "8"), ("Proxies", "9")];
    xiaoming.send("GET", "/api/desk/x", &kept, b"").await.expect_status(200);
    let seen = desk.upstream.last_request();
    assert!(
        kept.iter().all(|(name, value)| seen.header(name) == Some(value)),
        "{}",
        String::from_utf8_lossy(&seen.head)
    );
}

#[tokio::test]
async fn repeated_forged_headers_are_all_stripped() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let twice: Vec<(&str, &str)> = [
        ("X-Deskgate-Roles", "forged"),
        ("X-Deskgate-Roles", "forged, admin"),
        ("x_deskgate_roles", "forged"),
        ("X-Deskgate_Roles", "forged"),
        ("X-Deskgate-Employee-Id", ""),
        ("X-Deskgate-Employee-Id", "forged"),
    ]
    .to_vec();
    desk.anonymous().send("GET", "/public/x", &twice, b"").await.expect_status(200);
    expect_no_identity("public", &desk.upstream.last_request());
    xiaoming.send("GET", "/api/desk/x", &twice, b"").await.expect_status(200);
    expect_xiaoming("signed in", &desk.upstream.last_request(), &xiaoming);
    let seen = handshake(&desk, xiaoming.handshake("/ws/employee"), &twice).await;
    expect_xiaoming("socket", &seen, &xiaoming);
}

#[tokio::test]
async fn header_names_with_spaces_are_refused() {
    let desk = Gateway::start().await;
    for line in ["X-Deskgate-Roles : forged", "X-Deskgate-Roles\t: forged", " X-Deskgate-Roles: forged"] {
        let bytes = format!("GET /public/x HTTP/1.1\r\nHost: {}\r\n{line}\r\n\r\n", desk.address());
        if let Some(response) = desk.send_raw(bytes.as_bytes()).await {
            response.expect_code(1400);
        }
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn forged_identity_headers_do_not_affect_decisions() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let lines: Vec<(&str, &str)> = vec![
        ("X-Deskgate-Employee-Id", "m5001"),
        ("X-Deskgate-Roles", "admin"),
        ("X-Deskgate-Current-Role", "admin"),
        ("X_Deskgate_Current_Role", "admin"),
    ];
    desk.anonymous().send("GET", "/api/desk/x", &lines, b"").await.expect_bare_challenge();
    xiaoming.send("GET", "/api/admin-desk/x", &lines, b"").await.expect_code(1003);
    let me = xiaoming.send("GET", "/api/auth/me", &lines, b"").await.expect_code(0).data();
    assert_eq!((&me["employee_id"], &me["current_role"]), (&json!("u1001"), &json!("user")));
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn connection_header_cannot_remove_identity_headers() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut connection_values: Vec<String> = NAMES.iter().map(|name| format!("close, X-Deskgate-{name}")).collect();
    connection_values.push(
        NAMES[..5].iter().map(|name| format!("x-deskgate-{name}").to_ascii_lowercase()).collect::<Vec<_>>().join(", "),
    );
    connection_values.push(NAMES[5..].iter().map(|name| format!("X-DESKGATE-{name}")).collect::<Vec<_>>().join(","));
    connection_values.push("X_Deskgate_Employee_Id, keep-alive".to_owned());
    for value in &connection_values {
        desk.upstream.clear_requests();
        xiaoming.send("GET", "/api/desk/x", &[("Connection", value)], b"").await.expect_status(200);
        expect_xiaoming(value, &desk.upstream.only_request(), &xiaoming);
    }
    let upgrade = format!("Upgrade, {}", connection_values[NAMES.len()]);
    let handshake = xiaoming.handshake("/ws/employee").bytes();
    let text = String::from_utf8_lossy(&handshake).replace("Connection: Upgrade", &format!("Connection: {upgrade}"));
    desk.upstream.clear_requests();
    desk.send_raw(text.as_bytes()).await.expect("a response").expect_status(101);
    expect_xiaoming("socket", &desk.upstream.only_request(), &xiaoming);

    // `Connection` must not remove the gateway's other headers either; refusing the request is also correct.
    for name in [
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Request-Id",
        "Traceparent",
        "Authorization",
        "Host",
    ] {
        desk.upstream.clear_requests();
        let response = xiaoming.send("GET", "/api/desk/x", &[("Connection", &format!("close, {name}"))], b"").await;
        match response.status {
            200 => {
                let seen = desk.upstream.only_request();
                expect_xiaoming(name, &seen, &xiaoming);
                for header in
                    ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id", "traceparent"]
                {
                    assert!(seen.header(header).is_some(), "`Connection: {name}` removed {header}");
                }
            }
            400 => assert!(desk.upstream.requests().is_empty(), "{name}"),
            _ => panic!("{name}: {}", response.describe()),
        }
    }
}

#[tokio::test]
async fn headers_named_by_connection_are_not_forwarded() {
    let desk = Gateway::start().await;
    let headers = [
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", FORGED),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("X-End", "kept"),
    ];
    desk.anonymous().send("GET", "/public/x", &headers, b"").await.expect_status(200);
    let seen = desk.upstream.last_request();
    assert_eq!((seen.header("x-hop"), seen.header("x-end")), (None, Some("kept")));
    for name in ["keep-alive", "proxy-connection"] {
        assert_eq!(seen.header(name), None, "{name} is hop-by-hop");
    }
}

#[tokio::test]
async fn identity_headers_in_trailers_are_dropped() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (case, target) in [("public", "/public/x"), ("signed in", "/api/desk/x")] {
        let bytes = format!(
            "POST {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\
             Trailer: X-Deskgate-Roles\r\n\r\n5\r\nhello\r\n0\r\nX-Deskgate-Roles: {FORGED}\r\nX_Deskgate_Name: {FORGED}\r\n\r\n",
            desk.address(),
            xiaoming.token()
        );
        desk.upstream.clear_requests();
        if let Some(response) = desk.send_raw(bytes.as_bytes()).await {
            assert!(matches!(response.status, 200 | 400), "{case}: {}", response.describe());
        }
    }
    desk.anonymous().get("/public/last").await.expect_status(200);
    let everything = String::from_utf8_lossy(&desk.upstream.all_bytes()).into_owned();
    assert!(!everything.contains(FORGED), "{everything}");
}

#[tokio::test]
async fn public_route_without_token_gets_no_identity() {
    let desk = Gateway::start().await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    expect_no_identity("no token", &desk.upstream.last_request());
    let _socket = desk.anonymous().websocket("/ws/public").await;
    expect_no_identity("no token, socket", &desk.upstream.last_request());
}

#[tokio::test]
async fn identity_headers_describe_the_caller() {
    let desk = Gateway::start().await;
    for id in ["u1001", "a2001", "s3001", "c4001", "m5001"] {
        let client = desk.sign_in(id).await;
        let me = client.get("/api/auth/me").await.expect_code(0).data();
        client.get("/api/desk/x").await.expect_status(200);
        let request = desk.upstream.last_request();
        let _socket = client.websocket("/ws/employee").await;
        let socket = desk.upstream.last_request();
        for seen in [request, socket] {
            let value = |name: &str| {
                seen.header(&format!("x-deskgate-{name}")).unwrap_or_else(|| panic!("{id}: no {name}")).to_owned()
            };
            assert_eq!(value("employee-id"), id);
            assert_eq!(value("corp-id"), "wwdemo");
            assert_eq!(percent_decode(&value("name")), me["name"], "{id}");
            assert_eq!(percent_decode(&value("department")), me["department"], "{id}");
            let roles: BTreeSet<String> = value("roles").split(',').map(|role| role.trim().to_owned()).collect();
            assert_eq!(roles, set(&me["roles"]), "{id}");
            assert_eq!(json!(value("current-role")), me["current_role"], "{id}");
            assert_eq!(json!(value("login-source")), me["login_source"], "{id}");
            assert_eq!(value("session-id"), jti_of(client.token()), "{id}");
        }
    }
    let head = desk.upstream.last_request().head;
    assert!(head.is_ascii(), "{}", String::from_utf8_lossy(&head));
}

/// The strings of an array, without their order.
#[track_caller]
fn set(array: &Value) -> BTreeSet<String> {
    let texts = array.as_array().expect("an array").iter();
    texts.map(|text| text.as_str().expect("a text").to_owned()).collect()
}

/// Decodes percent-encoded UTF-8; fails on other bytes than printable ASCII.
#[track_caller]
fn percent_decode(value: &str) -> String {
    assert!(value.bytes().all(|byte| byte.is_ascii_graphic()), "{value}");
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match first {
            b'%' => {
                let digits = std::str::from_utf8(&tail[..2]).expect("two digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
                &tail[2..]
            }
            other => {
                bytes.push(*other);
                tail
            }
        };
    }
    String::from_utf8(bytes).expect("UTF-8")
}

#[tokio::test]
async fn display_names_are_encoded_in_one_header_line() {
    if skipped_on_postgres("a name with NUL, which PostgreSQL does not store") {
        return;
    }
    let mut desk = Gateway::start().await;
    desk.sign_in("u1001").await;
    let name = "A\r\nX-Deskgate-Roles: admin\r\n\r\n\u{202e}\u{0}\t%41,\"\u{6797}\u{ff21}\u{1f600} ";
    desk.terminate().await;
    rename(&desk, "u1001", name).await;
    desk.restart().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.upstream.clear_requests();
    xiaoming.get("/api/desk/x").await.expect_status(200);
    let request = desk.upstream.only_request();
    let _socket = xiaoming.websocket("/ws/employee").await;
    for seen in [request, desk.upstream.last_request()] {
        expect_xiaoming("a name with line breaks", &seen, &xiaoming);
        let value = seen.header("x-deskgate-name").expect("a name");
        assert_eq!(percent_decode(value), name);
    }
}

/// Changes an employee's name directly in the stopped gateway's database.
async fn rename(desk: &Gateway, employee_id: &str, name: &str) {
    let mut changed = 0;
    for entry in std::fs::read_dir(desk.data_dir()).expect("the data directory") {
        let file = entry.expect("a file").path();
        if !file.is_file() || !std::fs::read(&file).expect("its bytes").starts_with(b"SQLite format 3\0") {
            continue;
        }
        let mut db = sqlx::SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.expect("a database");
        let update = sqlx::query("UPDATE employees SET name = ? WHERE employee_id = ?").bind(name).bind(employee_id);
        // Only one of the databases is the directory.
        if let Ok(done) = update.execute(&mut db).await {
            changed += done.rows_affected();
        }
        db.close().await.expect("a closed database");
    }
    assert_eq!(changed, 1, "the employee {employee_id}");
}

#[tokio::test]
async fn the_gateways_cookies_never_reach_an_upstream() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (case, sent, expected) in [
        ("ours alone", "__Host-deskgate_flow_x=1; deskgate_browser=2", None),
        ("beside others", "a=1; __Host-deskgate_bind=secret; b=2", Some("a=1; b=2")),
        ("none of ours", "a=1; b=deskgate_", Some("a=1; b=deskgate_")),
    ] {
        for method in ["GET", "POST"] {
            xiaoming.send(method, "/api/desk/x", &[("Cookie", sent)], b"").await.expect_status(200);
            let request = desk.upstream.last_request();
            assert_eq!(request.header("cookie"), expected, "{case}, {method}");
        }
    }
}
