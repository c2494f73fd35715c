//! The contract of `WorkLeases`, on stores that several gateways share.

use std::sync::Arc;
use std::time::Duration;

use deskgate::config::StoreConfig;
use deskgate::store::redis::RedisLeases;
use deskgate::store::work_leases::{LeaseOutcome, Work, WorkLeases};

use crate::redis_servers::{config, open};
use crate::servers::redis;

const LEASE: Duration = Duration::from_secs(60);

async fn gateway(config: &StoreConfig, id: &str) -> RedisLeases {
    RedisLeases::new(Arc::new(open(config).await.expect("servers")), id)
}

async fn lease_is_held_by_one_gateway_until_it_ends(config: StoreConfig) {
    let (one, two) = (gateway(&config, "one").await, gateway(&config, "two").await);
    let acquire = async |gateway: &RedisLeases, work, lifetime| gateway.acquire(work, lifetime).await.expect("lease");
    assert_eq!(acquire(&one, Work::Recheck, LEASE).await, LeaseOutcome::Granted);
    assert_eq!(acquire(&two, Work::Recheck, LEASE).await, LeaseOutcome::HeldElsewhere);
    assert_eq!(acquire(&one, Work::Recheck, LEASE).await, LeaseOutcome::Granted, "renewed");
    assert_eq!(acquire(&two, Work::Pruning, LEASE).await, LeaseOutcome::Granted, "other work");
    two.end(Work::Recheck).await.expect("end");
    assert_eq!(acquire(&two, Work::Recheck, LEASE).await, LeaseOutcome::HeldElsewhere, "only the holder ends it");
    one.end(Work::Recheck).await.expect("end");
    let brief = Duration::from_millis(300);
    assert_eq!(acquire(&two, Work::Recheck, brief).await, LeaseOutcome::Granted);
    tokio::time::timeout(Duration::from_secs(10), async {
        while acquire(&one, Work::Recheck, LEASE).await == LeaseOutcome::HeldElsewhere {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("a lease that nobody renews ends");
}

#[tokio::test]
async fn on_one_server() {
    lease_is_held_by_one_gateway_until_it_ends(config(&redis::standalone())).await;
}

#[tokio::test]
async fn on_a_cluster() {
    lease_is_held_by_one_gateway_until_it_ends(config(&redis::cluster())).await;
}
