//! `deskgate employee` and `deskgate agent`: nobody needs SQL, and live sessions follow at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use deskgate::directory::Directory;
use deskgate::directory::factors::{Account, Factors, InPlaceOf};
use deskgate::directory::people::People;
use deskgate::directory::sql::SqlDirectory;
use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::role::RoleName;
use deskgate::signin::totp::{OtpSecret, Step};

use crate::support::*;

const GOOD: &str = "correct horse battery staple";
const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\
                    01234567890123456789012345678";

/// The directory behind a gateway's back.
async fn directory(desk: &Gateway) -> SqlDirectory {
    SqlDirectory::open(&desk.data_dir().join("directory.db"), Clock::system()).await.expect("the directory")
}

async fn roles_of(client: &Client) -> Value {
    client.get("/api/auth/me").await.expect_code(0).data()["roles"].clone()
}

async fn listed(desk: &Gateway, what: &[&str]) -> Vec<Value> {
    let args: Vec<&str> = what.iter().copied().chain(["--json"]).collect();
    let text = desk.command(&args).await.expect_success();
    serde_json::from_str::<Value>(&text).expect("JSON").as_array().expect("a list").clone()
}

async fn one(desk: &Gateway, what: &[&str], employee: &str) -> Option<Value> {
    listed(desk, what).await.into_iter().find(|row| row["employee_id"] == employee)
}

async fn login(desk: &Gateway, body: Value) -> Response {
    desk.anonymous().post_json("/api/agents/login", &body).await
}

#[tokio::test]
async fn agents_are_added_and_removed_by_command() {
    let desk = Gateway::start().await;
    desk.command(&["employee", "add", "b7700", "--name", "Berta 伯塔", "--department", "IT"]).await.expect_success();
    desk.command(&["agent", "add", "b7700", "--role", "agent"]).await.expect_success();
    let agent = one(&desk, &["agent", "list"], "b7700").await.expect("an agent");
    assert_eq!((&agent["password"], &agent["role"]), (&json!(false), &json!("agent")), "{agent}");
    login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(1011);

    desk.command_with_input(&["agent", "password", "b7700"], &format!("{GOOD}\n")).await.expect_success();
    let data = login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(0).data();
    assert_eq!((&data["name"], &data["current_role"]), (&json!("Berta 伯塔"), &json!("agent")));
    let berta = desk.with_token(data["token"].as_str().expect("a token"));
    berta.get("/api/agent-desk/x").await.expect_status(200);

    desk.command(&["agent", "password", "b7700", "--clear", "--yes"]).await.expect_success();
    login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(1011);
    berta.get("/api/auth/me").await.expect_invalid_token();
    let berta = desk.sign_in("b7700").await;
    berta.get("/api/agent-desk/x").await.expect_status(200);
    desk.command(&["agent", "remove", "b7700", "--yes"]).await.expect_success();
    assert_eq!(one(&desk, &["agent", "list"], "b7700").await, None);
    let me = berta.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(me["roles"], json!(["user"]), "the role of the record is gone from the live session");
    berta.get("/api/agent-desk/x").await.expect_code(1003);

    desk.command(&["employee", "remove", "b7700", "--yes"]).await.expect_success();
    berta.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(one(&desk, &["employee", "list"], "b7700").await, None);
}

#[tokio::test]
async fn generated_password_is_printed_and_works() {
    let desk = Gateway::start().await;
    let said = desk.command(&["agent", "password", "a2001", "--generate", "--json"]).await.expect_success();
    let said: Value = serde_json::from_str(&said).expect("one document");
    let password = said["password"].as_str().expect("a password").to_owned();
    login(&desk, json!({ "employee_id": "a2001", "password": password })).await.expect_code(0);
    assert!(!desk.logs().contains(&password), "a password is in the log");
}

#[tokio::test]
async fn weak_passwords_are_refused_with_advice() {
    let desk = Gateway::start().await;
    for (password, advice) in [("short\n", "at least 8"), ("password1\n", "guess"), ("a2001a2001\n", "")] {
        let ran = desk.command_with_input(&["agent", "password", "a2001"], password).await;
        assert_eq!(ran.status.code(), Some(4), "{password}: {}", ran.output_text());
        assert!(ran.output_text().contains(advice), "{password}: {}", ran.output_text());
    }
    let nothing = desk.command_with_input(&["agent", "password", "a2001"], "").await;
    assert_eq!(nothing.status.code(), Some(1), "{}", nothing.output_text());
    assert_eq!(one(&desk, &["agent", "list"], "a2001").await.expect("an agent")["password"], false);
}

#[tokio::test]
async fn disabling_an_employee_closes_websockets_within_100_ms() {
    let desk = Gateway::start().await;
    let mut times = Vec::new();
    for round in 0..5 {
        let mut socket = desk.sign_in("a2001").await.websocket("/ws/agent").await;
        socket.echo("hello").await;
        desk.command(&["employee", "disable", "a2001"]).await.expect_success();
        let answered = Instant::now();
        assert_eq!(socket.close_code_within(Duration::from_secs(5)).await, Some(4401), "round {round}");
        times.push(answered.elapsed());
        desk.command(&["employee", "enable", "a2001"]).await.expect_success();
    }
    assert_within_revocation_bound(times);
}

#[tokio::test]
async fn disabling_an_employee_ends_sessions() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let other = desk.sign_in("a2001").await;
    let mut socket = alice.websocket("/ws/agent").await;
    socket.echo("hello").await;
    let said = desk.command(&["employee", "disable", "a2001", "--json"]).await.expect_success();
    assert_eq!(
        serde_json::from_str::<Value>(&said).expect("JSON"),
        json!({ "changed": true, "sessions": 2, "note": null })
    );
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
    for client in [&alice, &other] {
        client.get("/api/auth/me").await.expect_invalid_token();
    }
    desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "a2001" })).await.expect_code(1003);
    assert_eq!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["standing"], "disabled");

    desk.command(&["employee", "enable", "a2001"]).await.expect_success();
    desk.sign_in("a2001").await.get("/api/auth/me").await.expect_code(0);
    alice.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn employee_changes_reach_live_sessions() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    alice.get("/api/desk/x").await.expect_status(200);
    desk.command(&["employee", "change", "a2001", "--name", "Antonia", "--department", "HR"]).await.expect_success();
    let me = alice.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["name"], &me["department"]), (&json!("Antonia"), &json!("HR")));
    alice.get("/api/desk/x").await.expect_status(200);
    assert_eq!(desk.upstream.last_request().header("x-deskgate-department"), Some("HR"));
    let again = desk.command(&["employee", "change", "a2001", "--name", "Antonia", "--json"]).await.expect_success();
    assert_eq!(serde_json::from_str::<Value>(&again).expect("JSON")["changed"], false);
}

#[tokio::test]
async fn last_administrator_cannot_be_removed() {
    let desk = Gateway::start().await;
    for args in [
        &["role", "take", "m5001", "admin"][..],
        &["employee", "disable", "m5001"],
        &["employee", "remove", "m5001", "--yes"],
    ] {
        let ran = desk.command(args).await;
        assert_eq!(ran.status.code(), Some(4), "{args:?}: {}", ran.output_text());
        assert!(ran.output_text().contains("last administrator"), "{args:?}: {}", ran.output_text());
    }
    // Somebody who may not sign in is no administrator to rely on.
    desk.command(&["role", "grant", "s3001", "admin"]).await.expect_success();
    desk.command(&["employee", "disable", "s3001"]).await.expect_success();
    assert_eq!(desk.command(&["employee", "disable", "m5001"]).await.status.code(), Some(4));
    assert_eq!(desk.command(&["role", "take", "m5001", "admin"]).await.status.code(), Some(4));
    desk.command(&["employee", "enable", "s3001"]).await.expect_success();
    desk.command(&["employee", "disable", "m5001"]).await.expect_success();
    assert_eq!(
        desk.command(&["employee", "disable", "s3001"]).await.status.code(),
        Some(4),
        "now this one is the last"
    );
}

#[tokio::test]
async fn agent_record_of_the_last_administrator_cannot_be_removed() {
    let desk = Gateway::start().await;
    desk.command(&["employee", "add", "b7700"]).await.expect_success();
    desk.command(&["agent", "add", "b7700", "--role", "admin"]).await.expect_success();
    desk.command(&["employee", "disable", "m5001"]).await.expect_success();
    for args in [&["agent", "remove", "b7700", "--yes"][..], &["agent", "change", "b7700", "--role", "agent"]] {
        let ran = desk.command(args).await;
        assert_eq!(ran.status.code(), Some(4), "{args:?}: {}", ran.output_text());
    }
    desk.command(&["agent", "change", "b7700", "--otp-required", "true"]).await.expect_success();
}

#[tokio::test]
async fn exit_codes_tell_success_from_failure() {
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
        (4, &["employee", "change", "u1001", "--name", ""]),
        (4, &["employee", "change", "u1001", "--name", "\u{1b}[31m"]),
        (4, &["employee", "change", "u1001", "--department", LONG]),
        (3, &["session", "list", "--employee", "nobody"]),
        (3, &["role", "list", "--employee", "nobody"]),
        (3, &["employee", "logins", "nobody"]),
        (3, &["agent", "password", "u1001", "--clear", "--yes"]),
        (4, &["agent", "add", "a2001"]),
        (4, &["agent", "add", "u1001", "--role", "no role"]),
        (5, &["employee", "remove", "u1001"]),
        (5, &["employee", "otp-remove", "u1001"]),
        (5, &["agent", "remove", "a2001"]),
        (5, &["agent", "password", "a2001", "--clear"]),
        (5, &["key", "remove", "eddsa-1-x"]),
    ] {
        let ran = desk.command(args).await;
        assert_eq!(ran.status.code(), Some(code), "{args:?}: {}", ran.output_text());
        assert_eq!(
            ran.stderr.is_empty(),
            code == 0,
            "{args:?} says why on standard error alone: {}",
            ran.output_text()
        );
        assert!(code == 0 || ran.stdout.is_empty(), "{args:?}: {}", ran.output_text());
    }
    let broken = desk.command(&["employee", "list", "--set", "server.data_dir=/proc/nowhere"]).await;
    assert_eq!(broken.status.code(), Some(1), "{}", broken.output_text());
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

/// Binds a device to a2001 as a person would, with a wrong code first: its secret, and that as it can be typed in.
async fn bind_in_terminal(desk: &Gateway) -> (OtpSecret, String) {
    wait_for_otp_step_with_time_left().await;
    let mut bind = desk.spawn_command(&["employee", "otp-bind", "a2001"]);
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
        let text = query_parameter(&url, "secret").expect("a secret");
        assert!(line.contains(&text), "the secret can be typed in: {line}");
        let secret = OtpSecret::from_bytes(&decode_base32(&text)).expect("a secret");
        let code = |steps| secret.code(Step::from_number(Step::at(Clock::system().now()).number() + steps)).text();
        let wrong = if code(0) == "000000" { "111111" } else { "000000" };
        writeln!(input, "{wrong}\n{}", code(-1)).expect("codes");
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("the rest");
        assert!(bind.wait().expect("an end").success(), "{rest}");
        (secret, text)
    });
    within(TEST_TIMEOUT, "the device", bound).await.expect("no failure")
}

#[tokio::test]
async fn a_device_is_bound_from_the_code_in_the_terminal() {
    let desk = Gateway::start().await;
    let (secret, text) = bind_in_terminal(&desk).await;
    assert_eq!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["otp_bound"], true);
    let code = secret.code(Step::at(Clock::system().now())).text();
    let alice = desk.sign_in("a2001").await;
    alice.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(0);
    assert!(!desk.logs().contains(&text), "a secret is in the log");

    desk.command(&["employee", "otp-remove", "a2001", "--yes"]).await.expect_success();
    assert_eq!(alice.get("/api/auth/otp-status").await.expect_code(0).data()["bound"], false);
}

#[tokio::test]
async fn a_device_is_bound_while_no_gateway_runs() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    let (secret, _) = bind_in_terminal(&desk).await;
    desk.restart().await;
    let code = secret.code(Step::at(Clock::system().now())).text();
    desk.sign_in("a2001").await.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(0);
}

#[tokio::test]
async fn device_replacement_needs_an_explicit_flag() {
    let desk = Gateway::start().await;
    let (first, _) = bind_in_terminal(&desk).await;
    let ran = desk.command_with_input(&["employee", "otp-bind", "a2001"], "000000\n").await;
    assert_eq!(ran.status.code(), Some(5), "{}", ran.output_text());
    assert!(ran.output_text().contains("--yes"), "{}", ran.output_text());
    assert!(!ran.output_text().contains("type in:"), "a secret is shown");
    let code = first.code(Step::at(Clock::system().now())).text();
    desk.sign_in("a2001").await.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(0);
    let alice = desk.sign_in("a2001").await;
    let next = first.code(Step::from_number(Step::at(Clock::system().now()).number() + 1)).text();
    alice.post_json("/api/auth/otp-verify", &json!({ "code": next })).await.expect_code(0);
    let data = alice.post("/api/auth/otp-setup").await.expect_code(0).data();
    let second = OtpSecret::from_bytes(&decode_base32(data["secret"].as_str().expect("text"))).expect("a secret");
    let ran = desk.command_with_input(&["employee", "otp-bind", "a2001"], "").await;
    assert_eq!(ran.status.code(), Some(5), "{}", ran.output_text());
    let code = second.code(Step::at(Clock::system().now())).text();
    let bound = alice.post_json("/api/auth/otp-bind", &json!({ "code": code })).await;
    assert_eq!(bound.code(), 0, "what the owner has begun stays: {}", bound.describe());
    let meant = desk.command_with_input(&["employee", "otp-bind", "a2001", "--yes"], "").await;
    assert_eq!(meant.status.code(), Some(1), "no code came: {}", meant.output_text());
    assert!(meant.output_text().contains("type in:"), "{}", meant.output_text());
}

#[tokio::test]
async fn wrong_codes_bind_nothing() {
    let desk = Gateway::start().await;
    let ran = desk.command_with_input(&["employee", "otp-bind", "a2001"], "000 000\n111111\n222222\n").await;
    assert_eq!(ran.status.code(), Some(4), "{}", ran.output_text());
    let ended = desk.command_with_input(&["employee", "otp-bind", "a2001"], "12345\nabc\n\n").await;
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output_text());
    assert_eq!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["otp_bound"], false);
}

#[tokio::test]
async fn a_locked_account_is_unlocked() {
    let desk = Gateway::start().await;
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    for _ in 0..5 {
        login(&desk, json!({ "employee_id": "a2001", "password": "wrong" })).await.expect_code(1011);
    }
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(1429);
    assert!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["locked_until"].is_string());
    desk.command(&["employee", "unlock", "a2001"]).await.expect_success();
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0);
    assert_eq!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["locked_until"], Value::Null);
    let again = desk.command(&["employee", "unlock", "m5001", "--json"]).await.expect_success();
    assert_eq!(serde_json::from_str::<Value>(&again).expect("JSON")["changed"], false);
}

#[tokio::test]
async fn agent_with_a_required_device_gets_a_half_authenticated_token() {
    let desk = Gateway::start().await;
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    desk.command(&["agent", "change", "a2001", "--otp-required", "true"]).await.expect_success();
    let data = login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
    assert_eq!(claims_of(data["token"].as_str().expect("a token"))["stage"], "otp_binding");
    desk.command(&["agent", "change", "a2001", "--otp-required", "false"]).await.expect_success();
    let data = login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
    assert_eq!(claims_of(data["token"].as_str().expect("a token"))["stage"], "full");
}

#[tokio::test]
async fn login_log_is_listed_by_command() {
    let desk = Gateway::start().await;
    desk.sign_in("u1001").await;
    login(&desk, json!({ "employee_id": "a2001", "password": "wrong" })).await.expect_code(1011);
    let all = listed(&desk, &["employee", "logins"]).await;
    assert_eq!((&all[0]["employee_id"], &all[0]["result"]), (&json!("a2001"), &json!("refused")), "{all:?}");
    let own = listed(&desk, &["employee", "logins", "u1001"]).await;
    assert!(!own.is_empty() && own.iter().all(|line| line["employee_id"] == "u1001"), "{own:?}");
    assert_eq!(listed(&desk, &["employee", "logins", "--limit", "1"]).await.len(), 1);
    let table = desk.command(&["employee", "logins"]).await.expect_success();
    assert!(table.starts_with("WHEN"), "{table}");
}

#[tokio::test]
async fn employees_change_without_a_running_gateway() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.terminate().await;
    desk.command(&["employee", "disable", "u1001"]).await.expect_success();
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    desk.restart().await;
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0);
}

#[tokio::test]
async fn all_sessions_of_an_employee_end_by_command() {
    let desk = Gateway::start().await;
    let (one, two, other) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    assert_eq!(listed(&desk, &["session", "list", "--employee", "u1001"]).await.len(), 2);
    let said = desk.command(&["session", "end", "--employee", "u1001"]).await.expect_success();
    assert!(said.contains('2'), "{said}");
    for client in [&one, &two] {
        client.get("/api/auth/me").await.expect_invalid_token();
    }
    other.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn login_log_marks_new_devices() {
    const CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
                          Chrome/140.0.0.0 Safari/537.36";
    const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
    let desk = Gateway::start().await;
    let sign_in = |browser: &'static str| {
        let client = desk.anonymous().with_header("User-Agent", browser);
        async move {
            let response = client.post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await;
            client.with_token(response.expect_code(0).data()["token"].as_str().expect("a token"))
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
    let table = desk.command(&["session", "list"]).await.expect_success();
    assert_eq!(table.matches("(new)").count(), 2, "{table}");
}

#[test]
fn shell_completions_are_generated() {
    let program = env!("CARGO_BIN_EXE_deskgate");
    for shell in ["bash", "zsh", "fish"] {
        let ran = std::process::Command::new(program).args(["completions", shell]).output().expect("the program");
        assert!(ran.expect_success().contains("otp-bind"), "{shell}");
    }
}

#[tokio::test]
async fn interrupted_command_is_completed_by_repeating_it() {
    let desk = Gateway::start().await;
    let (alice, xiaoming) = (desk.sign_in("a2001").await, desk.sign_in("u1001").await);
    let behind = directory(&desk).await;
    let corp = CorpId::new("wwdemo");
    behind.take(&corp, &EmployeeId::new("a2001"), &RoleName::new("agent")).await.expect("taken");
    let xiaoming_id = EmployeeId::new("u1001");
    behind.remove_employee(Account { corp_id: &corp, employee_id: &xiaoming_id }).await.expect("removed");
    assert_eq!(roles_of(&alice).await, json!(["agent", "user"]), "so far the directory alone is changed");

    desk.command(&["role", "take", "a2001", "agent"]).await.expect_success();
    assert_eq!(roles_of(&alice).await, json!(["user"]));
    desk.command(&["employee", "remove", "u1001", "--yes"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(desk.command(&["employee", "remove", "u1001", "--yes"]).await.status.code(), Some(3));
}

#[tokio::test]
async fn sessions_of_a_removed_password_end_on_repeat_or_restart() {
    let mut desk = Gateway::start().await;
    let (corp, id) = (CorpId::new("wwdemo"), EmployeeId::new("a2001"));
    let whose = Account { corp_id: &corp, employee_id: &id };
    let sign_in = async |desk: &Gateway| {
        desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
        let data = login(desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
        desk.with_token(data["token"].as_str().expect("a token"))
    };
    // Cut off between the directory and the sessions.
    let alice = sign_in(&desk).await;
    let by_platform = desk.sign_in_by_qrcode("a2001").await;
    directory(&desk).await.remove_agent(whose).await.expect("removed");
    alice.get("/api/auth/me").await.expect_code(0);
    desk.command(&["agent", "remove", "a2001", "--yes"]).await.expect_success();
    alice.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(desk.command(&["agent", "remove", "a2001", "--yes"]).await.status.code(), Some(3));

    desk.command(&["agent", "add", "a2001"]).await.expect_success();
    let alice = sign_in(&desk).await;
    let change = json!({ "old_password": GOOD, "new_password": "tidal meadow 47 envelope" });
    alice.post_json("/api/agents/password", &change).await.expect_code(0);
    desk.restart().await;
    alice.get("/api/auth/me").await.expect_code(0);
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$cGFzc3dvcmQ";
    directory(&desk).await.set_password(whose, hash, InPlaceOf::Any).await.expect("set").expect("an agent");
    desk.restart().await;
    eventually("the end of the session", || async { (alice.get("/api/auth/me").await.code() == 1001).then_some(()) })
        .await;
    by_platform.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn sessions_of_a_removed_employee_can_be_ended() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let (corp, id) = (CorpId::new("wwdemo"), EmployeeId::new("u1001"));
    let whose = Account { corp_id: &corp, employee_id: &id };
    directory(&desk).await.remove_employee(whose).await.expect("removed");
    desk.command(&["session", "end", "--employee", "u1001"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn interrupted_changes_are_completed_at_start() {
    let mut desk = Gateway::start().await;
    let (alice, xiaoming) = (desk.sign_in("a2001").await, desk.sign_in("u1001").await);
    desk.sigkill();
    let behind = directory(&desk).await;
    let corp = CorpId::new("wwdemo");
    behind.take(&corp, &EmployeeId::new("a2001"), &RoleName::new("agent")).await.expect("taken");
    let id = EmployeeId::new("u1001");
    behind.remove_employee(Account { corp_id: &corp, employee_id: &id }).await.expect("removed");
    desk.restart().await;
    eventually("roles of now", || async { (roles_of(&alice).await == json!(["user"])).then_some(()) }).await;
    eventually("the end", || async { (xiaoming.get("/api/auth/me").await.status == 401).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_changes_all_reach_sessions() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    for round in 0..15 {
        let (one, two) = tokio::join!(
            desk.command(&["role", "grant", "a2001", "supervisor"]),
            desk.command(&["role", "take", "a2001", "agent"])
        );
        one.expect_success();
        two.expect_success();
        assert_eq!(roles_of(&alice).await, json!(["user", "supervisor"]), "round {round}");
        let (one, two) = tokio::join!(
            desk.command(&["role", "take", "a2001", "supervisor"]),
            desk.command(&["role", "grant", "a2001", "agent"])
        );
        one.expect_success();
        two.expect_success();
        assert_eq!(roles_of(&alice).await, json!(["agent", "user"]), "round {round}");
    }
}

#[tokio::test]
async fn revoking_a_role_of_the_agent_record_is_reported() {
    let desk = Gateway::start().await;
    let said = desk.command(&["role", "take", "s3001", "supervisor"]).await.expect_success();
    assert!(said.contains("agent's record"), "{said}");
    let again = desk.command(&["role", "take", "s3001", "supervisor"]).await;
    assert_eq!(again.status.code(), Some(4), "{}", again.output_text());
    let odd = desk.command(&["role", "grant", "u1001", "Admin"]).await.expect_success();
    assert!(odd.contains("none of user, agent"), "{odd}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_in_racing_a_password_removal_is_refused() {
    let desk = Gateway::start().await;
    for _ in 0..5 {
        desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
        let logins: Vec<_> = (0..6)
            .map(|_| {
                let anonymous = desk.anonymous();
                let body = json!({ "employee_id": "a2001", "password": GOOD });
                tokio::spawn(async move { anonymous.post_json("/api/agents/login", &body).await })
            })
            .collect();
        desk.command(&["agent", "password", "a2001", "--clear", "--yes"]).await.expect_success();
        desk.command(&["session", "end", "--employee", "a2001"]).await.expect_success();
        for login in logins {
            let response = within(TEST_TIMEOUT, "a login", login).await.expect("a response");
            if let Some(token) = response.data()["token"].as_str() {
                desk.with_token(token).get("/api/auth/me").await.expect_invalid_token();
            }
        }
    }
}

#[tokio::test]
async fn password_removal_ends_its_sessions() {
    let desk = Gateway::start().await;
    let by_platform = desk.sign_in_by_qrcode("a2001").await;
    let by_password = |password: &'static str| {
        let desk = &desk;
        async move {
            let response = login(desk, json!({ "employee_id": "a2001", "password": password })).await;
            desk.with_token(response.expect_code(0).data()["token"].as_str().expect("a token"))
        }
    };
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    let (first, second) = (by_password(GOOD).await, by_password(GOOD).await);
    let change = json!({ "old_password": GOOD, "new_password": "tidal meadow 47 envelope" });
    first.post_json("/api/agents/password", &change).await.expect_code(0);
    second.get("/api/auth/me").await.expect_invalid_token();
    first.get("/api/auth/me").await.expect_code(0);
    desk.command(&["agent", "password", "a2001", "--clear", "--yes"]).await.expect_success();
    first.get("/api/auth/me").await.expect_invalid_token();
    by_platform.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn login_log_has_the_reason_hidden_from_the_client() {
    let desk = Gateway::start().await;
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    desk.command_with_input(&["agent", "password", "s3001"], &format!("{GOOD}\n")).await.expect_success();
    desk.command(&["employee", "disable", "s3001"]).await.expect_success();
    for (employee, reason) in [
        ("a2001", "wrong_password"),
        ("m5001", "no_password"),
        ("s3001", "disabled"),
        ("u1001", "not_an_agent"),
        ("z9999", "unknown_employee"),
    ] {
        login(&desk, json!({ "employee_id": employee, "password": "wrong" })).await.expect_code(1011);
        let line = listed(&desk, &["employee", "logins", "--limit", "1"]).await.remove(0);
        assert_eq!((&line["employee_id"], &line["reason"]), (&json!(employee), &json!(reason)), "{line}");
        assert!(line["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{line}");
    }
}

#[tokio::test]
async fn closed_stdout_is_not_an_error() {
    let desk = Gateway::start().await;
    let program = env!("CARGO_BIN_EXE_deskgate");
    for command in ["employee list", "employee logins", "completions bash"] {
        let config = if command.starts_with("completions") {
            String::new()
        } else {
            format!(" --config '{}'", desk.config_file().display())
        };
        let script = format!("set -o pipefail; '{program}' {command}{config} | true");
        let ran = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash");
        assert!(ran.status.success() && ran.stderr.is_empty(), "{command}: {}", ran.output_text());
    }
}

#[tokio::test]
async fn commands_create_no_directories() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Gateway::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (none, foreign) = (folder.path().join("none"), folder.path().join("foreign"));
    std::fs::create_dir(&foreign).expect("a folder");
    std::fs::write(foreign.join("letter.txt"), "dear").expect("a file");
    std::fs::set_permissions(&foreign, std::fs::Permissions::from_mode(0o755)).expect("open");
    for (data, says) in [(&none, "no gateway has run"), (&foreign, "not deskgate's")] {
        let set = format!("server.data_dir={}", data.display());
        let ran = desk.command(&["employee", "list", "--set", &set]).await;
        assert_eq!(ran.status.code(), Some(1), "{}", ran.output_text());
        assert!(ran.output_text().contains(says), "{}", ran.output_text());
    }
    assert!(!none.exists());
    assert_eq!(std::fs::read_dir(&foreign).expect("a folder").count(), 1);
    assert_eq!(std::fs::metadata(&foreign).expect("a folder").permissions().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn employees_can_be_added_before_the_first_start() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    std::fs::remove_dir_all(desk.data_dir()).expect("gone");
    std::fs::create_dir(desk.data_dir()).expect("an empty one");
    desk.command(&["employee", "add", "b7700"]).await.expect_success();
    desk.command(&["role", "grant", "b7700", "user"]).await.expect_success();
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    desk.restart().await;
    desk.sign_in("b7700").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn concurrent_commands_are_serialized() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    let ids = ["b1", "b2", "b3", "b4"];
    let commands = ids.map(|id| [String::from("employee"), String::from("add"), id.to_owned()]);
    let running = commands.iter().map(|args| async {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        desk.command(&args).await
    });
    for ran in futures::future::join_all(running).await {
        ran.expect_success();
        assert!(ran.output_text().contains("employee add"), "offline, too, a change is told: {}", ran.output_text());
    }
    assert_eq!(
        listed(&desk, &["employee", "list", "b"]).await.iter().filter(|row| row["name"] == row["employee_id"]).count(),
        4
    );
}
