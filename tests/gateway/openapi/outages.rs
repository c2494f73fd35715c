//! Responses while the platform, the storage or the gateway itself is unavailable.

use deskgate::endpoints::{Endpoint, TABLE};

use super::{OpenApiFixture, platform_code, row_of};
use crate::support::*;

/// The platform fails until the circuit opens.
pub async fn platform_failure() -> OpenApiDocument {
    let fixture = OpenApiFixture::with("").await;
    let (desk, anonymous) = (&fixture.desk, fixture.desk.anonymous());
    let (callback, login) = (row_of(Endpoint::Oauth2Callback), row_of(Endpoint::AgentLogin));
    let code = platform_code(desk, "a2001").await;
    let ticket = anonymous.get("/api/auth/qrcode").await.expect_code(0).data();
    let platform = Client::new(desk.platform_address());
    let switches = json!({ "bad_gateway": { "*": "all" } }).to_string();
    let json = [("Content-Type", "application/json")];
    platform.send("PATCH", "/simulator/switches", &json, switches.as_bytes()).await.expect_status(200);

    let phone = desk.phone("u1001");
    let scan = phone.authorize(ticket["qrcode_url"].as_str().expect("a code")).await;
    fixture.check(callback, phone.client().get(&scan).await.expect_status(500));
    for _ in 0..5 {
        let body = json!({ "employee_id": "a2001", "code": code });
        let response = fixture.call(login, &anonymous, "", Some(body)).await;
        assert!(matches!(response.code(), 1005 | 1503), "{}", response.describe());
    }
    fixture.call(row_of(Endpoint::Qrcode), &anonymous, "", None).await.expect_code(1503);
    let query = format!("?redirect_uri={}", desk.client_url("h5"));
    fixture.call(row_of(Endpoint::Oauth2Url), &anonymous, &query, None).await.expect_code(1503);
    let another = desk.phone("c4001");
    let scan = another.authorize(ticket["qrcode_url"].as_str().expect("a code")).await;
    fixture.check(callback, another.client().get(&scan).await.expect_status(503));
    fixture.openapi
}

const DROP_STORE: &str = "DROP TABLE sessions; DROP TABLE denied; DROP TABLE seen; DROP TABLE tickets";

const DROP_DIRECTORY: &str = "DROP TABLE user_roles; DROP TABLE roles; DROP TABLE agents; DROP TABLE employees; \
    DROP TABLE login_log; DROP TABLE otp_devices; DROP TABLE lockouts; DROP TABLE platform_links";

/// Store and directory fail.
pub async fn storage_failure() -> OpenApiDocument {
    let mut fixture = OpenApiFixture::with("").await;
    let phone = fixture.desk.phone("u1001");
    let ticket = fixture.desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let page = phone.scan_to_page(ticket["qrcode_url"].as_str().expect("a code")).await;
    let member = fixture.desk.phone("p7001");
    member.oauth2(&fixture.desk.client_url("h5")).await.expect_status(302);
    let uncached = fixture.desk.sign_in("u1001").await;
    // The restart empties the session cache; the two sessions below are cached again, `uncached` is not.
    fixture.desk.restart().await;
    for cached in [&fixture.agent, &fixture.admin] {
        cached.get("/api/auth/me").await.expect_code(0);
    }
    fixture.desk.change_database("state.db", DROP_STORE).await;
    fixture.desk.change_directory(DROP_DIRECTORY).await;
    let covered_elsewhere = [Endpoint::Oauth2Url, Endpoint::Oauth2Callback, Endpoint::Ready];
    let rows = TABLE
        .iter()
        .filter(|row| !covered_elsewhere.contains(&row.endpoint) && fixture.openapi.documents_status(row, "503"));
    for row in rows {
        let caller = fixture.caller(row);
        let response = match row.endpoint {
            Endpoint::ConfirmPage => fixture.call(row, phone.client(), "", None).await,
            Endpoint::Confirm => fixture.check(row, phone.tap(&page, "confirm").await),
            Endpoint::ScanStatus => fixture.call(row, &caller, "?ticket=a", None).await,
            Endpoint::EndSessionsOf | Endpoint::ResetOtp => {
                fixture.call(row, &caller, "?employee_id=u1001", None).await
            }
            Endpoint::BindPage | Endpoint::BindStatus => fixture.call(row, member.client(), "", None).await,
            Endpoint::ApproveLink => {
                let link = json!({ "corp_id": "wwpartner", "platform_user": "q1", "employee_id": "u1001" });
                fixture.call(row, &caller, "", Some(link)).await
            }
            Endpoint::RemoveLink => fixture.call(row, &caller, "?corp_id=wwpartner&platform_user=q1", None).await,
            Endpoint::Me => fixture.call(row, &uncached, "", None).await,
            Endpoint::Verify => fixture.call(row, &caller, "", Some(json!({ "token": uncached.token() }))).await,
            Endpoint::AgentPassword => fixture.call(row, &caller, "", Some(json!({ "new_password": "a" }))).await,
            Endpoint::AgentLogin => {
                fixture.call(row, &caller, "", Some(json!({ "employee_id": "a2001", "password": "a" }))).await
            }
            Endpoint::OtpBind | Endpoint::OtpVerify => {
                fixture.call(row, &caller, "", Some(json!({ "code": "000000" }))).await
            }
            _ => fixture.call(row, &caller, "", Some(json!({ "employee_id": "a2001", "role": "agent" }))).await,
        };
        response.expect_status(503);
    }
    fixture.openapi
}

/// The gateway is about to drain and still accepts.
pub async fn drain() -> OpenApiDocument {
    let fixture = OpenApiFixture::with("[server]\ndrain_delay = \"1m\"").await;
    fixture.desk.signal("TERM");
    let response = eventually("a 503 of /api/ready", || async {
        fixture
            .desk
            .anonymous()
            .try_send("GET", "/api/ready", &[], b"")
            .await
            .ok()
            .filter(|response| response.status == 503)
    });
    fixture.check(row_of(Endpoint::Ready), response.await.expect_status(503));
    fixture.openapi
}
