//! GET /api/auth/me: the caller's identity.

use crate::support::*;

#[tokio::test]
async fn me_returns_the_callers_identity() {
    let desk = Gateway::start().await;
    for (employee, roles, current) in [
        ("u1001", json!(["user"]), "user"),
        ("a2001", json!(["agent", "user"]), "agent"),
        ("s3001", json!(["supervisor"]), "supervisor"),
        ("c4001", json!(["security"]), "security"),
        ("m5001", json!(["admin", "agent", "user"]), "admin"),
    ] {
        let me = desk.sign_in(employee).await.get("/api/auth/me").await.expect_code(0).data();
        assert_eq!(me["employee_id"], employee);
        assert!(me["name"].as_str().is_some_and(|name| !name.is_empty()), "{me}");
        assert!(me["avatar"].is_string() && me["department"].is_string(), "{me}");
        let sorted = |value: &Value| {
            let mut names: Vec<String> =
                value.as_array().expect("a list").iter().map(|name| name.as_str().expect("a name").into()).collect();
            names.sort();
            names
        };
        assert_eq!(sorted(&me["roles"]), sorted(&roles), "{employee}");
        assert_eq!(me["current_role"], current, "the role of highest priority");
        assert_eq!(me["login_source"], "dev");
    }
}

#[tokio::test]
async fn me_requires_a_token() {
    let desk = Gateway::start().await;
    desk.anonymous().get("/api/auth/me").await.expect_bare_challenge();
    desk.with_token("a.b.c").get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn me_reports_the_login_source() {
    let desk = Gateway::start().await;
    for (source, client) in [
        ("dev", desk.sign_in("m5001").await),
        ("qrcode", desk.sign_in_by_qrcode("m5001").await),
        ("h5", desk.sign_in_by_oauth2("m5001", "h5").await),
        ("itagent", desk.sign_in_by_oauth2("m5001", "itagent").await),
        ("itadmin", desk.sign_in_by_oauth2("m5001", "itadmin").await),
    ] {
        let me = client.get("/api/auth/me").await.expect_code(0).data();
        assert_eq!((&me["employee_id"], &me["login_source"]), (&json!("m5001"), &json!(source)));
    }
}

#[tokio::test]
async fn session_survives_a_restart() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let before = xiaoming.get("/api/auth/me").await.expect_code(0).data();
    desk.restart().await;
    assert_eq!(xiaoming.get("/api/auth/me").await.expect_code(0).data(), before);
}
