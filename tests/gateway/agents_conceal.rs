//! `agents.conceal`: what a sign-in without a local password reveals.

use crate::support::*;

/// `s3001` is an agent without a local password.
const PASSWORDLESS: &str = "s3001";

async fn login(desk: &Gateway, employee: &str) -> Response {
    let body = json!({ "employee_id": employee, "password": "not the password" });
    desk.anonymous().post_json("/api/agents/login", &body).await
}

#[tokio::test]
async fn an_agent_without_a_password_gets_1012_by_default() {
    let desk = Gateway::start().await;
    login(&desk, PASSWORDLESS).await.expect_code(1012).expect_status(403);
    for (case, employee) in [("an employee who is not an agent", "u1001"), ("an unknown name", "z9999")] {
        let response = login(&desk, employee).await;
        assert_eq!(response.code(), 1011, "{case}");
        response.expect_status(401);
    }
    desk.command(&["employee", "disable", PASSWORDLESS]).await.expect_success();
    login(&desk, PASSWORDLESS).await.expect_code(1011);
}

#[tokio::test]
async fn conceal_answers_1011_for_an_agent_without_a_password() {
    let desk = Gateway::setup().set("agents.conceal", "true").start().await;
    login(&desk, PASSWORDLESS).await.expect_code(1011).expect_status(401);
}

#[tokio::test]
async fn attempts_without_a_password_set_are_charged_with_either_setting() {
    for (conceal, code) in [("false", 1012), ("true", 1011)] {
        let desk = Gateway::setup().set("agents.conceal", conceal).start().await;
        for _ in 0..5 {
            login(&desk, PASSWORDLESS).await.expect_code(code);
        }
        login(&desk, PASSWORDLESS).await.expect_code(1429);
    }
}

#[tokio::test]
async fn the_login_log_has_the_reason_with_either_setting() {
    for conceal in ["false", "true"] {
        let desk = Gateway::setup().set("agents.conceal", conceal).start().await;
        login(&desk, PASSWORDLESS).await;
        let log = desk.command(&["employee", "logins", PASSWORDLESS]).await.expect_success();
        assert!(log.contains("no_password"), "{conceal}: {log}");
    }
}
