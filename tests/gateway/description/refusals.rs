//! What all endpoints refuse alike, or all that take a token or a body.

use deskgate::endpoints::{OwnAccess, OwnRoute, TABLE};

use super::{Survey, path};
use crate::support::*;

/// Heads that no endpoint gets to see, and a method that there is not.
pub async fn at_the_door(on: &Survey, row: &'static OwnRoute) {
    let anonymous = on.desk.anonymous();
    let twice = anonymous.with_header("Authorization", "Bearer a.b.c").with_header("Authorization", "Bearer d.e.f");
    on.ask(row, &twice, "", None).await.expect_code(1400);
    on.ask(row, &anonymous, &format!("?{}", "a".repeat(17_000)), None).await.expect_code(1414);
    let long = anonymous.with_header("X-Long", &"a".repeat(40_000));
    on.ask(row, &long, "", None).await.expect_code(1431);
    let response = on.saw(row, anonymous.send("PATCH", &path(row), &[], b"").await.expect_code(1405));
    let allow: Vec<&str> = response.header("allow").unwrap_or_default().split(", ").collect();
    assert!(allow.contains(&row.method), "{}", response.describe());
    assert_eq!(allow.contains(&"GET"), allow.contains(&"HEAD"), "{}", response.describe());
    if row.method == "GET" {
        let handshake = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "12")];
        let response = anonymous.send("GET", &path(row), &handshake, b"").await;
        on.saw(row, response.expect_code(1426));
        assert_eq!(anonymous.send("HEAD", &path(row), &[], b"").await.body, b"");
    }
}

/// No token, a bad one, one that is not enough.
pub async fn for_want_of_a_token(on: &Survey, row: &'static OwnRoute) {
    if row.access == OwnAccess::Anyone {
        return;
    }
    on.ask(row, &on.desk.anonymous(), "", None).await.expect_bare_challenge();
    on.ask(row, &on.desk.with_token("a.b.c"), "", None).await.expect_invalid_token();
    if row.access == OwnAccess::SignedInAnyStage {
        return;
    }
    on.ask(row, &on.half, "", None).await.expect_code(1003);
    if matches!(row.access, OwnAccess::Admin | OwnAccess::SteppedUpAdmin) {
        on.ask(row, &on.agent, "", None).await.expect_code(1003);
    }
    if row.access == OwnAccess::SteppedUpAdmin {
        on.ask(row, &on.desk.sign_in("m5001").await, "", None).await.expect_code(1021);
    }
}

/// Bodies that are too large, of another kind, or no JSON.
pub async fn of_the_body(on: &Survey, row: &'static OwnRoute) {
    let send = async |kind: &str, body: &[u8]| {
        let response = on.caller(row).send(row.method, &path(row), &[("Content-Type", kind)], body).await;
        on.saw(row, response)
    };
    if on.description.documents_status(row, "413") {
        send("application/json", &[b' '; 70_000]).await.expect_code(1413);
    }
    let body = &on.description.operation(row)["requestBody"];
    assert_eq!(on.description.documents_status(row, "415"), body.is_object(), "{row:?}");
    if body.is_object() {
        send("text/plain", b"x").await.expect_code(1415);
    }
    if body["content"]["application/json"].is_object() {
        send("application/json", b"{").await.expect_code(1400);
        send("application/json", b"{}").await.expect_code(1400);
    }
}

/// A head, and where there is one a body, that does not come to its end.
pub async fn too_slow() -> OpenApiDocument {
    let on = Survey::of("[limits]\nhead_deadline = \"1s\"\nbody_deadline = \"1s\"").await;
    let starts = TABLE.iter().map(async |row| {
        let caller = on.caller(row);
        let token = caller.token_if_any().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let line = format!("{} {} HTTP/1.1\r\nHost: {}\r\n{token}", row.method, path(row), on.desk.address());
        let body = on.description.documents_status(row, "413");
        let rest = if body { "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{" } else { "X-Half: " };
        let response = on.desk.send_raw(format!("{line}{rest}").as_bytes()).await.expect("a response");
        on.saw(row, response.expect_code(1408));
    });
    futures::future::join_all(starts).await;
    on.description
}

/// The second request in a minute, where one is allowed.
pub async fn too_many() -> OpenApiDocument {
    let mut on = Survey::of("").await;
    let mut paths: Vec<&str> = TABLE.iter().map(|row| row.path).collect();
    paths.dedup();
    let rate = "rate = [{ by = \"address\", limit = 1, per = \"1m\" }]";
    let rules: String = paths.iter().map(|path| format!("[[endpoint]]\npath = \"{path}\"\n{rate}\n")).collect();
    std::fs::write(on.desk.rules_file(), rules).expect("other rules");
    on.desk.signal("HUP");
    eventually("the other rules", || async { (on.desk.anonymous().get("/version").await.status == 429).then_some(()) })
        .await;
    for (number, row) in TABLE.iter().enumerate() {
        // What was counted for one row is not counted for the next of the same path.
        let caller = on.caller(row).with_header("X-Forwarded-For", &format!("198.51.100.{number}"));
        caller.send(row.method, &path(row), &[], b"").await;
        if row.endpoint == deskgate::endpoints::Endpoint::Logout {
            on.agent = on.desk.sign_in("a2001").await;
        }
        let caller = on.caller(row).with_header("X-Forwarded-For", &format!("198.51.100.{number}"));
        let response = on.ask(row, &caller, "", None).await.expect_code(1429);
        assert!(response.header("ratelimit").is_some(), "{}", response.describe());
    }
    on.description
}

/// The development routes do not exist elsewhere.
pub async fn outside_development_mode() -> OpenApiDocument {
    let desk = Gateway::setup().production().start().await;
    let description = OpenApiDocument::of(&desk).await;
    for row in TABLE.iter().filter(|row| row.path.starts_with("/api/dev/")) {
        let response = desk.anonymous().send(row.method, row.path, &[], b"").await.expect_code(1003);
        description.check(row, &response);
    }
    description
}
