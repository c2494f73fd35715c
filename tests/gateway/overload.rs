//! More requests at once than the gateway carries while it is saturated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;

/// Several times as many as two threads carry at once.
const MANY: usize = 500;

async fn send_many(desk: &Gateway, alice: &Client) -> Vec<Connection> {
    let authorization = format!("Authorization: Bearer {}\r\n", alice.token());
    let request = raw_request(desk, "GET /api/desk/tickets", &authorization, b"");
    let mut connections = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        let mut connection = desk.connect().await;
        connection.send(&request).await;
        connections.push(connection);
    }
    connections
}

#[tokio::test]
async fn requests_that_wait_for_a_slow_upstream_do_not_hold_up_others() {
    let desk = Gateway::with("[server]\nthreads = 2\n").await;
    let alice = desk.sign_in("a2001").await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    let _waiting = send_many(&desk, &alice).await;
    desk.upstream.wait_for_requests(MANY).await;
    desk.upstream.set_behaviour(Behaviour::Echo);
    alice.get("/api/desk/tickets").await.expect_status(200);
}

#[tokio::test]
async fn requests_beyond_the_concurrency_limit_are_all_answered() {
    let desk = Gateway::with("[server]\nthreads = 1\n").await;
    let alice = desk.sign_in("a2001").await;
    for mut connection in send_many(&desk, &alice).await {
        connection.response().await.expect("a response").expect_status(200);
    }
    assert_eq!(desk.metric("deskgate_limit_reached_total", &["limit=\"saturated\""]).await, 0.0);
}

#[tokio::test]
async fn short_memory_refuses_requests_but_not_readiness_and_sign_in() {
    // Less than any process uses.
    let desk = Gateway::setup().tls().toml("[limits]\nmemory = 1048576\n").start().await;
    desk.wait_for_log(&["ERROR", "MiB of memory are in use, more than 1: refusing new requests"]).await;
    assert_eq!(desk.metric("deskgate_memory_limit_bytes", &[]).await, 1_048_576.0);
    let streams = desk.anonymous().http2().await;
    let on_streams = streams.send("POST", "/public/x", &[], b"a body that nobody reads").await;
    for refused in [desk.anonymous().get("/public/x").await, streams.get("/public/x").await, on_streams] {
        assert_eq!(refused.code(), 1503, "{}", refused.describe());
        assert!(refused.header("retry-after").is_some(), "{}", refused.describe());
    }
    assert!(desk.upstream.requests().is_empty(), "refused before anything is done for it");
    assert!(desk.metric("deskgate_limit_reached_total", &["limit=\"saturated\""]).await >= 3.0);
    desk.anonymous().get("/api/ready").await.expect_code(0);
    desk.anonymous().get("/api/auth/qrcode").await.expect_code(0);
}

#[tokio::test]
async fn blocked_log_pipe_holds_up_no_request() {
    // The shell holds both ends of a pipe that nobody reads, and the gateway writes its log to it.
    let mut desk = Gateway::setup().shell("mkfifo log; exec 4<>log 2>log").start().await;
    let alice = desk.sign_in("a2001").await;
    for round in 0..600 {
        let began = Instant::now();
        alice.get(&format!("/api/desk/{}", "x".repeat(200))).await.expect_status(200);
        assert!(began.elapsed() < Duration::from_secs(5), "request {round} took {:?}", began.elapsed());
    }
    alice.post("/api/auth/logout").await.expect_code(0);
    alice.get("/api/auth/me").await.expect_invalid_token();
    assert_eq!(desk.terminate().await.code(), Some(0));
}

/// How many connections keep one thread busy, and ten times as many.
const BUSY: usize = 40;

#[tokio::test]
async fn ten_times_the_load_is_answered_or_refused_while_readiness_and_sign_in_go_first() {
    let desk = Gateway::with("[server]\nthreads = 1\n[log]\nrequests = \"refused\"\n").await;
    let alice = desk.sign_in("a2001").await;
    let authorization = format!("Authorization: Bearer {}\r\n", alice.token());
    let request: Arc<[u8]> = raw_request(&desk, "GET /api/desk/tickets", &authorization, b"").into();
    let (is_over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let mut clients = Vec::new();
    for _ in 0..10 * BUSY {
        let (server, request) = (desk.server_address(), request.clone());
        let (is_over, answered) = (is_over.clone(), answered.clone());
        clients.push(tokio::spawn(async move {
            let mut connection = Connection::open(server.clone()).await;
            while !is_over.load(Ordering::Relaxed) {
                connection.send(&request).await;
                let response = connection.response().await.expect("a response");
                match response.status {
                    200 => drop(answered.fetch_add(1, Ordering::Relaxed)),
                    _ => {
                        assert_eq!(response.code(), 1503, "{}", response.describe());
                        assert!(response.header("retry-after").is_some(), "{}", response.describe());
                        connection = Connection::open(server.clone()).await;
                    }
                }
            }
        }));
    }
    eventually("load", || async { (answered.load(Ordering::Relaxed) > 100).then_some(()) }).await;
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let began = Instant::now();
        desk.anonymous().get("/api/ready").await.expect_code(0);
        desk.anonymous().get("/api/auth/qrcode").await.expect_code(0);
        slowest = slowest.max(began.elapsed());
    }
    let served = answered.load(Ordering::Relaxed);
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        within(TEST_TIMEOUT, "the end of a client", client).await.expect("an answer or a refusal, always");
    }
    assert!(slowest < Duration::from_secs(5), "{slowest:?} with {served} answers");
    let began = Instant::now();
    alice.get("/api/desk/tickets").await.expect_status(200);
    assert!(began.elapsed() < Duration::from_secs(5), "recovery took {:?}", began.elapsed());
}
