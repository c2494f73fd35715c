//! Request smuggling and size limits (attacks 82 to 86 and 89 of `docs/threats.md`).
//!
//! Each case hides a request for `/public/smuggled` where a parser that disagrees about the framing would find it.

use std::time::{Duration, Instant};

use crate::support::*;

/// The hidden request.
const SMUGGLED: &str = "GET /public/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A proxied path and an endpoint of the gateway.
const TARGETS: [&str; 2] = ["/public/x", "/api/auth/verify"];

/// Replaces `{T}` by the target, `{H}` by the gateway's host and `{S}` by the smuggled request.
fn fill(desk: &Gateway, case: &str, target: &str) -> Vec<u8> {
    case.replace("{T}", target).replace("{H}", &desk.address().to_string()).replace("{S}", SMUGGLED).into_bytes()
}

/// The time within which the gateway closes a refused connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Fails unless the gateway answers these bytes with one of these statuses and closes the connection.
async fn expect_refused_and_closed(desk: &Gateway, case: &str, bytes: &[u8], statuses: &[u16]) {
    let mut connection = desk.connect().await;
    connection.send(bytes).await;
    let response = expect_refusal(&mut connection, case, statuses).await;
    assert!(
        connection.closes_within(CLOSE_TIMEOUT).await,
        "{case}: the connection stays open after {}",
        response.describe()
    );
}

/// Fails unless the next response has one of these statuses.
async fn expect_refusal(connection: &mut Connection, case: &str, statuses: &[u16]) -> Response {
    let response = connection.response().await.unwrap_or_else(|| panic!("{case}: closed without a response"));
    assert!(statuses.contains(&response.status), "{case}: {}", response.describe());
    match response.status {
        // The contract has no code for 501.
        501 => response,
        status => response.expect_code(1000 + u64::from(status)),
    }
}

/// Fails unless these bytes get this status. The framing is unambiguous, so the connection may stay open.
async fn expect_over_limit(desk: &Gateway, case: &str, bytes: &[u8], status: u16) {
    let mut connection = desk.connect().await;
    connection.send(bytes).await;
    expect_refusal(&mut connection, case, &[status]).await;
}

/// Fails unless the upstream received exactly the requests for these targets. Sends one more request first, so that
/// all earlier ones have arrived.
async fn expect_upstream_targets(desk: &Gateway, targets: &[&str]) {
    desk.anonymous().get("/public/last").await.expect_status(200);
    let seen: Vec<String> = desk.upstream.requests().into_iter().map(|request| request.target).collect();
    let mut expected: Vec<&str> = targets.to_vec();
    expected.push("/public/last");
    assert_eq!(seen, expected, "targets at the upstream");
}

async fn expect_all_refused(table: &[(&str, &str)], statuses: &[u16]) {
    let desk = Gateway::start().await;
    for (case, text) in table {
        for target in TARGETS {
            expect_refused_and_closed(&desk, &format!("{case}, {target}"), &fill(&desk, text, target), statuses).await;
        }
    }
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn ambiguous_content_lengths_are_refused() {
    let table = [
        (
            "length, then chunked",
            "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{S}",
        ),
        (
            "chunked, then length",
            "POST {T} HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{S}",
        ),
        (
            "length zero and chunked",
            "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{S}",
        ),
        ("two lengths", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n{S}"),
        (
            "two equal lengths",
            "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello{S}",
        ),
        ("a list of lengths", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 5, 5\r\n\r\nhello{S}"),
        ("a list without a space", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 5,5\r\n\r\nhello{S}"),
        ("a plus sign", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: +5\r\n\r\nhello{S}"),
        ("a minus sign", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: -1\r\n\r\n{S}"),
        ("hexadecimal", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 0x5\r\n\r\nhello{S}"),
        ("twenty digits", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 99999999999999999999\r\n\r\nhello{S}"),
        ("2^64 + 5", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 18446744073709551621\r\n\r\nhello{S}"),
        ("a fraction", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 5.0\r\n\r\nhello{S}"),
        ("two numbers", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 5 5\r\n\r\nhello{S}"),
        ("an empty value", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: \r\n\r\n{S}"),
        ("a word", "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: five\r\n\r\nhello{S}"),
        (
            "on a GET",
            "GET {T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{S}",
        ),
    ];
    expect_all_refused(&table, &[400]).await;
}

#[tokio::test]
async fn a_transfer_coding_other_than_chunked_is_refused() {
    let mut table = Vec::new();
    for (case, lines) in [
        ("unknown", "Transfer-Encoding: xchunked\r\n"),
        ("chunked is not the last", "Transfer-Encoding: chunked, identity\r\n"),
        ("chunked twice", "Transfer-Encoding: chunked, chunked\r\n"),
        ("chunked on two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ("two lines that differ", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        ("identity", "Transfer-Encoding: identity\r\n"),
        ("gzip too", "Transfer-Encoding: gzip, chunked\r\n"),
        ("a vertical tab", "Transfer-Encoding: \x0bchunked\r\n"),
        ("a quoted word", "Transfer-Encoding: \"chunked\"\r\n"),
        ("a parameter", "Transfer-Encoding: chunked;q=1\r\n"),
        ("a comma", "Transfer-Encoding: ,chunked\r\n"),
        ("an empty value", "Transfer-Encoding: \r\n"),
        ("a space before the colon", "Transfer-Encoding : chunked\r\n"),
        ("a tab before the colon", "Transfer-Encoding\t: chunked\r\n"),
        ("a line break before the value", "Transfer-Encoding:\r\n chunked\r\n"),
    ] {
        table.push((case, format!("POST {{T}} HTTP/1.1\r\nHost: {{H}}\r\n{lines}\r\n0\r\n\r\n{{S}}")));
    }
    let old = "POST {T} HTTP/1.0\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{S}";
    table.push(("on HTTP/1.0", old.to_owned()));
    let table: Vec<(&str, &str)> = table.iter().map(|(case, text)| (*case, text.as_str())).collect();
    expect_all_refused(&table, &[400, 501]).await;
}

#[tokio::test]
async fn ambiguous_chunks_close_the_connection() {
    let desk = Gateway::start().await;
    let head = "POST {T} HTTP/1.1\r\nHost: {H}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    // A body of 13 bytes that the gateway's endpoint accepts; `{J}` below.
    let json = r#"{"token":"a"}"#;
    let valid = format!("{head}D;name=value\r\n{json}\r\n0\r\n\r\n");
    for target in TARGETS {
        desk.send_raw(&fill(&desk, &valid, target)).await.expect("a response").expect_status(200);
    }
    let mut faults = Vec::new();
    for (case, body) in [
        ("a prefix", "0xd\r\n{J}\r\n0\r\n\r\n"),
        ("a plus sign", "+d\r\n{J}\r\n0\r\n\r\n"),
        ("a minus sign", "-d\r\n{J}\r\n0\r\n\r\n"),
        ("a space before the size", " d\r\n{J}\r\n0\r\n\r\n"),
        ("a space before the extension", "d ;a=b\r\n{J}\r\n0\r\n\r\n"),
        ("a space before nothing", "d ;\r\n{J}\r\n0\r\n\r\n"),
        ("no size but an extension", "d\r\n{J}\r\n;\r\n\r\n"),
        ("an empty line", "d\r\n{J}\r\n\r\n\r\n"),
        ("no digits", "xyz\r\n{J}\r\n0\r\n\r\n"),
        ("seventeen digits", "0000000000000000d\r\n{J}\r\n0\r\n\r\n"),
        ("seventeen digits, overflowing", "1000000000000000d\r\n{J}\r\n0\r\n\r\n"),
        ("a line feed only", "d\n{J}\r\n0\r\n\r\n"),
        ("a line feed in an extension", "d;a\nb\r\n{J}\r\n0\r\n\r\n"),
        ("a carriage return in an extension", "d;a\rb\r\n{J}\r\n0\r\n\r\n"),
        ("longer than its size", "d\r\n{J}!\r\n0\r\n\r\n"),
        ("shorter than its size", "e\r\n{J}\r\n0\r\n\r\n"),
        ("no line end after the data", "d\r\n{J}0\r\n\r\n"),
        ("a line feed after the data", "d\r\n{J}\n0\r\n\r\n"),
    ] {
        for target in TARGETS {
            let body = body.replace("{J}", json);
            let mut connection = desk.connect().await;
            connection.send(&fill(&desk, &format!("{head}{body}{{S}}"), target)).await;
            let response = connection.response().await;
            let closed = connection.closes_within(CLOSE_TIMEOUT).await;
            match response {
                Some(response) if response.status == 400 && closed => drop(response.expect_code(1400)),
                // The upstream may already have received the head; the gateway then closes both connections.
                None if target == TARGETS[0] => {}
                Some(response) => faults.push(format!("{case}, {target}: {}, closed: {closed}", response.status)),
                None => faults.push(format!("{case}, {target}: closed without a response")),
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    desk.anonymous().get("/public/last").await.expect_status(200);
    for seen in desk.upstream.requests() {
        assert!(seen.target == "/public/last" || seen.target == "/public/x", "{} was smuggled", seen.target);
    }
}

#[tokio::test]
async fn malformed_heads_are_refused() {
    let table = [
        ("a bare carriage return in a value", "GET {T} HTTP/1.1\r\nHost: {H}\r\nX-Own: a\rb\r\n\r\n{S}"),
        ("a bare carriage return as a line end", "GET {T} HTTP/1.1\r\nHost: {H}\rX-Own: a\r\n\r\n{S}"),
        ("NUL in a value", "GET {T} HTTP/1.1\r\nHost: {H}\r\nX-Own: a\0b\r\n\r\n{S}"),
        ("NUL in a name", "GET {T} HTTP/1.1\r\nHost: {H}\r\nX-\0Own: a\r\n\r\n{S}"),
        ("a folded line", "GET {T} HTTP/1.1\r\nHost: {H}\r\nX-Own: a\r\n b\r\n\r\n{S}"),
        ("a line folded with a tab", "GET {T} HTTP/1.1\r\nHost: {H}\r\nX-Own: a\r\n\tb\r\n\r\n{S}"),
        ("a fold in the first line", "GET {T} HTTP/1.1\r\n X-Own: a\r\nHost: {H}\r\n\r\n{S}"),
        ("a line without a colon", "GET {T} HTTP/1.1\r\nHost: {H}\r\nX-Own\r\n\r\n{S}"),
        ("a line without a name", "GET {T} HTTP/1.1\r\nHost: {H}\r\n: a\r\n\r\n{S}"),
        ("a space in a name", "GET {T} HTTP/1.1\r\nHost: {H}\r\nX Own: a\r\n\r\n{S}"),
        ("a space before the colon", "GET {T} HTTP/1.1\r\nHost: {H}\r\nX-Own : a\r\n\r\n{S}"),
        ("a non-ASCII letter in a name", "GET {T} HTTP/1.1\r\nHost: {H}\r\nX-\u{d6}wn: a\r\n\r\n{S}"),
        ("no Host", "GET {T} HTTP/1.1\r\nX-Own: a\r\n\r\n{S}"),
        ("an empty Host", "GET {T} HTTP/1.1\r\nHost: \r\n\r\n{S}"),
        ("two Hosts", "GET {T} HTTP/1.1\r\nHost: {H}\r\nHost: evil.example\r\n\r\n{S}"),
        ("the same Host twice", "GET {T} HTTP/1.1\r\nHost: {H}\r\nhost: {H}\r\n\r\n{S}"),
        ("line feeds only", "GET {T} HTTP/1.1\nHost: {H}\n\n{S}"),
        ("one line feed", "GET {T} HTTP/1.1\r\nHost: {H}\nX-Own: a\r\n\r\n{S}"),
        ("a line feed at the end", "GET {T} HTTP/1.1\r\nHost: {H}\r\n\n{S}"),
    ];
    expect_all_refused(&table, &[400]).await;
}

#[tokio::test]
async fn malformed_request_lines_are_refused() {
    let desk = Gateway::start().await;
    for (case, text) in [
        ("HTTP/0.9", "GET {T}\r\n\r\n{S}"),
        ("HTTP/1.2", "GET {T} HTTP/1.2\r\nHost: {H}\r\n\r\n{S}"),
        ("HTTP/2.0", "GET {T} HTTP/2.0\r\nHost: {H}\r\n\r\n{S}"),
        ("HTTP/3", "GET {T} HTTP/3\r\nHost: {H}\r\n\r\n{S}"),
        ("another protocol", "GET {T} ICY/1.1\r\nHost: {H}\r\n\r\n{S}"),
        ("lower case", "GET {T} http/1.1\r\nHost: {H}\r\n\r\n{S}"),
        ("a fourth word", "GET {T} HTTP/1.1 x\r\nHost: {H}\r\n\r\n{S}"),
        ("a tab", "GET\t{T}\tHTTP/1.1\r\nHost: {H}\r\n\r\n{S}"),
        ("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03\r\n\r\n{S}"),
        ("the HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ] {
        for target in TARGETS {
            let mut connection = desk.connect().await;
            connection.send(&fill(&desk, text, target)).await;
            let bytes = BufferedStream::from_connection(connection).read_to_end_within(TEST_TIMEOUT).await;
            let response = String::from_utf8_lossy(&bytes);
            assert!(!response.contains(" 200 "), "{case}, {target}: {response}");
        }
    }
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn repeated_security_headers_are_refused() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let other = desk.sign_in("u1001").await;
    let (token, second) = (xiaoming.token(), other.token());
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let handshake = "GET /ws/employee HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    for (case, text) in [
        (
            "two tokens",
            format!(
                "GET /api/desk/x HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Bearer {token}\r\nAuthorization: Bearer {second}\r\n\r\n{{S}}"
            ),
        ),
        (
            "the same token twice",
            format!(
                "GET /api/desk/x HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Bearer {token}\r\nauthorization: Bearer {token}\r\n\r\n{{S}}"
            ),
        ),
        (
            "a token and another scheme",
            format!(
                "GET /api/desk/x HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Basic YTpi\r\nAuthorization: Bearer {token}\r\n\r\n{{S}}"
            ),
        ),
        (
            "two tokens on a public path",
            format!(
                "GET /public/x HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Bearer {token}\r\nAuthorization: Bearer {second}\r\n\r\n{{S}}"
            ),
        ),
        (
            "two tokens at a gateway endpoint",
            format!(
                "GET /api/auth/me HTTP/1.1\r\nHost: {{H}}\r\nAuthorization: Bearer {token}\r\nAuthorization: Bearer {second}\r\n\r\n{{S}}"
            ),
        ),
        (
            "two keys",
            format!(
                "{handshake}{key}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: bearer.{token}\r\n\r\n"
            ),
        ),
        ("the same key twice", format!("{handshake}{key}{key}Sec-WebSocket-Protocol: bearer.{token}\r\n\r\n")),
    ] {
        expect_refused_and_closed(&desk, case, &fill(&desk, &text, ""), &[400]).await;
    }
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn list_of_two_tokens_is_refused() {
    let desk = Gateway::start().await;
    let (one, two) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    let value = format!("Bearer {}, Bearer {}", one.token(), two.token());
    let response =
        desk.anonymous().send("GET", "/api/desk/x", &[("Authorization", &value)], b"").await.expect_code(1400);
    let challenge = response.header("www-authenticate").unwrap_or_default();
    assert!(challenge.contains("error=\"invalid_request\""), "RFC 6750: {}", response.describe());
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn body_is_never_parsed_as_a_request() {
    let desk = Gateway::start().await;
    let length = SMUGGLED.len();
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "POST"] {
        let target = format!("/public/{method}");
        for framing in [
            format!("Content-Length: {length}\r\n\r\n{SMUGGLED}"),
            format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        ] {
            desk.upstream.clear_requests();
            let mut connection = desk.connect().await;
            connection
                .send(format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n{framing}", desk.address()).as_bytes())
                .await;
            let response = match method {
                "HEAD" => connection.response_to_head().await,
                _ => connection.response().await,
            };
            response.unwrap_or_else(|| panic!("no response to {method}")).expect_status(200);
            let seen = desk.upstream.only_request();
            assert_eq!(seen.target, target);
            assert!(seen.body == SMUGGLED.as_bytes() || seen.body.is_empty(), "{method}: a truncated body");
            // The next response on this connection answers the next request.
            connection.send(format!("GET /api/desk/x HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).as_bytes()).await;
            if let Some(next) = connection.response().await {
                next.expect_bare_challenge();
            }
        }
    }
    desk.upstream.clear_requests();
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn body_of_a_refused_request_is_never_parsed_as_a_request() {
    let desk = Gateway::start().await;
    let length = SMUGGLED.len();
    for (case, head) in [
        ("no token", "POST /api/desk/x HTTP/1.1\r\nHost: {H}\r\n"),
        ("no rule", "POST /nowhere HTTP/1.1\r\nHost: {H}\r\n"),
        ("another method", "PUT /api/auth/verify HTTP/1.1\r\nHost: {H}\r\n"),
        ("no content type", "POST /api/auth/verify HTTP/1.1\r\nHost: {H}\r\n"),
        ("an unexpected body", "GET /api/auth/qrcode HTTP/1.1\r\nHost: {H}\r\n"),
        ("a body at /api/ready", "GET /api/ready HTTP/1.1\r\nHost: {H}\r\n"),
        ("a client that waits for 100", "POST /api/desk/x HTTP/1.1\r\nHost: {H}\r\nExpect: 100-continue\r\n"),
    ] {
        for framing in [
            format!("Content-Length: {length}\r\n\r\n{SMUGGLED}"),
            format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
            // This body never ends: all that follows belongs to it.
            format!("Content-Length: 100000\r\n\r\n{SMUGGLED}"),
        ] {
            let mut connection = desk.connect().await;
            connection.send(&fill(&desk, &format!("{head}{framing}"), "")).await;
            let Some(first) = connection.response().await else { continue };
            assert!(first.status != 100, "{case}: the client is asked to send the body");
            connection.send(format!("GET /public/next HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).as_bytes()).await;
            let mut end = BufferedStream::from_connection(connection);
            if framing.starts_with("Content-Length: 100000") {
                drop(end);
                continue;
            }
            let rest = end.read_until_idle(Duration::from_millis(300)).await;
            let text = String::from_utf8_lossy(&rest);
            assert!(text.matches("HTTP/1.1 ").count() <= 1, "{case}: two responses to one request: {text}");
        }
    }
    desk.anonymous().get("/public/last").await.expect_status(200);
    assert!(desk.upstream.requests().iter().all(|seen| seen.target != "/public/smuggled"));
}

#[tokio::test]
async fn early_refusal_does_not_wait_for_the_body() {
    let desk = Gateway::start().await;
    for expect in ["", "Expect: 100-continue\r\n"] {
        let head =
            format!("POST /api/desk/x HTTP/1.1\r\nHost: {}\r\n{expect}Content-Length: 1000\r\n\r\n", desk.address());
        let response = desk.send_raw(head.as_bytes()).await.expect("a response before the body");
        response.expect_bare_challenge();
    }
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn pipelined_requests_are_authorized_separately() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let host = desk.address();
    let bearer = format!("Authorization: Bearer {}\r\n", xiaoming.token());
    for (case, first, second, seen) in [
        (
            "the second has no token",
            format!("GET /api/desk/1 HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\n"),
            format!("GET /api/desk/2 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            vec!["/api/desk/1"],
        ),
        (
            "the first has no token",
            format!("GET /api/desk/1 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            format!("GET /api/desk/2 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            vec![],
        ),
        (
            "the second needs a role",
            format!("GET /api/desk/1 HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\n"),
            format!("GET /api/admin-desk/2 HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\n"),
            vec!["/api/desk/1"],
        ),
        (
            "the first is for a gateway endpoint",
            format!("GET /api/auth/me HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\n"),
            format!("GET /api/desk/2 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            vec![],
        ),
    ] {
        desk.upstream.clear_requests();
        let mut connection = desk.connect().await;
        connection.send(format!("{first}{second}").as_bytes()).await;
        let response = connection.response().await.expect("a response");
        assert_eq!(response.status == 200, case != "the first has no token", "{case}: {}", response.describe());
        // The gateway may close the connection here; otherwise the next response is that of the second request.
        if let Some(response) = connection.response().await {
            assert!(matches!(response.status, 401 | 403), "{case}: {}", response.describe());
        }
        expect_upstream_targets(&desk, &seen).await;
    }
}

#[tokio::test]
async fn late_body_is_read_after_earlier_requests() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let body = json!({ "token": xiaoming.token() }).to_string();
    let head = |framing: &str| {
        format!(
            "POST /api/auth/verify HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{framing}\r\n\r\n",
            desk.address()
        )
    };
    let mut connection = desk.connect().await;
    let chunked = format!("{}{:x}\r\n{body}\r\n0\r\n\r\n", head("Transfer-Encoding: chunked"), body.len());
    connection.send(chunked.as_bytes()).await;
    connection.response().await.expect("a response").expect_code(0);

    connection.send(head(&format!("Content-Length: {}", body.len())).as_bytes()).await;
    // Another client gets a response meanwhile, so the gateway has read only the head by then.
    desk.anonymous().get("/api/ready").await.expect_code(0);
    connection.send(body.as_bytes()).await;
    connection.response().await.expect("a response").expect_code(0);
}

#[tokio::test]
async fn too_many_headers_are_1431() {
    let desk = Gateway::start().await;
    let head = |count: usize| {
        let lines: String = (0..count).map(|number| format!("X-Own-{number}: a\r\n")).collect();
        format!("GET /public/x HTTP/1.1\r\nHost: {}\r\n{lines}\r\n", desk.address())
    };
    desk.send_raw(head(90).as_bytes()).await.expect("a response").expect_status(200);
    desk.send_raw(head(99).as_bytes()).await.expect("a response").expect_status(200);
    desk.upstream.clear_requests();
    for count in [100, 101, 200, 255] {
        expect_over_limit(&desk, &format!("{count} headers and Host"), head(count).as_bytes(), 431).await;
    }
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn headers_beyond_the_parser_limit_are_1431() {
    let desk = Gateway::start().await;
    for count in [256, 300, 1000] {
        let lines: String = (0..count).map(|number| format!("X-Own-{number}: a\r\n")).collect();
        let head = format!("GET /public/x HTTP/1.1\r\nHost: {}\r\n{lines}\r\n", desk.address());
        expect_over_limit(&desk, &format!("{count} headers and Host"), head.as_bytes(), 431).await;
    }
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn large_head_is_1431() {
    let desk = Gateway::start().await;
    let head = |length: usize| {
        format!("GET /public/x HTTP/1.1\r\nHost: {}\r\nX-Own: {}\r\n\r\n", desk.address(), "a".repeat(length))
    };
    desk.send_raw(head(30_000).as_bytes()).await.expect("a response").expect_status(200);
    desk.upstream.clear_requests();
    for length in [33_000, 65_536, 500_000] {
        expect_over_limit(&desk, &format!("{length} bytes"), head(length).as_bytes(), 431).await;
    }
    let many: String = (0..80).map(|number| format!("X-Own-{number}: {}\r\n", "a".repeat(800))).collect();
    let many = format!("GET /public/x HTTP/1.1\r\nHost: {}\r\n{many}\r\n", desk.address());
    expect_over_limit(&desk, "80 lines of 800", many.as_bytes(), 431).await;
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn endless_head_is_not_buffered() {
    let desk = Gateway::start().await;
    let mut connection = desk.connect().await;
    let start = format!("GET /public/x HTTP/1.1\r\nHost: {}\r\nX-Own: {}", desk.address(), "a".repeat(3 << 20));
    connection.send(start.as_bytes()).await;
    let bytes = BufferedStream::from_connection(connection).read_to_end_within(TEST_TIMEOUT).await;
    assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&bytes));
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn long_target_is_1414() {
    let desk = Gateway::start().await;
    let line = |length: usize, target: &str| {
        let target = format!("{target}{}", "a".repeat(length - target.len()));
        format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address())
    };
    for (length, start) in [(8_192, "/public/"), (16_384, "/public/x?q=")] {
        desk.send_raw(line(length, start).as_bytes()).await.expect("a response").expect_status(200);
    }
    desk.upstream.clear_requests();
    for start in ["/public/", "/public/x?q=", "/api/auth/qrcode?q=", "/nowhere/"] {
        let longer = if start.contains('?') { 16_385 } else { 8_193 };
        for length in [longer, 20_000, 30_000] {
            expect_over_limit(&desk, &format!("{length} bytes of {start}"), line(length, start).as_bytes(), 414).await;
        }
    }
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn target_beyond_the_head_limit_is_1414() {
    let desk = Gateway::start().await;
    for length in [33_000, 100_000, 500_000] {
        let line = format!("GET /public/{} HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(length), desk.address());
        expect_over_limit(&desk, &format!("{length} bytes"), line.as_bytes(), 414).await;
    }
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn body_limit_applies_to_gateway_endpoints_only() {
    let desk = Gateway::start().await;
    let large = vec![b' '; 10 << 20];
    let head =
        format!("POST /api/auth/verify HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n", desk.address());
    let mut announced = format!("{head}Content-Length: {}\r\n\r\n", large.len()).into_bytes();
    expect_refused_and_closed(&desk, "announced", &announced, &[413]).await;
    announced.extend_from_slice(&large[..200_000]);
    expect_refused_and_closed(&desk, "announced and sent", &announced, &[413]).await;
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..30 {
        chunked.extend_from_slice(b"1000\r\n");
        chunked.extend_from_slice(&large[..0x1000]);
        chunked.extend_from_slice(b"\r\n");
    }
    expect_refused_and_closed(&desk, "many chunks", &chunked, &[413]).await;
    desk.anonymous().post_body("/public/x", "text/plain", &large).await.expect_status(200);
    assert_eq!(desk.upstream.only_request().body.len(), large.len());
}

#[tokio::test]
async fn incomplete_head_is_timed_out() {
    let desk = Gateway::with("[limits]\nhead_deadline = \"500ms\"").await;
    let host = desk.address();
    for (case, start) in [
        ("one letter", "G".to_owned()),
        ("an incomplete request line", "GET /public/x HT".to_owned()),
        ("an incomplete head", format!("GET /public/x HTTP/1.1\r\nHost: {host}\r\nX-Own: a")),
        ("all but the last byte", format!("GET /public/x HTTP/1.1\r\nHost: {host}\r\n\r")),
    ] {
        let began = Instant::now();
        let mut connection = desk.connect().await;
        connection.send(start.as_bytes()).await;
        let response = connection.response().await;
        let took = began.elapsed();
        if let Some(response) = response {
            response.expect_code(1408);
        }
        assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(5), "{case}: after {took:?}");
    }
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn head_deadline_covers_the_whole_head() {
    let desk = Gateway::with("[limits]\nhead_deadline = \"500ms\"").await;
    let mut end = BufferedStream::from_connection(desk.connect().await);
    let began = Instant::now();
    end.send(format!("GET /public/x HTTP/1.1\r\nHost: {}\r\nX-Own: ", desk.address()).as_bytes()).await;
    // One byte at a time, each well within the deadline of the whole head.
    while end.is_silent_for(Duration::from_millis(50)).await {
        if end.try_send(b"a").await.is_err() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(5), "a slow head is not timed out");
    }
    assert!(began.elapsed() >= Duration::from_millis(400), "after {:?}", began.elapsed());
    let bytes = end.read_to_end_within(TEST_TIMEOUT).await;
    assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&bytes));
    expect_upstream_targets(&desk, &[]).await;
}

#[tokio::test]
async fn head_deadline_applies_to_every_request() {
    let desk = Gateway::with("[limits]\nhead_deadline = \"500ms\"").await;
    let mut connection = desk.connect().await;
    let whole = format!("GET /public/x HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address());
    connection.send(whole.as_bytes()).await;
    connection.response().await.expect("a response").expect_status(200);
    let began = Instant::now();
    connection.send(b"GET /public/y HTTP/1.1\r\n").await;
    if let Some(response) = connection.response().await {
        response.expect_code(1408);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "after {:?}", began.elapsed());
    expect_upstream_targets(&desk, &["/public/x"]).await;
}

#[tokio::test]
async fn idle_connection_is_closed() {
    let desk = Gateway::with("[limits]\nidle = \"1s\"\nhead_deadline = \"1s\"").await;
    for target in ["/public/x", "/api/ready"] {
        let mut connection = desk.connect().await;
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).as_bytes()).await;
        connection.response().await.expect("a response").expect_status(200);
        let began = Instant::now();
        assert!(connection.closes_within(Duration::from_secs(8)).await, "after {target}");
        assert!(began.elapsed() >= Duration::from_millis(700), "{target}: after {:?}", began.elapsed());
    }
    let mut silent = desk.connect().await;
    assert!(silent.closes_within(Duration::from_secs(8)).await, "a connection without a request");
}

#[tokio::test]
async fn slow_response_is_not_an_idle_connection() {
    let desk = Gateway::with("[limits]\nidle = \"1s\"\nhead_deadline = \"500ms\"").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut slow = desk.connect().await;
    slow.send(format!("GET /public/slow HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).as_bytes()).await;
    let mut upstream_connection = upstream_connections.next().await;
    // Waits longer than the idle timeout: two idle connections are closed in turn.
    for _ in 0..2 {
        assert!(desk.connect().await.closes_within(Duration::from_secs(8)).await);
    }
    upstream_connection.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
    assert_eq!(slow.response().await.expect("a response").text(), "done");
}
