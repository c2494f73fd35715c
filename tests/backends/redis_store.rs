//! What only a shared store promises: changes of one gateway reach the others, and a server that loses data lets nobody in.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use deskgate::config::{StoreConfig, StoreConfirm};
use deskgate::domain::clock::Clock;
use deskgate::domain::gateway_status::{GatewayId, GatewayStatus};
use deskgate::domain::partition::Partition;
use deskgate::domain::session::{EndCause, Session, SessionId};
use deskgate::domain::ticket::{ScanId, Ticket, TicketId, TicketState};
use deskgate::metrics::Metrics;
use deskgate::sessions::SessionCache;
use deskgate::store::fleet::FleetStore;
use deskgate::store::redis::{RedisCall, RedisStore, ServerScript};
use deskgate::store::{Change, ChangeEvent, DurabilityGap, SessionStore, Store, StoreError, TicketStore};
use tokio::sync::broadcast;

use crate::redis_servers::config;
use crate::servers::redis::groups::RedisCluster;
use crate::servers::redis::{self, RedisServer};
use crate::servers::tcp_proxy::{Answers, TcpProxy};
use crate::store::{LIFETIME, next_change, session, ticket};

pub async fn open(config: &StoreConfig) -> Result<RedisStore, StoreError> {
    RedisStore::open(config, Clock::system(), Arc::new(Metrics::new().expect("metrics"))).await
}

/// Waits until `find` answers.
pub async fn found(store: &RedisStore, id: &SessionId) -> Option<Session> {
    let started = Instant::now();
    loop {
        match store.find(id).await {
            Ok(found) => return found,
            Err(error) => assert!(started.elapsed() < Duration::from_secs(30), "no answer: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for a change that `is_wanted`.
pub async fn wait_for(changes: &mut broadcast::Receiver<ChangeEvent>, is_wanted: impl Fn(&Change) -> bool) {
    let wanted = async { while !is_wanted(&changes.recv().await.expect("a change").change) {} };
    tokio::time::timeout(Duration::from_secs(60), wanted).await.expect("the change in time");
}

async fn changes_of_one_gateway_reach_the_other(url: String) {
    let config = config(&url);
    let (one, other) = (open(&config).await.expect("store"), open(&config).await.expect("store"));
    let clock = Clock::system();
    let mut changes = other.changes();
    let sessions: Vec<Session> = (0..100).map(|number| session(&format!("s{number}"), &clock)).collect();
    for kept in &sessions {
        one.create(kept).await.expect("create");
        assert_eq!(other.find(&kept.id).await.expect("find").as_ref(), Some(kept));
    }
    for kept in &sessions {
        let next = Session { version: kept.version.next(), ..kept.clone() };
        one.replace(&next, kept.version).await.expect("replace");
        assert!(matches!(next_change(&mut changes).await, Change::SessionChanged(changed) if *changed == next));
        one.revoke(&kept.id, LIFETIME, EndCause::Owner).await.expect("revoke");
        let ended = next_change(&mut changes).await;
        assert!(matches!(&ended, Change::SessionEnded { id, cause: EndCause::Owner } if *id == kept.id), "{ended:?}");
        assert_eq!(other.find(&kept.id).await.expect("find"), None);
    }
    let waiting = ticket("t1", &clock);
    one.create_ticket(&waiting).await.expect("create");
    let cancelled = Ticket { version: waiting.version.next(), state: TicketState::Cancelled, ..waiting.clone() };
    one.advance(&cancelled, waiting.version).await.expect("advance");
    assert!(matches!(next_change(&mut changes).await, Change::TicketMoved(id) if id == waiting.id));
}

#[tokio::test]
async fn changes_on_one_server_reach_every_gateway() {
    changes_of_one_gateway_reach_the_other(redis::standalone()).await;
}

#[tokio::test]
async fn user_with_the_permissions_of_the_manual_can_do_everything() {
    let (_, _, socket) = redis::secured();
    let url = format!("redis+unix://{}:p%40ss/word@{}", redis::USER.0, socket.display());
    changes_of_one_gateway_reach_the_other(url.clone()).await;
    let store = open(&config(&url)).await.expect("store");
    store.ready().await.expect("ready");
    store.sweep().await.expect("sweep");
    assert_eq!(store.durability_gaps(), [DurabilityGap::NothingOnDisk, DurabilityGap::NoReplica]);
}

#[tokio::test]
async fn changes_on_a_cluster_reach_every_gateway() {
    changes_of_one_gateway_reach_the_other(redis::cluster()).await;
}

#[tokio::test]
async fn feed_says_up_to_when_it_was_read_while_nothing_changes() {
    let store = open(&config(&redis::cluster())).await.expect("store");
    let mut changes = store.changes();
    let mut last = Duration::ZERO;
    for _ in 0..10 {
        let event =
            tokio::time::timeout(Duration::from_secs(10), changes.recv()).await.expect("in time").expect("event");
        assert!(matches!(event.change, Change::CaughtUp) && event.at >= last);
        last = event.at;
    }
    assert!(!last.is_zero());
}

/// Fails for keys that live for ever, with their names; returns how many keys there are.
static KEYS_THAT_EXPIRE: LazyLock<ServerScript> = LazyLock::new(|| {
    ServerScript::new(
        "local keys = redis.call('KEYS', '*')
         for _, key in ipairs(keys) do
             if redis.call('PTTL', key) < 0 then return redis.error_reply('lives for ever: ' .. key) end
         end
         return #keys",
    )
});

#[tokio::test]
async fn every_key_expires_and_no_ticket_is_stored_itself() {
    let server = RedisServer::start(&["appendonly yes"]);
    let config = config(&server.url());
    let store = open(&config).await.expect("store");
    let clock = Clock::system();
    for number in 0..200 {
        let kept = session(&format!("s{number}"), &clock);
        store.create(&kept).await.expect("create");
        store.note_seen(&[(kept.id.clone(), clock.now())]).await.expect("note");
        let next = Session { version: kept.version.next(), ..kept.clone() };
        store.replace(&next, kept.version).await.expect("replace");
        if number % 2 == 0 {
            store.revoke(&kept.id, LIFETIME, EndCause::Logout).await.expect("revoke");
        }
    }
    let (ticket_id, scan_id) = (TicketId::new("secret-ticket"), ScanId::new("secret-scan"));
    let waiting = Ticket { id: ticket_id.digest(), scan_id: scan_id.digest(), ..ticket("t", &clock) };
    store.create_ticket(&waiting).await.expect("create");
    let cancelled = Ticket { version: waiting.version.next(), state: TicketState::Cancelled, ..waiting.clone() };
    store.advance(&cancelled, waiting.version).await.expect("advance");
    store.ready().await.expect("ready");
    store.sweep().await.expect("sweep");
    let count = RedisCall::script(&KEYS_THAT_EXPIRE, Partition::of("any"), &[]);
    let keys: usize = store.servers().run("test", count).await.expect("all keys expire");
    assert!(keys > 300, "{keys}");
    let written = server.files();
    assert!(written.windows(4).any(|bytes| bytes == b"s199"), "the file was written");
    assert!(!written.windows(7).any(|bytes| bytes == b"secret-"), "a ticket or scan id was stored");
}

/// Hardening fault 5.
#[tokio::test]
async fn server_that_restarts_empty_lets_nobody_in_and_denials_come_back() {
    let mut server = RedisServer::start(&[]);
    let store = open(&config(&server.url())).await.expect("store");
    let clock = Clock::system();
    let (live, revoked) = (session("live", &clock), session("revoked", &clock));
    store.create(&live).await.expect("create");
    store.create(&revoked).await.expect("create");
    store.revoke(&revoked.id, LIFETIME, EndCause::Logout).await.expect("revoke");
    let mut changes = store.changes();
    server.kill();
    server.restart();
    wait_for(&mut changes, |change| matches!(change, Change::PrimaryChanged)).await;
    assert_eq!(found(&store, &live.id).await, None, "the lookup is positive");
    assert_eq!(found(&store, &revoked.id).await, None);
    // The denial is in the store again: another gateway, which remembers nothing, finds it.
    let partition = Partition::of(revoked.id.as_str());
    let key = store.servers().keys().key(partition, &format!("d:{}", revoked.id));
    let started = Instant::now();
    while store.servers().run::<u8>("test", RedisCall::command(partition, "EXISTS").arg(&key)).await.ok() != Some(1) {
        assert!(started.elapsed() < Duration::from_secs(20), "the denial was not written again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn lost_data_and_a_trimmed_feed_are_noticed() {
    let server = RedisServer::start(&[]);
    let store = open(&config(&server.url())).await.expect("store");
    let kept = session("s1", &Clock::system());
    store.create(&kept).await.expect("create");
    let mut changes = store.changes();
    let next = Session { version: kept.version.next(), ..kept.clone() };
    store.replace(&next, kept.version).await.expect("replace");
    wait_for(&mut changes, |change| matches!(change, Change::SessionChanged(_))).await;
    let partition = Partition::of("s1");
    server.ask("FLUSHALL\r\n").expect("an answer");
    wait_for(&mut changes, |change| matches!(change, Change::PrimaryChanged)).await;
    // An entry whose number does not follow.
    let feed = store.servers().keys().key(partition, "f");
    let append = RedisCall::command(partition, "XADD").arg(&feed).arg("*").arg("n").arg(7).arg("t").arg("digest");
    store.servers().run::<String>("test", append).await.expect("append");
    wait_for(&mut changes, |change| matches!(change, Change::Missed(missed) if *missed == partition)).await;
    wait_for(&mut changes, |change| matches!(change, Change::TicketMoved(_))).await;
}

/// Hardening fault 6: what the server refuses is never answered as done.
#[tokio::test]
async fn refused_writes_are_failures() {
    let server = RedisServer::start(&["requirepass old"]);
    let url = format!("redis://:old@127.0.0.1:{}", server.port);
    let store = open(&config(&url)).await.expect("store");
    let clock = Clock::system();
    let admin = |command: &str| server.ask(&format!("AUTH old\r\n{command}\r\n")).expect("an answer");
    let faults = [
        ("READONLY", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("OOM", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("NOREPLICAS", "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("NOPERM", "ACL SETUSER default -@all +auth +acl", "ACL SETUSER default +@all"),
    ];
    for (number, (fault, begin, end)) in faults.into_iter().enumerate() {
        let kept = session(&format!("s{number}"), &clock);
        let started = Instant::now();
        while let Err(error) = store.create(&kept).await {
            assert!(started.elapsed() < Duration::from_secs(20), "{fault}: not back: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        admin(begin);
        let unavailable = |result: Result<(), StoreError>| matches!(result, Err(StoreError::Unavailable(_)));
        // A full server lets a logout through, because it frees more than it needs.
        let logout = store.revoke(&kept.id, LIFETIME, EndCause::Logout).await;
        let is_done = logout.is_ok();
        assert!(is_done == (fault == "OOM") && (is_done || unavailable(logout)), "{fault}: a logout");
        assert!(unavailable(store.create(&session("new", &clock)).await), "{fault}: a sign-in");
        let waiting = ticket("t1", &clock);
        assert!(unavailable(store.create_ticket(&waiting).await), "{fault}: a ticket");
        assert!(store.ready().await.is_err(), "{fault}: ready");
        admin(end);
        assert_eq!(found(&store, &kept.id).await.is_none(), is_done, "{fault}: what was answered is what was done");
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
}

#[tokio::test]
async fn gateway_with_a_fast_clock_removes_nothing_of_the_others() {
    let config = config(&redis::standalone());
    let (clock, fast_clock) = (Clock::system(), Clock::system());
    fast_clock.set_forward(10 * LIFETIME);
    let store = open(&config).await.expect("store");
    let fast = RedisStore::open(&config, fast_clock, Arc::new(Metrics::new().expect("metrics"))).await.expect("store");
    let kept = session("s1", &clock);
    store.create(&kept).await.expect("create");
    let status = GatewayStatus {
        id: GatewayId::new("one"),
        host: "host".to_owned(),
        listen: "127.0.0.1:1".to_owned(),
        version: "1".to_owned(),
        commit: String::new(),
        rules: String::new(),
        config: String::new(),
        sockets: 0,
        feed_lag_ms: None,
        started_at: clock.now(),
        announced_at: clock.now(),
    };
    store.announce(&status, LIFETIME).await.expect("announce");
    fast.sweep().await.expect("sweep");
    assert_eq!(fast.find(&kept.id).await.expect("find"), None, "expired for this one");
    assert_eq!(store.find(&kept.id).await.expect("find"), Some(kept.clone()));
    let own = store.of_employee(&kept.corp_id, &kept.employee_id).await.expect("list");
    assert_eq!(own.len(), 1, "still in the index");
    for reader in [&fast, &store] {
        assert_eq!(reader.gateways().await.expect("gateways"), std::slice::from_ref(&status));
    }
}

#[tokio::test]
async fn sessions_of_a_leaver_end_on_the_servers_that_answer() {
    let mut cluster = RedisCluster::of_two_primaries();
    let store = Arc::new(open(&config(&cluster.url())).await.expect("store"));
    let cache = SessionCache::new(store.clone(), 100, LIFETIME, Duration::ZERO);
    let clock = Clock::system();
    let sessions: Vec<Session> = (0..40).map(|number| session(&format!("s{number}"), &clock)).collect();
    for kept in &sessions {
        store.create(kept).await.expect("create");
    }
    cluster.members[0].kill();
    let ended = cache.end_all_of(&sessions[0].corp_id, &sessions[0].employee_id, EndCause::Left).await;
    assert!(ended.is_err(), "not all of them");
    let mut gone = 0;
    for kept in &sessions {
        if let Ok(found) = store.find(&kept.id).await {
            assert_eq!(found, None);
            gone += 1;
        }
    }
    assert!((5..35).contains(&gone), "{gone} of 40");
}

#[tokio::test]
async fn password_that_changes_is_read_again_from_its_file() {
    let server = RedisServer::start(&["requirepass old"]);
    let folder = tempfile::tempdir().expect("a folder");
    let password_file = crate::servers::write(folder.path(), "password", "old\n");
    let store = open(&StoreConfig { password_file, ..config(&server.url()) }).await.expect("store");
    let kept = session("kept", &Clock::system());
    store.create(&kept).await.expect("create");
    server.ask("AUTH old\r\nCONFIG SET requirepass new\r\nCLIENT KILL TYPE normal\r\n").expect("an answer");
    let started = Instant::now();
    while store.find(&kept.id).await.is_ok() {
        assert!(started.elapsed() < Duration::from_secs(20), "the old password opens a connection");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    crate::servers::write(folder.path(), "password", "new\n");
    assert_eq!(found(&store, &kept.id).await, Some(kept));
}

#[tokio::test]
async fn confirmed_change_has_a_replica_or_fails() {
    let alone = RedisServer::start(&[]);
    let confirmed = |url: &str| StoreConfig { confirm: StoreConfirm::Replica, ..config(url) };
    let store = open(&StoreConfig { timeout: Duration::from_millis(500).into(), ..confirmed(&alone.url()) }).await;
    let store = store.expect("store");
    let clock = Clock::system();
    let kept = session("s1", &clock);
    assert!(matches!(store.create(&kept).await, Err(StoreError::Unavailable(_))), "nobody confirms");
    let replica = RedisServer::start(&[&format!("replicaof 127.0.0.1 {}", alone.port)]);
    redis::wait_for_offset(&alone, &replica);
    let started = Instant::now();
    while let Err(error) = store.revoke(&kept.id, LIFETIME, EndCause::Logout).await {
        assert!(started.elapsed() < Duration::from_secs(20), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The replica has it, whatever happens to the primary now.
    assert!(replica.ask("KEYS *:d:s1\r\n").expect("an answer").contains(":d:s1"));
    assert_eq!(found(&store, &kept.id).await, None);
}

#[tokio::test]
async fn promise_that_the_servers_cannot_keep_is_refused_at_the_start() {
    let confirmed = |url: &str| StoreConfig { confirm: StoreConfirm::Fsync, ..config(url) };
    let careless = RedisServer::start(&["appendonly yes", "appendfsync everysec"]);
    let is_old = careless.ask("INFO server\r\n").expect("an answer").contains("redis_version:7.0");
    let opened = open(&confirmed(&careless.url())).await;
    assert_eq!(opened.is_err(), is_old, "WAITAOF came with 7.2");
    let negligent = RedisServer::start(&["appendonly yes", "appendfsync no"]);
    assert!(open(&confirmed(&negligent.url())).await.is_err(), "nothing syncs the disk");
    let careful = RedisServer::start(&["appendonly yes", "appendfsync always"]);
    let store = open(&confirmed(&careful.url())).await.expect("store");
    store.create(&session("s1", &Clock::system())).await.expect("create");
    assert_eq!(store.durability_gaps(), [DurabilityGap::NoReplica]);
    let forgetful = RedisServer::start(&["maxmemory-policy allkeys-lru"]);
    let gaps = open(&config(&forgetful.url())).await.expect("store").durability_gaps();
    let expected =
        [DurabilityGap::NothingOnDisk, DurabilityGap::Eviction("allkeys-lru".to_owned()), DurabilityGap::NoReplica];
    assert_eq!(gaps, expected);
}

/// Needs a server with WAITAOF: Redis 7.2 or Valkey (`DESKGATE_TEST_REDIS`).
#[tokio::test]
async fn changes_at_the_same_time_are_on_disk_when_they_are_answered() {
    const CHANGES: usize = 200;
    let server = RedisServer::start(&["appendonly yes", "appendfsync everysec"]);
    if server.ask("INFO server\r\n").expect("an answer").contains("redis_version:7.0") {
        return eprintln!("skipped: the server has no WAITAOF");
    }
    // The usual time limit, which is much shorter than a second.
    let timeout = StoreConfig::default().timeout;
    let settings = StoreConfig { confirm: StoreConfirm::Fsync, timeout, ..config(&server.url()) };
    let store = open(&settings).await.expect("store");
    let clock = Clock::system();
    let sessions: Vec<Session> = (0..CHANGES).map(|number| session(&format!("s{number}"), &clock)).collect();
    let started = Instant::now();
    for created in futures::future::join_all(sessions.iter().map(|one| store.create(one))).await {
        created.expect("confirmed");
    }
    assert!(started.elapsed() < Duration::from_secs(10), "one after the other: {:?}", started.elapsed());
    assert!(String::from_utf8_lossy(&server.files()).contains(":s:s199"), "in the file");
}

/// The key prefix of a store.
pub fn store_prefix(store: &RedisStore) -> String {
    let key = store.servers().keys().key(Partition::of("any"), "x");
    key.split(":{").next().expect("a prefix").to_owned()
}

/// Hardening fault 7.
#[tokio::test]
async fn silent_and_cut_connections_are_replaced_and_the_feed_goes_on() {
    let server = RedisServer::start(&[]);
    let proxy = TcpProxy::start(server.port).await;
    let direct = config(&server.url());
    let limited = StoreConfig {
        url: deskgate::config::StoreUrl::new(format!("redis://127.0.0.1:{}", proxy.port)),
        timeout: Duration::from_millis(500).into(),
        ..direct.clone()
    };
    let (one, other) = (open(&direct).await.expect("store"), open(&limited).await.expect("store"));
    let clock = Clock::system();
    let mut changes = other.changes();
    for (number, fault) in [Answers::Swallow, Answers::Pass].into_iter().enumerate() {
        let kept = session(&format!("s{number}"), &clock);
        one.create(&kept).await.expect("create");
        proxy.set(fault.clone());
        proxy.cut();
        assert!(other.find(&kept.id).await.is_err() || matches!(fault, Answers::Pass));
        one.revoke(&kept.id, LIFETIME, EndCause::Logout).await.expect("revoke");
        proxy.set(Answers::Pass);
        // The feed goes on where it stopped.
        let ended = next_change(&mut changes).await;
        assert!(matches!(&ended, Change::SessionEnded { id, .. } if *id == kept.id), "{ended:?}");
        assert_eq!(found(&other, &kept.id).await, None);
    }
}
