//! POST /api/auth/logout: from its answer on, the token opens nothing anywhere.

use std::time::Duration;

use crate::support::*;

#[tokio::test]
async fn after_logout_the_token_opens_nothing() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    alice.get("/api/desk/x").await.expect_status(200);

    let data = alice.post("/api/auth/logout").await.expect_code(0).data();
    assert_eq!(data["success"], true);
    assert!(data["message"].as_str().is_some_and(|message| !message.is_empty()), "{data}");

    desk.upstream.forget();
    alice.get("/api/auth/me").await.expect_invalid_token();
    alice.get("/api/desk/x").await.expect_invalid_token();
    alice.post("/api/auth/logout").await.expect_invalid_token();
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_invalid_token();
    let refused = alice.handshake("/ws/employee").refused().await;
    refused.expect_invalid_token();
    let asked = desk.anyone().post_json("/api/auth/verify", &json!({ "token": alice.token() })).await;
    assert_eq!(asked.expect_code(0).data()["valid"], false);
    assert!(desk.upstream.requests().is_empty(), "nothing of this is the upstream's business");
}

#[tokio::test]
async fn logout_closes_open_sockets_with_4401() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut sockets = Vec::new();
    for _ in 0..3 {
        let mut socket = alice.websocket("/ws/employee").await;
        socket.echo("hello").await;
        sockets.push(socket);
    }
    let mut other = desk.sign_in("u1001").await.websocket("/ws/employee").await;

    alice.post("/api/auth/logout").await.expect_code(0);
    for socket in &mut sockets {
        assert_eq!(socket.closed_within(Duration::from_secs(1)).await, Some(4401));
    }
    other.echo("another session goes on").await;
}

#[tokio::test]
async fn logout_ends_one_session_not_the_person() {
    let desk = Gateway::start().await;
    let (laptop, phone) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    laptop.post("/api/auth/logout").await.expect_code(0);
    laptop.get("/api/auth/me").await.expect_invalid_token();
    phone.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn the_schemes_spelling_does_not_keep_a_session_alive() {
    let desk = Gateway::start().await;
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
        let alice = desk.sign_in("u1001").await;
        let header = format!("{scheme} {}", alice.token());
        desk.anyone().send("POST", "/api/auth/logout", &[("Authorization", &header)], b"").await.expect_code(0);
        alice.get("/api/auth/me").await.expect_invalid_token();
    }
}

#[tokio::test]
async fn logout_needs_a_token() {
    let desk = Gateway::start().await;
    desk.anyone().post("/api/auth/logout").await.expect_bare_challenge();
    desk.bearing("a.b.c").post("/api/auth/logout").await.expect_invalid_token();
    let alice = desk.sign_in("u1001").await;
    let query = format!("/api/auth/logout?token={}", alice.token());
    desk.anyone().post(&query).await.expect_bare_challenge();
    alice.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn every_way_of_signing_in_can_be_logged_out() {
    let desk = Gateway::start().await;
    for (way, person) in [
        ("dev", desk.sign_in("u1001").await),
        ("qrcode", desk.sign_in_by_qrcode("u1001").await),
        ("oauth2", desk.sign_in_by_oauth2("u1001", "h5").await),
    ] {
        person.post("/api/auth/logout").await.expect_code(0);
        let answer = person.get("/api/auth/me").await;
        assert_eq!(answer.status, 401, "{way}");
    }
}

#[tokio::test]
async fn logout_outlives_a_restart() {
    let mut desk = Gateway::start().await;
    let (gone, stays) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    gone.post("/api/auth/logout").await.expect_code(0);
    desk.restart().await;
    gone.get("/api/auth/me").await.expect_invalid_token();
    stays.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn a_poll_does_not_bring_a_logged_out_session_back() {
    let desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let ticket = desk.anyone().get("/api/auth/qrcode").await.expect_code(0).data();
    desk.phone("u1001").scan(ticket["qrcode_url"].as_str().expect("a URL")).await;
    let poll = format!("/api/auth/scan/status?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
    let state = desk.anyone().get(&poll).await.expect_code(0).data();
    let alice = desk.bearing(state["token"].as_str().expect("a token"));
    alice.post("/api/auth/logout").await.expect_code(0);

    let again = desk.anyone().get(&poll).await.expect_code(0).data();
    if let Some(token) = again["token"].as_str() {
        desk.bearing(token).get("/api/auth/me").await.expect_invalid_token();
    }
    alice.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn logout_is_logged_with_the_employee() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    alice.post("/api/auth/logout").await.expect_code(0);
    desk.logged(&["logout", "u1001"]).await;
}
