//! Requests that are unusual but legal, or that have a status of their own in HTTP: what the client is told, and what the
//! upstream sees. Each is sent through both lanes; ambiguous ones are in `framing.rs`.

use crate::support::*;

/// A gateway with the fast lane and one without.
async fn both_lanes() -> [(&'static str, Gateway); 2] {
    let on_lane = async |fast_lane| Gateway::setup().set("server.fast_lane", fast_lane).start().await;
    [("with the fast lane", on_lane("true").await), ("without the fast lane", on_lane("false").await)]
}

#[tokio::test]
async fn look_alikes_of_framing_headers_do_not_reach_the_upstream() {
    let lines =
        ["Transfer_Encoding: chunked", "Content_Length: 99", "transfer.encoding: chunked", "HTTP_CONTENT_LENGTH: 99"];
    for (lane, desk) in both_lanes().await {
        for (line, framing, body) in [
            ("GET /public/x", "", ""),
            ("HEAD /public/x", "", ""),
            ("POST /public/x", "Content-Length: 5\r\n", "hello"),
            ("POST /public/x", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ] {
            desk.upstream.clear_requests();
            let headers = format!("{}\r\n{framing}", lines.join("\r\n"));
            let mut connection = desk.connect().await;
            connection.send(&raw_request(&desk, line, &headers, body.as_bytes())).await;
            let response = match line.starts_with("HEAD") {
                true => connection.response_to_head().await,
                false => connection.response().await,
            };
            response.expect("a response").expect_status(200);
            let seen = desk.upstream.only_request();
            let head = String::from_utf8_lossy(&seen.head).into_owned();
            assert!(seen.headers.iter().all(|(name, _)| !name.contains(['_', '.'])), "{lane}, {line}:\n{head}");
            assert_eq!(seen.body.len(), if body.is_empty() { 0 } else { 5 }, "{lane}, {line}:\n{head}");
        }
    }
}

#[tokio::test]
async fn look_alikes_of_framing_headers_do_not_reach_the_upstream_over_http2() {
    let desk = Gateway::setup().tls().start().await;
    let lines = [("transfer_encoding", "chunked"), ("content_length", "99"), ("content.length", "99")];
    for (method, body) in [("GET", &b""[..]), ("POST", b"hello")] {
        desk.upstream.clear_requests();
        desk.anonymous().http2().await.send(method, "/public/x", &lines, body).await.expect_status(200);
        let seen = desk.upstream.only_request();
        let head = String::from_utf8_lossy(&seen.head).into_owned();
        assert!(seen.headers.iter().all(|(name, _)| !name.contains(['_', '.'])), "{method}:\n{head}");
        assert_eq!(seen.body, body, "{method}");
    }
}

#[tokio::test]
async fn an_empty_line_before_a_request_is_ignored() {
    for (lane, desk) in both_lanes().await {
        let mut connection = desk.connect().await;
        let post = raw_request(&desk, "POST /public/1", "Content-Length: 5\r\n", b"hello");
        let get = raw_request(&desk, "GET /public/2", "", b"");
        connection.send(&[b"\r\n", &post[..], b"\r\n", &get].concat()).await;
        for target in ["/public/1", "/public/2"] {
            let response = connection.response().await.unwrap_or_else(|| panic!("{lane}: no response"));
            assert_eq!(response.expect_status(200).json()["target"], target, "{lane}");
        }
        // Also if it comes by itself.
        connection.send(b"\r\n").await;
        connection.send(&raw_request(&desk, "GET /public/3", "", b"")).await;
        assert_eq!(connection.response().await.expect("a response").json()["target"], "/public/3", "{lane}");
        connection.send(&[b"\r\n\r\n", &get[..]].concat()).await;
        connection.response().await.expect("a response").expect_code(1400);
    }
}

#[tokio::test]
async fn options_about_the_whole_server_are_answered_by_the_gateway() {
    for (lane, desk) in both_lanes().await {
        let mut connection = desk.connect().await;
        for _ in 0..2 {
            connection.send(&raw_request(&desk, "OPTIONS *", "", b"")).await;
            let response = connection.response().await.expect("a response").expect_status(204);
            let allow = response.header("allow").unwrap_or_default();
            assert!(["GET", "POST", "OPTIONS"].iter().all(|method| allow.contains(method)), "{lane}: {allow}");
        }
        connection.send(&raw_request(&desk, "GET *", "", b"")).await;
        connection.response().await.expect("a response").expect_code(1400);
        let foreign = b"OPTIONS * HTTP/1.1\r\nHost: a b\r\n\r\n";
        desk.send_raw(foreign).await.expect("a response").expect_code(1400);
        assert!(desk.upstream.requests().is_empty(), "{lane}");
    }
}

/// The contract has no code for 417 and 505.
fn expect_1400_with_status(response: Option<Response>, status: u16, case: &str) {
    let response = response.unwrap_or_else(|| panic!("{case}: no response"));
    assert_eq!((response.status, response.code()), (status, 1400), "{case}: {}", response.describe());
}

#[tokio::test]
async fn an_expectation_other_than_100_continue_is_417() {
    for (lane, desk) in both_lanes().await {
        for value in ["nonsense", "100-continue, nonsense", "200-ok", ""] {
            for (line, framing) in [("GET /public/x", ""), ("POST /public/x", "Content-Length: 5\r\n")] {
                let mut connection = desk.connect().await;
                connection.send(&raw_request(&desk, line, &format!("Expect: {value}\r\n{framing}"), b"")).await;
                expect_1400_with_status(connection.response().await, 417, &format!("{lane}, {line}, {value}"));
            }
        }
        assert!(desk.upstream.requests().is_empty(), "{lane}");
    }
}

#[tokio::test]
async fn another_version_of_http_is_505() {
    for (lane, desk) in both_lanes().await {
        for version in ["HTTP/1.2", "HTTP/1.9", "HTTP/2.0", "HTTP/3.0", "HTTP/0.9"] {
            let head = format!("GET /public/x {version}\r\nHost: {}\r\n\r\n", desk.address());
            let case = format!("{lane}, {version}");
            let mut connection = desk.connect().await;
            connection.send(head.as_bytes()).await;
            expect_1400_with_status(connection.response().await, 505, &case);
            assert!(connection.closes_within(TEST_TIMEOUT).await, "{case}");
        }
        assert!(desk.upstream.requests().is_empty(), "{lane}");
    }
}

#[tokio::test]
async fn a_long_method_is_1431() {
    for (lane, desk) in both_lanes().await {
        for length in [33_000, 60_000, 100_000, 500_000] {
            let head =
                format!("{} /public/x HTTP/1.1\r\nHost: {}\r\n\r\n", "A".repeat(length), desk.address()).into_bytes();
            let response = desk.send_raw(&head).await.unwrap_or_else(|| panic!("{lane}: no response to {length}"));
            response.expect_code(1431);
        }
        assert!(desk.upstream.requests().is_empty(), "{lane}");
    }
}

#[tokio::test]
async fn a_malformed_chunk_extension_is_1400() {
    for (lane, desk) in both_lanes().await {
        let head = raw_request(&desk, "POST /public/x", "Transfer-Encoding: chunked\r\n", b"");
        for extension in [";", ";=b", ";a=", ";a b", ";a=\"b", ";a=\"b\"c", ";a;", " ;a"] {
            for at_once in [true, false] {
                let case = format!("{lane}, `{extension}`, with the head: {at_once}");
                let chunks = format!("5{extension}\r\nhello\r\n0\r\n\r\n");
                let mut connection = desk.connect().await;
                if at_once {
                    connection.send(&[&head[..], chunks.as_bytes()].concat()).await;
                } else {
                    let before = desk.upstream.connections();
                    connection.send(&head).await;
                    // The gateway has begun to forward the request when it reads the chunk.
                    eventually("a connection to the upstream", || async {
                        (desk.upstream.connections() > before || before > 0).then_some(())
                    })
                    .await;
                    connection.send(chunks.as_bytes()).await;
                }
                let response = connection.response().await.unwrap_or_else(|| panic!("{case}: no response"));
                response.expect_code(1400);
                assert!(connection.closes_within(TEST_TIMEOUT).await, "{case}");
            }
        }
        assert!(desk.upstream.requests().iter().all(|seen| seen.body.is_empty()), "{lane}");
        // One that is well-formed is accepted.
        let chunks = "5;a=b;c=\"d e\"\r\nhello\r\n0\r\n\r\n";
        let response = desk.send_raw(&[&head[..], chunks.as_bytes()].concat()).await.expect("a response");
        assert_eq!(response.expect_status(200).json()["body"], "hello", "{lane}");
    }
}

#[tokio::test]
async fn an_upgrade_to_h2c_is_ignored() {
    let settings = "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n";
    for (lane, desk) in both_lanes().await {
        for (line, headers, body) in [
            ("GET /public/x", "Connection: Upgrade\r\nUpgrade: h2c\r\n".to_owned(), ""),
            ("GET /public/x", format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: H2C\r\n{settings}"), ""),
            ("GET /public/x", format!("Upgrade: h2c\r\n{settings}"), ""),
            (
                "POST /public/x",
                format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n{settings}Content-Length: 5\r\n"),
                "hello",
            ),
        ] {
            desk.upstream.clear_requests();
            let mut connection = desk.connect().await;
            for _ in 0..2 {
                connection.send(&raw_request(&desk, line, &headers, body.as_bytes())).await;
                let response = connection.response().await.expect("a response").expect_status(200);
                assert_eq!(response.json()["body"], body, "{lane}, {headers}");
            }
            for seen in desk.upstream.requests() {
                let head = String::from_utf8_lossy(&seen.head).to_ascii_lowercase();
                assert!(!head.contains("upgrade") && !head.contains("http2-settings"), "{lane}:\n{head}");
            }
        }
    }
}

#[tokio::test]
async fn a_refused_handshake_ends_its_connection() {
    for (lane, desk) in both_lanes().await {
        for line in ["GET /public/../x", "GET /api/desk/x"] {
            let mut connection = desk.connect().await;
            let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
            connection.send(&raw_request(&desk, line, upgrade, b"")).await;
            let response = connection.response().await.expect("a response");
            assert!(response.status >= 400, "{lane}, {line}");
            assert_eq!(response.header("connection"), Some("close"), "{lane}, {line}");
        }
    }
}

#[tokio::test]
async fn a_refusal_of_a_head_that_cannot_be_parsed_has_a_date() {
    for (lane, desk) in both_lanes().await {
        let mut connection = desk.connect().await;
        connection.send(b"GET /public/x HTTP/1.1\r\nHost: 127.0.0.1@1\r\nNo colon\r\n\r\n").await;
        let response = connection.response().await.expect("a response");
        assert_eq!((response.status, response.code()), (400, 1400), "{lane}");
        assert!(response.header("date").is_some(), "{lane}");
    }
}
