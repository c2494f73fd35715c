//! Requests that are sent before the one in front of them is answered (RFC 9112, section 9.3.2).

use std::time::{Duration, Instant};

use crate::support::*;

/// The upstream closes each connection, so that every request arrives on one of its own.
const FIRST: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nfirst";
const SECOND: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecond";

fn get(desk: &Gateway, target: &str) -> Vec<u8> {
    raw_request(desk, &format!("GET {target}"), "", b"")
}

fn post(desk: &Gateway, target: &str, headers: &str, body: &str) -> Vec<u8> {
    raw_request(desk, &format!("POST {target}"), headers, body.as_bytes())
}

/// Both requests, in the order of the client.
async fn expect_both_answered(
    client: &mut Connection,
    upstream_connections: &mut UpstreamConnections,
    mut first: UpstreamConnection,
    case: &str,
) -> UpstreamConnection {
    first.stream.send(FIRST).await;
    drop(first);
    let response = client.response().await.unwrap_or_else(|| panic!("{case}: no first response"));
    assert_eq!((response.status, response.text().as_str()), (200, "first"), "{case}");
    let mut second = upstream_connections.next().await;
    second.stream.send(SECOND).await;
    let response = client.response().await.unwrap_or_else(|| panic!("{case}: no second response"));
    assert_eq!((response.status, response.text().as_str()), (200, "second"), "{case}");
    second
}

#[tokio::test]
async fn request_behind_a_slow_one_is_answered_after_it() {
    let desk = Gateway::start().await;
    let chunked = "Transfer-Encoding: chunked\r\n";
    let requests = [
        ("GET", get(&desk, "/public/x")),
        ("POST", post(&desk, "/public/x", "Content-Length: 4\r\n", "body")),
        ("chunked POST", post(&desk, "/public/x", chunked, "4\r\nbody\r\n0\r\n\r\n")),
        ("POST without a body", post(&desk, "/public/x", "Content-Length: 0\r\n", "")),
    ];
    for (first_name, first) in &requests {
        for (second_name, second) in &requests {
            // In one write, and while the first one waits for its response.
            for together in [true, false] {
                let case = format!("{second_name} behind {first_name}, together: {together}");
                let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
                let mut client = desk.connect().await;
                let both = [&first[..], second].concat();
                client.send(if together { &both } else { first }).await;
                let mut upstream = upstream_connections.next().await;
                // An answer that comes before the end of the request closes the connection on Pingora's lane.
                match *first_name {
                    "POST" => drop(upstream.stream.read_until(b"body").await),
                    "chunked POST" => drop(upstream.stream.read_until(b"0\r\n\r\n").await),
                    _ => {}
                }
                if !together {
                    client.send(second).await;
                }
                let answered = expect_both_answered(&mut client, &mut upstream_connections, upstream, &case).await;
                if second_name.contains("POST") && *second_name != "POST without a body" {
                    let UpstreamConnection { mut stream, .. } = answered;
                    stream.read_until(b"body").await;
                }
            }
        }
    }
}

#[tokio::test]
async fn request_may_arrive_in_pieces_behind_a_slow_one() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut client = desk.connect().await;
    let second = get(&desk, "/public/second");
    let (start, rest) = second.split_at(20);
    client.send(&[&get(&desk, "/public/first")[..], start].concat()).await;
    let mut first = upstream_connections.next().await;
    first.stream.send(FIRST).await;
    drop(first);
    assert_eq!(client.response().await.expect("a response").text(), "first");
    client.send(rest).await;
    let mut upstream = upstream_connections.next().await;
    assert_eq!(upstream.request.target, "/public/second");
    upstream.stream.send(SECOND).await;
    assert_eq!(client.response().await.expect("a response").text(), "second");
}

#[tokio::test]
async fn many_pipelined_requests_are_answered_in_order() {
    let desk = Gateway::start().await;
    let mut client = desk.connect().await;
    let targets: Vec<String> = (0..50).map(|number| format!("/public/{number}")).collect();
    let requests: Vec<u8> = targets.iter().flat_map(|target| get(&desk, target)).collect();
    client.send(&requests).await;
    for target in &targets {
        let response = client.response().await.expect("a response").expect_status(200);
        assert_eq!(response.json()["target"], **target);
    }
}

#[tokio::test]
async fn garbage_behind_a_slow_request_is_refused_after_its_response() {
    let desk = Gateway::start().await;
    for together in [true, false] {
        let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
        let mut client = desk.connect().await;
        let first = get(&desk, "/public/x");
        let garbage = b"\x01\x02 no request\r\n\r\n";
        client.send(&if together { [&first[..], garbage].concat() } else { first }).await;
        let mut upstream = upstream_connections.next().await;
        if !together {
            client.send(garbage).await;
        }
        upstream.stream.send(FIRST).await;
        assert_eq!(client.response().await.expect("a response").text(), "first");
        client.response().await.expect("a refusal").expect_code(1400);
        assert!(client.closes_within(TEST_TIMEOUT).await);
    }
}

#[tokio::test]
async fn empty_lines_are_refused_at_once_however_many() {
    let desk = Gateway::start().await;
    let lines = b"\r\n\r\n".repeat(16 * 1024);
    for first in [Vec::new(), get(&desk, "/public/x")] {
        let mut client = desk.connect().await;
        client.send(&first).await;
        if !first.is_empty() {
            client.response().await.expect("a response").expect_status(200);
        }
        let sent = Instant::now();
        client.send(&lines).await;
        client.until_end().await;
        assert!(sent.elapsed() < Duration::from_secs(2), "{:?}", sent.elapsed());
    }
    let mut client = desk.connect().await;
    client.send(b"\r\n\r\nGET / HTTP/1.1\r\n").await;
    client.response().await.expect("a refusal").expect_code(1400);
}

#[tokio::test]
async fn disconnect_behind_a_pipelined_request_is_noticed() {
    let desk = Gateway::start().await;
    for first in [get(&desk, "/public/x"), post(&desk, "/public/x", "Content-Length: 4\r\n", "body")] {
        let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
        let mut client = desk.connect().await;
        client.send(&[&first[..], &get(&desk, "/public/second")].concat()).await;
        let mut upstream = upstream_connections.next().await;
        drop(client);
        upstream.stream.read_to_end_within(TEST_TIMEOUT).await;
        assert!(desk.upstream.requests().iter().all(|request| request.target != "/public/second"));
    }
}

#[tokio::test]
async fn flood_behind_a_slow_request_is_backpressured() {
    let desk = Gateway::start().await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut client = BufferedStream::from_connection(desk.connect().await);
    client.send(&get(&desk, "/public/x")).await;
    let mut upstream = upstream_connections.next().await;
    let before = desk.memory_kib("VmRSS");
    client.send_until_blocked(&get(&desk, "/public/flood"), 64 << 20).await;
    assert!(desk.memory_kib("VmRSS") < before + 4096, "what is read ahead is bounded");
    upstream.stream.send(FIRST).await;
    client.read_until(b"first").await;
}
