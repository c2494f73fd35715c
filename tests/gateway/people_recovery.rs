//! Interrupted, concurrent and racing changes of employees and agents.

use deskgate::directory::Directory;
use deskgate::directory::factors::{Account, ExpectedPassword, Factors};
use deskgate::directory::people::People;
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::role::RoleName;

use super::people::{GOOD, list, login, roles_of};
use crate::support::*;

#[tokio::test]
async fn interrupted_command_is_completed_by_repeating_it() {
    let desk = Gateway::start().await;
    let (alice, xiaoming) = (desk.sign_in("a2001").await, desk.sign_in("u1001").await);
    let directory = desk.directory().await;
    let corp = CorpId::new("wwdemo");
    directory.take(&corp, &EmployeeId::new("a2001"), &RoleName::new("agent")).await.expect("taken");
    let xiaoming_id = EmployeeId::new("u1001");
    directory.remove_employee(Account { corp_id: &corp, employee_id: &xiaoming_id }).await.expect("removed");
    assert_eq!(roles_of(&alice).await, json!(["agent", "user"]), "the sessions changed too early");

    desk.command(&["role", "take", "a2001", "agent"]).await.expect_success();
    assert_eq!(roles_of(&alice).await, json!(["user"]));
    desk.command(&["employee", "remove", "u1001", "--yes"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(desk.command(&["employee", "remove", "u1001", "--yes"]).await.status.code(), Some(3));
}

#[tokio::test]
async fn sessions_of_a_removed_password_end_on_repeat_or_restart() {
    let mut desk = Gateway::start().await;
    let (corp, id) = (CorpId::new("wwdemo"), EmployeeId::new("a2001"));
    let account = Account { corp_id: &corp, employee_id: &id };
    let sign_in = async |desk: &Gateway| {
        desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
        let data = login(desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
        desk.with_token(data["token"].as_str().expect("a token"))
    };
    // Simulates an interruption between the directory and the sessions.
    let alice = sign_in(&desk).await;
    let by_platform = desk.sign_in_by_qrcode("a2001").await;
    desk.directory().await.remove_agent(account).await.expect("removed");
    alice.get("/api/auth/me").await.expect_code(0);
    desk.command(&["agent", "remove", "a2001", "--yes"]).await.expect_success();
    alice.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(desk.command(&["agent", "remove", "a2001", "--yes"]).await.status.code(), Some(3));

    desk.command(&["agent", "add", "a2001"]).await.expect_success();
    let alice = sign_in(&desk).await;
    let change = json!({ "old_password": GOOD, "new_password": "tidal meadow 47 envelope" });
    alice.post_json("/api/agents/password", &change).await.expect_code(0);
    desk.restart().await;
    alice.get("/api/auth/me").await.expect_code(0);
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$cGFzc3dvcmQ";
    desk.directory().await.set_password(account, hash, ExpectedPassword::Any).await.expect("set").expect("an agent");
    desk.restart().await;
    eventually("the end of the session", || async { (alice.get("/api/auth/me").await.code() == 1001).then_some(()) })
        .await;
    by_platform.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn sessions_of_a_removed_employee_can_be_ended() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let (corp, id) = (CorpId::new("wwdemo"), EmployeeId::new("u1001"));
    let account = Account { corp_id: &corp, employee_id: &id };
    desk.directory().await.remove_employee(account).await.expect("removed");
    desk.command(&["session", "end", "--employee", "u1001"]).await.expect_success();
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn interrupted_changes_are_completed_at_start() {
    let mut desk = Gateway::start().await;
    let (alice, xiaoming) = (desk.sign_in("a2001").await, desk.sign_in("u1001").await);
    desk.sigkill();
    let directory = desk.directory().await;
    let corp = CorpId::new("wwdemo");
    directory.take(&corp, &EmployeeId::new("a2001"), &RoleName::new("agent")).await.expect("taken");
    let id = EmployeeId::new("u1001");
    directory.remove_employee(Account { corp_id: &corp, employee_id: &id }).await.expect("removed");
    desk.restart().await;
    eventually("the current roles", || async { (roles_of(&alice).await == json!(["user"])).then_some(()) }).await;
    eventually("the end", || async { (xiaoming.get("/api/auth/me").await.status == 401).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_changes_all_reach_sessions() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    for round in 0..15 {
        let (first, second) = tokio::join!(
            desk.command(&["role", "grant", "a2001", "supervisor"]),
            desk.command(&["role", "take", "a2001", "agent"])
        );
        first.expect_success();
        second.expect_success();
        assert_eq!(roles_of(&alice).await, json!(["user", "supervisor"]), "round {round}");
        let (first, second) = tokio::join!(
            desk.command(&["role", "take", "a2001", "supervisor"]),
            desk.command(&["role", "grant", "a2001", "agent"])
        );
        first.expect_success();
        second.expect_success();
        assert_eq!(roles_of(&alice).await, json!(["agent", "user"]), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_in_racing_a_password_removal_is_refused() {
    let desk = Gateway::start().await;
    for _ in 0..5 {
        desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
        let logins: Vec<_> = (0..6)
            .map(|_| {
                let anonymous = desk.anonymous();
                let body = json!({ "employee_id": "a2001", "password": GOOD });
                tokio::spawn(async move { anonymous.post_json("/api/agents/login", &body).await })
            })
            .collect();
        desk.command(&["agent", "password", "a2001", "--clear", "--yes"]).await.expect_success();
        desk.command(&["session", "end", "--employee", "a2001"]).await.expect_success();
        for login in logins {
            let response = within(TEST_TIMEOUT, "a login", login).await.expect("a response");
            if let Some(token) = response.data()["token"].as_str() {
                desk.with_token(token).get("/api/auth/me").await.expect_invalid_token();
            }
        }
    }
}

#[tokio::test]
async fn password_removal_ends_its_sessions() {
    let desk = Gateway::start().await;
    let by_platform = desk.sign_in_by_qrcode("a2001").await;
    let by_password = |password: &'static str| {
        let desk = &desk;
        async move {
            let response = login(desk, json!({ "employee_id": "a2001", "password": password })).await;
            desk.with_token(response.expect_code(0).data()["token"].as_str().expect("a token"))
        }
    };
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    let (first, second) = (by_password(GOOD).await, by_password(GOOD).await);
    let change = json!({ "old_password": GOOD, "new_password": "tidal meadow 47 envelope" });
    first.post_json("/api/agents/password", &change).await.expect_code(0);
    second.get("/api/auth/me").await.expect_invalid_token();
    first.get("/api/auth/me").await.expect_code(0);
    desk.command(&["agent", "password", "a2001", "--clear", "--yes"]).await.expect_success();
    first.get("/api/auth/me").await.expect_invalid_token();
    by_platform.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn concurrent_commands_are_serialized() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    let ids = ["b1", "b2", "b3", "b4"];
    let commands = ids.map(|id| [String::from("employee"), String::from("add"), id.to_owned()]);
    let running = commands.iter().map(|args| async {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        desk.command(&args).await
    });
    for output in futures::future::join_all(running).await {
        output.expect_success();
        assert!(
            output.output_text().contains("employee add"),
            "a change without a gateway must be reported: {}",
            output.output_text()
        );
    }
    assert_eq!(
        list(&desk, &["employee", "list", "b"]).await.iter().filter(|row| row["name"] == row["employee_id"]).count(),
        4
    );
}
