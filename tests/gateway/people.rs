//! `deskgate employee` and `deskgate agent`: nobody needs SQL, and live sessions follow at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::Duration;

use deskgate::domain::clock::Clock;
use deskgate::signin::totp::{OtpSecret, Step};

use crate::support::*;

const GOOD: &str = "correct horse battery staple";

async fn listed(desk: &Gateway, what: &[&str]) -> Vec<Value> {
    let args: Vec<&str> = what.iter().copied().chain(["--json"]).collect();
    let text = desk.command(&args).await.success();
    serde_json::from_str::<Value>(&text).expect("JSON").as_array().expect("a list").clone()
}

async fn one(desk: &Gateway, what: &[&str], employee: &str) -> Option<Value> {
    listed(desk, what).await.into_iter().find(|row| row["employee_id"] == employee)
}

async fn login(desk: &Gateway, body: Value) -> Answer {
    desk.anyone().post_json("/api/agents/login", &body).await
}

#[tokio::test]
async fn an_agent_is_made_and_unmade_without_sql() {
    let desk = Gateway::start().await;
    desk.command(&["employee", "add", "b7700", "--name", "Berta 伯塔", "--department", "IT"]).await.success();
    desk.command(&["agent", "add", "b7700", "--role", "agent"]).await.success();
    let agent = one(&desk, &["agent", "list"], "b7700").await.expect("an agent");
    assert_eq!((&agent["password"], &agent["role"]), (&json!(false), &json!("agent")), "{agent}");
    login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(1011);

    desk.command_hearing(&["agent", "password", "b7700"], &format!("{GOOD}\n")).await.success();
    let data = login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(0).data();
    assert_eq!((&data["name"], &data["current_role"]), (&json!("Berta 伯塔"), &json!("agent")));
    let berta = desk.bearing(data["token"].as_str().expect("a token"));
    berta.get("/api/agent-desk/x").await.expect_status(200);

    desk.command(&["agent", "password", "b7700", "--clear", "--yes"]).await.success();
    login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(1011);
    desk.command(&["agent", "remove", "b7700", "--yes"]).await.success();
    assert_eq!(one(&desk, &["agent", "list"], "b7700").await, None);
    let me = berta.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(me["roles"], json!(["user"]), "the role of the record is gone from the live session");
    berta.get("/api/agent-desk/x").await.expect_code(1003);

    desk.command(&["employee", "remove", "b7700", "--yes"]).await.success();
    berta.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(one(&desk, &["employee", "list"], "b7700").await, None);
}

#[tokio::test]
async fn a_made_up_password_is_printed_and_works() {
    let desk = Gateway::start().await;
    let said = desk.command(&["agent", "password", "a2001", "--generate"]).await.success();
    let password = said.lines().last().expect("a password").to_owned();
    login(&desk, json!({ "employee_id": "a2001", "password": password })).await.expect_code(0);
    assert!(!desk.logs().contains(&password), "a password is in the log");
}

#[tokio::test]
async fn weak_passwords_are_refused_with_advice() {
    let desk = Gateway::start().await;
    for (password, advice) in [("short\n", "at least 8"), ("password1\n", "guess"), ("a2001a2001\n", "")] {
        let ran = desk.command_hearing(&["agent", "password", "a2001"], password).await;
        assert_eq!(ran.status.code(), Some(4), "{password}: {}", ran.said());
        assert!(ran.said().contains(advice), "{password}: {}", ran.said());
    }
    let nothing = desk.command_hearing(&["agent", "password", "a2001"], "").await;
    assert_eq!(nothing.status.code(), Some(1), "{}", nothing.said());
    assert_eq!(one(&desk, &["agent", "list"], "a2001").await.expect("an agent")["password"], false);
}

#[tokio::test]
async fn a_disabled_employees_sessions_end_at_once() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    let other = desk.sign_in("a2001").await;
    let mut socket = anton.websocket("/ws/agent").await;
    socket.echo("hello").await;
    let said = desk.command(&["employee", "disable", "a2001", "--json"]).await.success();
    assert_eq!(serde_json::from_str::<Value>(&said).expect("JSON"), json!({ "changed": true, "sessions": 2 }));
    assert_eq!(socket.closed_within(Duration::from_secs(1)).await, Some(4401));
    for client in [&anton, &other] {
        client.get("/api/auth/me").await.expect_invalid_token();
    }
    desk.anyone().post_json("/api/dev/login", &json!({ "employee_id": "a2001" })).await.expect_code(1003);
    assert_eq!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["standing"], "disabled");

    desk.command(&["employee", "enable", "a2001"]).await.success();
    desk.sign_in("a2001").await.get("/api/auth/me").await.expect_code(0);
    anton.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn what_is_known_of_an_employee_reaches_live_sessions() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    anton.get("/api/desk/x").await.expect_status(200);
    desk.command(&["employee", "change", "a2001", "--name", "Antonia", "--department", "HR"]).await.success();
    let me = anton.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["name"], &me["department"]), (&json!("Antonia"), &json!("HR")));
    anton.get("/api/desk/x").await.expect_status(200);
    assert_eq!(desk.upstream.last_request().header("x-deskgate-department"), Some("HR"));
    let again = desk.command(&["employee", "change", "a2001", "--name", "Antonia", "--json"]).await.success();
    assert_eq!(serde_json::from_str::<Value>(&again).expect("JSON")["changed"], false);
}

#[tokio::test]
async fn the_last_administrator_stays_one() {
    let desk = Gateway::start().await;
    for args in [
        &["role", "take", "m5001", "admin"][..],
        &["employee", "disable", "m5001"],
        &["employee", "remove", "m5001", "--yes"],
    ] {
        let ran = desk.command(args).await;
        assert_eq!(ran.status.code(), Some(4), "{args:?}: {}", ran.said());
        assert!(ran.said().contains("last administrator"), "{args:?}: {}", ran.said());
    }
    // Somebody who may not sign in is no administrator to rely on.
    desk.command(&["role", "grant", "s3001", "admin"]).await.success();
    desk.command(&["employee", "disable", "s3001"]).await.success();
    assert_eq!(desk.command(&["employee", "disable", "m5001"]).await.status.code(), Some(4));
    assert_eq!(desk.command(&["role", "take", "m5001", "admin"]).await.status.code(), Some(4));
    desk.command(&["employee", "enable", "s3001"]).await.success();
    desk.command(&["employee", "disable", "m5001"]).await.success();
    assert_eq!(
        desk.command(&["employee", "disable", "s3001"]).await.status.code(),
        Some(4),
        "now this one is the last"
    );
}

#[tokio::test]
async fn an_agents_record_that_makes_the_last_administrator_stays() {
    let desk = Gateway::start().await;
    desk.command(&["employee", "add", "b7700"]).await.success();
    desk.command(&["agent", "add", "b7700", "--role", "admin"]).await.success();
    desk.command(&["employee", "disable", "m5001"]).await.success();
    for args in [&["agent", "remove", "b7700", "--yes"][..], &["agent", "change", "b7700", "--role", "agent"]] {
        let ran = desk.command(args).await;
        assert_eq!(ran.status.code(), Some(4), "{args:?}: {}", ran.said());
    }
    desk.command(&["agent", "change", "b7700", "--otp-required", "true"]).await.success();
}

#[tokio::test]
async fn scripts_can_trust_exit_codes() {
    let desk = Gateway::start().await;
    for (code, args) in [
        (0, &["employee", "list"][..]),
        (0, &["role", "grant", "u1001", "user"]),
        (2, &["employee"]),
        (2, &["employee", "change", "u1001"]),
        (2, &["agent", "change", "a2001", "--otp-required", "perhaps"]),
        (2, &["session", "end"]),
        (3, &["employee", "disable", "nobody"]),
        (3, &["employee", "unlock", "nobody"]),
        (3, &["agent", "add", "nobody"]),
        (3, &["agent", "change", "u1001", "--role", "agent"]),
        (3, &["agent", "remove", "u1001", "--yes"]),
        (3, &["role", "grant", "nobody", "agent"]),
        (3, &["session", "end", "nobody-has-this-one"]),
        (3, &["session", "end", "--employee", "nobody"]),
        (3, &["key", "remove", "eddsa-1-x", "--yes"]),
        (4, &["employee", "add", "u1001"]),
        (4, &["employee", "add", "U1001"]),
        (4, &["employee", "add", "no spaces"]),
        (4, &["employee", "add", "x1", "--corp", "no/slash"]),
        (4, &["agent", "add", "a2001"]),
        (4, &["agent", "add", "u1001", "--role", "no role"]),
        (5, &["employee", "remove", "u1001"]),
        (5, &["employee", "otp-remove", "u1001"]),
        (5, &["agent", "remove", "a2001"]),
        (5, &["agent", "password", "a2001", "--clear"]),
        (5, &["key", "remove", "eddsa-1-x"]),
    ] {
        let ran = desk.command(args).await;
        assert_eq!(ran.status.code(), Some(code), "{args:?}: {}", ran.said());
        assert_eq!(ran.stderr.is_empty(), code == 0, "{args:?} says why on standard error alone: {}", ran.said());
        assert!(code == 0 || ran.stdout.is_empty(), "{args:?}: {}", ran.said());
    }
    let broken = desk.command(&["employee", "list", "--set", "server.data_dir=/proc/nowhere"]).await;
    assert_eq!(broken.status.code(), Some(1), "{}", broken.said());
}

/// The dark and light squares of a QR code drawn with half blocks, as a picture with three dots a square.
fn picture_of(drawn: &[String]) -> Vec<Vec<bool>> {
    let mut rows = Vec::new();
    for line in drawn {
        let (upper, lower): (Vec<bool>, Vec<bool>) =
            line.chars().map(|c| (matches!(c, '█' | '▀'), matches!(c, '█' | '▄'))).unzip();
        rows.extend([upper, lower]);
    }
    rows
}

fn read_drawn(drawn: &[String]) -> String {
    const SIZE: usize = 4;
    let rows = picture_of(drawn);
    let width = rows.iter().map(Vec::len).max().expect("a row");
    let mut picture = rqrr::PreparedImage::prepare_from_greyscale(width * SIZE, rows.len() * SIZE, |x, y| {
        if rows[y / SIZE].get(x / SIZE).copied().unwrap_or(false) { 0 } else { 255 }
    });
    picture.detect_grids().first().expect("a QR code").decode().expect("a text").1
}

#[tokio::test]
async fn a_device_is_bound_from_the_code_in_the_terminal() {
    // Codes change every 30 s: begun when the next change is far enough away not to come in between.
    eventually("a step with time left", || async {
        (Clock::system().now().seconds().rem_euclid(30) < 20).then_some(())
    })
    .await;
    let desk = Gateway::start().await;
    let mut bind = desk.command_begun(&["employee", "otp-bind", "a2001"]);
    let mut input = bind.stdin.take().expect("an input");
    let mut output = BufReader::new(bind.stdout.take().expect("an output"));
    let bound = tokio::task::spawn_blocking(move || {
        let (mut drawn, mut line) = (Vec::new(), String::new());
        while !line.contains("or type in:") {
            drawn.push(line.trim_end_matches('\n').to_owned());
            line.clear();
            assert_ne!(output.read_line(&mut line).expect("a line"), 0, "{drawn:?}");
        }
        let url = read_drawn(&drawn);
        let text = query_of(&url, "secret").expect("a secret");
        assert!(line.contains(&text), "the secret can be typed in: {line}");
        let secret = OtpSecret::from_bytes(&base32(&text)).expect("a secret");
        let code = |steps| secret.code(Step::from_number(Step::at(Clock::system().now()).number() + steps)).text();
        let wrong = if code(0) == "000000" { "111111" } else { "000000" };
        writeln!(input, "{wrong}\n{}", code(-1)).expect("codes");
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("the rest");
        assert!(bind.wait().expect("an end").success(), "{rest}");
        (secret, text)
    });
    let (secret, text) = within(PATIENCE, "the device", bound).await.expect("no failure");
    assert_eq!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["otp_bound"], true);
    let code = secret.code(Step::at(Clock::system().now())).text();
    let anton = desk.sign_in("a2001").await;
    anton.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(0);
    assert!(!desk.logs().contains(&text), "a secret is in the log");

    desk.command(&["employee", "otp-remove", "a2001", "--yes"]).await.success();
    assert_eq!(anton.get("/api/auth/otp-status").await.expect_code(0).data()["bound"], false);
}

#[tokio::test]
async fn wrong_codes_bind_nothing() {
    let desk = Gateway::start().await;
    let ran = desk.command_hearing(&["employee", "otp-bind", "a2001"], "1\n2\n3\n").await;
    assert_eq!(ran.status.code(), Some(4), "{}", ran.said());
    let ended = desk.command_hearing(&["employee", "otp-bind", "a2001"], "").await;
    assert_eq!(ended.status.code(), Some(1), "{}", ended.said());
    assert_eq!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["otp_bound"], false);
}

#[tokio::test]
async fn a_locked_account_is_unlocked() {
    let desk = Gateway::start().await;
    desk.command_hearing(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.success();
    for _ in 0..5 {
        login(&desk, json!({ "employee_id": "a2001", "password": "wrong" })).await.expect_code(1011);
    }
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(1429);
    desk.command(&["employee", "unlock", "a2001"]).await.success();
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0);
    let again = desk.command(&["employee", "unlock", "m5001", "--json"]).await.success();
    assert_eq!(serde_json::from_str::<Value>(&again).expect("JSON")["changed"], false);
}

#[tokio::test]
async fn an_agent_who_must_have_a_device_gets_half_a_token() {
    let desk = Gateway::start().await;
    desk.command_hearing(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.success();
    desk.command(&["agent", "change", "a2001", "--otp-required", "true"]).await.success();
    let data = login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
    assert_eq!(claims_of(data["token"].as_str().expect("a token"))["stage"], "otp_binding");
    desk.command(&["agent", "change", "a2001", "--otp-required", "false"]).await.success();
    let data = login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
    assert_eq!(claims_of(data["token"].as_str().expect("a token"))["stage"], "full");
}

#[tokio::test]
async fn the_login_log_is_read() {
    let desk = Gateway::start().await;
    desk.sign_in("u1001").await;
    login(&desk, json!({ "employee_id": "a2001", "password": "wrong" })).await.expect_code(1011);
    let all = listed(&desk, &["employee", "logins"]).await;
    assert_eq!((&all[0]["employee_id"], &all[0]["result"]), (&json!("a2001"), &json!("refused")), "{all:?}");
    let own = listed(&desk, &["employee", "logins", "u1001"]).await;
    assert!(!own.is_empty() && own.iter().all(|line| line["employee_id"] == "u1001"), "{own:?}");
    assert_eq!(listed(&desk, &["employee", "logins", "--limit", "1"]).await.len(), 1);
    let table = desk.command(&["employee", "logins"]).await.success();
    assert!(table.starts_with("WHEN"), "{table}");
}

#[tokio::test]
async fn people_are_changed_while_no_gateway_runs() {
    let mut desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    desk.terminate().await;
    desk.command(&["employee", "disable", "u1001"]).await.success();
    desk.command_hearing(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.success();
    desk.restart().await;
    alice.get("/api/auth/me").await.expect_invalid_token();
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0);
}

#[tokio::test]
async fn all_sessions_of_an_employee_are_ended() {
    let desk = Gateway::start().await;
    let (one, two, other) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    assert_eq!(listed(&desk, &["session", "list", "--employee", "u1001"]).await.len(), 2);
    let said = desk.command(&["session", "end", "--employee", "u1001"]).await.success();
    assert!(said.contains('2'), "{said}");
    for client in [&one, &two] {
        client.get("/api/auth/me").await.expect_invalid_token();
    }
    other.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn a_sign_in_from_a_new_device_is_marked() {
    const CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
                          Chrome/140.0.0.0 Safari/537.36";
    const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
    let desk = Gateway::start().await;
    let sign_in = |browser: &'static str| {
        let client = desk.anyone().with_header("User-Agent", browser);
        async move {
            let answer = client.post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await;
            client.bearing(answer.expect_code(0).data()["token"].as_str().expect("a token"))
        }
    };
    let newer = CHROME.replace("140", "141").leak();
    let mut marks = Vec::new();
    for browser in [CHROME, FIREFOX, CHROME, newer] {
        let client = sign_in(browser).await;
        let items = client.get("/api/auth/sessions").await.expect_code(0).data()["items"].clone();
        let own = items.as_array().expect("a list").iter().find(|item| item["current"] == true).expect("mine").clone();
        marks.push(own["new_device"].clone());
    }
    assert_eq!(marks, [json!(true), json!(true), json!(false), json!(false)]);
    let table = desk.command(&["session", "list"]).await.success();
    assert_eq!(table.matches("(new)").count(), 2, "{table}");
}

#[test]
fn shells_get_completions() {
    let program = env!("CARGO_BIN_EXE_deskgate");
    for shell in ["bash", "zsh", "fish"] {
        let ran = std::process::Command::new(program).args(["completions", shell]).output().expect("the program");
        assert!(ran.success().contains("otp-bind"), "{shell}");
    }
}
