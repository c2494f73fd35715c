//! `deskgate session` and `deskgate role`: commands that reach the running gateway, and what follows at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;

#[tokio::test]
async fn sessions_are_listed_and_ended() {
    let desk = Gateway::start().await;
    let (alice, anton) = (desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    let (gone, stays) = (jti_of(alice.token()), jti_of(anton.token()));
    let mut socket = alice.websocket("/ws/employee").await;
    socket.echo("hello").await;

    let list = desk.command(&["session", "list", "--json"]).await.success();
    let parsed: Value = serde_json::from_str(&list).expect("JSON");
    assert!(parsed.to_string().contains(&gone) && parsed.to_string().contains(&stays), "{list}");
    assert!(!list.contains(alice.token()), "a list is no place for tokens");

    desk.command(&["session", "end", &gone]).await.success();
    assert_eq!(socket.closed_within(Duration::from_secs(1)).await, Some(4401));
    alice.get("/api/auth/me").await.expect_invalid_token();
    anton.get("/api/auth/me").await.expect_code(0);
    let list = desk.command(&["session", "list", "--json"]).await.success();
    assert!(!list.contains(&gone) && list.contains(&stays), "{list}");
}

#[tokio::test]
async fn ending_a_session_that_is_not_there_is_a_failure() {
    let desk = Gateway::start().await;
    let output = desk.command(&["session", "end", "nobody-has-this-one"]).await;
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!output.stderr.is_empty(), "it says why");
}

#[tokio::test]
async fn a_taken_role_is_gone_from_live_sessions() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    let mut for_agents = anton.websocket("/ws/agent").await;
    let mut for_everyone = anton.websocket("/ws/employee").await;
    for_agents.echo("hello").await;
    anton.get("/api/agent-desk/x").await.expect_status(200);

    desk.command(&["role", "take", "a2001", "agent"]).await.success();
    assert_eq!(for_agents.closed_within(Duration::from_secs(1)).await, Some(4403));
    for_everyone.echo("this one needs no role").await;
    anton.get("/api/agent-desk/x").await.expect_code(1003);
    let me = anton.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["roles"], &me["current_role"]), (&json!(["user"]), &json!("user")));
    anton.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(1003);
    let list = desk.command(&["role", "list", "--json"]).await.success();
    serde_json::from_str::<Value>(&list).expect("JSON");
}

#[tokio::test]
async fn whoever_loses_the_last_role_goes_on_in_the_default_one() {
    let rule = "[[rule]]\nname = \"security socket\"\npath = \"/ws/security\"\nmethods = [\"GET\"]\n\
                upstream = \"helpdesk\"\nroles = [\"security\"]\n";
    let desk = Gateway::setup().more_rules(rule).start().await;
    let carlos = desk.sign_in("c4001").await;
    let mut for_security = carlos.websocket("/ws/security").await;
    let mut for_everyone = carlos.websocket("/ws/employee").await;
    for_security.echo("hello").await;
    for_everyone.echo("hello").await;

    desk.command(&["role", "take", "c4001", "security"]).await.success();
    assert_eq!(for_security.closed_within(Duration::from_secs(1)).await, Some(4403));
    for_everyone.echo("this one needs no role").await;
    let me = carlos.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["roles"], &me["current_role"]), (&json!(["user"]), &json!("user")));
    carlos.get("/api/desk/x").await.expect_status(200);
    let seen = desk.upstream.last_request();
    assert_eq!((seen.header("x-deskgate-roles"), seen.header("x-deskgate-current-role")), (Some("user"), Some("user")));
    carlos.handshake("/ws/security").refused().await.expect_code(1003);
}

/// Signs in again and again until told to stop: everybody who got in.
async fn sign_in_on(anyone: Client, over: Arc<AtomicBool>, signed_in: Arc<AtomicUsize>) -> Vec<Client> {
    let mut people = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let answer = anyone.post_json("/api/dev/login", &json!({ "employee_id": "a2001" })).await;
        // One that lost the race may be refused.
        if let Some(token) = answer.data()["token"].as_str() {
            people.push(anyone.bearing(token));
            signed_in.fetch_add(1, Ordering::SeqCst);
        }
    }
    people
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_that_races_a_taken_role_never_keeps_it() {
    let desk = Gateway::start().await;
    for round in 0..40 {
        let (over, signed_in) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let signers: Vec<_> =
            (0..3).map(|_| tokio::spawn(sign_in_on(desk.anyone(), over.clone(), signed_in.clone()))).collect();
        eventually("a sign-in", || async { (signed_in.load(Ordering::SeqCst) > 0).then_some(()) }).await;
        desk.command(&["role", "take", "a2001", "agent"]).await.success();
        over.store(true, Ordering::SeqCst);
        for signer in signers {
            for anton in within(PATIENCE, "the end of a signer", signer).await.expect("a signer that did not fail") {
                let answer = anton.get("/api/auth/me").await;
                let kept = answer.status == 200 && answer.data()["roles"] != json!(["user"]);
                assert!(!kept, "round {round}: {}", answer.describe());
                anton.post("/api/auth/logout").await;
            }
        }
        desk.command(&["role", "grant", "a2001", "agent"]).await.success();
    }
}

#[tokio::test]
async fn a_granted_role_can_be_switched_to() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    alice.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(1003);
    desk.command(&["role", "grant", "u1001", "agent"]).await.success();
    alice.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(0);
    alice.get("/api/agent-desk/x").await.expect_status(200);
}

#[tokio::test]
async fn roles_of_nobody_and_roles_that_are_none_are_refused() {
    let desk = Gateway::start().await;
    for args in [["role", "grant", "u9999", "agent"], ["role", "take", "u9999", "user"], ["role", "grant", "u1001", ""]]
    {
        let output = desk.command(&args).await;
        assert!(!output.status.success(), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?} says why");
    }
}

#[tokio::test]
async fn commands_work_on_a_gateway_that_is_not_running() {
    let mut desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    desk.terminate().await;
    desk.command(&["session", "end", &jti_of(alice.token())]).await.success();
    desk.command(&["role", "grant", "u1001", "agent"]).await.success();
    desk.restart().await;
    alice.get("/api/auth/me").await.expect_invalid_token();
    let me = desk.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(me["current_role"], "agent");
}
