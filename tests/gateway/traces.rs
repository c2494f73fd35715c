//! `[traces]`: spans of sampled requests, exported by OTLP.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use deskgate::demo::SECRET;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const NOT_SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

#[tokio::test]
async fn a_request_has_a_server_span_and_a_client_span_that_the_upstream_continues() {
    let collector = Collector::start().await;
    let desk = Gateway::setup().tls().toml(&collector.settings("1.0")).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let http2 = xiaoming.http2().await;
    for (method, lane) in [("GET", "http1"), ("POST", "http1"), ("GET", "http2"), ("POST", "http2")] {
        let path = format!("/api/desk/{method}-{lane}");
        let target = format!("{path}?token=a-secret-of-the-query");
        match lane {
            "http1" => xiaoming.send(method, &target, &[("tracestate", "vendor=1")], b"").await.expect_status(200),
            _ => http2.send(method, &target, &[("tracestate", "vendor=1")], b"").await.expect_status(200),
        };
        let seen = desk.upstream.last_request();
        let (server, attempts) = collector.request(&path).await;
        assert_eq!(server.text("http.request.method"), Some(method));
        assert_eq!(server.text("http.route"), Some("/api/desk/{*rest}"));
        assert_eq!(server.span.name, format!("{method} /api/desk/{{*rest}}"));
        assert_eq!(server.text("deskgate.rule"), Some("everyone signed in"));
        assert_eq!(server.text("network.protocol.version"), Some(if lane == "http1" { "1.1" } else { "2" }));
        assert_eq!(server.text("url.scheme"), Some("https"));
        assert_eq!(server.number("http.response.status_code"), Some(200));
        assert_eq!(server.text("deskgate.request_id"), seen.header("x-request-id"));
        assert_eq!(server.resource_text("service.name"), Some("deskgate"));
        assert!(server.span.parent_span_id.is_empty() && !server.is_error(), "{server:?}");
        let [attempt] = &attempts[..] else { panic!("{attempts:?}") };
        assert_eq!((attempt.kind(), attempt.trace_id()), ("client", server.trace_id()));
        assert_eq!(attempt.text("deskgate.upstream"), Some("helpdesk"));
        assert_eq!(attempt.text("server.address"), Some("127.0.0.1"));
        assert_eq!(attempt.number("server.port"), Some(desk.upstream.address().port().into()));
        assert_eq!(attempt.number("http.response.status_code"), Some(200));
        assert_eq!(attempt.number("http.request.resend_count"), None);
        assert_eq!(seen.header("traceparent"), Some(&*attempt.as_parent()), "{method} {lane}");
        assert_eq!(seen.header("tracestate"), None, "it belongs to no trace that is continued");
        let (outer, inner) = (&server.span, &attempt.span);
        assert!(outer.start_time_unix_nano <= inner.start_time_unix_nano, "{outer:?} {inner:?}");
        assert!(inner.start_time_unix_nano <= inner.end_time_unix_nano, "{inner:?}");
        assert!(inner.end_time_unix_nano <= outer.end_time_unix_nano, "{outer:?} {inner:?}");
    }
    let raw = collector.raw();
    let has = |text: &str| raw.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("/api/desk/GET-http1"), "the bytes are searched");
    for secret in [xiaoming.token(), "a-secret-of-the-query", "u1001", "Bearer"] {
        assert!(!has(secret), "{secret} is in a span");
    }
}

#[tokio::test]
async fn a_websocket_has_the_spans_of_its_handshake() {
    let collector = Collector::start().await;
    let desk = Gateway::with(&collector.settings("1.0")).await;
    let xiaoming = desk.sign_in("u1001").await;
    let _socket = xiaoming.websocket("/ws/employee").await;
    let (server, attempts) = collector.request("/ws/employee").await;
    assert_eq!(server.number("http.response.status_code"), Some(101));
    let [attempt] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!(attempt.number("http.response.status_code"), Some(101));
    assert_eq!(desk.upstream.last_request().header("traceparent"), Some(&*attempt.as_parent()));
}

#[tokio::test]
async fn every_attempt_has_a_span() {
    let (dead, live, collector) = (Upstream::start().await, Upstream::start().await, Collector::start().await);
    dead.stop_listening().await;
    let settings = format!(
        "[upstreams.helpdesk]\naddresses = [\"{}\", \"{}\"]\nejection = {{ failures = 0 }}\nretry_budget = 100\n{}",
        dead.address(),
        live.address(),
        collector.settings("1.0")
    );
    let desk = Gateway::setup().tls().toml(&settings).start().await;
    let (client, http2) = (desk.anonymous(), desk.anonymous().http2().await);
    for (method, lane) in [("GET", "http1"), ("POST", "http1"), ("GET", "http2"), ("POST", "http2")] {
        let path = format!("/public/{method}-{lane}");
        match lane {
            "http1" => client.send(method, &path, &[], b"").await.expect_status(200),
            _ => http2.send(method, &path, &[], b"").await.expect_status(200),
        };
        let (server, attempts) = collector.request(&path).await;
        assert!(!server.is_error(), "{server:?}");
        let [failed, answered] = &attempts[..] else { panic!("{attempts:?}") };
        assert_eq!(failed.number("server.port"), Some(dead.address().port().into()));
        assert_eq!((failed.text("error.type"), failed.is_error()), (Some("refused"), true), "{failed:?}");
        assert_eq!(failed.number("http.response.status_code"), None);
        assert_eq!(answered.number("http.request.resend_count"), Some(1));
        assert_eq!((answered.text("error.type"), answered.is_error()), (None, false), "{answered:?}");
        assert_eq!(live.last_request().header("traceparent"), Some(&*answered.as_parent()), "{method} {lane}");
    }
}

#[tokio::test]
async fn refusals_and_endpoints_of_the_gateway_have_spans() {
    let collector = Collector::start().await;
    let desk = Gateway::with(&collector.settings("1.0")).await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/agent-desk/x").await.expect_code(1003);
    let (refused, attempts) = collector.request("/api/agent-desk/x").await;
    assert_eq!(refused.number("deskgate.error_code"), Some(1003));
    assert_eq!(refused.number("http.response.status_code"), Some(403));
    assert!(!refused.is_error() && attempts.is_empty(), "what a client does wrong is no error: {refused:?}");

    xiaoming.get("/api/auth/me").await.expect_code(0);
    let (own, _) = collector.request("/api/auth/me").await;
    assert_eq!((own.text("http.route"), own.text("deskgate.rule")), (Some("/api/auth/me"), None));

    desk.upstream.set_behaviour(Behaviour::RespondAndClose(b"nonsense".to_vec()));
    xiaoming.post("/api/desk/broken").await.expect_code(1502);
    let (failed, attempts) = collector.request("/api/desk/broken").await;
    assert_eq!((failed.text("error.type"), failed.is_error()), (Some("1502"), true), "{failed:?}");
    assert!(attempts.iter().all(CollectedSpan::is_error), "{attempts:?}");
}

/// A connection to the platform that everything is recorded of, in both directions.
struct PlatformTap {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<u8>>>,
}

impl PlatformTap {
    async fn start(platform: SocketAddr) -> PlatformTap {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let tap = PlatformTap { address: listener.local_addr().expect("an address"), recorded: Arc::default() };
        let recorded = tap.recorded.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(platform).await.expect("the platform");
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(record(from_client, to_server, recorded.clone()));
                tokio::spawn(record(from_server, to_client, recorded.clone()));
            }
        });
        tap
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.recorded.lock().expect("bytes")).into_owned()
    }

    /// What follows each occurrence of a text, up to a character that no token or code has.
    fn values_after(&self, name: &str) -> Vec<String> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.~%".contains(letter);
        let text = self.text();
        let values = text.split(name).skip(1).map(|rest| rest.chars().take_while(|letter| is_part(*letter)).collect());
        values.collect()
    }
}

async fn record(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    recorded: Arc<Mutex<Vec<u8>>>,
) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        recorded.lock().expect("bytes").extend_from_slice(&buffer[..count]);
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}

/// A gateway that reaches the platform of another one through a tap.
async fn with_tapped_platform(settings: &str) -> (Gateway, Gateway, PlatformTap) {
    let host = Gateway::start().await;
    let platform = host.platform_address();
    let tap = PlatformTap::start(platform).await;
    // The platform sends browsers back to the other gateway's URLs only.
    let public_url = host.public_url();
    let settings = format!(
        "[server]\npublic_url = \"{public_url}\"\n\
         [clients]\nh5 = \"{public_url}/h5/\"\nitagent = \"{public_url}/itagent/\"\nitadmin = \"{public_url}/itadmin/\"\n\
         [platform]\nkind = \"wecom\"\ncorp_id = \"wwdemo\"\nsecret = \"{SECRET}\"\ntimeout = \"500ms\"\n\
         authorize_url = \"http://{platform}/connect/oauth2/authorize\"\napi_url = \"http://{}/\"\n{settings}",
        tap.address
    );
    (Gateway::with(&settings).await, host, tap)
}

/// The span of the request that got this response, and those of its calls.
async fn spans_of(response: &Response, collector: &Collector) -> (CollectedSpan, Vec<CollectedSpan>) {
    let id = response.header("x-request-id").expect("a request id");
    eventually("the spans of a callback", || async {
        let spans = collector.spans();
        let server = spans.iter().find(|span| span.text("deskgate.request_id") == Some(id))?.clone();
        let calls = spans.into_iter().filter(|span| span.span.parent_span_id == server.span.span_id).collect();
        Some((server, calls))
    })
    .await
}

#[tokio::test]
async fn every_call_of_the_platform_has_a_span_below_that_of_its_request() {
    let collector = Collector::start().await;
    let (desk, host, tap) = with_tapped_platform(&collector.settings("1.0")).await;
    let sign_in = || async { desk.phone("m5001").oauth2(&host.client_url("h5")).await.expect_status(302) };
    let (server, calls) = spans_of(&sign_in().await, &collector).await;
    assert_eq!(server.text("http.route"), Some("/api/auth/oauth2/callback"));
    let names: Vec<&str> = calls.iter().map(|call| call.span.name.as_str()).collect();
    let apis = ["gettoken", "auth/getuserinfo", "user/get", "department/get"].map(|api| format!("GET /cgi-bin/{api}"));
    assert_eq!(names, apis);
    for call in &calls {
        assert_eq!((call.kind(), call.trace_id(), call.is_error()), ("client", server.trace_id(), false), "{call:?}");
        assert_eq!((call.text("deskgate.platform"), call.text("deskgate.upstream")), (Some("wecom"), None));
        assert_eq!(call.text("http.request.method"), Some("GET"));
        assert_eq!(call.text("url.template"), call.span.name.strip_prefix("GET "));
        assert_eq!(call.text("server.address"), Some("127.0.0.1"));
        assert_eq!(call.number("server.port"), Some(tap.address.port().into()));
        assert_eq!(call.number("http.response.status_code"), Some(200));
        let (outer, inner) = (&server.span, &call.span);
        assert!(outer.start_time_unix_nano <= inner.start_time_unix_nano, "{outer:?} {inner:?}");
        assert!(inner.start_time_unix_nano < inner.end_time_unix_nano, "{inner:?}");
        assert!(inner.end_time_unix_nano <= outer.end_time_unix_nano, "{outer:?} {inner:?}");
    }

    // Failures: WeCom's own error, a status, and no response in time.
    let callback = "/api/auth/oauth2/callback?code=forged-code&state=auth_login";
    let phone = desk.phone("u1001");
    phone.authorize_url(&host.client_url("h5")).await;
    let (_, calls) = spans_of(&phone.client().get(callback).await, &collector).await;
    let [forged] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((forged.text("error.type"), forged.is_error()), (Some("errcode_40029"), true), "{forged:?}");
    assert_eq!(forged.number("http.response.status_code"), Some(200));
    for (switches, error, status) in [
        (json!({ "bad_gateway": { "/cgi-bin/user/get": "all" } }), "502", Some(502)),
        (json!({ "slow_milliseconds": { "/cgi-bin/user/get": 30_000 } }), "timeout", None),
    ] {
        host.set_platform_switches(switches).await;
        let (_, calls) = spans_of(&sign_in().await, &collector).await;
        let failed = calls.iter().find(|call| call.text("url.template") == Some("/cgi-bin/user/get")).expect("a call");
        assert_eq!((failed.text("error.type"), failed.is_error()), (Some(error), true), "{failed:?}");
        assert_eq!(failed.number("http.response.status_code"), status, "{failed:?}");
    }

    let (codes, tokens) = (tap.values_after("&code="), tap.values_after("access_token="));
    assert!(codes.len() >= 3 && tokens.len() >= 3, "the tap records what is sent: {codes:?} {tokens:?}");
    let raw = collector.raw();
    let has = |text: &str| raw.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("/cgi-bin/user/get"), "the bytes are searched");
    for secret in codes.iter().chain(&tokens).map(String::as_str).chain([SECRET, "access_token", "corpsecret", "m5001"])
    {
        assert!(!secret.is_empty() && !has(secret), "{secret} is in a span");
    }
}

#[tokio::test]
async fn the_platform_gets_no_trace_context() {
    let collector = Collector::start().await;
    let (desk, host, tap) = with_tapped_platform(&collector.settings("1.0")).await;
    let phone =
        Phone::new(desk.anonymous().with_header("traceparent", SAMPLED).with_header("tracestate", "a=1"), "m5001");
    phone.oauth2(&host.client_url("h5")).await.expect_status(302);
    let sent = tap.text().to_ascii_lowercase();
    assert!(sent.contains("get /cgi-bin/auth/getuserinfo?"), "{sent}");
    for header in ["traceparent", "tracestate", "x-request-id", TRACE] {
        assert!(!sent.contains(header), "{header}: {sent}");
    }
}

#[tokio::test]
async fn calls_of_requests_that_are_not_sampled_have_no_span() {
    let collector = Collector::start().await;
    let mut desk = Gateway::with(&collector.settings("0.0")).await;
    desk.sign_in_by_oauth2("m5001", "h5").await;
    desk.anonymous().with_header("traceparent", SAMPLED).get("/public/x").await.expect_status(200);
    desk.terminate().await;
    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "those of the last request alone: {spans:?}");
}

#[tokio::test]
async fn a_cut_exchange_has_a_span() {
    let collector = Collector::start().await;
    let desk = Gateway::with(&collector.settings("1.0")).await;
    let xiaoming = desk.sign_in("u1001").await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    let open = xiaoming.clone();
    let waiting = tokio::spawn(async move { open.try_send("GET", "/api/desk/long", &[], b"").await });
    eventually("a long request", || async { (desk.metric("deskgate_exchanges_open", &[]).await == 1.0).then_some(()) })
        .await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    let (server, attempts) = collector.request("/api/desk/long").await;
    assert_eq!((server.text("error.type"), server.is_error()), (Some("cut"), true), "{server:?}");
    assert_eq!(attempts.len(), 1);
    let _ = waiting.await;
}

#[tokio::test]
async fn a_trusted_proxy_decides_what_is_sampled() {
    let collector = Collector::start().await;
    let desk = Gateway::with(&collector.settings("0.0")).await;
    let client = |parent: &str| desk.anonymous().with_header("traceparent", parent);
    client(NOT_SAMPLED).get("/public/not-sampled").await.expect_status(200);
    let seen = desk.upstream.last_request();
    assert!(seen.header("traceparent").expect("a value").ends_with("-00"), "{seen:?}");
    desk.anonymous().get("/public/without").await.expect_status(200);
    client(SAMPLED).send("GET", "/public/sampled", &[("tracestate", "vendor=1")], b"").await.expect_status(200);
    let seen = desk.upstream.last_request();
    let (server, attempts) = collector.request("/public/sampled").await;
    assert_eq!(server.trace_id(), TRACE);
    assert_eq!(server.span.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
    assert_eq!(seen.header("traceparent"), Some(&*attempts[0].as_parent()));
    assert_eq!(seen.header("tracestate"), Some("vendor=1"));
    assert_eq!(collector.spans().len(), 2, "{:?}", collector.spans());

    let everything = Collector::start().await;
    let desk = Gateway::with(&everything.settings("1.0")).await;
    let client = |parent: &str| desk.anonymous().with_header("traceparent", parent);
    client(NOT_SAMPLED).get("/public/not-sampled").await.expect_status(200);
    client(SAMPLED).get("/public/sampled").await.expect_status(200);
    everything.request("/public/sampled").await;
    assert!(everything.spans().iter().all(|span| span.text("url.path") != Some("/public/not-sampled")));
}

#[tokio::test]
async fn other_clients_do_not_decide_what_is_sampled() {
    let collector = Collector::start().await;
    let untrusting = format!("[server]\ntrusted_proxies = []\n{}", collector.settings("0.0"));
    let mut desk = Gateway::with(&untrusting).await;
    desk.anonymous().with_header("traceparent", SAMPLED).get("/public/x").await.expect_status(200);
    let parent = desk.upstream.last_request().header("traceparent").expect("a value").to_owned();
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "{parent}");
    desk.terminate().await;
    assert_eq!(collector.spans().len(), 0, "{:?}", collector.spans());

    let untrusting = format!("[server]\ntrusted_proxies = []\n{}", collector.settings("1.0"));
    let desk = Gateway::with(&untrusting).await;
    desk.anonymous().with_header("traceparent", NOT_SAMPLED).get("/public/y").await.expect_status(200);
    let (server, _) = collector.request("/public/y").await;
    assert_eq!(server.trace_id(), TRACE, "the trace goes on");
}

#[tokio::test]
async fn the_last_spans_are_exported_before_the_exit() {
    let collector = Collector::start().await;
    let mut desk = Gateway::with(&collector.settings("1.0")).await;
    desk.anonymous().get("/public/last").await.expect_status(200);
    desk.terminate().await;
    assert!(collector.spans().iter().any(|span| span.text("url.path") == Some("/public/last")));
}

#[tokio::test]
async fn a_collector_that_fails_costs_spans_and_nothing_else() {
    let collector = Collector::start().await;
    let desk = Gateway::with(&collector.settings("1.0")).await;
    let spans =
        async |result: &str| desk.metric("deskgate_trace_spans_total", &[&format!("result=\"{result}\"")]).await;
    collector.fail_with(Some(400));
    desk.anonymous().get("/public/lost").await.expect_status(200);
    eventually("lost spans", || async { (spans("failed").await == 2.0).then_some(()) }).await;
    desk.wait_for_log(&["WARN", "the collector of traces does not take spans"]).await;
    collector.fail_with(None);
    desk.anonymous().get("/public/found").await.expect_status(200);
    collector.request("/public/found").await;
    desk.wait_for_log(&["the collector of traces takes spans again"]).await;
    eventually("exported spans", || async { (spans("exported").await == 2.0).then_some(()) }).await;
    assert!(collector.spans().iter().all(|span| span.text("url.path") != Some("/public/lost")));
}

#[tokio::test]
async fn a_collector_that_is_busy_for_a_moment_costs_nothing() {
    let collector = Collector::start().await;
    let desk = Gateway::with(&collector.settings("1.0")).await;
    collector.fail_once_with(503);
    desk.anonymous().get("/public/x").await.expect_status(200);
    collector.request("/public/x").await;
    assert_eq!(desk.metric("deskgate_trace_spans_total", &["result=\"failed\""]).await, 0.0);
}

#[tokio::test]
async fn sampled_requests_are_exemplars_of_their_duration() {
    let collector = Collector::start().await;
    let desk = Gateway::with(&collector.settings("0.0")).await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    desk.anonymous().with_header("traceparent", SAMPLED).get("/public/x").await.expect_status(200);
    collector.request("/public/x").await;
    let scraper = Client::new(desk.admin_address());
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let page = scraper.with_header("Accept", accept).get("/metrics").await.expect_status(200);
    assert_eq!(page.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let page = page.text();
    let exemplars: Vec<&str> = page.lines().filter(|line| line.contains(" # {")).collect();
    let [exemplar] = exemplars[..] else { panic!("{exemplars:?}") };
    assert!(exemplar.starts_with("deskgate_request_seconds_bucket{rule=\"anyone\",le="), "{exemplar}");
    assert!(exemplar.contains(&format!(" # {{trace_id=\"{TRACE}\"}} 0.")), "{exemplar}");
    assert!(page.ends_with("# EOF\n"));
    let text = scraper.get("/metrics").await.expect_status(200);
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4"));
    assert!(!text.text().contains("trace_id"), "the text format has no exemplars");
}

#[tokio::test]
async fn faulty_settings_are_refused() {
    for (settings, fault) in [
        ("endpoint = \"collector:4318\"", "traces.endpoint"),
        ("endpoint = \"grpc://collector:4317\"", "must begin with http://"),
        ("endpoint = \"http://user:hunter2@collector:4318\"", "must not have a user name"),
        ("endpoint = \"\"", "traces.endpoint"),
        ("sample = 1.5", "traces.sample: 1.5 is not a share"),
        ("sample = -0.1", "traces.sample"),
        ("service = \"\"", "traces.service"),
    ] {
        let failure = Gateway::setup().toml(&format!("[traces]\n{settings}")).try_start().await.err().expect("refused");
        assert!(failure.stderr.contains(fault), "{settings}: {}", failure.stderr);
        assert!(!failure.stderr.contains("hunter2"), "{}", failure.stderr);
    }
}
