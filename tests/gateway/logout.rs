//! POST /api/auth/logout: once it has answered, the token is refused everywhere.

use std::time::Duration;

use crate::support::*;

#[tokio::test]
async fn logout_revokes_the_token_on_every_route() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/desk/x").await.expect_status(200);

    let data = xiaoming.post("/api/auth/logout").await.expect_code(0).data();
    assert_eq!(data["success"], true);
    assert!(data["message"].as_str().is_some_and(|message| !message.is_empty()), "{data}");

    desk.upstream.clear_requests();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    xiaoming.get("/api/desk/x").await.expect_invalid_token();
    xiaoming.post("/api/auth/logout").await.expect_invalid_token();
    xiaoming.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_invalid_token();
    let refused = xiaoming.handshake("/ws/employee").expect_refused().await;
    refused.expect_invalid_token();
    let verified = desk.anonymous().post_json("/api/auth/verify", &json!({ "token": xiaoming.token() })).await;
    assert_eq!(verified.expect_code(0).data()["valid"], false);
    assert!(desk.upstream.requests().is_empty(), "a refused request reached the upstream");
}

#[tokio::test]
async fn logout_closes_open_websockets_with_4401() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut sockets = Vec::new();
    for _ in 0..3 {
        let mut socket = xiaoming.websocket("/ws/employee").await;
        socket.echo("hello").await;
        sockets.push(socket);
    }
    let mut other = desk.sign_in("u1001").await.websocket("/ws/employee").await;

    xiaoming.post("/api/auth/logout").await.expect_code(0);
    for socket in &mut sockets {
        assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
    }
    other.echo("another session stays open").await;
}

#[tokio::test]
async fn logout_ends_only_its_own_session() {
    let desk = Gateway::start().await;
    let (laptop, phone) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    laptop.post("/api/auth/logout").await.expect_code(0);
    laptop.get("/api/auth/me").await.expect_invalid_token();
    phone.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn logout_accepts_any_case_of_the_bearer_scheme() {
    let desk = Gateway::start().await;
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
        let xiaoming = desk.sign_in("u1001").await;
        let header = format!("{scheme} {}", xiaoming.token());
        desk.anonymous().send("POST", "/api/auth/logout", &[("Authorization", &header)], b"").await.expect_code(0);
        xiaoming.get("/api/auth/me").await.expect_invalid_token();
    }
}

#[tokio::test]
async fn logout_requires_a_token() {
    let desk = Gateway::start().await;
    desk.anonymous().post("/api/auth/logout").await.expect_bare_challenge();
    desk.with_token("a.b.c").post("/api/auth/logout").await.expect_invalid_token();
    let xiaoming = desk.sign_in("u1001").await;
    let query = format!("/api/auth/logout?token={}", xiaoming.token());
    desk.anonymous().post(&query).await.expect_bare_challenge();
    xiaoming.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn logout_ends_sessions_of_every_login_method() {
    let desk = Gateway::start().await;
    for (method, client) in [
        ("dev", desk.sign_in("u1001").await),
        ("qrcode", desk.sign_in_by_qrcode("u1001").await),
        ("oauth2", desk.sign_in_by_oauth2("u1001", "h5").await),
    ] {
        client.post("/api/auth/logout").await.expect_code(0);
        let response = client.get("/api/auth/me").await;
        assert_eq!(response.status, 401, "{method}");
    }
}

#[tokio::test]
async fn logout_survives_a_restart() {
    let mut desk = Gateway::start().await;
    let (logged_out, live) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    logged_out.post("/api/auth/logout").await.expect_code(0);
    desk.restart().await;
    logged_out.get("/api/auth/me").await.expect_invalid_token();
    live.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn polling_does_not_revive_a_logged_out_session() {
    let desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    desk.phone("u1001").scan(ticket["qrcode_url"].as_str().expect("a URL")).await;
    let poll = format!("/api/auth/scan/status?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
    let state = desk.anonymous().get(&poll).await.expect_code(0).data();
    let xiaoming = desk.with_token(state["token"].as_str().expect("a token"));
    xiaoming.post("/api/auth/logout").await.expect_code(0);

    let again = desk.anonymous().get(&poll).await.expect_code(0).data();
    if let Some(token) = again["token"].as_str() {
        desk.with_token(token).get("/api/auth/me").await.expect_invalid_token();
    }
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn logout_is_logged_with_the_employee() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    desk.wait_for_log(&["logout", "u1001"]).await;
}
