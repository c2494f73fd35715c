//! HTTP/2 requests that are no bodyless GETs: their connections to the upstream, retries and early ends.

use crate::support::*;

async fn start_with_tls() -> Gateway {
    Gateway::setup().tls().start().await
}

#[tokio::test]
async fn upstream_connections_are_reused() {
    let desk = start_with_tls().await;
    let client = desk.anonymous().http2().await;
    for (method, body) in [("POST", &b"body"[..]), ("GET", b""), ("PUT", b"body"), ("DELETE", b""), ("POST", b"")] {
        let response = client.send(method, "/public/x", &[], body).await.expect_status(200);
        assert_eq!(response.json()["body"].as_str().map(str::as_bytes), Some(body), "{method}");
    }
    assert!(desk.upstream.connections() <= 2, "{} connections for sequential requests", desk.upstream.connections());
}

#[tokio::test]
async fn upstream_gets_the_head_of_a_bodyless_get() {
    let desk = start_with_tls().await;
    let xiaoming = desk.sign_in("u1001").await;
    let client = xiaoming.http2().await;
    let headers = [
        ("accept", "text/html"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic eA=="),
        ("x-own", "one"),
        ("x-own", "two"),
        ("x-deskgate-roles", "admin"),
        ("x-forwarded-for", "9.9.9.9"),
    ];
    for target in ["/api/desk/x?a=b", "/public/%7Ex"] {
        desk.upstream.clear_requests();
        client.send("GET", target, &headers, b"").await.expect_status(200);
        client.send("DELETE", target, &headers, b"").await.expect_status(200);
        let seen = desk.upstream.wait_for_requests(2).await;
        let comparable = |seen: &RecordedRequest| {
            let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
            let mut lines: Vec<(String, String)> = seen.headers.iter().map(lower).collect();
            lines.retain(|(name, _)| !matches!(name.as_str(), "x-request-id" | "traceparent"));
            lines.sort();
            (seen.target.clone(), lines)
        };
        assert_eq!(comparable(&seen[0]), comparable(&seen[1]), "{target}");
        assert!(seen[1].header("te").is_none() && seen[1].header("proxy-authorization").is_none());
    }
}

/// Sends a request on a pooled connection that the upstream then closes.
async fn close_pooled_connection(
    client: &Http2Client,
    upstream_connections: &mut UpstreamConnections,
    method: &str,
) -> Option<UpstreamConnection> {
    let first = client.send("PUT", "/public/1", &[], b"first");
    let upstream = async {
        let mut upstream = upstream_connections.next().await;
        upstream.stream.send(&ok_response("", b"one")).await;
        upstream
    };
    let (first, mut upstream) = tokio::join!(first, upstream);
    assert_eq!(first.text(), "one");
    let second = client.send(method, "/public/2", &[], b"second");
    let retry = async {
        upstream.stream.read_until(b"second").await;
        drop(upstream);
        match method {
            "PUT" => {
                let mut retry = upstream_connections.next().await;
                retry.stream.read_until(b"second").await;
                retry.stream.send(&ok_response("", b"two")).await;
                Some(retry)
            }
            _ => None,
        }
    };
    let (second, retry) = tokio::join!(second, retry);
    match retry {
        Some(_) => assert_eq!(second.expect_status(200).text(), "two"),
        None => drop(second.expect_code(1502)),
    }
    retry
}

#[tokio::test]
async fn only_an_idempotent_request_is_retried_on_a_closed_pooled_connection() {
    for method in ["PUT", "POST"] {
        let desk = start_with_tls().await;
        let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
        let client = desk.anonymous().http2().await;
        let retry = close_pooled_connection(&client, &mut upstream_connections, method).await;
        assert_eq!(retry.map(|retry| retry.request.target), (method == "PUT").then(|| "/public/2".to_owned()));
    }
}

#[tokio::test]
async fn response_before_the_end_of_an_upload_is_relayed() {
    let desk = start_with_tls().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let xiaoming = desk.sign_in("u1001").await;
    let client = xiaoming.http2().await;
    let mut upload = client.begin("POST", "/api/desk/x", xiaoming.token()).await;
    upload.send(b"begin").await;
    let mut upstream = upstream_connections.next().await.stream;
    upstream.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large").await;
    assert_eq!(upload.next_piece().await.expect("a response"), b"too large");
    drop(upstream);
    client.get("/api/auth/me").await.expect_status(200);
}

#[tokio::test]
async fn both_bodies_are_relayed_at_the_same_time() {
    let desk = start_with_tls().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let xiaoming = desk.sign_in("u1001").await;
    let client = xiaoming.http2().await;
    let mut stream = client.begin("POST", "/api/desk/x", xiaoming.token()).await;
    let mut upstream = upstream_connections.next().await.stream;
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").await;
    for number in 0..5 {
        let piece = format!("piece {number}");
        stream.send(piece.as_bytes()).await;
        upstream.read_until(piece.as_bytes()).await;
        upstream.send(piece.as_bytes()).await;
        assert_eq!(stream.next_piece().await.expect("a piece"), piece.as_bytes());
    }
}

#[tokio::test]
async fn upstream_connection_closes_when_the_client_cancels() {
    let desk = start_with_tls().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let xiaoming = desk.sign_in("u1001").await;
    let client = xiaoming.http2().await;
    for part in ["", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"] {
        let mut upload = client.begin("POST", "/api/desk/x", xiaoming.token()).await;
        upload.send(b"begin").await;
        let mut upstream = upstream_connections.next().await.stream;
        upstream.read_until(b"begin").await;
        upstream.send(part.as_bytes()).await;
        drop(upload);
        let rest = upstream.read_to_end_within(TEST_TIMEOUT).await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{part:?}: an incomplete upload was complete for the upstream");
    }
}

#[tokio::test]
async fn truncated_response_is_reset() {
    let desk = start_with_tls().await;
    let client = desk.anonymous().http2().await;
    desk.upstream
        .set_behaviour(Behaviour::RespondAndClose(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec()));
    client.try_send("POST", "/public/x", &[], b"body", None).await.expect_err("half of a response");
    desk.upstream.set_behaviour(Behaviour::Echo);
    client.get("/public/x").await.expect_status(200);
}
