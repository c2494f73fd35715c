//! `Forwarded` (RFC 7239), read from trusted proxies and written to upstreams if `server.forwarded` says so.

use crate::support::*;

fn setup(forwarded: &str) -> Setup {
    Gateway::setup().toml(&format!("[server]\nforwarded = \"{forwarded}\"\nclient_address = \"rightmost\""))
}

/// A request of each lane with these headers; returns what the upstream got.
async fn on_every_lane(desk: &Gateway, headers: &[(&str, &str)]) -> Vec<(&'static str, RecordedRequest)> {
    let mut seen = Vec::new();
    for (lane, method) in [("encoded head", "GET"), ("header map", "POST")] {
        desk.anonymous().send(method, "/public/x", headers, b"").await.expect_status(200);
        seen.push((lane, desk.upstream.last_request()));
    }
    let handshake = desk.anonymous().handshake("/ws/public");
    let handshake = headers.iter().fold(handshake, |handshake, (name, value)| handshake.header(name, value));
    handshake.expect_accepted().await.echo("hello").await;
    seen.push(("WebSocket", desk.upstream.last_request()));
    seen
}

#[tokio::test]
async fn forwarded_is_written_instead_of_x_forwarded() {
    let desk = setup("rfc7239").start().await;
    let host = desk.address();
    for (lane, seen) in on_every_lane(&desk, &[("Forwarded", "for=\"[2001:db8::9]:4711\";proto=ftp;host=evil")]).await {
        let expected = format!("for=\"[2001:db8::9]\";host=\"{host}\";proto=http, for=127.0.0.1");
        assert_eq!(seen.header_all("forwarded"), [expected], "{lane}");
        for name in ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"] {
            assert_eq!(seen.header(name), None, "{lane}: {name}");
        }
    }
    for (lane, seen) in on_every_lane(&desk, &[("X-Forwarded-For", "203.0.113.9")]).await {
        let expected = format!("for=127.0.0.1;host=\"{host}\";proto=http");
        assert_eq!(seen.header_all("forwarded"), [expected], "{lane}: X-Forwarded-For is not read");
        assert_eq!(seen.header("x-forwarded-for"), None, "{lane}");
    }
}

#[tokio::test]
async fn both_are_written_and_x_forwarded_for_is_read() {
    let desk = setup("both").start().await;
    let host = desk.address();
    let headers = [("Forwarded", "for=198.51.100.1"), ("X-Forwarded-For", "203.0.113.9")];
    for (lane, seen) in on_every_lane(&desk, &headers).await {
        let expected = format!("for=203.0.113.9;host=\"{host}\";proto=http, for=127.0.0.1");
        assert_eq!(seen.header_all("forwarded"), [expected], "{lane}");
        assert_eq!(seen.header_all("x-forwarded-for"), ["203.0.113.9, 127.0.0.1"], "{lane}");
    }
}

#[tokio::test]
async fn forwarded_is_neither_read_nor_passed_on_by_default() {
    let desk = Gateway::start().await;
    for value in ["for=203.0.113.9", "garbage"] {
        for (lane, seen) in on_every_lane(&desk, &[("Forwarded", value)]).await {
            assert_eq!(seen.header("forwarded"), None, "{lane}");
            assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"), "{lane}");
        }
    }
}

#[tokio::test]
async fn unreadable_forwarded_of_a_trusted_proxy_is_1400() {
    let desk = setup("rfc7239").start().await;
    for value in [
        "garbage",
        "for=unknown",
        "for=_hidden",
        "for=2001:db8::9",
        "for=203.0.113.9, garbage",
        "for=\"203.0.113.9",
        "for=203.0.113.9;for=203.0.113.10",
        "proto=https",
        "",
    ] {
        for method in ["GET", "POST"] {
            let response = desk.anonymous().send(method, "/public/x", &[("Forwarded", value)], b"").await;
            assert_eq!(response.code(), 1400, "{method}, {value}: {}", response.describe());
            assert!(response.message().starts_with("Forwarded "), "{}", response.message());
        }
    }
    let long = vec!["for=203.0.113.9"; 200].join(",");
    desk.anonymous().send("GET", "/public/x", &[("Forwarded", &long)], b"").await.expect_code(1400);
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn forwarded_of_an_untrusted_peer_is_ignored() {
    let desk = setup("rfc7239").toml("[server]\ntrusted_proxies = []").start().await;
    for value in ["for=203.0.113.9", "garbage"] {
        for (lane, seen) in on_every_lane(&desk, &[("Forwarded", value)]).await {
            let expected = format!("for=127.0.0.1;host=\"{}\";proto=http", desk.address());
            assert_eq!(seen.header_all("forwarded"), [expected], "{lane}");
        }
    }
}
