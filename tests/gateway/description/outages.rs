//! What endpoints answer while something that they need is out of reach.

use deskgate::endpoints::{Endpoint, TABLE};

use super::{Survey, change_database, platform_code, row_of};
use crate::support::*;

/// The platform fails, and is left alone after that.
pub async fn platform() -> OpenApiDocument {
    let on = Survey::of("").await;
    let (desk, anonymous) = (&on.desk, on.desk.anonymous());
    let (callback, login) = (row_of(Endpoint::Oauth2Callback), row_of(Endpoint::AgentLogin));
    let code = platform_code(desk, "a2001").await;
    let scanned = anonymous.get("/api/auth/qrcode").await.expect_code(0).data();
    let platform = Client::new(desk.platform_address());
    let broken = json!({ "bad_gateway": { "*": "all" } }).to_string();
    let json = [("Content-Type", "application/json")];
    platform.send("PATCH", "/simulator/switches", &json, broken.as_bytes()).await.expect_status(200);

    let phone = desk.phone("u1001");
    let scan = phone.authorize(scanned["qrcode_url"].as_str().expect("a code")).await;
    on.saw(callback, phone.client().get(&scan).await.expect_status(500));
    for _ in 0..5 {
        let body = json!({ "employee_id": "a2001", "code": code });
        let response = on.ask(login, &anonymous, "", Some(body)).await;
        assert!(matches!(response.code(), 1005 | 1503), "{}", response.describe());
    }
    on.ask(row_of(Endpoint::Qrcode), &anonymous, "", None).await.expect_code(1503);
    let own = format!("?redirect_uri={}", desk.client_url("h5"));
    on.ask(row_of(Endpoint::Oauth2Url), &anonymous, &own, None).await.expect_code(1503);
    let another = desk.phone("c4001");
    let scan = another.authorize(scanned["qrcode_url"].as_str().expect("a code")).await;
    on.saw(callback, another.client().get(&scan).await.expect_status(503));
    on.description
}

/// Everything that the store keeps.
const STORE: &str = "DROP TABLE sessions; DROP TABLE denied; DROP TABLE seen; DROP TABLE tickets";

/// Everything that the directory keeps.
const DIRECTORY: &str = "DROP TABLE user_roles; DROP TABLE roles; DROP TABLE agents; DROP TABLE employees; \
    DROP TABLE login_log; DROP TABLE otp_devices; DROP TABLE lockouts";

/// Store and directory are gone.
pub async fn state() -> OpenApiDocument {
    let mut on = Survey::of("").await;
    let phone = on.desk.phone("u1001");
    let scanned = on.desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let page = phone.scan_to_page(scanned["qrcode_url"].as_str().expect("a code")).await;
    let unseen = on.desk.sign_in("u1001").await;
    // It knows nobody then, and knows two again: the third must be looked for.
    on.desk.restart().await;
    for known in [&on.agent, &on.admin] {
        known.get("/api/auth/me").await.expect_code(0);
    }
    change_database(&on.desk, "state.db", STORE).await;
    change_database(&on.desk, "directory.db", DIRECTORY).await;
    let elsewhere = [Endpoint::Oauth2Url, Endpoint::Oauth2Callback, Endpoint::Ready];
    let rows =
        TABLE.iter().filter(|row| !elsewhere.contains(&row.endpoint) && on.description.documents_status(row, "503"));
    for row in rows {
        let caller = on.caller(row);
        let response = match row.endpoint {
            Endpoint::ConfirmPage => on.ask(row, phone.client(), "", None).await,
            Endpoint::Confirm => on.saw(row, phone.tap(&page, "confirm").await),
            Endpoint::ScanStatus => on.ask(row, &caller, "?ticket=a", None).await,
            Endpoint::EndSessionsOf | Endpoint::ResetOtp => on.ask(row, &caller, "?employee_id=u1001", None).await,
            Endpoint::Me => on.ask(row, &unseen, "", None).await,
            Endpoint::Verify => on.ask(row, &caller, "", Some(json!({ "token": unseen.token() }))).await,
            Endpoint::AgentPassword => on.ask(row, &caller, "", Some(json!({ "new_password": "a" }))).await,
            Endpoint::AgentLogin => {
                on.ask(row, &caller, "", Some(json!({ "employee_id": "a2001", "password": "a" }))).await
            }
            Endpoint::OtpBind | Endpoint::OtpVerify => {
                on.ask(row, &caller, "", Some(json!({ "code": "000000" }))).await
            }
            _ => on.ask(row, &caller, "", Some(json!({ "employee_id": "a2001", "role": "agent" }))).await,
        };
        response.expect_status(503);
    }
    on.description
}

/// The gateway is about to stop, and has one request left to finish.
pub async fn drain() -> OpenApiDocument {
    let on = Survey::of("").await;
    let mut upstream_connections = UpstreamConnections::intercept(&on.desk.upstream);
    let mut connection = on.desk.connect().await;
    let slow = format!("GET /public/slow HTTP/1.1\r\nHost: {}\r\n\r\n", on.desk.address());
    connection.send(slow.as_bytes()).await;
    let _visit = upstream_connections.next().await;
    on.desk.signal("TERM");
    let response = eventually("a gateway that says it is not ready", || async {
        on.desk.anonymous().try_send("GET", "/api/ready", &[], b"").await.ok().filter(|response| response.status == 503)
    });
    on.saw(row_of(Endpoint::Ready), response.await.expect_status(503));
    on.description
}
