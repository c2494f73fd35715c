//! The audit log: the gateway records a change to an account or session before it makes it, and refuses the change if
//! that write fails.

use crate::support::*;

const GOOD: &str = "correct horse battery staple";

/// The audit records of an employee, newest first.
async fn events(desk: &Gateway, employee: &str) -> Vec<Value> {
    let text = desk.command(&["employee", "events", employee, "--json"]).await.expect_success();
    let lines: Value = serde_json::from_str(&text).expect("JSON");
    lines.as_array().expect("a list").clone()
}

async fn newest_event(desk: &Gateway, employee: &str) -> Value {
    events(desk, employee).await.first().expect("a line").clone()
}

#[track_caller]
fn expect(line: &Value, event: &str, by: &str, refused: &str) {
    assert_eq!((&line["event"], &line["by"], &line["refused"]), (&json!(event), &json!(by), &json!(refused)), "{line}");
}

/// Binds a device with the code of the previous step.
async fn bind_device(client: &Client) -> OtpDevice {
    wait_for_otp_step_with_time_left().await;
    OtpDevice::set_up_and_bind(client).await
}

fn code_body(device: &OtpDevice, steps: i64) -> Value {
    json!({ "code": device.code(steps) })
}

#[tokio::test]
async fn audit_log_records_own_account_changes() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let other = desk.sign_in("a2001").await;
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
    let line = newest_event(&desk, "a2001").await;
    expect(&line, "switch_role", "a2001", "");
    assert_eq!((&line["detail"], &line["session_id"]), (&json!("user"), &json!(jti_of(alice.token()))), "{line}");
    assert!(line["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{line}");

    let id = jti_of(other.token());
    alice.send("DELETE", &format!("/api/auth/sessions/{id}"), &[], b"").await.expect_code(0);
    let line = newest_event(&desk, "a2001").await;
    expect(&line, "end_session", "a2001", "");
    assert_eq!(line["detail"], id.as_str());

    let set = async |body: Value| alice.post_json("/api/agents/password", &body).await;
    set(json!({ "new_password": GOOD })).await.expect_code(0);
    expect(&newest_event(&desk, "a2001").await, "set_password", "a2001", "");
    set(json!({ "old_password": "wrong", "new_password": "tidal meadow 47 envelope" })).await.expect_code(1016);
    expect(&newest_event(&desk, "a2001").await, "set_password", "a2001", "old_password_wrong");

    let device = bind_device(&alice).await;
    expect(&newest_event(&desk, "a2001").await, "otp_bind", "a2001", "");
    alice.post_json("/api/auth/otp-verify", &code_body(&device, 0)).await.expect_code(0);
    expect(&newest_event(&desk, "a2001").await, "step_up", "a2001", "");
    alice.post_json("/api/auth/otp-verify", &code_body(&device, 0)).await.expect_code(1022);
    expect(&newest_event(&desk, "a2001").await, "step_up", "a2001", "wrong_otp");
    alice.post("/api/auth/otp-setup").await.expect_code(0);
    expect(&newest_event(&desk, "a2001").await, "otp_setup", "a2001", "");
    alice.post("/api/auth/logout").await.expect_code(0);
    expect(&newest_event(&desk, "a2001").await, "logout", "a2001", "");
    desk.wait_for_log(&["deskgate::audit", "logged out", "a2001", &jti_of(alice.token())]).await;
}

#[tokio::test]
async fn audit_log_records_a_failed_change_once() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.post("/api/auth/otp-setup").await.expect_code(0);
    xiaoming.post_json("/api/auth/otp-bind", &json!({ "code": "000000" })).await.expect_code(1022);
    let lines = events(&desk, "u1001").await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    expect(&lines[0], "otp_bind", "u1001", "wrong_otp");
    expect(&lines[1], "otp_setup", "u1001", "");
}

#[tokio::test]
async fn audit_log_omits_secrets_pasted_as_names() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for args in [
        ["session", "end", xiaoming.token(), "--json"],
        ["key", "remove", xiaoming.token(), "--yes"],
        ["role", "grant", "u1001", xiaoming.token()],
    ] {
        let output = desk.command(&args).await;
        assert!(!output.status.success(), "{}", output.output_text());
    }
    let signature = xiaoming.token().rsplit('.').next().expect("a signature");
    let lines = desk.command(&["employee", "events", "--json"]).await.expect_success();
    assert_eq!(lines.matches("(no name)").count(), 3, "{lines}");
    assert!(!lines.contains(signature) && !desk.logs().contains(signature), "a token is in the audit log or the log");
}

#[tokio::test]
async fn audit_log_records_changes_by_administrators_and_operators() {
    let desk = Gateway::start().await;
    let admin = desk.sign_in("m5001").await;
    OtpDevice::step_up(&admin).await;
    let roles = async |method: &str, body: Value| {
        let json = [("Content-Type", "application/json")];
        admin.send(method, "/api/admin/roles/user-roles", &json, body.to_string().as_bytes()).await
    };
    roles("PUT", json!({ "employee_id": "u1001", "role": "agent" })).await.expect_code(0);
    let line = newest_event(&desk, "u1001").await;
    expect(&line, "grant_role", "m5001", "");
    assert_eq!((&line["detail"], &line["session_id"]), (&json!("agent"), &json!(jti_of(admin.token()))), "{line}");
    roles("DELETE", json!({ "employee_id": "u1001", "role": "agent" })).await.expect_code(0);
    expect(&newest_event(&desk, "u1001").await, "take_role", "m5001", "");
    roles("DELETE", json!({ "employee_id": "m5001", "role": "admin" })).await.expect_code(1003);
    expect(&newest_event(&desk, "m5001").await, "take_role", "m5001", "last_admin");
    roles("PUT", json!({ "employee_id": "z9999", "role": "agent" })).await.expect_code(1003);
    let lines = events(&desk, "z9999").await;
    assert_eq!(lines.len(), 1, "one change, one record: {lines:?}");
    expect(&lines[0], "grant_role", "m5001", "no_such_employee");
    let xiaoming = desk.sign_in("u1001").await;
    bind_device(&xiaoming).await;
    for refused in ["", "unchanged"] {
        admin.send("DELETE", "/api/admin/otp?employee_id=u1001", &[], b"").await.expect_code(0);
        expect(&newest_event(&desk, "u1001").await, "otp_reset", "m5001", refused);
    }
    for refused in ["", "unchanged"] {
        admin.send("DELETE", "/api/admin/sessions?employee_id=u1001", &[], b"").await.expect_code(0);
        expect(&newest_event(&desk, "u1001").await, "end_sessions", "m5001", refused);
    }

    let by = format!("uid {}", nix::unistd::getuid());
    let commands: [(&[&str], &str, &str); 6] = [
        (&["role", "grant", "u1001", "security"], "role grant security", ""),
        (&["employee", "disable", "u1001"], "employee disable", ""),
        (&["employee", "enable", "u1001"], "employee enable", ""),
        (&["agent", "add", "u1001", "--otp-required"], "agent add --role agent --otp-required true", ""),
        (&["agent", "add", "u1001"], "agent add --role agent --otp-required false", "refused"),
        (&["session", "end", "--employee", "u1001"], "session end --employee", "unchanged"),
    ];
    for (args, detail, refused) in commands {
        desk.command(args).await;
        let line = newest_event(&desk, "u1001").await;
        expect(&line, "order", &by, refused);
        assert_eq!(line["detail"], detail);
    }
    let xiaoming = desk.sign_in("u1001").await;
    desk.command(&["session", "end", &jti_of(xiaoming.token())]).await.expect_success();
    let line = newest_event(&desk, "u1001").await;
    assert_eq!(line["detail"], format!("session end {}", jti_of(xiaoming.token())));
    let before = desk.command(&["employee", "events", "--json"]).await.expect_success();
    desk.command(&["employee", "list"]).await.expect_success();
    let after = desk.command(&["employee", "events", "--json"]).await.expect_success();
    assert_eq!(before, after, "reading is not audited");
    assert!(!after.contains(GOOD));
}

#[tokio::test]
async fn changes_fail_if_the_audit_log_write_fails() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let device = bind_device(&alice).await;
    desk.change_directory("ALTER TABLE audit_log RENAME TO renamed").await;

    alice.post("/api/auth/logout").await.expect_code(1503);
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(1503);
    alice.send("DELETE", "/api/auth/sessions", &[], b"").await.expect_code(0);
    alice.post_json("/api/agents/password", &json!({ "new_password": GOOD })).await.expect_code(1503);
    let other = desk.sign_in("a2001").await;
    other.post_json("/api/auth/otp-verify", &code_body(&device, 0)).await.expect_code(1503);
    assert_eq!(other.get("/api/auth/otp-status").await.expect_code(0).data()["stepped_up_until"], Value::Null);
    alice.send("DELETE", "/api/auth/sessions", &[], b"").await.expect_code(1503);
    let output = desk.command(&["employee", "disable", "a2001"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", output.output_text());
    for client in [&alice, &other] {
        assert_eq!(client.get("/api/auth/me").await.expect_code(0).data()["current_role"], "agent");
    }
    let agents = desk.command(&["agent", "list", "--json"]).await.expect_success();
    let agents: Value = serde_json::from_str(&agents).expect("JSON");
    let agent = agents.as_array().expect("a list").iter().find(|agent| agent["employee_id"] == "a2001");
    assert_eq!(agent.expect("an agent")["password"], false);

    desk.change_directory("ALTER TABLE renamed RENAME TO audit_log").await;
    alice.post("/api/auth/logout").await.expect_code(0);
    alice.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn audit_lines_ignore_the_log_level() {
    let desk = Gateway::with("[log]\nlevel = \"error,deskgate::audit=off\"").await;
    let alice = desk.sign_in("a2001").await;
    alice.get("/api/desk/x").await.expect_status(200);
    alice.post("/api/auth/logout").await.expect_code(0);
    desk.wait_for_log(&["deskgate::audit", "logged out", "a2001"]).await;
    assert!(!desk.logs().contains("deskgate::request"), "other lines follow the log level");
}
