//! Redis that answers wrongly, late, not at all or with a refusal: nobody is let in who should not be, the gateway says which
//! part is down, and recovers by itself.

use std::time::{Duration, Instant};

use crate::fleet::Fleet;
use crate::servers::redis::RedisServer;
use crate::servers::tcp_proxy::{Answers, TcpProxy};
use crate::support::*;

/// Known sessions get no grace, and a silent feed is noticed soon.
const STRICT: &str = "[store]\noutage_grace = \"0s\"\nfeed_stale = \"800ms\"\ntimeout = \"500ms\"\n";

/// A rule whose rate limit is counted in the store.
const COUNTED: &str = "\n[[rule]]\nname = \"counted\"\npath = \"/counted\"\nupstream = \"helpdesk\"\npublic = true\n\
     rate = [{ by = \"rule\", limit = 1000, per = \"1h\" }]\n";

/// How long a gateway may take to work again, on a busy machine.
const RECOVERY: Duration = Duration::from_secs(10);

/// Clients of a gateway whose store is about to fail.
struct Clients {
    /// The gateway has its session in its cache.
    known: Client,
    /// The gateway has not seen it yet; its session is valid.
    unknown: Client,
    /// In the cache too, and about to be logged out elsewhere.
    doomed: Client,
    /// Logged out before.
    revoked: Client,
}

impl Clients {
    async fn sign_in(gateway: &Gateway, elsewhere: &Gateway) -> Clients {
        let sign_in = || async { gateway.with_token(elsewhere.sign_in("a2001").await.token()) };
        let (known, unknown) = (sign_in().await, sign_in().await);
        let (doomed, revoked) = (sign_in().await, sign_in().await);
        for client in [&known, &doomed, &revoked] {
            until_status(client, 200).await;
        }
        elsewhere.with_token(revoked.token()).post("/api/auth/logout").await.expect_code(0);
        until_status(&revoked, 401).await;
        Clients { known, unknown, doomed, revoked }
    }
}

async fn try_sign_in(gateway: &Gateway) -> Response {
    gateway.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "a2001" })).await
}

async fn status(client: &Client) -> u16 {
    client.get("/api/agent-desk/x").await.status
}

async fn until_status(client: &Client, expected: u16) {
    eventually(&format!("status {expected}"), || async { (status(client).await == expected).then_some(()) }).await;
}

/// What the metrics say: `store_up`, `directory_up`, `revocation_feed_up`.
async fn parts_up(gateway: &Gateway) -> [f64; 3] {
    let page = gateway.metrics().await;
    ["store_up", "directory_up", "revocation_feed_up"].map(|name| {
        let line = page.lines().find_map(|line| line.strip_prefix("deskgate_")?.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
    })
}

async fn until_parts_are(gateway: &Gateway, expected: [f64; 3]) {
    eventually(&format!("store, directory and feed are {expected:?}"), || async {
        (parts_up(gateway).await == expected).then_some(())
    })
    .await;
}

/// `/api/ready` names the store, and only the store.
async fn expect_store_named(gateway: &Gateway, case: &str) {
    let report = eventually("the gateway is not ready", || async {
        Some(gateway.anonymous().get("/api/ready").await).filter(|response| response.status == 503)
    });
    let report = report.await.data();
    assert_eq!((&report["store"], &report["directory"]), (&json!("unavailable"), &json!("ok")), "{case}: {report}");
}

/// Waits until the gateway works again. Tokens that were logged out are refused while it waits, and afterwards.
async fn expect_recovery(gateway: &Gateway, clients: &Clients, refused: &[&Client], case: &str) {
    let begun = Instant::now();
    let recovered = eventually("known and unknown sessions are valid", || async {
        for client in refused {
            assert_ne!(status(client).await, 200, "{case}: a revoked session came back");
        }
        (status(&clients.known).await == 200 && status(&clients.unknown).await == 200).then_some(())
    });
    recovered.await;
    eventually("a sign-in", || async { (try_sign_in(gateway).await.code() == 0).then_some(()) }).await;
    until_parts_are(gateway, [1.0, 1.0, 1.0]).await;
    assert!(begun.elapsed() < RECOVERY, "{case}: {:?}", begun.elapsed());
    for client in refused {
        client.get("/api/agent-desk/x").await.expect_invalid_token();
    }
}

#[tokio::test]
async fn wrong_late_and_missing_answers_let_nobody_in_and_are_overcome() {
    let server = RedisServer::start(&[]);
    let proxy = TcpProxy::start(server.port).await;
    let mut fleet = Fleet::with_rules(&format!("redis://127.0.0.1:{}", proxy.port), 1, STRICT, COUNTED).await;
    let direct = fleet.setup_another().toml(&format!("[store]\nurl = \"{}\"\ntimeout = \"5s\"\n", server.url()));
    fleet.gateways.push(direct.start().await);
    let [gateway, elsewhere] = &fleet.gateways[..] else { panic!("two gateways") };
    for fault in [
        Answers::Swallow,
        Answers::Delay(Duration::from_secs(2)),
        Answers::Truncate,
        Answers::Replace(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        Answers::Replace(b"$99999999999999\r\n"),
    ] {
        let case = format!("{fault:?}");
        let clients = Clients::sign_in(gateway, elsewhere).await;
        proxy.set(fault);
        let begun = Instant::now();
        clients.unknown.get("/api/agent-desk/x").await.expect_code(1503);
        assert!(begun.elapsed() < Duration::from_secs(2), "{case}: a refusal takes {:?}", begun.elapsed());
        elsewhere.with_token(clients.doomed.token()).post("/api/auth/logout").await.expect_code(0);
        assert_eq!(try_sign_in(gateway).await.code(), 1503, "{case}");
        assert_eq!(clients.known.post("/api/auth/logout").await.code(), 1503, "{case}");
        gateway.anonymous().get("/counted").await.expect_status(200);
        // A stale feed ends the use of the cache.
        until_status(&clients.known, 503).await;
        assert_eq!(clients.doomed.get("/api/agent-desk/x").await.code(), 1503, "{case}");
        assert_ne!(status(&clients.revoked).await, 200, "{case}");
        expect_store_named(gateway, &case).await;
        until_parts_are(gateway, [0.0, 1.0, 0.0]).await;
        assert!(gateway.metric("deskgate_feed_lag_seconds", &[]).await > 0.8, "{case}");
        until_parts_are(elsewhere, [1.0, 1.0, 1.0]).await;

        proxy.set(Answers::Pass);
        expect_recovery(gateway, &clients, &[&clients.doomed, &clients.revoked], &case).await;
    }
    for result in ["ok", "failed"] {
        let labels = ["op=\"find\"", &format!("result=\"{result}\"")];
        assert!(gateway.metric("deskgate_store_seconds_count", &labels).await > 0.0, "{result}");
    }
    assert!(gateway.metric("deskgate_rate_lease_total", &["result=\"failed\""]).await > 0.0);
}

/// Hardening faults 3 and 4, and answers that are shifted by one too many.
#[tokio::test]
async fn late_or_shifted_answer_of_redis_never_reaches_another_request() {
    let server = RedisServer::start(&[]);
    let proxy = TcpProxy::start(server.port).await;
    let url = format!("redis://127.0.0.1:{}", proxy.port);
    // The feed is always stale, so that every request asks the store.
    let fleet = Fleet::on(&url, 1, &STRICT.replace("500ms", "200ms").replace("800ms", "100ms")).await;
    let gateway = &fleet.gateways[0];
    let mut clients = Vec::new();
    for employee in ["u1001", "a2001", "s3001", "c4001", "m5001"].iter().cycle().take(40) {
        let login = json!({ "employee_id": employee });
        let signed_in = eventually("a sign-in", || async {
            let response = gateway.anonymous().post_json("/api/dev/login", &login).await;
            (response.code() == 0).then(|| response.data())
        });
        clients.push((*employee, gateway.with_token(signed_in.await["token"].as_str().expect("a token"))));
    }
    let (mut admitted, mut refused) = (0, 0);
    for round in 0..12 {
        proxy.set(match round % 4 {
            0 => Answers::Delay(Duration::from_millis(120)),
            1 => Answers::Delay(Duration::from_millis(300)),
            2 => Answers::Precede(b"+OK\r\n"),
            _ => Answers::Pass,
        });
        let asked =
            clients.iter().map(|(employee, client)| async move { (*employee, client.get("/api/auth/me").await) });
        for (employee, response) in futures::future::join_all(asked).await {
            match response.code() {
                0 => assert_eq!(response.data()["employee_id"], employee, "another's session"),
                code => assert_eq!(code, 1503, "{}", response.describe()),
            }
            *(if response.code() == 0 { &mut admitted } else { &mut refused }) += 1;
        }
    }
    assert!(admitted > 0 && refused > 0, "{admitted} admitted, {refused} refused");
    proxy.set(Answers::Pass);
    for (employee, client) in &clients {
        let me =
            eventually("an answer", || async { Some(client.get("/api/auth/me").await).filter(|me| me.code() == 0) });
        assert_eq!(me.await.data()["employee_id"], *employee);
    }
}

/// What a server that refuses some commands still does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Answered,
    Refused,
}

/// Hardening fault 6, each with real servers' means.
#[tokio::test]
async fn redis_that_refuses_writes_or_everything_is_never_taken_for_a_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let password_file = crate::servers::write(folder.path(), "password", "first-password\n");
    let server = RedisServer::start(&["requirepass first-password", "enable-protected-configs yes", "save 3600 1"]);
    let settings = format!("{}password_file = {password_file:?}\n", STRICT.replace("500ms", "2s"));
    let fleet = Fleet::on(&server.url(), 2, &settings).await;
    let [gateway, elsewhere] = &fleet.gateways[..] else { panic!("two gateways") };
    let admin = RedisAdmin { server: &server, folder: folder.path() };
    for (fault, reads) in [
        ("MISCONF", Reads::Answered),
        ("OOM", Reads::Answered),
        ("READONLY", Reads::Refused),
        ("LOADING", Reads::Refused),
        ("WRONGPASS", Reads::Refused),
    ] {
        let clients = Clients::sign_in(gateway, elsewhere).await;
        admin.begin(fault);
        eventually("a refused sign-in", || async { (try_sign_in(gateway).await.code() == 1503).then_some(()) }).await;
        if fault != "OOM" {
            // A full server lets a logout through, because it frees more than it needs.
            assert_eq!(clients.known.post("/api/auth/logout").await.code(), 1503, "{fault}");
        }
        let unknown = clients.unknown.get("/api/agent-desk/x").await;
        match reads {
            Reads::Answered => unknown.expect_status(200),
            Reads::Refused => unknown.expect_code(1503),
        };
        assert_ne!(status(&clients.revoked).await, 200, "{fault}");
        expect_store_named(gateway, fault).await;
        until_parts_are(gateway, [0.0, 1.0, if reads == Reads::Answered { 1.0 } else { 0.0 }]).await;
        assert_eq!(status(&clients.known).await, if reads == Reads::Answered { 200 } else { 503 }, "{fault}");

        admin.end(fault);
        expect_recovery(gateway, &clients, &[&clients.revoked], fault).await;
        assert!(
            !["first-password", "second-password"].iter().any(|one| gateway.logs().contains(one)),
            "{fault}: a password is in the log"
        );
    }
}

/// Makes a server refuse commands.
struct RedisAdmin<'a> {
    server: &'a RedisServer,
    folder: &'a std::path::Path,
}

impl RedisAdmin<'_> {
    fn run(&self, commands: &str) -> String {
        let password = std::fs::read_to_string(self.folder.join("password")).expect("a password");
        let answer = self.server.ask(&format!("AUTH {password}\r\n{commands}\r\n")).expect("an answer");
        assert!(!answer.contains("-ERR"), "{commands}: {answer}");
        answer
    }

    fn save(&self, result: &str) {
        self.run("BGSAVE");
        crate::servers::wait_until("a snapshot", || {
            let info = self.run("INFO persistence");
            info.contains("rdb_bgsave_in_progress:0") && info.contains(&format!("rdb_last_bgsave_status:{result}"))
        });
    }

    fn begin(&self, fault: &str) {
        match fault {
            "MISCONF" => {
                let gone = self.folder.join("gone");
                std::fs::create_dir(&gone).expect("a folder");
                self.run(&format!("CONFIG SET dir {}", gone.display()));
                std::fs::remove_dir(&gone).expect("no folder");
                self.save("err");
            }
            "OOM" => drop(self.run("CONFIG SET maxmemory 1")),
            "READONLY" => drop(self.run("REPLICAOF 127.0.0.1 1")),
            "LOADING" => {
                self.run("DEBUG POPULATE 20000");
                self.run("CONFIG SET loading-process-events-interval-bytes 1024 key-load-delay 1000");
                // It answers once it has loaded everything, which takes as long as the delay is not removed.
                self.server.send("AUTH first-password\r\nDEBUG RELOAD\r\n");
            }
            "WRONGPASS" => drop(self.run("CONFIG SET requirepass second-password\r\nCLIENT KILL TYPE normal")),
            _ => panic!("{fault}"),
        }
    }

    fn end(&self, fault: &str) {
        match fault {
            "MISCONF" => {
                self.run(&format!("CONFIG SET dir {}", self.folder.display()));
                self.save("ok");
            }
            "OOM" => drop(self.run("CONFIG SET maxmemory 0")),
            "READONLY" => drop(self.run("REPLICAOF NO ONE")),
            "LOADING" => drop(self.run("CONFIG SET key-load-delay 0")),
            "WRONGPASS" => drop(crate::servers::write(self.folder, "password", "second-password\n")),
            _ => panic!("{fault}"),
        }
    }
}
