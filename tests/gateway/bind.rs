//! POST /api/auth/bind: links a member of a connected corporation to an employee, with or without a proof.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::support::*;

const NO_PROOF: &str = "[bind]\nproof = \"none\"";

const NO_APPROVAL: &str = "[bind]\napproval = \"none\"";

#[tokio::test]
async fn bind_returns_the_login_result() {
    let desk = Gateway::with(NO_PROOF).await;
    let data =
        desk.anonymous().post_json("/api/auth/bind", &json!({ "employee_id": "m5001" })).await.expect_code(0).data();

    let mut members: Vec<&str> = data.as_object().expect("an object").keys().map(String::as_str).collect();
    members.sort_unstable();
    let mut expected = vec![
        "token",
        "token_type",
        "expires_in",
        "expires_at",
        "employee_id",
        "name",
        "roles",
        "current_role",
        "corp_id",
        "login_method",
        "login_source",
        "department",
        "avatar",
    ];
    expected.sort_unstable();
    assert_eq!(members, expected);
    assert_eq!(data["token_type"], "Bearer");
    assert_eq!(data["employee_id"], "m5001");
    assert_eq!(data["corp_id"], "wwdemo");
    assert_eq!((&data["login_method"], &data["login_source"]), (&json!("bind"), &json!("h5")));
    let seconds = data["expires_in"].as_i64().expect("seconds");
    assert!((28_700..=28_800).contains(&seconds), "{seconds}");
    OffsetDateTime::parse(data["expires_at"].as_str().expect("a time"), &Rfc3339).expect("ISO 8601");

    let me = desk.with_token(data["token"].as_str().expect("a token")).get("/api/auth/me").await.expect_code(0).data();
    for member in ["employee_id", "name", "roles", "current_role", "department", "avatar", "login_source"] {
        assert_eq!(me[member], data[member], "{member}");
    }
}

#[tokio::test]
async fn bind_activates_the_role_of_highest_priority() {
    let desk = Gateway::with(NO_PROOF).await;
    for (employee, role, count) in
        [("u1001", "user", 1), ("a2001", "agent", 2), ("s3001", "supervisor", 1), ("m5001", "admin", 3)]
    {
        let body = json!({ "employee_id": employee, "corp_id": "wwdemo" });
        let data = desk.anonymous().post_json("/api/auth/bind", &body).await.expect_code(0).data();
        assert_eq!(data["current_role"], role, "{employee}");
        assert_eq!(data["roles"].as_array().map(Vec::len), Some(count), "{employee}: all roles are listed");
    }
}

#[tokio::test]
async fn bind_refusals_are_indistinguishable() {
    let desk = Gateway::with(NO_PROOF).await;
    for (case, body) in [
        ("unknown", json!({ "employee_id": "u9999" })),
        ("empty", json!({ "employee_id": "" })),
        ("another case", json!({ "employee_id": "U1001" })),
        ("full width", json!({ "employee_id": "ｕ1001" })),
        ("a space", json!({ "employee_id": "u1001 " })),
        ("NUL", json!({ "employee_id": "u1001\0" })),
        ("a pattern", json!({ "employee_id": "%" })),
        ("SQL", json!({ "employee_id": "' OR '1'='1" })),
        ("another corporation", json!({ "employee_id": "u1001", "corp_id": "wwpartner" })),
        ("an empty corporation", json!({ "employee_id": "u1001", "corp_id": "" })),
        ("no role", json!({ "employee_id": "n6001" })),
        ("long", json!({ "employee_id": "a".repeat(10_000) })),
    ] {
        let response = desk.anonymous().post_json("/api/auth/bind", &body).await;
        assert_eq!(response.code(), 1003, "{case}");
        response.expect_code(1003);
    }
}

#[tokio::test]
async fn bind_requires_text_identifiers() {
    let desk = Gateway::with(NO_PROOF).await;
    for body in [
        json!({}),
        json!({ "employee_id": 1001 }),
        json!({ "employee_id": null }),
        json!({ "employee_id": ["u1001"] }),
        json!({ "employee_id": "u1001", "corp_id": ["wwdemo"] }),
        json!({ "employee_id": "u1001", "corp_id": 1 }),
        json!({ "corp_id": "wwdemo" }),
    ] {
        let response = desk.anonymous().post_json("/api/auth/bind", &body).await;
        assert_eq!(response.code(), 1400, "{body}");
    }
}

#[tokio::test]
async fn bind_requires_proof_by_default() {
    let desk = Gateway::start().await;
    desk.anonymous().post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
    // A sign-in of a linked account is no proof, whichever employee the request names.
    let phone = desk.phone("u1001");
    phone.oauth2(&desk.client_url("h5")).await;
    phone.client().post_json("/api/auth/bind", &json!({ "employee_id": "m5001" })).await.expect_code(1003);
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.post_json("/api/auth/bind", &json!({ "employee_id": "m5001" })).await.expect_code(1003);
}

#[tokio::test]
async fn bind_accepts_a_fresh_platform_sign_in_as_proof() {
    let desk = Gateway::with(NO_APPROVAL).await;
    let partner = desk.phone("wwpartner/p7001");
    let response = partner.oauth2(&desk.client_url("h5")).await;
    let cookies: Vec<String> = response.header_all("set-cookie").iter().map(|line| line.to_ascii_lowercase()).collect();
    let kept = cookies.iter().filter(|cookie| !cookie.contains("max-age=0"));
    assert!(kept.clone().count() >= 1, "a proof cookie: {}", response.describe());
    for cookie in kept {
        assert!(cookie.contains("httponly"), "{cookie}");
        assert!(cookie.contains("samesite="), "{cookie}");
    }

    let response = partner.client().post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await;
    let data = response.expect_code(0).data();
    assert_eq!((&data["employee_id"], &data["login_method"]), (&json!("u1001"), &json!("bind")));
    desk.with_token(data["token"].as_str().expect("a token")).get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn callback_redirects_unlinked_members_to_the_bind_page() {
    let desk = Gateway::with(NO_APPROVAL).await;
    let partner = desk.phone("wwpartner/p7001");
    let page = format!("{}orders?x=1", desk.client_url("h5"));
    let response = partner.oauth2(&page).await.expect_status(302);
    assert!(!response.describe().contains("token="), "{}", response.describe());
    let shown = partner.page(&response.location()).await;
    assert!(shown.html.contains("wwpartner/p7001"), "the member's ID: {}", shown.html);
    assert!(shown.html.contains(&page), "the requested page: {}", shown.html);

    let proof = partner.client().jar();
    let bound = partner.client().post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await.expect_code(0);
    assert!(bound.header("set-cookie").is_some_and(|cookie| cookie.contains("Max-Age=0")), "{}", bound.describe());
    let thief = desk.anonymous();
    thief.use_jar(proof);
    let again = thief.post_json("/api/auth/bind", &json!({ "employee_id": "a2001" })).await;
    assert_eq!(again.code(), 1003, "a proof is single-use: {}", again.describe());
    partner.client().get("/api/auth/bind/page").await.expect_status(403);
    desk.anonymous().get("/api/auth/bind/page").await.expect_status(403);
}

#[tokio::test]
async fn scan_redirects_unlinked_members_to_the_bind_page() {
    let desk = Gateway::start().await;
    let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let partner = desk.phone("wwpartner/p7001");
    let response = partner.scan(ticket["qrcode_url"].as_str().expect("a URL")).await.expect_status(302);
    let shown = partner.page(&response.location()).await;
    assert!(shown.html.contains(&desk.client_url("h5")), "{}", shown.html);
}

#[tokio::test]
async fn bind_proof_does_not_create_accounts() {
    let desk = Gateway::start().await;
    for employee in ["u9999", "n6001"] {
        let partner = desk.phone("wwpartner/p7001");
        partner.oauth2(&desk.client_url("h5")).await;
        partner.client().post_json("/api/auth/bind", &json!({ "employee_id": employee })).await.expect_code(1003);
    }
}

#[tokio::test]
async fn bind_refuses_other_cookies_as_proof() {
    let desk = Gateway::start().await;
    let partner = desk.phone("wwpartner/p7001");
    partner.oauth2(&desk.client_url("h5")).await;
    let proof = partner.client().jar();
    assert!(!proof.is_empty(), "a proof cookie");
    let flow = desk.phone("u1001");
    flow.authorize_url(&desk.client_url("h5")).await;
    let flow_value = flow.client().jar().pairs().pop().expect("a flow cookie").1;
    for (case, jar) in [
        ("truncated", proof.clone().tampered(|value| value[..value.len() / 2].to_owned())),
        ("forged", proof.clone().tampered(|value| "A".repeat(value.len()))),
        ("empty", proof.clone().tampered(|_| String::new())),
        ("the value of the flow cookie", proof.clone().tampered(|_| flow_value.clone())),
        ("the flow cookie", flow.client().jar()),
    ] {
        let browser = desk.anonymous();
        browser.use_jar(jar);
        let response = browser.post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await;
        assert_eq!(response.code(), 1003, "{case}");
    }
}

#[tokio::test]
async fn bind_without_proof_is_logged_and_counted() {
    let desk = Gateway::start().await;
    assert_eq!(desk.metric("deskgate_bind_without_proof", &[]).await, 0.0);
    let desk = Gateway::setup().production().toml(NO_PROOF).start().await;
    assert_eq!(desk.metric("deskgate_bind_without_proof", &[]).await, 1.0);
    let line = desk.wait_for_log(&["bind"]).await;
    assert!(line.contains("WARN") || line.contains("ERROR"), "{line}");
}

#[tokio::test]
async fn bind_enumeration_is_rate_limited_and_audited() {
    let desk = Gateway::with(NO_PROOF).await;
    let mut refused = None;
    for number in 0..200 {
        let body = json!({ "employee_id": format!("e{number:04}") });
        let response = desk.anonymous().post_json("/api/auth/bind", &body).await;
        if response.code() == 1429 {
            refused = Some((number, response));
            break;
        }
        response.expect_code(1003);
    }
    let (attempts, response) = refused.expect("a limit");
    assert!(attempts <= 60, "{attempts} attempts in a minute");
    assert!(response.header("retry-after").is_some(), "{}", response.describe());
    desk.wait_for_log(&["deskgate::audit", "sign-in refused: employee_unknown", "e0000", "127.0.0.1"]).await;
    let labels = ["method=\"bind\"", "result=\"refused\""];
    assert_eq!(desk.metric("deskgate_signin_total", &labels).await, f64::from(attempts), "the metric that alerts use");
}
