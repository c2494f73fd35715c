//! An employee leaves: once the platform calls them inactive, the employee is disabled and every session ends.

use std::time::{Duration, Instant};

use deskgate::domain::clock::Clock;

use crate::people::{GOOD, find, login};
use crate::support::*;

const EVERY_SECOND: &str = "[platform]\nrecheck = \"1s\"";

const USER: &str = "/cgi-bin/user/get";

fn only(member: &str, kind: &str) -> Value {
    json!({ "members": { member: kind } })
}

async fn row(desk: &Gateway, employee: &str) -> Value {
    find(desk, &["employee", "list"], employee).await.expect("an employee")
}

async fn newest_event(desk: &Gateway, employee: &str) -> Value {
    let text = desk.command(&["employee", "events", employee, "--json"]).await.expect_success();
    serde_json::from_str::<Value>(&text).expect("JSON")[0].clone()
}

async fn wait_until_disabled(desk: &Gateway, employee: &str) -> Value {
    eventually(&format!("{employee} is disabled"), || async {
        Some(row(desk, employee).await).filter(|row| row["standing"] == "disabled")
    })
    .await
}

async fn rechecks(desk: &Gateway, result: &str) -> f64 {
    desk.metric("deskgate_platform_rechecks_total", &[&format!("result=\"{result}\"")]).await
}

/// Waits until the recheck has had this result `count` more times.
async fn wait_for_rechecks(desk: &Gateway, result: &str, count: f64) {
    let before = rechecks(desk, result).await;
    eventually(&format!("{count} rechecks with the result {result}"), || async {
        (rechecks(desk, result).await >= before + count).then_some(())
    })
    .await;
}

async fn oauth2_error(desk: &Gateway, member: &str) -> String {
    let response = desk.phone(member).oauth2(&desk.client_url("h5")).await.expect_status(302);
    fragment_parameter(&response.location(), "error_code").unwrap_or_default()
}

/// Tries to sign a member in and expects the refusal.
async fn refused_sign_in(desk: &Gateway, way: &str, member: &str) {
    match way {
        "redirect" => assert_eq!(oauth2_error(desk, member).await, "1003"),
        "QR code" => {
            let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
            desk.phone(member).scan(ticket["qrcode_url"].as_str().expect("a URL")).await.expect_status(403);
        }
        "agent with a code" => {
            let phone = desk.phone(member);
            let callback = phone.authorize(&phone.authorize_url(&desk.client_url("itagent")).await).await;
            let code = query_parameter(&callback, "code").expect("a code");
            // The password is right, and must not override what the platform says.
            login(desk, json!({ "employee_id": member, "code": code, "password": GOOD })).await.expect_code(1003);
        }
        "agent with a password" => {
            login(desk, json!({ "employee_id": member, "password": GOOD })).await.expect_code(1003);
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn sign_in_of_an_inactive_member_ends_every_session_and_disables_the_employee() {
    let desk = Gateway::start().await;
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    let mut times = Vec::new();
    for way in ["redirect", "QR code", "agent with a code", "agent with a password"] {
        for (kind, reason) in
            [("disabled", "disabled"), ("left", "left"), ("deleted", "gone"), ("not_activated", "not_activated")]
        {
            desk.set_platform_switches(json!({})).await;
            // Also brings back an employee whom the platform disabled in the last round.
            let alice = desk.sign_in_by_oauth2("a2001", "itagent").await;
            let other = desk.sign_in("a2001").await;
            let mut socket = other.websocket("/ws/agent").await;
            socket.echo("hello").await;

            desk.set_platform_switches(only("a2001", kind)).await;
            refused_sign_in(&desk, way, "a2001").await;
            let answered = Instant::now();
            assert_eq!(socket.close_code_within(Duration::from_secs(5)).await, Some(4401), "{way}, {kind}");
            times.push(answered.elapsed());
            for client in [&alice, &other] {
                client.get("/api/auth/me").await.expect_invalid_token();
            }
            let row = row(&desk, "a2001").await;
            assert_eq!((&row["standing"], &row["inactive"]), (&json!("disabled"), &json!(reason)), "{way}, {kind}");
            let event = newest_event(&desk, "a2001").await;
            assert_eq!(
                (&event["event"], &event["by"], &event["detail"], &event["refused"]),
                (&json!("member_inactive"), &json!("platform"), &json!(reason), &json!("")),
                "{way}, {kind}"
            );
            desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "a2001" })).await.expect_code(1003);
        }
        login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(1011);
    }
    assert_within_revocation_bound(times);
}

#[tokio::test]
async fn repeated_refusals_of_an_inactive_member_are_audited_once() {
    let desk = Gateway::start().await;
    desk.sign_in_by_oauth2("u1001", "h5").await;
    desk.set_platform_switches(only("u1001", "left")).await;
    for _ in 0..3 {
        assert_eq!(oauth2_error(&desk, "u1001").await, "1003");
    }
    let text = desk.command(&["employee", "events", "u1001", "--json"]).await.expect_success();
    assert_eq!(text.matches("member_inactive").count(), 1, "{text}");
}

#[tokio::test]
async fn platform_disables_the_last_administrator_too() {
    let desk = Gateway::start().await;
    let admin = desk.sign_in_by_oauth2("m5001", "itadmin").await;
    desk.set_platform_switches(only("m5001", "disabled")).await;
    assert_eq!(oauth2_error(&desk, "m5001").await, "1003");
    admin.get("/api/auth/me").await.expect_invalid_token();
    desk.wait_for_log(&["\"WARN\"", "no administrator is left", "m5001", "deskgate role grant"]).await;
    // Operators need no administrator to appoint another one.
    desk.command(&["role", "grant", "s3001", "admin"]).await.expect_success();
}

#[tokio::test]
async fn password_sign_in_works_while_the_platform_cannot_be_reached() {
    let desk = Gateway::start().await;
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    let with_password = || login(&desk, json!({ "employee_id": "a2001", "password": GOOD }));
    desk.set_platform_switches(json!({ "slow_milliseconds": { "*": 30_000 }, "members": { "a2001": "left" } })).await;
    let start = Instant::now();
    with_password().await.expect_code(0);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());

    // More often than it takes to open the circuit.
    desk.set_platform_switches(json!({ "bad_gateway": { "*": "all" }, "members": { "a2001": "left" } })).await;
    for _ in 0..7 {
        with_password().await.expect_code(0);
    }
    let errors = |class| desk.metric("deskgate_platform_errors_total", class);
    assert!(errors(&["call=\"status\"", "class=\"unavailable\""]).await >= 5.0);
    assert!(errors(&["call=\"status\"", "class=\"resting\""]).await >= 1.0);
    assert_eq!(row(&desk, "a2001").await["standing"], "active");
}

#[tokio::test]
async fn platform_is_not_asked_before_the_right_password() {
    let desk = Gateway::start().await;
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    for (employee, password, code) in [("a2001", "wrong", 1011), ("s3001", GOOD, 1012), ("z9999", GOOD, 1011)] {
        login(&desk, json!({ "employee_id": employee, "password": password })).await.expect_code(code);
    }
    assert_eq!(desk.platform_calls(USER).await, 0);
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0);
    assert_eq!(desk.platform_calls(USER).await, 1);
}

#[tokio::test]
async fn recheck_disables_members_who_left_and_no_one_else() {
    let desk = Gateway::with(EVERY_SECOND).await;
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{GOOD}\n")).await.expect_success();
    let with_session = desk.sign_in("u1001").await;
    let staying = desk.sign_in("s3001").await;
    let mut socket = with_session.websocket("/ws/employee").await;
    socket.echo("hello").await;
    // Seen active once: an employee whom the platform never knew has not left.
    wait_for_rechecks(&desk, "active", 3.0).await;
    desk.set_platform_switches(json!({ "members": { "u1001": "deleted", "a2001": "disabled" } })).await;
    assert_eq!(socket.close_code_within(TEST_TIMEOUT).await, Some(4401));
    with_session.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(wait_until_disabled(&desk, "u1001").await["inactive"], "gone");
    assert_eq!(wait_until_disabled(&desk, "a2001").await["inactive"], "disabled");
    assert_eq!(newest_event(&desk, "u1001").await["by"], "platform");
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(1011);
    wait_for_rechecks(&desk, "active", 2.0).await;
    staying.get("/api/auth/me").await.expect_code(0);
    assert_eq!(rechecks(&desk, "inactive").await, 2.0);
}

#[tokio::test]
async fn recheck_changes_nothing_while_the_platform_cannot_be_reached() {
    let desk = Gateway::with(EVERY_SECOND).await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.set_platform_switches(json!({ "bad_gateway": { "*": "all" }, "members": { "u1001": "left" } })).await;
    wait_for_rechecks(&desk, "unreachable", 1.0).await;
    wait_for_rechecks(&desk, "paused", 1.0).await;
    xiaoming.get("/api/auth/me").await.expect_code(0);
    assert_eq!(row(&desk, "u1001").await["standing"], "active");
    desk.set_platform_switches(only("u1001", "left")).await;
    wait_until_disabled(&desk, "u1001").await;
    wait_until_signed_out(&xiaoming).await;
}

#[tokio::test]
async fn recheck_keeps_the_last_known_status_of_a_member_out_of_sight() {
    let desk = Gateway::with(EVERY_SECOND).await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.set_platform_switches(json!({ "visible_range": { "1000002": ["a2001"] } })).await;
    wait_for_rechecks(&desk, "out_of_sight", 2.0).await;
    xiaoming.get("/api/auth/me").await.expect_code(0);
    desk.wait_for_log(&["does not show this member", "last known status stays", "u1001", "\"active\""]).await;
}

#[tokio::test]
async fn sign_in_out_of_sight_follows_the_last_known_status() {
    let desk = Gateway::start().await;
    let out_of_sight = json!({ "visible_range": { "1000002": ["a2001"] }, "members": { "x8001": "active" } });
    desk.set_platform_switches(out_of_sight.clone()).await;
    assert_eq!(oauth2_error(&desk, "x8001").await, "1003", "no status is known");
    assert_eq!(find(&desk, &["employee", "list"], "x8001").await, None);
    desk.sign_in_by_oauth2("u1001", "h5").await.get("/api/auth/me").await.expect_code(0);

    desk.set_platform_switches(only("u1001", "left")).await;
    assert_eq!(oauth2_error(&desk, "u1001").await, "1003");
    desk.set_platform_switches(out_of_sight).await;
    assert_eq!(oauth2_error(&desk, "u1001").await, "1003", "the last known status is inactive");
    desk.wait_for_log(&["does not show this member", "u1001", "\"disabled\""]).await;
}

#[tokio::test]
async fn member_who_returns_is_enabled_by_the_next_platform_sign_in() {
    let desk = Gateway::start().await;
    desk.sign_in_by_oauth2("a2001", "itagent").await;
    desk.set_platform_switches(only("a2001", "disabled")).await;
    assert_eq!(oauth2_error(&desk, "a2001").await, "1003");
    desk.set_platform_switches(json!({})).await;
    desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "a2001" })).await.expect_code(1003);
    desk.sign_in_by_qrcode("a2001").await.get("/api/auth/me").await.expect_code(0);
    let event = newest_event(&desk, "a2001").await;
    assert_eq!((&event["event"], &event["by"]), (&json!("member_returned"), &json!("platform")), "{event}");
    let row = row(&desk, "a2001").await;
    assert_eq!((&row["standing"], row.get("inactive")), (&json!("active"), None), "{row}");
}

#[tokio::test]
async fn employee_disabled_by_an_operator_stays_disabled() {
    let desk = Gateway::start().await;
    desk.sign_in_by_oauth2("a2001", "itagent").await;
    desk.command(&["employee", "disable", "a2001"]).await.expect_success();
    assert_eq!(oauth2_error(&desk, "a2001").await, "1003");
    desk.command(&["employee", "enable", "a2001"]).await.expect_success();

    desk.set_platform_switches(only("a2001", "left")).await;
    assert_eq!(oauth2_error(&desk, "a2001").await, "1003");
    // The operator's decision replaces the platform's.
    desk.command(&["employee", "disable", "a2001"]).await.expect_success();
    desk.set_platform_switches(json!({})).await;
    assert_eq!(oauth2_error(&desk, "a2001").await, "1003");
    desk.command(&["employee", "enable", "a2001"]).await.expect_success();
    desk.sign_in_by_oauth2("a2001", "itagent").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn employee_whom_the_platform_never_knew_has_not_left() {
    let desk = Gateway::with(EVERY_SECOND).await;
    desk.command(&["employee", "add", "b7700"]).await.expect_success();
    desk.command(&["agent", "add", "b7700", "--role", "agent"]).await.expect_success();
    desk.command_with_input(&["agent", "password", "b7700"], &format!("{GOOD}\n")).await.expect_success();
    let data = login(&desk, json!({ "employee_id": "b7700", "password": GOOD })).await.expect_code(0).data();
    wait_for_rechecks(&desk, "not_a_member", 2.0).await;
    desk.with_token(data["token"].as_str().expect("a token")).get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn recheck_asks_about_members_of_connected_corporations() {
    let desk = Gateway::with(EVERY_SECOND).await;
    desk.command(&["employee", "add", "p7001", "--corp", "wwpartner"]).await.expect_success();
    let paula = desk.sign_in_by_oauth2("wwpartner/p7001", "h5").await;
    wait_for_rechecks(&desk, "active", 1.0).await;
    paula.get("/api/auth/me").await.expect_code(0);
    desk.set_platform_switches(only("p7001", "deleted")).await;
    assert_eq!(wait_until_disabled(&desk, "p7001").await["inactive"], "gone");
    wait_until_signed_out(&paula).await;
}

/// Leaves employees as the upgrade does, whatever the platform says: they have signed in, and no more is known.
const SIGNED_IN_BEFORE_THE_UPGRADE: &str =
    "CREATE TRIGGER forget AFTER UPDATE OF platform_active_at ON employees WHEN NEW.platform_active_at <> 0
     BEGIN UPDATE employees SET platform_active_at = 0 WHERE rowid = NEW.rowid; END";

#[tokio::test]
async fn earlier_sign_in_shows_that_a_member_is_gone_in_the_main_corporation_only() {
    if skipped_on_postgres("a trigger in SQLite's dialect") {
        return;
    }
    let desk = Gateway::with(EVERY_SECOND).await;
    desk.change_directory(SIGNED_IN_BEFORE_THE_UPGRADE).await;
    desk.command(&["employee", "add", "p7001", "--corp", "wwpartner"]).await.expect_success();
    let paula = desk.sign_in_by_oauth2("wwpartner/p7001", "h5").await;
    let xiaoming = desk.sign_in_by_oauth2("u1001", "h5").await;
    desk.set_platform_switches(json!({ "members": { "p7001": "deleted", "u1001": "deleted" } })).await;
    assert_eq!(wait_until_disabled(&desk, "u1001").await["inactive"], "gone");
    wait_until_signed_out(&xiaoming).await;
    wait_for_rechecks(&desk, "not_a_member", 1.0).await;
    paula.get("/api/auth/me").await.expect_code(0);
    assert_eq!(row(&desk, "p7001").await["standing"], "active");
}

/// The employee is disabled a moment before the sessions end.
async fn wait_until_signed_out(client: &Client) {
    eventually("the end of the session", || async { (client.get("/api/auth/me").await.status == 401).then_some(()) })
        .await;
}

/// Signs a member of a connected corporation in as this employee, through a link.
async fn linked_session(desk: &Gateway, employee: &str) -> Client {
    desk.command(&["employee", "link", "add", "wwpartner/p7001", employee]).await.expect_success();
    desk.sign_in_by_oauth2("wwpartner/p7001", "h5").await
}

#[tokio::test]
async fn employee_is_disabled_when_the_account_of_their_link_is_gone() {
    let desk = Gateway::with(EVERY_SECOND).await;
    desk.command(&["employee", "add", "e9001"]).await.expect_success();
    let paula = linked_session(&desk, "e9001").await;
    wait_for_rechecks(&desk, "active", 1.0).await;
    paula.get("/api/auth/me").await.expect_code(0);
    desk.set_platform_switches(only("p7001", "deleted")).await;
    assert_eq!(wait_until_disabled(&desk, "e9001").await["inactive"], "gone");
    wait_until_signed_out(&paula).await;
    let event = newest_event(&desk, "e9001").await;
    assert_eq!((&event["event"], &event["detail"]), (&json!("member_inactive"), &json!("gone wwpartner/p7001")));
    let table = desk.command(&["employee", "link", "list"]).await.expect_success();
    assert!(table.contains("approved (gone)"), "{table}");
    let link = find(&desk, &["employee", "link", "list"], "e9001").await.expect("a link");
    assert_eq!((&link["state"], link["gone_at"].is_string()), (&json!("approved"), true), "{link}");

    desk.set_platform_switches(json!({})).await;
    desk.sign_in_by_oauth2("wwpartner/p7001", "h5").await.get("/api/auth/me").await.expect_code(0);
    let event = newest_event(&desk, "e9001").await;
    assert_eq!((&event["event"], &event["detail"]), (&json!("member_returned"), &json!("wwpartner/p7001")));
    let link = find(&desk, &["employee", "link", "list"], "e9001").await.expect("a link");
    assert_eq!((&link["state"], &link["gone_at"]), (&json!("approved"), &json!(null)), "{link}");
}

#[tokio::test]
async fn enabling_an_employee_who_left_says_for_how_long() {
    let desk = Gateway::start().await;
    desk.sign_in_by_oauth2("a2001", "itagent").await;
    desk.set_platform_switches(only("a2001", "left")).await;
    assert_eq!(oauth2_error(&desk, "a2001").await, "1003");
    let enabled = desk.command(&["employee", "enable", "a2001"]).await.expect_success();
    assert!(enabled.contains("note: WeCom last called a2001 left"), "{enabled}");
    desk.command(&["employee", "disable", "a2001"]).await.expect_success();
    let enabled = desk.command(&["employee", "enable", "a2001"]).await.expect_success();
    assert!(!enabled.contains("note:"), "{enabled}");
}

#[tokio::test]
async fn link_does_not_enable_a_member_who_left() {
    let desk = Gateway::start().await;
    desk.sign_in_by_oauth2("m5001", "itadmin").await;
    linked_session(&desk, "m5001").await;
    desk.set_platform_switches(only("m5001", "left")).await;
    desk.phone("m5001").oauth2(&desk.client_url("h5")).await;
    assert_eq!(row(&desk, "m5001").await["inactive"], "left");
    let refused = desk.phone("wwpartner/p7001").oauth2(&desk.client_url("h5")).await.expect_status(302);
    assert_eq!(fragment_parameter(&refused.location(), "error_code").as_deref(), Some("1003"));
    assert_eq!(row(&desk, "m5001").await["standing"], "disabled");
}

#[tokio::test]
async fn password_sign_in_asks_about_the_account_of_a_link() {
    let desk = Gateway::with("[platform]\nrecheck = 0").await;
    desk.command(&["employee", "add", "e9001"]).await.expect_success();
    desk.command(&["agent", "add", "e9001"]).await.expect_success();
    linked_session(&desk, "e9001").await;
    desk.command_with_input(&["agent", "password", "e9001"], "ventilator sandwich moth\n").await.expect_success();
    let login = || async {
        let body = json!({ "employee_id": "e9001", "password": "ventilator sandwich moth" });
        desk.anonymous().post_json("/api/agents/login", &body).await
    };
    login().await.expect_code(0);
    desk.set_platform_switches(only("p7001", "deleted")).await;
    assert_ne!(login().await.code(), 0);
    assert_eq!(row(&desk, "e9001").await["standing"], "disabled");
}

#[tokio::test]
async fn only_the_sessions_of_a_link_end_when_the_employee_is_a_member_too() {
    let desk = Gateway::with(EVERY_SECOND).await;
    let xiaoming = desk.sign_in_by_oauth2("u1001", "h5").await;
    let paula = linked_session(&desk, "u1001").await;
    desk.set_platform_switches(only("p7001", "deleted")).await;
    wait_until_signed_out(&paula).await;
    let event = newest_event(&desk, "u1001").await;
    assert_eq!(
        (&event["event"], &event["by"], &event["detail"]),
        (&json!("linked_member_inactive"), &json!("platform"), &json!("gone wwpartner/p7001"))
    );
    xiaoming.get("/api/auth/me").await.expect_code(0);
    assert_eq!(row(&desk, "u1001").await["standing"], "active");
}

/// Links accounts to an employee that come before `p7001` in the order of the directory.
async fn link_many(desk: &Gateway, employee: &str) {
    let rows: String = (0..20).map(|number| format!("wwpartner,a{number:02},{employee}\n")).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("links.csv");
    std::fs::write(&file, format!("corp_id,platform_user,employee_id\n{rows}")).expect("a file");
    let file = file.to_str().expect("a path");
    desk.command(&["employee", "link", "add", "--file", file]).await.expect_success();
}

#[tokio::test]
async fn recheck_asks_about_every_link_of_an_employee() {
    let desk = Gateway::with(EVERY_SECOND).await;
    let xiaoming = desk.sign_in_by_oauth2("u1001", "h5").await;
    link_many(&desk, "u1001").await;
    let paula = linked_session(&desk, "u1001").await;
    desk.set_platform_switches(only("p7001", "deleted")).await;
    wait_until_signed_out(&paula).await;
    assert_eq!(newest_event(&desk, "u1001").await["detail"], "gone wwpartner/p7001");
    xiaoming.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn only_the_sessions_of_a_link_end_when_other_accounts_are_linked_too() {
    let desk = Gateway::with(EVERY_SECOND).await;
    desk.command(&["employee", "add", "e9001"]).await.expect_success();
    desk.command(&["agent", "add", "e9001"]).await.expect_success();
    desk.command_with_input(&["agent", "password", "e9001"], &format!("{GOOD}\n")).await.expect_success();
    desk.command(&["employee", "link", "add", "wwpartner/p7002", "e9001"]).await.expect_success();
    let paula = linked_session(&desk, "e9001").await;
    desk.set_platform_switches(only("p7001", "deleted")).await;
    wait_until_signed_out(&paula).await;
    assert_eq!(newest_event(&desk, "e9001").await["event"], "linked_member_inactive");
    assert_eq!(row(&desk, "e9001").await["standing"], "active");
    login(&desk, json!({ "employee_id": "e9001", "password": GOOD })).await.expect_code(0);
}

#[tokio::test]
async fn employee_is_disabled_once_every_linked_account_is_gone() {
    let desk = Gateway::with(EVERY_SECOND).await;
    desk.command(&["employee", "add", "e9001"]).await.expect_success();
    desk.command(&["employee", "link", "add", "wwpartner/p7002", "e9001"]).await.expect_success();
    let paula = linked_session(&desk, "e9001").await;
    // The platform has no such member, and has had one.
    let once_active = "UPDATE platform_links SET platform_active_at = 1 WHERE user_id = 'p7002'";
    desk.change_directory(once_active).await;
    wait_for_rechecks(&desk, "inactive", 1.0).await;
    paula.get("/api/auth/me").await.expect_code(0);
    desk.set_platform_switches(only("p7001", "deleted")).await;
    assert_eq!(wait_until_disabled(&desk, "e9001").await["inactive"], "gone");
    wait_until_signed_out(&paula).await;
    let events = desk.command(&["employee", "events", "e9001", "--json"]).await.expect_success();
    assert_eq!(events.matches("\"member_inactive\"").count(), 1, "{events}");
    // The first one to return enables the employee again.
    desk.set_platform_switches(json!({})).await;
    desk.sign_in_by_oauth2("wwpartner/p7001", "h5").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn recheck_that_could_not_be_applied_is_retried_soon() {
    if skipped_on_postgres("a trigger in SQLite's dialect") {
        return;
    }
    let desk = Gateway::with("[platform]\nrecheck = \"24s\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.set_platform_switches(only("u1001", "left")).await;
    let before = Clock::system().now().millis();
    let fail = "CREATE TRIGGER fail BEFORE UPDATE OF disabled ON employees BEGIN SELECT RAISE(ABORT, 'no'); END;
         UPDATE employees SET platform_checked_at = 0 WHERE employee_id = 'u1001'";
    desk.change_directory(fail).await;
    wait_for_rechecks(&desk, "failed", 1.0).await;
    xiaoming.get("/api/auth/me").await.expect_code(0);
    // As if last asked 22 s ago: due again in 2 s, not in 24.
    let query = "SELECT CAST(platform_checked_at AS TEXT) FROM employees WHERE employee_id = 'u1001'";
    let checked_at: i64 = desk.read_directory(query).await[0].parse().expect("a time");
    assert!(0 < checked_at && checked_at < before, "{checked_at}, and the test began at {before}");
    desk.change_directory("DROP TRIGGER fail").await;
    wait_until_disabled(&desk, "u1001").await;
    wait_until_signed_out(&xiaoming).await;
}

#[tokio::test]
async fn recheck_stops_asking_after_the_last_logout() {
    let desk = Gateway::with(EVERY_SECOND).await;
    let xiaoming = desk.sign_in("u1001").await;
    let staying = desk.sign_in("s3001").await;
    wait_for_rechecks(&desk, "active", 2.0).await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    desk.set_platform_switches(only("u1001", "left")).await;
    wait_for_rechecks(&desk, "active", 3.0).await;
    assert_eq!(row(&desk, "u1001").await["standing"], "active", "there is nothing to end");
    staying.get("/api/auth/me").await.expect_code(0);
    // The next sign-in begins it again, here one that does not ask the platform.
    desk.sign_in("u1001").await;
    wait_until_disabled(&desk, "u1001").await;
}

#[tokio::test]
async fn restart_starts_no_burst_of_rechecks() {
    let mut desk = Gateway::start().await;
    for employee in ["u1001", "a2001", "s3001", "c4001", "m5001"] {
        desk.sign_in(employee).await;
    }
    desk.restart().await;
    eventually("the recheck runs", || async {
        desk.metrics().await.contains("deskgate_platform_rechecks_total{").then_some(())
    })
    .await;
    assert_eq!(desk.platform_calls(USER).await, 0, "nobody is due");

    // As after a long downtime: everyone is overdue.
    desk.terminate().await;
    desk.change_directory("UPDATE employees SET platform_checked_at = 0 WHERE platform_checked_at IS NOT NULL").await;
    desk.restart().await;
    eventually("the first recheck", || async { (rechecks(&desk, "active").await > 0.0).then_some(()) }).await;
    assert_eq!(desk.platform_calls(USER).await, 1, "the others follow over the hour");
    assert!(desk.metric("deskgate_platform_recheck_overdue_seconds", &[]).await > 0.0);
}

#[tokio::test]
async fn recheck_is_overdue_while_the_platform_does_not_answer() {
    let desk = Gateway::setup().toml(EVERY_SECOND).movable_clock().start().await;
    desk.sign_in("u1001").await;
    wait_for_rechecks(&desk, "active", 1.0).await;
    desk.set_platform_switches(json!({ "bad_gateway": { "*": "all" } })).await;
    wait_for_rechecks(&desk, "unreachable", 1.0).await;
    desk.clock().set_offset(7200);
    // After the first question at the new time the employee is no longer overdue in the queue.
    wait_for_rechecks(&desk, "unreachable", 2.0).await;
    assert!(desk.metric("deskgate_platform_recheck_overdue_seconds", &[]).await >= 7200.0);
}

#[tokio::test]
async fn recheck_can_be_turned_off() {
    let desk = Gateway::with("[platform]\nrecheck = 0").await;
    desk.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0);
    assert!(!desk.metrics().await.contains("deskgate_platform_rechecks_total{"));
    let refused = Gateway::setup().toml("[platform]\nrecheck = \"10ms\"").try_start().await.err().expect("a refusal");
    assert!(refused.stderr.contains("platform.recheck"), "{}", refused.stderr);
}
