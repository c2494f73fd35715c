//! Calls to Redis servers of every arrangement: they reach the server of their partition, in time or not at all.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use deskgate::config::{HumanDuration, StoreConfig, StoreUrl};
use deskgate::domain::partition::Partition;
use deskgate::metrics::Metrics;
use deskgate::store::StoreError;
use deskgate::store::redis::{RedisCall, RedisServers, ServerScript};

use crate::servers::redis::groups::RedisCluster;
use crate::servers::redis::{self, RedisServer, own_prefix};
use crate::servers::tcp_proxy::{Answers, TcpProxy};

static INCREMENT: LazyLock<ServerScript> =
    LazyLock::new(|| ServerScript::new("return redis.call('INCRBY', KEYS[1], ARGV[1])"));

/// The settings of a store, with a key prefix of its own and more time than a busy machine needs.
pub fn config(url: &str) -> StoreConfig {
    let (url, prefix) = (StoreUrl::new(url), own_prefix());
    StoreConfig { url, prefix, timeout: HumanDuration::seconds(5), ..StoreConfig::default() }
}

/// The servers of a store.
pub async fn open(config: &StoreConfig) -> Result<RedisServers, StoreError> {
    RedisServers::open(config, Arc::new(Metrics::new().expect("metrics"))).await
}

fn increment(servers: &RedisServers, partition: Partition, by: i64) -> RedisCall {
    RedisCall::script(&INCREMENT, partition, &[servers.keys().key(partition, "test")]).arg(by)
}

/// Every call reaches the server of its partition, and every answer its call.
async fn calls_reach_every_partition(config: StoreConfig) {
    let servers = open(&config).await.expect("servers");
    let calls: Vec<RedisCall> =
        Partition::all().map(|partition| increment(&servers, partition, i64::from(partition.number()))).collect();
    let answers: Vec<i64> = servers.change_all("test", &calls).await.expect("answers");
    assert_eq!(answers, (0..64).collect::<Vec<i64>>());
    for partition in Partition::all() {
        let read = RedisCall::command(partition, "GET").arg(servers.keys().key(partition, "test"));
        assert_eq!(servers.run::<i64>("test", read).await.expect("answer"), i64::from(partition.number()));
    }
}

#[tokio::test]
async fn one_server_answers() {
    calls_reach_every_partition(config(&redis::standalone())).await;
}

#[tokio::test]
async fn sentinels_name_the_primary() {
    calls_reach_every_partition(config(&redis::sentinel())).await;
}

#[tokio::test]
async fn cluster_answers_on_all_primaries() {
    calls_reach_every_partition(config(&redis::cluster())).await;
}

#[tokio::test]
async fn tls_user_password_and_unix_socket_work_and_nothing_else_gets_in() {
    let (port, authority, socket) = redis::secured();
    let (user, password) = (redis::USER.0, "p%40ss/word");
    let folder = tempfile::tempdir().expect("a folder");
    let password_file = folder.path().join("password");
    std::fs::write(&password_file, format!("{}\n", redis::USER.1)).expect("a file");
    let encrypted = |sign_in: &str| StoreConfig {
        ca_file: authority.clone(),
        ..config(&format!("rediss://{sign_in}127.0.0.1:{port}"))
    };
    calls_reach_every_partition(encrypted(&format!("{user}:{password}@"))).await;
    calls_reach_every_partition(StoreConfig { password_file, ..encrypted(&format!("{user}@")) }).await;
    calls_reach_every_partition(config(&format!("redis+unix://{user}:{password}@{}", socket.display()))).await;
    let unknown_authority = StoreConfig { ca_file: Default::default(), ..encrypted(&format!("{user}:{password}@")) };
    let refused = [
        ("a wrong password", encrypted(&format!("{user}:wrong@"))),
        ("no password", encrypted("")),
        ("an unknown authority", unknown_authority),
        ("no TLS", config(&format!("redis://{user}:{password}@127.0.0.1:{port}"))),
    ];
    let opened =
        futures::future::join_all(refused.iter().map(|(case, config)| async move { (case, open(config).await) }));
    for (case, opened) in opened.await {
        let Err(StoreError::Unavailable(cause)) = opened else { panic!("{case} was let in") };
        assert!(!cause.to_string().contains(redis::USER.1), "{case}: {cause}");
    }
}

#[tokio::test]
async fn script_is_sent_again_to_a_server_that_forgot_it() {
    let server = RedisServer::start(&[]);
    let servers = open(&config(&server.url())).await.expect("servers");
    let partition = Partition::of("a");
    for expected in 1..=3 {
        server.ask("SCRIPT FLUSH\r\n").expect("an answer");
        let answer: i64 = servers.change("test", increment(&servers, partition, 1)).await.expect("answer");
        assert_eq!(answer, expected, "it ran once");
    }
}

#[tokio::test]
async fn a_replica_is_no_store() {
    let primary = RedisServer::start(&[]);
    let replica = RedisServer::start(&[&format!("replicaof 127.0.0.1 {}", primary.port)]);
    let Err(StoreError::Unavailable(cause)) = open(&config(&replica.url())).await else { panic!("a replica was used") };
    assert!(cause.to_string().contains("the server is a replica"), "{cause}");
}

#[tokio::test]
async fn calls_fail_in_time_while_a_server_is_away_and_work_again_soon_after() {
    let mut server = RedisServer::start(&[]);
    let limit = Duration::from_millis(400);
    let config = StoreConfig { timeout: limit.into(), ..config(&server.url()) };
    let servers = open(&config).await.expect("servers");
    let call = || servers.run::<i64>("test", increment(&servers, Partition::of("a"), 1));
    call().await.expect("an answer");
    for fault in ["killed", "stopped"] {
        if fault == "killed" {
            server.kill()
        } else {
            server.signal("STOP")
        }
        let started = Instant::now();
        for _ in 0..50 {
            assert!(call().await.is_err(), "{fault}: nobody is there");
        }
        // A call or two wait for their time limit, the others learn at once that the server is away.
        assert!(started.elapsed() < 10 * limit, "{fault}: {:?}", started.elapsed());
        if fault == "killed" {
            server.restart()
        } else {
            server.signal("CONT")
        }
        let back = Instant::now();
        while call().await.is_err() {
            assert!(back.elapsed() < Duration::from_secs(10), "{fault}: not back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn server_that_is_away_does_not_keep_calls_from_the_others() {
    let mut cluster = RedisCluster::of_two_primaries();
    let servers = open(&config(&cluster.url())).await.expect("servers");
    let calls: Vec<RedisCall> = Partition::all().map(|partition| increment(&servers, partition, 1)).collect();
    servers.run_all::<i64>("test", &calls).await.expect("answers");
    // The server of the first call.
    let away = cluster.member_of(&servers.keys().key(Partition::all().next().expect("one"), "test"));
    cluster.members[away].kill();
    for round in 2..=10 {
        assert!(servers.run_all::<i64>("test", &calls).await.is_err(), "some calls have failed");
        for partition in Partition::all() {
            let key = servers.keys().key(partition, "test");
            let count = cluster.members[1 - away].ask(&format!("GET {key}\r\n")).expect("an answer");
            let is_here = !count.starts_with("-MOVED");
            assert!(!is_here || count.contains(&format!("\r\n{round}\r\n")), "once in each round: {round} {count}");
        }
    }
    let each = servers.run_each::<i64>("test", &calls).await;
    let done = each.iter().filter(|answer| answer.is_ok()).count();
    assert!(each[0].is_err() && (10..54).contains(&done), "{done} of 64");
}

/// Hardening faults 3 and 4: an answer that comes too late reaches nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_answers_are_never_handed_to_another_call() {
    let server = RedisServer::start(&[]);
    let proxy = TcpProxy::start(server.port).await;
    let limit = Duration::from_millis(50);
    let config = StoreConfig { timeout: limit.into(), ..config(&format!("redis://127.0.0.1:{}", proxy.port)) };
    let servers = Arc::new(open(&config).await.expect("servers"));
    let echo = async |number: usize| {
        let call = RedisCall::command(Partition::of("a"), "ECHO").arg(number);
        servers.run::<usize>("test", call).await.ok().inspect(|answer| assert_eq!(*answer, number, "another's answer"))
    };
    let (mut answered, mut failed) = (0, 0);
    for round in 0..100 {
        // Now and then answers come after their calls have given up.
        let is_late = round % 5 == 3;
        proxy.set(if is_late { Answers::Delay(2 * limit) } else { Answers::Pass });
        let started = Instant::now();
        while !is_late && echo(round).await.is_none() {
            assert!(started.elapsed() < Duration::from_secs(10), "no answer any more");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let answers = futures::future::join_all((round * 100..(round + 1) * 100).map(&echo)).await;
        answered += answers.iter().flatten().count();
        failed += answers.len() - answers.iter().flatten().count();
    }
    assert!(answered > 1000 && failed > 100, "{answered} answered, {failed} failed");
}

#[tokio::test]
async fn truncated_answer_garbage_and_a_half_open_connection_are_failures() {
    let server = RedisServer::start(&[]);
    let proxy = TcpProxy::start(server.port).await;
    let limit = Duration::from_millis(400);
    let config = StoreConfig { timeout: limit.into(), ..config(&format!("redis://127.0.0.1:{}", proxy.port)) };
    let servers = open(&config).await.expect("servers");
    let call = || servers.run::<i64>("test", increment(&servers, Partition::of("a"), 1));
    for fault in [
        Answers::Swallow,
        Answers::Truncate,
        Answers::Replace(b"HTTP/1.1 200 OK\r\n\r\n"),
        Answers::Replace(b"$99999999999999\r\n"),
        Answers::Replace(b"+OK\r\n"),
        Answers::Precede(b"+OK\r\n"),
    ] {
        proxy.set(fault.clone());
        assert!(call().await.is_err(), "{fault:?}");
        proxy.set(Answers::Pass);
        let back = Instant::now();
        while call().await.is_err() {
            assert!(back.elapsed() < Duration::from_secs(10), "{fault:?}: not back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
