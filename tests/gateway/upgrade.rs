//! `deskgate serve --upgrade`: a new process takes the sockets over, and no request is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;

/// What a load generator has counted.
#[derive(Default)]
struct LoadCount {
    is_over: AtomicBool,
    answered: AtomicUsize,
    failed: AtomicUsize,
    longest_ms: AtomicUsize,
}

/// Sends one request after the other, on a new connection where the gateway closes one. A connection that is refused, reset or
/// closed without a response counts as failed, and so does a status other than 200.
async fn send_requests(server: ServerAddress, request: Arc<[u8]>, count: Arc<LoadCount>) {
    let mut open = None;
    while !count.is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let Ok(mut connection) = (match open.take() {
            Some(connection) => Ok(connection),
            None => Connection::try_open(server.clone()).await,
        }) else {
            count.failed.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        connection.send(&request).await;
        match connection.try_response(BodyFraming::FromHead).await {
            Ok(Some(response)) if response.status == 200 => {
                count.answered.fetch_add(1, Ordering::Relaxed);
                count.longest_ms.fetch_max(began.elapsed().as_millis() as usize, Ordering::Relaxed);
                open = (response.header("connection") != Some("close")).then_some(connection);
            }
            _ => {
                count.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

struct Load {
    count: Arc<LoadCount>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(desk: &Gateway, person: &Client, clients: usize) -> Load {
        let authorization = format!("Authorization: Bearer {}\r\n", person.token());
        let requests: [Arc<[u8]>; 2] = [
            raw_request(desk, "GET /api/desk/x", &authorization, b"").into(),
            raw_request(desk, "POST /api/desk/x", &format!("{authorization}Content-Length: 4\r\n"), b"body").into(),
        ];
        let count = Arc::<LoadCount>::default();
        let clients = (0..clients)
            .map(|number| send_requests(desk.server_address(), requests[number % 2].clone(), count.clone()))
            .map(tokio::spawn)
            .collect();
        Load { count, clients }
    }

    async fn wait_for_answers(&self, more: usize) {
        let wanted = self.count.answered.load(Ordering::Relaxed) + more;
        let answered = || async { (self.count.answered.load(Ordering::Relaxed) >= wanted).then_some(()) };
        eventually("more answers", answered).await;
    }

    /// Ends the load and returns how many requests have failed.
    async fn end(self) -> usize {
        self.count.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            within(TEST_TIMEOUT, "the end of a client", client).await.expect("a client");
        }
        let LoadCount { answered, failed, longest_ms, .. } = &*self.count;
        eprintln!("{answered:?} answered, {failed:?} failed, the longest took {longest_ms:?} ms");
        failed.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn upgrades_under_load_fail_no_request_and_keep_sessions() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let load = Load::start(&desk, &xiaoming, 8);
    for _ in 0..3 {
        load.wait_for_answers(50).await;
        let pid = desk.pid();
        assert_eq!(desk.upgrade().await.code(), Some(0));
        assert_ne!(desk.pid(), pid);
        desk.wait_for_log(&["ready listen=", &format!(" pid={}", desk.pid())]).await;
        load.wait_for_answers(50).await;
    }
    assert_eq!(load.end().await, 0);
    xiaoming.get("/api/auth/me").await.expect_code(0);
    desk.command(&["session", "list"]).await.expect_success();
    assert_eq!(desk.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn new_connections_wait_while_the_databases_change_hands() {
    let mut desk = Gateway::with("[server]\nupgrade_drain = \"2s\"\n").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut held = desk.connect().await;
    held.send(&raw_request(&desk, "GET /public/held", "", b"")).await;
    let mut upstream = upstream_connections.next().await;
    let server = desk.server_address();
    let ready = raw_request(&desk, "GET /api/ready", "", b"");
    let waiting = async {
        // The old process does not accept any more when it has begun to drain.
        eventually("a connection that waits", || async {
            let mut connection = Connection::open(server.clone()).await;
            connection.send(&ready).await;
            let answer = tokio::time::timeout(Duration::from_millis(300), connection.response()).await;
            answer.is_err().then_some(connection)
        })
        .await
    };
    let finish = async {
        let waiting = waiting.await;
        upstream.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
        assert_eq!(held.response().await.expect("a response").text(), "done", "a request that had begun");
        waiting
    };
    let (status, mut waiting) = tokio::join!(desk.upgrade(), finish);
    assert_eq!(status.code(), Some(0));
    waiting.response().await.expect("a response of the new process").expect_status(200);
}

#[tokio::test]
async fn upgrade_cuts_what_lasts_longer_than_its_drain() {
    let mut desk = Gateway::with("[server]\nupgrade_drain = \"500ms\"\n").await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    let mut endless = desk.connect().await;
    endless.send(&raw_request(&desk, "GET /public/endless", "", b"")).await;
    desk.upstream.wait_for_requests(1).await;
    let began = Instant::now();
    assert_eq!(desk.upgrade().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(15), "server.drain is 30 s: {:?}", began.elapsed());
    assert!(endless.response().await.is_none());
}

#[tokio::test]
async fn upgrade_closes_websockets_with_1001_and_they_reconnect_at_once() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    socket.echo("hello").await;
    let reconnect = async {
        assert_eq!(socket.close_code_within(TEST_TIMEOUT).await, Some(1001));
        xiaoming.websocket("/ws/employee").await.echo("again").await;
    };
    let (status, ()) = tokio::join!(desk.upgrade(), reconnect);
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn upgrade_that_fails_its_checks_does_not_disturb_the_running_gateway() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    let good = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    std::fs::write(desk.rules_file(), "[[rule]").expect("bad rules");
    let failure = desk.try_upgrade(&[], &[]).await.expect_err("no upgrade");
    assert_eq!(failure.status.code(), Some(1), "{}", failure.stderr);
    assert!(failure.stderr.contains("test.toml:1"), "{}", failure.stderr);
    socket.echo("still open").await;
    std::fs::write(desk.rules_file(), good).expect("good rules");
    assert_eq!(desk.upgrade().await.code(), Some(0));
}

#[tokio::test]
async fn upgrade_to_an_address_in_use_does_not_disturb_the_running_gateway() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let occupied = other.local_addr().expect("an address");
    for setting in
        [format!("server.admin_listen={occupied}"), format!("server.listen=[\"127.0.0.1:0\", \"{occupied}\"]")]
    {
        let failure = desk.try_upgrade(&["--set", &setting], &[]).await.expect_err("no upgrade");
        assert_eq!(failure.status.code(), Some(1), "{}", failure.stderr);
        assert!(failure.stderr.contains(&format!("cannot listen on {occupied}")), "{}", failure.stderr);
        let key = setting.split('=').next().expect("a key");
        desk.wait_for_log(&["WARN", "nothing has changed", &format!("cannot listen on {occupied}"), key]).await;
        socket.echo("still open").await;
    }
    assert!(!desk.logs().contains("draining"), "{}", desk.logs());
}

#[tokio::test]
async fn upgrade_with_too_few_descriptors_does_not_disturb_the_running_gateway() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    let program = env!("CARGO_BIN_EXE_deskgate");
    let script = format!("ulimit -n 48; exec {program} serve --upgrade --config {}", desk.config_file().display());
    let shell = move || std::process::Command::new("sh").args(["-c", &script]).output();
    let refused = tokio::task::spawn_blocking(shell).await.expect("a thread").expect("a shell");
    assert_eq!(refused.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("the limit on open files is 48"), "{stderr}");
    socket.echo("still open").await;
    assert!(!desk.logs().contains("draining"), "{}", desk.logs());
}

/// A setting that passes all checks, with which the new process fails once it opens its databases.
const UNREACHABLE_DIRECTORY: &str = "directory.url=postgres://deskgate@127.0.0.1:1/deskgate";

#[tokio::test]
async fn gateway_goes_on_if_the_new_process_fails_to_start() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let load = Load::start(&desk, &xiaoming, 4);
    let failure = desk.try_upgrade(&["--set", UNREACHABLE_DIRECTORY], &[]).await.expect_err("no upgrade");
    assert_eq!(failure.status.code(), Some(1), "{}", failure.stderr);
    let why = "the new process has failed: this one goes on";
    desk.wait_for_log(&["ERROR", why, "reason", "postgres://127.0.0.1:1/deskgate: the directory is unavailable"]).await;
    load.wait_for_answers(50).await;
    assert_eq!(load.end().await, 0, "not even then");
    desk.command(&["session", "list"]).await.expect_success();
    let other = desk.try_upgrade(&[], &[]).await.expect("an upgrade afterwards");
    assert_eq!(other.code(), Some(0));
    xiaoming.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn failed_upgrade_cuts_what_it_says_that_it_cuts() {
    let mut desk = Gateway::with("[server]\nupgrade_drain = \"500ms\"\n").await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    let mut endless = desk.connect().await;
    endless.send(&raw_request(&desk, "GET /public/endless", "", b"")).await;
    desk.upstream.wait_for_requests(1).await;
    desk.try_upgrade(&["--set", UNREACHABLE_DIRECTORY], &[]).await.expect_err("no upgrade");
    assert!(endless.response().await.is_none());
    desk.wait_for_log(&["drain timeout", r#""requests":1"#]).await;
    desk.wait_for_log(&["/public/endless", "cut: it was still open at the end of the drain"]).await;
}

#[tokio::test]
async fn second_gateway_is_told_that_the_data_directory_is_in_use() {
    let (desk, fleet) = (Gateway::start().await, Fleet::with("").await);
    for running in [&desk, &fleet.one] {
        let listen = format!("server.listen=[\"{}\"]", running.address());
        let admin = format!("server.admin_listen={}", running.admin_address());
        let refused = running.command(&["serve", "--set", &listen, "--set", &admin]).await;
        assert_eq!(refused.status.code(), Some(1));
        let stderr = String::from_utf8_lossy(&refused.stderr);
        for part in ["another deskgate is using this data directory", "run `deskgate serve --upgrade` to replace it"] {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
        running.anonymous().get("/api/ready").await.expect_code(0);
    }
}

#[tokio::test]
async fn upgrade_without_a_running_gateway_starts_one() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    assert_eq!(desk.upgrade().await.code(), Some(0));
    desk.anonymous().get("/api/ready").await.expect_code(0);
    desk.wait_for_log(&["nothing to take over"]).await;
}

#[tokio::test]
async fn gateways_of_a_fleet_run_beside_each_other_during_an_upgrade() {
    let mut fleet = Fleet::with("[server]\ndrain = \"10s\"\n").await;
    let desk = &mut fleet.two;
    let xiaoming = desk.sign_in("u1001").await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut held = desk.connect().await;
    held.send(&raw_request(desk, "GET /public/held", "", b"")).await;
    let mut upstream = upstream_connections.next().await;
    let (server, ready) = (desk.server_address(), raw_request(desk, "GET /api/ready", "", b""));
    let old = desk.pid();
    let proceed = async {
        // Only the new process closes none of its connections; the old one says that it will.
        eventually("an answer of the new process", || async {
            let mut connection = Connection::open(server.clone()).await;
            connection.send(&ready).await;
            let answer = tokio::time::timeout(Duration::from_millis(500), connection.response()).await;
            let logs = std::fs::read_to_string(format!("/proc/{old}/stat")).is_ok();
            matches!(answer, Ok(Some(answer)) if answer.status == 200 && logs).then_some(())
        })
        .await;
        upstream.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
        assert_eq!(held.response().await.expect("a response").text(), "done", "the old process finishes its requests");
    };
    let (status, ()) = tokio::join!(desk.upgrade(), proceed);
    assert_eq!(status.code(), Some(0));
    xiaoming.get("/api/auth/me").await.expect_code(0);
    fleet.one.anonymous().get("/api/ready").await.expect_code(0);
}

#[tokio::test]
async fn reloads_a_new_certificate_and_an_upgrade_under_load_fail_no_request() {
    let mut desk = Gateway::setup().tls().start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let load = Load::start(&desk, &xiaoming, 4);
    let rules = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    for round in 0..20 {
        let rule = format!(
            "\n[[rule]]\nname = \"round {round}\"\npath = \"/round-{round}/{{*rest}}\"\nupstream = \"helpdesk\"\npublic = true\n"
        );
        std::fs::write(desk.rules_file(), format!("{rules}{rule}")).expect("rules");
        if round == 10 {
            desk.certificate_files().write(&desk.new_certificate());
        }
        desk.signal("HUP");
        let target = format!("/round-{round}/x");
        let answers = || async { (desk.anonymous().get(&target).await.status == 200).then_some(()) };
        eventually("the new rule", answers).await;
    }
    load.wait_for_answers(20).await;
    assert_eq!(desk.upgrade().await.code(), Some(0));
    load.wait_for_answers(20).await;
    assert_eq!(load.end().await, 0);
    xiaoming.get("/api/auth/me").await.expect_code(0);
}
