//! WebSocket handshakes: where the token may be, and that it does not reach the upstream.

use crate::support::*;

#[tokio::test]
async fn token_is_read_from_header_then_subprotocol_then_query() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let good = xiaoming.token();
    let (header, bad_header) = (format!("Bearer {good}"), "Bearer a.b.c".to_owned());
    let (protocol, bad_protocol) = (format!("bearer.{good}"), "bearer.a.b.c".to_owned());
    let (query, bad_query) = (format!("/ws/employee?token={good}"), "/ws/employee?token=a.b.c".to_owned());
    let plain = "/ws/employee".to_owned();
    for (case, target, authorization, offered, accepted) in [
        ("header", &plain, Some(&header), None, true),
        ("subprotocol", &plain, None, Some(&protocol), true),
        ("query", &query, None, None, true),
        ("header before subprotocol", &plain, Some(&header), Some(&bad_protocol), true),
        ("header before query", &bad_query, Some(&header), None, true),
        ("subprotocol before query", &bad_query, None, Some(&protocol), true),
        ("header before both", &bad_query, Some(&header), Some(&bad_protocol), true),
        ("a bad header decides", &plain, Some(&bad_header), Some(&protocol), false),
        ("a bad header decides, whatever the query", &query, Some(&bad_header), None, false),
        ("a bad subprotocol decides", &query, None, Some(&bad_protocol), false),
        ("a bad query", &bad_query, None, None, false),
    ] {
        desk.upstream.clear_requests();
        let mut handshake = desk.anonymous().handshake(target);
        if let Some(value) = authorization {
            handshake = handshake.header("Authorization", value);
        }
        if let Some(offer) = offered {
            handshake = handshake.protocols(&[offer]);
        }
        match handshake.open().await {
            Ok(mut socket) => {
                assert!(accepted, "{case}");
                socket.echo("hello").await;
                let seen = desk.upstream.only_request();
                let head = String::from_utf8_lossy(&seen.head).into_owned();
                assert_eq!(seen.target, "/ws/employee", "{case}");
                assert!(!head.contains(good) && !head.contains("a.b.c"), "{case}: a token was forwarded:\n{head}");
                assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"), "{case}");
            }
            Err(response) => {
                assert!(!accepted, "{case}: {}", response.describe());
                response.expect_invalid_token();
                assert!(desk.upstream.requests().is_empty(), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn handshake_without_token_is_refused_before_the_upgrade() {
    let desk = Gateway::start().await;
    let anonymous = desk.anonymous();
    anonymous.handshake("/ws/employee").expect_refused().await.expect_bare_challenge();
    anonymous.handshake("/ws/employee").protocols(&["chat"]).expect_refused().await.expect_bare_challenge();
    for empty in ["bearer.", "chat, bearer."] {
        let response = anonymous.handshake("/ws/employee").protocols(&[empty]).expect_refused().await;
        assert_eq!(response.status, 401, "{empty}: {}", response.describe());
        response.expect_code(1001);
    }
    for scheme in ["Basic YTpi", "Digest a", "Negotiate a", "Bearer", "Bearer  "] {
        anonymous
            .handshake("/ws/employee")
            .header("Authorization", scheme)
            .expect_refused()
            .await
            .expect_bare_challenge();
    }
    let token = desk.sign_in("u1001").await.token().to_owned();
    let cookie = format!("token={token}; access_token={token}");
    anonymous.handshake("/ws/employee").header("Cookie", &cookie).expect_refused().await.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn handshake_follows_the_rule_of_its_path() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.handshake("/ws/agent").expect_refused().await.expect_code(1003);
    xiaoming.handshake("/ws/nowhere").expect_refused().await.expect_code(1404);
    assert!(desk.upstream.requests().is_empty());
    xiaoming.websocket("/ws/employee").await.echo("hello").await;
    desk.sign_in("a2001").await.websocket("/ws/agent").await.echo("hello").await;
    desk.anonymous().websocket("/ws/public").await.echo("hello").await;
}

#[tokio::test]
async fn two_different_tokens_are_1400() {
    let desk = Gateway::start().await;
    let (one, two) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    let (first, second) = (format!("bearer.{}", one.token()), format!("bearer.{}", two.token()));
    let anonymous = desk.anonymous();
    anonymous.handshake("/ws/employee").protocols(&[&first, &second]).expect_refused().await.expect_code(1400);
    anonymous.handshake("/ws/employee").protocols(&[&first, "chat", &second]).expect_refused().await.expect_code(1400);
    let lines = anonymous.handshake("/ws/employee").protocols(&[&first]).header("Sec-WebSocket-Protocol", &second);
    lines.expect_refused().await.expect_code(1400);
    let query = format!("/ws/employee?token={}&token={}", one.token(), two.token());
    anonymous.handshake(&query).expect_refused().await.expect_code(1400);
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn query_token_is_stripped_and_counted() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let count = async || desk.metric("deskgate_websocket_query_tokens_total", &[]).await;
    assert_eq!(count().await, 0.0);
    for (number, (before, after)) in
        [("", ""), ("?a=1&", "?a=1"), ("?a=%20&b=c&", "?a=%20&b=c")].into_iter().enumerate()
    {
        let start = if before.is_empty() { "?" } else { before };
        let target = format!("/ws/employee{start}token={}", xiaoming.token());
        desk.anonymous().websocket(&target).await.echo("hello").await;
        assert_eq!(desk.upstream.last_request().target, format!("/ws/employee{after}"));
        assert_eq!(count().await, number as f64 + 1.0);
    }
    let middle = format!("/ws/employee?a=1&token={}&b=2", xiaoming.token());
    desk.anonymous().websocket(&middle).await.echo("hello").await;
    assert_eq!(desk.upstream.last_request().target, "/ws/employee?a=1&b=2");
    xiaoming.websocket("/ws/employee?mytoken=x&tokens=y").await.echo("hello").await;
    assert_eq!(desk.upstream.last_request().target, "/ws/employee?mytoken=x&tokens=y");
    assert_eq!(count().await, 4.0, "only handshakes that used the query token count");
    assert!(!String::from_utf8_lossy(&desk.upstream.all_bytes()).contains(xiaoming.token()));
    assert!(!desk.logs().contains(xiaoming.token()), "the token is in the log");
}

#[tokio::test]
async fn encoded_token_parameter_does_not_reach_the_upstream() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let token = xiaoming.token();
    for name in ["%74oken", "t%6Fken", "%74%6f%6b%65%6e"] {
        for path in ["/ws/employee", "/ws/public"] {
            desk.upstream.clear_requests();
            let target = format!("{path}?a=1&{name}={token}&b=2");
            xiaoming.websocket(&target).await.echo("hello").await;
            assert_eq!(desk.upstream.only_request().target, format!("{path}?a=1&b=2"), "{name}");
            // Accepted or not, the token must not be forwarded.
            drop(desk.anonymous().handshake(&target).open().await);
        }
    }
    let offered = format!("bearer.{token}");
    for offer in ["bearer.x", "chat, bearer.x", &offered] {
        xiaoming.with_header("Sec-WebSocket-Protocol", offer).get("/api/desk/x").await.expect_status(200);
        desk.anonymous().with_header("Sec-WebSocket-Protocol", offer).get("/public/x").await.expect_status(200);
    }
    let seen = String::from_utf8_lossy(&desk.upstream.all_bytes()).into_owned();
    assert!(!seen.contains(token) && !seen.contains("bearer."), "a token was forwarded:\n{seen}");
}

#[tokio::test]
async fn query_token_can_be_disabled() {
    let desk = Gateway::with("[websocket]\nquery_token = false").await;
    let xiaoming = desk.sign_in("u1001").await;
    let target = format!("/ws/employee?token={}", xiaoming.token());
    desk.anonymous().handshake(&target).expect_refused().await.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
    xiaoming.websocket("/ws/employee").await.echo("hello").await;
}

#[tokio::test]
async fn query_token_is_ignored_outside_websockets() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let query = format!("token={}", xiaoming.token());
    desk.anonymous().get(&format!("/api/desk/x?{query}")).await.expect_bare_challenge();
    desk.anonymous().get(&format!("/ws/employee?{query}")).await.expect_bare_challenge();
    let protocol = format!("bearer.{}", xiaoming.token());
    desk.anonymous().with_header("Sec-WebSocket-Protocol", &protocol).get("/api/desk/x").await.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn forward_token_rule_sends_the_token_upstream() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let bearer = format!("bearer.{}", xiaoming.token());
    xiaoming.websocket("/api/token-too/socket").await.echo("hello").await;
    assert_eq!(desk.upstream.last_request().header("sec-websocket-protocol"), Some(bearer.as_str()));
}
