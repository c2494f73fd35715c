use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::super::connection_limits::ConnectionLimits;
use super::super::connection_slots::ConnectionSlots;
use super::*;
use crate::domain::clock::Clock;
use crate::metrics::Metrics;
use crate::pipeline::journal::RequestJournal;

const HEAD: HeadLimits = HeadLimits {
    deadline: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    bytes: 32 * 1024,
    target: 16 * 1024,
    lines: 100,
};

fn connect() -> (DuplexStream, Connection) {
    let (client, server) = duplex(64 * 1024);
    let floods = IntCounter::new("floods", "floods").expect("a counter");
    let metrics = Metrics::new().expect("metrics");
    let limits = ClientLimits {
        head: HEAD,
        body: None,
        frame_floods: floods,
        refusals: EarlyRefusals {
            metrics: metrics.refusals().clone(),
            journal: Arc::new(RequestJournal::new(Clock::system())),
        },
    };
    let slots = ConnectionSlots::new(1, &metrics);
    let occupied = slots.occupy(slots.try_acquire().expect("a slot"));
    let counted = Arc::new(ConnectionLimits::new(0, Vec::new(), 1)).open([127, 0, 0, 1].into()).expect("no limit");
    let slot = ConnectionSlot::new(occupied, counted);
    let peer = ([127, 0, 0, 1], 4711).into();
    (client, Connection::new(Box::new(server), ALPN::H1, peer, Transport::Plain, &limits, slot, Arc::default()))
}

#[tokio::test]
async fn saturated_gateway_answers_1503_and_closes() {
    let (mut client, mut connection) = connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    assert!(connection.read_head().await);
    connection.refuse_overload().await;
    let mut response = String::new();
    client.read_to_string(&mut response).await.expect("a response and the end");
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert!(response.to_ascii_lowercase().contains("\r\nretry-after: 2\r\n"), "{response}");
    assert!(response.contains("\"code\":1503"), "{response}");
}

#[tokio::test]
async fn connection_that_ends_before_its_head_is_complete_has_no_request() {
    let (mut client, mut connection) = connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").await.expect("sent");
    drop(client);
    assert!(!connection.read_head().await);
}

#[tokio::test]
async fn head_is_not_read_again_before_its_response_is_complete() {
    let (mut client, mut connection) = connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    assert!(connection.read_head().await);
    connection.state.phase.store(phase::EXCHANGE, Ordering::Release);
    assert!(!connection.read_head().await);
}

fn refusal() -> crate::pipeline::Decision {
    crate::pipeline::Decision {
        arrival: super::super::unknown_arrival(),
        handler: crate::pipeline::Handler::None,
        caller: crate::pipeline::Caller::Anonymous,
        phase: crate::pipeline::Phase::Arrive,
        verdict: Err(Error::NotFound),
    }
}

/// Otherwise one request could be answered by what was decided about the one before.
#[tokio::test]
async fn a_decision_that_nobody_has_taken_is_not_for_the_next_request() {
    let (mut client, mut connection) = connect();
    client.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    assert!(connection.read_head().await);
    let head = connection.take_head();
    connection.return_head(head);
    connection.leave_decision(EarlierDecision { decision: Box::new(refusal()), began: Instant::now() });
    connection.begin_fast(AnnouncedBody::NONE);
    connection.end_exchange(Instant::now());
    client.write_all(b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    assert!(connection.read_head().await);
    assert!(connection.take_head().starts_with(b"GET "));
    assert!(connection.state.take_decision().is_none());
}

#[tokio::test]
async fn a_head_that_is_taken_leaves_what_was_read_behind_it() {
    let (mut client, mut connection) = connect();
    client.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    for path in ["/1", "/2"] {
        assert!(connection.read_head().await, "{path}");
        let head = connection.take_head();
        assert_eq!(*head, format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        connection.return_head(head);
        assert!(connection.path().starts_with(path.as_bytes()), "a head that is returned is the same");
        connection.take_head();
        connection.begin_fast(AnnouncedBody::NONE);
        connection.end_exchange(Instant::now());
    }
}

#[tokio::test]
async fn idle_time_begins_with_the_last_response() {
    let (mut client, mut connection) = connect();
    client.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    assert!(connection.read_head().await);
    connection.take_head();
    connection.begin_fast(AnnouncedBody::NONE);
    let long_ago = Instant::now() - 2 * HEAD.idle;
    connection.end_exchange(long_ago);
    assert!(connection.read_head().await, "the second request has been read already");
    connection.take_head();
    connection.begin_fast(AnnouncedBody::NONE);
    // As after a response of Pingora's lane.
    connection.state.phase.store(phase::DONE, Ordering::Release);
    assert!(connection.read_head().now_or_never().is_none(), "it waits for a third");
    connection.state.phase.store(phase::DONE, Ordering::Release);
    connection.end_exchange(long_ago);
    assert_eq!(connection.read_head().now_or_never(), Some(false), "the idle time is over");
}
