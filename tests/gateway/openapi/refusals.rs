//! Refusals that all endpoints share, or all that require a token or a body.

use deskgate::endpoints::{OwnAccess, OwnRoute, TABLE};

use super::{OpenApiFixture, path};
use crate::support::*;

/// Malformed or oversized heads, and a method that the endpoint does not have.
pub async fn malformed_requests(fixture: &OpenApiFixture, row: &'static OwnRoute) {
    let anonymous = fixture.desk.anonymous();
    let twice = anonymous.with_header("Authorization", "Bearer a.b.c").with_header("Authorization", "Bearer d.e.f");
    fixture.call(row, &twice, "", None).await.expect_code(1400);
    fixture.call(row, &anonymous, &format!("?{}", "a".repeat(17_000)), None).await.expect_code(1414);
    let long = anonymous.with_header("X-Long", &"a".repeat(40_000));
    fixture.call(row, &long, "", None).await.expect_code(1431);
    if !deskgate::endpoints::answers_any_host(row.path) {
        fixture.call(row, &anonymous.with_host("evil.example"), "", None).await.expect_code(1421);
    }
    let response = fixture.check(row, anonymous.send("PATCH", &path(row), &[], b"").await.expect_code(1405));
    let allow: Vec<&str> = response.header("allow").unwrap_or_default().split(", ").collect();
    assert!(allow.contains(&row.method), "{}", response.describe());
    assert_eq!(allow.contains(&"GET"), allow.contains(&"HEAD"), "{}", response.describe());
    if row.method == "GET" {
        let handshake = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "12")];
        let response = anonymous.send("GET", &path(row), &handshake, b"").await;
        fixture.check(row, response.expect_code(1426));
        assert_eq!(anonymous.send("HEAD", &path(row), &[], b"").await.body, b"");
    }
}

/// No token, an invalid one, and one without the required role or step-up.
pub async fn insufficient_tokens(fixture: &OpenApiFixture, row: &'static OwnRoute) {
    if row.access == OwnAccess::Anyone {
        return;
    }
    fixture.call(row, &fixture.desk.anonymous(), "", None).await.expect_bare_challenge();
    fixture.call(row, &fixture.desk.with_token("a.b.c"), "", None).await.expect_invalid_token();
    if matches!(row.access, OwnAccess::SignedInAnyStage | OwnAccess::ProvenAnyStage) {
        return;
    }
    fixture.call(row, &fixture.half, "", None).await.expect_code(1003);
    if matches!(row.access, OwnAccess::Admin | OwnAccess::SteppedUpAdmin) {
        fixture.call(row, &fixture.agent, "", None).await.expect_code(1003);
    }
    if row.access == OwnAccess::SteppedUpAdmin {
        fixture.call(row, &fixture.desk.sign_in("m5001").await, "", None).await.expect_code(1021);
    }
}

/// Bodies that are too large, of another content type, or invalid JSON.
pub async fn invalid_bodies(fixture: &OpenApiFixture, row: &'static OwnRoute) {
    let send = async |content_type: &str, body: &[u8]| {
        let response = fixture.caller(row).send(row.method, &path(row), &[("Content-Type", content_type)], body).await;
        fixture.check(row, response)
    };
    if fixture.openapi.documents_status(row, "413") {
        send("application/json", &[b' '; 70_000]).await.expect_code(1413);
    }
    let body = &fixture.openapi.operation(row)["requestBody"];
    assert_eq!(fixture.openapi.documents_status(row, "415"), body.is_object(), "{row:?}");
    if body.is_object() {
        send("text/plain", b"x").await.expect_code(1415);
    }
    if body["content"]["application/json"].is_object() {
        send("application/json", b"{").await.expect_code(1400);
        send("application/json", b"{}").await.expect_code(1400);
    }
}

/// A head or, where the endpoint takes one, a body that stays incomplete.
pub async fn slow_requests() -> OpenApiDocument {
    let fixture = OpenApiFixture::with("[limits]\nhead_deadline = \"1s\"\nbody_deadline = \"1s\"").await;
    let requests = TABLE.iter().map(async |row| {
        let caller = fixture.caller(row);
        let token = caller.token_if_any().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let line = format!("{} {} HTTP/1.1\r\nHost: {}\r\n{token}", row.method, path(row), fixture.desk.address());
        let body = fixture.openapi.documents_status(row, "413");
        let rest = if body { "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{" } else { "X-Half: " };
        let response = fixture.desk.send_raw(format!("{line}{rest}").as_bytes()).await.expect("a response");
        fixture.check(row, response.expect_code(1408));
    });
    futures::future::join_all(requests).await;
    fixture.openapi
}

/// The second request in a minute, with a rate limit of one.
pub async fn rate_limits() -> OpenApiDocument {
    let mut fixture = OpenApiFixture::with("").await;
    let mut paths: Vec<&str> = TABLE.iter().map(|row| row.path).collect();
    paths.dedup();
    let rate = "rate = [{ by = \"address\", limit = 1, per = \"1m\" }]";
    let rules: String = paths.iter().map(|path| format!("[[endpoint]]\npath = \"{path}\"\n{rate}\n")).collect();
    std::fs::write(fixture.desk.rules_file(), rules).expect("new rules");
    fixture.desk.signal("HUP");
    eventually("the new rules", || async {
        (fixture.desk.anonymous().get("/version").await.status == 429).then_some(())
    })
    .await;
    for (number, row) in TABLE.iter().enumerate() {
        // Each row has its own address, because rows of the same path share a rate; a loopback one for development routes.
        let caller = fixture.caller(row).with_header("X-Forwarded-For", &format!("127.1.0.{number}"));
        caller.send(row.method, &path(row), &[], b"").await;
        if row.endpoint == deskgate::endpoints::Endpoint::Logout {
            fixture.agent = fixture.desk.sign_in("a2001").await;
        }
        let caller = fixture.caller(row).with_header("X-Forwarded-For", &format!("127.1.0.{number}"));
        let response = fixture.call(row, &caller, "", None).await.expect_code(1429);
        assert!(response.header("ratelimit").is_some(), "{}", response.describe());
    }
    fixture.openapi
}

/// The development routes are forbidden outside development mode.
pub async fn outside_development_mode() -> OpenApiDocument {
    let desk = Gateway::setup().production().start().await;
    let openapi = OpenApiDocument::of(&desk).await;
    for row in TABLE.iter().filter(|row| row.path.starts_with("/api/dev/")) {
        let response = desk.anonymous().send(row.method, row.path, &[], b"").await.expect_code(1003);
        openapi.check(row, &response);
    }
    openapi
}
