//! Operators: commands work from any machine that has the configuration, and every gateway follows.

use std::time::Duration;

use crate::fleet::Fleet;
use crate::support::*;

/// Waits until this many gateways are listed, and returns them.
async fn until_listed(fleet: &Fleet, count: usize) -> Value {
    eventually(&format!("{count} listed gateways"), || async {
        let list = fleet.gateways[0].command(&["fleet", "--json"]).await.expect_success();
        let gateways: Value = serde_json::from_str(&list).expect("JSON");
        (gateways.as_array().map(Vec::len) == Some(count)).then_some(gateways)
    })
    .await
}

#[tokio::test]
async fn make_fleet_survives_killed_and_paused_parts_under_load() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/fleet/run.py");
    let mut command = std::process::Command::new("python3");
    command
        .arg(script)
        .args(["--program", env!("CARGO_BIN_EXE_deskgate"), "--drill"])
        .env("PYTHONDONTWRITEBYTECODE", "1");
    // It ends by itself: each of its steps is bounded in time.
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("python3");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("nothing was lost and nobody was admitted"), "{text}");
}

#[tokio::test]
async fn fleet_lists_all_gateways_and_names_the_one_with_other_rules() {
    let mut fleet = Fleet::start().await;
    let other = fleet
        .setup_another()
        .more_rules("\n[[rule]]\nname = \"another\"\npath = \"/another\"\nupstream = \"helpdesk\"\npublic = true\n");
    fleet.gateways.push(other.start().await);
    let gateways = until_listed(&fleet, 3).await;
    let has_other_rules = |row: &Value| row["differs_in"].as_array().is_some_and(|in_| in_.contains(&json!("rules")));
    let differing: Vec<bool> = gateways.as_array().expect("a list").iter().map(has_other_rules).collect();
    assert_eq!(differing, [false, false, true], "{gateways}");
}

#[tokio::test]
async fn command_on_a_machine_without_a_gateway_reaches_all_gateways() {
    let fleet = Fleet::start().await;
    let alice = fleet.gateways[0].sign_in("a2001").await;
    let there = fleet.at(1, &alice);
    let mut socket = there.websocket("/ws/agent").await;
    socket.echo("hello").await;
    let elsewhere = fleet.setup_another().write_files().await;
    elsewhere.command(&["session", "end", "--employee", "a2001"]).await.expect_success();
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
    alice.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn backup_of_a_fleet_names_the_servers_to_back_up() {
    let fleet = Fleet::on(&crate::servers::redis::standalone(), 1, "").await;
    let target = fleet.gateways[0].temporary_folder().join("copy");
    let output = fleet.gateways[0].command(&["backup", target.to_str().expect("text")]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("Redis") && error.contains("server.secret_file"), "{error}");
    assert!(!target.exists());
}

#[tokio::test]
async fn services_of_the_demo_listen_on_loopback_only() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_deskgate"));
    command.args(["demo-services", "--listen", "192.0.2.1:0", "--public-url", "http://127.0.0.1:8080"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("deskgate");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("not a loopback address"), "{error}");
}

#[tokio::test]
async fn gateway_that_was_killed_leaves_the_list() {
    let mut fleet = Fleet::start().await;
    until_listed(&fleet, 2).await;
    fleet.gateways[1].sigkill();
    until_listed(&fleet, 1).await;
}
