//! What operators see of the shared store: the start says what its servers would lose.

use crate::fleet::Fleet;
use crate::servers::redis::RedisServer;

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
