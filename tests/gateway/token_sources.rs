//! Where a request may carry its token (attacks 27 to 33 of `docs/threats.md`).

use crate::support::*;

#[tokio::test]
async fn missing_token_gets_the_bare_challenge() {
    let desk = Gateway::start().await;
    for path in ["/api/desk/x", "/api/auth/me"] {
        desk.anonymous().get(path).await.expect_bare_challenge();
        for value in ["Bearer", "Bearer ", "Bearer     ", "bearer", ""] {
            desk.anonymous().with_header("Authorization", value).get(path).await.expect_bare_challenge();
        }
    }
    let response = desk.anonymous().handshake("/ws/employee").expect_refused().await;
    response.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn bearer_scheme_is_case_insensitive() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for scheme in ["Bearer", "bearer", "BEARER", "bEARER"] {
        let good = desk.anonymous().with_header("Authorization", &format!("{scheme} {}", xiaoming.token()));
        good.get("/api/desk/x").await.expect_status(200);
        good.get("/api/auth/me").await.expect_code(0);
        good.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
        good.handshake("/ws/employee").expect_accepted().await;
        desk.anonymous()
            .with_header("Authorization", &format!("{scheme} a.b.c"))
            .get("/api/desk/x")
            .await
            .expect_invalid_token();
    }
}

#[tokio::test]
async fn decorated_authorization_values_are_refused() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let token = xiaoming.token();
    for (case, value) in [
        ("two spaces", format!("Bearer  {token}")),
        ("a tab", format!("Bearer \t{token}")),
        ("a trailing comma", format!("Bearer {token},")),
        ("quotes", format!("Bearer \"{token}\"")),
        ("a parameter", format!("Bearer {token};x=1")),
        ("a name", format!("Bearer token={token}")),
        ("two words", format!("Bearer {token} {token}x")),
    ] {
        let response = desk.anonymous().with_header("Authorization", &value).get("/api/desk/x").await;
        assert_eq!(response.status, 401, "{case}: {}", response.describe());
        response.expect_invalid_token();
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn two_authorization_tokens_are_1400() {
    let desk = Gateway::start().await;
    let (xiaoming, other) = (desk.sign_in("u1001").await, desk.sign_in("m5001").await);
    let (one, two) = (format!("Bearer {}", xiaoming.token()), format!("Bearer {}", other.token()));
    for (case, values) in [
        ("two fields", vec![one.as_str(), two.as_str()]),
        ("the same twice", vec![&one, &one]),
        ("a bad one behind", vec![&one, "Bearer a.b.c"]),
        ("another scheme behind", vec![&one, "Basic YTpi"]),
        ("an empty one behind", vec![&one, ""]),
        ("in one field", vec![&format!("{one}, {two}")]),
    ] {
        for path in ["/api/desk/x", "/api/auth/me", "/public/x"] {
            // On a public route, two tokens in one field are an invalid token, which is ignored.
            if path == "/public/x" && values.len() == 1 {
                continue;
            }
            let headers: Vec<(&str, &str)> = values.iter().map(|value| ("Authorization", *value)).collect();
            let response = desk.anonymous().send("GET", path, &headers, b"").await;
            assert_eq!(response.status, 400, "{case} {path}: {}", response.describe());
            let response = response.expect_code(1400);
            let challenge = response.header("www-authenticate").unwrap_or_default();
            assert!(challenge.contains(r#"error="invalid_request""#), "{case} {path}: {}", response.describe());
        }
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn authorization_header_wins_over_other_token_sources() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let (good, bad) = (xiaoming.token(), "a.b.c");
    for (case, header, protocol, query, accepted) in [
        ("a good header", Some(good), Some(bad), Some(bad), true),
        ("a bad header", Some(bad), Some(good), Some(good), false),
        ("a good subprotocol", None, Some(good), Some(bad), true),
        ("a bad subprotocol", None, Some(bad), Some(good), false),
        ("a good query", None, None, Some(good), true),
        ("a bad query", None, None, Some(bad), false),
    ] {
        let target = query.map_or("/ws/employee".to_owned(), |token| format!("/ws/employee?token={token}"));
        let mut handshake = desk.anonymous().handshake(&target);
        if let Some(token) = header {
            handshake = handshake.header("Authorization", &format!("Bearer {token}"));
        }
        if let Some(token) = protocol {
            handshake = handshake.protocols(&[&format!("bearer.{token}")]);
        }
        match handshake.open().await {
            Ok(mut socket) => {
                assert!(accepted, "{case} was accepted");
                socket.echo(case).await;
            }
            Err(response) => {
                assert!(!accepted, "{case} was refused: {}", response.describe());
                response.expect_invalid_token();
            }
        }
    }
}

#[tokio::test]
async fn other_authorization_schemes_get_the_bare_challenge() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for value in [
        "Basic dTEwMDE6cGFzcw==".to_owned(),
        "Digest username=\"u1001\"".to_owned(),
        "Negotiate YWJj".to_owned(),
        format!("Token {}", xiaoming.token()),
        format!("Bearer{}", xiaoming.token()),
        format!("Bearerx {}", xiaoming.token()),
        xiaoming.token().to_owned(),
    ] {
        let response = desk.anonymous().with_header("Authorization", &value).get("/api/desk/x").await;
        response.expect_bare_challenge();
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn tokens_in_query_body_or_cookie_are_ignored() {
    let desk = Gateway::with("[websocket]\nquery_token = false").await;
    let xiaoming = desk.sign_in("u1001").await;
    let (anonymous, token) = (desk.anonymous(), xiaoming.token());
    anonymous.get(&format!("/api/desk/x?token={token}")).await.expect_bare_challenge();
    anonymous.get(&format!("/api/desk/x?access_token={token}")).await.expect_bare_challenge();
    anonymous.get(&format!("/api/auth/me?token={token}")).await.expect_bare_challenge();
    let form = format!("access_token={token}");
    anonymous
        .post_body("/api/desk/x", "application/x-www-form-urlencoded", form.as_bytes())
        .await
        .expect_bare_challenge();
    for name in ["token", "access_token", "Authorization", "deskgate"] {
        let cookie = format!("{name}={token}");
        anonymous.with_header("Cookie", &cookie).get("/api/desk/x").await.expect_bare_challenge();
    }
    // The subprotocol carries a token only in a handshake.
    let protocol = format!("bearer.{token}");
    anonymous.with_header("Sec-WebSocket-Protocol", &protocol).get("/api/desk/x").await.expect_bare_challenge();
    let response = anonymous.handshake(&format!("/ws/employee?token={token}")).expect_refused().await;
    response.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
}
