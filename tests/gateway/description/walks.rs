//! Every endpoint, called with success and in the ways of its own in which it refuses.

use deskgate::endpoints::{Endpoint, OwnRoute};

use super::{OtpDevice, Survey, change_directory, half_authenticated, platform_code, row_of};
use crate::support::*;

const GOOD: &str = "correct horse battery staple";
const BETTER: &str = "tidal meadow 47 envelope";

/// Calls an endpoint. No `_` arm: one that nobody calls does not compile.
pub async fn walk(on: &Survey, row: &'static OwnRoute) {
    let anonymous = on.desk.anonymous();
    let caller = on.caller(row);
    match row.endpoint {
        Endpoint::Qrcode => {
            on.ask(row, &anonymous, "?client=h5", None).await.expect_code(0);
            let browser = anonymous.with_header("Sec-Fetch-Site", "same-origin");
            let response = on.ask(row, &browser, "", None).await.expect_code(0);
            assert!(response.header("set-cookie").is_some(), "{}", response.describe());
            on.ask(row, &anonymous, "?client=other", None).await.expect_code(1400);
        }
        Endpoint::ScanStatus => scan_status(on, row).await,
        Endpoint::Oauth2Url => {
            let own = format!("?redirect_uri={}", on.desk.client_url("h5"));
            on.ask(row, &anonymous, &own, None).await.expect_code(0);
            on.ask(row, &anonymous, "?redirect_uri=https://evil.example/", None).await.expect_code(1400);
            on.ask(row, &anonymous, "", None).await.expect_code(1400);
        }
        Endpoint::Oauth2Callback => callback(on, row).await,
        Endpoint::ConfirmPage | Endpoint::Confirm => confirm(on).await,
        Endpoint::Verify => {
            let token = json!({ "token": on.agent.token() });
            assert_eq!(on.ask(row, &anonymous, "", Some(token)).await.expect_code(0).data()["valid"], true);
            let token = json!({ "token": "a.b.c" });
            assert_eq!(on.ask(row, &anonymous, "", Some(token)).await.expect_code(0).data()["valid"], false);
        }
        Endpoint::Logout => {
            let leaving = on.desk.sign_in("u1001").await;
            on.ask(row, &leaving, "", None).await.expect_code(0);
            on.ask(row, &leaving, "", None).await.expect_code(1001);
        }
        Endpoint::Me => {
            on.ask(row, &caller, "", None).await.expect_code(0);
            on.ask(row, &on.half, "", None).await.expect_code(0);
        }
        Endpoint::SwitchRole => {
            let agent = on.desk.sign_in("a2001").await;
            on.ask(row, &agent, "", Some(json!({ "role": "user" }))).await.expect_code(0);
            on.ask(row, &agent, "", Some(json!({ "role": "admin" }))).await.expect_code(1003);
        }
        Endpoint::Bind => {
            on.ask(row, &anonymous, "", Some(json!({ "employee_id": "u1001" }))).await.expect_code(0);
            let named = json!({ "employee_id": "u1001", "corp_id": "wwdemo" });
            on.ask(row, &anonymous, "", Some(named)).await.expect_code(0);
            on.ask(row, &anonymous, "", Some(json!({ "employee_id": "z9999" }))).await.expect_code(1003);
        }
        Endpoint::Sessions => {
            let data = on.ask(row, &caller, "", None).await.expect_code(0).data();
            assert!(!data["items"].as_array().expect("items").is_empty());
        }
        Endpoint::EndOtherSessions => {
            let (_, one) = (on.desk.sign_in("u1001").await, on.desk.sign_in("u1001").await);
            assert_ne!(on.ask(row, &one, "", None).await.expect_code(0).data()["ended"], 0);
        }
        Endpoint::EndSession => {
            let one = on.desk.sign_in("c4001").await;
            let target = format!("/api/auth/sessions/{}", jti_of(on.desk.sign_in("c4001").await.token()));
            on.ask_at(row, &one, target.clone(), None).await.expect_code(0);
            on.ask_at(row, &one, target, None).await.expect_code(1404);
        }
        Endpoint::UserRoles => {
            on.ask(row, &caller, "", None).await.expect_code(0);
            on.ask(row, &caller, "?page=2&page_size=3&role=agent&employee_id=a2001", None).await.expect_code(0);
            on.ask(row, &caller, "?page_size=201", None).await.expect_code(1400);
        }
        Endpoint::GrantRole | Endpoint::TakeRole => {
            let body = |who: &str, role: &str| Some(json!({ "employee_id": who, "role": role }));
            on.ask(row, &caller, "", body("c4001", "agent")).await.expect_code(0);
            on.ask(row, &caller, "", body("z9999", "agent")).await.expect_code(1003);
            on.ask(row, &caller, "", body("c4001", "a b")).await.expect_code(1400);
        }
        Endpoint::EndSessionsOf | Endpoint::ResetOtp => {
            on.desk.sign_in("c4001").await;
            on.ask(row, &caller, "?employee_id=c4001", None).await.expect_code(0);
            on.ask(row, &caller, "?employee_id=", None).await.expect_code(1400);
            on.ask(row, &caller, "?employee_id=_", None).await.expect_code(1003);
            on.ask(row, &caller, "?employee_id=z9999", None).await.expect_code(1003);
        }
        Endpoint::AgentLogin => agent_login(on, row).await,
        Endpoint::AgentPassword => {
            let body = |old: Value, new: &str| Some(json!({ "old_password": old, "new_password": new }));
            // `agent_login` has set the first one.
            on.ask(row, &caller, "", body(json!(null), BETTER)).await.expect_code(1015);
            on.ask(row, &caller, "", body(json!("wrong one"), BETTER)).await.expect_code(1016);
            on.ask(row, &caller, "", body(json!(GOOD), "password123")).await.expect_code(1400);
            on.ask(row, &caller, "", body(json!(GOOD), BETTER)).await.expect_code(0);
            on.ask(row, &on.desk.sign_in("u1001").await, "", body(json!(null), GOOD)).await.expect_code(1003);
        }
        Endpoint::OtpSetup => {
            on.ask(row, &caller, "", None).await.expect_code(0);
            on.ask(row, &on.half, "", None).await.expect_code(0);
            on.ask(row, &on.desk.sign_in("m5001").await, "", None).await.expect_code(1021);
            // Somebody else has bound one meanwhile.
            OtpDevice::set_up_and_bind(&on.desk.sign_in("s3001").await).await;
            on.ask(row, &on.half, "", None).await.expect_code(1003);
            on.admin.send("DELETE", "/api/admin/otp?employee_id=s3001", &[], b"").await.expect_code(0);
        }
        Endpoint::OtpBind => otp_bind(on, row).await,
        Endpoint::OtpVerify => otp_verify(on, row).await,
        Endpoint::OtpStatus => {
            assert_eq!(on.ask(row, &on.admin, "", None).await.expect_code(0).data()["bound"], true);
            assert_eq!(on.ask(row, &on.desk.sign_in("u1001").await, "", None).await.data()["bound"], false);
        }
        Endpoint::SignInPage => {
            on.ask(row, &anonymous, "", None).await.expect_status(200);
            on.ask(row, &anonymous, "?client=itadmin&lang=zh-CN", None).await.expect_status(200);
            on.ask(row, &anonymous, "?lang=fr", None).await.expect_code(1400);
        }
        Endpoint::BindPage => {
            on.ask(row, &anonymous, "", None).await.expect_status(403);
            let member = on.desk.phone("p7001");
            on.saw(row_of(Endpoint::Oauth2Callback), member.oauth2(&on.desk.client_url("h5")).await);
            on.ask(row, member.client(), "", None).await.expect_status(200);
        }
        Endpoint::PageStyle
        | Endpoint::SignInScript
        | Endpoint::BindScript
        | Endpoint::OpenApi
        | Endpoint::Ready
        | Endpoint::Version
        | Endpoint::DevUsers
        | Endpoint::DevHealth => {
            on.ask(row, &anonymous, "", None).await.expect_status(200);
        }
        Endpoint::Jwks => {
            let response = on.ask(row, &anonymous, "", None).await.expect_status(200);
            let tag = response.header("etag").expect("a tag").to_owned();
            on.ask(row, &anonymous.with_header("If-None-Match", &tag), "", None).await.expect_status(304);
        }
        Endpoint::DevLogin => {
            on.ask(row, &anonymous, "", Some(json!({ "employee_id": "u1001" }))).await.expect_code(0);
            on.ask(row, &anonymous, "", Some(json!({ "employee_id": "z9999" }))).await.expect_code(1003);
        }
    }
}

/// A ticket, and the code that goes with it.
async fn ticket(on: &Survey) -> (String, String) {
    let data = on.desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let text = |name: &str| data[name].as_str().expect("text").to_owned();
    (format!("?ticket={}", text("ticket")), text("qrcode_url"))
}

async fn scan_status(on: &Survey, row: &'static OwnRoute) {
    let anonymous = on.desk.anonymous();
    let stands = async |query: &str| on.ask(row, &anonymous, query, None).await.expect_code(0).data()["status"].clone();
    let (poll, code) = ticket(on).await;
    assert_eq!(stands(&poll).await, "waiting");
    let phone = on.desk.phone("u1001");
    let page = phone.scan_to_page(&code).await;
    assert_eq!(stands(&format!("{poll}&wait=25&seen=waiting")).await, "scanned");
    phone.tap(&page, "confirm").await.expect_status(200);
    assert_eq!(stands(&poll).await, "confirmed");
    assert_eq!(stands("?ticket=unknown").await, "expired");
    on.ask(row, &anonymous, "", None).await.expect_code(1400);
    on.ask(row, &anonymous, "?ticket=a&wait=26", None).await.expect_code(1400);

    // Disabled between the tap and the poll.
    let (poll, code) = ticket(on).await;
    on.desk.phone("n6001").scan_and_confirm(&code).await.expect_status(200);
    change_directory(&on.desk, "UPDATE employees SET disabled = 1 WHERE employee_id = 'n6001'").await;
    on.ask(row, &anonymous, &poll, None).await.expect_code(1003);
}

async fn callback(on: &Survey, row: &'static OwnRoute) {
    let home = on.desk.client_url("h5");
    for (member, part) in [("u1001", "token"), ("x8001", "error"), ("deny", "error")] {
        let response = on.saw(row, on.desk.phone(member).oauth2(&home).await.expect_status(302));
        assert!(fragment_parameter(&response.location(), part).is_some(), "{member}: {}", response.describe());
    }
    let (_, code) = ticket(on).await;
    on.saw(row, on.desk.phone("x8001").scan(&code).await.expect_status(403));
    on.saw(row, on.desk.phone("u1001").scan(&code).await.expect_status(302));
    on.ask(row, &on.desk.anonymous(), "", None).await.expect_status(400);
}

async fn confirm(on: &Survey) {
    let (shown, taken) = (row_of(Endpoint::ConfirmPage), row_of(Endpoint::Confirm));
    on.ask(shown, &on.desk.anonymous(), "", None).await.expect_status(400);
    for response in ["confirm", "cancel"] {
        let (_, code) = ticket(on).await;
        let phone = on.desk.phone("u1001");
        let page = phone.scan_to_page(&code).await;
        on.saw(shown, page.response.clone());
        let mut forged = page.form(response);
        forged.fields.retain(|(name, _)| name != "proof");
        on.saw(taken, phone.submit(&page, &forged).await.expect_status(400));
        on.saw(taken, phone.tap(&page, response).await.expect_status(200));
    }
}

async fn agent_login(on: &Survey, row: &'static OwnRoute) {
    let anonymous = on.desk.anonymous();
    let ask = async |body: Value| on.ask(row, &anonymous, "", Some(body)).await;
    let set = json!({ "new_password": GOOD });
    on.saw(row_of(Endpoint::AgentPassword), on.agent.post_json("/api/agents/password", &set).await.expect_code(0));
    ask(json!({ "employee_id": "a2001", "code": platform_code(&on.desk, "a2001").await })).await.expect_code(0);
    ask(json!({ "employee_id": "a2001", "password": "wrong" })).await.expect_code(1011);
    let data = ask(json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
    assert_eq!(data["failed_tries"], 1);
    ask(json!({ "employee_id": "a2001" })).await.expect_code(1400);
    ask(json!({ "employee_id": "u1001", "code": platform_code(&on.desk, "u1001").await })).await.expect_code(1003);
    for _ in 0..5 {
        ask(json!({ "employee_id": "nobody", "password": "wrong" })).await.expect_code(1011);
    }
    ask(json!({ "employee_id": "nobody", "password": "wrong" })).await.expect_code(1429);

    // With a device: a password alone does not do, and a device alone tells its owner what is missing.
    let owner = on.desk.sign_in("a2001").await;
    let device = OtpDevice::set_up_and_bind(&owner).await;
    let with = |otp: Value| json!({ "employee_id": "a2001", "password": GOOD, "otp": otp });
    ask(with(json!(null))).await.expect_code(1021);
    ask(with(device.wrong_code()["code"].clone())).await.expect_code(1022);
    ask(with(device.code(1)["code"].clone())).await.expect_code(0);
    let device = OtpDevice::set_up_and_bind(&on.desk.sign_in("s3001").await).await;
    let otp = device.code(1)["code"].clone();
    ask(json!({ "employee_id": "s3001", "password": "none is set", "otp": otp })).await.expect_code(1012);
    for employee in ["a2001", "s3001"] {
        let target = format!("/api/admin/otp?employee_id={employee}");
        let removed = on.admin.send("DELETE", &target, &[], b"").await;
        on.saw(row_of(Endpoint::ResetOtp), removed.expect_code(0));
    }
}

async fn otp_bind(on: &Survey, row: &'static OwnRoute) {
    let xiaoming = on.desk.sign_in("u1001").await;
    on.ask(row, &xiaoming, "", Some(json!({ "code": "000000" }))).await.expect_code(1003);
    let device = OtpDevice::of(&xiaoming.post("/api/auth/otp-setup").await.expect_code(0).data());
    on.ask(row, &xiaoming, "", Some(device.wrong_code())).await.expect_code(1022);
    on.ask(row, &xiaoming, "", Some(device.code(0))).await.expect_code(0);
    on.ask(row, &on.desk.sign_in("u1001").await, "", Some(device.code(1))).await.expect_code(1021);
    on.admin.send("DELETE", "/api/admin/otp?employee_id=u1001", &[], b"").await.expect_code(0);
    let half = half_authenticated(&on.desk).await;
    let device = OtpDevice::of(&half.post("/api/auth/otp-setup").await.expect_code(0).data());
    let data = on.ask(row, &half, "", Some(device.code(0))).await.expect_code(0).data();
    assert!(data["login"]["token"].is_string(), "{data}");
    on.admin.send("DELETE", "/api/admin/otp?employee_id=s3001", &[], b"").await.expect_code(0);
}

async fn otp_verify(on: &Survey, row: &'static OwnRoute) {
    let carlos = on.desk.sign_in("c4001").await;
    on.ask(row, &carlos, "", Some(json!({ "code": "000000" }))).await.expect_code(1003);
    let device = OtpDevice::set_up_and_bind(&carlos).await;
    on.ask(row, &carlos, "", Some(device.code(1))).await.expect_code(0);
    for _ in 0..5 {
        on.ask(row, &carlos, "", Some(device.wrong_code())).await.expect_code(1022);
    }
    on.ask(row, &carlos, "", Some(device.wrong_code())).await.expect_code(1429);
}

/// Where scanning is enough, the callback ends on a page.
pub async fn without_a_tap() -> OpenApiDocument {
    let on = Survey::of("[qr]\nconfirm = \"auto\"").await;
    let (_, code) = ticket(&on).await;
    on.saw(row_of(Endpoint::Oauth2Callback), on.desk.phone("u1001").scan(&code).await.expect_status(200));
    on.description
}
