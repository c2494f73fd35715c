//! Forged tokens: claims and sessions (attacks 10 to 17 and 22 to 26 of `docs/threats.md`). See `tokens.rs`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::*;

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("a time in range")
}

#[tokio::test]
async fn expired_tokens_are_refused() {
    let fixture = Fixture::new().await;
    let leeway = 30;
    fixture
        .assert_refused(
            "past by the leeway",
            &fixture.signed(&fixture.header, &fixture.claims_with("exp", json!(now() - leeway - 1))),
        )
        .await;
    fixture.assert_refused("long past", &fixture.signed(&fixture.header, &fixture.claims_with("exp", json!(1)))).await;
    fixture.assert_refused("missing", &fixture.signed(&fixture.header, &fixture.claims_without("exp"))).await;
    let fixture = Fixture::with("[token]\nleeway = \"0s\"").await;
    fixture
        .assert_refused("exactly now", &fixture.signed(&fixture.header, &fixture.claims_with("exp", json!(now()))))
        .await;
    fixture.assert_session_live().await;
}

#[tokio::test]
async fn time_claims_must_be_integers() {
    let fixture = Fixture::new().await;
    for claim in ["exp", "nbf", "iat"] {
        let good = fixture.claims[claim].to_string();
        for raw in [
            &format!("\"{good}\""),
            "1e400",
            "-1e400",
            &format!("-{good}"),
            &format!("[{good}]"),
            "null",
            "true",
            "{}",
            "NaN",
        ] {
            let token = fixture.key.token_of_text(fixture.header.to_string(), fixture.claims_raw(claim, raw));
            fixture.assert_refused(&format!("{claim} = {raw}"), &token).await;
        }
    }
    fixture.assert_session_live().await;
}

#[tokio::test]
async fn tokens_from_the_future_are_refused() {
    let fixture = Fixture::new().await;
    for (case, claim, time) in [
        ("nbf beyond the leeway", "nbf", now() + 120),
        ("nbf tomorrow", "nbf", now() + 86_400),
        ("iat tomorrow", "iat", now() + 86_400),
    ] {
        fixture.assert_refused(case, &fixture.signed(&fixture.header, &fixture.claims_with(claim, json!(time)))).await;
    }
}

#[tokio::test]
async fn duplicate_claims_are_refused() {
    let fixture = Fixture::new().await;
    let claims = fixture.claims.to_string();
    let inside = &claims[1..claims.len() - 1];
    let exp = fixture.claims["exp"].to_string();
    for (name, other) in [
        ("sub", "\"m5001\""),
        ("roles", "[\"admin\"]"),
        ("exp", exp.as_str()),
        ("jti", "\"x\""),
        ("current_role", "\"admin\""),
    ] {
        for (place, text) in [
            ("before", format!("{{\"{name}\":{other},{inside}}}")),
            ("behind", format!("{{{inside},\"{name}\":{other}}}")),
        ] {
            let token = fixture.key.token_of_text(fixture.header.to_string(), text);
            fixture.assert_refused(&format!("a second {name} {place} the first"), &token).await;
        }
    }
    let header = fixture.header.to_string();
    let doubled = format!("{{\"alg\":\"none\",{}", &header[1..]);
    fixture.assert_refused("a second alg", &fixture.key.token_of_text(doubled, &claims)).await;
}

#[tokio::test]
async fn wrong_issuer_or_audience_is_refused() {
    let fixture = Fixture::new().await;
    let issuer = fixture.desk.public_url();
    for (claim, value) in [
        ("iss", json!("https://evil.example")),
        ("iss", json!(format!("{issuer}/"))),
        ("iss", json!(format!("{issuer}.evil.example"))),
        ("iss", json!(null)),
        ("iss", json!([issuer])),
        ("iss", json!("")),
        ("aud", json!("helpdesk")),
        ("aud", json!("")),
        ("aud", json!(["helpdesk"])),
        ("aud", json!(["deskgate", "helpdesk"])),
        ("aud", json!([])),
        ("aud", json!(null)),
        ("aud", json!("Deskgate")),
    ] {
        let token = fixture.signed(&fixture.header, &fixture.claims_with(claim, value.clone()));
        fixture.assert_refused(&format!("{claim} = {value}"), &token).await;
    }
    for claim in ["iss", "aud"] {
        fixture
            .assert_refused(&format!("no {claim}"), &fixture.signed(&fixture.header, &fixture.claims_without(claim)))
            .await;
    }
}

#[tokio::test]
async fn wrong_typ_is_refused() {
    let fixture = Fixture::new().await;
    for typ in [json!("JWT"), json!("at+jwt2"), json!("bind+jwt"), json!("id_token"), json!(""), json!(1), json!(null)]
    {
        let header = fixture.header_with("typ", typ.clone());
        fixture.assert_refused(&format!("typ {typ}"), &fixture.signed(&header, &fixture.claims)).await;
    }
    let mut without = fixture.header.clone();
    without.as_object_mut().expect("an object").remove("typ");
    fixture.assert_refused("no typ", &fixture.signed(&without, &fixture.claims)).await;
}

#[tokio::test]
async fn cookies_and_assertions_are_not_access_tokens() {
    let fixture = Fixture::new().await;
    fixture.xiaoming.get("/api/desk/x").await.expect_status(200);
    let assertion =
        fixture.desk.upstream.last_request().header("x-deskgate-assertion").expect("an assertion").to_owned();
    fixture.desk.upstream.clear_requests();
    fixture.assert_refused("the upstream's assertion", &assertion).await;

    let partner = fixture.desk.phone("wwpartner/p7001");
    partner.authorize_url(&fixture.desk.client_url("h5")).await;
    let flow = partner.client().jar().pairs();
    partner.oauth2(&fixture.desk.client_url("h5")).await;
    let proof = partner.client().jar().pairs();
    assert!(!flow.is_empty() && !proof.is_empty());
    for (name, value) in flow.into_iter().chain(proof) {
        fixture.assert_refused(&format!("the cookie {name}"), &value).await;
    }
    let ticket = fixture.desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    fixture.assert_refused("a ticket", ticket["ticket"].as_str().expect("a ticket")).await;
    fixture.assert_refused("a session id", &jti_of(fixture.xiaoming.token())).await;
}

#[tokio::test]
async fn token_without_a_live_session_is_refused() {
    let fixture = Fixture::new().await;
    for jti in [
        json!("nobody"),
        json!(""),
        json!("A".repeat(22)),
        json!(null),
        json!(1),
        json!(["a"]),
        json!("*"),
        json!("' OR 1=1--"),
    ] {
        let token = fixture.signed(&fixture.header, &fixture.claims_with("jti", jti.clone()));
        fixture.assert_refused(&format!("jti = {jti}"), &token).await;
    }
    fixture.assert_refused("no jti", &fixture.signed(&fixture.header, &fixture.claims_without("jti"))).await;
}

#[tokio::test]
async fn identity_comes_from_the_session_not_the_claims() {
    let fixture = Fixture::new().await;
    for (claim, value) in [
        ("sub", json!("m5001")),
        ("roles", json!(["admin", "user"])),
        ("corp_id", json!("wwpartner")),
        ("name", json!("Somebody Else")),
    ] {
        let mut claims = fixture.claims_with(claim, value);
        if claim == "roles" {
            claims["current_role"] = json!("admin");
        }
        let client = fixture.desk.with_token(&fixture.signed(&fixture.header, &claims));
        let response = client.get("/api/auth/me").await;
        if response.status == 200 {
            let own = fixture.xiaoming.get("/api/auth/me").await.expect_code(0).data();
            assert_eq!(response.expect_code(0).data(), own, "{claim}");
        } else {
            response.expect_invalid_token();
        }
        let response = client.get("/api/admin-desk/x").await;
        assert!(matches!(response.status, 401 | 403), "{claim}: {}", response.describe());
    }
}

#[tokio::test]
async fn logout_revokes_the_token_on_64_connections() {
    let fixture = Fixture::new().await;
    let request = format!(
        "GET /api/desk/x HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        fixture.desk.address(),
        fixture.xiaoming.token()
    );
    let mut connections = Vec::new();
    for _ in 0..64 {
        let mut connection = fixture.desk.connect().await;
        connection.send(request.as_bytes()).await;
        connection.response().await.expect("a response").expect_status(200);
        connections.push(connection);
    }
    fixture.xiaoming.post("/api/auth/logout").await.expect_code(0);
    fixture.desk.upstream.clear_requests();
    let requests = connections.into_iter().map(|mut connection| {
        let request = request.as_bytes();
        async move {
            connection.send(request).await;
            connection.response().await
        }
    });
    for response in futures::future::join_all(requests).await {
        response.expect("a response").expect_invalid_token();
    }
    assert!(fixture.desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn deeply_nested_or_many_claims_are_refused() {
    let fixture = Fixture::new().await;
    let claims = fixture.claims.to_string();
    let inside = &claims[1..claims.len() - 1];
    let many: String = (0..300).map(|number| format!(",\"c{number}\":0")).collect();
    for (case, text) in [
        ("deep alone", format!("{}{}", "[".repeat(2500), "]".repeat(2500))),
        ("deep in a claim", format!("{{{inside},\"x\":{}{}}}", "[".repeat(2000), "]".repeat(2000))),
        ("deep and never closed", "{\"a\":".repeat(1000)),
        ("deep in roles", fixture.claims_raw("roles", &format!("{}{}", "[".repeat(2000), "]".repeat(2000)))),
        ("crowded, without a session", format!("{{\"jti\":\"x\"{many}}}")),
    ] {
        fixture.assert_refused(case, &fixture.key.token_of_text(fixture.header.to_string(), text)).await;
    }
    fixture.assert_session_live().await;
}

#[tokio::test]
async fn claims_must_be_clean_utf8() {
    let fixture = Fixture::new().await;
    let claims = fixture.claims.to_string();
    let with_bytes = |bytes: &[u8]| {
        let text = fixture.claims_raw("sub", "\"@\"");
        let (before, after) = text.split_once('@').expect("a place");
        [before.as_bytes(), bytes, after.as_bytes()].concat()
    };
    let table: Vec<(&str, Vec<u8>)> = vec![
        ("no UTF-8", with_bytes(b"\xff\xfe")),
        ("an overlong slash", with_bytes(b"\xc0\xaf")),
        ("half a surrogate", with_bytes(b"\\ud800")),
        ("an encoded surrogate", with_bytes(b"\xed\xa0\x80")),
        ("a raw line break", with_bytes(b"a\nb")),
        ("a byte order mark", [b"\xef\xbb\xbf", claims.as_bytes()].concat()),
        ("UTF-16", claims.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("trailing data", [claims.as_bytes(), b" x"].concat()),
        ("an array", b"[]".to_vec()),
        ("a text", b"\"u1001\"".to_vec()),
        ("nothing", Vec::new()),
        ("null", b"null".to_vec()),
    ];
    for (case, text) in table {
        fixture.assert_refused(case, &fixture.key.token_of_text(fixture.header.to_string(), text)).await;
    }
    let header = fixture.header.to_string();
    fixture
        .assert_refused(
            "a byte order mark before the header",
            &fixture.key.token_of_text(format!("\u{feff}{header}"), &claims),
        )
        .await;
    fixture
        .assert_refused("a header with trailing data", &fixture.key.token_of_text(format!("{header}{{}}"), &claims))
        .await;
    fixture.assert_refused("a header that is no object", &fixture.key.token_of_text("[]", &claims)).await;
    // Another `sub` is refused or ignored: the upstream gets the session's identity.
    for sub in ["u1001\u{202e}", "ｕ1001", "u1001\0", "u1001\r\nX-Deskgate-Roles: admin"] {
        let token = fixture.signed(&fixture.header, &fixture.claims_with("sub", json!(sub)));
        fixture.desk.with_token(&token).get("/api/desk/x").await;
        for seen in fixture.desk.upstream.requests() {
            assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"), "{sub:?}");
            assert_eq!(seen.header("x-deskgate-roles"), Some("user"), "{sub:?}");
        }
    }
}

#[tokio::test]
async fn roles_must_be_a_list_with_the_current_role() {
    let fixture = Fixture::new().await;
    for roles in [json!("admin"), json!({ "admin": true }), json!(null), json!([1]), json!([["user"]]), json!([null])] {
        let token = fixture.signed(&fixture.header, &fixture.claims_with("roles", roles.clone()));
        fixture.assert_refused(&format!("roles = {roles}"), &token).await;
    }
    for current in [json!("admin"), json!("User"), json!(""), json!(null), json!(["user"])] {
        let token = fixture.signed(&fixture.header, &fixture.claims_with("current_role", current.clone()));
        fixture.assert_refused(&format!("current_role = {current}"), &token).await;
    }
    for claim in ["roles", "current_role", "sub", "stage", "corp_id"] {
        let token = fixture.signed(&fixture.header, &fixture.claims_without(claim));
        fixture.assert_refused(&format!("no {claim}"), &token).await;
    }
    for stage in [json!("Full"), json!("half"), json!(""), json!(null), json!(1)] {
        let token = fixture.signed(&fixture.header, &fixture.claims_with("stage", stage.clone()));
        fixture.assert_refused(&format!("stage = {stage}"), &token).await;
    }
    fixture.assert_session_live().await;
}

#[tokio::test]
async fn tokens_of_a_removed_key_are_refused() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let kid = header_of(xiaoming.token())["kid"].as_str().expect("a kid").to_owned();
    desk.terminate().await;
    std::fs::remove_file(desk.data_dir().join("keys").join(format!("{kid}.pem"))).expect("the key's file");
    desk.restart().await;
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    xiaoming.get("/api/desk/x").await.expect_invalid_token();
    let again = desk.sign_in("u1001").await;
    assert_ne!(header_of(again.token())["kid"], kid.as_str());
    again.get("/api/desk/x").await.expect_status(200);
}
