//! Links: a member of a connected corporation signs in as the employee that an administrator approved.

use std::time::Duration;

use deskgate::directory::factors::Account;
use deskgate::directory::links::Links;
use deskgate::directory::{Directory, LoginEntry, LoginQuery};
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::link::PlatformAccount;

use crate::people::list;
use crate::support::*;

const MEMBER: &str = "wwpartner/p7001";

const LINKS: &str = "/api/admin/links";

const AUTOMATIC: &str = "[bind]\napproval = \"none\"";

/// Signs the member in at the platform; the phone then holds a bind proof.
async fn proven(desk: &Gateway) -> Phone {
    let phone = desk.phone(MEMBER);
    phone.oauth2(&desk.client_url("h5")).await.expect_status(302);
    phone
}

async fn bind(phone: &Phone, employee: &str) -> Response {
    phone.client().post_json("/api/auth/bind", &json!({ "employee_id": employee })).await
}

async fn links(desk: &Gateway) -> Vec<Value> {
    list(desk, &["employee", "link", "list"]).await
}

async fn approve(desk: &Gateway, employee: &str) {
    desk.command(&["employee", "link", "approve", MEMBER, employee]).await.expect_success();
}

async fn add(desk: &Gateway, employee: &str) {
    desk.command(&["employee", "link", "add", MEMBER, employee]).await.expect_success();
}

/// An administrator whose session is stepped up.
async fn stepped_up(desk: &Gateway) -> Client {
    wait_for_otp_step_with_time_left().await;
    let admin = desk.sign_in("m5001").await;
    step_up(&admin).await;
    admin
}

async fn step_up(admin: &Client) {
    let device = OtpDevice::set_up_and_bind(admin).await;
    admin.post_json("/api/auth/otp-verify", &json!({ "code": device.code(0) })).await.expect_code(0);
}

async fn put(admin: &Client, account: (&str, &str), employee: &str) -> Response {
    let body = json!({ "corp_id": account.0, "platform_user": account.1, "employee_id": employee });
    admin.send("PUT", LINKS, &[("Content-Type", "application/json")], body.to_string().as_bytes()).await
}

async fn newest_login(desk: &Gateway) -> LoginEntry {
    desk.directory().await.logins(&LoginQuery::default(), 1).await.expect("the log").pop().expect("an entry")
}

#[tokio::test]
async fn proven_account_becomes_no_employee_without_approval() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    for employee in ["m5001", "u1001", "u1001"] {
        let response = bind(&phone, employee).await.expect_code(1003);
        assert!(response.text().contains("An administrator must approve"), "{}", response.describe());
        let link = links(&desk).await.pop().expect("a link");
        assert_eq!((&link["corp_id"], &link["platform_user"]), (&json!("wwpartner"), &json!("p7001")), "{link}");
        assert_eq!((&link["employee_id"], &link["state"]), (&json!(employee), &json!("pending")), "{link}");
        assert_eq!(links(&desk).await.len(), 1, "a request for another employee replaces the first");
    }
    let response = phone.oauth2(&desk.client_url("h5")).await.expect_status(302);
    assert!(response.location().ends_with("/api/auth/bind/page"), "a pending link signs nobody in");
    let shown = phone.page(&response.location()).await;
    assert!(shown.html.contains("data-requested=\"u1001\""), "the page shows the request: {}", shown.html);
    let chinese = desk.phone(MEMBER);
    chinese.oauth2(&desk.client_url("h5")).await;
    let chinese = chinese.client().with_header("Accept-Language", "zh-CN");
    let refused = chinese.post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
    assert!(refused.text().contains("需要管理员批准"), "{}", refused.describe());
}

#[tokio::test]
async fn approved_link_signs_in_by_redirect_and_by_qr_code() {
    let desk = Gateway::start().await;
    bind(&proven(&desk).await, "a2001").await.expect_code(1003);
    approve(&desk, "a2001").await;
    for client in [desk.sign_in_by_oauth2(MEMBER, "itagent").await, desk.sign_in_by_qrcode(MEMBER).await] {
        let me = client.get("/api/auth/me").await.expect_code(0).data();
        assert_eq!((&me["employee_id"], &me["name"]), (&json!("a2001"), &json!("Alice Chen")));
        assert_eq!(me["roles"], json!(["agent", "user"]));
    }
    desk.command(&["employee", "disable", "a2001"]).await.expect_success();
    let refused = desk.phone(MEMBER).oauth2(&desk.client_url("h5")).await.expect_status(302);
    assert_eq!(fragment_parameter(&refused.location(), "error_code").as_deref(), Some("1003"));
}

#[tokio::test]
async fn bind_page_continues_once_the_link_is_approved() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    let state = || async { phone.client().get("/api/auth/bind/status").await.expect_code(0).data() };
    assert_eq!(state().await, json!({ "state": "none", "employee_id": null, "corp_id": null }));
    bind(&phone, "u1001").await.expect_code(1003);
    assert_eq!(state().await, json!({ "state": "pending", "employee_id": "u1001", "corp_id": "wwdemo" }));
    approve(&desk, "u1001").await;
    assert_eq!(state().await["state"], "approved");
    let data = bind(&phone, "u1001").await.expect_code(0).data();
    assert_eq!((&data["employee_id"], &data["login_method"]), (&json!("u1001"), &json!("bind")));
    desk.with_token(data["token"].as_str().expect("a token")).get("/api/auth/me").await.expect_code(0);
    phone.client().get("/api/auth/bind/status").await.expect_code(1003);
    desk.anonymous().get("/api/auth/bind/status").await.expect_code(1003);
}

#[tokio::test]
async fn refused_request_is_forgotten() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    bind(&phone, "m5001").await.expect_code(1003);
    desk.command(&["employee", "link", "refuse", MEMBER]).await.expect_success();
    assert!(links(&desk).await.is_empty());
    assert_eq!(phone.client().get("/api/auth/bind/status").await.expect_code(0).data()["state"], "none");
    assert_eq!(desk.command(&["employee", "link", "refuse", MEMBER]).await.status.code(), Some(3));
    add(&desk, "u1001").await;
    let approved = desk.command(&["employee", "link", "refuse", MEMBER]).await;
    assert_eq!(approved.status.code(), Some(4), "{}", approved.output_text());
    assert_eq!(links(&desk).await.len(), 1, "only a pending link can be refused");
}

#[tokio::test]
async fn linked_account_cannot_bind_to_another_employee() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    add(&desk, "u1001").await;
    let response = bind(&phone, "m5001").await.expect_code(1003);
    assert!(response.text().contains("linked to another employee"), "{}", response.describe());
    assert_eq!(links(&desk).await[0]["employee_id"], "u1001");
    bind(&phone, "u1001").await.expect_code(0);
}

#[tokio::test]
async fn unknown_employee_at_bind_says_what_to_do_and_makes_no_link() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    let response = bind(&phone, "u9999").await.expect_code(1003);
    assert!(response.text().contains("ask your administrator to add you"), "{}", response.describe());
    let chinese = phone.client().with_header("Accept-Language", "zh-CN");
    let response = chinese.post_json("/api/auth/bind", &json!({ "employee_id": "u9999" })).await.expect_code(1003);
    assert!(response.text().contains("请联系管理员添加"), "{}", response.describe());
    bind(&phone, "n6001").await.expect_code(1003);
    assert!(links(&desk).await.is_empty());
}

#[tokio::test]
async fn approval_names_the_employee_that_was_checked() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    bind(&phone, "u1001").await.expect_code(1003);
    // The member asks for another employee after the operator has read the list.
    bind(&phone, "m5001").await.expect_code(1003);
    let refused = desk.command(&["employee", "link", "approve", MEMBER, "u1001"]).await;
    assert_eq!(refused.status.code(), Some(4), "{}", refused.output_text());
    assert!(refused.output_text().contains("asks for employee m5001"), "{}", refused.output_text());
    assert_eq!(links(&desk).await[0]["state"], "pending");
}

#[tokio::test]
async fn automatic_approval_admits_plain_users_only() {
    let desk = Gateway::with(AUTOMATIC).await;
    desk.command(&["role", "take", "s3001", "supervisor"]).await.expect_success();
    desk.command(&["role", "grant", "s3001", "user"]).await.expect_success();
    let phone = proven(&desk).await;
    for (employee, why) in
        [("m5001", "admin"), ("a2001", "agent"), ("c4001", "security"), ("s3001", "the agent record")]
    {
        let response = bind(&phone, employee).await;
        assert_eq!(response.code(), 1003, "{why}: {}", response.describe());
        assert_eq!(links(&desk).await[0]["state"], "pending", "{why}");
    }
    let data = bind(&phone, "u1001").await.expect_code(0).data();
    assert_eq!(data["roles"], json!(["user"]));
    let link = links(&desk).await.pop().expect("a link");
    assert_eq!((&link["employee_id"], &link["approved_by"]), (&json!("u1001"), &json!("setting bind.approval")));
    desk.sign_in_by_oauth2(MEMBER, "h5").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn automatic_approval_ends_when_the_employee_gets_another_role() {
    let desk = Gateway::with(AUTOMATIC).await;
    bind(&proven(&desk).await, "u1001").await.expect_code(0);
    let linked = desk.sign_in_by_oauth2(MEMBER, "h5").await;
    let own = desk.sign_in("u1001").await;
    desk.command(&["role", "grant", "u1001", "admin"]).await.expect_success();
    linked.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(own.get("/api/auth/me").await.expect_code(0).data()["roles"], json!(["admin", "user"]));
    let response = desk.phone(MEMBER).oauth2(&desk.client_url("h5")).await.expect_status(302);
    assert!(response.location().ends_with("/api/auth/bind/page"), "{}", response.describe());
    assert_eq!(links(&desk).await[0]["state"], "pending");
    // An approval by a person holds.
    approve(&desk, "u1001").await;
    let linked = desk.sign_in_by_oauth2(MEMBER, "h5").await;
    assert_eq!(linked.get("/api/auth/me").await.expect_code(0).data()["roles"], json!(["admin", "user"]));
}

#[tokio::test]
async fn removed_link_ends_its_sessions_and_sockets_only() {
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    for by_command in [true, false] {
        add(&desk, "u1001").await;
        let linked = [desk.sign_in_by_oauth2(MEMBER, "h5").await, desk.sign_in_by_qrcode(MEMBER).await];
        let own = desk.sign_in("u1001").await;
        let mut socket = linked[0].websocket("/ws/employee").await;
        socket.echo("hello").await;
        let mut own_socket = own.websocket("/ws/employee").await;
        if by_command {
            assert_eq!(desk.command(&["employee", "link", "remove", MEMBER]).await.status.code(), Some(5));
            let output = desk.command(&["employee", "link", "remove", MEMBER, "--yes"]).await.expect_success();
            assert!(output.contains("2 sessions"), "{output}");
        } else {
            let target = format!("{LINKS}?corp_id=wwpartner&platform_user=p7001");
            let data = admin.send("DELETE", &target, &[], b"").await.expect_code(0).data();
            assert_eq!(data, json!({ "success": true, "changed": true, "sessions": 2 }));
        }
        assert_eq!(socket.close_code_within(Duration::from_secs(1)).await, Some(4401));
        for client in &linked {
            client.get("/api/auth/me").await.expect_invalid_token();
        }
        own.get("/api/auth/me").await.expect_code(0);
        own_socket.echo("still here").await;
        let response = desk.phone(MEMBER).oauth2(&desk.client_url("h5")).await.expect_status(302);
        assert!(response.location().ends_with("/api/auth/bind/page"), "{}", response.describe());
    }
}

/// Replaces the link as soon as an audit record is written: after the link was read, before it is removed.
const REPLACE_LINK: &str = "CREATE TRIGGER replace_link AFTER INSERT ON audit_log BEGIN
     UPDATE platform_links SET employee_id = 's3001'; END";

/// Checks that the link which has replaced the other is there, and makes room for the next one.
async fn expect_replaced(desk: &Gateway, case: &str) {
    let left: Vec<Value> = links(desk).await.into_iter().map(|link| link["employee_id"].clone()).collect();
    assert_eq!(left, ["s3001"], "{case}");
    desk.change_directory("DROP TRIGGER replace_link; DELETE FROM platform_links").await;
}

#[tokio::test]
async fn link_replaced_while_it_is_removed_or_refused_stays() {
    if skipped_on_postgres("a trigger in SQLite's dialect") {
        return;
    }
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    let phone = proven(&desk).await;
    let remove: &[&str] = &["employee", "link", "remove", MEMBER, "--yes"];
    let refuse: &[&str] = &["employee", "link", "refuse", MEMBER];
    for (command, expected) in [(remove, "is linked to another employee"), (refuse, "asks for employee s3001")] {
        match command == remove {
            true => add(&desk, "u1001").await,
            false => drop(bind(&phone, "u1001").await.expect_code(1003)),
        }
        desk.change_directory(REPLACE_LINK).await;
        let output = desk.command(command).await;
        assert_eq!(output.status.code(), Some(4), "{}", output.output_text());
        assert!(output.output_text().contains(expected), "{}", output.output_text());
        expect_replaced(&desk, expected).await;
    }
    bind(&phone, "u1001").await.expect_code(1003);
    desk.change_directory(REPLACE_LINK).await;
    let delete = format!("{LINKS}?corp_id=wwpartner&platform_user=p7001");
    let refused = admin.send("DELETE", &delete, &[], b"").await.expect_code(1003);
    assert!(refused.message().contains("nothing was removed"), "{}", refused.describe());
    expect_replaced(&desk, "DELETE").await;
}

#[tokio::test]
async fn removed_link_ends_its_sessions_even_if_it_is_added_again_at_once() {
    if skipped_on_postgres("a trigger in SQLite's dialect") {
        return;
    }
    let desk = Gateway::start().await;
    add(&desk, "u1001").await;
    let linked = desk.sign_in_by_oauth2(MEMBER, "h5").await;
    let add_again = "CREATE TRIGGER add_again AFTER DELETE ON platform_links BEGIN INSERT INTO platform_links
             (corp_id, user_id, employee_corp_id, employee_id, requested_at, approved_by, approved_at)
         VALUES (OLD.corp_id, OLD.user_id, OLD.employee_corp_id, OLD.employee_id, 1, 'm5001', 1); END";
    desk.change_directory(add_again).await;
    let output = desk.command(&["employee", "link", "remove", MEMBER, "--yes"]).await.expect_success();
    assert!(output.contains("1 session"), "{output}");
    linked.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn link_removed_before_the_token_is_collected_signs_nobody_in() {
    let desk = Gateway::start().await;
    add(&desk, "u1001").await;
    let browser = desk.anonymous();
    let ticket = browser.get("/api/auth/qrcode").await.expect_code(0).data();
    desk.phone(MEMBER).scan_and_confirm(ticket["qrcode_url"].as_str().expect("a URL")).await;
    desk.command(&["employee", "link", "remove", MEMBER, "--yes"]).await.expect_success();
    let poll = format!("/api/auth/scan/status?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
    let status = browser.get(&poll).await.expect_code(0).data();
    assert_eq!((&status["status"], &status["reason"]), (&json!("expired"), &json!("refused")), "{status}");
    assert!(list(&desk, &["session", "list"]).await.is_empty());
}

#[tokio::test]
async fn sessions_of_a_link_removed_while_the_gateway_was_down_end_at_start() {
    let mut desk = Gateway::start().await;
    add(&desk, "u1001").await;
    let (linked, own) = (desk.sign_in_by_oauth2(MEMBER, "h5").await, desk.sign_in("u1001").await);
    desk.terminate().await;
    desk.change_directory("DELETE FROM platform_links").await;
    desk.restart().await;
    eventually("the end of the session", || async { (linked.get("/api/auth/me").await.status == 401).then_some(()) })
        .await;
    own.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn linked_session_sets_up_no_device_and_no_first_password() {
    let desk = Gateway::start().await;
    add(&desk, "a2001").await;
    let linked = desk.sign_in_by_oauth2(MEMBER, "itagent").await;
    let refused = linked.post("/api/auth/otp-setup").await.expect_code(1003);
    assert!(refused.text().contains("linked account"), "{}", refused.describe());
    let password = json!({ "new_password": "ventilator sandwich moth" });
    linked.post_json("/api/agents/password", &password).await.expect_code(1003);
}

#[tokio::test]
async fn administrators_list_approve_and_remove_links() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    bind(&phone, "u1001").await.expect_code(1003);
    let admin = desk.sign_in("m5001").await;
    let pending = admin.get(&format!("{LINKS}?state=pending")).await.expect_code(0).data();
    assert_eq!((&pending["total"], &pending["page"], &pending["page_size"]), (&json!(1), &json!(1), &json!(50)));
    assert_eq!(pending["items"][0]["employee_id"], "u1001", "{pending}");
    assert_eq!(admin.get(&format!("{LINKS}?state=approved")).await.expect_code(0).data()["total"], 0);
    for query in ["state=x", "page=0", "page_size=201"] {
        admin.get(&format!("{LINKS}?{query}")).await.expect_code(1400);
    }
    let delete = format!("{LINKS}?corp_id=wwpartner&platform_user=p7001");
    put(&admin, ("wwpartner", "p7001"), "u1001").await.expect_code(1021);
    admin.send("DELETE", &delete, &[], b"").await.expect_code(1021);
    for employee in ["u1001", "a2001"] {
        let other = desk.sign_in(employee).await;
        other.get(LINKS).await.expect_code(1003);
        put(&other, ("wwpartner", "p7001"), "u1001").await.expect_code(1003);
    }

    let admin = stepped_up(&desk).await;
    assert_eq!(put(&admin, ("wwpartner", "p7001"), "u1001").await.expect_code(0).data()["changed"], true);
    assert_eq!(put(&admin, ("wwpartner", "p7001"), "u1001").await.expect_code(0).data()["changed"], false);
    let approved = admin.get(&format!("{LINKS}?state=approved&employee_id=u1001")).await.expect_code(0).data();
    assert_eq!(approved["items"][0]["approved_by"], "m5001", "{approved}");
    put(&admin, ("wwpartner", "p7001"), "a2001").await.expect_code(1003);
    put(&admin, ("wwpartner", "p7002"), "z9999").await.expect_code(1003);
    for (corp, user) in [("wwdemo", "u1001"), ("", "p7001"), ("a b", "p7001"), ("wwpartner", ""), ("wwpartner", "a/b")]
    {
        let response = put(&admin, (corp, user), "u1001").await;
        assert_eq!(response.code(), 1400, "{corp}/{user}");
    }
    assert_eq!(admin.send("DELETE", &delete, &[], b"").await.expect_code(0).data()["changed"], true);
    assert_eq!(admin.send("DELETE", &delete, &[], b"").await.expect_code(0).data()["changed"], false);
    admin.send("DELETE", LINKS, &[], b"").await.expect_code(1400);
}

#[tokio::test]
async fn administrators_see_and_change_links_of_their_own_corporation_only() {
    let desk = Gateway::start().await;
    desk.command(&["employee", "add", "p7001", "--corp", "wwpartner"]).await.expect_success();
    desk.command(&["role", "grant", "p7001", "admin", "--corp", "wwpartner"]).await.expect_success();
    wait_for_otp_step_with_time_left().await;
    let partner = desk.sign_in_by_oauth2(MEMBER, "itadmin").await;
    step_up(&partner).await;
    desk.command(&["employee", "link", "add", "wwother/q1", "u1001"]).await.expect_success();
    assert_eq!(partner.get(LINKS).await.expect_code(0).data()["total"], 0);
    let delete = format!("{LINKS}?corp_id=wwother&platform_user=q1");
    assert_eq!(partner.send("DELETE", &delete, &[], b"").await.expect_code(0).data()["changed"], false);
    assert_eq!(links(&desk).await.len(), 1);
    put(&partner, ("wwother", "q2"), "u1001").await.expect_code(1003);
    put(&partner, ("wwother", "q2"), "p7001").await.expect_code(0);
    assert_eq!(partner.get(LINKS).await.expect_code(0).data()["items"][0]["employee_corp_id"], "wwpartner");
}

#[tokio::test]
async fn administrators_take_no_account_of_another_corporation() {
    let desk = Gateway::start().await;
    for (corp, employee) in [("wwpartner", "p7001"), ("wwother", "q2")] {
        desk.command(&["employee", "add", employee, "--corp", corp]).await.expect_success();
    }
    desk.command(&["role", "grant", "p7001", "admin", "--corp", "wwpartner"]).await.expect_success();
    let (corp_id, employee_id) = (CorpId::new("wwdemo"), EmployeeId::new("u1001"));
    let requested = PlatformAccount::parse("wwother/q1").expect("an account");
    let employee = Account { corp_id: &corp_id, employee_id: &employee_id };
    desk.directory().await.request_link(&requested, employee, 10).await.expect("a request");
    wait_for_otp_step_with_time_left().await;
    let partner = desk.sign_in_by_oauth2(MEMBER, "itadmin").await;
    step_up(&partner).await;
    put(&partner, ("wwother", "q1"), "p7001").await.expect_code(1003);
    put(&partner, ("wwother", "q2"), "p7001").await.expect_code(1003);
    let left = links(&desk).await;
    assert_eq!((left.len(), &left[0]["employee_id"], &left[0]["state"]), (1, &json!("u1001"), &json!("pending")));
}

#[tokio::test]
async fn links_of_a_whole_partner_are_added_from_a_file() {
    let desk = Gateway::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("links.csv");
    let add = async |text: &str| {
        std::fs::write(&file, text).expect("a file");
        desk.command(&["employee", "link", "add", "--file", file.to_str().expect("a path")]).await
    };
    let bad = add("corp_id,platform_user,employee_id\nwwpartner,p7001,u1001\nwwpartner,p7002,z9999\nwwpartner,p7003\n\
         wwdemo,u1001,u1001\nwwpartner,p7001,a2001\nwwpartner,p7/4,u1001\n")
    .await;
    assert_eq!(bad.status.code(), Some(4), "{}", bad.output_text());
    let text = bad.output_text();
    for fault in [
        "line 3: employee z9999 not found",
        "line 4: expected 3 values",
        "line 5: wwdemo is the main corporation",
        "line 6: wwpartner/p7001 is already on line 2",
        "line 7: invalid platform user",
        "no link was added",
    ] {
        assert!(text.contains(fault), "{fault}: {text}");
    }
    assert!(links(&desk).await.is_empty(), "no line is written if one is wrong");

    let good = "corp_id,platform_user,employee_id\r\nwwpartner,p7001,u1001\r\n\"wwpartner\",\"p7002\",\"u1001\"\r\n";
    assert_eq!(add(good).await.expect_success().lines().next(), Some("done; 2 links added"));
    assert_eq!(add(good).await.expect_success().trim(), "done; 0 links added, 2 already there");
    desk.sign_in_by_oauth2(MEMBER, "h5").await.get("/api/auth/me").await.expect_code(0);
    let other = add("corp_id,platform_user,employee_id\nwwpartner,p7001,a2001\n").await;
    assert!(other.output_text().contains("line 2: wwpartner/p7001 is linked to another employee"));
    let rows: String = (0..1200).map(|number| format!("wwpartner,n{number:04},u1001\n")).collect();
    let many = add(&format!("corp_id,platform_user,employee_id\n{rows}")).await.expect_success();
    assert_eq!(many.trim(), "done; 1200 links added");
}

#[tokio::test]
async fn links_are_audited() {
    let desk = Gateway::start().await;
    let admin = stepped_up(&desk).await;
    let phone = proven(&desk).await;
    bind(&phone, "u1001").await.expect_code(1003);
    let delete = format!("{LINKS}?corp_id=wwpartner&platform_user=p7001");
    admin.send("DELETE", &delete, &[], b"").await.expect_code(0);
    bind(&phone, "u1001").await.expect_code(1003);
    put(&admin, ("wwpartner", "p7001"), "u1001").await.expect_code(0);
    admin.send("DELETE", &delete, &[], b"").await.expect_code(0);
    add(&desk, "u1001").await;
    desk.command(&["employee", "link", "remove", MEMBER, "--yes"]).await.expect_success();
    let mut events = list(&desk, &["employee", "events", "u1001"]).await;
    events.reverse();
    let text = |event: &Value, name: &str| event[name].as_str().expect("text").to_owned();
    let events: Vec<_> =
        events.iter().map(|event| (text(event, "event"), text(event, "by"), text(event, "detail"))).collect();
    let uid = format!("uid {}", nix::unistd::getuid());
    let expected = [
        ("request_link", MEMBER, MEMBER.to_owned()),
        ("refuse_link", "m5001", MEMBER.to_owned()),
        ("request_link", MEMBER, MEMBER.to_owned()),
        ("approve_link", "m5001", MEMBER.to_owned()),
        ("remove_link", "m5001", MEMBER.to_owned()),
        ("order", &uid, format!("employee link add {MEMBER}")),
        ("order", &uid, format!("employee link remove {MEMBER}")),
    ];
    assert_eq!(events, expected.map(|(event, by, detail)| (event.to_owned(), by.to_owned(), detail)));
}

#[tokio::test]
async fn login_log_names_the_platform_account_of_linked_sign_ins() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    bind(&phone, "u1001").await.expect_code(1003);
    let entry = newest_login(&desk).await;
    assert_eq!((&*entry.employee_id, &*entry.reason, &*entry.platform_account), ("u1001", "link_pending", MEMBER));
    approve(&desk, "u1001").await;
    bind(&phone, "u1001").await.expect_code(0);
    assert_eq!(newest_login(&desk).await.platform_account, MEMBER);
    desk.sign_in_by_oauth2(MEMBER, "h5").await;
    let entry = newest_login(&desk).await;
    assert_eq!((&*entry.corp_id, &*entry.employee_id, &*entry.platform_account), ("wwdemo", "u1001", MEMBER));
    desk.sign_in_by_qrcode(MEMBER).await;
    assert_eq!(newest_login(&desk).await.platform_account, MEMBER);
    desk.sign_in_by_oauth2("u1001", "h5").await;
    assert_eq!(newest_login(&desk).await.platform_account, "");
    desk.wait_for_log(&["deskgate::audit", "signed in", "\"platform.account\":\"wwpartner/p7001\""]).await;
    let table = desk.command(&["employee", "logins", "u1001"]).await.expect_success();
    assert!(table.contains("PLATFORM ACCOUNT") && table.contains(MEMBER), "{table}");
    let sessions = list(&desk, &["session", "list"]).await;
    assert_eq!(sessions.iter().filter(|session| session["platform_account"] == MEMBER).count(), 3);
}

#[tokio::test]
async fn removed_employee_takes_their_links_along() {
    let desk = Gateway::start().await;
    add(&desk, "u1001").await;
    desk.command(&["employee", "remove", "u1001", "--yes"]).await.expect_success();
    assert!(links(&desk).await.is_empty());
}

#[tokio::test]
async fn session_without_proof_opens_no_admin_or_factor_endpoints() {
    let desk = Gateway::with("[bind]\nproof = \"none\"").await;
    let data = desk.anonymous().post_json("/api/auth/bind", &json!({ "employee_id": "m5001" })).await;
    let session = desk.with_token(data.expect_code(0).data()["token"].as_str().expect("a token"));
    for (method, target) in [
        ("GET", "/api/admin/roles/user-roles"),
        ("PUT", "/api/admin/roles/user-roles"),
        ("DELETE", "/api/admin/roles/user-roles"),
        ("DELETE", "/api/admin/sessions?employee_id=u1001"),
        ("DELETE", "/api/admin/otp?employee_id=u1001"),
        ("GET", LINKS),
        ("PUT", LINKS),
        ("DELETE", LINKS),
        ("POST", "/api/auth/otp-setup"),
        ("POST", "/api/auth/otp-bind"),
        ("POST", "/api/agents/password"),
    ] {
        let response = session.send(method, target, &[], b"").await;
        assert_eq!(response.code(), 1003, "{method} {target}: {}", response.describe());
        assert!(response.text().contains("employee ID alone"), "{method} {target}: {}", response.describe());
    }
    session.get("/api/auth/me").await.expect_code(0);
    session.get("/api/auth/otp-status").await.expect_code(0);
    session.post_json("/api/auth/switch-role", &json!({ "role": "agent" })).await.expect_code(0);
    // A proof in the browser changes nothing: without a required proof, no link is involved.
    let phone = proven(&desk).await;
    let data = bind(&phone, "m5001").await.expect_code(0).data();
    let session = desk.with_token(data["token"].as_str().expect("a token"));
    session.get("/api/admin/roles/user-roles").await.expect_code(1003);
}

#[tokio::test]
async fn linked_administrator_opens_admin_endpoints() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    add(&desk, "m5001").await;
    let data = bind(&phone, "m5001").await.expect_code(0).data();
    let session = desk.with_token(data["token"].as_str().expect("a token"));
    session.get("/api/admin/roles/user-roles").await.expect_code(0);
}

#[tokio::test]
async fn session_lists_name_the_platform_account() {
    let desk = Gateway::start().await;
    add(&desk, "u1001").await;
    let linked = desk.sign_in_by_oauth2(MEMBER, "h5").await;
    desk.sign_in("u1001").await;
    let items = linked.get("/api/auth/sessions").await.expect_code(0).data()["items"].clone();
    let accounts = |current: bool| {
        let found = items.as_array().expect("items").iter().find(|item| item["current"] == current);
        let item = found.expect("a session");
        (item["platform_account"].clone(), item["stage"].clone())
    };
    assert_eq!(accounts(true), (json!(MEMBER), json!("full")));
    assert_eq!(accounts(false), (json!(null), json!("full")));
    let table = desk.command(&["session", "list"]).await.expect_success();
    let mut lines = table.lines();
    assert!(lines.next().is_some_and(|header| header.contains("PLATFORM ACCOUNT")), "{table}");
    assert_eq!(lines.filter(|line| line.contains(MEMBER)).count(), 1, "{table}");
}

#[tokio::test]
async fn link_of_another_spelling_is_refused() {
    let desk = Gateway::start().await;
    add(&desk, "u1001").await;
    let refused = desk.command(&["employee", "link", "add", "wwpartner/P7001", "a2001"]).await;
    assert_eq!(refused.status.code(), Some(4), "{}", refused.output_text());
    assert!(refused.output_text().contains("another spelling of wwpartner/p7001"), "{}", refused.output_text());
    let folder = tempfile::tempdir().expect("a folder");
    for (lines, fault) in [
        ("wwpartner,P7001,a2001\n", "line 2: wwpartner/P7001 is another spelling of wwpartner/p7001"),
        ("wwpartner,q1,a2001\nwwpartner,Q1,a2001\n", "line 3: wwpartner/Q1 is already on line 2"),
    ] {
        let file = folder.path().join("links.csv");
        std::fs::write(&file, format!("corp_id,platform_user,employee_id\n{lines}")).expect("a file");
        let refused = desk.command(&["employee", "link", "add", "--file", file.to_str().expect("a path")]).await;
        assert_eq!(refused.status.code(), Some(4), "{}", refused.output_text());
        assert!(refused.output_text().contains(fault), "{}", refused.output_text());
    }
    let admin = stepped_up(&desk).await;
    put(&admin, ("wwpartner", "P7001"), "u1001").await.expect_code(1400);
    assert_eq!(links(&desk).await.len(), 1);
}

#[tokio::test]
async fn first_link_of_a_corporation_is_noted() {
    let desk = Gateway::start().await;
    let first = desk.command(&["employee", "link", "add", "foo/p1", "u1001"]).await.expect_success();
    assert!(first.contains("note: no other account of foo is linked"), "{first}");
    add(&desk, "u1001").await;
    let second = desk.command(&["employee", "link", "add", "wwpartner/p7002", "u1001"]).await.expect_success();
    assert!(!second.contains("note:"), "{second}");
    let third = desk.command(&["employee", "link", "add", "foo2/p1", "u1001"]).await.expect_success();
    assert!(third.contains("linked so far: foo, wwpartner"), "{third}");
}

#[tokio::test]
async fn request_for_another_employee_has_its_own_time() {
    let desk = Gateway::start().await;
    let phone = proven(&desk).await;
    bind(&phone, "m5001").await.expect_code(1003);
    desk.change_directory("UPDATE platform_links SET requested_at = 0").await;
    assert!(links(&desk).await[0]["requested_at"].as_str().is_some_and(|at| at.starts_with("1970")));
    bind(&phone, "a2001").await.expect_code(1003);
    assert!(links(&desk).await[0]["requested_at"].as_str().is_some_and(|at| at.starts_with("20")));
}
