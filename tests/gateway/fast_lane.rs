//! The fast lane of HTTP/1.1: what it answers and sends is what Pingora's lane answers and sends.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::*;

async fn on_lane(fast_lane: &str) -> Gateway {
    Gateway::setup().set("server.fast_lane", fast_lane).start().await
}

/// The first of the generated requests and responses: `DESKGATE_FUZZ_SEED`, or 1.
pub(crate) fn fuzz_seed() -> u64 {
    std::env::var("DESKGATE_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// How long generated requests and responses are compared: `DESKGATE_FUZZ_SECONDS`, or as long as the fewest take.
pub(crate) fn fuzz_time() -> Duration {
    let seconds = std::env::var("DESKGATE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

/// What differs between two requests in any case.
const VARYING: [&str; 9] = [
    "authorization",
    "content-length",
    "date",
    "host",
    "traceparent",
    "x-deskgate-assertion",
    "x-deskgate-session-id",
    "x-forwarded-host",
    "x-request-id",
];

pub(crate) type Headers = BTreeMap<String, Vec<String>>;

/// Headers by their names in lower case, without the values that differ in any case: those of `VARYING`, and of `further`.
pub(crate) fn comparable(headers: &[(String, String)], further: &[&str]) -> Headers {
    let mut compared = Headers::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let is_varying = VARYING.contains(&&*name) || further.contains(&&*name);
        let value = if is_varying { "…".to_owned() } else { value.clone() };
        compared.entry(name).or_default().push(value);
    }
    compared
}

#[tokio::test]
async fn both_lanes_give_the_same_answers_and_send_the_same_requests() {
    let (fast, proxy) = (on_lane("true").await, on_lane("false").await);
    let tokens = [fast.sign_in("u1001").await.token().to_owned(), proxy.sign_in("u1001").await.token().to_owned()];
    let many = "X-Long: 0123456789\r\n".repeat(60);
    let requests = [
        ("a permitted request", "GET /api/desk/x?a=1&b=%20", "Authorization: Bearer TOKEN\r\n"),
        ("another method without a body", "DELETE /api/desk/x", "Authorization: Bearer TOKEN\r\n"),
        ("HEAD", "HEAD /public/x", ""),
        ("a name in capitals", "GET /public/x", "ACCEPT: text/html\r\nX-Custom:   spaced  \r\n"),
        ("identity headers", "GET /public/x", "X-Deskgate-Employee-Id: u9\r\nX_Deskgate_Roles: admin\r\n"),
        ("forwarding headers", "GET /public/x", "X-Forwarded-For: 10.0.0.9\r\nForwarded: for=10.0.0.9\r\n"),
        ("cookies", "GET /public/x", "Cookie: a=1; deskgate_x=2; b=3\r\n"),
        ("many headers", "GET /public/x", &many),
        ("a path that is not canonical", "GET /public/%7Ex", ""),
        ("no token", "GET /api/desk/x", ""),
        ("no token in Chinese", "GET /api/desk/x", "Accept-Language: zh-CN\r\n"),
        ("an invalid token", "GET /api/desk/x", "Authorization: Bearer x.y.z\r\n"),
        ("no rule", "GET /nowhere", ""),
        (
            "two repeated headers",
            "GET /public/x",
            "Authorization: Bearer x\r\nOrigin: a\r\nOrigin: a\r\nAuthorization: Bearer x\r\n",
        ),
        ("a parent segment", "GET /public/../x", ""),
        ("an endpoint of the gateway", "GET /api/auth/me", "Authorization: Bearer TOKEN\r\n"),
        ("a cacheable endpoint", "GET /api/auth/openapi.json", ""),
        ("an origin that is not allowed", "GET /public/x", "Origin: https://elsewhere.example\r\n"),
        ("a close", "GET /public/x", "Connection: close\r\n"),
        ("HTTP/1.1 with a nominated header", "GET /public/x", "Connection: X-Hop\r\nX-Hop: 1\r\n"),
    ];
    for (case, line, headers) in requests {
        let mut seen = Vec::new();
        for (desk, token) in [&fast, &proxy].into_iter().zip(&tokens) {
            desk.upstream.clear_requests();
            let mut connection = desk.connect().await;
            connection.send(&raw_request(desk, line, &headers.replace("TOKEN", token), b"")).await;
            let response = match line.starts_with("HEAD") {
                true => connection.response_to_head().await,
                false => connection.response().await,
            };
            let response = response.unwrap_or_else(|| panic!("{case}: no response"));
            let sent: Vec<_> = desk
                .upstream
                .requests()
                .iter()
                .map(|sent| (sent.target.clone(), comparable(&sent.headers, &[])))
                .collect();
            let code = if response.status == 200 { 0 } else { response.code() };
            seen.push((response.status, code, comparable(&response.headers, &[]), sent));
        }
        assert_eq!(seen[0], seen[1], "{case}");
    }
}

/// Several `Connection` lines are one list (RFC 9110, section 5.3).
#[tokio::test]
async fn close_in_any_connection_line_ends_the_connection_on_both_lanes() {
    for lane in ["true", "false"] {
        let desk = on_lane(lane).await;
        for lines in [
            "Connection: close\r\n",
            "Connection: X-Hop, Close\r\n",
            "Connection: X-Hop\r\nConnection: close\r\n",
            "Connection: keep-alive\r\nConnection: close\r\n",
            "Connection: \u{e9}\r\nConnection: close\r\n",
        ] {
            for (method, body) in [("GET", &b""[..]), ("POST", b"hi")] {
                let length = format!("Content-Length: {}\r\n", body.len());
                let lines = if body.is_empty() { lines.to_owned() } else { format!("{length}{lines}") };
                let mut connection = desk.connect().await;
                connection.send(&raw_request(&desk, &format!("{method} /public/x"), &lines, body)).await;
                let case = format!("{method}, fast_lane = {lane}, {lines:?}");
                let response = connection.response().await.unwrap_or_else(|| panic!("no response: {case}"));
                assert_eq!((response.status, response.header("connection")), (200, Some("close")), "{case}");
                assert!(connection.closes_within(TEST_TIMEOUT).await, "{case}");
            }
        }
    }
}

/// Also a refusal of a head that could not be parsed (RFC 9110, section 9.3.2).
#[tokio::test]
async fn refusal_of_a_head_request_has_no_body_on_both_lanes() {
    for lane in ["true", "false"] {
        let desk = on_lane(lane).await;
        let many = "X-Long: 0123456789\r\n".repeat(2000);
        for (status, lines) in [("400", "Host: user@desk.example\r\n"), ("431", &many), ("404", "")] {
            let host = if status == "400" { String::new() } else { format!("Host: {}\r\n", desk.address()) };
            let refused = async |method: &str| {
                let mut connection = desk.connect().await;
                let head = format!("{method} /nowhere HTTP/1.1\r\n{host}{lines}Connection: close\r\n\r\n");
                connection.send(head.as_bytes()).await;
                String::from_utf8_lossy(&connection.until_end().await).into_owned()
            };
            let [head, get] = [refused("HEAD").await, refused("GET").await];
            let case = format!("fast_lane = {lane}, {status}: {head:?}, {get:?}");
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")) && head.ends_with("\r\n\r\n"), "{case}");
            assert_eq!(head.matches("\r\n\r\n").count(), 1, "{case}");
            assert!(get.ends_with('}'), "{case}");
            assert_eq!(status == "400", get.contains("missing or invalid: Host"), "{case}");
        }
    }
}

#[tokio::test]
async fn refused_head_is_refused_whatever_its_body_on_both_lanes() {
    for lane in ["true", "false"] {
        let desk = on_lane(lane).await;
        let host = desk.address().to_string();
        let repeated = "desk.example@\r\nAuthorization: a\r\nAuthorization: b";
        for (host, named) in [("desk.example@", "Host"), (repeated, "Host"), ("a b", "Host"), (host.as_str(), "body")] {
            let mut connection = desk.connect().await;
            let head = format!("POST /public/x HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
            connection.send(format!("{head}0;a=b\r\nhello\r\n0\r\n\r\n").as_bytes()).await;
            let refused = String::from_utf8_lossy(&connection.until_end().await).into_owned();
            let case = format!("fast_lane = {lane}, {host}: {refused}");
            assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains(named), "{case}");
            assert_eq!(named == "Host", refused.contains("missing or invalid: Host"), "{case}");
        }
    }
}

#[tokio::test]
async fn responses_of_every_framing_arrive_whole() {
    let desk = on_lane("true").await;
    let table: [(&str, &[u8], Behaved); 5] = [
        ("a length", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Behaved::KeepsOpen),
        (
            "chunks",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            Behaved::KeepsOpen,
        ),
        ("until the end of the connection", b"HTTP/1.1 200 OK\r\n\r\nhello", Behaved::Closes),
        ("HTTP/1.0", b"HTTP/1.0 200 OK\r\n\r\nhello", Behaved::Closes),
        (
            "an informational one first",
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            Behaved::KeepsOpen,
        ),
    ];
    for (case, bytes, behaved) in table {
        desk.upstream.set_behaviour(match behaved {
            Behaved::KeepsOpen => Behaviour::Respond(bytes.to_vec()),
            Behaved::Closes => Behaviour::RespondAndClose(bytes.to_vec()),
        });
        let mut connection = desk.connect().await;
        for request in 0..2 {
            connection.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
            let mut response = connection.response().await.unwrap_or_else(|| panic!("{case}: no response"));
            if response.status == 103 {
                response = connection.response().await.unwrap_or_else(|| panic!("{case}: no final response"));
            }
            assert_eq!((response.status, response.text().as_str()), (200, "hello"), "{case}, request {request}");
        }
    }
}

enum Behaved {
    KeepsOpen,
    Closes,
}

#[tokio::test]
async fn a_response_with_two_meanings_is_refused_with_1502() {
    let desk = on_lane("true").await;
    for lines in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Content-Length: 5x\r\n",
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{lines}\r\nhello");
        desk.upstream.set_behaviour(Behaviour::RespondAndClose(bytes.into_bytes()));
        desk.anonymous().get("/public/x").await.expect_code(1502);
    }
    let bad_chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n";
    desk.upstream.set_behaviour(Behaviour::RespondAndClose(bad_chunk.to_vec()));
    desk.anonymous().get("/public/x").await.expect_code(1502);
}

/// What an upstream sends behind its response belongs to no request.
#[tokio::test]
async fn a_connection_with_a_byte_too_many_is_not_used_again() {
    let desk = on_lane("true").await;
    desk.upstream.set_behaviour(Behaviour::Respond(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n".to_vec(),
    ));
    for _ in 0..3 {
        assert_eq!(desk.anonymous().get("/public/x").await.expect_status(200).text(), "ok");
    }
    assert_eq!(desk.upstream.connections(), 3);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_across_the_lanes() {
    let desk = on_lane("true").await;
    let mut bytes = raw_request(&desk, "GET /public/1", "", b"");
    bytes.extend(raw_request(&desk, "POST /public/2", "Content-Length: 2\r\n", b"hi"));
    bytes.extend(raw_request(&desk, "GET /nowhere", "", b""));
    bytes.extend(raw_request(&desk, "GET /public/3", "", b""));
    let mut connection = desk.connect().await;
    connection.send(&bytes).await;
    for expected in ["/public/1", "/public/2", "", "/public/3"] {
        let response = connection.response().await.expect("a response");
        match expected {
            "" => drop(response.expect_code(1404)),
            target => assert_eq!(response.json()["target"], target),
        }
    }
}
