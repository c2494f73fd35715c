//! POST /api/auth/verify: validity and identity of a token, without authentication.

use crate::support::*;

async fn verified(desk: &Gateway, token: &str) -> Value {
    desk.anonymous().post_json("/api/auth/verify", &json!({ "token": token })).await.expect_code(0).data()
}

#[tokio::test]
async fn verify_returns_the_identity_of_a_valid_token() {
    let desk = Gateway::start().await;
    let zhou_min = desk.sign_in("m5001").await;
    let data = verified(&desk, zhou_min.token()).await;
    let me = zhou_min.get("/api/auth/me").await.expect_code(0).data();

    assert_eq!(data["valid"], true);
    for member in ["employee_id", "name", "roles", "current_role", "login_source"] {
        assert_eq!(data[member], me[member], "{member}");
    }
    assert_eq!(data["employee_id"], "m5001");
    let seconds = data["expires_in"].as_i64().expect("an integer number of seconds");
    assert!((28_700..=28_800).contains(&seconds), "the default lifetime is eight hours, not {seconds} s");
}

#[tokio::test]
async fn verify_returns_no_identity_for_invalid_tokens() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let good = xiaoming.token().to_owned();
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    let long = "a".repeat(20_000);
    for (case, token) in [
        ("empty", ""),
        ("a word", "token"),
        ("three dots", "..."),
        ("empty segments", ".."),
        ("not base64", "!.!.!"),
        ("not ASCII", "令牌.令牌.令牌"),
        ("long", &long),
        ("a line break", "a\r\nb.c.d"),
        ("with its scheme", "Bearer a.b.c"),
        ("logged out", &good),
    ] {
        let data = verified(&desk, token).await;
        assert_eq!(data["valid"], false, "{case}");
        for member in ["employee_id", "name", "roles", "current_role", "login_source", "expires_in"] {
            let value = &data[member];
            let empty = value.is_null() || *value == json!("") || *value == json!([]);
            assert!(empty, "{case}: {member} of {data}");
        }
    }
}

#[tokio::test]
async fn verify_returns_the_sessions_active_role() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    assert_eq!(verified(&desk, alice.token()).await["current_role"], "agent");
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
    let data = verified(&desk, alice.token()).await;
    assert_eq!((&data["valid"], &data["current_role"]), (&json!(true), &json!("user")));
}

#[tokio::test]
async fn verify_refuses_expired_tokens() {
    let desk = Gateway::with("[token]\nlifetime = \"2s\"\nleeway = \"0s\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    let data = verified(&desk, xiaoming.token()).await;
    assert!(data["valid"] == false || (0..=2).contains(&data["expires_in"].as_i64().expect("seconds")), "{data}");
    eventually("the end of the token", || async {
        (verified(&desk, xiaoming.token()).await["valid"] == false).then_some(())
    })
    .await;
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    xiaoming.get("/api/desk/x").await.expect_invalid_token();
}

#[tokio::test]
async fn verify_needs_no_authentication() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let body = json!({ "token": xiaoming.token() });
    for (case, asking) in [("none", desk.anonymous()), ("an expired token", desk.with_token("a.b.c"))] {
        let data = asking.post_json("/api/auth/verify", &body).await.expect_code(0).data();
        assert_eq!(data["valid"], true, "{case}");
    }
}

#[tokio::test]
async fn verify_requires_a_token_in_the_body() {
    let desk = Gateway::start().await;
    for body in [json!({}), json!({ "token": 1 }), json!({ "token": null }), json!({ "token": ["a"] }), json!([])] {
        let response = desk.anonymous().post_json("/api/auth/verify", &body).await;
        assert_eq!(response.code(), 1400, "{body}");
        response.expect_code(1400);
    }
}
