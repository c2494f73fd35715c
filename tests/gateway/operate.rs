//! `deskgate session` and `deskgate role`: commands apply to the running gateway at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;

#[tokio::test]
async fn sessions_are_listed_and_ended_by_command() {
    let desk = Gateway::start().await;
    let (xiaoming, alice) = (desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    let (ended_id, live_id) = (jti_of(xiaoming.token()), jti_of(alice.token()));
    let mut socket = xiaoming.websocket("/ws/employee").await;
    socket.echo("hello").await;

    let list = desk.command(&["session", "list", "--json"]).await.expect_success();
    let parsed: Value = serde_json::from_str(&list).expect("JSON");
    assert!(parsed.to_string().contains(&ended_id) && parsed.to_string().contains(&live_id), "{list}");
    assert!(!list.contains(xiaoming.token()), "the list has a token");

    desk.command(&["session", "end", &ended_id]).await.expect_success();
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    alice.get("/api/auth/me").await.expect_code(0);
    let list = desk.command(&["session", "list", "--json"]).await.expect_success();
    assert!(!list.contains(&ended_id) && list.contains(&live_id), "{list}");
}

#[tokio::test]
async fn fleet_lists_the_running_gateway() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let mut socket = alice.websocket("/ws/agent").await;
    socket.echo("hello").await;
    let gateways = eventually("the gateway is announced with its socket", || async {
        let list = desk.command(&["fleet", "--json"]).await.expect_success();
        let gateways: Value = serde_json::from_str(&list).expect("JSON");
        (gateways[0]["sockets"] == 1).then_some(gateways)
    })
    .await;
    assert_eq!(gateways.as_array().map(Vec::len), Some(1), "{gateways}");
    assert_eq!(gateways[0]["listen"], json!(desk.address().to_string()));
    assert_eq!(gateways[0]["differs_in"], json!([]));
}

#[tokio::test]
async fn ending_an_unknown_session_fails() {
    let desk = Gateway::start().await;
    let output = desk.command(&["session", "end", "unknown-session"]).await;
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!output.stderr.is_empty(), "no error on stderr");
}

#[tokio::test]
async fn revoked_role_leaves_live_sessions() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let mut agent_socket = alice.websocket("/ws/agent").await;
    let mut employee_socket = alice.websocket("/ws/employee").await;
    agent_socket.echo("hello").await;
    alice.get("/api/agent-desk/x").await.expect_status(200);

    desk.command(&["role", "take", "a2001", "agent"]).await.expect_success();
    assert_eq!(agent_socket.close_code_within(Duration::from_secs(1)).await, Some(4403));
    employee_socket.echo("this one needs no role").await;
    alice.get("/api/agent-desk/x").await.expect_code(1003);
    let me = alice.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["roles"], &me["current_role"]), (&json!(["user"]), &json!("user")));
    alice.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(1003);
    let list = desk.command(&["role", "list", "--json"]).await.expect_success();
    serde_json::from_str::<Value>(&list).expect("JSON");
}

#[tokio::test]
async fn losing_the_last_role_ends_sessions_and_refuses_sign_in() {
    let desk = Gateway::start().await;
    let carlos = desk.sign_in("c4001").await;
    let mut socket = carlos.websocket("/ws/employee").await;
    socket.echo("hello").await;

    let note = desk.command(&["role", "take", "c4001", "security"]).await.expect_success();
    assert!(note.contains("no role left"), "{note}");
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
    carlos.get("/api/auth/me").await.expect_invalid_token();
    let refused = desk.phone("c4001").oauth2(&desk.client_url("h5")).await.location();
    assert_eq!(fragment_parameter(&refused, "error_code").as_deref(), Some("1003"), "no default role: {refused}");

    desk.command(&["role", "grant", "c4001", "user"]).await.expect_success();
    let me = desk.sign_in_by_oauth2("c4001", "h5").await.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(me["roles"], json!(["user"]));
}

#[tokio::test]
async fn taking_the_last_assigned_role_does_not_revive_the_agent_record() {
    let desk = Gateway::start().await;
    desk.command(&["agent", "add", "u1001", "--role", "admin"]).await.expect_success();
    let xiaoming = desk.sign_in("u1001").await;
    assert_eq!(xiaoming.get("/api/auth/me").await.expect_code(0).data()["roles"], json!(["user"]));
    desk.command(&["role", "take", "u1001", "user"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
    let list = desk.command(&["employee", "list", "u1001", "--json"]).await.expect_success();
    let list: Value = serde_json::from_str(&list).expect("JSON");
    assert_eq!(list[0]["roles"], json!([]), "{list}");
}

/// Signs in repeatedly until `stop` is set, and returns the signed-in clients.
async fn sign_in_repeatedly(anonymous: Client, stop: Arc<AtomicBool>, signed_in: Arc<AtomicUsize>) -> Vec<Client> {
    let mut clients = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let response = anonymous.post_json("/api/dev/login", &json!({ "employee_id": "a2001" })).await;
        // A sign-in that loses the race may be refused.
        if let Some(token) = response.data()["token"].as_str() {
            clients.push(anonymous.with_token(token));
            signed_in.fetch_add(1, Ordering::SeqCst);
        }
    }
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_in_racing_a_revoked_role_does_not_keep_it() {
    let desk = Gateway::start().await;
    for round in 0..40 {
        let (stop, signed_in) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..3)
            .map(|_| tokio::spawn(sign_in_repeatedly(desk.anonymous(), stop.clone(), signed_in.clone())))
            .collect();
        eventually("a sign-in", || async { (signed_in.load(Ordering::SeqCst) > 0).then_some(()) }).await;
        desk.command(&["role", "take", "a2001", "agent"]).await.expect_success();
        stop.store(true, Ordering::SeqCst);
        for task in tasks {
            for alice in within(TEST_TIMEOUT, "the end of a task", task).await.expect("a task that did not panic") {
                let response = alice.get("/api/auth/me").await;
                let kept = response.status == 200 && response.data()["roles"] != json!(["user"]);
                assert!(!kept, "round {round}: {}", response.describe());
                alice.post("/api/auth/logout").await;
            }
        }
        desk.command(&["role", "grant", "a2001", "agent"]).await.expect_success();
    }
}

#[tokio::test]
async fn granted_role_can_be_activated() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(1003);
    desk.command(&["role", "grant", "u1001", "agent"]).await.expect_success();
    xiaoming.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(0);
    xiaoming.get("/api/agent-desk/x").await.expect_status(200);
}

#[tokio::test]
async fn unknown_employees_and_roles_are_refused() {
    let desk = Gateway::start().await;
    for args in [["role", "grant", "u9999", "agent"], ["role", "take", "u9999", "user"], ["role", "grant", "u1001", ""]]
    {
        let output = desk.command(&args).await;
        assert!(!output.status.success(), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}: no error on stderr");
    }
}

#[tokio::test]
async fn commands_work_without_a_running_gateway() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.terminate().await;
    desk.command(&["session", "end", &jti_of(xiaoming.token())]).await.expect_success();
    desk.command(&["role", "grant", "u1001", "agent"]).await.expect_success();
    desk.restart().await;
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    let me = desk.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(me["current_role"], "agent");
}
