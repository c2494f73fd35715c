//! GET and DELETE /api/auth/sessions: the caller's own sessions.

use std::time::Duration;

use crate::support::*;

async fn items(client: &Client) -> Vec<Value> {
    let data = client.get("/api/auth/sessions").await.expect_code(0).data();
    data["items"].as_array().expect("items").clone()
}

fn id_of(items: &[Value], current: bool) -> String {
    let item = items.iter().find(|item| item["current"] == current).expect("a session");
    item["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn sessions_lists_only_the_callers_sessions() {
    let desk = Gateway::start().await;
    let firefox = "Mozilla/5.0 (Windows NT 10.0) Gecko/20100101 Firefox/128.0";
    let first = desk.sign_in("u1001").await;
    let second = desk.anonymous().with_header("User-Agent", firefox).with_header("X-Forwarded-For", "127.0.113.9");
    let login = second.post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await.expect_code(0).data();
    let second = second.with_token(login["token"].as_str().expect("a token"));
    desk.sign_in("a2001").await;

    let items = items(&second).await;
    assert_eq!(items.len(), 2, "sessions of another employee are listed");
    let own = items.iter().find(|item| item["current"] == true).expect("the current session");
    assert_eq!(own["id"], jti_of(second.token()).as_str());
    assert_eq!((&own["device"], &own["address"]), (&json!("Firefox · Windows"), &json!("127.0.113.9")));
    assert_eq!((&own["login_method"], &own["login_source"]), (&json!("dev"), &json!("dev")));
    for member in ["since", "last_seen", "expires_at"] {
        let text = own[member].as_str().expect("a time");
        time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).expect("ISO 8601");
    }
    assert!(own["last_seen"].as_str() >= own["since"].as_str(), "{own}");
    let other = items.iter().find(|item| item["current"] == false).expect("the other session");
    assert_eq!(other["id"], jti_of(first.token()).as_str());
}

#[tokio::test]
async fn ending_a_session_closes_only_its_own_websockets() {
    let desk = Gateway::start().await;
    let (current, other) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    let mut socket = other.websocket("/ws/employee").await;
    socket.echo("hello").await;
    let id = id_of(&items(&current).await, false);

    let data = current.send("DELETE", &format!("/api/auth/sessions/{id}"), &[], b"").await.expect_code(0).data();
    assert_eq!((&data["success"], &data["ended"]), (&json!(true), &json!(1)));
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
    other.get("/api/auth/me").await.expect_invalid_token();
    current.get("/api/auth/me").await.expect_code(0);
    current.send("DELETE", &format!("/api/auth/sessions/{id}"), &[], b"").await.expect_code(1404);
}

#[tokio::test]
async fn ending_other_sessions_keeps_the_callers_session() {
    let desk = Gateway::start().await;
    let current = desk.sign_in("u1001").await;
    let others = [desk.sign_in("u1001").await, desk.sign_in("u1001").await];
    let other_employee = desk.sign_in("a2001").await;

    let data = current.send("DELETE", "/api/auth/sessions", &[], b"").await.expect_code(0).data();
    assert_eq!(data["ended"], 2);
    for other in &others {
        other.get("/api/auth/me").await.expect_invalid_token();
    }
    current.get("/api/auth/me").await.expect_code(0);
    other_employee.get("/api/auth/me").await.expect_code(0);
    assert_eq!(current.send("DELETE", "/api/auth/sessions", &[], b"").await.expect_code(0).data()["ended"], 0);
}

#[tokio::test]
async fn sessions_of_other_employees_cannot_be_ended() {
    let desk = Gateway::start().await;
    let (xiaoming, zhou_min) = (desk.sign_in("u1001").await, desk.sign_in("m5001").await);
    let id = id_of(&items(&xiaoming).await, true);
    for (case, id) in [("a session of another employee", id.as_str()), ("none", "x"), ("an encoded id", "%2e%2e")] {
        let response = zhou_min.send("DELETE", &format!("/api/auth/sessions/{id}"), &[], b"").await;
        assert!(matches!(response.code(), 1404 | 1400), "{case}: {}", response.describe());
    }
    xiaoming.get("/api/auth/me").await.expect_code(0);
    desk.anonymous().send("DELETE", &format!("/api/auth/sessions/{id}"), &[], b"").await.expect_code(1001);
    desk.anonymous().get("/api/auth/sessions").await.expect_code(1001);
}

#[tokio::test]
async fn ending_the_callers_session_is_a_logout() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let id = id_of(&items(&xiaoming).await, true);
    xiaoming.send("DELETE", &format!("/api/auth/sessions/{id}"), &[], b"").await.expect_code(0);
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
}
