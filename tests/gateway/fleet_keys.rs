//! Gateways that share a directory and a secret share their keys: changes of signing keys reach all of them, and cookies and
//! one-time-password devices of one work on the others. But for one test, each gateway has a store of its own here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::servers::postgres::{self, PostgresServer};
use crate::servers::redis;
use crate::support::*;

/// How long a change of the keys may take to reach all gateways.
const KEY_CHANGE_BOUND: Duration = Duration::from_secs(1);

struct Shared {
    folder: tempfile::TempDir,
    directory: String,
}

impl Shared {
    fn new(directory: String) -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), directory }
    }

    /// The file of a secret, which is created if it does not exist.
    fn secret(&self, name: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        if !file.exists() {
            let program = env!("CARGO_BIN_EXE_deskgate");
            Command::new(program).args(["secret", "new"]).arg(&file).output().expect("the program").expect_success();
        }
        file
    }

    fn setup(&self, current: &Path, previous: &[&Path]) -> Setup {
        let previous: Vec<String> = previous.iter().map(|file| file.display().to_string()).collect();
        Gateway::setup().toml(&format!(
            "[server]\nsecret_file = \"{}\"\nold_secret_files = {previous:?}\n[directory]\nurl = \"{}\"\n",
            current.display(),
            self.directory,
        ))
    }

    async fn gateway(&self) -> Gateway {
        self.setup(&self.secret("current"), &[]).start().await
    }
}

/// Two gateways on a database of their own.
async fn pair() -> (Gateway, Gateway) {
    let shared = Shared::new(postgres::database());
    let _ = shared.secret("current");
    tokio::join!(shared.gateway(), shared.gateway())
}

async fn published(desk: &Gateway) -> Vec<String> {
    let set = desk.anonymous().get("/.well-known/jwks.json").await.expect_status(200).json();
    let keys = set["keys"].as_array().expect("keys").clone();
    keys.iter().map(|key| key["kid"].as_str().expect("a kid").to_owned()).collect()
}

fn kid(token: &str) -> String {
    header_of(token)["kid"].as_str().expect("a kid").to_owned()
}

/// Waits until a gateway publishes the keys of another, and checks how long that took.
async fn follows(two: &Gateway, one: &Gateway, changed: Instant) {
    let expected = published(one).await;
    eventually("the same keys", || async { (published(two).await == expected).then_some(()) }).await;
    assert!(changed.elapsed() < KEY_CHANGE_BOUND, "the keys took {:?}", changed.elapsed());
}

#[tokio::test]
async fn key_commands_on_one_gateway_reach_the_other_within_a_second() {
    let (one, two) = pair().await;
    assert_eq!(published(&one).await, published(&two).await, "both began with one key");
    let xiaoming = two.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    socket.echo("hello").await;
    let old = kid(xiaoming.token());

    one.command(&["key", "rotate"]).await.expect_success();
    follows(&two, &one, Instant::now()).await;
    assert_eq!(kid(two.sign_in("a2001").await.token()), old, "the new key is published and does not sign yet");

    one.command(&["key", "rotate", "--now"]).await.expect_success();
    let (alice, bob) = (one.sign_in("a2001").await, two.sign_in("a2001").await);
    assert_eq!(kid(alice.token()), kid(bob.token()), "both sign with the new key when the command returns");
    assert_ne!(kid(alice.token()), old);
    follows(&two, &one, Instant::now()).await;
    xiaoming.get("/api/auth/me").await.expect_code(0);

    one.command(&["key", "remove", &old, "--yes"]).await.expect_success();
    let removed = Instant::now();
    assert_eq!(socket.close_code_within(KEY_CHANGE_BOUND).await, Some(4401));
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    follows(&two, &one, removed).await;
    assert!(!published(&two).await.contains(&old));
    bob.get("/api/auth/me").await.expect_code(0);
    // An operator's machine, or any other gateway, may continue.
    two.command(&["key", "rotate", "--now"]).await.expect_success();
    follows(&one, &two, Instant::now()).await;
}

#[tokio::test]
async fn tokens_of_a_new_key_are_accepted_by_every_gateway_of_the_store() {
    let shared = Shared::new(postgres::database());
    let store = format!("[store]\nurl = \"{}\"\nprefix = \"{}\"\n", redis::standalone(), redis::own_prefix());
    let start = |more: String| shared.setup(&shared.secret("current"), &[]).toml(&store).toml(&more).start();
    let one = start(String::new()).await;
    let two = start(format!("[server]\npublic_url = \"{}\"\n", one.public_url())).await;
    let xiaoming = one.sign_in("u1001").await;
    two.with_token(xiaoming.token()).get("/api/auth/me").await.expect_code(0);
    two.command(&["key", "rotate", "--now"]).await.expect_success();
    for round in 0..20 {
        let (here, there) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let alice = here.sign_in("a2001").await;
        assert_ne!(kid(alice.token()), kid(xiaoming.token()));
        there.with_token(alice.token()).get("/api/auth/me").await.expect_code(0);
    }
    one.command(&["key", "remove", &kid(xiaoming.token()), "--yes"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    let elsewhere = two.with_token(xiaoming.token());
    eventually("a refusal elsewhere", || async { (elsewhere.get("/api/auth/me").await.status == 401).then_some(()) })
        .await;
}

#[tokio::test]
async fn concurrent_rotations_make_one_key() {
    let (one, two) = pair().await;
    let (first, second) = tokio::join!(one.command(&["key", "rotate"]), two.command(&["key", "rotate"]));
    let mut codes = [first.status.code(), second.status.code()];
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(4)], "{} {}", first.output_text(), second.output_text());
    eventually("two keys on both", || async {
        let (here, there) = (published(&one).await, published(&two).await);
        (here == there && here.len() == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn gateways_that_start_at_once_on_an_empty_database_have_one_key() {
    let shared = Shared::new(postgres::empty_database());
    let _ = shared.secret("current");
    let (a, b, c, d) = tokio::join!(shared.gateway(), shared.gateway(), shared.gateway(), shared.gateway());
    let keys = published(&a).await;
    assert_eq!(keys.len(), 1);
    for other in [&b, &c, &d] {
        assert_eq!(published(other).await, keys);
    }
}

/// Whether a gateway accepts the cookie of a sign-in that began on another. The code is another platform's, so that the
/// sign-in fails after the cookie was checked; without it the page says so.
async fn accepts_flow_of(two: &Gateway, one: &Gateway) -> bool {
    let phone = one.phone("u1001");
    let url = phone.authorize_url(&one.client_url("h5")).await;
    let callback = phone.authorize(&url).await;
    let (_, query) = callback.split_once('?').expect("a query");
    let elsewhere = two.anonymous();
    elsewhere.use_jar(phone.client().jar());
    let response = elsewhere.get(&format!("/api/auth/oauth2/callback?{query}")).await;
    response.status == 302 && fragment_parameter(&response.location(), "error_code").is_some()
}

async fn verify(client: &Client, code: &str) -> Response {
    client.post_json("/api/auth/otp-verify", &json!({ "code": code })).await
}

#[tokio::test]
async fn cookies_and_devices_of_one_gateway_work_on_the_other() {
    let (one, two) = pair().await;
    assert!(accepts_flow_of(&two, &one).await);
    assert!(!accepts_flow_of(&two, &Gateway::start().await).await, "a cookie of a gateway with other keys");

    let partner = one.phone("wwpartner/p7001");
    partner.oauth2(&one.client_url("h5")).await;
    let elsewhere = two.anonymous();
    elsewhere.use_jar(partner.client().jar());
    let bound = elsewhere.post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
    assert!(bound.message().contains("approve"), "the proof is accepted and the link is pending: {}", bound.message());

    let device = OtpDevice::set_up_and_bind(&one.sign_in("u1001").await).await;
    verify(&two.sign_in("u1001").await, &device.code(1)).await.expect_code(0);
}

#[tokio::test]
async fn secret_changes_while_gateways_of_both_settings_run() {
    wait_for_otp_step_with_time_left().await;
    let shared = Shared::new(postgres::database());
    let (old, new) = (shared.secret("old"), shared.secret("new"));
    let first = shared.setup(&old, &[]).start().await;
    let before = OtpDevice::set_up_and_bind(&first.sign_in("u1001").await).await;
    let keys = published(&first).await;
    drop(first);

    // Step 1 of the change on one gateway, step 2 on the other, which encrypts everything again.
    let one = shared.setup(&old, &[&new]).start().await;
    let two = shared.setup(&new, &[&old]).start().await;
    assert_eq!((published(&one).await, published(&two).await), (keys.clone(), keys));
    assert!(accepts_flow_of(&one, &two).await && accepts_flow_of(&two, &one).await);
    verify(&one.sign_in("u1001").await, &before.code(0)).await.expect_code(0);
    let meanwhile = OtpDevice::set_up_and_bind(&one.sign_in("a2001").await).await;
    verify(&two.sign_in("a2001").await, &meanwhile.code(1)).await.expect_code(0);
    two.command(&["key", "rotate"]).await.expect_success();
    follows(&one, &two, Instant::now()).await;
    let status = two.command(&["secret", "status"]).await.expect_success();
    assert!(status.contains("one-time-password secrets: 1, signing keys: 0"), "the device of gateway one: {status}");

    // Step 2 on the first gateway too, then step 3.
    drop(one);
    let one = shared.setup(&new, &[&old]).start().await;
    let status = one.command(&["secret", "status"]).await.expect_success();
    assert!(status.contains("no one-time-password secret and no signing key needs a previous secret"), "{status}");
    drop((one, two));
    let last = shared.setup(&new, &[]).start().await;
    verify(&last.sign_in("u1001").await, &before.code(1)).await.expect_code(0);
    let refused = shared.setup(&old, &[]).try_start().await.err().expect("a refusal");
    assert!(refused.stderr.contains("is encrypted with another secret"), "{}", refused.stderr);
}

#[tokio::test]
async fn gateway_without_its_directory_keeps_its_keys_until_their_time_is_over() {
    let mut server = PostgresServer::start();
    let shared = Shared::new(server.database("desk"));
    let current = shared.secret("current");
    let graceful = |setup: Setup| setup.toml("[token]\nkey_grace = \"8s\"").start();
    let (one, two) = tokio::join!(graceful(shared.setup(&current, &[])), graceful(shared.setup(&current, &[])));
    let (xiaoming, alice) = (two.sign_in("u1001").await, two.sign_in("a2001").await);
    one.command(&["key", "rotate", "--now"]).await.expect_success();
    let fresh = two.sign_in("u1001").await;
    assert_ne!(kid(fresh.token()), kid(xiaoming.token()));
    xiaoming.get("/api/auth/me").await.expect_code(0);

    server.kill();
    two.wait_for_log(&["cannot read the signing keys"]).await;
    alice.get("/api/desk/x").await.expect_status(200);
    eventually("the end of the grace period", || async {
        (xiaoming.get("/api/auth/me").await.status == 401).then_some(())
    })
    .await;
    alice.get("/api/desk/x").await.expect_invalid_token();
    fresh.get("/api/desk/x").await.expect_status(200);
    assert!(published(&two).await.contains(&kid(fresh.token())));

    server.start_again();
    two.wait_for_log(&["the signing keys can be read again"]).await;
    eventually("a rotation", || async { one.command(&["key", "rotate"]).await.status.success().then_some(()) }).await;
    follows(&two, &one, Instant::now()).await;
}
