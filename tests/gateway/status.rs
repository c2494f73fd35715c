//! `deskgate status`, `reload`, `config show`, `check --json` and `--version`: what operators ask a gateway and its configuration.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::support::*;

const NEW_RULE: &str = "\n[[rule]]\nname = \"new\"\npath = \"/new/{*rest}\"\nupstream = \"helpdesk\"\npublic = true\n";

fn json_of(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {}", output.output_text()))
}

#[tokio::test]
async fn status_shows_the_running_gateway() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let mut socket = alice.websocket("/ws/agent").await;
    socket.echo("hello").await;
    let status = json_of(&desk.command(&["status", "--json"]).await);
    let expected = json!({
        "ready": true, "not_ready": [], "development": true, "pid": desk.pid(), "websockets": 1, "sessions": 1,
        "listeners": [desk.address().to_string()], "admin_listener": desk.admin_address().to_string(),
        "last_reload": null, "version": env!("CARGO_PKG_VERSION"),
    });
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&status[field], value, "{field}: {status}");
    }
    assert_eq!(status["store"], json!({ "kind": "embedded", "error": null }));
    assert_eq!(status["platform"], json!({ "kind": "simulated", "circuit_open_seconds": null }));
    assert_eq!(status["upstreams"], json!([{ "name": "helpdesk", "healthy": 1, "total": 1 }]));
    assert!(status["connections"].as_u64().is_some_and(|count| count >= 1), "{status}");
    let text = desk.command(&["status"]).await.expect_success();
    assert!(text.contains("ready         yes") && text.contains("helpdesk: 1 of 1 addresses healthy"), "{text}");
}

#[tokio::test]
async fn status_of_a_gateway_that_does_not_run_exits_with_1() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    let output = desk.command(&["status"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(output.output_text().contains("no gateway is running"), "{}", output.output_text());
}

#[tokio::test]
async fn reload_waits_and_says_what_changed() {
    let desk = Gateway::start().await;
    let nothing = desk.command(&["reload"]).await.expect_success();
    assert!(nothing.contains("(unchanged)") && nothing.contains("changed settings: none"), "{nothing}");

    let rules = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    std::fs::write(desk.rules_file(), format!("{rules}{NEW_RULE}")).expect("new rules");
    let config = std::fs::read_to_string(desk.config_file()).expect("the configuration");
    let changed = config.replace("[log]", "[token]\nlifetime = \"1m\"\n[limits]\nheaders = 50\n[log]");
    std::fs::write(desk.config_file(), changed).expect("a new configuration");
    let summary = json_of(&desk.command(&["reload", "--json"]).await);
    assert_eq!(summary["rules_changed"], true, "{summary}");
    assert_eq!(summary["applied"], json!(["limits.headers"]), "{summary}");
    assert_eq!(summary["needs_restart"], json!(["token.lifetime"]), "{summary}");
    // The command has waited: the new rule is in force.
    desk.anonymous().get("/new/x").await.expect_status(200);
    let status = json_of(&desk.command(&["status", "--json"]).await);
    assert_eq!(status["last_reload"]["error"], Value::Null, "{status}");
    assert!(status["last_reload"]["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{status}");
}

#[tokio::test]
async fn refused_reload_exits_with_1_and_changes_nothing() {
    let desk = Gateway::start().await;
    let rules = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    std::fs::write(desk.rules_file(), format!("{rules}{NEW_RULE}publik = true\n")).expect("new rules");
    let output = desk.command(&["reload"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(output.output_text().contains("publik"), "{}", output.output_text());
    desk.anonymous().get("/public/x").await.expect_status(200);
    let status = json_of(&desk.command(&["status", "--json"]).await);
    assert!(status["last_reload"]["error"].as_str().is_some_and(|error| error.contains("publik")), "{status}");

    let mut desk = desk;
    desk.terminate().await;
    let output = desk.command(&["reload"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(output.output_text().contains("no gateway is running"), "{}", output.output_text());
}

#[tokio::test]
async fn config_show_has_every_value_and_no_secret() {
    let files = Gateway::setup().toml("[server]\ndrain = \"7s\"\n").write_files().await;
    let secret = "platform.secret=a-secret-of-the-platform";
    let text = files.command(&["config", "show", "--set", secret]).await.expect_success();
    assert!(text.contains("drain = \"7s\"  # default: \"30s\""), "{text}");
    assert!(text.contains("secret = \"***\"") && !text.contains("a-secret-of-the-platform"), "{text}");
    assert!(text.contains("[upstreams.helpdesk]"), "{text}");
    let changed = files.command(&["config", "show", "--changed"]).await.expect_success();
    assert!(changed.contains("drain = \"7s\"") && !changed.contains("drain_delay"), "{changed}");
    let json = json_of(&files.command(&["config", "show", "--json"]).await);
    assert_eq!(json["server"]["drain"], json!({ "value": "7s", "differs": true, "default": "30s" }));
    assert_eq!(json["server"]["drain_delay"]["differs"], false);
    let output = files.command(&["config", "show", "--set", "server.drain=soon"]).await;
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn check_prints_json_for_scripts() {
    let files = Gateway::setup().write_files().await;
    let good = files.command(&["check", "--json"]).await;
    assert_eq!(good.status.code(), Some(0), "{}", good.output_text());
    let good = json_of(&good);
    assert_eq!((&good["ok"], &good["faults"], &good["upstreams"]), (&json!(true), &json!([]), &json!(1)));
    assert!(good["rules"].as_u64().is_some_and(|count| count > 0), "{good}");
    assert!(good["warnings"].to_string().contains("development mode"), "{good}");

    let bad = files.command(&["check", "--json", "--set", "token.lifetime=soon", "--set", "server.drain=later"]).await;
    assert_eq!(bad.status.code(), Some(1));
    let bad = json_of(&bad);
    assert_eq!((&bad["ok"], bad["faults"].as_array().map(Vec::len)), (&json!(false), Some(2)), "{bad}");

    std::fs::write(files.config(), "[server\n").expect("the file");
    let unreadable = json_of(&files.command(&["check", "--json"]).await);
    assert_eq!(unreadable["ok"], false, "{unreadable}");
}

#[tokio::test]
async fn secret_files_that_others_can_read_are_remarked_on() {
    let files = Gateway::setup().write_files().await;
    let secret = files.config().with_file_name("fleet.secret");
    std::fs::write(&secret, "a secret of the platform").expect("a file");
    let setting = format!("platform.secret_file={}", secret.display());
    for (mode, expected) in [(0o600, None), (0o640, Some("the file's group")), (0o644, Some("every user"))] {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).expect("a mode");
        let check = json_of(&files.command(&["check", "--json", "--set", &setting]).await);
        let warnings = check["warnings"].to_string();
        let is_remarked = warnings.contains("platform.secret_file: ");
        assert_eq!(is_remarked, expected.is_some(), "{mode:o}: {check}");
        assert!(expected.is_none_or(|whom| warnings.contains(whom)), "{mode:o}: {check}");
        assert_eq!(check["ok"], true, "{mode:o}: a remark is no fault: {check}");
    }
}

#[tokio::test]
async fn version_has_the_commit() {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_deskgate")).arg("--version").output().expect("a program");
    let text = output.expect_success();
    let pattern = format!("deskgate {} (", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with(&pattern) && text.trim_end().ends_with(')'), "{text}");
    let commit = text.trim_end().trim_start_matches(&pattern).trim_end_matches(')');
    assert!(!commit.is_empty(), "{text}");
}
