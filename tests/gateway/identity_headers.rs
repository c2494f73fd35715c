//! Rows 69–75 of the hardening page: upstreams believe these headers, so nobody but the gateway may write them.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::Connection as _;

use crate::support::*;

/// The headers of section 5, without their prefix.
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

/// What a forger writes into all of them.
const FORGED: &str = "forged";

/// A way to write a header's name.
type Spelling = (&'static str, fn(&str) -> String);

/// Every way that some upstream takes for the same name.
const SPELLINGS: [Spelling; 9] = [
    ("as it is", |name| name.to_owned()),
    ("lower case", |name| name.to_ascii_lowercase()),
    ("upper case", |name| name.to_ascii_uppercase()),
    ("underscores", |name| name.replace('-', "_")),
    ("lower case, underscores", |name| name.to_ascii_lowercase().replace('-', "_")),
    ("upper case, underscores", |name| name.to_ascii_uppercase().replace('-', "_")),
    ("dots", |name| name.replace('-', ".")),
    ("the first dash an underscore", |name| name.replacen('-', "_", 1)),
    ("a mixture", |name| name.replacen('-', "_", 1).replacen('-', ".", 1).to_ascii_lowercase()),
];

fn forged(spell: fn(&str) -> String) -> Vec<(String, &'static str)> {
    NAMES.iter().map(|name| (spell(&format!("X-Deskgate-{name}")), FORGED)).collect()
}

fn as_headers<'a>(lines: &'a [(String, &'a str)]) -> Vec<(&'a str, &'a str)> {
    lines.iter().map(|(name, value)| (name.as_str(), *value)).collect()
}

/// The identity headers of a request, folded as a careless upstream would.
fn identity_of(seen: &Recorded) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in &seen.headers {
        let folded = name.to_ascii_lowercase().replace(['_', '.', ' '], "-");
        if let Some(short) = folded.strip_prefix("x-deskgate-") {
            found.entry(short.to_owned()).or_default().push(value.clone());
        }
    }
    found
}

/// Fails unless these are Alice's own headers, each once.
#[track_caller]
fn expect_alice(case: &str, seen: &Recorded, alice: &Client) {
    let found = identity_of(seen);
    for (name, values) in &found {
        assert_eq!(values.len(), 1, "{case}: {name} stands {} times", values.len());
        assert!(!values[0].contains(FORGED), "{case}: {name}: {}", values[0]);
    }
    let value = |name: &str| found.get(name).map(|values| values[0].as_str());
    assert_eq!(value("employee-id"), Some("u1001"), "{case}");
    assert_eq!(value("corp-id"), Some("wwdemo"), "{case}");
    assert_eq!(value("roles"), Some("user"), "{case}");
    assert_eq!(value("current-role"), Some("user"), "{case}");
    assert_eq!(value("login-source"), Some("dev"), "{case}");
    assert_eq!(value("session-id"), Some(jti_of(alice.token()).as_str()), "{case}");
    assert!(value("assertion").is_some(), "{case}: no assertion");
    assert!(value("name").is_some() && value("department").is_some(), "{case}: {found:?}");
}

#[track_caller]
fn expect_nobody(case: &str, seen: &Recorded) {
    let found = identity_of(seen);
    assert!(found.is_empty(), "{case}: {found:?}");
    assert!(!String::from_utf8_lossy(&seen.head).contains(FORGED), "{case}");
}

/// Opens a socket with these headers and gives what the upstream saw.
async fn shake(desk: &Gateway, handshake: Handshake, headers: &[(&str, &str)]) -> Recorded {
    let handshake = headers.iter().fold(handshake, |shake, (name, value)| shake.header(name, value));
    let mut socket = handshake.open().await.unwrap_or_else(|answer| panic!("{}", answer.describe()));
    socket.echo("hello").await;
    desk.upstream.last_request()
}

async fn removed(desk: &Gateway) -> f64 {
    desk.metric("deskgate_identity_headers_removed_total", &[]).await
}

#[tokio::test]
async fn no_spelling_of_a_forged_header_gets_through() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for (spelling, spell) in SPELLINGS {
        let lines = forged(spell);
        let headers = as_headers(&lines);
        let before = removed(&desk).await;
        desk.upstream.forget();

        desk.anyone().send("GET", "/public/x", &headers, b"").await.expect_status(200);
        expect_nobody(&format!("{spelling}, public"), &desk.upstream.last_request());
        alice.send("GET", "/api/desk/x", &headers, b"").await.expect_status(200);
        expect_alice(&format!("{spelling}, signed in"), &desk.upstream.last_request(), &alice);
        alice.send("POST", "/api/token-too/x", &headers, b"hello").await.expect_status(200);
        expect_alice(&format!("{spelling}, token passed on"), &desk.upstream.last_request(), &alice);
        let seen = shake(&desk, alice.handshake("/ws/employee"), &headers).await;
        expect_alice(&format!("{spelling}, socket"), &seen, &alice);
        let seen = shake(&desk, desk.anyone().handshake("/ws/public"), &headers).await;
        expect_nobody(&format!("{spelling}, public socket"), &seen);

        assert_eq!(desk.upstream.requests().len(), 5, "{spelling}");
        let counted = removed(&desk).await - before;
        assert_eq!(counted, 5.0 * NAMES.len() as f64, "{spelling}: counted");
    }
}

#[tokio::test]
async fn a_forged_header_that_stands_twice_is_removed_twice() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let twice: Vec<(&str, &str)> = [
        ("X-Deskgate-Roles", "forged"),
        ("X-Deskgate-Roles", "forged, admin"),
        ("x_deskgate_roles", "forged"),
        ("X-Deskgate_Roles", "forged"),
        ("X-Deskgate-Employee-Id", ""),
        ("X-Deskgate-Employee-Id", "forged"),
    ]
    .to_vec();
    desk.anyone().send("GET", "/public/x", &twice, b"").await.expect_status(200);
    expect_nobody("public", &desk.upstream.last_request());
    alice.send("GET", "/api/desk/x", &twice, b"").await.expect_status(200);
    expect_alice("signed in", &desk.upstream.last_request(), &alice);
    let seen = shake(&desk, alice.handshake("/ws/employee"), &twice).await;
    expect_alice("socket", &seen, &alice);
}

#[tokio::test]
async fn a_name_with_a_space_in_it_is_no_header() {
    let desk = Gateway::start().await;
    for line in ["X-Deskgate-Roles : forged", "X-Deskgate-Roles\t: forged", " X-Deskgate-Roles: forged"] {
        let bytes = format!("GET /public/x HTTP/1.1\r\nHost: {}\r\n{line}\r\n\r\n", desk.address());
        if let Some(answer) = desk.raw(bytes.as_bytes()).await {
            answer.expect_code(1400);
        }
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn forged_headers_decide_nothing() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let lines: Vec<(&str, &str)> = vec![
        ("X-Deskgate-Employee-Id", "m5001"),
        ("X-Deskgate-Roles", "admin"),
        ("X-Deskgate-Current-Role", "admin"),
        ("X_Deskgate_Current_Role", "admin"),
    ];
    desk.anyone().send("GET", "/api/desk/x", &lines, b"").await.expect_bare_challenge();
    alice.send("GET", "/api/admin-desk/x", &lines, b"").await.expect_code(1003);
    let me = alice.send("GET", "/api/auth/me", &lines, b"").await.expect_code(0).data();
    assert_eq!((&me["employee_id"], &me["current_role"]), (&json!("u1001"), &json!("user")));
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn the_client_cannot_nominate_our_headers_away() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut nominations: Vec<String> = NAMES.iter().map(|name| format!("close, X-Deskgate-{name}")).collect();
    nominations.push(
        NAMES[..5].iter().map(|name| format!("x-deskgate-{name}").to_ascii_lowercase()).collect::<Vec<_>>().join(", "),
    );
    nominations.push(NAMES[5..].iter().map(|name| format!("X-DESKGATE-{name}")).collect::<Vec<_>>().join(","));
    nominations.push("X_Deskgate_Employee_Id, keep-alive".to_owned());
    for nomination in &nominations {
        desk.upstream.forget();
        alice.send("GET", "/api/desk/x", &[("Connection", nomination)], b"").await.expect_status(200);
        expect_alice(nomination, &desk.upstream.only_request(), &alice);
    }
    let upgrade = format!("Upgrade, {}", nominations[NAMES.len()]);
    let handshake = alice.handshake("/ws/employee").bytes();
    let text = String::from_utf8_lossy(&handshake).replace("Connection: Upgrade", &format!("Connection: {upgrade}"));
    desk.upstream.forget();
    desk.raw(text.as_bytes()).await.expect("an answer").expect_status(101);
    expect_alice("socket", &desk.upstream.only_request(), &alice);

    // The other headers that we set may not be taken away either; to refuse the request is as good.
    for name in [
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Request-Id",
        "Traceparent",
        "Authorization",
        "Host",
    ] {
        desk.upstream.forget();
        let answer = alice.send("GET", "/api/desk/x", &[("Connection", &format!("close, {name}"))], b"").await;
        match answer.status {
            200 => {
                let seen = desk.upstream.only_request();
                expect_alice(name, &seen, &alice);
                for ours in ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id", "traceparent"]
                {
                    assert!(seen.header(ours).is_some(), "{ours} is gone after `Connection: {name}`");
                }
            }
            400 => assert!(desk.upstream.requests().is_empty(), "{name}"),
            _ => panic!("{name}: {}", answer.describe()),
        }
    }
}

#[tokio::test]
async fn what_the_client_nominates_stays_here() {
    let desk = Gateway::start().await;
    let headers = [
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", FORGED),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("X-End", "kept"),
    ];
    desk.anyone().send("GET", "/public/x", &headers, b"").await.expect_status(200);
    let seen = desk.upstream.last_request();
    assert_eq!((seen.header("x-hop"), seen.header("x-end")), (None, Some("kept")));
    for name in ["keep-alive", "proxy-connection"] {
        assert_eq!(seen.header(name), None, "{name} is for one connection only");
    }
}

#[tokio::test]
async fn trailers_cannot_carry_them() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for (case, target) in [("public", "/public/x"), ("signed in", "/api/desk/x")] {
        let bytes = format!(
            "POST {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\
             Trailer: X-Deskgate-Roles\r\n\r\n5\r\nhello\r\n0\r\nX-Deskgate-Roles: {FORGED}\r\nX_Deskgate_Name: {FORGED}\r\n\r\n",
            desk.address(),
            alice.token()
        );
        desk.upstream.forget();
        if let Some(answer) = desk.raw(bytes.as_bytes()).await {
            assert!(matches!(answer.status, 200 | 400), "{case}: {}", answer.describe());
        }
    }
    desk.anyone().get("/public/last").await.expect_status(200);
    let everything = String::from_utf8_lossy(&desk.upstream.all_bytes()).into_owned();
    assert!(!everything.contains(FORGED), "{everything}");
}

#[tokio::test]
async fn a_public_route_gets_no_identity_from_nobody() {
    let desk = Gateway::start().await;
    desk.anyone().get("/public/x").await.expect_status(200);
    expect_nobody("no token", &desk.upstream.last_request());
    let _socket = desk.anyone().websocket("/ws/public").await;
    expect_nobody("no token, socket", &desk.upstream.last_request());
}

#[tokio::test]
async fn the_headers_say_who_is_calling() {
    let desk = Gateway::start().await;
    for id in ["u1001", "a2001", "s3001", "c4001", "m5001"] {
        let person = desk.sign_in(id).await;
        let me = person.get("/api/auth/me").await.expect_code(0).data();
        person.get("/api/desk/x").await.expect_status(200);
        let plain = desk.upstream.last_request();
        let _socket = person.websocket("/ws/employee").await;
        let socket = desk.upstream.last_request();
        for seen in [plain, socket] {
            let value = |name: &str| {
                seen.header(&format!("x-deskgate-{name}")).unwrap_or_else(|| panic!("{id}: no {name}")).to_owned()
            };
            assert_eq!(value("employee-id"), id);
            assert_eq!(value("corp-id"), "wwdemo");
            assert_eq!(decoded(&value("name")), me["name"], "{id}");
            assert_eq!(decoded(&value("department")), me["department"], "{id}");
            let roles: BTreeSet<String> = value("roles").split(',').map(|role| role.trim().to_owned()).collect();
            assert_eq!(roles, set(&me["roles"]), "{id}");
            assert_eq!(json!(value("current-role")), me["current_role"], "{id}");
            assert_eq!(json!(value("login-source")), me["login_source"], "{id}");
            assert_eq!(value("session-id"), jti_of(person.token()), "{id}");
        }
    }
    let head = desk.upstream.last_request().head;
    assert!(head.is_ascii(), "{}", String::from_utf8_lossy(&head));
}

/// The texts of an array, in no order.
#[track_caller]
fn set(array: &Value) -> BTreeSet<String> {
    let texts = array.as_array().expect("an array").iter();
    texts.map(|text| text.as_str().expect("a text").to_owned()).collect()
}

/// Percent-encoded UTF-8 as text; fails on anything that is not ASCII or not well encoded.
#[track_caller]
fn decoded(value: &str) -> String {
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
async fn any_name_is_one_header_line() {
    let mut desk = Gateway::start().await;
    desk.sign_in("u1001").await;
    let name = "A\r\nX-Deskgate-Roles: admin\r\n\r\n\u{202e}\u{0}\t%41,\"\u{6797}\u{ff21}\u{1f600} ";
    desk.terminate().await;
    rename(&desk, "u1001", name).await;
    desk.restart().await;
    let alice = desk.sign_in("u1001").await;
    desk.upstream.forget();
    alice.get("/api/desk/x").await.expect_status(200);
    let plain = desk.upstream.only_request();
    let _socket = alice.websocket("/ws/employee").await;
    for seen in [plain, desk.upstream.last_request()] {
        expect_alice("a name with line breaks", &seen, &alice);
        let value = seen.header("x-deskgate-name").expect("a name");
        assert_eq!(decoded(value), name);
    }
}

/// Gives an employee another name, as the platform's profile or an operator could, while nobody looks.
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
