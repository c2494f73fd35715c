//! /api/admin/…: role assignments, sessions and devices of other employees; needs the active role `admin`.

use std::time::{Duration, Instant};

use crate::support::*;

const ROLES: &str = "/api/admin/roles/user-roles";

/// Signs an administrator in and steps the session up.
async fn stepped_up(desk: &Gateway) -> Client {
    let admin = desk.sign_in("m5001").await;
    OtpDevice::step_up(&admin).await;
    admin
}

async fn send(client: &Client, method: &str, target: &str, body: Value) -> Response {
    client.send(method, target, &[("Content-Type", "application/json")], body.to_string().as_bytes()).await
}

fn pairs(data: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let items = data["items"].as_array().expect("items");
    items.iter().map(|item| (text(&item["employee_id"]), text(&item["role"]))).collect()
}

#[tokio::test]
async fn role_assignments_are_paged_and_filtered() {
    let desk = Gateway::start().await;
    let admin = desk.sign_in("m5001").await;
    let all = admin.get(ROLES).await.expect_code(0).data();
    assert_eq!((&all["total"], &all["page"], &all["page_size"]), (&json!(8), &json!(1), &json!(50)));
    let all_pairs = pairs(&all);
    let mut paged = Vec::new();
    for page in 1..=3 {
        paged.extend(pairs(&admin.get(&format!("{ROLES}?page={page}&page_size=3")).await.expect_code(0).data()));
    }
    assert_eq!(paged, all_pairs);
    let agents = admin.get(&format!("{ROLES}?role=agent")).await.expect_code(0).data();
    assert_eq!(pairs(&agents).iter().map(|(who, _)| who.as_str()).collect::<Vec<_>>(), ["a2001", "m5001"]);
    let own = admin.get(&format!("{ROLES}?employee_id=m5001&role=admin")).await.expect_code(0).data();
    assert_eq!((&own["total"], pairs(&own).len()), (&json!(1), 1));
    for query in ["page=0", "page=x", "page_size=0", "page_size=201", "page=-1"] {
        let response = admin.get(&format!("{ROLES}?{query}")).await;
        assert_eq!(response.code(), 1400, "{query}");
    }
}

#[tokio::test]
async fn role_changes_need_the_active_admin_role_and_a_step_up() {
    let desk = Gateway::start().await;
    let body = json!({ "employee_id": "u1001", "role": "agent" });
    let other = "/api/admin/sessions?employee_id=u1001";
    for (who, code) in [("u1001", 1003), ("a2001", 1003), ("s3001", 1003)] {
        let client = desk.sign_in(who).await;
        client.get(ROLES).await.expect_code(code);
        send(&client, "PUT", ROLES, body.clone()).await.expect_code(code);
        client.send("DELETE", other, &[], b"").await.expect_code(code);
    }
    desk.anonymous().get(ROLES).await.expect_code(1001);
    let admin = desk.sign_in("m5001").await;
    for (method, target) in
        [("PUT", ROLES), ("DELETE", ROLES), ("DELETE", other), ("DELETE", "/api/admin/otp?employee_id=u1001")]
    {
        send(&admin, method, target, body.clone()).await.expect_code(1021);
    }
    let admin = stepped_up(&desk).await;
    admin.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(0);
    admin.get(ROLES).await.expect_code(1003);
}

#[tokio::test]
async fn revoked_role_closes_websockets_within_100_ms() {
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    let agent = desk.sign_in("a2001").await;
    let agent_role = json!({ "employee_id": "a2001", "role": "agent" });
    let (mut by_admin, mut by_command) = (Vec::new(), Vec::new());
    for round in 0..10 {
        let mut socket = agent.websocket("/ws/agent").await;
        socket.echo("hello").await;
        // Measured from the response: the change must be effective by then.
        if round % 2 == 0 {
            send(&admin, "DELETE", ROLES, agent_role.clone()).await.expect_code(0);
        } else {
            desk.command(&["role", "take", "a2001", "agent"]).await.expect_success();
        }
        let answered = Instant::now();
        assert_eq!(socket.close_code_within(Duration::from_secs(5)).await, Some(4403), "round {round}");
        if round % 2 == 0 {
            by_admin.push(answered.elapsed())
        } else {
            by_command.push(answered.elapsed())
        }
        send(&admin, "PUT", ROLES, agent_role.clone()).await.expect_code(0);
        agent.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(0);
    }
    assert_within_revocation_bound(by_admin);
    assert_within_revocation_bound(by_command);
}

#[tokio::test]
async fn role_changes_apply_to_live_sessions_and_websockets() {
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    let agent = desk.sign_in("a2001").await;
    let mut socket = agent.websocket("/ws/agent").await;
    socket.echo("hello").await;
    let agent_role = json!({ "employee_id": "a2001", "role": "agent" });
    let data = send(&admin, "DELETE", ROLES, agent_role.clone()).await.expect_code(0).data();
    assert_eq!((&data["changed"], &data["sessions"]), (&json!(true), &json!(1)));
    agent.get("/api/agent-desk/x").await.expect_code(1003);
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4403));
    assert_eq!(agent.get("/api/auth/me").await.expect_code(0).data()["roles"], json!(["user"]));
    let again = send(&admin, "DELETE", ROLES, agent_role.clone()).await.expect_code(0).data();
    assert_eq!(again["changed"], false);

    send(&admin, "PUT", ROLES, agent_role).await.expect_code(0);
    agent.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(0);
    agent.get("/api/agent-desk/x").await.expect_status(200);
    assert_eq!(agent.get("/api/auth/me").await.expect_code(0).data()["roles"], json!(["agent", "user"]));
    let unknown = json!({ "employee_id": "z9999", "role": "agent" });
    send(&admin, "PUT", ROLES, unknown).await.expect_code(1003);
    send(&admin, "PUT", ROLES, json!({ "employee_id": "u1001", "role": "a b" })).await.expect_code(1400);
    desk.wait_for_log(&["deskgate::audit", "administrator revoked a role", "m5001"]).await;
}

#[tokio::test]
async fn last_admin_role_cannot_be_revoked() {
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    let own = json!({ "employee_id": "m5001", "role": "admin" });
    send(&admin, "DELETE", ROLES, own.clone()).await.expect_code(1003);
    let output = desk.command(&["role", "take", "m5001", "admin"]).await;
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("last administrator"));
    send(&admin, "PUT", ROLES, json!({ "employee_id": "s3001", "role": "admin" })).await.expect_code(0);
    send(&admin, "DELETE", ROLES, own).await.expect_code(0);
    admin.get(ROLES).await.expect_code(1003);
}

#[tokio::test]
async fn administrator_ends_all_sessions_of_an_employee() {
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    let victims = [desk.sign_in("u1001").await, desk.sign_in("u1001").await];
    let mut socket = victims[0].websocket("/ws/employee").await;
    socket.echo("hello").await;
    let end = |employee: &'static str| {
        let admin = &admin;
        async move { admin.send("DELETE", &format!("/api/admin/sessions?employee_id={employee}"), &[], b"").await }
    };
    assert_eq!(end("u1001").await.expect_code(0).data()["sessions"], 2);
    assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
    for victim in &victims {
        victim.get("/api/auth/me").await.expect_invalid_token();
    }
    assert_eq!(end("u1001").await.expect_code(0).data()["sessions"], 0);
    end("z9999").await.expect_code(1003);
    admin.send("DELETE", "/api/admin/sessions", &[], b"").await.expect_code(1400);
}

#[tokio::test]
async fn role_to_revoke_may_be_in_the_query() {
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    let take = |query: &'static str| {
        let admin = &admin;
        async move { admin.send("DELETE", &format!("{ROLES}{query}"), &[], b"").await }
    };
    let data = take("?employee_id=a2001&role=agent").await.expect_code(0).data();
    assert_eq!((&data["changed"], &data["roles"]), (&json!(true), &json!(["user"])));
    let both = json!({ "employee_id": "c4001", "role": "security" });
    send(&admin, "DELETE", &format!("{ROLES}?employee_id=a2001"), both.clone()).await.expect_code(1400);
    send(&admin, "DELETE", &format!("{ROLES}?employee_id=c4001"), both).await.expect_code(0);
    for query in ["", "?employee_id=a2001", "?role=agent", "?employee_id=a2001&role=", "?employee_id=a2001&role=a%20b"]
    {
        take(query).await.expect_code(1400);
    }
}

#[tokio::test]
async fn roles_per_employee_are_limited() {
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    let give = |role: String| send(&admin, "PUT", ROLES, json!({ "employee_id": "u1001", "role": role }));
    for number in 1..64 {
        give(format!("extra-{number}")).await.expect_code(0);
    }
    give("one-more".to_owned()).await.expect_code(1003);
    assert_eq!(desk.command(&["role", "grant", "u1001", "one-more"]).await.status.code(), Some(4));
    give("extra-1".to_owned()).await.expect_code(0);
    let xiaoming = desk.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(xiaoming["roles"].as_array().map(Vec::len), Some(64));
}

/// Sends a request head and waits until the gateway has authorized it and reads the body.
async fn authorized_without_body(desk: &Gateway, client: &Client, line: &str, body: &str) -> Connection {
    let mut connection = desk.connect().await;
    let head = format!(
        "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Expect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        desk.address(),
        client.token(),
        body.len()
    );
    connection.send(head.as_bytes()).await;
    connection.response().await.expect("a response").expect_status(100);
    connection
}

#[tokio::test]
async fn slow_body_is_reauthorized_for_role_and_step_up() {
    let desk = Gateway::start().await;
    let body = json!({ "employee_id": "u1001", "role": "agent" }).to_string();
    for (case, code) in [("another role", 1003), ("no step-up", 1021)] {
        let admin = stepped_up(&desk).await;
        let mut connection = authorized_without_body(&desk, &admin, &format!("PUT {ROLES}"), &body).await;
        if case == "another role" {
            admin.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
        } else {
            desk.command(&["employee", "otp-remove", "m5001", "--yes"]).await.expect_success();
        }
        connection.send(body.as_bytes()).await;
        let response = connection.response().await.expect("a response");
        assert_eq!(response.code(), code, "{case}: {}", response.describe());
        desk.command(&["employee", "otp-remove", "m5001", "--yes"]).await.expect_success();
    }
    let xiaoming = desk.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(xiaoming["roles"], json!(["user"]));
}

#[tokio::test]
async fn slow_body_is_reauthorized_for_its_session() {
    let desk = Gateway::start().await;
    let to_admin = json!({ "employee_id": "u1001", "role": "admin" }).to_string();
    let password = json!({ "new_password": "tidal meadow 47 envelope" }).to_string();
    let role = json!({ "role": "user" }).to_string();
    let lines = [
        ("PUT", ROLES, &*to_admin),
        ("DELETE", ROLES, &*to_admin),
        ("DELETE", "/api/admin/sessions?employee_id=u1001", "{}"),
        ("DELETE", "/api/admin/otp?employee_id=u1001", "{}"),
        ("POST", "/api/agents/password", &*password),
        ("POST", "/api/auth/otp-setup", "{}"),
        ("POST", "/api/auth/otp-bind", r#"{"code":"000000"}"#),
        ("POST", "/api/auth/otp-verify", r#"{"code":"000000"}"#),
        ("POST", "/api/auth/switch-role", &*role),
        ("DELETE", "/api/auth/sessions", "{}"),
        ("DELETE", "/api/auth/sessions/x", "{}"),
    ];
    let admin = stepped_up(&desk).await;
    let mut waiting = Vec::new();
    for (method, target, body) in lines {
        let connection = authorized_without_body(&desk, &admin, &format!("{method} {target}"), body).await;
        waiting.push((method, target, connection, body));
    }
    admin.post("/api/auth/logout").await.expect_code(0);
    for (method, target, mut connection, body) in waiting {
        connection.send(body.as_bytes()).await;
        let response = connection.response().await.expect("a response");
        assert_eq!(response.code(), 1001, "{method} {target}: {}", response.describe());
    }
    let xiaoming = desk.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(xiaoming["roles"], json!(["user"]));
}

#[tokio::test]
async fn administrator_resets_a_lost_device() {
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    OtpDevice::step_up(&xiaoming).await;
    desk.sign_in("u1001").await.post("/api/auth/otp-setup").await.expect_code(1021);
    let data = admin.send("DELETE", "/api/admin/otp?employee_id=u1001", &[], b"").await.expect_code(0).data();
    assert_eq!(data["changed"], true);
    desk.sign_in("u1001").await.post("/api/auth/otp-setup").await.expect_code(0);
}

/// The administrator of a partner corporation that is connected to the main one, stepped up.
async fn partner_administrator(desk: &Gateway) -> Client {
    let partner = ["--corp", "wwpartner"];
    desk.command(&[&["employee", "add", "p7001", "--name", "Pat"][..], &partner].concat()).await.expect_success();
    desk.command(&[&["role", "grant", "p7001", "admin"][..], &partner].concat()).await.expect_success();
    let admin = desk.sign_in_by_oauth2("wwpartner/p7001", "itadmin").await;
    wait_for_otp_step_with_time_left().await;
    let device = OtpDevice::set_up_and_bind(&admin).await;
    admin.post_json("/api/auth/otp-verify", &json!({ "code": device.code(0) })).await.expect_code(0);
    admin
}

#[tokio::test]
async fn administrators_act_on_their_own_corporation_only() {
    let desk = Gateway::start().await;
    let admin = partner_administrator(&desk).await;
    let xiaoming = desk.sign_in("u1001").await;
    let bound = OtpDevice::set_up_and_bind(&xiaoming).await;
    desk.command(&["employee", "add", "p7002", "--corp", "wwpartner"]).await.expect_success();

    // An employee of another corporation is refused exactly as one who does not exist.
    let role = |employee: &str| json!({ "employee_id": employee, "role": "agent" });
    for (method, target) in [
        ("PUT", ROLES.to_owned()),
        ("DELETE", ROLES.to_owned()),
        ("DELETE", "/api/admin/sessions?employee_id=EMPLOYEE".to_owned()),
        ("DELETE", "/api/admin/otp?employee_id=EMPLOYEE".to_owned()),
    ] {
        let mut answers = Vec::new();
        for employee in ["u1001", "z9999"] {
            let response = send(&admin, method, &target.replace("EMPLOYEE", employee), role(employee)).await;
            let refusal = response.expect_code(1003);
            answers.push(refusal.json()["message"].as_str().expect("a message").replace(employee, "EMPLOYEE"));
        }
        assert_eq!(answers[0], answers[1], "{method} {target}");
    }
    xiaoming.get("/api/auth/me").await.expect_code(0);
    assert_eq!(xiaoming.get("/api/auth/otp-status").await.expect_code(0).data()["bound"], true, "{}", bound.code(0));

    // Lists name no one of another corporation, whatever the filter says.
    let listed = admin.get(ROLES).await.expect_code(0).data();
    assert_eq!((pairs(&listed), &listed["total"]), (vec![("p7001".to_owned(), "admin".to_owned())], &json!(1)));
    let filtered = admin.get(&format!("{ROLES}?employee_id=m5001")).await.expect_code(0).data();
    assert_eq!((pairs(&filtered), &filtered["total"]), (vec![], &json!(0)));
    let main_admin = desk.sign_in("m5001").await;
    let listed = main_admin.get(ROLES).await.expect_code(0).data();
    assert!(pairs(&listed).iter().all(|(employee, _)| employee != "p7001"), "{listed}");

    // Within the own corporation everything works.
    send(&admin, "PUT", ROLES, role("p7002")).await.expect_code(0);
    send(&admin, "DELETE", ROLES, role("p7002")).await.expect_code(0);
    admin.send("DELETE", "/api/admin/sessions?employee_id=p7002", &[], b"").await.expect_code(0);
    admin.send("DELETE", "/api/admin/otp?employee_id=p7002", &[], b"").await.expect_code(0);
}

#[tokio::test]
async fn operators_name_any_corporation() {
    let desk = Gateway::start().await;
    let partner = partner_administrator(&desk).await;
    desk.command(&["role", "grant", "p7001", "agent", "--corp", "wwpartner"]).await.expect_success();
    let listed = desk.command(&["role", "list", "--employee", "p7001"]).await.expect_success();
    assert!(listed.contains("agent") && listed.contains("wwpartner"), "{listed}");
    desk.command(&["session", "end", "--employee", "p7001", "--corp", "wwpartner"]).await.expect_success();
    partner.get("/api/auth/me").await.expect_invalid_token();
}
