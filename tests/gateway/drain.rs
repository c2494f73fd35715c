//! SIGTERM: what has begun is finished, what is open is closed politely, and then the program ends.

use std::time::{Duration, Instant};

use crate::support::*;

fn get(desk: &Gateway, target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address()).into_bytes()
}

/// Waits until a new connection is told that this gateway is no longer ready.
async fn until_not_ready(desk: &Gateway) -> Answer {
    eventually("a gateway that says it is not ready", || async {
        desk.anyone().attempt("GET", "/api/ready", &[], b"").await.ok().filter(|answer| answer.status == 503)
    })
    .await
}

#[tokio::test]
async fn open_requests_are_finished() {
    let mut desk = Gateway::start().await;
    let mut visits = Visits::at(&desk.upstream);
    let (mut begun, mut asked) = (desk.connect().await, desk.connect().await);
    asked.send(&get(&desk, "/public/asked")).await;
    let mut waiting = visits.next().await;
    begun.send(&get(&desk, "/public/begun")).await;
    let mut half = visits.next().await;
    half.end.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
    let mut begun = End::of(begun);
    begun.until(b"first").await;

    desk.signal("TERM");
    until_not_ready(&desk).await;
    half.end.send(b"4\r\nlast\r\n0\r\n\r\n").await;
    begun.until(b"last\r\n0\r\n\r\n").await;
    waiting.end.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
    let answer = asked.answer().await.expect("an answer").expect_status(200);
    assert_eq!(answer.text(), "done");
    assert_eq!(desk.ended().await.code(), Some(0));
}

#[tokio::test]
async fn ready_says_no_while_requests_are_still_open() {
    let mut desk = Gateway::start().await;
    let mut visits = Visits::at(&desk.upstream);
    desk.anyone().get("/api/ready").await.expect_code(0);
    let mut connection = desk.connect().await;
    connection.send(&get(&desk, "/public/slow")).await;
    let mut visit = visits.next().await;
    desk.signal("TERM");
    assert_eq!(until_not_ready(&desk).await.code(), 1503);
    visit.end.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
    assert_eq!(connection.answer().await.expect("an answer").text(), "done");
    assert_eq!(desk.ended().await.code(), Some(0));
}

#[tokio::test]
async fn sockets_are_closed_with_1001() {
    let mut desk = Gateway::start().await;
    let (alice, anton) = (desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    let mut sockets = vec![alice.websocket("/ws/employee").await, anton.websocket("/ws/agent").await];
    sockets.push(desk.anyone().websocket("/ws/public").await);
    for socket in &mut sockets {
        socket.echo("hello").await;
    }
    desk.signal("TERM");
    for socket in &mut sockets {
        assert_eq!(socket.closed_within(Duration::from_secs(5)).await, Some(1001));
    }
    eventually("an upstream that knows", || async {
        let over = |event: &&SocketEvent| !matches!(event, SocketEvent::Message(_));
        (desk.upstream.events().iter().filter(over).count() == 3).then_some(())
    })
    .await;
    assert_eq!(desk.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_socket_that_does_not_answer_does_not_hold_the_end_up() {
    let mut desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    // Neither end of this one will ever answer a close frame.
    let mut visits = Visits::at(&desk.upstream);
    let shake = alice.handshake("/ws/employee");
    let accept = async {
        let mut visit = visits.next().await;
        visit.accept(b"").await;
        visit
    };
    let ((_, mut client), _visit) = tokio::join!(End::through(&desk, &shake), accept);
    let began = Instant::now();
    desk.signal("TERM");
    let frame = client.frame().await.expect("a close frame");
    assert_eq!(frame.close_code(), Some(1001), "{frame:?}");
    assert_eq!(desk.ended().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(15), "well before server.drain: {:?}", began.elapsed());
}

#[tokio::test]
async fn nothing_open_means_nothing_to_wait_for() {
    let mut desk = Gateway::start().await;
    desk.anyone().get("/public/x").await.expect_status(200);
    let mut idle = desk.connect().await;
    idle.send(&get(&desk, "/public/x")).await;
    idle.answer().await.expect("an answer").expect_status(200);
    let began = Instant::now();
    assert_eq!(desk.terminate().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(15), "server.drain is 30 s: {:?}", began.elapsed());
    assert!(idle.closes_within(PATIENCE).await, "an idle connection is closed");
}

#[tokio::test]
async fn the_drain_has_a_limit() {
    let mut desk = Gateway::with("[server]\ndrain = \"1s\"").await;
    desk.upstream.behave(Behaviour::Hang);
    let mut connection = desk.connect().await;
    connection.send(&get(&desk, "/public/never")).await;
    desk.upstream.received(1).await;
    let began = Instant::now();
    assert_eq!(desk.terminate().await.code(), Some(0));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(12), "{took:?}");
}

#[tokio::test]
async fn an_upload_under_way_is_finished() {
    let mut desk = Gateway::start().await;
    let mut connection = desk.connect().await;
    let head = format!("POST /public/x HTTP/1.1\r\nHost: {}\r\nContent-Length: 10\r\n\r\nbegin", desk.address());
    let mut visits = Visits::at(&desk.upstream);
    connection.send(head.as_bytes()).await;
    let mut visit = visits.next().await;
    assert_eq!(visit.end.exactly(5).await, b"begin");
    desk.signal("TERM");
    until_not_ready(&desk).await;
    connection.send(b"-rest").await;
    assert_eq!(visit.end.exactly(5).await, b"-rest");
    visit.end.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
    assert_eq!(connection.answer().await.expect("an answer").text(), "done");
    assert_eq!(desk.ended().await.code(), Some(0));
}

#[tokio::test]
async fn what_was_answered_before_the_end_holds_after_it() {
    let mut desk = Gateway::start().await;
    let (stays, goes) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    goes.post("/api/auth/logout").await.expect_code(0);
    assert_eq!(desk.terminate().await.code(), Some(0));
    desk.restart().await;
    stays.get("/api/auth/me").await.expect_code(0);
    goes.get("/api/auth/me").await.expect_invalid_token();
}
