//! Authorization rules: matrix, networks, conditions, step-up, shadow mode, cases, `explain`.

use std::time::Duration;

use serde_json::Value;
use sqlx::Connection as _;

use crate::support::*;

/// Rules that use every key, below `/r/`.
const RULES: &str = r#"
[matrix.user]
conversations = { read = "own" }
[matrix.agent]
conversations = { read = "all", update = "department" }

[[rule]]
name = "by matrix"
path = "/r/matrix"
methods = ["GET"]
upstream = "helpdesk"
access = "conversations:read"

[[rule]]
name = "by matrix, changing"
path = "/r/matrix"
methods = ["PUT"]
upstream = "helpdesk"
access = "conversations:update"

[[rule]]
name = "by network"
path = "/r/network"
upstream = "helpdesk"
signed_in = true
networks = ["10.0.0.0/8", "2001:db8::/32"]

[[rule]]
name = "by condition"
path = "/r/when/{name}"
upstream = "helpdesk"
signed_in = true
when = 'identity.department == "IT" && request.path != "/r/when/not"'

[[rule]]
name = "by role and matrix"
path = "/r/both"
upstream = "helpdesk"
access = "conversations:read"
roles = ["agent"]

[[rule]]
name = "stepped up"
path = "/r/otp"
upstream = "helpdesk"
signed_in = true
step_up = true

[[rule]]
name = "watched"
path = "/r/shadow"
upstream = "helpdesk"
roles = ["admin"]
mode = "shadow"

[[rule]]
name = "watched, also without a token"
path = "/r/shadow-anonymous"
upstream = "helpdesk"
roles = ["admin"]
mode = "shadow"
shadow_anonymous = true

[[rule]]
name = "watched and public"
path = "/r/shadow-public"
upstream = "helpdesk"
public = true
networks = ["10.0.0.0/8"]
mode = "shadow"

[[rule]]
name = "few sockets"
path = "/r/socket"
methods = ["GET"]
upstream = "helpdesk"
signed_in = true
websocket = { max_per_employee = 2 }

[[rule]]
name = "socket for agents"
path = "/r/agents"
methods = ["GET"]
upstream = "helpdesk"
roles = ["agent"]
"#;

async fn desk() -> Gateway {
    Gateway::setup().more_rules(RULES).toml("[server]\ntrusted_proxies = [\"127.0.0.0/8\"]").start().await
}

#[tokio::test]
async fn matrix_grants_access_and_its_scope_goes_upstream() {
    let desk = desk().await;
    for (person, method, expected) in [
        ("u1001", "GET", Some("own")),
        ("a2001", "GET", Some("all")),
        ("a2001", "PUT", Some("department")),
        ("u1001", "PUT", None),
        ("s3001", "GET", None),
    ] {
        let person_client = desk.sign_in(person).await;
        desk.upstream.clear_requests();
        let forged = [("X-Deskgate-Scope", "all"), ("x_deskgate_scope", "all")];
        let response = person_client.send(method, "/r/matrix", &forged, b"").await;
        match expected {
            Some(scope) => {
                response.expect_status(200);
                assert_eq!(desk.upstream.only_request().header("x-deskgate-scope"), Some(scope), "{person} {method}");
            }
            None => {
                let response = response.expect_code(1003);
                assert!(response.message().contains("conversations:"), "{}", response.message());
                assert!(desk.upstream.requests().is_empty(), "{person} {method} reached the upstream");
            }
        }
    }
    desk.upstream.clear_requests();
    desk.sign_in("a2001").await.get("/r/network").await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.send("GET", "/api/desk/x", &[("X-Deskgate-Scope", "all")], b"").await.expect_status(200);
    assert_eq!(desk.upstream.last_request().header("x-deskgate-scope"), None, "a rule without a matrix sends no scope");
}

#[tokio::test]
async fn network_conditions_use_the_trusted_client_address() {
    let desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (from, expected) in [
        ("10.1.2.3", 0),
        ("::ffff:10.1.2.3", 0),
        ("2001:db8:1::9", 0),
        ("11.1.2.3", 1003),
        ("2001:db9::1", 1003),
        ("127.0.0.1", 1003),
    ] {
        let response = xiaoming.send("GET", "/r/network", &[("X-Forwarded-For", from)], b"").await;
        if expected == 0 {
            response.expect_status(200);
        } else {
            response.expect_code(expected);
        }
    }
    let strangers = Gateway::setup().more_rules(RULES).toml("[server]\ntrusted_proxies = []").start().await;
    let xiaoming = strangers.sign_in("u1001").await;
    xiaoming.send("GET", "/r/network", &[("X-Forwarded-For", "10.1.2.3")], b"").await.expect_code(1003);
}

#[tokio::test]
async fn conditions_and_roles_restrict_a_rule() {
    let desk = desk().await;
    for (person, path, expected) in [
        ("a2001", "/r/when/yes", 0),
        ("a2001", "/r/when/not", 1003),
        ("u1001", "/r/when/yes", 1003),
        ("a2001", "/r/both", 0),
        ("u1001", "/r/both", 1003),
    ] {
        let response = desk.sign_in(person).await.get(path).await;
        if expected == 0 {
            response.expect_status(200);
        } else {
            response.expect_code(expected);
        }
    }
}

#[tokio::test]
async fn step_up_challenge_follows_rfc_9470() {
    let desk = desk().await;
    let response = desk.sign_in("u1001").await.get("/r/otp").await.expect_code(1021);
    assert_eq!(response.status, 401);
    let challenge = response.header("www-authenticate").expect("a challenge");
    assert!(challenge.contains("error=\"insufficient_user_authentication\""), "{challenge}");
    desk.anonymous().get("/r/otp").await.expect_bare_challenge();
}

#[tokio::test]
async fn shadow_mode_counts_and_logs_without_refusing() {
    let desk = desk().await;
    let shadow = |verdict: &'static str| desk_metric(&desk, "deskgate_shadow_total", ["rule=\"watched\"", verdict]);
    for person in ["u1001", "a2001", "s3001"] {
        desk.sign_in(person).await.get("/r/shadow").await.expect_status(200);
    }
    assert_eq!(shadow("verdict=\"deny\"").await, 3.0);
    desk.sign_in("m5001").await.get("/r/shadow").await.expect_status(200);
    assert_eq!(shadow("verdict=\"allow\"").await, 1.0);
    let line = desk.wait_for_log(&["would be refused with 1003", "\"rule.name\":\"watched\""]).await;
    assert!(line.contains("request.id"), "{line}");
}

#[tokio::test]
async fn shadow_mode_needs_a_valid_token_unless_the_rule_is_public() {
    let desk = desk().await;
    let logged_out = desk.sign_in("u1001").await;
    logged_out.post("/api/auth/logout").await.expect_code(0);
    desk.upstream.clear_requests();
    for method in ["GET", "POST"] {
        desk.anonymous().send(method, "/r/shadow", &[], b"").await.expect_bare_challenge();
        desk.with_token("not.a.token").send(method, "/r/shadow", &[], b"").await.expect_invalid_token();
        logged_out.send(method, "/r/shadow", &[], b"").await.expect_invalid_token();
    }
    let refused = desk.anonymous().handshake("/r/shadow").open().await.err().expect("a refusal");
    refused.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
    assert_eq!(desk.metric("deskgate_shadow_total", &["rule=\"watched\"", "verdict=\"deny\""]).await, 0.0);

    desk.anonymous().get("/r/shadow-public").await.expect_status(200);
    desk.with_token("not.a.token").get("/r/shadow-public").await.expect_status(200);
}

#[tokio::test]
async fn shadow_anonymous_forwards_requests_without_a_token_and_without_identity() {
    let desk = desk().await;
    let denied = ["rule=\"watched, also without a token\"", "verdict=\"deny\""];
    desk.upstream.clear_requests();
    desk.anonymous().get("/r/shadow-anonymous").await.expect_status(200);
    desk.with_token("not.a.token").post("/r/shadow-anonymous").await.expect_status(200);
    desk.anonymous().websocket("/r/shadow-anonymous").await.echo("hello").await;
    assert_eq!(desk.upstream.requests().len(), 3);
    for seen in desk.upstream.requests() {
        assert!(seen.headers.iter().all(|(name, _)| !name.starts_with("x-deskgate")), "{:?}", seen.headers);
    }
    assert_eq!(desk.metric("deskgate_shadow_total", &denied).await, 3.0);
    desk.sign_in("u1001").await.get("/r/shadow-anonymous").await.expect_status(200);
    assert_eq!(desk.upstream.last_request().header("x-deskgate-employee-id"), Some("u1001"));
}

/// The socket of an anonymous client ends when a reload takes `shadow_anonymous` away.
#[tokio::test]
async fn reload_without_shadow_anonymous_closes_anonymous_websockets() {
    let desk = desk().await;
    let mut socket = desk.anonymous().websocket("/r/shadow-anonymous").await;
    socket.echo("hello").await;
    let text = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    std::fs::write(desk.rules_file(), text.replace("shadow_anonymous = true\n", "")).expect("written");
    desk.signal("HUP");
    assert_eq!(socket.close_code_within(Duration::from_secs(5)).await, Some(4403));
}

async fn desk_metric(desk: &Gateway, name: &str, labels: [&'static str; 2]) -> f64 {
    desk.metric(name, &labels).await
}

#[tokio::test]
async fn decision_log_has_the_reason_and_request_id() {
    let desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    for (path, reason) in [
        ("/r/both", "the active role is `user`, the rule wants one of: agent"),
        ("/r/network", "127.0.0.1 is in none of the rule's networks"),
        ("/r/when/yes", "the condition does not hold: identity.department"),
        ("/r/otp", "a one-time password is needed"),
    ] {
        let response = xiaoming.get(path).await;
        let id = response.header("x-request-id").expect("an id").to_owned();
        let line: Value =
            serde_json::from_str(&desk.wait_for_log(&[&id, "refused with"]).await).expect("a line of JSON");
        let message = line["message"].as_str().expect("a message");
        assert!(message.contains(reason), "{path}: {line}");
        assert_eq!(line["employee.id"], "u1001", "{line}");
        let explained = desk.command(&["explain", "GET", path, "--role", "user", "--json"]).await;
        let explained: Value = serde_json::from_slice(&explained.stdout).expect("JSON");
        assert!(message.contains(explained["answer"]["reason"].as_str().expect("a reason")), "{line}\n{explained}");
    }
}

#[tokio::test]
async fn explain_agrees_with_live_responses() {
    let desk = desk().await;
    let people = [("u1001", "user", "Sales"), ("a2001", "agent", "IT"), ("s3001", "supervisor", "IT"), ("", "", "")];
    let paths = [
        "/r/matrix",
        "/r/network",
        "/r/when/yes",
        "/r/when/not",
        "/r/both",
        "/r/otp",
        "/r/shadow",
        "/r/shadow-anonymous",
        "/r/shadow-public",
        "/r/nothing",
    ];
    for (id, role, department) in people {
        let client = if id.is_empty() { desk.anonymous() } else { desk.sign_in(id).await };
        for path in paths {
            for (method, address) in [("GET", "10.1.2.3"), ("PUT", "127.0.0.1")] {
                let mut command =
                    vec!["explain", method, path, "--address", address, "--json", "--department", department];
                if !role.is_empty() {
                    command.extend(["--role", role, "--employee-id", id]);
                }
                let output = desk.command(&command).await;
                let explained: Value = serde_json::from_slice(&output.stdout).expect("JSON");
                let live = client.send(method, path, &[("X-Forwarded-For", address)], b"").await;
                let expected = explained["answer"]["status"].as_u64().unwrap_or(200);
                assert_eq!(u64::from(live.status), expected, "{id} {method} {path} {address}: {explained:#}");
            }
        }
    }
}

#[tokio::test]
async fn explain_shows_every_condition() {
    let files = Gateway::setup().more_rules(RULES).write_files().await;
    for (args, outcome, response) in [
        (vec!["GET", "/r/matrix", "--role", "agent"], "hit          access     conversations:read", "scope all"),
        (vec!["GET", "/r/both", "--role", "user"], "miss         roles      agent", "403 with code 1003"),
        (vec!["PUT", "/r/matrix", "--role", "user"], "miss         access     conversations:update", "1003"),
        (vec!["GET", "/r/network", "--role", "user"], "miss         networks   10.0.0.0/8", "1003"),
        (vec!["GET", "/r/when/a", "--role", "user"], "miss         when       identity.department", "1003"),
        (vec!["GET", "/r/otp", "--role", "user"], "miss         step_up", "401 with code 1021"),
        (vec!["GET", "/r/otp", "--role", "user", "--stepped-up"], "hit          step_up", "forwarded to `helpdesk`"),
        (vec!["GET", "/nowhere"], "no rule matches the path", "404 with code 1404"),
        (vec!["DELETE", "/r/matrix", "--role", "user"], "miss         methods    GET", "405 with code 1405"),
        (vec!["GET", "/r/../x"], "no rule matches the path", "400 with code 1400"),
        (vec!["GET", "/api/auth/me"], "miss         signed_in", "401 with code 1001"),
    ] {
        let mut command = vec!["explain"];
        command.extend(&args);
        let output = files.command(&command).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(outcome) && text.contains(response), "{args:?}: {outcome} / {response} in\n{text}");
        assert!(!text.contains('\u{1b}'), "colour codes outside a terminal");
    }
}

#[tokio::test]
async fn failing_case_refuses_to_start() {
    let case = "\n[[case]]\nrequest = { path = \"/r/both\", role = \"user\" }\nexpect = { allow = true }\n";
    let files = Gateway::setup().more_rules(&format!("{RULES}{case}")).write_files().await;
    for command in ["check", "serve"] {
        let output = files.command(&[command]).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command}: {stderr}");
        for part in
            ["expected allow", "got deny 1003 by rule `by role and matrix` for its `roles`", "miss         roles"]
        {
            assert!(stderr.contains(part), "{command}: {part} in {stderr}");
        }
    }
}

#[tokio::test]
async fn failing_case_blocks_the_reload() {
    let desk = desk().await;
    let file = desk.rules_file();
    let old = std::fs::read_to_string(&file).expect("the rules");
    let case = "\n[[case]]\nrequest = { path = \"/public/x\" }\nexpect = { deny = 1003 }\n";
    std::fs::write(&file, format!("{}{case}", old.replace("\"/r/otp\"", "\"/r/renamed\""))).expect("new rules");
    desk.signal("HUP");
    desk.wait_for_log(&["reload refused, nothing changed", "the case fails: expected deny 1003"]).await;
    assert_eq!(desk.metric("deskgate_config_reload_success", &[]).await, 0.0);
    desk.sign_in("u1001").await.get("/r/otp").await.expect_code(1021);
}

#[tokio::test]
async fn watched_rules_reload_on_change() {
    let desk = Gateway::setup().set("rules.watch", "true").start().await;
    desk.anonymous().get("/new").await.expect_code(1404);
    let rule = "[[rule]]\nname = \"new\"\npath = \"/new\"\nupstream = \"helpdesk\"\npublic = true\n";
    std::fs::write(desk.rules_file().with_file_name("new.toml"), rule).expect("a new file");
    eventually("the new rule", || async { (desk.anonymous().get("/new").await.status == 200).then_some(()) }).await;
    std::fs::write(desk.rules_file().with_file_name("new.toml"), "[[rule]]\n").expect("a bad file");
    desk.wait_for_log(&["reload refused, nothing changed", "new.toml:1"]).await;
    desk.anonymous().get("/new").await.expect_status(200);
}

#[tokio::test]
async fn websockets_per_employee_are_limited() {
    let desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    let first = xiaoming.websocket("/r/socket").await;
    let second = desk.sign_in("u1001").await.websocket("/r/socket").await;
    let refused = xiaoming.handshake("/r/socket").expect_refused().await.expect_code(1429);
    assert!(refused.header("retry-after").is_some(), "{}", refused.describe());
    let alice = desk.sign_in("a2001").await.websocket("/r/socket").await;
    drop(first);
    eventually("a free WebSocket slot", || async { xiaoming.handshake("/r/socket").open().await.ok().map(drop) }).await;
    drop((second, alice));
}

#[tokio::test]
async fn reload_closes_websockets_that_the_rules_no_longer_allow() {
    let desk = desk().await;
    let mut agents = desk.sign_in("a2001").await.websocket("/r/agents").await;
    let mut unrestricted = desk.sign_in("a2001").await.websocket("/ws/employee").await;
    let file = desk.rules_file();
    let text = std::fs::read_to_string(&file).expect("the rules");
    let stricter = text.replace(
        "path = \"/r/agents\"\nmethods = [\"GET\"]\nupstream = \"helpdesk\"\nroles = [\"agent\"]",
        "path = \"/r/agents\"\nmethods = [\"GET\"]\nupstream = \"helpdesk\"\nroles = [\"supervisor\"]",
    );
    assert_ne!(text, stricter);
    std::fs::write(&file, stricter).expect("stricter rules");
    desk.signal("HUP");
    assert_eq!(agents.close_code_within(TEST_TIMEOUT).await, Some(4403));
    unrestricted.echo("still here").await;
}

#[tokio::test]
async fn reload_under_load_fails_no_request() {
    let desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    let answered = std::sync::atomic::AtomicUsize::new(0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let load = async {
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            let (one, two) = tokio::join!(xiaoming.get("/api/desk/x"), xiaoming.get("/public/x"));
            one.expect_status(200);
            two.expect_status(200);
            answered.fetch_add(2, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let reloads = async {
        let before = desk.logs().matches("\"reloaded\"").count();
        for number in 1..=20 {
            desk.signal("HUP");
            eventually("a reload", || async {
                (desk.logs().matches("\"reloaded\"").count() >= before + number).then_some(())
            })
            .await;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(load, reloads) })
        .await
        .expect("the rules in time");
    assert!(answered.load(std::sync::atomic::Ordering::Relaxed) > 20);
}

#[tokio::test]
async fn shadow_rule_does_not_limit_websockets() {
    let rules = RULES.replace("name = \"few sockets\"", "name = \"few sockets\"\nmode = \"shadow\"");
    let desk = Gateway::setup().more_rules(&rules).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(xiaoming.websocket("/r/socket").await);
    }
    assert_eq!(desk.metric("deskgate_shadow_total", &["rule=\"few sockets\"", "verdict=\"deny\""]).await, 1.0);
}

/// An assertion would identify the employee to upstreams, which cannot see that the second factor is missing.
#[tokio::test]
async fn half_authenticated_token_is_anonymous_on_public_rules() {
    let mut desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.terminate().await;
    let halve = "UPDATE sessions SET body = replace(body, '\"stage\":\"full\"', '\"stage\":\"otp_binding\"')";
    edit(&desk, halve).await;
    desk.restart().await;
    let xiaoming = desk.with_token(xiaoming.token());
    for (path, status) in [
        ("/public/x", 200),
        ("/r/shadow", 403),
        ("/r/shadow-anonymous", 200),
        ("/r/matrix", 403),
        ("/api/auth/me", 200),
    ] {
        desk.upstream.clear_requests();
        xiaoming.get(path).await.expect_status(status);
        for seen in desk.upstream.requests() {
            let identity_headers: Vec<_> =
                seen.headers.iter().filter(|(name, _)| name.starts_with("x-deskgate")).collect();
            assert!(identity_headers.is_empty(), "{path}: {identity_headers:?}");
        }
    }
}

/// Changes the embedded store of a stopped gateway.
async fn edit(desk: &Gateway, sql: &str) {
    let file = desk.data_dir().join("state.db");
    let mut database = sqlx::SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.expect("open");
    let done = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut database).await.expect("changed");
    assert!(done.rows_affected() > 0, "nothing was changed");
    database.close().await.expect("closed");
}
