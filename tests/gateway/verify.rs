//! POST /api/auth/verify: what a token is worth now, asked by anyone.

use crate::support::*;

async fn verified(desk: &Gateway, token: &str) -> Value {
    desk.anyone().post_json("/api/auth/verify", &json!({ "token": token })).await.expect_code(0).data()
}

#[tokio::test]
async fn a_good_token_tells_whose_it_is() {
    let desk = Gateway::start().await;
    let marta = desk.sign_in("m5001").await;
    let data = verified(&desk, marta.token()).await;
    let me = marta.get("/api/auth/me").await.expect_code(0).data();

    assert_eq!(data["valid"], true);
    for member in ["employee_id", "name", "roles", "current_role", "login_source"] {
        assert_eq!(data[member], me[member], "{member}");
    }
    assert_eq!(data["employee_id"], "m5001");
    let seconds = data["expires_in"].as_i64().expect("whole seconds");
    assert!((28_700..=28_800).contains(&seconds), "eight hours by default, not {seconds}");
}

#[tokio::test]
async fn a_bad_token_tells_nothing() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let good = alice.token().to_owned();
    alice.post("/api/auth/logout").await.expect_code(0);
    let long = "a".repeat(20_000);
    for (case, token) in [
        ("empty", ""),
        ("a word", "token"),
        ("three dots", "..."),
        ("nothing between dots", ".."),
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
async fn the_active_role_is_todays_not_the_tokens() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    assert_eq!(verified(&desk, anton.token()).await["current_role"], "agent");
    anton.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
    let data = verified(&desk, anton.token()).await;
    assert_eq!((&data["valid"], &data["current_role"]), (&json!(true), &json!("user")));
}

#[tokio::test]
async fn an_expired_token_is_not_valid() {
    let desk = Gateway::with("[token]\nlifetime = \"2s\"\nleeway = \"0s\"").await;
    let alice = desk.sign_in("u1001").await;
    let data = verified(&desk, alice.token()).await;
    assert!(data["valid"] == false || (0..=2).contains(&data["expires_in"].as_i64().expect("seconds")), "{data}");
    eventually("the end of the token", || async {
        (verified(&desk, alice.token()).await["valid"] == false).then_some(())
    })
    .await;
    alice.get("/api/auth/me").await.expect_invalid_token();
    alice.get("/api/desk/x").await.expect_invalid_token();
}

#[tokio::test]
async fn asking_needs_no_token_of_ones_own() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let body = json!({ "token": alice.token() });
    for (case, asking) in [("none", desk.anyone()), ("an old one", desk.bearing("a.b.c"))] {
        let data = asking.post_json("/api/auth/verify", &body).await.expect_code(0).data();
        assert_eq!(data["valid"], true, "{case}");
    }
}

#[tokio::test]
async fn the_body_must_name_a_token() {
    let desk = Gateway::start().await;
    for body in [json!({}), json!({ "token": 1 }), json!({ "token": null }), json!({ "token": ["a"] }), json!([])] {
        let answer = desk.anyone().post_json("/api/auth/verify", &body).await;
        assert_eq!(answer.code(), 1400, "{body}");
        answer.expect_code(1400);
    }
}
