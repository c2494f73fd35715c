//! The login log: every sign-in attempt is a row in the directory and an audit line in the log.

use deskgate::directory::{Directory, LoginEntry, LoginQuery};
use deskgate::domain::clock::Clock;

use crate::support::*;

/// The newest entry.
async fn newest_entry(desk: &Gateway) -> LoginEntry {
    desk.directory().await.logins(&LoginQuery::default(), 1).await.expect("the log").into_iter().next().expect("a line")
}

async fn entry_count(desk: &Gateway) -> usize {
    desk.directory().await.logins(&LoginQuery::default(), 1000).await.expect("the log").len()
}

#[track_caller]
fn expect(entry: &LoginEntry, employee: &str, [method, source, client]: [&str; 3], outcome: &str) {
    let found = (entry.employee_id.as_str(), entry.login_method.as_str(), entry.login_source.as_str());
    assert_eq!(found, (employee, method, source), "{entry:?}");
    assert_eq!(entry.client, client, "{entry:?}");
    let (result, reason) = if outcome == "success" { ("success", "") } else { ("refused", outcome) };
    assert_eq!((entry.result.as_str(), entry.reason.as_str()), (result, reason), "{entry:?}");
}

#[tokio::test]
async fn login_log_records_oauth2_sign_ins() {
    let desk = Gateway::start().await;
    let page = desk.client_url("itagent");
    let origin = ["oauth2", "itagent", "itagent"];
    for (member, employee, outcome) in [
        ("a2001", "a2001", "success"),
        ("x8001", "x8001", "disabled"),
        ("wwpartner/p7001", "p7001", "unbound"),
        ("deny", "", "declined"),
    ] {
        desk.phone(member).oauth2(&page).await.expect_status(302);
        expect(&newest_entry(&desk).await, employee, origin, outcome);
    }
    let phone = desk.phone("u1001");
    let callback = phone.authorize(&phone.authorize_url(&page).await).await;
    desk.anonymous().get(&callback).await;
    expect(&newest_entry(&desk).await, "", ["oauth2", "", ""], "invalid_flow");

    let query = callback.split_once("code=").expect("a code").0;
    phone.client().get(&format!("{query}code=forged&state=auth_login")).await.expect_status(302);
    expect(&newest_entry(&desk).await, "", origin, "invalid_code");
}

#[tokio::test]
async fn callback_that_wecom_did_not_send_was_declined_by_nobody() {
    let desk = Gateway::start().await;
    for query in ["", "?state=", "?state=other"] {
        let response = desk.anonymous().get(&format!("/api/auth/oauth2/callback{query}")).await.expect_status(400);
        assert!(!response.text().contains("cancelled in WeCom"), "{query}: {}", response.describe());
        expect(&newest_entry(&desk).await, "", ["oauth2", "", ""], "bad_request");
    }
}

#[tokio::test]
async fn login_log_records_a_repeated_callback_once() {
    let desk = Gateway::start().await;
    let phone = desk.phone("u1001");
    let callback = phone.authorize(&phone.authorize_url(&desk.client_url("h5")).await).await;
    for _ in 0..3 {
        phone.client().get(&callback).await.expect_status(302);
    }
    assert_eq!(entry_count(&desk).await, 1);
}

#[tokio::test]
async fn login_log_records_qrcode_sign_ins() {
    let desk = Gateway::start().await;
    let origin = ["qrcode", "qrcode", "itadmin"];
    let new_ticket = async || {
        let browser = desk.anonymous().with_header("X-Forwarded-For", "203.0.113.9");
        let data = browser.get("/api/auth/qrcode?client=itadmin").await.expect_code(0).data();
        let text = |name: &str| data[name].as_str().expect("text").to_owned();
        (browser, text("ticket"), text("qrcode_url"))
    };
    let (browser, ticket, url) = new_ticket().await;
    desk.phone("m5001").scan_and_confirm(&url).await;
    browser.get(&format!("/api/auth/scan/status?ticket={ticket}")).await.expect_code(0);
    let entry = newest_entry(&desk).await;
    expect(&entry, "m5001", origin, "success");
    assert_eq!(entry.ip_address, "203.0.113.9", "the browser's address, not the phone's");

    let (_, _, url) = new_ticket().await;
    let phone = desk.phone("m5001");
    let page = phone.scan_to_page(&url).await;
    phone.tap(&page, "cancel").await;
    expect(&newest_entry(&desk).await, "m5001", origin, "declined");

    desk.phone("u1001").scan(&url).await;
    expect(&newest_entry(&desk).await, "", ["qrcode", "qrcode", ""], "ticket_over");

    let (_, _, url) = new_ticket().await;
    desk.phone("x8001").scan(&url).await;
    expect(&newest_entry(&desk).await, "x8001", origin, "disabled");
}

#[tokio::test]
async fn qrcode_sign_in_has_the_id_of_the_request_that_decided_it() {
    let id = |response: &Response| response.header("x-request-id").expect("a request id").to_owned();
    let desk = Gateway::start().await;
    let new_ticket = async |desk: &Gateway| {
        let browser = desk.anonymous();
        let data = browser.get("/api/auth/qrcode").await.expect_code(0).data();
        let poll = format!("/api/auth/scan/status?ticket={}", data["ticket"].as_str().expect("a ticket"));
        (browser, poll, data["qrcode_url"].as_str().expect("a URL").to_owned())
    };

    let (browser, poll, url) = new_ticket(&desk).await;
    let confirmed = id(&desk.phone("m5001").scan_and_confirm(&url).await);
    assert_eq!(browser.get(&poll).await.expect_code(0).data()["status"], "confirmed");
    let entry = newest_entry(&desk).await;
    assert_eq!(
        (entry.request_id.as_str(), entry.result.as_str()),
        (&*confirmed, "success"),
        "the phone's confirmation"
    );
    for message in ["\"signed in\"", "signed in by QR code"] {
        desk.wait_for_log(&["deskgate::audit", message, &confirmed]).await;
    }
    let table = desk.command(&["employee", "logins", "m5001"]).await.expect_success();
    assert!(table.contains(&confirmed), "{table}");

    let (_, _, url) = new_ticket(&desk).await;
    let phone = desk.phone("m5001");
    let page = phone.scan_to_page(&url).await;
    let cancelled = id(&phone.tap(&page, "cancel").await);
    let entry = newest_entry(&desk).await;
    assert_eq!((entry.request_id.as_str(), entry.reason.as_str()), (&*cancelled, "declined"), "the phone's refusal");

    let (_, _, url) = new_ticket(&desk).await;
    let scanned = id(&desk.phone("x8001").scan(&url).await);
    let entry = newest_entry(&desk).await;
    assert_eq!((entry.request_id.as_str(), entry.reason.as_str()), (&*scanned, "disabled"), "the refused scan");
    let explained = desk.command(&["explain", "--request-id", &scanned]).await.expect_success();
    assert!(explained.contains("/api/auth/oauth2/callback"), "{explained}");

    // The employee loses every role between the confirmation and the poll, which then refuses the sign-in.
    let (browser, poll, url) = new_ticket(&desk).await;
    desk.phone("u1001").scan_and_confirm(&url).await;
    desk.command(&["role", "take", "u1001", "user"]).await.expect_success();
    let polled = browser.get(&poll).await.expect_code(0);
    assert_eq!(polled.data()["reason"], "refused");
    let entry = newest_entry(&desk).await;
    assert_eq!((entry.request_id.as_str(), entry.reason.as_str()), (&*id(&polled), "no_role"), "the poll that refused");

    // Without a confirmation page, the scan decides.
    let desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let (browser, poll, url) = new_ticket(&desk).await;
    let scanned = id(&desk.phone("m5001").scan(&url).await);
    assert_eq!(browser.get(&poll).await.expect_code(0).data()["status"], "confirmed");
    let entry = newest_entry(&desk).await;
    assert_eq!((entry.request_id.as_str(), entry.result.as_str()), (&*scanned, "success"), "the scan");
}

#[tokio::test]
async fn login_log_records_bindings() {
    let desk = Gateway::with("[bind]\napproval = \"none\"").await;
    let origin = ["bind", "h5", "h5"];
    desk.anonymous().post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
    expect(&newest_entry(&desk).await, "u1001", origin, "no_proof");

    let partner = desk.phone("wwpartner/p7001");
    partner.oauth2(&desk.client_url("h5")).await.expect_status(302);
    for (employee, code, logged, outcome) in [
        ("nobody", 1003, "nobody", "employee_unknown"),
        ("n6001", 1003, "n6001", "no_role"),
        ("\u{1f600}", 1003, "", "employee_unknown"),
        ("m5001", 1003, "m5001", "link_pending"),
        ("u1001", 0, "u1001", "success"),
    ] {
        partner.client().post_json("/api/auth/bind", &json!({ "employee_id": employee })).await.expect_code(code);
        expect(&newest_entry(&desk).await, logged, origin, outcome);
    }
}

#[tokio::test]
async fn login_log_has_address_and_user_agent() {
    let desk = Gateway::start().await;
    let browser =
        desk.anonymous().with_header("X-Forwarded-For", "127.0.113.7").with_header("User-Agent", "a\tbrowser");
    browser.post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await.expect_code(0);
    let entry = newest_entry(&desk).await;
    expect(&entry, "u1001", ["dev", "dev", ""], "success");
    assert_eq!(entry.ip_address, "127.0.113.7");
    assert!(entry.user_agent.starts_with('a') && !entry.user_agent.contains('\t'), "{entry:?}");
    browser.post_json("/api/dev/login", &json!({ "employee_id": "nobody" })).await.expect_code(1003);
    expect(&newest_entry(&desk).await, "nobody", ["dev", "dev", ""], "employee_unknown");
}

#[tokio::test]
async fn every_sign_in_attempt_is_audited_and_counted() {
    let desk = Gateway::start().await;
    desk.phone("u1001").oauth2(&desk.client_url("h5")).await.expect_status(302);
    desk.phone("x8001").oauth2(&desk.client_url("h5")).await.expect_status(302);
    desk.wait_for_log(&["deskgate::audit", "signed in", "u1001"]).await;
    desk.wait_for_log(&["deskgate::audit", "sign-in refused: disabled", "x8001", "127.0.0.1"]).await;
    for result in ["result=\"success\"", "result=\"refused\""] {
        let labels = ["method=\"oauth2\"", "client=\"h5\"", result];
        assert_eq!(desk.metric("deskgate_signin_total", &labels).await, 1.0, "{result}");
    }
}

#[tokio::test]
async fn sign_in_fails_if_the_login_log_write_fails() {
    let desk = Gateway::start().await;
    desk.change_directory("DROP TABLE login_log").await;

    let response = desk.phone("u1001").oauth2(&desk.client_url("h5")).await.expect_status(302);
    assert!(!response.location().contains("token="), "{}", response.location());
    assert_eq!(fragment_parameter(&response.location(), "error_code").as_deref(), Some("1503"));
    desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await.expect_code(1503);
}

#[tokio::test]
async fn anonymous_failures_cannot_fill_the_login_log() {
    let desk = Gateway::start().await;
    for _ in 0..200 {
        desk.anonymous().get("/api/auth/oauth2/callback").await;
    }
    // The minute may have changed in between.
    let count = entry_count(&desk).await;
    assert!((1..=120).contains(&count), "{count}");
    let refused = ["method=\"oauth2\"", "result=\"refused\""];
    assert_eq!(desk.metric("deskgate_signin_total", &refused).await, 200.0, "the metric counts every attempt");
}

#[tokio::test]
async fn unverified_names_cannot_fill_the_login_log() {
    let desk = Gateway::start().await;
    for number in 0..200 {
        // Different addresses and names, because rates and lockouts apply to each.
        let from = desk.anonymous().with_header("X-Forwarded-For", &format!("198.51.100.{number}"));
        from.post_json("/api/auth/bind", &json!({ "employee_id": format!("z{number}") })).await.expect_code(1003);
    }
    // The minute may have changed in between.
    let count = entry_count(&desk).await;
    assert!((1..=120).contains(&count), "{count}");
    let refused = ["method=\"bind\"", "result=\"refused\""];
    assert_eq!(desk.metric("deskgate_signin_total", &refused).await, 200.0, "the metric counts every attempt");
    desk.wait_for_log(&["deskgate::audit", "sign-in refused", "\"z199\""]).await;
    // Attempts with a verified identity are still recorded.
    desk.phone("x8001").oauth2(&desk.client_url("h5")).await.expect_status(302);
    expect(&newest_entry(&desk).await, "x8001", ["oauth2", "h5", "h5"], "disabled");
}

#[tokio::test]
async fn login_log_cap_is_the_same_for_known_and_unknown_names() {
    let desk = Gateway::setup().set("agents.conceal", "true").start().await;
    let wrong = async |name: &str, address: &str| {
        let from = desk.anonymous().with_header("X-Forwarded-For", address);
        from.post_json("/api/agents/login", &json!({ "employee_id": name, "password": "not it" })).await
    };
    // Sixty attempts without a password check.
    let fill = async |round: u32| {
        for number in 0..60 {
            let from = desk.anonymous().with_header("X-Forwarded-For", &format!("198.51.{round}.{number}"));
            from.post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
        }
    };
    wrong("a2001", "203.0.113.1").await.expect_code(1011);
    expect(&newest_entry(&desk).await, "a2001", ["password", "agent", ""], "no_password");
    wrong("nobody", "203.0.113.2").await.expect_code(1011);
    expect(&newest_entry(&desk).await, "nobody", ["password", "agent", ""], "employee_unknown");
    let minute = || Clock::system().now().seconds().div_euclid(60);
    // A round in which the minute changes proves nothing and is repeated.
    for round in 0..3 {
        let before = minute();
        fill(round).await;
        let count = entry_count(&desk).await;
        for (name, address) in [("a2001", "203.0.113.3"), ("nobody", "203.0.113.4"), ("m5001", "203.0.113.5")] {
            wrong(name, address).await.expect_code(1011);
        }
        if minute() == before {
            assert_eq!(entry_count(&desk).await, count, "no entry is written above the cap");
            break;
        }
    }
    desk.wait_for_log(&["deskgate::audit", "sign-in refused", "m5001"]).await;
}

#[tokio::test]
async fn logins_are_filtered_by_time_and_result_and_have_the_request_id() {
    let desk = Gateway::start().await;
    let sign_in = |employee: &'static str| {
        let client = desk.anonymous();
        async move { client.post_json("/api/dev/login", &json!({ "employee_id": employee })).await }
    };
    let (success, refused) = (sign_in("u1001").await.expect_code(0), sign_in("n6001").await.expect_code(1003));
    let list = |args: &'static [&'static str]| {
        let command = [&["employee", "logins", "--json"], args].concat();
        let desk = &desk;
        async move {
            let list: Value = serde_json::from_str(&desk.command(&command).await.expect_success()).expect("JSON");
            let ids = list.as_array().expect("a list").iter().map(|entry| entry["request_id"].clone());
            ids.collect::<Vec<_>>()
        }
    };
    let id = |response: &Response| json!(response.header("x-request-id").expect("a request id"));
    let (success, refused) = (id(&success), id(&refused));
    assert_eq!(list(&[]).await, [refused.clone(), success.clone()]);
    assert_eq!(list(&["--result", "refused"]).await, std::slice::from_ref(&refused));
    assert_eq!(list(&["--result", "success", "--since", "1h"]).await, [success]);
    assert!(list(&["--since", "2999-01-01T00:00:00+08:00"]).await.is_empty());
    for args in [["--since", "yesterday"], ["--since", "5"], ["--result", "maybe"]] {
        let output = desk.command(&[&["employee", "logins"], &args[..]].concat()).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", output.output_text());
    }
    let table = desk.command(&["employee", "logins"]).await.expect_success();
    assert!(table.lines().next().is_some_and(|header| header.ends_with("REQUEST ID")), "{table}");
    assert!(table.contains(refused.as_str().expect("an id")), "{table}");
}
