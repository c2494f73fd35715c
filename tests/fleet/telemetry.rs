//! What operators see of the shared store: the start says what its servers would lose.

use std::time::Duration;

use crate::fleet::Fleet;
use crate::servers::redis::RedisServer;
use crate::servers::tcp_proxy::{Answers, TcpProxy};
use crate::support::Http2Upstream;

#[tokio::test]
async fn start_says_what_the_redis_server_would_lose() {
    let forgetful = RedisServer::start(&["maxmemory-policy allkeys-lru"]);
    let fleet = Fleet::on(&forgetful.url(), 1, "").await;
    for part in ["keeps nothing on disk", "maxmemory-policy allkeys-lru", "has no replica"] {
        fleet.gateways[0].wait_for_log(&["WARN", "store.url: ", part]).await;
    }
    let every_second = RedisServer::start(&["appendonly yes", "appendfsync everysec"]);
    let fleet = Fleet::on(&every_second.url(), 1, "").await;
    fleet.gateways[0].wait_for_log(&["WARN", "store.url: ", "loses up to a second"]).await;
    assert!(!fleet.gateways[0].logs().contains("keeps nothing on disk"));
}

/// The fast lane decides about an HTTP/1.1 request before it leaves it to Pingora's lane, because its upstream speaks HTTP/2.
#[tokio::test]
async fn time_of_a_request_includes_a_slow_decision_of_the_other_lane() {
    const SLOW: Duration = Duration::from_millis(300);
    let (server, upstream) = (RedisServer::start(&[]), Http2Upstream::start().await);
    let proxy = TcpProxy::start(server.port).await;
    let fleet = Fleet::on(&format!("redis://127.0.0.1:{}", proxy.port), 2, &upstream.settings("")).await;
    let client = fleet.gateways[1].with_token(fleet.gateways[0].sign_in("u1001").await.token());
    proxy.set(Answers::Delay(SLOW));
    client.get("/api/desk/x").await.expect_status(200);
    for histogram in ["request", "overhead"] {
        let sum = fleet.gateways[1].settled_metric(&format!("deskgate_{histogram}_seconds_sum"), &[]).await;
        assert!(sum >= SLOW.as_secs_f64(), "{histogram}: {sum}");
    }
}
