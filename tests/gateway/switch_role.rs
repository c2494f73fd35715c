//! POST /api/auth/switch-role: another hat, the same token.

use std::time::Duration;

use crate::support::*;

async fn switch(person: &Client, role: &str) -> Answer {
    person.post_json("/api/auth/switch-role", &json!({ "role": role })).await
}

#[tokio::test]
async fn a_held_role_becomes_the_active_one() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    let data = switch(&anton, "user").await.expect_code(0).data();
    assert_eq!((&data["success"], &data["current_role"]), (&json!(true), &json!("user")));
    assert!(data["message"].as_str().is_some_and(|message| !message.is_empty()), "{data}");
    assert_eq!(anton.get("/api/auth/me").await.expect_code(0).data()["current_role"], "user");
}

#[tokio::test]
async fn rules_and_upstreams_see_the_new_role_at_once() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    for (role, code) in [("agent", 200), ("user", 403), ("agent", 200), ("user", 403)] {
        switch(&anton, role).await.expect_code(0);
        anton.get("/api/agent-desk/x").await.expect_status(code);
        anton.get("/api/desk/x").await.expect_status(200);
        let seen = desk.upstream.last_request();
        assert_eq!(seen.header("x-deskgate-current-role"), Some(role));
        assert_eq!(seen.header("x-deskgate-roles").map(|roles| roles.split(',').count()), Some(2));
    }
}

#[tokio::test]
async fn row_56_a_role_that_is_not_held_is_refused_by_name() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    let long = "a".repeat(10_000);
    for (case, role) in [
        ("not held", "admin"),
        ("unheard of", "pharaoh"),
        ("empty", ""),
        ("another case", "User"),
        ("upper case", "AGENT"),
        ("with a space", "user "),
        ("with NUL", "user\0"),
        ("not held, with NUL", "admin\0"),
        ("full width", "ｕser"),
        ("two at once", "user,agent"),
        ("long", &long),
    ] {
        let answer = switch(&anton, role).await;
        assert_eq!(answer.code(), 1003, "{case}");
        let answer = answer.expect_code(1003);
        if case == "not held" {
            assert!(answer.message().contains("admin"), "the message names the role: {}", answer.message());
        }
        assert_eq!(anton.get("/api/auth/me").await.expect_code(0).data()["current_role"], "agent", "{case}");
    }
}

#[tokio::test]
async fn row_56_a_role_is_a_text() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    for body in [json!({}), json!({ "role": 1 }), json!({ "role": null }), json!({ "role": ["user"] }), json!("user")] {
        let answer = anton.post_json("/api/auth/switch-role", &body).await;
        assert_eq!(answer.code(), 1400, "{body}");
    }
    assert_eq!(anton.get("/api/auth/me").await.expect_code(0).data()["current_role"], "agent");
}

#[tokio::test]
async fn row_57_switching_needs_a_token() {
    let desk = Gateway::start().await;
    switch(&desk.anyone(), "user").await.expect_bare_challenge();
    switch(&desk.bearing("a.b.c"), "user").await.expect_invalid_token();
}

#[tokio::test]
async fn switching_changes_one_session_not_the_person() {
    let desk = Gateway::start().await;
    let (laptop, phone) = (desk.sign_in("a2001").await, desk.sign_in("a2001").await);
    switch(&laptop, "user").await.expect_code(0);
    assert_eq!(phone.get("/api/auth/me").await.expect_code(0).data()["current_role"], "agent");
}

#[tokio::test]
async fn a_socket_that_needs_the_role_is_closed_with_4403() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    let mut for_agents = anton.websocket("/ws/agent").await;
    let mut for_everyone = anton.websocket("/ws/employee").await;
    for_agents.echo("hello").await;
    switch(&anton, "user").await.expect_code(0);
    assert_eq!(for_agents.closed_within(Duration::from_secs(1)).await, Some(4403));
    for_everyone.echo("this one needs no role").await;
    anton.handshake("/ws/agent").refused().await.expect_code(1003);
}

#[tokio::test]
async fn the_new_role_outlives_a_restart() {
    let mut desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    switch(&anton, "user").await.expect_code(0);
    desk.restart().await;
    assert_eq!(anton.get("/api/auth/me").await.expect_code(0).data()["current_role"], "user");
}

#[tokio::test]
async fn row_58_switching_never_brings_a_logged_out_session_back() {
    let desk = Gateway::start().await;
    for round in 0..100 {
        let anton = desk.sign_in("a2001").await;
        let (out, _, _) = tokio::join!(anton.post("/api/auth/logout"), switch(&anton, "user"), switch(&anton, "agent"));
        out.expect_code(0);
        let answer = anton.get("/api/auth/me").await;
        assert_eq!(answer.status, 401, "round {round}: {}", answer.describe());
        switch(&anton, "user").await.expect_invalid_token();
    }
}
