//! Thousands of sessions: a start compares them with the directory in the background and lets in nothing that differs, and
//! the commands for keys and links change them in parts.

use std::time::Duration;

use crate::support::*;

/// Sessions of employees who do not exist, and come before those of the development data. Ending them keeps the comparison
/// busy while the test sends its requests.
const OTHERS: i64 = 700;

/// How many starts of a gateway have compared all sessions.
fn comparisons(desk: &Gateway) -> usize {
    desk.logs().matches("all sessions agree with the directory").count()
}

async fn until_compared(desk: &Gateway, starts: usize) {
    eventually("the end of the comparison", || async { (comparisons(desk) == starts).then_some(()) }).await;
}

/// Copies a stored session many times, with ids of their own.
fn copies(count: i64, employee: &str) -> String {
    format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
         INSERT INTO sessions (id, corp_id, employee_id, version, issued_at, expires_at, body)
         SELECT 'copy' || n, corp_id, {employee}, version, issued_at, expires_at,
             json_set(body, '$.id', 'copy' || n, '$.employee_id', {employee})
         FROM numbers CROSS JOIN (SELECT * FROM sessions LIMIT 1)"
    )
}

const EACH_OF_ANOTHER: &str = "printf('a%04d', n)";

async fn stored_sessions(desk: &Gateway) -> i64 {
    desk.read_database("state.db", "SELECT count(*) FROM sessions").await
}

#[tokio::test]
async fn nothing_that_a_crash_left_is_let_in_while_sessions_are_compared() {
    let mut desk = Gateway::start().await;
    let (disabled, demoted, kept) =
        (desk.sign_in("u1001").await, desk.sign_in("a2001").await, desk.sign_in("m5001").await);
    until_compared(&desk, 1).await;
    desk.sigkill();
    // As if the process had died between the directory's write and the store's.
    let changes = "UPDATE employees SET disabled = 1 WHERE employee_id = 'u1001';
         DELETE FROM user_roles WHERE employee_id = 'a2001' AND role_id <> (SELECT id FROM roles WHERE name = 'user')";
    desk.change_directory(changes).await;
    desk.change_database("state.db", &copies(OTHERS, EACH_OF_ANOTHER)).await;

    desk.restart().await;
    desk.with_token(disabled.token()).get("/api/auth/me").await.expect_invalid_token();
    let me = desk.with_token(demoted.token()).get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(me["roles"], json!(["user"]), "{me}");
    desk.with_token(kept.token()).get("/api/desk/x").await.expect_status(200);
    assert_eq!(comparisons(&desk), 1, "the background was faster than the test");

    until_compared(&desk, 2).await;
    assert_eq!(stored_sessions(&desk).await, 2, "the sessions of employees who do not exist");
    desk.with_token(kept.token()).get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn directory_that_cannot_be_read_lets_no_unknown_session_in_while_sessions_are_compared() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    until_compared(&desk, 1).await;
    desk.terminate().await;
    desk.change_database("state.db", &copies(OTHERS, EACH_OF_ANOTHER)).await;
    desk.restart().await;
    desk.change_directory("ALTER TABLE employees RENAME TO elsewhere").await;
    assert_eq!(desk.with_token(xiaoming.token()).get("/api/auth/me").await.code(), 1503);
    desk.wait_for_log(&["could not compare sessions with the directory"]).await;
    desk.change_directory("ALTER TABLE elsewhere RENAME TO employees").await;
    desk.with_token(xiaoming.token()).get("/api/auth/me").await.expect_code(0);
    until_compared(&desk, 2).await;
}

#[tokio::test]
async fn key_commands_change_thousands_of_sessions_in_parts() {
    const COPIES: i64 = 3000;
    let desk = Gateway::setup().set("token.key_grace", "1h").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    until_compared(&desk, 1).await;
    desk.change_database("state.db", &copies(COPIES, "employee_id")).await;
    let first = header_of(xiaoming.token())["kid"].as_str().expect("a kid").to_owned();

    let rotated = desk.command(&["key", "rotate", "--now", "--json"]).await.expect_success();
    let rotated: Value = serde_json::from_str(&rotated).expect("JSON");
    assert_eq!(rotated["sessions"], COPIES + 1, "all sessions expire with their key: {rotated}");
    let later = "SELECT count(*) FROM sessions WHERE expires_at > (unixepoch() + 3601) * 1000
             OR expires_at <> json_extract(body, '$.expires_at') OR version <> json_extract(body, '$.version')";
    assert_eq!(desk.read_database("state.db", later).await, 0);
    xiaoming.get("/api/auth/me").await.expect_code(0);

    desk.command(&["key", "remove", &first, "--yes"]).await.expect_success();
    assert_eq!(stored_sessions(&desk).await, 0);
    let denied = "SELECT count(*) FROM denied WHERE id LIKE 'copy%'";
    assert_eq!(desk.read_database("state.db", denied).await, COPIES);
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn removal_of_a_key_answers_before_its_many_sessions_have_ended() {
    const COPIES: i64 = 20_000;
    let desk = Gateway::setup().faulty_disk().start().await;
    let xiaoming = desk.sign_in("u1001").await;
    until_compared(&desk, 1).await;
    desk.change_database("state.db", &copies(COPIES, "employee_id")).await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    socket.echo("hello").await;
    desk.command(&["key", "rotate", "--now"]).await.expect_success();
    // All changes together take far longer than a command may.
    desk.disk().set(&["file=state.db", "sync_ms=1000"]);

    let old = header_of(xiaoming.token())["kid"].as_str().expect("a kid").to_owned();
    let removed = desk.command(&["key", "remove", &old, "--yes"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    assert!(stored_sessions(&desk).await > COPIES / 2, "the command waited for all sessions");
    assert!(removed.contains("still ending"), "{removed}");
    assert_eq!(socket.close_code_within(Duration::from_secs(2)).await, Some(4401));

    desk.disk().clear();
    eventually("the end of the other sessions", || async { (stored_sessions(&desk).await == 0).then_some(()) }).await;
}
