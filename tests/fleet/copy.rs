//! `deskgate store copy`: from one gateway to a fleet and back, and nobody is signed out.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::servers::{free_port, postgres, redis};
use crate::support::*;

/// A debug build on a busy machine copies some thousand sessions a second.
const COPY_TIMEOUT: Duration = Duration::from_secs(120);

/// Exit codes of the command line.
const FAILURE: i32 = 1;
const REFUSED: i32 = 4;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deskgate"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn copy_command(from: &Path, to: &Path) -> Command {
    let mut command = program();
    command.args(["store", "copy", "--json", "--from"]).arg(from).arg("--to").arg(to);
    command
}

/// Runs a command and waits for its exit.
async fn run(mut command: Command) -> Output {
    let output = tokio::task::spawn_blocking(move || command.output());
    within(COPY_TIMEOUT, "the exit of the command", output).await.expect("a thread").expect("the program")
}

async fn copy(from: &Path, to: &Path) -> Output {
    run(copy_command(from, to)).await
}

/// Copies, and returns the counts; every kind has as many records at the target as at the source.
async fn copy_all(from: &Path, to: &Path) -> Vec<Value> {
    let report: Value = serde_json::from_str(&copy(from, to).await.expect_success()).expect("JSON");
    assert_eq!(report["undecryptable"], 0, "{report}");
    let counts = report["counts"].as_array().expect("counts").clone();
    assert_eq!(counts.len(), 12, "{report}");
    for count in &counts {
        assert_eq!(count["source"], count["target"], "{report}");
    }
    counts
}

fn count_of(counts: &[Value], kind: &str) -> u64 {
    let count = counts.iter().find(|count| count["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    count["source"].as_u64().expect("a number")
}

#[track_caller]
fn assert_exit(output: &Output, code: i32, texts: &[&str]) {
    let text = output.output_text();
    assert_eq!(output.status.code(), Some(code), "{text}");
    for expected in texts {
        assert!(text.contains(expected), "no {expected:?} in: {text}");
    }
}

/// A gateway of its own.
async fn one_gateway() -> Gateway {
    Gateway::with("[directory]\nurl = \"sqlite:directory.db\"\n").await
}

/// The configuration of a gateway with the address that it listened on: tokens name it as their issuer.
fn with_address(gateway: &Gateway, name: &str) -> PathBuf {
    let file = gateway.temporary_folder().join(name);
    let text = std::fs::read_to_string(gateway.config_file()).expect("a configuration");
    let text = text.replace("public_url = \"http://127.0.0.1:0\"", &format!("public_url = {:?}", gateway.public_url()));
    assert!(text.contains(&gateway.public_url()), "{text}");
    std::fs::write(&file, text).expect("a configuration");
    file
}

/// A configuration on Redis and PostgreSQL, for gateways that come after `first` under its address.
struct SharedState {
    settings: String,
    database: String,
    _folder: tempfile::TempDir,
}

impl SharedState {
    async fn new(first: &Gateway, prefix: &str) -> SharedState {
        SharedState::on(first, &redis::standalone(), prefix).await
    }

    async fn on(first: &Gateway, store: &str, prefix: &str) -> SharedState {
        let folder = tempfile::tempdir().expect("a folder");
        let (secret, database) = (folder.path().join("secret"), postgres::empty_database());
        let mut create = program();
        create.args(["secret", "new"]).arg(&secret);
        run(create).await.expect_success();
        let settings = format!(
            "[server]\nsecret_file = {:?}\npublic_url = {:?}\n[store]\nurl = {store:?}\nprefix = {prefix:?}\ntimeout = \"2s\"\n\
             [directory]\nurl = {database:?}\ntimeout = \"10s\"\n",
            secret.display(),
            first.public_url(),
        );
        SharedState { settings, database, _folder: folder }
    }

    fn setup(&self) -> Setup {
        Gateway::setup().toml(&self.settings)
    }
}

/// What operators see.
async fn listings(gateway: &Gateway) -> Vec<Value> {
    let mut all = Vec::new();
    for command in [
        &["employee", "list"][..],
        &["employee", "link", "list"],
        &["employee", "logins"],
        &["role", "list"],
        &["agent", "list"],
        &["key", "list"],
        &["session", "list"],
    ] {
        let list = gateway.command(&[command, &["--json"]].concat()).await.expect_success();
        let mut list: Value = serde_json::from_str(&list).expect("JSON");
        if let Some(rows) = list.as_array_mut() {
            rows.sort_by_key(Value::to_string);
        }
        all.push(list);
    }
    all
}

#[tokio::test]
async fn moving_to_a_fleet_and_back_signs_nobody_out() {
    wait_for_otp_step_with_time_left().await;
    let mut desk = one_gateway().await;
    let (alice, bob, admin) = (desk.sign_in("a2001").await, desk.sign_in("u1001").await, desk.sign_in("m5001").await);
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
    bob.post("/api/auth/logout").await.expect_code(0);
    let device = OtpDevice::set_up_and_bind(&admin).await;
    desk.command(&["employee", "link", "add", "wwpartner/p7001", "u1001"]).await.expect_success();
    desk.command(&["agent", "add", "u1001", "--role", "agent"]).await.expect_success();
    desk.command(&["employee", "disable", "s3001"]).await.expect_success();
    let (before, me) = (listings(&desk).await, alice.get("/api/auth/me").await.expect_code(0).data());
    assert_eq!(me["current_role"], "user");
    desk.terminate().await;

    let (old, shared) = (with_address(&desk, "old.toml"), SharedState::new(&desk, &redis::own_prefix()).await);
    let new = shared.setup().write_files().await;
    let mut rehearsal = copy_command(&old, &new.config());
    rehearsal.arg("--dry-run");
    let rehearsal: Value = serde_json::from_str(&run(rehearsal).await.expect_success()).expect("JSON");
    assert_eq!((&rehearsal["counts"][0]["source"], &rehearsal["counts"][0]["target"]), (&json!(2), &json!(0)));
    let counts = copy_all(&old, &new.config()).await;
    assert_eq!(count_of(&counts, "sessions"), 2);
    assert_eq!(count_of(&counts, "denied tokens"), 1);

    let mut fleet = shared.setup().start().await;
    assert_eq!(fleet.with_token(alice.token()).get("/api/auth/me").await.expect_code(0).data(), me);
    fleet.with_token(bob.token()).get("/api/auth/me").await.expect_invalid_token();
    let verify = json!({ "code": device.code(0) });
    fleet.with_token(admin.token()).post_json("/api/auth/otp-verify", &verify).await.expect_code(0);
    let after = listings(&fleet).await;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    let carol = fleet.sign_in("c4001").await;
    fleet.with_token(alice.token()).post("/api/auth/logout").await.expect_code(0);
    let used = copy(&old, &new.config()).await;
    assert_exit(&used, REFUSED, &["gateways are using it"]);
    let before = listings(&fleet).await;
    fleet.terminate().await;
    let used = copy(&old, &new.config()).await;
    assert_exit(&used, REFUSED, &["is not empty", "employees"]);

    // And back, to another data directory.
    let folder = tempfile::tempdir().expect("a folder");
    let alone = || {
        Gateway::setup().toml(&format!(
            "[server]\npublic_url = {:?}\ndata_dir = {:?}\n[directory]\nurl = \"sqlite:directory.db\"\n",
            desk.public_url(),
            folder.path().display()
        ))
    };
    let files = alone().write_files().await;
    let counts = copy_all(&new.config(), &files.config()).await;
    assert_eq!(count_of(&counts, "sessions"), 2);
    assert_eq!(count_of(&counts, "denied tokens"), 2);
    let again = alone().start().await;
    for ended in [&alice, &bob] {
        again.with_token(ended.token()).get("/api/auth/me").await.expect_invalid_token();
    }
    again.with_token(carol.token()).get("/api/auth/me").await.expect_code(0);
    let used_up = again.with_token(admin.token()).post_json("/api/auth/otp-verify", &verify).await;
    used_up.expect_code(1022);
    let verify = json!({ "code": device.code(1) });
    again.with_token(admin.token()).post_json("/api/auth/otp-verify", &verify).await.expect_code(0);
    for (before, after) in before.iter().zip(&listings(&again).await) {
        assert_eq!(before, after);
    }
}

/// Copies the stored session and login-log record many times.
async fn multiply(desk: &Gateway, sessions: usize, logins: usize) {
    let numbers = |count: usize| {
        format!("WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})")
    };
    let more = format!(
        "{} INSERT INTO sessions SELECT 'copy' || n, corp_id, employee_id, version, issued_at, expires_at,
             json_set(body, '$.id', 'copy' || n) FROM numbers CROSS JOIN (SELECT * FROM sessions LIMIT 1)",
        numbers(sessions)
    );
    desk.change_database("state.db", &more).await;
    let more = format!(
        "{} INSERT INTO login_log SELECT login_log.* FROM numbers CROSS JOIN (SELECT * FROM login_log LIMIT 1) AS login_log",
        numbers(logins)
    );
    desk.change_database("directory.db", &more).await;
}

/// Runs the copy until it says so much about its progress, and kills it.
async fn copy_until(from: &Path, to: &Path, line: &'static str) {
    let mut command = copy_command(from, to);
    let copied = tokio::task::spawn_blocking(move || {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the program");
        let lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let mut said = lines.map_while(Result::ok);
        assert!(said.any(|said| said.starts_with(line)), "no {line:?}");
        child.kill().expect("kill");
        assert!(!child.wait().expect("an exit").success(), "killed");
    });
    within(COPY_TIMEOUT, "the copy", copied).await.expect("a thread");
}

#[tokio::test]
async fn copy_that_was_killed_is_completed_by_another_run() {
    let mut desk = one_gateway().await;
    let alice = desk.sign_in("a2001").await;
    desk.terminate().await;
    multiply(&desk, 8000, 3000).await;
    let (old, shared) = (with_address(&desk, "old.toml"), SharedState::new(&desk, &redis::own_prefix()).await);
    let new = shared.setup().write_files().await;
    for line in ["employees", "audit-log records"] {
        copy_until(&old, &new.config(), line).await;
        let failure = shared.setup().try_start().await.err().expect("no gateway starts on half a copy");
        assert!(
            failure.stderr.contains("is not complete") && failure.stderr.contains("store copy"),
            "{}",
            failure.stderr
        );
    }
    let counts = copy_all(&old, &new.config()).await;
    assert_eq!((count_of(&counts, "sessions"), count_of(&counts, "login-log records")), (8001, 3001));
    // Nobody has used it yet.
    copy_all(&old, &new.config()).await;
    let fleet = shared.setup().start().await;
    fleet.with_token(alice.token()).get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn copy_is_refused_while_a_gateway_uses_the_source_or_the_target() {
    let desk = one_gateway().await;
    let (old, shared) = (with_address(&desk, "old.toml"), SharedState::new(&desk, &redis::own_prefix()).await);
    let new = shared.setup().write_files().await;
    let data = desk.data_dir().display().to_string();
    assert_exit(&copy(&old, &new.config()).await, REFUSED, &[&data, "stop it"]);
    assert_exit(&copy(&new.config(), &old).await, REFUSED, &[&data, "stop it"]);
    let employees = postgres::psql_in(&shared.database, "SELECT to_regclass('deskgate.employees') IS NULL");
    assert_eq!(employees.trim(), "t", "nothing was opened");
}

#[tokio::test]
async fn faulty_configurations_and_unreachable_targets_are_named() {
    let mut desk = one_gateway().await;
    desk.sign_in("a2001").await;
    let old = with_address(&desk, "old.toml");
    desk.terminate().await;
    let broken = desk.temporary_folder().join("broken.toml");
    std::fs::write(&broken, "[store]\nurl = \"nonsense\"\n").expect("a file");
    let broken_name = broken.display().to_string();
    assert_exit(&copy(&old, &broken).await, FAILURE, &[&format!("{broken_name}:2"), "store.url"]);
    assert_exit(&copy(&broken, &old).await, FAILURE, &[&broken_name]);
    assert_exit(&copy(&old, &old).await, REFUSED, &["nothing to copy"]);

    let unreachable = format!("redis://user:hidden@127.0.0.1:{}", free_port());
    let shared = SharedState::on(&desk, &unreachable, &redis::own_prefix()).await;
    let output = copy(&old, &shared.setup().write_files().await.config()).await;
    assert_exit(&output, FAILURE, &["redis://", "unavailable"]);
    assert!(!output.output_text().contains("hidden"), "{}", output.output_text());

    let shared = SharedState::new(&desk, &redis::own_prefix()).await;
    let away = format!("[directory]\nurl = \"postgres://user:hidden@127.0.0.1:{}/desk\"\n", free_port());
    let output = copy(&old, &shared.setup().toml(&away).write_files().await.config()).await;
    assert_exit(&output, FAILURE, &["postgres://127.0.0.1", "unavailable"]);
    assert!(!output.output_text().contains("hidden"), "{}", output.output_text());

    let elsewhere = shared.setup().toml("[server]\npublic_url = \"https://desk.example\"\n").write_files().await;
    assert_exit(&copy(&old, &elsewhere.config()).await, REFUSED, &["server.public_url", "https://desk.example"]);
    let fresh = tempfile::tempdir().expect("a folder");
    let nowhere = shared.setup().toml(&format!(
        "[server]\nsecret_file = \"\"\ndata_dir = {:?}\n[store]\nurl = \"embedded\"\n[directory]\nurl = \"sqlite:directory.db\"\n",
        fresh.path().display()
    ));
    let (nowhere, new) = (nowhere.write_files().await, shared.setup().write_files().await);
    assert_exit(&copy(&nowhere.config(), &new.config()).await, REFUSED, &["no gateway has run"]);
    copy_all(&old, &new.config()).await;
}

#[tokio::test]
async fn session_that_ended_at_the_target_is_not_revived() {
    let mut desk = one_gateway().await;
    let (alice, carol) = (desk.sign_in("a2001").await, desk.sign_in("c4001").await);
    desk.terminate().await;
    let prefix = redis::own_prefix();
    let (old, first) = (with_address(&desk, "old.toml"), SharedState::new(&desk, &prefix).await);
    copy_all(&old, &first.setup().write_files().await.config()).await;
    let mut fleet = first.setup().start().await;
    fleet.with_token(alice.token()).post("/api/auth/logout").await.expect_code(0);
    fleet.terminate().await;

    // The same Redis, another database.
    let second = SharedState::new(&desk, &prefix).await;
    let output = copy(&old, &second.setup().write_files().await.config()).await;
    let report: Value = serde_json::from_str(&output.expect_success()).expect("JSON");
    let sessions = json!({ "kind": "sessions", "source": 2, "target": 1, "ended": 1 });
    assert_eq!(report["counts"][0], sessions, "{report}");
    let fleet = second.setup().start().await;
    fleet.with_token(alice.token()).get("/api/auth/me").await.expect_invalid_token();
    fleet.with_token(carol.token()).get("/api/auth/me").await.expect_code(0);
}
