//! What becomes of an upstream's response: ambiguous ones are refused, headers of the upstream's connection stay with the gateway,
//! and a response that is cut is never taken for a complete one. Without the fast lane; `fast_lane.rs` compares the lanes.

use crate::support::*;

/// Requests of HTTP/1.1 that take different ways through Pingora's lane.
const REQUESTS: [(&str, &str, &[u8]); 3] = [
    ("GET /public/x", "", b""),
    ("POST /public/x", "Content-Length: 5\r\n", b"hello"),
    ("PUT /public/x", "Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
];

async fn without_fast_lane() -> Gateway {
    Gateway::setup().set("server.fast_lane", "false").start().await
}

#[tokio::test]
async fn an_ambiguous_response_is_1502() {
    let desk = without_fast_lane().await;
    let secure = Gateway::setup().tls().start().await;
    for lines in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5x\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "X-Folded: a\r\n Content-Length: 5\r\n",
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{lines}\r\n5\r\nhello\r\n0\r\n\r\n").into_bytes();
        for desk in [&desk, &secure] {
            desk.upstream.set_behaviour(Behaviour::RespondAndClose(bytes.clone()));
        }
        for (line, headers, body) in REQUESTS {
            let response = desk.send_raw(&raw_request(&desk, line, headers, body)).await;
            let response = response.unwrap_or_else(|| panic!("{line}, {lines}: no response"));
            assert_eq!((response.status, response.code()), (502, 1502), "{line}, {lines}: {}", response.describe());
        }
        for (method, body) in [("GET", &b""[..]), ("POST", b"hello")] {
            let client = secure.anonymous().http2().await;
            client.send(method, "/public/x", &[], body).await.expect_code(1502);
        }
    }
    let bad_chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n";
    desk.upstream.set_behaviour(Behaviour::RespondAndClose(bad_chunk.to_vec()));
    for (line, headers, body) in REQUESTS {
        desk.send_raw(&raw_request(&desk, line, headers, body)).await.expect("a response").expect_code(1502);
    }
}

#[tokio::test]
async fn headers_of_the_upstreams_connection_are_not_relayed() {
    let desk = without_fast_lane().await;
    let secure = Gateway::setup().tls().start().await;
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive, X-Hop, Content-Length\r\nKeep-Alive: timeout=5\r\n\
        X-Hop: 1\r\nProxy-Authenticate: Basic\r\nTrailer: X-Later\r\nUpgrade: h2c\r\nX-Kept: 1\r\n\r\nok";
    for desk in [&desk, &secure] {
        desk.upstream.set_behaviour(Behaviour::Respond(response.to_vec()));
    }
    let mut responses = Vec::new();
    for (line, headers, body) in REQUESTS {
        let response = desk.send_raw(&raw_request(&desk, line, headers, body)).await.expect("a response");
        assert_eq!(response.header("connection"), Some("keep-alive"), "{line}");
        responses.push(response);
    }
    for (method, body) in [("GET", &b""[..]), ("POST", b"hello")] {
        responses.push(secure.anonymous().http2().await.send(method, "/public/x", &[], body).await);
    }
    for response in responses {
        assert_eq!(response.text(), "ok");
        assert_eq!(response.header("x-kept"), Some("1"), "{}", response.describe());
        assert_eq!(response.header("content-length"), Some("2"), "{}", response.describe());
        for name in ["keep-alive", "x-hop", "proxy-authenticate", "trailer", "upgrade", "transfer-encoding"] {
            assert_eq!(response.header(name), None, "{name}: {}", response.describe());
        }
    }
}

#[tokio::test]
async fn responses_that_have_no_body_have_no_framing() {
    let desk = without_fast_lane().await;
    for status in ["204 No Content", "304 Not Modified"] {
        for framing in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", ""] {
            let bytes =
                format!("HTTP/1.1 103 Early Hints\r\nLink: x\r\n{framing}\r\nHTTP/1.1 {status}\r\n{framing}\r\n");
            desk.upstream.set_behaviour(Behaviour::Respond(bytes.into_bytes()));
            for (line, headers, body) in REQUESTS {
                let mut connection = desk.connect().await;
                for _ in 0..2 {
                    connection.send(&raw_request(&desk, line, headers, body)).await;
                    for expected in [103, status[..3].parse().expect("a number")] {
                        let response = connection.response().await.expect("a response").expect_status(expected);
                        assert_eq!(response.header("content-length"), None, "{line}: {}", response.describe());
                        assert_eq!(response.header("transfer-encoding"), None, "{line}: {}", response.describe());
                    }
                }
            }
        }
    }
}

/// The first line of a response, and everything behind its head.
async fn status_line_and_rest(desk: &Gateway, request: &[u8]) -> (String, String, Vec<u8>) {
    let mut connection = desk.connect().await;
    connection.send(request).await;
    let bytes = connection.until_end().await;
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    (head.lines().next().unwrap_or_default().to_owned(), head, bytes[end..].to_vec())
}

#[tokio::test]
async fn the_status_line_is_http_1_1_whatever_the_upstream_speaks() {
    let desk = without_fast_lane().await;
    desk.upstream.set_behaviour(Behaviour::RespondAndClose(b"HTTP/1.0 200 Fine\r\n\r\nhello".to_vec()));
    for (line, headers, body) in REQUESTS {
        let request = raw_request(&desk, line, &format!("Connection: close\r\n{headers}"), body);
        let (line, head, rest) = status_line_and_rest(&desk, &request).await;
        assert_eq!(line, "HTTP/1.1 200 Fine");
        assert!(head.to_ascii_lowercase().contains("transfer-encoding: chunked\r\n"), "{head}");
        assert_eq!(rest, b"5\r\nhello\r\n0\r\n\r\n");
    }
}

#[tokio::test]
async fn http_1_0_clients_get_no_chunks() {
    let desk = without_fast_lane().await;
    for (case, bytes) in [
        ("chunks", &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"[..]),
        ("until the end of the connection", b"HTTP/1.1 200 OK\r\n\r\nhello"),
        ("an informational response", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nhello"),
    ] {
        desk.upstream.set_behaviour(Behaviour::RespondAndClose(bytes.to_vec()));
        for connection in ["", "Connection: keep-alive\r\n"] {
            for (line, headers, body) in [("GET", "", ""), ("POST", "Content-Length: 5\r\n", "hello")] {
                let host = desk.address();
                let request = format!("{line} /public/x HTTP/1.0\r\nHost: {host}\r\n{connection}{headers}\r\n{body}");
                let (line, head, rest) = status_line_and_rest(&desk, request.as_bytes()).await;
                assert_eq!(line, "HTTP/1.1 200 OK", "{case}");
                assert!(
                    head.contains("Connection: close\r\n") && !head.contains("Transfer-Encoding"),
                    "{case}: {head}"
                );
                assert_eq!(rest, b"hello", "{case}: {head}");
            }
        }
    }
}

#[tokio::test]
async fn head_over_http2_with_a_failing_upstream_is_a_complete_502() {
    let desk = Gateway::setup().tls().start().await;
    let client = desk.anonymous().http2().await;
    for behaviour in [
        Behaviour::CloseWithoutResponse,
        Behaviour::RespondAndClose(b"nonsense\r\n\r\n".to_vec()),
        Behaviour::RespondAndClose(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n".to_vec()),
    ] {
        desk.upstream.set_behaviour(behaviour);
        client.send("HEAD", "/public/x", &[], b"").await.expect_status(502);
    }
    desk.upstream.stop_listening().await;
    client.send("HEAD", "/public/x", &[], b"").await.expect_status(502);
}

#[tokio::test]
async fn what_has_come_of_a_response_is_passed_on_while_the_upstream_pauses() {
    let desk = without_fast_lane().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    for (line, headers, body) in REQUESTS {
        for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
            let mut client = BufferedStream::from_connection(desk.connect().await);
            client.send(&raw_request(&desk, line, headers, body)).await;
            let mut upstream = upstream_connections.next().await;
            let pieces = match head.starts_with("Content") {
                true => ["first", "later"],
                false => ["5\r\nfirst\r\n", "5\r\nlater\r\n0\r\n\r\n"],
            };
            upstream.stream.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes()).await;
            client.read_until(b"\r\n\r\n").await;
            for (piece, data) in pieces.into_iter().zip(["first", "later"]) {
                upstream.stream.send(piece.as_bytes()).await;
                client.read_until(data.as_bytes()).await;
            }
        }
    }
}

#[tokio::test]
async fn a_cut_response_ends_the_connection_and_is_not_counted_as_2xx() {
    let desk = without_fast_lane().await;
    const SUCCESSES: [&str; 1] = ["code_class=\"2xx\""];
    for (case, bytes) in [
        ("a length", &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"[..]),
        ("a length and nothing else", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
        ("chunks", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        ("within a chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhello"),
    ] {
        desk.upstream.set_behaviour(Behaviour::RespondAndClose(bytes.to_vec()));
        for (line, headers, body) in REQUESTS {
            let before = desk.metric("deskgate_requests_total", &SUCCESSES).await;
            let mut connection = desk.connect().await;
            connection.send(&raw_request(&desk, line, headers, body)).await;
            let seen = String::from_utf8_lossy(&connection.until_end().await).into_owned();
            assert!(seen.starts_with("HTTP/1.1 200 OK\r\n"), "{case}, {line}: {seen}");
            assert_eq!(seen.contains("hello"), bytes.ends_with(b"hello") || bytes.ends_with(b"hello\r\n"), "{case}");
            assert!(!seen.ends_with("0\r\n\r\n"), "{case}, {line}: {seen}");
            assert_eq!(desk.metric("deskgate_requests_total", &SUCCESSES).await, before, "{case}, {line}");
        }
    }
    // Nothing of the response has come.
    for bytes in [&b""[..], b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"] {
        desk.upstream.set_behaviour(Behaviour::RespondAndClose(bytes.to_vec()));
        for (line, headers, body) in REQUESTS {
            desk.send_raw(&raw_request(&desk, line, headers, body)).await.expect("a response").expect_code(1502);
        }
    }
}

#[tokio::test]
async fn a_cut_response_resets_an_http2_stream_and_is_not_counted_as_2xx() {
    let desk = Gateway::setup().tls().start().await;
    let client = desk.anonymous().http2().await;
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        desk.upstream.set_behaviour(Behaviour::RespondAndClose(bytes.to_vec()));
        for (method, body) in [("GET", &b""[..]), ("POST", b"hello")] {
            let before = desk.metric("deskgate_requests_total", &["code_class=\"2xx\""]).await;
            assert!(
                client.try_send(method, "/public/x", &[], body, None).await.is_err(),
                "{method}: a complete response"
            );
            assert_eq!(desk.metric("deskgate_requests_total", &["code_class=\"2xx\""]).await, before, "{method}");
        }
    }
}
