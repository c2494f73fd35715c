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
