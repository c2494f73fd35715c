//! A storm of revocations: the feed catches up, memory stays bounded, requests are answered and nobody revoked is let in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use deskgate::config::{HumanDuration, StoreConfig, StoreUrl};
use deskgate::domain::clock::Clock;
use deskgate::domain::session::{EndCause, Session, SessionId};
use deskgate::metrics::Metrics;
use deskgate::store::SessionStore;
use deskgate::store::redis::RedisStore;
use futures::StreamExt;

use crate::fleet::Fleet;
use crate::servers::redis::RedisServer;
use crate::support::*;

/// As many as a build without optimizations does in a few seconds. `DESKGATE_REVOCATIONS` names another number.
const REVOCATIONS: usize = 20_000;

/// How many revocations are on their way at once.
const AT_ONCE: usize = 256;

/// How many of them are those of sessions that clients use.
const USED: usize = 40;

/// What a denial that a gateway remembers costs at most, and what everything else may.
const BYTES_EACH: usize = 600;
const MEBIBYTES: usize = 48;

const LIFETIME: Duration = Duration::from_secs(3600);

/// The store as another gateway of the fleet has it.
async fn another_store(fleet: &Fleet, url: &str) -> RedisStore {
    let (url, prefix, timeout) = (StoreUrl::new(url), fleet.prefix.clone(), HumanDuration::seconds(10));
    let config = StoreConfig { url, prefix, timeout, ..StoreConfig::default() };
    RedisStore::open(&config, Clock::system(), Arc::new(Metrics::new().expect("metrics"))).await.expect("a store")
}

/// Asks again and again until the storm is over. Returns how long the slowest answer took.
async fn slowest_answer(client: &Client, is_over: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        client.get("/api/agent-desk/x").await.expect_status(200);
        slowest = slowest.max(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_of_revocations_is_followed_in_bounded_memory_while_requests_are_answered() {
    let revocations =
        std::env::var("DESKGATE_REVOCATIONS").map_or(REVOCATIONS, |count| count.parse().expect("a number"));
    let server = RedisServer::start(&[]);
    let fleet = Fleet::on(&server.url(), 1, "[store]\ntimeout = \"5s\"\n").await;
    let gateway = &fleet.gateways[0];
    let store = &another_store(&fleet, &server.url()).await;
    let bystander = gateway.sign_in("a2001").await;
    let id_of = |client: &Client| SessionId::new(jti_of(client.token()));
    let pattern = store.find(&id_of(&bystander)).await.expect("an answer").expect("a session");
    let mut used = Vec::new();
    for _ in 0..USED {
        let client = gateway.sign_in("a2001").await;
        used.push((client.websocket("/ws/agent").await, client));
    }
    let every = revocations / USED;
    let ids: Vec<SessionId> = (0..revocations)
        .map(|number| match used.get(number / every).filter(|_| number % every == 0) {
            Some((_, client)) => id_of(client),
            None => SessionId::new(format!("storm-{number}")),
        })
        .collect();
    let unused = ids.iter().filter(|id| id.as_str().starts_with("storm-"));
    let created = futures::stream::iter(unused).map(|id| {
        let session = Session { id: id.clone(), ..pattern.clone() };
        async move { store.create(&session).await.expect("a session") }
    });
    created.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;

    let before = gateway.memory_kib("VmRSS");
    let is_over = AtomicBool::new(false);
    let storm = async {
        let begun = Instant::now();
        let revoked = futures::stream::iter(&ids)
            .map(|id| async move { store.revoke(id, LIFETIME, EndCause::Logout).await.expect("a revocation") });
        revoked.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        let lasted = begun.elapsed();
        for (socket, _) in &mut used {
            assert_eq!(socket.close_code_within(Duration::from_secs(10)).await, Some(4401));
        }
        let caught_up = begun.elapsed() - lasted;
        is_over.store(true, Ordering::Relaxed);
        (lasted, caught_up)
    };
    let (slowest, (lasted, caught_up)) = tokio::join!(slowest_answer(&bystander, &is_over), storm);
    for (_, client) in &used {
        client.get("/api/agent-desk/x").await.expect_invalid_token();
    }
    let grown = gateway.memory_kib("VmRSS").saturating_sub(before);
    let seen = format!(
        "{revocations} revocations in {lasted:?}, followed {caught_up:?} later; slowest answer {slowest:?}; {grown} KiB more"
    );
    eprintln!("{seen}");
    assert!(caught_up < Duration::from_secs(5) && slowest < Duration::from_secs(5), "{seen}");
    assert!(grown < MEBIBYTES * 1024 + revocations * BYTES_EACH / 1024, "{seen}");
    assert!(!gateway.logs().contains("change feed lagged"), "{seen}: the feed outran the gateway");
    bystander.get("/api/agent-desk/x").await.expect_status(200);
}
