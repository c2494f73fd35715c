//! POST /api/auth/switch-role: changes the active role of a session; the token stays the same.

use std::time::Duration;

use crate::support::*;

async fn switch(person: &Client, role: &str) -> Response {
    person.post_json("/api/auth/switch-role", &json!({ "role": role })).await
}

#[tokio::test]
async fn switch_role_activates_a_held_role() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let data = switch(&alice, "user").await.expect_code(0).data();
    assert_eq!((&data["success"], &data["current_role"]), (&json!(true), &json!("user")));
    assert!(data["message"].as_str().is_some_and(|message| !message.is_empty()), "{data}");
    assert_eq!(alice.get("/api/auth/me").await.expect_code(0).data()["current_role"], "user");
}

#[tokio::test]
async fn switched_role_applies_to_rules_and_upstreams() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    for (role, code) in [("agent", 200), ("user", 403), ("agent", 200), ("user", 403)] {
        switch(&alice, role).await.expect_code(0);
        alice.get("/api/agent-desk/x").await.expect_status(code);
        alice.get("/api/desk/x").await.expect_status(200);
        let seen = desk.upstream.last_request();
        assert_eq!(seen.header("x-deskgate-current-role"), Some(role));
        assert_eq!(seen.header("x-deskgate-roles").map(|roles| roles.split(',').count()), Some(2));
    }
}

#[tokio::test]
async fn switch_role_refuses_roles_that_are_not_held() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let long = "a".repeat(10_000);
    for (case, role) in [
        ("not held", "admin"),
        ("unknown role", "pharaoh"),
        ("empty", ""),
        ("another case", "User"),
        ("upper case", "AGENT"),
        ("with a space", "user "),
        ("with NUL", "user\0"),
        ("not held, with NUL", "admin\0"),
        ("full width", "ｕser"),
        ("two roles", "user,agent"),
        ("long", &long),
    ] {
        let response = switch(&alice, role).await;
        assert_eq!(response.code(), 1003, "{case}");
        let response = response.expect_code(1003);
        if case == "not held" {
            assert!(response.message().contains("admin"), "the message names the role: {}", response.message());
        }
        assert_eq!(alice.get("/api/auth/me").await.expect_code(0).data()["current_role"], "agent", "{case}");
    }
}

#[tokio::test]
async fn switch_role_requires_a_text() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    for body in [json!({}), json!({ "role": 1 }), json!({ "role": null }), json!({ "role": ["user"] }), json!("user")] {
        let response = alice.post_json("/api/auth/switch-role", &body).await;
        assert_eq!(response.code(), 1400, "{body}");
    }
    assert_eq!(alice.get("/api/auth/me").await.expect_code(0).data()["current_role"], "agent");
}

#[tokio::test]
async fn switch_role_requires_a_token() {
    let desk = Gateway::start().await;
    switch(&desk.anonymous(), "user").await.expect_bare_challenge();
    switch(&desk.with_token("a.b.c"), "user").await.expect_invalid_token();
}

#[tokio::test]
async fn switch_role_changes_only_its_own_session() {
    let desk = Gateway::start().await;
    let (laptop, phone) = (desk.sign_in("a2001").await, desk.sign_in("a2001").await);
    switch(&laptop, "user").await.expect_code(0);
    assert_eq!(phone.get("/api/auth/me").await.expect_code(0).data()["current_role"], "agent");
}

#[tokio::test]
async fn switch_role_closes_websockets_that_need_the_old_role_with_4403() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let mut for_agents = alice.websocket("/ws/agent").await;
    let mut for_everyone = alice.websocket("/ws/employee").await;
    for_agents.echo("hello").await;
    switch(&alice, "user").await.expect_code(0);
    assert_eq!(for_agents.close_code_within(Duration::from_secs(1)).await, Some(4403));
    for_everyone.echo("this one needs no role").await;
    alice.handshake("/ws/agent").expect_refused().await.expect_code(1003);
}

#[tokio::test]
async fn switched_role_survives_a_restart() {
    let mut desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    switch(&alice, "user").await.expect_code(0);
    desk.restart().await;
    assert_eq!(alice.get("/api/auth/me").await.expect_code(0).data()["current_role"], "user");
}

#[tokio::test]
async fn switch_role_never_revives_a_logged_out_session() {
    let desk = Gateway::start().await;
    for round in 0..100 {
        let alice = desk.sign_in("a2001").await;
        let (out, _, _) = tokio::join!(alice.post("/api/auth/logout"), switch(&alice, "user"), switch(&alice, "agent"));
        out.expect_code(0);
        let response = alice.get("/api/auth/me").await;
        assert_eq!(response.status, 401, "round {round}: {}", response.describe());
        switch(&alice, "user").await.expect_invalid_token();
    }
}
