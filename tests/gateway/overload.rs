//! More requests at once than the gateway carries while it is saturated.

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
