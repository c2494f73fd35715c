//! `server.secret_file`: the keys of cookies, of one-time-password secrets and of the signing keys in the directory come from one
//! secret, which can be changed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::*;

/// Runs `deskgate secret new FILE`.
fn create_secret(file: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_deskgate");
    Command::new(program).args(["secret", "new"]).arg(file).output().expect("the program")
}

fn new_secret(desk: &Gateway, name: &str) -> PathBuf {
    let file = desk.temporary_folder().join(name);
    create_secret(&file).expect_success();
    file
}

/// Replaces the secrets in the configuration of a gateway, which reads them at its next start.
fn configure(desk: &Gateway, current: Option<&Path>, previous: &[&Path]) {
    let text = std::fs::read_to_string(desk.config_file()).expect("the configuration");
    let mut config: toml::Table = text.parse().expect("TOML");
    let server = config["server"].as_table_mut().expect("a section");
    server.remove("secret_file");
    if let Some(file) = current {
        server.insert("secret_file".to_owned(), file.display().to_string().into());
    }
    let previous: Vec<toml::Value> = previous.iter().map(|file| file.display().to_string().into()).collect();
    server.insert("old_secret_files".to_owned(), previous.into());
    std::fs::write(desk.config_file(), config.to_string()).expect("a configuration");
}

/// A sign-in that waits for its callback: it succeeds only with the cookie that began it.
async fn begin_sign_in(desk: &Gateway) -> (Phone, String) {
    let phone = desk.phone("u1001");
    let url = phone.authorize_url(&desk.client_url("h5")).await;
    (phone, url)
}

async fn finishes(phone: &Phone, desk: &Gateway, url: &str) -> bool {
    // The platform of the tests is part of the gateway, and has another address after a restart.
    let (_, rest) = url.split_once("/connect/").expect("an authorize URL");
    let callback = phone.authorize(&format!("http://{}/connect/{rest}", desk.platform_address())).await;
    let response = phone.client().get(&callback).await;
    response.status == 302 && fragment_parameter(&response.location(), "token").is_some()
}

async fn verify(client: &Client, code: &str) -> Response {
    client.post_json("/api/auth/otp-verify", &json!({ "code": code })).await
}

#[tokio::test]
async fn cookies_and_devices_survive_the_change_to_a_fleet_secret_and_from_one_to_the_next() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let device = OtpDevice::set_up_and_bind(&xiaoming).await;
    let (first, second) = (new_secret(&desk, "first"), new_secret(&desk, "second"));

    let (phone, url) = begin_sign_in(&desk).await;
    configure(&desk, Some(&first), &[]);
    desk.restart().await;
    assert!(finishes(&phone, &desk, &url).await, "the cookie of the generated key");
    xiaoming.get("/api/auth/me").await.expect_code(0);
    desk.wait_for_log(&["all one-time-password secrets are encrypted with the current key"]).await;
    desk.wait_for_log(&["moving the signing keys from the key folder to the directory"]).await;
    std::fs::remove_dir_all(desk.data_dir().join("keys")).expect("the generated keys");
    desk.restart().await;
    let files = std::fs::read_dir(desk.data_dir().join("keys")).expect("a folder").count();
    assert_eq!(files, 0, "no key is generated beside a secret");
    verify(&xiaoming, &device.code(0)).await.expect_code(0);

    let (phone, url) = begin_sign_in(&desk).await;
    assert_eq!(needs_previous(&desk).await, json!({ "one_time_passwords": 0, "signing_keys": 0 }));
    configure(&desk, Some(&second), &[&first]);
    desk.terminate().await;
    assert_eq!(needs_previous(&desk).await, json!({ "one_time_passwords": 1, "signing_keys": 0 }), "before the start");
    desk.restart().await;
    assert_eq!(needs_previous(&desk).await, json!({ "one_time_passwords": 0, "signing_keys": 0 }));
    assert!(finishes(&phone, &desk, &url).await, "the cookie of the previous secret");
    let (phone, url) = begin_sign_in(&desk).await;
    configure(&desk, Some(&second), &[]);
    desk.restart().await;
    assert!(finishes(&phone, &desk, &url).await, "the cookie of the current secret");
    verify(&xiaoming, &device.code(1)).await.expect_code(0);
    assert!(!desk.logs().contains("cannot decrypt some one-time-password secrets"), "no key is missing");

    xiaoming.get("/api/auth/me").await.expect_code(0);
}

async fn needs_previous(desk: &Gateway) -> Value {
    let printed = desk.command(&["secret", "status", "--json"]).await.expect_success();
    serde_json::from_str(&printed).expect("JSON")
}

#[tokio::test]
async fn gateway_does_not_start_with_another_secret_or_without_one() {
    let mut desk = Gateway::start().await;
    configure(&desk, Some(&new_secret(&desk, "first")), &[]);
    desk.restart().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.terminate().await;
    for (case, secret, why) in [
        ("another", Some(new_secret(&desk, "second")), "is encrypted with another secret"),
        ("none", None, "set server.secret_file"),
    ] {
        configure(&desk, secret.as_deref(), &[]);
        for command in [&["serve"][..], &["key", "rotate"]] {
            let output = desk.command(command).await;
            assert_eq!(output.status.code(), Some(1), "{case}: {}", output.output_text());
            assert!(output.output_text().contains(why), "{case}: {}", output.output_text());
        }
    }
    configure(&desk, Some(&desk.temporary_folder().join("first")), &[]);
    desk.restart().await;
    xiaoming.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn keys_in_the_directory_rotate_and_are_removed_by_commands() {
    let mut desk = Gateway::start().await;
    configure(&desk, Some(&new_secret(&desk, "first")), &[]);
    desk.restart().await;
    let xiaoming = desk.sign_in("u1001").await;
    let old = header_of(xiaoming.token())["kid"].as_str().expect("a kid").to_owned();
    let refused = desk.command(&["key", "remove", &old, "--yes"]).await;
    assert_eq!(refused.status.code(), Some(4), "the signing key cannot be removed: {}", refused.output_text());
    desk.command(&["key", "rotate"]).await.expect_success();
    assert_eq!(desk.command(&["key", "rotate"]).await.status.code(), Some(4), "a key is pending");
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    let alice = desk.sign_in("a2001").await;
    assert_ne!(header_of(alice.token())["kid"], old, "the command returns when the new key signs");
    xiaoming.get("/api/auth/me").await.expect_code(0);
    desk.command(&["key", "remove", &old, "--yes"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    alice.get("/api/auth/me").await.expect_code(0);
    desk.terminate().await;
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    desk.restart().await;
    alice.get("/api/auth/me").await.expect_code(0);
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn weak_secrets_are_refused_at_start_and_by_check() {
    for (case, contents, why) in [
        ("missing", None, "No such file"),
        ("empty", Some("\n"), "the file is empty"),
        ("short", Some("c2hvcnQ="), "too short"),
        ("a pattern", Some("changemechangemechangemechangemechangemechangeme"), "not random"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        if let Some(contents) = contents {
            std::fs::write(&file, contents).expect("a file");
        }
        let files = Gateway::setup().toml(&format!("[server]\nsecret_file = \"{}\"", file.display()));
        let files = files.write_files().await;
        for command in ["check", "serve"] {
            let output = files.command(&[command]).await;
            let text = output.output_text();
            assert_eq!(output.status.code(), Some(1), "{case}, {command}: {text}");
            let named = format!("server.secret_file: {}: ", file.display());
            assert!(text.contains(&named) && text.contains(why), "{case}, {command}: {text}");
        }
    }
}

#[tokio::test]
async fn check_warns_about_a_secret_that_every_user_can_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    create_secret(&file).expect_success();
    let setting = format!("[server]\nsecret_file = \"{}\"", file.display());
    for (mode, warns) in [(0o600, false), (0o640, false), (0o644, true)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("a mode");
        let files = Gateway::setup().toml(&setting).write_files().await;
        let text = files.command(&["check"]).await.output_text();
        assert_eq!(text.contains("server.secret_file: every user"), warns, "{mode:o}: {text}");
    }
}

#[tokio::test]
async fn new_secret_is_private_and_replaces_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    create_secret(&file).expect_success();
    let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(&file).expect("a secret");
    assert_eq!(create_secret(&file).status.code(), Some(4), "it exists");
    assert_eq!(std::fs::read(&file).expect("a secret"), before);
}

#[tokio::test]
async fn secret_settings_that_contradict_each_other_are_faults() {
    for (settings, fault) in [
        ("[server]\nold_secret_files = [\"/x\"]", "server.old_secret_files: requires server.secret_file"),
        ("[server]\nsecret_file = \"/x\"\n[otp]\nkey_file = \"/y\"", "otp.key_file: the key is derived from"),
    ] {
        let output = Gateway::setup().toml(settings).write_files().await.command(&["check"]).await;
        assert_eq!(output.status.code(), Some(1), "{settings}");
        assert!(output.output_text().contains(fault), "{}", output.output_text());
    }
}
