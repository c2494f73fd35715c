//! Upstreams: kinds of addresses, balancing, timeouts, limits and what operators see.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::support::*;

#[tokio::test]
async fn addresses_get_requests_by_weight() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    let desk = Gateway::with(&format!(
        "[upstreams.helpdesk]\naddresses = [\"{}\", {{ address = \"{}\", weight = 3 }}]",
        one.address(),
        two.address()
    ))
    .await;
    for _ in 0..12 {
        desk.anonymous().get("/public/x").await.expect_status(200);
        desk.anonymous().post_body("/public/x", "text/plain", b"hello").await.expect_status(200);
    }
    assert_eq!((one.requests().len(), two.requests().len()), (6, 18));
}

#[tokio::test]
async fn requests_of_a_session_go_to_one_address() {
    let upstreams = [Upstream::start().await, Upstream::start().await, Upstream::start().await];
    let addresses: Vec<String> = upstreams.iter().map(|upstream| format!("\"{}\"", upstream.address())).collect();
    let settings = format!("[upstreams.helpdesk]\naddresses = [{}]\nbalance = \"session\"", addresses.join(", "));
    let desk = Gateway::with(&settings).await;
    let mut used = std::collections::BTreeSet::new();
    for _ in 0..12 {
        let client = desk.sign_in("u1001").await;
        upstreams.iter().for_each(Upstream::clear_requests);
        for _ in 0..3 {
            client.get("/api/desk/x").await.expect_status(200);
            client.post_body("/api/desk/x", "text/plain", b"hello").await.expect_status(200);
            client.websocket("/ws/employee").await.echo("hello").await;
        }
        let counts: Vec<usize> = upstreams.iter().map(|upstream| upstream.requests().len()).collect();
        let place = counts.iter().position(|count| *count == 9).unwrap_or_else(|| panic!("{counts:?}"));
        used.insert(place);
    }
    assert!(used.len() > 1, "all sessions have the same address");
}

#[tokio::test]
async fn least_connections_avoids_the_address_with_requests_in_flight() {
    let (busy, idle) = (Upstream::start().await, Upstream::start().await);
    let desk = Gateway::with(&format!(
        "[upstreams.helpdesk]\naddresses = [\"{}\", \"{}\"]\nbalance = \"least_connections\"",
        busy.address(),
        idle.address()
    ))
    .await;
    let mut first = desk.anonymous().websocket("/ws/public").await;
    let mut second = desk.anonymous().websocket("/ws/public").await;
    assert_eq!((busy.requests().len(), idle.requests().len()), (1, 1));
    second.echo("hello").await;
    drop(second);
    eventually("one socket less", || async {
        let rows = rows(&desk).await;
        (rows.iter().filter_map(|row| row["in_flight"].as_u64()).sum::<u64>() == 1).then_some(())
    })
    .await;
    let address_of_first = rows(&desk).await.into_iter().find(|row| row["in_flight"] == 1).expect("a row");
    for _ in 0..6 {
        desk.anonymous().get("/public/x").await.expect_status(200);
    }
    let with_socket = if address_of_first["address"] == busy.address().to_string() { &busy } else { &idle };
    assert_eq!(with_socket.requests().len(), 1, "an open WebSocket counts");
    first.echo("still open").await;
}

/// Answers every request on a Unix socket with its number of the connection.
async fn unix_server(listener: UnixListener) {
    // Owned by this task, so that every connection ends with the listener.
    let mut connections = tokio::task::JoinSet::new();
    let mut number = 0;
    while let Ok((mut stream, _)) = listener.accept().await {
        number += 1;
        connections.spawn(async move {
            let mut request = vec![0; 64 * 1024];
            while let Ok(1..) = stream.read(&mut request).await {
                let response = ok_response("", number.to_string().as_bytes());
                if stream.write_all(&response).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[tokio::test]
async fn unix_socket_is_an_address_and_its_connections_are_reused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("desk.sock");
    let server = tokio::spawn(unix_server(UnixListener::bind(&path).expect("a socket")));
    let settings =
        format!("[upstreams.helpdesk]\naddresses = [\"unix:{}\"]\nhealth = {{ every = \"100ms\" }}", path.display());
    let desk = Gateway::with(&settings).await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    let first = desk.anonymous().get("/public/x").await.expect_status(200).text();
    assert_eq!(desk.anonymous().get("/public/x").await.expect_status(200).text(), first, "another connection");
    // Head and body may come in one read.
    desk.anonymous().send("DELETE", "/public/x", &[], b"").await.expect_status(200);
    let row = rows(&desk).await.remove(0);
    assert_eq!(row["address"], format!("unix:{}", path.display()), "{row}");
    server.abort();
    let _ = server.await;
    std::fs::remove_file(&path).expect("the socket's file");
    desk.anonymous().get("/public/x").await.expect_code(1502);
}

#[tokio::test]
async fn names_are_resolved() {
    let upstream = Upstream::start().await;
    let port = upstream.address().port();
    let desk = Gateway::with(&format!("[upstreams.helpdesk]\naddresses = [\"localhost:{port}\"]")).await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    desk.anonymous().post_body("/public/x", "text/plain", b"hello").await.expect_status(200);
    desk.anonymous().websocket("/ws/public").await.echo("hello").await;
    let address = format!("127.0.0.1:{port}");
    assert!(rows(&desk).await.iter().any(|row| row["address"] == address));
}

#[tokio::test]
async fn unresolved_name_delays_the_start_only_shortly_and_is_1502() {
    let started = Instant::now();
    let name = "[upstreams.helpdesk]\naddresses = [{ address = \"desk.invalid:80\", weight = 3 }]";
    let desk = Gateway::with(name).await;
    assert!(started.elapsed() < TEST_TIMEOUT);
    desk.anonymous().get("/api/ready").await.expect_code(0);
    desk.anonymous().get("/public/x").await.expect_code(1502);
    desk.anonymous().post_body("/public/x", "text/plain", b"hello").await.expect_code(1502);
    desk.anonymous().handshake("/ws/public").expect_refused().await.expect_code(1502);
    desk.wait_for_log(&["WARN", "name not resolved; it has no address yet", "desk.invalid"]).await;
    let row = rows(&desk).await.remove(0);
    assert_eq!((&row["address"], &row["state"]), (&"desk.invalid:80".into(), &"unresolved".into()), "{row}");
    assert_eq!(row["weight"], 3, "{row}");
    let first = row["last_failure_at"].as_str().expect("a failure").to_owned();
    assert!(row["last_failure"].as_str().is_some_and(|why| !why.is_empty()), "{row}");
    eventually("another lookup", || async {
        (rows(&desk).await[0]["last_failure_at"].as_str() != Some(first.as_str())).then_some(())
    })
    .await;
    desk.wait_for_log(&["name not resolved"]).await;
    let logs = desk.logs();
    assert_eq!(logs.matches("name not resolved").count(), 1, "{logs}");
}

#[tokio::test]
async fn address_beside_an_unresolved_name_is_used() {
    let live = Upstream::start().await;
    let settings = format!("[upstreams.helpdesk]\naddresses = [\"desk.invalid:80\", \"{}\"]", live.address());
    let desk = Gateway::with(&settings).await;
    for _ in 0..4 {
        desk.anonymous().get("/public/x").await.expect_status(200);
    }
}

#[tokio::test]
async fn requests_beyond_the_limit_of_an_upstream_are_1503_and_harm_no_other() {
    let other = Upstream::start().await;
    let settings = format!(
        "[upstreams.helpdesk]\nmax_requests = 2\nqueue = 1\nqueue_timeout = \"200ms\"\n\
         [upstreams.other]\naddresses = [\"{}\"]",
        other.address()
    );
    let rule = "\n[[rule]]\nname = \"other\"\npath = \"/other/{*rest}\"\nupstream = \"other\"\npublic = true\n";
    let desk = Gateway::setup().toml(&settings).more_rules(rule).start().await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    let mut waiting = Vec::new();
    for line in ["GET /public/x", "POST /public/x"] {
        let mut connection = desk.connect().await;
        connection.send(&raw_request(&desk, line, "Content-Length: 0\r\n", b"")).await;
        waiting.push(connection);
    }
    desk.upstream.wait_for_requests(2).await;
    let refused = desk.anonymous().get("/public/x").await.expect_code(1503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    desk.anonymous().handshake("/ws/public").expect_refused().await.expect_code(1503);
    desk.anonymous().get("/other/x").await.expect_status(200);
    assert_eq!(desk.metric("deskgate_limit_reached_total", &["limit=\"upstream_requests\""]).await, 2.0);
    desk.upstream.set_behaviour(Behaviour::Echo);
    drop(waiting);
    eventually("room after requests have ended", || async {
        (desk.anonymous().get("/public/x").await.status == 200).then_some(())
    })
    .await;
    let mut sockets = Vec::new();
    for _ in 0..4 {
        sockets.push(desk.anonymous().websocket("/ws/public").await);
    }
    desk.anonymous().get("/public/x").await.expect_status(200);
}

#[tokio::test]
async fn total_timeout_ends_exchanges_that_keep_trickling() {
    let desk = Gateway::setup().tls().toml("[upstreams.helpdesk]\ntotal_timeout = \"600ms\"").start().await;
    desk.upstream.set_behaviour(Behaviour::Script(std::sync::Arc::new(|_, mut stream, _| {
        Box::pin(async move {
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            let _ = stream.write_all(head).await;
            while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    })));
    let http2 = desk.anonymous().http2().await;
    for method in ["GET", "POST"] {
        let outcome = within(TEST_TIMEOUT, method, desk.anonymous().try_send(method, "/public/x", &[], b"")).await;
        assert!(outcome.is_err(), "{method}: the response looks complete");
        let outcome = within(TEST_TIMEOUT, method, http2.try_send(method, "/public/x", &[], b"", None)).await;
        assert!(outcome.is_err(), "HTTP/2 {method}: the response looks complete");
    }
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    for method in ["GET", "POST"] {
        desk.anonymous().send(method, "/public/x", &[], b"").await.expect_code(1504);
        http2.send(method, "/public/x", &[], b"").await.expect_code(1504);
    }
}

#[tokio::test]
async fn upstream_list_shows_every_address() {
    let dead = Upstream::start().await;
    dead.stop_listening().await;
    let settings = format!("[upstreams.wiki]\naddresses = [{{ address = \"{}\", weight = 2 }}]", dead.address());
    let desk = Gateway::with(&settings).await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    let output = desk.command(&["upstream", "list"]).await;
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("UPSTREAM  ADDRESS"), "{text}");
    assert!(lines[1].starts_with("helpdesk") && lines[1].contains("healthy") && lines[1].contains(" ms"), "{text}");
    assert!(lines[2].starts_with("wiki") && lines[2].contains(&dead.address().to_string()), "{text}");
    let row = rows(&desk).await.remove(0);
    assert!(row["latency_ms"].as_f64().is_some_and(|latency| latency > 0.0), "{row}");
}

#[tokio::test]
async fn upstream_list_needs_a_running_gateway() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    let output = desk.command(&["upstream", "list"]).await;
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("no gateway is running"), "{error}");
}

/// `deskgate upstream list --json`
async fn rows(desk: &Gateway) -> Vec<Value> {
    let output = desk.command(&["upstream", "list", "--json"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}
