//! `deskgate status`, `reload`, `config show`, `check --json` and `--version`: what operators ask a gateway and its configuration.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::servers::{postgres, redis};
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

/// Everything that a command has printed.
fn all_output(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Fails if one of the secrets is in a text.
#[track_caller]
fn assert_hides(secrets: &[&str], case: &str, text: &str) {
    for secret in secrets {
        assert!(!text.contains(secret), "{secret} is in the output of {case}:\n{text}");
    }
}

#[tokio::test]
async fn configured_secrets_are_in_no_output_and_no_log() {
    let (_, _, socket) = redis::secured();
    let (user, written) = (redis::USER.0, redis::USER.1.replace('@', "%40"));
    let database = postgres::database().replacen('@', ":hidden-directory-password@", 1);
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    let mut create = Command::new(env!("CARGO_BIN_EXE_deskgate"));
    let created = create.args(["secret", "new"]).arg(&secret).output().expect("the program");
    assert!(created.status.success(), "{}", all_output(&created));
    let settings = format!(
        "[server]\nsecret_file = \"{}\"\n[platform]\nsecret = \"hidden-platform-secret\"\n\
         api_url = \"http://api:hidden-api-password@127.0.0.1:1/?key=hidden-api-key\"\n\
         [store]\nurl = \"redis+unix://{user}:{written}@{}\"\nprefix = \"{}\"\ntimeout = \"2s\"\n\
         [directory]\nurl = \"{database}\"\n\
         [upstreams.helpdesk]\nhealth = {{ path = \"/health?key=hidden-health-key\" }}\n[log]\nlevel = \"debug\"\n",
        secret.display(),
        socket.display(),
        redis::own_prefix(),
    );
    let mut desk = Gateway::with(&settings).await;
    let fleet_secret = std::fs::read_to_string(&secret).expect("the secret");
    let secrets = [
        redis::USER.1,
        &written,
        "hidden-directory-password",
        "hidden-platform-secret",
        "hidden-api-password",
        "hidden-api-key",
        "hidden-health-key",
        fleet_secret.trim(),
    ];
    desk.sign_in("u1001").await.get("/api/desk/x").await.expect_status(200);
    for args in [
        &["config", "show"][..],
        &["config", "show", "--json"],
        &["config", "show", "--changed"],
        &["check"],
        &["check", "--json"],
        &["status"],
        &["status", "--json"],
        &["reload"],
        &["upstream", "list", "--json"],
        &["fleet", "--json"],
        &["session", "list", "--json"],
    ] {
        let output = desk.command(args).await;
        let text = all_output(&output);
        assert!(output.status.success(), "{args:?}: {text}");
        assert_hides(&secrets, &args.join(" "), &text);
    }
    let shown = desk.command(&["config", "show"]).await.expect_success();
    for part in [
        "redis+unix://***@/",
        "postgres://***@127.0.0.1:",
        "/health?key=***",
        "api_url = \"http://***@127.0.0.1:1/?key=***\"",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    // A reload of a file in which the URLs are mistyped.
    let config = std::fs::read_to_string(desk.config_file()).expect("the configuration");
    let mistyped = config.replace("redis+unix://", "redis+unix:/").replace("postgres://", "postgres:/");
    std::fs::write(desk.config_file(), &mistyped).expect("a configuration");
    for args in [&["reload"][..], &["check"], &["config", "show", "--json"]] {
        let output = desk.command(args).await;
        assert!(!output.status.success(), "{args:?}: {}", all_output(&output));
        assert_hides(&secrets, &args.join(" "), &all_output(&output));
    }
    std::fs::write(desk.config_file(), &config).expect("a configuration");
    desk.terminate().await;
    assert_hides(&secrets, "serve", &desk.logs());

    // Arguments that cannot be read.
    for argument in ["platform.secret:hidden-argument", "platform=hidden-argument", "hidden-argument"] {
        let output = desk.command(&["check", "--set", argument]).await;
        let text = all_output(&output);
        assert_eq!(output.status.code(), Some(2), "{argument}: {text}");
        assert!(text.contains("--set") && text.contains("is not of the form section.key=value"), "{text}");
        assert_hides(&["hidden-argument"], "check", &text);
    }

    // Servers that cannot be reached, or refuse the password. At the same time: a start waits some seconds for Redis.
    let host = database.split(['@', '/']).nth(3).expect("a host");
    let changes = [
        (socket.display().to_string(), folder.path().join("none").display().to_string()),
        ("%40ss".to_owned(), "%40ss-hidden-other".to_owned()),
        (host.to_owned(), "127.0.0.1:1".to_owned()),
        (host.to_owned(), "host.invalid".to_owned()),
    ];
    let starts = changes.iter().enumerate().map(|(number, (from, to))| {
        assert!(config.contains(from), "{from}: {config}");
        let file = desk.config_file().with_file_name(format!("unreachable-{number}.toml"));
        std::fs::write(&file, config.replace(from, to)).expect("a configuration");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_deskgate"));
        let data = format!("server.data_dir={}", folder.path().join(number.to_string()).display());
        serve.args(["serve", "--set", &data, "--config"]).arg(file);
        tokio::task::spawn_blocking(move || serve.output())
    });
    for ((_, to), started) in changes.iter().zip(futures::future::join_all(starts).await) {
        let output = started.expect("a thread").expect("the program");
        let text = all_output(&output);
        assert_eq!(output.status.code(), Some(1), "{to}: {text}");
        assert_hides(&secrets, "serve", &text);
        assert_hides(&["hidden-other"], "serve", &text);
    }
}
