//! `deskgate employee` and `deskgate agent`: operators manage employees, and live sessions follow.

use std::time::{Duration, Instant};

use crate::support::*;

pub const GOOD: &str = "correct horse battery staple";

const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\
                    01234567890123456789012345678";

pub async fn roles_of(client: &Client) -> Value {
    client.get("/api/auth/me").await.expect_code(0).data()["roles"].clone()
}

pub async fn list(desk: &Gateway, what: &[&str]) -> Vec<Value> {
    let args: Vec<&str> = what.iter().copied().chain(["--json"]).collect();
    let text = desk.command(&args).await.expect_success();
    serde_json::from_str::<Value>(&text).expect("JSON").as_array().expect("a list").clone()
}

pub async fn find(desk: &Gateway, what: &[&str], employee: &str) -> Option<Value> {
    list(desk, what).await.into_iter().find(|row| row["employee_id"] == employee)
}

pub async fn login(desk: &Gateway, body: Value) -> Response {
    desk.anonymous().post_json("/api/agents/login", &body).await
}

#[tokio::test]
async fn agents_are_added_and_removed_by_command() {
    let desk = Gateway::start().await;
    desk.command(&["employee", "add", "b7700", "--name", "Berta 伯塔", "--department", "IT"]).await.expect_success();
    desk.command(&["agent", "add", "b7700", "--role", "agent"]).await.expect_success();
    let agent = find(&desk, &["agent", "list"], "b7700").await.expect("an agent");
    assert_eq!((&agent["password"], &agent["role"]), (&json!(false), &json!("agent")), "{agent}");
    login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(1012);

    desk.command_with_input(&["agent", "password", "b7700"], &format!("{GOOD}\n")).await.expect_success();
    let data = login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(0).data();
    assert_eq!((&data["name"], &data["current_role"]), (&json!("Berta 伯塔"), &json!("agent")));
    let new_agent = desk.with_token(data["token"].as_str().expect("a token"));
    new_agent.get("/api/agent-desk/x").await.expect_status(200);

    desk.command(&["agent", "password", "b7700", "--clear", "--yes"]).await.expect_success();
    login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(1012);
    new_agent.get("/api/auth/me").await.expect_invalid_token();
    let new_agent = desk.sign_in("b7700").await;
    new_agent.get("/api/agent-desk/x").await.expect_status(200);
    desk.command(&["agent", "remove", "b7700", "--yes"]).await.expect_success();
    assert_eq!(find(&desk, &["agent", "list"], "b7700").await, None);
    let me = new_agent.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(me["roles"], json!(["user"]), "the role of the record is gone from the live session");
    new_agent.get("/api/agent-desk/x").await.expect_code(1003);

    desk.command(&["employee", "remove", "b7700", "--yes"]).await.expect_success();
    new_agent.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(find(&desk, &["employee", "list"], "b7700").await, None);
}

#[tokio::test]
async fn generated_password_is_printed_and_works() {
    let desk = Gateway::start().await;
    let stdout = desk.command(&["agent", "password", "a2001", "--generate", "--json"]).await.expect_success();
    let stdout: Value = serde_json::from_str(&stdout).expect("a JSON document");
    let password = stdout["password"].as_str().expect("a password").to_owned();
    login(&desk, json!({ "employee_id": "a2001", "password": password })).await.expect_code(0);
    assert!(!desk.logs().contains(&password), "a password is in the log");

    let output = desk.command(&["agent", "password", "a2001", "--generate"]).await;
    let stdout = output.expect_success();
    let password = stdout.trim_end();
    assert!(!password.contains(char::is_whitespace), "more than the password: {stdout}");
    assert!(output.output_text().contains("done"), "{}", output.output_text());
    login(&desk, json!({ "employee_id": "a2001", "password": password })).await.expect_code(0);
}

#[tokio::test]
async fn weak_passwords_are_refused_with_advice() {
    let desk = Gateway::start().await;
    for (password, advice) in [("short\n", "at least 8"), ("password1\n", "guess"), ("a2001a2001\n", "")] {
        let output = desk.command_with_input(&["agent", "password", "a2001"], password).await;
        assert_eq!(output.status.code(), Some(4), "{password}: {}", output.output_text());
        assert!(output.output_text().contains(advice), "{password}: {}", output.output_text());
    }
    let nothing = desk.command_with_input(&["agent", "password", "a2001"], "").await;
    assert_eq!(nothing.status.code(), Some(1), "{}", nothing.output_text());
    assert_eq!(find(&desk, &["agent", "list"], "a2001").await.expect("an agent")["password"], false);
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
    let stdout = desk.command(&["employee", "disable", "a2001", "--json"]).await.expect_success();
    assert_eq!(
        serde_json::from_str::<Value>(&stdout).expect("JSON"),
        json!({ "changed": true, "sessions": 2, "note": null })
    );
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
    for client in [&alice, &other] {
        client.get("/api/auth/me").await.expect_invalid_token();
    }
    desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "a2001" })).await.expect_code(1003);
    assert_eq!(find(&desk, &["employee", "list"], "a2001").await.expect("a row")["standing"], "disabled");

    desk.command(&["employee", "enable", "a2001"]).await.expect_success();
    desk.sign_in("a2001").await.get("/api/auth/me").await.expect_code(0);
    alice.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn employee_changes_reach_live_sessions() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    alice.get("/api/desk/x").await.expect_status(200);
    desk.command(&["employee", "change", "a2001", "--name", "Alice Lin", "--department", "HR"]).await.expect_success();
    let me = alice.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["name"], &me["department"]), (&json!("Alice Lin"), &json!("HR")));
    alice.get("/api/desk/x").await.expect_status(200);
    assert_eq!(desk.upstream.last_request().header("x-deskgate-department"), Some("HR"));
    let again = desk.command(&["employee", "change", "a2001", "--name", "Alice Lin", "--json"]).await.expect_success();
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
        let output = desk.command(args).await;
        assert_eq!(output.status.code(), Some(4), "{args:?}: {}", output.output_text());
        assert!(output.output_text().contains("last administrator"), "{args:?}: {}", output.output_text());
    }
    // A disabled administrator does not count.
    desk.command(&["role", "grant", "s3001", "admin"]).await.expect_success();
    desk.command(&["employee", "disable", "s3001"]).await.expect_success();
    assert_eq!(desk.command(&["employee", "disable", "m5001"]).await.status.code(), Some(4));
    assert_eq!(desk.command(&["role", "take", "m5001", "admin"]).await.status.code(), Some(4));
    desk.command(&["employee", "enable", "s3001"]).await.expect_success();
    desk.command(&["employee", "disable", "m5001"]).await.expect_success();
    assert_eq!(
        desk.command(&["employee", "disable", "s3001"]).await.status.code(),
        Some(4),
        "the last administrator was disabled"
    );
}

#[tokio::test]
async fn agent_record_of_the_last_administrator_cannot_be_removed() {
    let desk = Gateway::start().await;
    desk.command(&["employee", "add", "b7700"]).await.expect_success();
    desk.command(&["agent", "add", "b7700", "--role", "admin"]).await.expect_success();
    desk.command(&["employee", "disable", "m5001"]).await.expect_success();
    for args in [&["agent", "remove", "b7700", "--yes"][..], &["agent", "change", "b7700", "--role", "agent"]] {
        let output = desk.command(args).await;
        assert_eq!(output.status.code(), Some(4), "{args:?}: {}", output.output_text());
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
        let output = desk.command(args).await;
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", output.output_text());
        assert_eq!(
            output.stderr.is_empty(),
            code == 0,
            "{args:?} must print the reason on stderr only: {}",
            output.output_text()
        );
        assert!(code == 0 || output.stdout.is_empty(), "{args:?}: {}", output.output_text());
    }
    let broken = desk.command(&["employee", "list", "--set", "server.data_dir=/proc/nowhere"]).await;
    assert_eq!(broken.status.code(), Some(1), "{}", broken.output_text());
}

#[tokio::test]
async fn unlock_command_ends_a_lockout() {
    let desk = Gateway::start().await;
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    for _ in 0..5 {
        login(&desk, json!({ "employee_id": "a2001", "password": "wrong" })).await.expect_code(1011);
    }
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(1429);
    assert!(find(&desk, &["employee", "list"], "a2001").await.expect("a row")["locked_until"].is_string());
    desk.command(&["employee", "unlock", "a2001"]).await.expect_success();
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0);
    assert_eq!(find(&desk, &["employee", "list"], "a2001").await.expect("a row")["locked_until"], Value::Null);
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
    login(&desk, json!({ "employee_id": "a2001", "password": "wrong" })).await.expect_code(1012);
    let all = list(&desk, &["employee", "logins"]).await;
    assert_eq!((&all[0]["employee_id"], &all[0]["result"]), (&json!("a2001"), &json!("refused")), "{all:?}");
    let own = list(&desk, &["employee", "logins", "u1001"]).await;
    assert!(!own.is_empty() && own.iter().all(|line| line["employee_id"] == "u1001"), "{own:?}");
    assert_eq!(list(&desk, &["employee", "logins", "--limit", "1"]).await.len(), 1);
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
    let (first, second, other) =
        (desk.sign_in("u1001").await, desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    assert_eq!(list(&desk, &["session", "list", "--employee", "u1001"]).await.len(), 2);
    let stdout = desk.command(&["session", "end", "--employee", "u1001"]).await.expect_success();
    assert!(stdout.contains('2'), "{stdout}");
    for client in [&first, &second] {
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

#[tokio::test]
async fn sign_in_reads_a_bounded_part_of_the_login_log() {
    let desk = Gateway::start().await;
    let is_new = |browser: &'static str| {
        let client = desk.anonymous().with_header("User-Agent", browser);
        async move {
            let response = client.post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await;
            let client = client.with_token(response.expect_code(0).data()["token"].as_str().expect("a token"));
            let items = client.get("/api/auth/sessions").await.expect_code(0).data()["items"].clone();
            let own = items.as_array().expect("a list").iter().find(|item| item["current"] == true).cloned();
            own.expect("mine")["new_device"] == true
        }
    };
    const SEEN_BEFORE: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
    assert!(is_new(SEEN_BEFORE).await);
    assert!(!is_new(SEEN_BEFORE).await);
    // A thousand sign-ins by a program.
    let others = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
         INSERT INTO login_log (at, corp_id, employee_id, login_method, login_source, ip_address, user_agent, result, reason)
         SELECT at + n, corp_id, employee_id, login_method, login_source, ip_address, 'program', result, reason
         FROM numbers CROSS JOIN (SELECT * FROM login_log ORDER BY at DESC LIMIT 1) AS newest";
    desk.change_directory(others).await;
    assert!(is_new(SEEN_BEFORE).await, "all sign-ins were read");
}

#[test]
fn shell_completions_are_generated() {
    let program = env!("CARGO_BIN_EXE_deskgate");
    for shell in ["bash", "zsh", "fish"] {
        let output = std::process::Command::new(program).args(["completions", shell]).output().expect("the program");
        assert!(output.expect_success().contains("otp-bind"), "{shell}");
    }
}

#[tokio::test]
async fn revoking_a_role_of_the_agent_record_is_reported() {
    let desk = Gateway::start().await;
    desk.command(&["employee", "add", "b7700", "--name", "Berta Keller"]).await.expect_success();
    desk.command(&["agent", "add", "b7700", "--role", "supervisor"]).await.expect_success();
    let refused = desk.command(&["role", "take", "b7700", "supervisor"]).await;
    assert_eq!(refused.status.code(), Some(4), "{}", refused.output_text());
    assert!(refused.output_text().contains("agent record"), "{}", refused.output_text());
    let unusual_role = desk.command(&["role", "grant", "u1001", "Admin"]).await.expect_success();
    assert!(unusual_role.contains("not one of user, agent"), "{unusual_role}");
}

#[tokio::test]
async fn login_log_has_the_reason_hidden_from_the_client() {
    let desk = Gateway::setup().set("agents.conceal", "true").start().await;
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    desk.command_with_input(&["agent", "password", "s3001"], &format!("{GOOD}\n")).await.expect_success();
    desk.command(&["employee", "disable", "s3001"]).await.expect_success();
    for (employee, reason) in [
        ("a2001", "wrong_password"),
        ("m5001", "no_password"),
        ("s3001", "disabled"),
        ("u1001", "not_an_agent"),
        ("z9999", "employee_unknown"),
    ] {
        login(&desk, json!({ "employee_id": employee, "password": "wrong" })).await.expect_code(1011);
        let line = list(&desk, &["employee", "logins", "--limit", "1"]).await.remove(0);
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
        let output = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash");
        assert!(output.status.success() && output.stderr.is_empty(), "{command}: {}", output.output_text());
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
    for (data, message) in [(&none, "no gateway has run"), (&foreign, "not deskgate's")] {
        let set = format!("server.data_dir={}", data.display());
        let output = desk.command(&["employee", "list", "--set", &set]).await;
        assert_eq!(output.status.code(), Some(1), "{}", output.output_text());
        assert!(output.output_text().contains(message), "{}", output.output_text());
    }
    assert!(!none.exists());
    assert_eq!(std::fs::read_dir(&foreign).expect("a folder").count(), 1);
    assert_eq!(std::fs::metadata(&foreign).expect("a folder").permissions().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn employees_can_be_added_before_the_first_start() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    std::fs::remove_dir_all(desk.data_dir()).expect("removed");
    std::fs::create_dir(desk.data_dir()).expect("an empty directory");
    desk.command(&["employee", "add", "b7700"]).await.expect_success();
    desk.command(&["role", "grant", "b7700", "user"]).await.expect_success();
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    desk.restart().await;
    desk.sign_in("b7700").await.get("/api/auth/me").await.expect_code(0);
}
