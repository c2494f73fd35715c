//! Request bodies, the gateway's own endpoints and handshakes in the fast lane: the same as in Pingora's lane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::support::*;

async fn on_lane(fast_lane: &str) -> Gateway {
    Gateway::setup().set("server.fast_lane", fast_lane).start().await
}

/// A request body in chunks of these sizes.
fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in body.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

#[tokio::test]
async fn both_lanes_send_the_same_bodies_and_give_the_same_answers() {
    let (fast, proxy) = (on_lane("true").await, on_lane("false").await);
    let long = vec![b'x'; 200_000];
    let long_chunks = chunked(&long, 7000);
    let length = format!("Content-Length: {}\r\n", long.len());
    let chunks = "Transfer-Encoding: chunked\r\n";
    let requests: [(&str, &str, &str, &[u8]); 13] = [
        ("a short body", "POST /public/x", "Content-Length: 5\r\n", b"hello"),
        ("no body", "POST /public/x", "Content-Length: 0\r\n", b""),
        ("a long body", "PUT /public/x", &length, &long),
        ("chunks", "POST /public/x", chunks, b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"),
        ("many chunks", "PUT /public/x", chunks, &long_chunks),
        ("extensions and trailers", "POST /public/x", chunks, b"5;a=b\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n"),
        ("a GET with a body", "GET /public/x", "Content-Length: 5\r\n", b"hello"),
        ("a body without a token", "POST /api/desk/x", "Content-Length: 5\r\n", b"hello"),
        ("a chunked body without a token", "POST /api/desk/x", chunks, b"5\r\nhello\r\n0\r\n\r\n"),
        ("no rule", "POST /nowhere", "Content-Length: 5\r\n", b"hello"),
        ("an invalid chunk", "POST /public/x", chunks, b"5x\r\nhello\r\n0\r\n\r\n"),
        (
            "a body of an endpoint",
            "POST /api/auth/verify",
            "Content-Type: application/json\r\nContent-Length: 2\r\n",
            b"{}",
        ),
        (
            "a body that is too large for an endpoint",
            "POST /api/auth/verify",
            "Content-Type: application/json\r\nContent-Length: 100000\r\n",
            &long[..100_000],
        ),
    ];
    for (case, line, headers, body) in requests {
        let mut seen = Vec::new();
        for desk in [&fast, &proxy] {
            desk.upstream.clear_requests();
            let mut connection = desk.connect().await;
            connection.send(&raw_request(desk, line, headers, body)).await;
            let response = connection.response().await.unwrap_or_else(|| panic!("{case}: no response"));
            let code = if response.status == 200 { 0 } else { response.code() };
            let sent: Vec<_> = desk.upstream.requests().into_iter().map(|sent| (sent.method, sent.body)).collect();
            seen.push((response.status, code, sent));
        }
        assert_eq!(seen[0], seen[1], "{case}");
    }
}

/// Reading the rest would take as long as the client wants.
#[tokio::test]
async fn a_connection_ends_after_a_refusal_whose_body_was_not_read() {
    let desk = on_lane("true").await;
    for (headers, body) in
        [("Content-Length: 5\r\n", &b"hello"[..]), ("Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n")]
    {
        let mut connection = desk.connect().await;
        connection.send(&raw_request(&desk, "POST /api/desk/x", headers, body)).await;
        let response = connection.response().await.expect("a response").expect_code(1001);
        assert_eq!(response.header("connection"), Some("close"));
        assert!(connection.until_end().await.is_empty());
    }
}

/// The trailers of a chunked body come behind the gateway's headers, where an upstream might believe them.
#[tokio::test]
async fn trailers_and_extensions_of_a_request_do_not_reach_the_upstream() {
    let desk = on_lane("true").await;
    let body = b"2;X-Deskgate-Employee-Id=u9\r\nhi\r\n0\r\nX-Deskgate-Employee-Id: u9\r\n\r\n";
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "POST /public/x", "Transfer-Encoding: chunked\r\n", body)).await;
    connection.response().await.expect("a response").expect_status(200);
    assert!(!String::from_utf8_lossy(&desk.upstream.all_bytes()).to_ascii_lowercase().contains("u9"));
}

/// A trailer could be an identity header, which a client must not see.
#[tokio::test]
async fn trailers_and_extensions_of_a_response_do_not_reach_the_client() {
    let desk = on_lane("true").await;
    let answer =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\nX-Deskgate-Roles: admin\r\n\r\n";
    desk.upstream.set_behaviour(Behaviour::Respond(answer.to_vec()));
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "GET /public/x", "Connection: close\r\n", b"")).await;
    let bytes = String::from_utf8_lossy(&connection.until_end().await).into_owned();
    assert!(bytes.ends_with("\r\n\r\n2\r\nhi\r\n0\r\n\r\n"), "{bytes}");
}

/// An upstream that answers 413 and closes does not lose its answer, although the client is still sending.
#[tokio::test]
async fn a_response_that_comes_before_the_upload_ends_is_relayed() {
    let desk = on_lane("true").await;
    let answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig";
    desk.upstream.set_behaviour(Behaviour::Script(Arc::new(move |_, mut stream, _| {
        Box::pin(async move { stream.write_all(answer).await.expect("answered") })
    })));
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "POST /public/x", "Content-Length: 1000000\r\n", &[b'x'; 1000])).await;
    let response = connection.response().await.expect("a response");
    assert_eq!((response.status, response.text().as_str()), (413, "big"));
    assert_eq!(response.header("connection"), Some("close"));
}

/// What has come of a body is read before a response begins, because a request whose body is unread closes its connection.
#[tokio::test]
async fn a_connection_serves_on_after_a_response_that_comes_together_with_the_end_of_the_body() {
    let bodies = [
        ("Content-Length: 5\r\n", &b"hel"[..], &b"lo"[..]),
        ("Transfer-Encoding: chunked\r\n", b"3\r\nhel\r\n", b"2\r\nlo\r\n0\r\n\r\n"),
    ];
    let responses = ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK", "HTTP/1.1 204 No Content\r\n\r\n"];
    for lane in ["true", "false"] {
        // One thread, which sees the response and the rest of the body at once.
        let desk = Gateway::setup().set("server.fast_lane", lane).set("server.threads", "1").start().await;
        // Which of the two it looks at first may be a matter of luck.
        for (round, (headers, begun, rest)) in bodies.repeat(8).into_iter().enumerate() {
            let response = responses[round / 2 % 2];
            let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
            let mut client = BufferedStream::from_connection(desk.connect().await);
            client.send(&raw_request(&desk, "POST /public/x", headers, begun)).await;
            let mut upstream = upstream_connections.next().await.stream;
            upstream.read_until(b"hel").await;
            desk.pause().await;
            client.send(rest).await;
            client.until_delivered().await;
            upstream.send(response.as_bytes()).await;
            desk.resume();
            let head = String::from_utf8_lossy(&client.read_until(b"\r\n\r\n").await).to_ascii_lowercase();
            assert!(head.contains("\r\nconnection: keep-alive\r\n"), "fast lane {lane}, {headers}{head}");
            upstream.read_until(rest).await;
            drop(upstream);
            desk.upstream.set_behaviour(Behaviour::Echo);
            client.send(&raw_request(&desk, "GET /public/next", "", b"")).await;
            client.read_until(b"/public/next").await;
        }
    }
}

/// An upstream that answers and reads no more of the request.
#[tokio::test]
async fn a_response_that_comes_while_the_upload_is_blocked_is_relayed() {
    const MOST: usize = 64 << 20;
    for lane in ["true", "false"] {
        let desk = on_lane(lane).await;
        let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
        let mut client = BufferedStream::from_connection(desk.connect().await);
        client.send(&raw_request(&desk, "POST /public/x", &format!("Content-Length: {MOST}\r\n"), b"")).await;
        let mut upstream = upstream_connections.next().await.stream;
        client.send_until_blocked(&[b'x'; 64 * 1024], MOST).await;
        upstream.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig").await;
        let response = String::from_utf8_lossy(&client.read_until(b"big").await).to_ascii_lowercase();
        assert!(response.contains("\r\nconnection: close\r\n"), "fast lane {lane}: {response}");
    }
}

/// A large upload whose response, without a length, has begun; the upload is blocked, because the upstream reads nothing of it.
async fn blocked_upload(desk: &Gateway) -> (BufferedStream, BufferedStream) {
    const MOST: usize = 64 << 20;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut client = BufferedStream::from_connection(desk.connect().await);
    client.send(&raw_request(desk, "POST /public/x", &format!("Content-Length: {MOST}\r\n"), b"")).await;
    let mut upstream = upstream_connections.next().await.stream;
    upstream.send(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n\r\ntoo ").await;
    client.read_until(b"too ").await;
    client.send_until_blocked(&[b'x'; 64 * 1024], MOST).await;
    (client, upstream)
}

/// A response without a length ends with its connection, whether the upstream has read the request or not.
#[tokio::test]
async fn a_response_without_a_length_is_complete_although_the_upload_fails() {
    for lane in ["true", "false"] {
        let desk = on_lane(lane).await;
        // Whether the failure of the upload or the end of the response is seen first is a matter of luck.
        for _ in 0..5 {
            let (mut client, mut upstream) = blocked_upload(&desk).await;
            upstream.send(b"large").await;
            let (mut stream, _) = upstream.into_parts();
            stream.shutdown().await.expect("the end of the response");
            // With unread bytes: resets the connection.
            drop(stream);
            let rest = String::from_utf8_lossy(&client.read_to_end_within(TEST_TIMEOUT).await).into_owned();
            assert!(rest.contains("large") && rest.ends_with("\r\n0\r\n\r\n"), "fast lane {lane}: {rest}");
        }
    }
}

#[tokio::test]
async fn a_response_without_a_length_whose_upstream_resets_the_connection_is_not_complete() {
    for lane in ["true", "false"] {
        let desk = on_lane(lane).await;
        for _ in 0..5 {
            let (mut client, upstream) = blocked_upload(&desk).await;
            upstream.reset();
            let rest = String::from_utf8_lossy(&client.read_to_end_within(TEST_TIMEOUT).await).into_owned();
            assert!(!rest.ends_with("0\r\n\r\n"), "fast lane {lane}: {rest}");
        }
    }
}

#[tokio::test]
async fn a_response_without_a_length_is_not_complete_because_the_client_half_closes() {
    let desk = on_lane("true").await;
    for (line, headers) in [("GET /public/x", ""), ("POST /public/x", "Content-Length: 10\r\n")] {
        let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
        let mut client = BufferedStream::from_connection(desk.connect().await);
        client.send(&raw_request(&desk, line, headers, b"")).await;
        let mut upstream = upstream_connections.next().await.stream;
        upstream.send(b"HTTP/1.1 200 OK\r\n\r\nhello").await;
        client.read_until(b"hello").await;
        let (mut stream, unread) = client.into_parts();
        stream.shutdown().await.expect("half-closed");
        let rest = BufferedStream::new(stream, unread).read_to_end_within(TEST_TIMEOUT).await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{line}: {}", String::from_utf8_lossy(&rest));
    }
}

/// Both directions at once: a client that reads nothing before it has sent everything, and an upstream that sends back what comes.
#[tokio::test]
async fn a_body_flows_both_ways_at_once() {
    const SIZE: usize = 8 << 20;
    let desk = on_lane("true").await;
    desk.upstream.set_behaviour(Behaviour::Script(Arc::new(move |_, mut stream, first| {
        Box::pin(async move {
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").as_bytes())
                .await
                .expect("sent");
            let (mut bytes, mut left) = (first, SIZE);
            while left > 0 {
                stream.write_all(&bytes).await.expect("sent back");
                left -= bytes.len();
                bytes.resize(64 * 1024, 0);
                let count = if left > 0 { stream.read(&mut bytes).await.expect("read") } else { 0 };
                bytes.truncate(count);
            }
        })
    })));
    let mut connection = desk.connect().await;
    let body: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    connection.send(&raw_request(&desk, "PUT /public/x", &format!("Content-Length: {SIZE}\r\n"), &body)).await;
    let response = connection.response().await.expect("a response");
    assert_eq!(response.status, 200);
    assert!(response.body == body, "the body came back as it was");
}

/// A Unix socket takes a piece as a whole or not at all. What is sent meanwhile must neither collect in memory nor count as progress.
#[tokio::test]
async fn an_upload_to_a_unix_socket_that_stops_reading_is_1504() {
    tokio::join!(upload_to_a_socket_that_stops_reading("true"), upload_to_a_socket_that_stops_reading("false"));
}

async fn upload_to_a_socket_that_stops_reading(lane: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("desk.sock");
    // Connections wait in its queue, and nothing is read from them.
    let _listener = UnixListener::bind(&path).expect("a socket");
    let settings = format!("[upstreams.helpdesk]\naddresses = [\"unix:{}\"]\nanswer_timeout = \"3s\"", path.display());
    let desk = Gateway::setup().set("server.fast_lane", lane).toml(&settings).start().await;
    let mut connection = desk.connect().await;
    let began = Instant::now();
    connection.send(&raw_request(&desk, "POST /public/x", "Transfer-Encoding: chunked\r\n", b"")).await;
    let (mut reader, mut writer) = tokio::io::split(connection.into_parts().0);
    let chunk = chunked(&[b'x'; 4096], 4096).strip_suffix(b"0\r\n\r\n").expect("an end").to_vec();
    let sending = tokio::spawn(async move { while writer.write_all(&chunk).await.is_ok() {} });
    let mut answer = Vec::new();
    // The gateway may reset the connection after its answer, because the client goes on sending.
    let _ = within(TEST_TIMEOUT, "the end of the connection", reader.read_to_end(&mut answer)).await;
    sending.abort();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 504 "), "fast lane {lane}: {answer}");
    // The wait for the upstream to read is not followed by one for its answer.
    assert!(began.elapsed() < Duration::from_millis(5500), "fast lane {lane}: {:?}", began.elapsed());
}

/// What an upstream sends before a pause arrives before the pause ends.
#[tokio::test]
async fn the_first_bytes_of_a_response_do_not_wait_for_the_rest() {
    let desk = on_lane("true").await;
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let released = Arc::new(tokio::sync::Mutex::new(Some(released)));
    desk.upstream.set_behaviour(Behaviour::Script(Arc::new(move |_, mut stream, _| {
        let released = released.clone();
        Box::pin(async move {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst").await.expect("sent");
            let waiting = released.lock().await.take().expect("one request");
            waiting.await.expect("released");
            stream.write_all(b"later").await.expect("sent");
        })
    })));
    let mut connection = desk.connect().await;
    connection.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
    let (mut stream, mut received) = connection.into_parts();
    while !received.ends_with(b"first") {
        assert!(stream.read_buf(&mut received).await.expect("read") > 0, "the response ended early");
    }
    release.send(()).expect("the upstream waits");
    while !received.ends_with(b"later") {
        assert!(stream.read_buf(&mut received).await.expect("read") > 0, "the response ended early");
    }
}
