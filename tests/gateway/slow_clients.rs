//! Clients that never finish: request bodies that drip, responses that are not read, and what must not be cut.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use crate::support::*;

/// Far below what the tests' clients otherwise send.
const SETTINGS: &str = "[limits]\nbody_rate = 2000\nbody_grace = \"600ms\"";

/// Several graces.
const LONG: Duration = Duration::from_secs(2);

/// How soon a slow client is noticed, also on a busy machine.
const CUT_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two bytes that drip.
const DRIP: Duration = Duration::from_millis(50);

/// More than socket buffers hold.
const LARGE: usize = 64 << 20;

async fn start() -> Gateway {
    Gateway::with(SETTINGS).await
}

async fn start_with_tls() -> Gateway {
    Gateway::setup().tls().toml(SETTINGS).start().await
}

async fn expect_cuts(desk: &Gateway, count: usize) {
    let reached = || async { desk.metric("deskgate_limit_reached_total", &["limit=\"body_rate\""]).await };
    eventually(&format!("{count} cuts"), || async { Some(reached().await).filter(|cuts| *cuts >= count as f64) }).await;
    assert_eq!(reached().await, count as f64);
}

/// The begin of an upload and what its client then sends.
struct Drip {
    case: &'static str,
    headers: &'static str,
    begin: &'static [u8],
    piece: &'static [u8],
}

/// Sends pieces until the gateway answers or closes the connection. Returns what it sent.
async fn drip(stream: &mut Stream, piece: &[u8]) -> Vec<u8> {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < CUT_WITHIN, "not cut");
        if let Ok(read) = tokio::time::timeout(DRIP, stream.read(&mut buffer)).await {
            match read {
                Ok(count) if count > 0 => received.extend_from_slice(&buffer[..count]),
                Ok(_) | Err(_) => return received,
            }
        } else if received.is_empty() {
            let _ = stream.write_all(piece).await;
            let _ = stream.flush().await;
        }
    }
}

// ---- Uploads over HTTP/1.1.

#[tokio::test]
async fn upload_that_drips_is_1408() {
    let cases = [
        Drip { case: "a length", headers: "Content-Length: 100000\r\n", begin: b"", piece: b"x" },
        Drip { case: "a length, then silence", headers: "Content-Length: 100000\r\n", begin: b"begin", piece: b"" },
        Drip {
            case: "chunks",
            headers: "Transfer-Encoding: chunked\r\n",
            begin: b"5\r\nbegin\r\n",
            piece: b"1\r\nx\r\n",
        },
        Drip { case: "one long chunk", headers: "Transfer-Encoding: chunked\r\n", begin: b"ffff\r\n", piece: b"x" },
    ];
    for (transport, desk) in [("plain", start().await), ("TLS", start_with_tls().await)] {
        for Drip { case, headers, begin, piece } in &cases {
            let mut connection = desk.connect().await;
            connection.send(&raw_request(&desk, "POST /public/x", headers, begin)).await;
            let (mut stream, _) = connection.into_parts();
            let answer = drip(&mut stream, piece).await;
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("1408"), "{transport}, {case}: {answer}");
        }
        expect_cuts(&desk, cases.len()).await;
    }
}

#[tokio::test]
async fn upload_that_drips_to_a_gateway_endpoint_is_1408() {
    let desk = start().await;
    let mut connection = desk.connect().await;
    let headers = "Content-Type: application/json\r\nContent-Length: 1000\r\n";
    connection.send(&raw_request(&desk, "POST /api/auth/verify", headers, b"{")).await;
    let (mut stream, _) = connection.into_parts();
    let answer = drip(&mut stream, b" ").await;
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn upload_that_drips_behind_a_begun_response_is_cut() {
    let desk = start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "POST /public/x", "Content-Length: 100000\r\n", b"begin")).await;
    let mut upstream = upstream_connections.next().await.stream;
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").await;
    upstream.send(&[b'x'; 10_000]).await;
    let (mut stream, _) = connection.into_parts();
    let mut received = vec![0; 4096];
    let count = within(CUT_WITHIN, "the response", stream.read(&mut received)).await.expect("a response");
    assert!(received[..count].starts_with(b"HTTP/1.1 200"));
    let rest = BufferedStream::new(stream, Vec::new()).read_to_end_within(CUT_WITHIN).await;
    assert!(!String::from_utf8_lossy(&rest).contains("1408"), "a second response");
    upstream.read_to_end_within(CUT_WITHIN).await;
    expect_cuts(&desk, 1).await;
}

#[tokio::test]
async fn upload_above_the_rate_is_not_cut() {
    let desk = start().await;
    let mut connection = desk.connect().await;
    let piece = [b'x'; 1000];
    connection.send(&raw_request(&desk, "POST /public/x", "Content-Length: 41000\r\n", &piece)).await;
    for _ in 0..40 {
        sleep(DRIP).await;
        connection.send(&piece).await;
    }
    connection.response().await.expect("a response").expect_status(200);
    assert_eq!(desk.upstream.only_request().body.len(), 41_000);
    expect_cuts(&desk, 0).await;
}

#[tokio::test]
async fn upload_that_waits_for_its_upstream_is_not_cut() {
    let desk = start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    let body = byte_pattern(LARGE);
    let request = raw_request(&desk, "POST /public/x", &format!("Content-Length: {}\r\n", body.len()), &body);
    let upload = async {
        connection.send(&request).await;
        connection.response().await.expect("a response")
    };
    let upstream = async {
        let mut upstream = upstream_connections.next().await.stream;
        // The upstream takes nothing for several graces.
        sleep(LONG).await;
        let received = upstream.read_exactly(body.len()).await;
        upstream.send(&ok_response("", b"done")).await;
        received
    };
    let (response, received) = tokio::join!(upload, upstream);
    assert_eq!(response.expect_status(200).text(), "done");
    assert!(received == body);
    expect_cuts(&desk, 0).await;
}

#[tokio::test]
async fn slow_answer_to_a_complete_upload_is_not_cut() {
    let desk = start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "POST /public/x", "Content-Length: 4\r\n", b"body")).await;
    let mut upstream = upstream_connections.next().await.stream;
    sleep(LONG).await;
    upstream.send(&ok_response("", b"late")).await;
    assert_eq!(connection.response().await.expect("a response").text(), "late");
    expect_cuts(&desk, 0).await;
}

#[tokio::test]
async fn client_that_waits_for_100_is_not_cut() {
    let desk = start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    let headers = "Expect: 100-continue\r\nContent-Length: 5\r\n";
    connection.send(&raw_request(&desk, "POST /public/x", headers, b"")).await;
    let mut upstream = upstream_connections.next().await.stream;
    // The upstream takes several graces to decide.
    sleep(LONG).await;
    upstream.send(b"HTTP/1.1 100 Continue\r\n\r\n").await;
    connection.response().await.expect("a response").expect_status(100);
    connection.send(b"hello").await;
    assert_eq!(upstream.read_exactly(5).await, b"hello");
    upstream.send(&ok_response("", b"done")).await;
    assert_eq!(connection.response().await.expect("a response").expect_status(200).text(), "done");
    expect_cuts(&desk, 0).await;
}

#[tokio::test]
async fn client_that_drips_after_100_is_1408() {
    let desk = start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    let headers = "Expect: 100-continue\r\nContent-Length: 100000\r\n";
    connection.send(&raw_request(&desk, "POST /public/x", headers, b"")).await;
    let mut upstream = upstream_connections.next().await.stream;
    upstream.send(b"HTTP/1.1 100 Continue\r\n\r\n").await;
    connection.response().await.expect("a response").expect_status(100);
    let (mut stream, _) = connection.into_parts();
    let answer = drip(&mut stream, b"x").await;
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    expect_cuts(&desk, 1).await;
}

#[tokio::test]
async fn client_that_drips_without_its_100_is_1408() {
    let desk = start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    let headers = "Expect: 100-continue\r\nContent-Length: 100000\r\n";
    connection.send(&raw_request(&desk, "POST /public/x", headers, b"")).await;
    let _upstream = upstream_connections.next().await;
    let (mut stream, _) = connection.into_parts();
    let answer = drip(&mut stream, b"x").await;
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    expect_cuts(&desk, 1).await;
}

#[tokio::test]
async fn client_that_waits_for_100_waits_no_longer_than_for_the_upstream() {
    let desk = Gateway::with(&format!("{SETTINGS}\n[upstreams.helpdesk]\nanswer_timeout = \"2s\"")).await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    let headers = "Expect: 100-continue\r\nContent-Length: 5\r\n";
    connection.send(&raw_request(&desk, "POST /public/x", headers, b"")).await;
    let _upstream = upstream_connections.next().await;
    connection.response().await.expect("a response").expect_status(504);
    expect_cuts(&desk, 0).await;
}

#[tokio::test]
async fn no_minimum_rate_cuts_nothing() {
    let desk = Gateway::with("[limits]\nbody_rate = 0\nbody_grace = \"100ms\"").await;
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "POST /public/x", "Content-Length: 4\r\n", b"b")).await;
    sleep(LONG).await;
    connection.send(b"ody").await;
    connection.response().await.expect("a response").expect_status(200);
}

// ---- Responses over HTTP/1.1.

/// Sends a GET that its upstream has yet to answer. Returns both sides.
async fn begin_get(desk: &Gateway) -> (Connection, BufferedStream) {
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&raw_request(desk, "GET /public/x", "", b"")).await;
    (connection, upstream_connections.next().await.stream)
}

#[tokio::test]
async fn response_that_is_not_read_is_cut() {
    let body = byte_pattern(LARGE);
    for (transport, desk) in [("plain", start().await), ("TLS", start_with_tls().await)] {
        for (case, method) in [("encoded head", "GET"), ("header map", "POST")] {
            let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
            let mut connection = desk.connect().await;
            let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
            connection.send(&raw_request(&desk, &format!("{method} /public/x"), length, b"")).await;
            let mut upstream = upstream_connections.next().await.stream;
            let sent = within(CUT_WITHIN, "the end", upstream.try_send(&ok_response("", &body))).await;
            assert!(sent.is_err(), "{transport}, {case}: the upstream could send everything");
            drop(connection);
        }
        expect_cuts(&desk, 2).await;
    }
}

#[tokio::test]
async fn response_that_is_read_slowly_is_not_cut() {
    for (transport, desk) in [("plain", start().await), ("TLS", start_with_tls().await)] {
        let (connection, mut upstream) = begin_get(&desk).await;
        let response = ok_response("", &byte_pattern(LARGE));
        let (mut stream, _) = connection.into_parts();
        let reading = async {
            let (mut received, mut piece) = (0, vec![0; 1 << 20]);
            let slow_until = Instant::now() + LONG;
            while received < response.len() {
                if Instant::now() < slow_until && received % piece.len() < 64 * 1024 {
                    sleep(DRIP).await;
                }
                let count = stream.read(&mut piece).await.expect("an open connection");
                assert!(count > 0, "{transport}: the response ended after {received} bytes");
                received += count;
            }
        };
        let sending = async { upstream.try_send(&response).await.expect("a client that reads") };
        within(TEST_TIMEOUT, "the response", async { tokio::join!(reading, sending) }).await;
        expect_cuts(&desk, 0).await;
    }
}

#[tokio::test]
async fn silent_event_stream_is_not_cut() {
    for (transport, desk) in [("plain", start().await), ("TLS", start_with_tls().await)] {
        let (connection, mut upstream) = begin_get(&desk).await;
        upstream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: first\n\n").await;
        let mut client = BufferedStream::from_connection(connection);
        client.read_until(b"data: first\n\n\r\n").await;
        assert!(client.is_silent_for(LONG).await, "{transport}");
        upstream.send(b"data: second\n\n").await;
        client.read_until(b"data: second\n\n").await;
        expect_cuts(&desk, 0).await;
    }
}

#[tokio::test]
async fn idle_websocket_is_not_cut() {
    let desk = start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let handshake = desk.sign_in("u1001").await.handshake("/ws/employee");
    let (mut client, mut upstream) = open_tunnel(&desk, &mut upstream_connections, &handshake).await;
    assert!(client.is_silent_for(LONG).await);
    upstream.send(&[0x81, 2, b'o', b'k']).await;
    assert!(client.read_frame().await.is_some());
    expect_cuts(&desk, 0).await;
}

// ---- HTTP/2.

/// Reads frames until each of these streams was reset.
async fn expect_resets(frames: &mut Http2Connection, streams: &[u32]) {
    let mut open = streams.to_vec();
    while !open.is_empty() {
        let frame = within(CUT_WITHIN, "a reset", frames.next()).await.expect("an open connection");
        open.retain(|stream| frame.kind != FrameKind::RstStream || frame.stream != *stream);
    }
}

#[tokio::test]
async fn http2_uploads_that_drip_are_reset_and_others_go_on() {
    let desk = start_with_tls().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut frames = Http2Connection::open(&desk).await;
    let dripping: Vec<u32> = (0..30).map(|number| number * 2 + 1).collect();
    let block = HeaderBlock::of(&desk, "POST", "/public/x");
    let heads: Vec<Http2Frame> = dripping.iter().map(|stream| Http2Frame::head(*stream, &block)).collect();
    frames.send_all(&heads).await;
    let mut upstreams = Vec::new();
    for _ in &dripping {
        upstreams.push(upstream_connections.next().await.stream);
    }
    let bytes: Vec<Http2Frame> =
        dripping.iter().map(|stream| Http2Frame::new(FrameKind::Data, 0, *stream, b"x")).collect();
    for _ in 0..4 {
        frames.send_all(&bytes).await;
        sleep(DRIP).await;
    }
    expect_resets(&mut frames, &dripping).await;
    for upstream in &mut upstreams {
        let rest = upstream.read_to_end_within(CUT_WITHIN).await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "an incomplete upload was complete for the upstream");
    }
    expect_cuts(&desk, dripping.len()).await;
    desk.upstream.set_behaviour(Behaviour::Echo);
    frames.send(&Http2Frame::request(99, &HeaderBlock::get(&desk, "/public/x"))).await;
    assert_eq!(frames.reaction(99).await, PeerReaction::Responded, "the connection goes on");
}

#[tokio::test]
async fn http2_upload_that_drips_within_a_frame_ends_the_connection() {
    let desk = start_with_tls().await;
    let mut frames = Http2Connection::open(&desk).await;
    frames.send(&Http2Frame::head(1, &HeaderBlock::of(&desk, "POST", "/public/x"))).await;
    let data = Http2Frame::last_data(1, &[b'x'; 16_384]).bytes();
    let began = Instant::now();
    for byte in &data {
        if frames.flood(&[*byte], 1, CUT_WITHIN).await == 0 || frames.ends_within(DRIP).await {
            break;
        }
        assert!(began.elapsed() < CUT_WITHIN, "not cut");
    }
    expect_cuts(&desk, 1).await;
}

#[tokio::test]
async fn http2_upload_that_waits_for_its_upstream_is_not_cut() {
    let desk = start_with_tls().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let body = byte_pattern(16 << 20);
    let client = desk.anonymous().http2().await;
    let upload = client.send("POST", "/public/x", &[], &body);
    let upstream = async {
        let mut upstream = upstream_connections.next().await.stream;
        sleep(LONG).await;
        let mut received = Vec::new();
        while received.len() < body.len() {
            let size = String::from_utf8(upstream.read_until(b"\r\n").await).expect("a chunk size");
            let size = usize::from_str_radix(size.trim(), 16).expect("a chunk size");
            received.extend(upstream.read_exactly(size).await);
            upstream.read_exactly(2).await;
        }
        upstream.send(&ok_response("", b"done")).await;
        received
    };
    let (response, received) = tokio::join!(upload, upstream);
    assert_eq!(response.expect_status(200).text(), "done");
    assert!(received == body);
    expect_cuts(&desk, 0).await;
}

/// Opens a connection whose streams get no window.
async fn open_without_window(desk: &Gateway) -> Http2Connection {
    let mut frames = Http2Connection::open(desk).await;
    frames.send(&Http2Frame::new(FrameKind::Settings, 0, 0, &[0, 4, 0, 0, 0, 0])).await;
    frames
}

#[tokio::test]
async fn http2_responses_that_are_not_read_are_reset_and_others_go_on() {
    let desk = start_with_tls().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut frames = open_without_window(&desk).await;
    let streams: Vec<u32> = (0..10).map(|number| number * 2 + 1).collect();
    let block = HeaderBlock::get(&desk, "/public/x");
    let requests: Vec<Http2Frame> = streams.iter().map(|stream| Http2Frame::request(*stream, &block)).collect();
    frames.send_all(&requests).await;
    let response = ok_response("", &byte_pattern(1 << 20));
    let mut upstreams = Vec::new();
    for _ in &streams {
        let mut upstream = upstream_connections.next().await.stream;
        let _ = tokio::time::timeout(DRIP, upstream.try_send(&response)).await;
        upstreams.push(upstream);
    }
    expect_resets(&mut frames, &streams).await;
    for upstream in &mut upstreams {
        upstream.read_to_end_within(CUT_WITHIN).await;
    }
    expect_cuts(&desk, streams.len()).await;
    desk.upstream.set_behaviour(Behaviour::Respond(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()));
    frames.send(&Http2Frame::request(99, &block)).await;
    assert_eq!(frames.reaction(99).await, PeerReaction::Responded, "the connection goes on");
}

#[tokio::test]
async fn http2_response_that_is_read_slowly_is_not_cut() {
    let desk = start_with_tls().await;
    let body = byte_pattern(200_000);
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response("", &body)));
    let mut frames = open_without_window(&desk).await;
    frames.send(&Http2Frame::request(1, &HeaderBlock::get(&desk, "/public/x"))).await;
    let mut received = 0;
    let slow_until = Instant::now() + LONG;
    while received < body.len() {
        let more: u32 = if Instant::now() < slow_until { 500 } else { 1 << 20 };
        frames.send(&Http2Frame::new(FrameKind::WindowUpdate, 0, 1, &more.to_be_bytes())).await;
        frames.send(&Http2Frame::new(FrameKind::WindowUpdate, 0, 0, &more.to_be_bytes())).await;
        let until = tokio::time::Instant::now() + DRIP;
        while let Ok(frame) = tokio::time::timeout_at(until, frames.next()).await {
            let frame = frame.expect("an open connection");
            assert_ne!(frame.kind, FrameKind::RstStream, "reset after {received} bytes");
            received += if frame.kind == FrameKind::Data { frame.payload.len() } else { 0 };
        }
    }
    expect_cuts(&desk, 0).await;
}

#[tokio::test]
async fn http2_connection_that_is_not_read_is_closed() {
    let desk = start_with_tls().await;
    desk.upstream.set_behaviour(Behaviour::Respond(ok_response("", &byte_pattern(LARGE))));
    let mut frames = Http2Connection::open(&desk).await;
    // Windows for everything, and no byte is read.
    frames.send(&Http2Frame::new(FrameKind::Settings, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])).await;
    frames.send(&Http2Frame::new(FrameKind::WindowUpdate, 0, 0, &[0x7f, 0, 0, 0])).await;
    frames.send(&Http2Frame::request(1, &HeaderBlock::get(&desk, "/public/x"))).await;
    let ping = Http2Frame::new(FrameKind::Ping, 0, 0, &[7; 8]).bytes();
    let began = Instant::now();
    while frames.flood(&ping, 1, CUT_WITHIN).await == 1 {
        assert!(began.elapsed() < CUT_WITHIN, "not closed");
        sleep(DRIP).await;
    }
}

#[tokio::test]
async fn http2_silent_event_stream_is_not_cut() {
    let desk = start_with_tls().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let xiaoming = desk.sign_in("u1001").await;
    let client = xiaoming.http2().await;
    let mut stream = client.begin("GET", "/api/desk/x", xiaoming.token()).await;
    let mut upstream = upstream_connections.next().await.stream;
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: first\n\n").await;
    assert_eq!(stream.next_piece().await.expect("an event"), b"data: first\n\n");
    sleep(LONG).await;
    upstream.send(b"data: second\n\n").await;
    assert_eq!(stream.next_piece().await.expect("an event"), b"data: second\n\n");
    expect_cuts(&desk, 0).await;
}

/// What the slow read attack costs (RFC 9113, section 10.5): a client that asks for much and takes nothing.
#[tokio::test]
async fn http2_streams_without_window_cost_little_memory() {
    for (method, body) in [("GET", &b""[..]), ("POST", b""), ("POST", b"{}"), ("PUT", b"{}")] {
        let desk = Gateway::setup().tls().start().await;
        desk.upstream.set_behaviour(Behaviour::Respond(ok_response("", &byte_pattern(10 << 20))));
        desk.anonymous().http2().await.send(method, "/public/x", &[], body).await.expect_status(200);
        let before = desk.memory_kib("VmRSS");
        let mut connections = Vec::new();
        for _ in 0..3 {
            connections.push(open_unread_streams(&desk, method, body).await);
        }
        let growth = desk.memory_kib("VmRSS").saturating_sub(before) / connections.len();
        assert!(growth < 8 * 1024, "{method} {body:?}: {growth} KiB a connection of 100 streams");
    }
}

/// A hundred streams on which a response has begun and cannot go on.
async fn open_unread_streams(desk: &Gateway, method: &str, body: &[u8]) -> Http2Connection {
    let block = HeaderBlock::of(desk, method, "/public/x");
    let mut frames = open_without_window(desk).await;
    let streams = (0..100).map(|number| number * 2 + 1);
    let requests: Vec<Http2Frame> = match body {
        b"" => streams.map(|stream| Http2Frame::request(stream, &block)).collect(),
        _ => {
            streams.flat_map(|stream| [Http2Frame::head(stream, &block), Http2Frame::last_data(stream, body)]).collect()
        }
    };
    frames.send_all(&requests).await;
    let mut responded = 0;
    while responded < 100 {
        let frame = within(TEST_TIMEOUT, "a response", frames.next()).await.expect("an open connection");
        responded += usize::from(frame.kind == FrameKind::Headers);
    }
    frames
}

// ---- The deadline of uploads.

#[tokio::test]
async fn upload_beyond_its_deadline_is_1408() {
    let settings = "[limits]\nupload_deadline = \"1s\"\nbody_rate = 0";
    for (transport, desk) in
        [("plain", Gateway::with(settings).await), ("TLS", Gateway::setup().tls().toml(settings).start().await)]
    {
        let mut connection = desk.connect().await;
        connection.send(&raw_request(&desk, "POST /public/x", "Content-Length: 10000000\r\n", b"begin")).await;
        let (mut stream, _) = connection.into_parts();
        let answer = drip(&mut stream, &[b'x'; 1000]).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("1408"), "{transport}: {answer}");
        let reached = desk.metric("deskgate_limit_reached_total", &["limit=\"upload_deadline\""]).await;
        assert_eq!(reached, 1.0, "{transport}");
    }
}

#[tokio::test]
async fn http2_upload_beyond_its_deadline_is_reset() {
    let desk = Gateway::setup().tls().toml("[limits]\nupload_deadline = \"1s\"\nbody_rate = 0").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let streams = xiaoming.http2().await;
    let mut stream = streams.begin("POST", "/api/desk/x", xiaoming.token()).await;
    stream.send(b"begin").await;
    let ended = within(CUT_WITHIN, "the end of the stream", stream.next_piece()).await;
    assert!(ended.is_err(), "{ended:?}");
    streams.get("/api/desk/x").await.expect_status(200);
    let reached = desk.metric("deskgate_limit_reached_total", &["limit=\"upload_deadline\""]).await;
    assert_eq!(reached, 1.0);
}

#[tokio::test]
async fn deadline_of_uploads_does_not_concern_what_follows() {
    let desk = Gateway::with("[limits]\nupload_deadline = \"1s\"").await;
    let mut connection = desk.connect().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    connection.send(&raw_request(&desk, "POST /public/x", "Content-Length: 5\r\n", b"whole")).await;
    let mut upstream = upstream_connections.next().await.stream;
    // The upload is complete; its response may take longer.
    sleep(Duration::from_millis(1500)).await;
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    connection.response().await.expect("a response").expect_status(200);
}
