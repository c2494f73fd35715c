//! Upstreams of several addresses, some of which fail: retries, ejection and health checks.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::*;

/// The settings of the test's upstream with these addresses.
fn settings(addresses: &[&Upstream], more: &str) -> String {
    let addresses: Vec<String> = addresses.iter().map(|upstream| format!("\"{}\"", upstream.address())).collect();
    format!("[upstreams.helpdesk]\naddresses = [{}]\n{more}", addresses.join(", "))
}

/// `deskgate upstream list --json`
async fn rows(desk: &Gateway) -> Vec<Value> {
    let output = desk.command(&["upstream", "list", "--json"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

async fn row_of(desk: &Gateway, upstream: &Upstream) -> Value {
    let address = upstream.address().to_string();
    rows(desk).await.into_iter().find(|row| row["address"] == address).expect("a row")
}

async fn wait_for_state(desk: &Gateway, upstream: &Upstream, state: &str) {
    eventually(&format!("state {state}"), || async { (row_of(desk, upstream).await["state"] == state).then_some(()) })
        .await;
}

/// An address that drops every connection attempt: its backlog is full and nothing accepts.
struct BlackHole {
    listener: TcpListener,
    _backlog: Vec<TcpStream>,
}

impl BlackHole {
    async fn open() -> BlackHole {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let listener = socket.listen(1).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut backlog = Vec::new();
        while let Ok(stream) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
            backlog.push(stream.expect("a connection"));
        }
        BlackHole { listener, _backlog: backlog }
    }
}

#[tokio::test]
async fn black_holed_address_delays_only_the_first_requests() {
    let (hole, live) = (BlackHole::open().await, Upstream::start().await);
    let hole = hole.listener.local_addr().expect("an address");
    let desk = Gateway::with(&format!(
        "[upstreams.helpdesk]\naddresses = [\"{hole}\", \"{}\"]\nconnect_timeout = \"200ms\"\n\
         ejection = {{ failures = 3, for = \"10m\", longest = \"10m\" }}",
        live.address()
    ))
    .await;
    for number in 0..20 {
        let response = desk.anonymous().get("/public/x").await;
        assert_eq!(response.status, 200, "{number}: {}", response.describe());
    }
    let timeouts = desk.metric("deskgate_upstream_failures_total", &["reason=\"connect_timeout\""]).await;
    assert_eq!(timeouts, 3.0, "attempts at the address that drops everything");
    assert_eq!(desk.metric("deskgate_upstream_retries_total", &["upstream=\"helpdesk\""]).await, 3.0);
    let label = format!("address=\"{hole}\"");
    assert_eq!(desk.metric("deskgate_upstream_ejections_total", &["upstream=\"helpdesk\"", &label]).await, 1.0);
    assert_eq!(desk.metric("deskgate_upstream_ejections_total", &[]).await, 1.0);
    assert_eq!(desk.metric("deskgate_upstream_healthy", &[&label]).await, 0.0);
    assert_eq!(desk.metric("deskgate_upstream_healthy", &[]).await, 1.0);
}

#[tokio::test]
async fn connection_that_times_out_is_1504() {
    let hole = BlackHole::open().await;
    let address = hole.listener.local_addr().expect("an address");
    let desk = Gateway::with(&format!(
        "[upstreams.helpdesk]\naddresses = [\"{address}\"]\nconnect_timeout = \"100ms\"\nretries = 0"
    ))
    .await;
    desk.anonymous().get("/public/x").await.expect_code(1504);
    desk.anonymous().post_body("/public/x", "text/plain", b"hello").await.expect_code(1504);
    desk.anonymous().handshake("/ws/public").expect_refused().await.expect_code(1504);
}

#[tokio::test]
async fn request_that_can_be_repeated_is_sent_to_another_address_after_a_reset() {
    let (failing, live) = (Upstream::start().await, Upstream::start().await);
    failing.set_behaviour(Behaviour::CloseWithoutResponse);
    let settings = settings(&[&failing, &live], "ejection = { failures = 0 }\nretry_budget = 100");
    let desk = Gateway::setup().tls().toml(&settings).start().await;
    let (client, http2) = (desk.anonymous(), desk.anonymous().http2().await);
    for method in ["GET", "PUT", "DELETE"] {
        for number in 0..4 {
            let body: &[u8] = if method == "PUT" { b"body" } else { b"" };
            let response = client.send(method, "/public/x", &[], body).await;
            assert_eq!(response.status, 200, "{method} {number}: {}", response.describe());
            let response = http2.send(method, "/public/x", &[], body).await;
            assert_eq!(response.status, 200, "HTTP/2 {method} {number}: {}", response.describe());
        }
    }
    let before = failing.requests().len() + live.requests().len();
    let mut refused = 0;
    for _ in 0..4 {
        refused += usize::from(client.post_body("/public/x", "text/plain", b"once").await.status == 502);
        refused += usize::from(http2.send("POST", "/public/x", &[], b"once").await.status == 502);
    }
    assert_eq!(refused, 4, "every second POST");
    assert_eq!(failing.requests().len() + live.requests().len(), before + 8, "no POST is sent twice");
}

#[tokio::test]
async fn failed_attempts_are_logged_with_their_address_and_counted() {
    let (dead, live) = (Upstream::start().await, Upstream::start().await);
    dead.stop_listening().await;
    let desk = Gateway::with(&settings(&[&dead, &live], "")).await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    let address = dead.address().to_string();
    let line = desk.wait_for_log(&["deskgate::upstream", &address]).await;
    for part in ["\"upstream.name\":\"helpdesk\"", "\"attempt\":1", "\"reason\":\"refused\"", "\"fault\":\"upstream\""]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    for part in ["\"bytes_sent\":0", "\"bytes_received\":0", "request.id"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let row = row_of(&desk, &dead).await;
    assert_eq!((&row["failures"], &row["last_failure"]), (&1.into(), &"refused".into()), "{row}");
    assert_eq!(desk.metric("deskgate_upstream_failures_total", &["reason=\"refused\""]).await, 1.0);
}

#[tokio::test]
async fn ejected_address_returns_when_it_answers_again() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    one.stop_listening().await;
    let more = "ejection = { failures = 1, for = \"200ms\" }\nslow_start = \"0s\"";
    let desk = Gateway::with(&settings(&[&one, &two], more)).await;
    for _ in 0..4 {
        desk.anonymous().get("/public/x").await.expect_status(200);
    }
    one.resume_listening().await;
    eventually("a request at the address that is back", || async {
        desk.anonymous().get("/public/x").await.expect_status(200);
        (!one.requests().is_empty()).then_some(())
    })
    .await;
    let address = one.address().to_string();
    let ejected = desk.wait_for_log(&["address ejected after 1 failures in a row", &address]).await;
    let ejected: Value = serde_json::from_str(&ejected).expect("JSON");
    let (logged, until) = (ejected["timestamp"].as_str().expect("a time"), ejected["until"].as_str().expect("a time"));
    assert!(until.len() >= 19 && logged[..16] <= until[..16], "{ejected}");
    desk.wait_for_log(&["deskgate::upstream", "address returns after its ejection", &address]).await;
}

#[tokio::test]
async fn failures_are_counted_from_zero_for_each_address_until_it_is_removed() {
    let (dead, live) = (Upstream::start().await, Upstream::start().await);
    dead.stop_listening().await;
    let desk = Gateway::with(&settings(&[&dead, &live], "")).await;
    let of = |upstream: &Upstream| format!("address=\"{}\"", upstream.address());
    let page = desk.metrics().await;
    for reason in
        ["refused", "connect_timeout", "connect", "tls", "reset", "timeout", "invalid_response", "check", "other"]
    {
        let sample = |upstream: &Upstream| {
            let address = of(upstream);
            format!("deskgate_upstream_failures_total{{{address},reason=\"{reason}\",upstream=\"helpdesk\"}} 0\n")
        };
        assert!([&dead, &live].into_iter().all(|upstream| page.contains(&sample(upstream))), "{reason}: {page}");
    }
    for reason in ["untrusted_proxy", "proxy_header", "plain_http", "tls_handshake"] {
        let sample = format!("deskgate_connections_refused_total{{reason=\"{reason}\"}} 0\n");
        assert!(page.contains(&sample), "{sample}: {page}");
    }
    desk.anonymous().get("/public/x").await.expect_status(200);
    let failures = "deskgate_upstream_failures_total";
    assert_eq!(desk.metric(failures, &["reason=\"refused\"", &of(&dead)]).await, 1.0);
    assert_eq!(desk.metric(failures, &[&of(&live)]).await, 0.0);

    let file = std::fs::read_to_string(desk.config_file()).expect("a configuration");
    let without = file.replace(&format!("\"{}\", ", dead.address()), "");
    assert_ne!(file, without, "the address is removed");
    std::fs::write(desk.config_file(), without).expect("a configuration");
    desk.signal("HUP");
    eventually("no series of the removed address", || async {
        (!desk.metrics().await.contains(&of(&dead))).then_some(())
    })
    .await;
    assert!(desk.metrics().await.contains(&of(&live)));
}

#[tokio::test]
async fn all_addresses_are_used_if_none_is_healthy() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    let more = "health = { path = \"/health\", every = \"100ms\", timeout = \"10s\", expect = [204] }";
    let desk = Gateway::with(&settings(&[&one, &two], more)).await;
    wait_for_state(&desk, &one, "unhealthy").await;
    wait_for_state(&desk, &two, "unhealthy").await;
    for _ in 0..4 {
        desk.anonymous().get("/public/x").await.expect_status(200);
    }
    let proxied = |upstream: &Upstream| upstream.requests().iter().filter(|seen| seen.target == "/public/x").count();
    assert_eq!((proxied(&one), proxied(&two)), (2, 2));
}

#[tokio::test]
async fn health_checks_take_a_hung_address_out_and_bring_it_back() {
    let (hung, live) = (Upstream::start().await, Upstream::start().await);
    let more = "health = { path = \"/health?deep=1\", every = \"100ms\", timeout = \"500ms\" }\nslow_start = \"0s\"";
    let desk = Gateway::with(&settings(&[&hung, &live], more)).await;
    hung.set_behaviour(Behaviour::NeverRespond);
    wait_for_state(&desk, &hung, "unhealthy").await;
    let row = row_of(&desk, &hung).await;
    assert_eq!(row["last_failure"], "health check: no answer within 500ms", "{row}");
    let started = Instant::now();
    for _ in 0..10 {
        desk.anonymous().get("/public/x").await.expect_status(200);
    }
    assert!(started.elapsed() < Duration::from_secs(20), "requests go to the hung address");
    assert_eq!(live.requests().iter().filter(|seen| seen.target == "/public/x").count(), 10);
    let check = live.requests().into_iter().find(|seen| seen.target == "/health?deep=1").expect("a check");
    assert_eq!(check.header("host"), Some(live.address().to_string().as_str()));
    assert!(check.header("user-agent").is_some_and(|agent| agent.starts_with("deskgate/")));
    hung.set_behaviour(Behaviour::Echo);
    wait_for_state(&desk, &hung, "healthy").await;
    desk.wait_for_log(&["deskgate::upstream", "address is healthy again"]).await;
}

/// What a client saw of one request.
struct Seen {
    took: Duration,
    /// The name of the upstream that answered; None after a failure.
    by: Option<String>,
}

/// Eight clients send GET and POST by turns, for a number of requests each.
async fn load(desk: &Gateway, requests: usize) -> Vec<Seen> {
    let clients = (0..8).map(|client| async move {
        let mut seen = Vec::new();
        for number in 0..requests {
            let started = Instant::now();
            let response = match (client + number) % 2 {
                0 => desk.anonymous().get("/public/x").await,
                _ => desk.anonymous().post_body("/public/x", "text/plain", b"body").await,
            };
            let by = (response.status == 200).then(|| response.text());
            seen.push(Seen { took: started.elapsed(), by });
        }
        seen
    });
    join_all(clients).await.into_iter().flatten().collect()
}

/// The 99th percentile of the requests that these upstreams answered.
fn p99(seen: &[Seen], names: &[&str]) -> Duration {
    let is_theirs = |seen: &&Seen| seen.by.as_deref().is_some_and(|by| names.contains(&by));
    let mut times: Vec<Duration> = seen.iter().filter(is_theirs).map(|seen| seen.took).collect();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// The answer of a healthy upstream: its name.
fn named(name: &str) -> Behaviour {
    Behaviour::Respond(ok_response("", name.as_bytes()))
}

/// Far more than the fifth that an idle machine shows: these tests run beside others.
fn assert_unmoved(before: Duration, after: Duration) {
    assert!(after < before * 2 + Duration::from_secs(1), "p99 of the others: {before:?} before, {after:?} after");
}

async fn three_upstreams() -> ([Upstream; 3], Gateway) {
    let upstreams = [Upstream::start().await, Upstream::start().await, Upstream::start().await];
    for (upstream, name) in upstreams.iter().zip(["one", "two", "three"]) {
        upstream.set_behaviour(named(name));
    }
    let more = "answer_timeout = \"3s\"\nhealth = { path = \"/health\", every = \"100ms\", timeout = \"1s\" }";
    let desk = Gateway::with(&settings(&[&upstreams[0], &upstreams[1], &upstreams[2]], more)).await;
    (upstreams, desk)
}

#[tokio::test]
async fn killed_address_fails_only_the_requests_that_were_on_it() {
    let ([one, two, three], desk) = three_upstreams().await;
    let before = load(&desk, 30).await;
    assert!(before.iter().all(|seen| seen.by.is_some()));
    let (during, ()) = tokio::join!(load(&desk, 60), async {
        one.wait_for_requests(100).await;
        one.stop_listening().await;
    });
    let failed = during.iter().filter(|seen| seen.by.is_none()).count();
    // A POST cannot be repeated; each client has at most one on the address.
    assert!(failed <= 8, "{failed} of {} requests failed", during.len());
    let after = load(&desk, 30).await;
    assert!(after.iter().all(|seen| seen.by.is_some()), "the address is out");
    assert_unmoved(p99(&before, &["two", "three"]), p99(&after, &["two", "three"]));
    drop((two, three));
}

#[tokio::test]
async fn hung_address_fails_only_the_requests_that_were_on_it() {
    let ([one, _two, _three], desk) = three_upstreams().await;
    let before = load(&desk, 30).await;
    one.clear_requests();
    one.set_behaviour(Behaviour::NeverRespond);
    let during = load(&desk, 60).await;
    let failed = during.iter().filter(|seen| seen.by.is_none()).count();
    let on_it = one.requests().iter().filter(|seen| seen.target == "/public/x").count();
    assert!(failed <= on_it && on_it < during.len() / 4, "{failed} failed, {on_it} were on the hung address");
    assert_unmoved(p99(&before, &["two", "three"]), p99(&during, &["two", "three"]));
    let after = load(&desk, 20).await;
    assert!(after.iter().all(|seen| seen.by.is_some()), "the address is out");
}

#[tokio::test]
async fn slow_address_slows_only_the_requests_that_are_on_it() {
    let ([one, _two, _three], desk) = three_upstreams().await;
    let before = load(&desk, 30).await;
    one.set_behaviour(Behaviour::Script(std::sync::Arc::new(|_, mut stream, _| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, &ok_response("Connection: close\r\n", b"one")).await;
        })
    })));
    let during = load(&desk, 30).await;
    assert!(during.iter().all(|seen| seen.by.is_some()), "no request fails");
    assert!(p99(&during, &["one"]) >= Duration::from_millis(300));
    assert_unmoved(p99(&before, &["two", "three"]), p99(&during, &["two", "three"]));
}

#[tokio::test]
async fn clients_that_disconnect_leave_no_request_in_flight_and_no_failure() {
    let desk = Gateway::with("[upstreams.helpdesk]\nmax_requests = 200").await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    for (line, headers) in [("GET /public/x", ""), ("POST /public/x", "Content-Length: 5\r\n")] {
        let mut connections = Vec::new();
        for _ in 0..150 {
            let mut connection = desk.connect().await;
            connection.send(&raw_request(&desk, line, headers, b"")).await;
            connections.push(connection);
        }
        desk.wait_for_requests_in_flight(150.0).await;
        drop(connections);
        desk.wait_for_requests_in_flight(0.0).await;
    }
    let row = row_of(&desk, &desk.upstream).await;
    assert_eq!((&row["in_flight"], &row["failures"]), (&0.into(), &0.into()), "{row}");
    desk.upstream.set_behaviour(Behaviour::Echo);
    desk.anonymous().get("/public/x").await.expect_status(200);
}
