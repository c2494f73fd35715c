//! `deskgate key`: rotation keeps all sessions, and removing a key ends the sessions that it signed.

use std::time::Duration;

use crate::support::*;

async fn keys(desk: &Gateway) -> Vec<Value> {
    let listed = desk.command(&["key", "list", "--json"]).await.expect_success();
    serde_json::from_str::<Value>(&listed).expect("JSON").as_array().expect("a list").clone()
}

fn in_state(keys: &[Value], state: &str) -> Vec<String> {
    let matching = keys.iter().filter(|key| key["state"] == state);
    matching.map(|key| key["id"].as_str().expect("an id").to_owned()).collect()
}

async fn published(desk: &Gateway) -> Vec<String> {
    let set = desk.anonymous().get("/.well-known/jwks.json").await.expect_status(200).json();
    let keys = set["keys"].as_array().expect("keys").clone();
    keys.iter().map(|key| key["kid"].as_str().expect("a kid").to_owned()).collect()
}

fn kid(token: &str) -> String {
    header_of(token)["kid"].as_str().expect("a kid").to_owned()
}

#[tokio::test]
async fn new_key_is_published_before_it_signs() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.command(&["key", "rotate"]).await.expect_success();
    let listed = keys(&desk).await;
    let (pending, signing) = (in_state(&listed, "waiting"), in_state(&listed, "signing"));
    assert_eq!((pending.len(), &signing), (1, &vec![kid(xiaoming.token())]), "{listed:?}");
    assert!(published(&desk).await.contains(&pending[0]), "verifiers have the key before it signs");
    assert_eq!(kid(desk.sign_in("a2001").await.token()), signing[0], "the new key does not sign yet");
    let again = desk.command(&["key", "rotate"]).await;
    assert_eq!(again.status.code(), Some(4), "a key is pending already: {}", again.output_text());
    assert!(again.output_text().contains(&pending[0]), "{}", again.output_text());
}

#[tokio::test]
async fn key_rotation_keeps_sessions() {
    let desk = Gateway::setup().set("token.key_lead", "1s").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    desk.command(&["key", "rotate"]).await.expect_success();
    let fresh = eventually("a token of the new key", || async {
        let alice = desk.sign_in("a2001").await;
        (kid(alice.token()) != kid(xiaoming.token())).then_some(alice)
    })
    .await;
    for client in [&xiaoming, &fresh] {
        client.get("/api/auth/me").await.expect_code(0);
        client.get("/api/desk/x").await.expect_status(200);
    }
    socket.echo("still open").await;
    let listed = keys(&desk).await;
    assert_eq!(in_state(&listed, "believed"), [kid(xiaoming.token())], "{listed:?}");
    assert_eq!(in_state(&listed, "signing"), [kid(fresh.token())], "{listed:?}");
    assert_eq!(published(&desk).await.len(), 2);
}

#[tokio::test]
async fn key_validity_survives_a_restart() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    desk.restart().await;
    xiaoming.get("/api/auth/me").await.expect_code(0);
    let alice = desk.sign_in("a2001").await;
    assert_ne!(kid(alice.token()), kid(xiaoming.token()));
}

#[tokio::test]
async fn tokens_of_a_retired_key_end_after_its_grace() {
    let desk = Gateway::setup().set("token.key_grace", "4s").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/desk/x").await.expect_status(200);
    let mut socket = xiaoming.websocket("/ws/employee").await;
    socket.echo("hello").await;

    let stdout = desk.command(&["key", "rotate", "--now", "--json"]).await.expect_success();
    let output: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(output["sessions"], 1, "the sessions that end earlier: {output}");
    let alice = desk.sign_in("a2001").await;
    let verified = desk.anonymous().post_json("/api/auth/verify", &json!({ "token": xiaoming.token() })).await;
    let left = verified.expect_code(0).data()["expires_in"].as_u64().expect("seconds");
    assert!(left <= 4, "expires_in is {left}");

    assert_eq!(
        socket.close_code_within(Duration::from_secs(10)).await,
        Some(4401),
        "the WebSocket ends with the token"
    );
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    xiaoming.get("/api/desk/x").await.expect_invalid_token();
    alice.get("/api/auth/me").await.expect_code(0);
    assert!(published(&desk).await.contains(&kid(xiaoming.token())), "recent assertions can still be verified");
    let listed = keys(&desk).await;
    assert_eq!(in_state(&listed, "over"), [kid(xiaoming.token())], "{listed:?}");
}

#[tokio::test]
async fn removed_key_ends_its_sessions_and_websockets() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let stolen = kid(xiaoming.token());
    xiaoming.get("/api/desk/x").await.expect_status(200);
    let mut socket = xiaoming.websocket("/ws/employee").await;
    socket.echo("hello").await;

    let refused = desk.command(&["key", "remove", &stolen, "--yes"]).await;
    assert_eq!(refused.status.code(), Some(4), "the signing key cannot be removed: {}", refused.output_text());
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    let alice = desk.sign_in("a2001").await;
    let unconfirmed = desk.command(&["key", "remove", &stolen]).await;
    assert_eq!(unconfirmed.status.code(), Some(5), "removal needs --yes: {}", unconfirmed.output_text());
    xiaoming.get("/api/auth/me").await.expect_code(0);

    desk.command(&["key", "remove", &stolen, "--yes"]).await.expect_success();
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    alice.get("/api/auth/me").await.expect_code(0);
    assert_eq!(published(&desk).await, [kid(alice.token())]);
    assert_eq!(desk.metric("deskgate_sessions_ended_total", &["cause=\"key_removed\""]).await, 1.0);
    let gone = desk.command(&["key", "remove", &stolen, "--yes"]).await;
    assert_eq!(gone.status.code(), Some(3), "{}", gone.output_text());
}

#[tokio::test]
async fn sessions_without_a_key_id_end_with_a_removed_key() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let old = kid(xiaoming.token());
    desk.terminate().await;
    let url = format!("sqlite:{}", desk.data_dir().join("state.db").display());
    let mut database = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("the store");
    let strip = sqlx::query("UPDATE sessions SET body = json_remove(body, '$.key_id')");
    strip.execute(&mut database).await.expect("sessions of an older version");
    drop(database);
    desk.restart().await;
    xiaoming.get("/api/auth/me").await.expect_code(0);
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_code(0);
    desk.command(&["key", "remove", &old, "--yes"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn keys_rotate_without_a_running_gateway() {
    let mut desk = Gateway::start().await;
    let (xiaoming, old) = {
        let xiaoming = desk.sign_in("u1001").await;
        let old = kid(xiaoming.token());
        (xiaoming, old)
    };
    desk.terminate().await;
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    desk.command(&["key", "remove", &old, "--yes"]).await.expect_success();
    desk.restart().await;
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    let alice = desk.sign_in("a2001").await;
    assert_ne!(kid(alice.token()), old);
}

#[tokio::test]
async fn added_key_file_is_loaded_on_sighup() {
    let desk = Gateway::setup().set("token.algorithm", "ES256").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let other = Gateway::start().await;
    let other_kid = kid(other.sign_in("u1001").await.token());
    let file = format!("{other_kid}.pem");
    // A key signs from its creation on, and this one is newer.
    std::fs::copy(other.data_dir().join("keys").join(&file), desk.data_dir().join("keys").join(&file))
        .expect("a key file");
    desk.signal("HUP");
    eventually("the new key", || async { published(&desk).await.contains(&other_kid).then_some(()) }).await;
    xiaoming.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn damaged_key_file_keeps_the_current_keys() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let keys = desk.data_dir().join("keys");
    std::fs::write(keys.join("eddsa-1800000000-x.pem"), "-----BEGIN PRIVATE KEY-----").expect("a file");
    desk.signal("HUP");
    desk.wait_for_log(&["eddsa-1800000000-x.pem"]).await;
    assert_eq!(desk.metric("deskgate_config_reload_success", &[]).await, 0.0);
    let files = || std::fs::read_dir(&keys).expect("a folder").count();
    let before = files();
    let refused = desk.command(&["key", "rotate", "--now"]).await;
    assert_eq!(refused.status.code(), Some(1), "{}", refused.output_text());
    assert_eq!(files(), before, "a failed rotation leaves a file");
    xiaoming.get("/api/auth/me").await.expect_code(0);
    assert_eq!(published(&desk).await, [kid(xiaoming.token())]);
}

#[tokio::test]
async fn token_must_be_signed_by_its_sessions_key() {
    let desk = Gateway::start().await;
    let before = desk.sign_in("u1001").await;
    let stolen = Signer::of_gateway(&desk, before.token());
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    let after = eventually("a token of the new key", || async {
        let after = desk.sign_in("u1001").await;
        (kid(after.token()) != kid(before.token())).then_some(after)
    })
    .await;
    let part = |token: &str, number| token.split('.').nth(number).expect("a part").to_owned();
    let message = format!("{}.{}", part(before.token(), 0), part(after.token(), 1));
    let forged = format!("{message}.{}", base64url(stolen.sign(message.as_bytes())));
    desk.with_token(&forged).get("/api/auth/me").await.expect_invalid_token();
    after.get("/api/auth/me").await.expect_code(0);
    before.get("/api/auth/me").await.expect_code(0);
}
