//! Calls every endpoint successfully, and with the requests that only this endpoint refuses.

use deskgate::endpoints::{Endpoint, OwnRoute};

use super::{JsonOtpDevice, OpenApiFixture, half_authenticated, platform_code, row_of};
use crate::support::*;

const GOOD: &str = "correct horse battery staple";
const BETTER: &str = "tidal meadow 47 envelope";

/// Calls an endpoint. No `_` arm, so that a new endpoint does not compile without its calls.
pub async fn call_endpoint(fixture: &OpenApiFixture, row: &'static OwnRoute) {
    let anonymous = fixture.desk.anonymous();
    let caller = fixture.caller(row);
    match row.endpoint {
        Endpoint::Qrcode => {
            fixture.call(row, &anonymous, "?client=h5", None).await.expect_code(0);
            let browser = anonymous.with_header("Sec-Fetch-Site", "same-origin");
            let response = fixture.call(row, &browser, "", None).await.expect_code(0);
            assert!(response.header("set-cookie").is_some(), "{}", response.describe());
            fixture.call(row, &anonymous, "?client=other", None).await.expect_code(1400);
        }
        Endpoint::ScanStatus => scan_status(fixture, row).await,
        Endpoint::Oauth2Url => {
            let query = format!("?redirect_uri={}", fixture.desk.client_url("h5"));
            fixture.call(row, &anonymous, &query, None).await.expect_code(0);
            fixture.call(row, &anonymous, "?redirect_uri=https://evil.example/", None).await.expect_code(1400);
            fixture.call(row, &anonymous, "", None).await.expect_code(1400);
        }
        Endpoint::Oauth2Callback => callback(fixture, row).await,
        Endpoint::ConfirmPage | Endpoint::Confirm => confirm(fixture).await,
        Endpoint::Verify => {
            let token = json!({ "token": fixture.agent.token() });
            assert_eq!(fixture.call(row, &anonymous, "", Some(token)).await.expect_code(0).data()["valid"], true);
            let token = json!({ "token": "a.b.c" });
            assert_eq!(fixture.call(row, &anonymous, "", Some(token)).await.expect_code(0).data()["valid"], false);
        }
        Endpoint::Logout => {
            let xiaoming = fixture.desk.sign_in("u1001").await;
            fixture.call(row, &xiaoming, "", None).await.expect_code(0);
            fixture.call(row, &xiaoming, "", None).await.expect_code(1001);
        }
        Endpoint::Me => {
            fixture.call(row, &caller, "", None).await.expect_code(0);
            fixture.call(row, &fixture.half, "", None).await.expect_code(0);
        }
        Endpoint::SwitchRole => {
            let agent = fixture.desk.sign_in("a2001").await;
            fixture.call(row, &agent, "", Some(json!({ "role": "user" }))).await.expect_code(0);
            fixture.call(row, &agent, "", Some(json!({ "role": "admin" }))).await.expect_code(1003);
        }
        Endpoint::Bind => {
            fixture.call(row, &anonymous, "", Some(json!({ "employee_id": "u1001" }))).await.expect_code(0);
            let with_corp_id = json!({ "employee_id": "u1001", "corp_id": "wwdemo" });
            fixture.call(row, &anonymous, "", Some(with_corp_id)).await.expect_code(0);
            fixture.call(row, &anonymous, "", Some(json!({ "employee_id": "z9999" }))).await.expect_code(1003);
        }
        Endpoint::BindStatus => {
            fixture.call(row, &anonymous, "", None).await.expect_code(1003);
            let member = fixture.desk.phone("p7001");
            member.oauth2(&fixture.desk.client_url("h5")).await;
            assert_eq!(fixture.call(row, member.client(), "", None).await.expect_code(0).data()["state"], "none");
        }
        Endpoint::Links => {
            let link = ["employee", "link", "add", "wwpartner/q1", "u1001"];
            fixture.desk.command(&link).await.expect_success();
            fixture.call(row, &caller, "", None).await.expect_code(0);
            let filtered = "?page=1&page_size=3&state=approved&employee_id=u1001&corp_id=wwpartner";
            assert_eq!(fixture.call(row, &caller, filtered, None).await.expect_code(0).data()["total"], 1);
            fixture.call(row, &caller, "?state=other", None).await.expect_code(1400);
        }
        Endpoint::ApproveLink => {
            let body = |user: &str, employee: &str| {
                Some(json!({ "corp_id": "wwpartner", "platform_user": user, "employee_id": employee }))
            };
            fixture.call(row, &caller, "", body("q1", "u1001")).await.expect_code(0);
            fixture.call(row, &caller, "", body("q1", "a2001")).await.expect_code(1003);
            fixture.call(row, &caller, "", body("q2", "z9999")).await.expect_code(1003);
            fixture.call(row, &caller, "", body("a b", "u1001")).await.expect_code(1400);
        }
        Endpoint::RemoveLink => {
            fixture.call(row, &caller, "?corp_id=wwpartner&platform_user=q1", None).await.expect_code(0);
            fixture.call(row, &caller, "?corp_id=wwpartner", None).await.expect_code(1400);
        }
        Endpoint::Sessions => {
            let data = fixture.call(row, &caller, "", None).await.expect_code(0).data();
            assert!(!data["items"].as_array().expect("items").is_empty());
        }
        Endpoint::EndOtherSessions => {
            let (_other, current) = (fixture.desk.sign_in("u1001").await, fixture.desk.sign_in("u1001").await);
            assert_ne!(fixture.call(row, &current, "", None).await.expect_code(0).data()["ended"], 0);
        }
        Endpoint::EndSession => {
            let current = fixture.desk.sign_in("c4001").await;
            let target = format!("/api/auth/sessions/{}", jti_of(fixture.desk.sign_in("c4001").await.token()));
            fixture.call_at(row, &current, target.clone(), None).await.expect_code(0);
            fixture.call_at(row, &current, target, None).await.expect_code(1404);
        }
        Endpoint::UserRoles => {
            fixture.call(row, &caller, "", None).await.expect_code(0);
            fixture.call(row, &caller, "?page=2&page_size=3&role=agent&employee_id=a2001", None).await.expect_code(0);
            fixture.call(row, &caller, "?page_size=201", None).await.expect_code(1400);
        }
        Endpoint::GrantRole | Endpoint::TakeRole => {
            let body = |employee: &str, role: &str| Some(json!({ "employee_id": employee, "role": role }));
            fixture.call(row, &caller, "", body("c4001", "agent")).await.expect_code(0);
            fixture.call(row, &caller, "", body("z9999", "agent")).await.expect_code(1003);
            fixture.call(row, &caller, "", body("c4001", "a b")).await.expect_code(1400);
        }
        Endpoint::EndSessionsOf | Endpoint::ResetOtp => {
            fixture.desk.sign_in("c4001").await;
            fixture.call(row, &caller, "?employee_id=c4001", None).await.expect_code(0);
            fixture.call(row, &caller, "?employee_id=", None).await.expect_code(1400);
            fixture.call(row, &caller, "?employee_id=_", None).await.expect_code(1003);
            fixture.call(row, &caller, "?employee_id=z9999", None).await.expect_code(1003);
        }
        Endpoint::AgentLogin => agent_login(fixture, row).await,
        Endpoint::AgentPassword => {
            let body = |old: Value, new: &str| Some(json!({ "old_password": old, "new_password": new }));
            let stale = fixture.desk.sign_in_an_hour_ago("s3001").await;
            fixture.call(row, &stale, "", body(json!(null), GOOD)).await.expect_code(1021);
            // `agent_login` has set the first password.
            fixture.call(row, &caller, "", body(json!(null), BETTER)).await.expect_code(1015);
            fixture.call(row, &caller, "", body(json!("wrong one"), BETTER)).await.expect_code(1016);
            fixture.call(row, &caller, "", body(json!(GOOD), "password123")).await.expect_code(1400);
            fixture.call(row, &caller, "", body(json!(GOOD), BETTER)).await.expect_code(0);
            fixture
                .call(row, &fixture.desk.sign_in("u1001").await, "", body(json!(null), GOOD))
                .await
                .expect_code(1003);
        }
        Endpoint::OtpSetup => {
            fixture.call(row, &caller, "", None).await.expect_code(0);
            fixture.call(row, &fixture.half, "", None).await.expect_code(0);
            fixture.call(row, &fixture.desk.sign_in("m5001").await, "", None).await.expect_code(1021);
            // Another session of the same agent binds a device.
            JsonOtpDevice::set_up_and_bind(&fixture.desk.sign_in("s3001").await).await;
            fixture.call(row, &fixture.half, "", None).await.expect_code(1003);
            fixture.admin.send("DELETE", "/api/admin/otp?employee_id=s3001", &[], b"").await.expect_code(0);
        }
        Endpoint::OtpBind => otp_bind(fixture, row).await,
        Endpoint::OtpVerify => otp_verify(fixture, row).await,
        Endpoint::OtpStatus => {
            assert_eq!(fixture.call(row, &fixture.admin, "", None).await.expect_code(0).data()["bound"], true);
            assert_eq!(fixture.call(row, &fixture.desk.sign_in("u1001").await, "", None).await.data()["bound"], false);
        }
        Endpoint::SignInPage => {
            fixture.call(row, &anonymous, "", None).await.expect_status(200);
            fixture.call(row, &anonymous, "?client=itadmin&lang=zh-CN", None).await.expect_status(200);
            fixture.call(row, &anonymous, "?lang=fr", None).await.expect_status(400);
        }
        Endpoint::BindPage => {
            fixture.call(row, &anonymous, "", None).await.expect_status(403);
            let member = fixture.desk.phone("p7001");
            fixture.check(row_of(Endpoint::Oauth2Callback), member.oauth2(&fixture.desk.client_url("h5")).await);
            fixture.call(row, member.client(), "", None).await.expect_status(200);
        }
        Endpoint::PageStyle
        | Endpoint::SignInScript
        | Endpoint::BindScript
        | Endpoint::OpenApi
        | Endpoint::Ready
        | Endpoint::Version
        | Endpoint::DevUsers
        | Endpoint::DevHealth => {
            fixture.call(row, &anonymous, "", None).await.expect_status(200);
        }
        Endpoint::Jwks => {
            let response = fixture.call(row, &anonymous, "", None).await.expect_status(200);
            let etag = response.header("etag").expect("an ETag").to_owned();
            fixture.call(row, &anonymous.with_header("If-None-Match", &etag), "", None).await.expect_status(304);
        }
        Endpoint::DevLogin => {
            fixture.call(row, &anonymous, "", Some(json!({ "employee_id": "u1001" }))).await.expect_code(0);
            fixture.call(row, &anonymous, "", Some(json!({ "employee_id": "z9999" }))).await.expect_code(1003);
        }
    }
}

/// The poll query and the QR code's URL of a new ticket.
async fn ticket(fixture: &OpenApiFixture) -> (String, String) {
    let data = fixture.desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let text = |name: &str| data[name].as_str().expect("text").to_owned();
    (format!("?ticket={}", text("ticket")), text("qrcode_url"))
}

async fn scan_status(fixture: &OpenApiFixture, row: &'static OwnRoute) {
    let anonymous = fixture.desk.anonymous();
    let status_of =
        async |query: &str| fixture.call(row, &anonymous, query, None).await.expect_code(0).data()["status"].clone();
    let (poll, code) = ticket(fixture).await;
    assert_eq!(status_of(&poll).await, "waiting");
    let phone = fixture.desk.phone("u1001");
    let page = phone.scan_to_page(&code).await;
    assert_eq!(status_of(&format!("{poll}&wait=25&seen=waiting")).await, "scanned");
    phone.tap(&page, "confirm").await.expect_status(200);
    assert_eq!(status_of(&poll).await, "confirmed");
    assert_eq!(status_of("?ticket=unknown").await, "expired");
    fixture.call(row, &anonymous, "", None).await.expect_code(1400);
    fixture.call(row, &anonymous, "?ticket=a&wait=26", None).await.expect_code(1400);

    // The employee is disabled between confirmation and poll.
    let (poll, code) = ticket(fixture).await;
    fixture.desk.phone("n6001").scan_and_confirm(&code).await.expect_status(200);
    fixture.desk.change_directory("UPDATE employees SET disabled = 1 WHERE employee_id = 'n6001'").await;
    assert_eq!(status_of(&poll).await, "expired");
}

async fn callback(fixture: &OpenApiFixture, row: &'static OwnRoute) {
    let page = fixture.desk.client_url("h5");
    for (member, part) in [("u1001", "token"), ("x8001", "error"), ("deny", "error")] {
        let response = fixture.check(row, fixture.desk.phone(member).oauth2(&page).await.expect_status(302));
        assert!(fragment_parameter(&response.location(), part).is_some(), "{member}: {}", response.describe());
    }
    let (_, code) = ticket(fixture).await;
    fixture.check(row, fixture.desk.phone("x8001").scan(&code).await.expect_status(403));
    // The refused scan ended the ticket.
    let (_, code) = ticket(fixture).await;
    fixture.check(row, fixture.desk.phone("u1001").scan(&code).await.expect_status(302));
    fixture.call(row, &fixture.desk.anonymous(), "", None).await.expect_status(400);

    // An address that has sent too many invalid codes.
    let flood = Phone::new(fixture.desk.anonymous().with_header("X-Forwarded-For", "203.0.113.7"), "u1001");
    for number in 0..120 {
        flood.authorize_url(&page).await;
        flood.client().get(&format!("/api/auth/oauth2/callback?code=junk{number}&state=auth_login")).await;
    }
    let (_, code) = ticket(fixture).await;
    fixture.check(row, flood.scan(&code).await.expect_status(429));
}

async fn confirm(fixture: &OpenApiFixture) {
    let (page_row, confirm_row) = (row_of(Endpoint::ConfirmPage), row_of(Endpoint::Confirm));
    fixture.call(page_row, &fixture.desk.anonymous(), "", None).await.expect_status(400);
    for choice in ["confirm", "cancel"] {
        let (_, code) = ticket(fixture).await;
        let phone = fixture.desk.phone("u1001");
        let page = phone.scan_to_page(&code).await;
        fixture.check(page_row, page.response.clone());
        let mut forged = page.form(choice);
        forged.fields.retain(|(name, _)| name != "proof");
        fixture.check(confirm_row, phone.submit(&page, &forged).await.expect_status(400));
        fixture.check(confirm_row, phone.tap(&page, choice).await.expect_status(200));
    }
}

async fn agent_login(fixture: &OpenApiFixture, row: &'static OwnRoute) {
    let anonymous = fixture.desk.anonymous();
    let login = async |body: Value| fixture.call(row, &anonymous, "", Some(body)).await;
    let set = json!({ "new_password": GOOD });
    fixture.check(
        row_of(Endpoint::AgentPassword),
        fixture.agent.post_json("/api/agents/password", &set).await.expect_code(0),
    );
    login(json!({ "employee_id": "a2001", "code": platform_code(&fixture.desk, "a2001").await })).await.expect_code(0);
    login(json!({ "employee_id": "a2001", "password": "wrong" })).await.expect_code(1011);
    let data = login(json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
    assert_eq!(data["failed_tries"], 1);
    login(json!({ "employee_id": "a2001" })).await.expect_code(1400);
    login(json!({ "employee_id": "u1001", "code": platform_code(&fixture.desk, "u1001").await }))
        .await
        .expect_code(1003);
    for _ in 0..5 {
        login(json!({ "employee_id": "nobody", "password": "wrong" })).await.expect_code(1011);
    }
    login(json!({ "employee_id": "nobody", "password": "wrong" })).await.expect_code(1429);

    // With a device, the password alone gets 1021, and a valid code without a password set gets 1012.
    let owner = fixture.desk.sign_in("a2001").await;
    let device = JsonOtpDevice::set_up_and_bind(&owner).await;
    let with = |otp: Value| json!({ "employee_id": "a2001", "password": GOOD, "otp": otp });
    login(with(json!(null))).await.expect_code(1021);
    login(with(device.wrong_code()["code"].clone())).await.expect_code(1022);
    login(with(device.code(1)["code"].clone())).await.expect_code(0);
    let device = JsonOtpDevice::set_up_and_bind(&fixture.desk.sign_in("s3001").await).await;
    let otp = device.code(1)["code"].clone();
    login(json!({ "employee_id": "s3001", "password": "none is set", "otp": otp })).await.expect_code(1012);
    for employee in ["a2001", "s3001"] {
        let target = format!("/api/admin/otp?employee_id={employee}");
        let removed = fixture.admin.send("DELETE", &target, &[], b"").await;
        fixture.check(row_of(Endpoint::ResetOtp), removed.expect_code(0));
    }
}

async fn otp_bind(fixture: &OpenApiFixture, row: &'static OwnRoute) {
    let xiaoming = fixture.desk.sign_in("u1001").await;
    fixture.call(row, &xiaoming, "", Some(json!({ "code": "000000" }))).await.expect_code(1003);
    let device = JsonOtpDevice::of(&xiaoming.post("/api/auth/otp-setup").await.expect_code(0).data());
    fixture.call(row, &xiaoming, "", Some(device.wrong_code())).await.expect_code(1022);
    fixture.call(row, &xiaoming, "", Some(device.code(0))).await.expect_code(0);
    fixture.call(row, &fixture.desk.sign_in("u1001").await, "", Some(device.code(1))).await.expect_code(1021);
    fixture.admin.send("DELETE", "/api/admin/otp?employee_id=u1001", &[], b"").await.expect_code(0);
    let half = half_authenticated(&fixture.desk).await;
    let device = JsonOtpDevice::of(&half.post("/api/auth/otp-setup").await.expect_code(0).data());
    let data = fixture.call(row, &half, "", Some(device.code(0))).await.expect_code(0).data();
    assert!(data["login"]["token"].is_string(), "{data}");
    fixture.admin.send("DELETE", "/api/admin/otp?employee_id=s3001", &[], b"").await.expect_code(0);
}

async fn otp_verify(fixture: &OpenApiFixture, row: &'static OwnRoute) {
    let carlos = fixture.desk.sign_in("c4001").await;
    fixture.call(row, &carlos, "", Some(json!({ "code": "000000" }))).await.expect_code(1003);
    let device = JsonOtpDevice::set_up_and_bind(&carlos).await;
    fixture.call(row, &carlos, "", Some(device.code(1))).await.expect_code(0);
    for _ in 0..5 {
        fixture.call(row, &carlos, "", Some(device.wrong_code())).await.expect_code(1022);
    }
    fixture.call(row, &carlos, "", Some(device.wrong_code())).await.expect_code(1429);
}

/// With `qr.confirm = "auto"`, the callback of a scan ends on a page.
pub async fn automatic_confirmation() -> OpenApiDocument {
    let fixture = OpenApiFixture::with("[qr]\nconfirm = \"auto\"").await;
    let (_, code) = ticket(&fixture).await;
    fixture.check(row_of(Endpoint::Oauth2Callback), fixture.desk.phone("u1001").scan(&code).await.expect_status(200));
    fixture.openapi
}
