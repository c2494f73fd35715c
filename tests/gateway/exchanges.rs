//! Open exchanges: logout, expiry, lost roles and reloads cut downloads, uploads and event streams.

use std::time::{Duration, Instant};

use crate::support::*;

/// For slow machines; the median of the times is held to the contract's bound.
const CUT_DEADLINE: Duration = Duration::from_secs(5);

/// Where there is only one time to measure, which a busy machine may delay.
const CUT_AT_ONCE: Duration = Duration::from_secs(1);

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nevent 1\n\r\n";

/// An exchange in progress: the client's and the upstream's connection.
struct OpenExchange {
    client: BufferedStream,
    upstream: BufferedStream,
}

impl OpenExchange {
    /// Sends `request` over a new connection and `response` to the client, which reads it up to `seen`.
    async fn begin(desk: &Gateway, request: &[u8], response: &str, seen: &str) -> OpenExchange {
        let mut connections = UpstreamConnections::intercept(&desk.upstream);
        let mut client = BufferedStream::from_connection(desk.connect().await);
        client.send(request).await;
        let mut upstream = connections.next().await.stream;
        if !response.is_empty() {
            upstream.send(response.as_bytes()).await;
            client.read_until(seen.as_bytes()).await;
        }
        OpenExchange { client, upstream }
    }

    /// Begins an event stream with a GET.
    async fn events(desk: &Gateway, client: &Client, target: &str) -> OpenExchange {
        OpenExchange::begin(desk, &get(desk, client, target), EVENTS, "event 1\n\r\n").await
    }

    /// Sends another event through.
    async fn relays_events(&mut self) {
        self.upstream.send(b"8\r\nevent 2\n\r\n").await;
        self.client.read_until(b"event 2\n\r\n").await;
    }

    /// Waits for the end of both connections; returns the bytes that the client still got.
    async fn expect_cut(&mut self) -> Vec<u8> {
        let rest = self.client.read_to_end_within(CUT_DEADLINE).await;
        self.upstream.read_to_end_within(CUT_DEADLINE).await;
        rest
    }
}

fn authorization(client: &Client) -> String {
    client.token_if_any().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default()
}

fn get(desk: &Gateway, client: &Client, target: &str) -> Vec<u8> {
    raw_request(desk, &format!("GET {target}"), &authorization(client), b"")
}

fn post(desk: &Gateway, client: &Client, target: &str, length: usize, body: &[u8]) -> Vec<u8> {
    let headers = format!("{}Content-Length: {length}\r\n", authorization(client));
    raw_request(desk, &format!("POST {target}"), &headers, body)
}

/// A preflight, which the upstream of a rule with `cors = "upstream"` answers.
fn preflight(desk: &Gateway, target: &str) -> Vec<u8> {
    let headers = "Origin: https://desk.example\r\nAccess-Control-Request-Method: PUT\r\n";
    raw_request(desk, &format!("OPTIONS {target}"), headers, b"")
}

/// Edits every rule, drops those for which `edit` returns false, and reloads.
async fn reload_rules(desk: &Gateway, mut edit: impl FnMut(&str, &mut toml::Table) -> bool) {
    let rules: toml::Table = std::fs::read_to_string(desk.rules_file()).expect("rules").parse().expect("TOML");
    let mut rules = rules["rule"].as_array().expect("rules").clone();
    rules.retain_mut(|rule| {
        let name = rule["name"].as_str().expect("a name").to_owned();
        edit(&name, rule.as_table_mut().expect("a table"))
    });
    let rules = toml::Table::from_iter([("rule".to_owned(), rules.into())]);
    std::fs::write(desk.rules_file(), rules.to_string()).expect("new rules");
    desk.signal("HUP");
    desk.wait_for_log(&["reloaded"]).await;
}

fn require_admin(rule: &mut toml::Table) {
    rule.remove("public");
    rule.remove("signed_in");
    rule.insert("roles".to_owned(), vec!["admin"].into());
}

async fn wait_for_open(desk: &Gateway, count: f64) {
    eventually(&format!("{count} open exchanges"), || async {
        (desk.metric("deskgate_exchanges_open", &[]).await == count).then_some(())
    })
    .await;
}

async fn expect_cut_count(desk: &Gateway, cause: &str, count: f64) {
    let label = format!("cause=\"{cause}\"");
    assert_eq!(desk.metric("deskgate_exchanges_cut_total", &[&label]).await, count, "{cause}");
}

#[tokio::test]
async fn silent_event_stream_is_ended_and_not_logged_as_refused() {
    let desk = Gateway::setup().toml("[upstreams.helpdesk]\nanswer_timeout = \"200ms\"").start().await;
    let client = desk.anonymous();
    for (lane, request) in [
        ("encoded head", get(&desk, &client, "/public/x")),
        ("Pingora's proxy", post(&desk, &client, "/public/y", 0, b"")),
    ] {
        let mut stream = OpenExchange::begin(&desk, &request, EVENTS, "event 1\n\r\n").await;
        let rest = stream.expect_cut().await;
        assert_eq!(rest, b"", "{lane}: the stream has no end");
    }
    for path in ["/public/x", "/public/y"] {
        let line = desk.wait_for_log(&[&format!(r#""http.path":"{path}""#), "response ended early with 1504"]).await;
        assert!(!line.contains("refused") && line.contains(r#""http.status":200"#), "{line}");
    }
}

#[tokio::test]
async fn logout_cuts_event_streams_downloads_and_uploads() {
    let desk = Gateway::start().await;
    // Long enough that no buffer on the way holds all of it back.
    let length = format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(200_000));
    let mut times = Vec::new();
    for (case, method, response, seen) in [
        ("an event stream", "GET", EVENTS, "event 1\n\r\n"),
        ("a download with Content-Length", "GET", &length, "xxx"),
        ("a response that has not begun", "GET", "", ""),
        ("an event stream in response to a POST", "POST", EVENTS, "event 1\n\r\n"),
        ("a download in response to a POST", "POST", &length, "xxx"),
        ("an upload", "upload", "", ""),
        ("an upload whose response has begun", "upload", EVENTS, "event 1\n\r\n"),
    ] {
        let xiaoming = desk.sign_in("u1001").await;
        let request = match method {
            "GET" => get(&desk, &xiaoming, "/api/desk/x"),
            "POST" => post(&desk, &xiaoming, "/api/desk/x", 2, b"{}"),
            _ => post(&desk, &xiaoming, "/api/desk/x", 1_000_000, b"part"),
        };
        let mut exchange = OpenExchange::begin(&desk, &request, response, seen).await;
        wait_for_open(&desk, 1.0).await;
        xiaoming.post("/api/auth/logout").await.expect_code(0);
        let answered = Instant::now();
        let rest = exchange.expect_cut().await;
        assert!(rest.iter().all(|byte| *byte == b'x'), "{case}: no final chunk and no error follows: {rest:?}");
        assert!(rest.len() <= 200_000, "{case}: {} bytes", rest.len());
        times.push(answered.elapsed());
        wait_for_open(&desk, 0.0).await;
    }
    expect_cut_count(&desk, "revoked", times.len() as f64).await;
    assert_within_revocation_bound(times);
    let line = desk.wait_for_log(&["cut: the session ended", "/api/desk/x", "everyone signed in"]).await;
    assert!(line.contains("u1001"), "{line}");
    assert_eq!(desk.metric("deskgate_requests_in_flight", &[]).await, 0.0);
}

#[tokio::test]
async fn logout_cuts_exchanges_that_are_blocked_on_either_side() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let upload = post(&desk, &xiaoming, "/api/desk/up", 1 << 30, b"part");
    let OpenExchange { client: mut uploading, upstream: _does_not_read } =
        OpenExchange::begin(&desk, &upload, "", "").await;
    uploading.send_until_blocked(&[b'x'; 1 << 16], 64 << 20).await;
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n";
    let mut upstreams = Vec::new();
    let mut clients = Vec::new();
    for request in [get(&desk, &xiaoming, "/api/desk/down"), post(&desk, &xiaoming, "/api/desk/down", 2, b"{}")] {
        let OpenExchange { client, mut upstream } = OpenExchange::begin(&desk, &request, "", "").await;
        upstream.send(head.as_bytes()).await;
        upstream.send_until_blocked(&[b'x'; 1 << 16], 64 << 20).await;
        upstreams.push(upstream);
        clients.push(client);
    }
    wait_for_open(&desk, 3.0).await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    for upstream in &mut upstreams {
        upstream.read_to_end_within(CUT_DEADLINE).await;
    }
    uploading.read_to_end_within(CUT_DEADLINE).await;
    expect_cut_count(&desk, "revoked", 3.0).await;
}

#[tokio::test]
async fn logout_cuts_only_the_exchanges_of_its_session() {
    let desk = Gateway::start().await;
    let (xiaoming, other) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    let mut ended = OpenExchange::events(&desk, &xiaoming, "/api/desk/x").await;
    let mut of_other_session = OpenExchange::events(&desk, &other, "/api/desk/x").await;
    let mut anonymous = OpenExchange::events(&desk, &desk.anonymous(), "/public/x").await;
    wait_for_open(&desk, 3.0).await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    ended.expect_cut().await;
    of_other_session.relays_events().await;
    anonymous.relays_events().await;
    expect_cut_count(&desk, "revoked", 1.0).await;
}

#[tokio::test]
async fn logout_before_the_registration_cuts_the_exchange_after_a_second() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let began = Instant::now();
    let mut exchange = OpenExchange::events(&desk, &xiaoming, "/api/desk/x").await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    exchange.expect_cut().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    expect_cut_count(&desk, "revoked", 1.0).await;
}

#[tokio::test]
async fn token_expiry_cuts_exchanges() {
    let desk = Gateway::with("[token]\nlifetime = \"3s\"\nleeway = \"0s\"").await;
    let xiaoming = desk.sign_in("u1001").await;
    let began = Instant::now();
    let mut download = OpenExchange::events(&desk, &xiaoming, "/api/desk/x").await;
    let request = post(&desk, &xiaoming, "/api/desk/x", 1_000_000, b"part");
    let mut upload = OpenExchange::begin(&desk, &request, "", "").await;
    download.expect_cut().await;
    upload.expect_cut().await;
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
    expect_cut_count(&desk, "expired", 2.0).await;
    desk.wait_for_log(&["cut: the token expired"]).await;
}

#[tokio::test]
async fn disabling_an_employee_cuts_exchanges() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("a2001").await;
    let mut download = OpenExchange::events(&desk, &alice, "/api/agent-desk/x").await;
    let request = post(&desk, &alice, "/api/agent-desk/x", 1_000_000, b"part");
    let mut upload = OpenExchange::begin(&desk, &request, "", "").await;
    wait_for_open(&desk, 2.0).await;
    desk.command(&["employee", "disable", "a2001"]).await.expect_success();
    let answered = Instant::now();
    download.expect_cut().await;
    upload.expect_cut().await;
    assert!(answered.elapsed() < CUT_AT_ONCE, "{:?}", answered.elapsed());
    expect_cut_count(&desk, "revoked", 2.0).await;
}

#[tokio::test]
async fn lost_role_cuts_the_exchanges_that_need_it() {
    let desk = Gateway::setup()
        .more_rules(
            r#"
            [[rule]]
            name = "agents in shadow mode"
            path = "/api/shadow-desk/{*rest}"
            upstream = "helpdesk"
            roles = ["agent"]
            mode = "shadow"
            "#,
        )
        .start()
        .await;
    let alice = desk.sign_in("a2001").await;
    let request = post(&desk, &alice, "/api/agent-desk/x", 1_000_000, b"part");
    let mut upload = OpenExchange::begin(&desk, &request, "", "").await;
    let mut download = OpenExchange::events(&desk, &alice, "/api/agent-desk/x?a=1").await;
    let mut needs_none = OpenExchange::events(&desk, &alice, "/api/desk/x").await;
    let mut in_shadow_mode = OpenExchange::events(&desk, &alice, "/api/shadow-desk/x").await;
    wait_for_open(&desk, 4.0).await;
    desk.command(&["role", "take", "a2001", "agent"]).await.expect_success();
    let answered = Instant::now();
    upload.expect_cut().await;
    download.expect_cut().await;
    assert!(answered.elapsed() < CUT_AT_ONCE, "{:?}", answered.elapsed());
    needs_none.relays_events().await;
    in_shadow_mode.relays_events().await;
    expect_cut_count(&desk, "forbidden", 2.0).await;
    desk.wait_for_log(&["cut: the rule no longer admits the caller"]).await;
    alice.post("/api/auth/logout").await.expect_code(0);
    needs_none.expect_cut().await;
    in_shadow_mode.expect_cut().await;
}

#[tokio::test]
async fn reload_cuts_exchanges_that_it_no_longer_admits() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let request = post(&desk, &xiaoming, "/api/token-too/x", 1_000_000, b"part");
    let mut rule_is_gone = OpenExchange::begin(&desk, &request, "", "").await;
    let request = post(&desk, &xiaoming, "/api/desk/x", 1_000_000, b"part");
    let mut method_is_gone = OpenExchange::begin(&desk, &request, "", "").await;
    let mut stricter = OpenExchange::events(&desk, &xiaoming, "/api/read-only/x").await;
    let mut stays = OpenExchange::events(&desk, &xiaoming, "/api/desk/x").await;
    wait_for_open(&desk, 4.0).await;
    reload_rules(&desk, |name, rule| {
        match name {
            "everyone signed in" => drop(rule.insert("methods".to_owned(), vec!["GET"].into())),
            "readers" => require_admin(rule),
            _ => {}
        }
        name != "token passed on"
    })
    .await;
    for exchange in [&mut rule_is_gone, &mut method_is_gone, &mut stricter] {
        exchange.expect_cut().await;
    }
    stays.relays_events().await;
    expect_cut_count(&desk, "forbidden", 3.0).await;
}

const ANONYMOUS_RULES: &str = r#"
[[rule]]
name = "anyone, for now"
path = "/gone/{*rest}"
upstream = "helpdesk"
public = true

[[rule]]
name = "shadow for anyone"
path = "/shadow/{*rest}"
upstream = "helpdesk"
roles = ["agent"]
mode = "shadow"
shadow_anonymous = true

[[rule]]
name = "shadow for anyone, still"
path = "/shadow-still/{*rest}"
upstream = "helpdesk"
roles = ["agent"]
mode = "shadow"
shadow_anonymous = true

[[rule]]
name = "preflights for the upstream"
path = "/cors/{*rest}"
methods = ["PUT"]
upstream = "helpdesk"
signed_in = true
cors = "upstream"

[[rule]]
name = "preflights for the upstream, still"
path = "/cors-still/{*rest}"
methods = ["PUT"]
upstream = "helpdesk"
signed_in = true
cors = "upstream"
"#;

fn admits_fewer_anonymous(name: &str, rule: &mut toml::Table) -> bool {
    match name {
        "anyone" => require_admin(rule),
        "shadow for anyone" => drop(rule.remove("shadow_anonymous")),
        "preflights for the upstream" => drop(rule.remove("cors")),
        _ => {}
    }
    name != "anyone, for now"
}

#[tokio::test]
async fn reload_cuts_anonymous_exchanges_that_it_no_longer_admits() {
    let desk = Gateway::setup().more_rules(ANONYMOUS_RULES).start().await;
    let anonymous = desk.anonymous();
    let upload = post(&desk, &anonymous, "/public/x", 1_000_000, b"part");
    let mut cut = vec![
        OpenExchange::events(&desk, &anonymous, "/public/x?a=1").await,
        OpenExchange::begin(&desk, &upload, "", "").await,
        OpenExchange::events(&desk, &desk.with_token("not.a.token"), "/gone/x").await,
        OpenExchange::events(&desk, &anonymous, "/shadow/x").await,
        OpenExchange::begin(&desk, &preflight(&desk, "/cors/x"), EVENTS, "event 1\n\r\n").await,
    ];
    let mut stay = vec![
        OpenExchange::events(&desk, &anonymous, "/shadow-still/x").await,
        OpenExchange::begin(&desk, &preflight(&desk, "/cors-still/x"), EVENTS, "event 1\n\r\n").await,
    ];
    wait_for_open(&desk, 7.0).await;
    for exchange in cut.iter_mut().skip(2).chain(&mut stay) {
        exchange.relays_events().await;
    }
    reload_rules(&desk, admits_fewer_anonymous).await;
    let reloaded = Instant::now();
    for exchange in &mut cut {
        assert_eq!(exchange.expect_cut().await, b"", "no final chunk and no error follows");
    }
    assert!(reloaded.elapsed() < CUT_AT_ONCE, "{:?}", reloaded.elapsed());
    for exchange in &mut stay {
        exchange.relays_events().await;
    }
    wait_for_open(&desk, 2.0).await;
    expect_cut_count(&desk, "forbidden", 5.0).await;
    desk.wait_for_log(&["cut: the rule no longer admits the caller", "/public/x"]).await;
}

#[tokio::test]
async fn reload_before_the_registration_cuts_the_anonymous_exchange_after_a_second() {
    let desk = Gateway::setup().more_rules(ANONYMOUS_RULES).start().await;
    let mut exchange = OpenExchange::events(&desk, &desk.anonymous(), "/public/x").await;
    reload_rules(&desk, admits_fewer_anonymous).await;
    exchange.expect_cut().await;
    expect_cut_count(&desk, "forbidden", 1.0).await;
}

#[tokio::test]
async fn reload_resets_anonymous_http2_streams_that_it_no_longer_admits() {
    let desk = Gateway::setup().tls().more_rules(ANONYMOUS_RULES).start().await;
    let streams = desk.anonymous().http2().await;
    let mut connections = UpstreamConnections::intercept(&desk.upstream);
    let mut cut = streams.begin("GET", "/public/x", "not.a.token").await;
    let mut cut_upstream = connections.next().await.stream;
    let mut stays = streams.begin("GET", "/shadow-still/x", "not.a.token").await;
    let mut stays_upstream = connections.next().await.stream;
    wait_for_open(&desk, 2.0).await;
    reload_rules(&desk, admits_fewer_anonymous).await;
    assert!(cut.next_piece().await.expect_err("a reset stream").is_reset());
    cut_upstream.read_to_end_within(CUT_DEADLINE).await;
    stays_upstream.send(EVENTS.as_bytes()).await;
    assert_eq!(stays.next_piece().await.expect("an event"), b"event 1\n");
    expect_cut_count(&desk, "forbidden", 1.0).await;
}

#[tokio::test]
async fn exchanges_shorter_than_a_second_are_not_registered() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let anonymous = desk.anonymous();
    let mut connection = desk.connect().await;
    let began = Instant::now();
    // The age counts for each exchange, not for its connection.
    while began.elapsed() < Duration::from_millis(1500) {
        for (client, target) in [(&xiaoming, "/api/desk/x"), (&anonymous, "/public/x")] {
            connection.send(&get(&desk, client, target)).await;
            connection.response().await.expect("a response").expect_status(200);
            connection.send(&post(&desk, client, target, 2, b"{}")).await;
            connection.response().await.expect("a response").expect_status(200);
        }
        assert_eq!(desk.metric("deskgate_exchanges_open", &[]).await, 0.0);
    }
}

#[tokio::test]
async fn connection_serves_on_after_a_long_exchange() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let requests = [get(&desk, &xiaoming, "/api/desk/x"), post(&desk, &xiaoming, "/api/desk/x", 2, b"{}")];
    for request in requests {
        let exchange = OpenExchange::begin(&desk, &request, EVENTS, "event 1\n\r\n").await;
        let OpenExchange { mut client, mut upstream } = exchange;
        wait_for_open(&desk, 1.0).await;
        upstream.send(b"0\r\n\r\n").await;
        client.read_until(b"0\r\n\r\n").await;
        wait_for_open(&desk, 0.0).await;
        drop(upstream);
        desk.upstream.set_behaviour(Behaviour::Echo);
        client.send(&get(&desk, &xiaoming, "/api/desk/next")).await;
        client.read_until(b"/api/desk/next").await;
    }
    expect_cut_count(&desk, "revoked", 0.0).await;
}

#[tokio::test]
async fn drain_lets_open_exchanges_finish() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut exchange = OpenExchange::events(&desk, &xiaoming, "/api/desk/x").await;
    wait_for_open(&desk, 1.0).await;
    desk.signal("TERM");
    desk.until_not_accepting().await;
    exchange.relays_events().await;
    exchange.upstream.send(b"0\r\n\r\n").await;
    exchange.client.read_until(b"0\r\n\r\n").await;
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn logout_resets_only_the_http2_streams_of_its_session() {
    let desk = Gateway::setup().tls().start().await;
    let (xiaoming, other) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    let streams = desk.anonymous().http2().await;
    let mut connections = UpstreamConnections::intercept(&desk.upstream);
    let mut begin = async |client: &Client, method: &str, body: &[u8]| {
        let mut stream = streams.begin(method, "/api/desk/x", client.token()).await;
        stream.send(body).await;
        let mut upstream = connections.next().await.stream;
        upstream.send(EVENTS.as_bytes()).await;
        assert_eq!(stream.next_piece().await.expect("an event"), b"event 1\n");
        (stream, upstream)
    };
    let (mut download, mut download_upstream) = begin(&xiaoming, "GET", b"").await;
    let (mut upload, mut upload_upstream) = begin(&xiaoming, "POST", b"part").await;
    let (mut stays, mut stays_upstream) = begin(&other, "GET", b"").await;
    let mut waiting = streams.begin("GET", "/api/desk/x", xiaoming.token()).await;
    let mut waiting_upstream = connections.next().await.stream;
    wait_for_open(&desk, 4.0).await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    let answered = Instant::now();
    for stream in [&mut download, &mut upload, &mut waiting] {
        let error = stream.next_piece().await.expect_err("a reset stream");
        assert!(error.is_reset() && error.is_remote(), "{error:?}");
    }
    for upstream in [&mut download_upstream, &mut upload_upstream, &mut waiting_upstream] {
        upstream.read_to_end_within(CUT_DEADLINE).await;
    }
    assert!(answered.elapsed() < CUT_AT_ONCE, "{:?}", answered.elapsed());
    stays_upstream.send(b"8\r\nevent 2\n\r\n").await;
    assert_eq!(stays.next_piece().await.expect("an event"), b"event 2\n");
    desk.upstream.set_behaviour(Behaviour::Echo);
    streams.get("/public/x").await.expect_status(200);
    expect_cut_count(&desk, "revoked", 3.0).await;
    desk.wait_for_log(&["cut: the session ended", "/api/desk/x"]).await;
}

#[tokio::test]
async fn logout_cuts_exchanges_over_tls() {
    let desk = Gateway::setup().tls().start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut exchange = OpenExchange::events(&desk, &xiaoming, "/api/desk/x").await;
    wait_for_open(&desk, 1.0).await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    assert_eq!(exchange.expect_cut().await, b"");
}

#[tokio::test]
async fn lost_role_resets_http2_streams_that_need_it() {
    let desk = Gateway::setup().tls().start().await;
    let alice = desk.sign_in("a2001").await;
    let streams = desk.anonymous().http2().await;
    let mut connections = UpstreamConnections::intercept(&desk.upstream);
    let mut stream = streams.begin("GET", "/api/agent-desk/x", alice.token()).await;
    let mut upstream = connections.next().await.stream;
    wait_for_open(&desk, 1.0).await;
    desk.command(&["role", "take", "a2001", "agent"]).await.expect_success();
    assert!(stream.next_piece().await.expect_err("a reset stream").is_reset());
    upstream.read_to_end_within(CUT_DEADLINE).await;
    expect_cut_count(&desk, "forbidden", 1.0).await;
}
