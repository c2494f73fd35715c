//! `deskgate employee` and `deskgate agent`: nobody needs SQL, and live sessions follow at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use deskgate::directory::Directory;
use deskgate::directory::factors::{Account, ExpectedPassword, Factors};
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
    berta.get("/api/auth/me").await.expect_invalid_token();
    let berta = desk.sign_in("b7700").await;
    berta.get("/api/agent-desk/x").await.expect_status(200);
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
    let said = desk.command(&["agent", "password", "a2001", "--generate", "--json"]).await.success();
    let said: Value = serde_json::from_str(&said).expect("one document");
    let password = said["password"].as_str().expect("a password").to_owned();
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
async fn a_disabled_employees_sockets_end_within_100_ms() {
    let desk = Gateway::start().await;
    let mut times = Vec::new();
    for round in 0..5 {
        let mut socket = desk.sign_in("a2001").await.websocket("/ws/agent").await;
        socket.echo("hello").await;
        desk.command(&["employee", "disable", "a2001"]).await.success();
        let answered = Instant::now();
        assert_eq!(socket.closed_within(Duration::from_secs(5)).await, Some(4401), "round {round}");
        times.push(answered.elapsed());
        desk.command(&["employee", "enable", "a2001"]).await.success();
    }
    within_the_bound(times);
}

#[tokio::test]
async fn a_disabled_employees_sessions_end_at_once() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    let other = desk.sign_in("a2001").await;
    let mut socket = anton.websocket("/ws/agent").await;
    socket.echo("hello").await;
    let said = desk.command(&["employee", "disable", "a2001", "--json"]).await.success();
    assert_eq!(
        serde_json::from_str::<Value>(&said).expect("JSON"),
        json!({ "changed": true, "sessions": 2, "note": null })
    );
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

/// Binds a device to a2001 as a person would, with a wrong code first: its secret, and that as it can be typed in.
async fn bind_in_terminal(desk: &Gateway) -> (OtpSecret, String) {
    time_left_in_step().await;
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
    within(PATIENCE, "the device", bound).await.expect("no failure")
}

#[tokio::test]
async fn a_device_is_bound_from_the_code_in_the_terminal() {
    let desk = Gateway::start().await;
    let (secret, text) = bind_in_terminal(&desk).await;
    assert_eq!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["otp_bound"], true);
    let code = secret.code(Step::at(Clock::system().now())).text();
    let anton = desk.sign_in("a2001").await;
    anton.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(0);
    assert!(!desk.logs().contains(&text), "a secret is in the log");

    desk.command(&["employee", "otp-remove", "a2001", "--yes"]).await.success();
    assert_eq!(anton.get("/api/auth/otp-status").await.expect_code(0).data()["bound"], false);
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
async fn a_device_takes_the_place_of_another_only_when_that_is_meant() {
    let desk = Gateway::start().await;
    let (first, _) = bind_in_terminal(&desk).await;
    let ran = desk.command_hearing(&["employee", "otp-bind", "a2001"], "000000\n").await;
    assert_eq!(ran.status.code(), Some(5), "{}", ran.said());
    assert!(ran.said().contains("--yes"), "{}", ran.said());
    assert!(!ran.said().contains("type in:"), "a secret is shown");
    let code = first.code(Step::at(Clock::system().now())).text();
    desk.sign_in("a2001").await.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(0);
    let anton = desk.sign_in("a2001").await;
    let next = first.code(Step::from_number(Step::at(Clock::system().now()).number() + 1)).text();
    anton.post_json("/api/auth/otp-verify", &json!({ "code": next })).await.expect_code(0);
    let data = anton.post("/api/auth/otp-setup").await.expect_code(0).data();
    let second = OtpSecret::from_bytes(&base32(data["secret"].as_str().expect("text"))).expect("a secret");
    let ran = desk.command_hearing(&["employee", "otp-bind", "a2001"], "").await;
    assert_eq!(ran.status.code(), Some(5), "{}", ran.said());
    let code = second.code(Step::at(Clock::system().now())).text();
    let bound = anton.post_json("/api/auth/otp-bind", &json!({ "code": code })).await;
    assert_eq!(bound.code(), 0, "what the owner has begun stays: {}", bound.describe());
    let meant = desk.command_hearing(&["employee", "otp-bind", "a2001", "--yes"], "").await;
    assert_eq!(meant.status.code(), Some(1), "no code came: {}", meant.said());
    assert!(meant.said().contains("type in:"), "{}", meant.said());
}

#[tokio::test]
async fn wrong_codes_bind_nothing() {
    let desk = Gateway::start().await;
    let ran = desk.command_hearing(&["employee", "otp-bind", "a2001"], "000 000\n111111\n222222\n").await;
    assert_eq!(ran.status.code(), Some(4), "{}", ran.said());
    let ended = desk.command_hearing(&["employee", "otp-bind", "a2001"], "12345\nabc\n\n").await;
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
    assert!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["locked_until"].is_string());
    desk.command(&["employee", "unlock", "a2001"]).await.success();
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0);
    assert_eq!(one(&desk, &["employee", "list"], "a2001").await.expect("a row")["locked_until"], Value::Null);
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

#[tokio::test]
async fn an_order_that_was_cut_off_is_finished_by_repeating_it() {
    let desk = Gateway::start().await;
    let (anton, alice) = (desk.sign_in("a2001").await, desk.sign_in("u1001").await);
    let behind = directory(&desk).await;
    let corp = CorpId::new("wwdemo");
    behind.take(&corp, &EmployeeId::new("a2001"), &RoleName::new("agent")).await.expect("taken");
    let alice_id = EmployeeId::new("u1001");
    behind.remove_employee(Account { corp_id: &corp, employee_id: &alice_id }).await.expect("removed");
    assert_eq!(roles_of(&anton).await, json!(["agent", "user"]), "so far the directory alone is changed");

    desk.command(&["role", "take", "a2001", "agent"]).await.success();
    assert_eq!(roles_of(&anton).await, json!(["user"]));
    desk.command(&["employee", "remove", "u1001", "--yes"]).await.success();
    alice.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(desk.command(&["employee", "remove", "u1001", "--yes"]).await.status.code(), Some(3));
}

#[tokio::test]
async fn sessions_of_a_password_that_is_gone_end_when_the_order_is_repeated_or_at_the_next_start() {
    let mut desk = Gateway::start().await;
    let (corp, id) = (CorpId::new("wwdemo"), EmployeeId::new("a2001"));
    let whose = Account { corp_id: &corp, employee_id: &id };
    let sign_in = async |desk: &Gateway| {
        desk.command_hearing(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.success();
        let data = login(desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
        desk.bearing(data["token"].as_str().expect("a token"))
    };
    // Cut off between the directory and the sessions.
    let anton = sign_in(&desk).await;
    let by_platform = desk.sign_in_by_qrcode("a2001").await;
    directory(&desk).await.remove_agent(whose).await.expect("removed");
    anton.get("/api/auth/me").await.expect_code(0);
    desk.command(&["agent", "remove", "a2001", "--yes"]).await.success();
    anton.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(desk.command(&["agent", "remove", "a2001", "--yes"]).await.status.code(), Some(3));

    desk.command(&["agent", "add", "a2001"]).await.success();
    let anton = sign_in(&desk).await;
    let change = json!({ "old_password": GOOD, "new_password": "tidal meadow 47 envelope" });
    anton.post_json("/api/agents/password", &change).await.expect_code(0);
    desk.restart().await;
    anton.get("/api/auth/me").await.expect_code(0);
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$cGFzc3dvcmQ";
    directory(&desk).await.set_password(whose, hash, ExpectedPassword::Any).await.expect("set").expect("an agent");
    desk.restart().await;
    eventually("the end of the session", || async { (anton.get("/api/auth/me").await.code() == 1001).then_some(()) })
        .await;
    by_platform.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn sessions_of_somebody_who_is_gone_can_be_ended() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let (corp, id) = (CorpId::new("wwdemo"), EmployeeId::new("u1001"));
    let whose = Account { corp_id: &corp, employee_id: &id };
    directory(&desk).await.remove_employee(whose).await.expect("removed");
    desk.command(&["session", "end", "--employee", "u1001"]).await.success();
    alice.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn what_a_crash_cut_off_is_made_whole_at_the_start() {
    let mut desk = Gateway::start().await;
    let (anton, alice) = (desk.sign_in("a2001").await, desk.sign_in("u1001").await);
    desk.kill_9();
    let behind = directory(&desk).await;
    let corp = CorpId::new("wwdemo");
    behind.take(&corp, &EmployeeId::new("a2001"), &RoleName::new("agent")).await.expect("taken");
    let id = EmployeeId::new("u1001");
    behind.remove_employee(Account { corp_id: &corp, employee_id: &id }).await.expect("removed");
    desk.restart().await;
    eventually("roles of now", || async { (roles_of(&anton).await == json!(["user"])).then_some(()) }).await;
    eventually("the end", || async { (alice.get("/api/auth/me").await.status == 401).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_changes_at_once_sessions_have_both() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    for round in 0..15 {
        let (one, two) = tokio::join!(
            desk.command(&["role", "grant", "a2001", "supervisor"]),
            desk.command(&["role", "take", "a2001", "agent"])
        );
        one.success();
        two.success();
        assert_eq!(roles_of(&anton).await, json!(["user", "supervisor"]), "round {round}");
        let (one, two) = tokio::join!(
            desk.command(&["role", "take", "a2001", "supervisor"]),
            desk.command(&["role", "grant", "a2001", "agent"])
        );
        one.success();
        two.success();
        assert_eq!(roles_of(&anton).await, json!(["agent", "user"]), "round {round}");
    }
}

#[tokio::test]
async fn a_role_of_the_agents_record_is_told_when_it_is_taken() {
    let desk = Gateway::start().await;
    let said = desk.command(&["role", "take", "s3001", "supervisor"]).await.success();
    assert!(said.contains("agent's record"), "{said}");
    let again = desk.command(&["role", "take", "s3001", "supervisor"]).await;
    assert_eq!(again.status.code(), Some(4), "{}", again.said());
    let odd = desk.command(&["role", "grant", "u1001", "Admin"]).await.success();
    assert!(odd.contains("none of user, agent"), "{odd}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_that_races_the_end_of_its_password_loses() {
    let desk = Gateway::start().await;
    for _ in 0..5 {
        desk.command_hearing(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.success();
        let logins: Vec<_> = (0..6)
            .map(|_| {
                let anyone = desk.anyone();
                let body = json!({ "employee_id": "a2001", "password": GOOD });
                tokio::spawn(async move { anyone.post_json("/api/agents/login", &body).await })
            })
            .collect();
        desk.command(&["agent", "password", "a2001", "--clear", "--yes"]).await.success();
        desk.command(&["session", "end", "--employee", "a2001"]).await.success();
        for login in logins {
            let answer = within(PATIENCE, "a login", login).await.expect("an answer");
            if let Some(token) = answer.data()["token"].as_str() {
                desk.bearing(token).get("/api/auth/me").await.expect_invalid_token();
            }
        }
    }
}

#[tokio::test]
async fn who_signed_in_with_a_password_that_is_no_more_is_out() {
    let desk = Gateway::start().await;
    let by_platform = desk.sign_in_by_qrcode("a2001").await;
    let by_password = |password: &'static str| {
        let desk = &desk;
        async move {
            let answer = login(desk, json!({ "employee_id": "a2001", "password": password })).await;
            desk.bearing(answer.expect_code(0).data()["token"].as_str().expect("a token"))
        }
    };
    desk.command_hearing(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.success();
    let (first, second) = (by_password(GOOD).await, by_password(GOOD).await);
    let change = json!({ "old_password": GOOD, "new_password": "tidal meadow 47 envelope" });
    first.post_json("/api/agents/password", &change).await.expect_code(0);
    second.get("/api/auth/me").await.expect_invalid_token();
    first.get("/api/auth/me").await.expect_code(0);
    desk.command(&["agent", "password", "a2001", "--clear", "--yes"]).await.success();
    first.get("/api/auth/me").await.expect_invalid_token();
    by_platform.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn the_login_log_knows_what_the_caller_is_not_told() {
    let desk = Gateway::start().await;
    desk.command_hearing(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.success();
    desk.command_hearing(&["agent", "password", "s3001"], &format!("{GOOD}\n")).await.success();
    desk.command(&["employee", "disable", "s3001"]).await.success();
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
async fn a_closed_pipe_is_no_failure() {
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
        assert!(ran.status.success() && ran.stderr.is_empty(), "{command}: {}", ran.said());
    }
}

#[tokio::test]
async fn commands_make_no_directories_and_leave_foreign_ones_alone() {
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
        assert_eq!(ran.status.code(), Some(1), "{}", ran.said());
        assert!(ran.said().contains(says), "{}", ran.said());
    }
    assert!(!none.exists());
    assert_eq!(std::fs::read_dir(&foreign).expect("a folder").count(), 1);
    assert_eq!(std::fs::metadata(&foreign).expect("a folder").permissions().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn people_can_be_put_down_before_the_first_start() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    std::fs::remove_dir_all(desk.data_dir()).expect("gone");
    std::fs::create_dir(desk.data_dir()).expect("an empty one");
    desk.command(&["employee", "add", "b7700"]).await.success();
    desk.command(&["role", "grant", "b7700", "user"]).await.success();
    desk.command(&["key", "rotate", "--now"]).await.success();
    desk.restart().await;
    desk.sign_in("b7700").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn commands_at_the_same_time_wait_for_each_other() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    let ids = ["b1", "b2", "b3", "b4"];
    let commands = ids.map(|id| [String::from("employee"), String::from("add"), id.to_owned()]);
    let running = commands.iter().map(|args| async {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        desk.command(&args).await
    });
    for ran in futures::future::join_all(running).await {
        ran.success();
        assert!(ran.said().contains("employee add"), "offline, too, a change is told: {}", ran.said());
    }
    assert_eq!(
        listed(&desk, &["employee", "list", "b"]).await.iter().filter(|row| row["name"] == row["employee_id"]).count(),
        4
    );
}
