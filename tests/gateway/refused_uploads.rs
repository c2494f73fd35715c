//! A client that is still sending when it is refused can read the refusal: the gateway closes its own side first.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use crate::support::*;

/// More than socket buffers hold.
const LARGE: usize = 10 << 20;

/// A request without its body, and the status that refuses it.
struct RefusedUpload {
    case: &'static str,
    line: &'static str,
    headers: &'static str,
    status: u16,
}

const REFUSED: &[RefusedUpload] = &[
    RefusedUpload { case: "no token", line: "POST /api/desk/x", headers: "Connection: close\r\n", status: 401 },
    RefusedUpload { case: "no token, kept alive", line: "POST /api/desk/x", headers: "", status: 401 },
    RefusedUpload { case: "no such path", line: "PUT /nowhere", headers: "Connection: close\r\n", status: 404 },
    RefusedUpload {
        case: "too large",
        line: "POST /api/auth/verify",
        headers: "Connection: close\r\nContent-Type: application/json\r\n",
        status: 413,
    },
    RefusedUpload {
        case: "too large, kept alive",
        line: "POST /api/auth/verify",
        headers: "Content-Type: application/json\r\n",
        status: 413,
    },
];

#[tokio::test]
async fn client_that_sends_everything_first_reads_its_refusal() {
    for (transport, desk) in [("plain", Gateway::start().await), ("TLS", Gateway::setup().tls().start().await)] {
        let body = vec![b'x'; LARGE];
        for RefusedUpload { case, line, headers, status } in REFUSED {
            let length = format!("{headers}Content-Length: {LARGE}\r\n");
            let mut connection = desk.connect().await;
            connection.send(&raw_request(&desk, line, &length, &body)).await;
            let response = connection.response().await.unwrap_or_else(|| panic!("{transport}, {case}: no response"));
            assert_eq!(response.status, *status, "{transport}, {case}: {}", response.describe());
            assert_eq!(response.header("connection"), Some("close"), "{transport}, {case}");
            assert!(connection.until_end().await.is_empty(), "{transport}, {case}: something behind the response");
        }
        assert!(desk.upstream.requests().is_empty(), "{transport}");
    }
}

#[tokio::test]
async fn client_that_sends_chunks_first_reads_its_refusal() {
    let desk = Gateway::start().await;
    let mut connection = desk.connect().await;
    let chunk = [&b"10000\r\n"[..], &[b'x'; 0x10000], b"\r\n"].concat();
    let body = [chunk.repeat(LARGE / 0x10000), b"0\r\n\r\n".to_vec()].concat();
    connection.send(&raw_request(&desk, "POST /api/desk/x", "Transfer-Encoding: chunked\r\n", &body)).await;
    connection.response().await.expect("a response").expect_bare_challenge();
}

#[tokio::test]
async fn client_that_sends_a_large_head_reads_its_refusal() {
    for desk in [Gateway::start().await, Gateway::setup().tls().start().await] {
        let mut connection = desk.connect().await;
        let large = format!("X-Large: {}\r\n", "x".repeat(4 << 20));
        connection.send(&raw_request(&desk, "GET /public/x", &large, b"")).await;
        connection.response().await.expect("a response").expect_code(1431);
    }
}

#[tokio::test]
async fn refused_client_cannot_send_for_ever() {
    let desk = Gateway::start().await;
    let connection = desk.connect().await;
    let (mut stream, _) = connection.into_parts();
    let head = raw_request(&desk, "POST /api/desk/x", "Transfer-Encoding: chunked\r\n", b"");
    stream.write_all(&head).await.expect("sent");
    let chunk = [&b"10000\r\n"[..], &[b'x'; 0x10000], b"\r\n"].concat();
    let mut sent = 0;
    let sending = async {
        while stream.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
        }
    };
    within(Duration::from_secs(40), "the end of the connection", sending).await;
    assert!(sent < 128 << 20, "{sent} bytes");
    desk.anonymous().get("/public/x").await.expect_status(200);
}

#[tokio::test]
async fn http2_client_that_sends_a_large_body_reads_its_refusal() {
    let desk = Gateway::setup().tls().start().await;
    let streams = desk.anonymous().http2().await;
    let body = vec![b'x'; LARGE];
    for RefusedUpload { case, line, headers, status } in REFUSED {
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let is_json = headers.contains("Content-Type");
        let headers: &[(&str, &str)] = if is_json { &[("content-type", "application/json")] } else { &[] };
        let response = streams.send(method, target, headers, &body).await;
        assert_eq!(response.status, *status, "{case}: {}", response.describe());
    }
}

#[tokio::test]
async fn http2_stream_of_a_refused_upload_is_reset_after_a_moment() {
    const NO_ERROR: [u8; 4] = [0; 4];
    let desk = Gateway::setup().tls().start().await;
    let mut frames = Http2Connection::open(&desk).await;
    let began = Instant::now();
    frames.send(&Http2Frame::head(1, &HeaderBlock::of(&desk, "POST", "/api/desk/x"))).await;
    frames.send(&Http2Frame::new(FrameKind::Data, 0, 1, &[b'x'; 1000])).await;
    let mut is_answered = false;
    let reset = loop {
        let frame = frames.next().await.expect("an open connection");
        match frame.kind {
            FrameKind::Data if frame.flags & END_STREAM != 0 => is_answered = true,
            FrameKind::RstStream => break frame,
            _ => {}
        }
    };
    assert!(is_answered, "the response comes first");
    assert_eq!(reset.payload, NO_ERROR);
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());

    // One that ends its body is not waited for.
    frames.send(&Http2Frame::head(3, &HeaderBlock::of(&desk, "POST", "/api/desk/x"))).await;
    frames.send(&Http2Frame::last_data(3, &[b'x'; 1000])).await;
    desk.wait_for_requests_in_flight(0.0).await;
}
