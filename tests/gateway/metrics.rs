//! `/metrics`: which series there are, and what they count.

use crate::support::*;

/// The samples of a page, without their values.
fn series(page: &str) -> Vec<&str> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| line.rsplit_once(' ').map(|(series, _)| series)).collect()
}

#[tokio::test]
async fn page_of_an_idle_gateway_is_short() {
    let desk = Gateway::start().await;
    let page = desk.metrics().await;
    let count = page.lines().count();
    assert!(count < 250, "{count} lines:\n{page}");
    for family in ["requests_total", "request_seconds", "authz_total", "rate_total", "shadow_total", "upstream_seconds"]
    {
        assert!(!page.contains(&format!("deskgate_{family}")), "{family}:\n{page}");
    }
}

#[tokio::test]
async fn what_alerts_watch_is_there_before_it_happens() {
    let desk = Gateway::start().await;
    let page = desk.metrics().await;
    let present = series(&page);
    for wanted in [
        "deskgate_refusals_total{code=\"1005\"}",
        "deskgate_refusals_total{code=\"1502\"}",
        "deskgate_refusals_total{code=\"1503\"}",
        "deskgate_refusals_total{code=\"1504\"}",
        "deskgate_sessions_ended_total{cause=\"logout\"}",
        "deskgate_platform_circuit_open",
        "deskgate_sessions_live",
        "deskgate_log_lines_dropped_total",
        "deskgate_panics_total",
        "deskgate_limit_reached_total{limit=\"saturated\"}",
        "deskgate_connections_refused_total{reason=\"plain_http\"}",
        "deskgate_upstream_retries_total{upstream=\"helpdesk\"}",
    ] {
        assert!(present.contains(&wanted), "{wanted} is missing:\n{page}");
    }
}

#[tokio::test]
async fn refusals_are_counted_by_code_wherever_they_are_made() {
    let desk = Gateway::setup().tls().toml("[upstreams.helpdesk]\nretries = 0").start().await;
    let (anonymous, xiaoming) = (desk.anonymous(), desk.sign_in("u1001").await);
    let refused =
        async |code: u16| desk.settled_metric("deskgate_refusals_total", &[&format!("code=\"{code}\"")]).await;

    anonymous.get("/nowhere").await.expect_code(1404);
    assert_eq!(refused(1404).await, 1.0, "no rule");
    xiaoming.get("/api/agent-desk/x").await.expect_code(1003);
    assert_eq!(refused(1003).await, 1.0, "a rule");
    anonymous.get("/api/auth/me").await.expect_bare_challenge();
    assert_eq!(refused(1001).await, 1.0, "an endpoint of the gateway");
    anonymous.http2().await.send("GET", "/api/auth/me", &[], b"").await.expect_status(401);
    assert_eq!(refused(1001).await, 2.0, "HTTP/2");
    anonymous.get("/api/auth/signin?client=nobody").await.expect_status(400);
    assert_eq!(refused(1400).await, 1.0, "a page");
    let response = desk.send_raw(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n").await.expect("a response");
    response.expect_code(1400);
    assert_eq!(refused(1400).await, 2.0, "a malformed head");
    desk.upstream.set_behaviour(Behaviour::CloseWithoutResponse);
    xiaoming.get("/api/desk/x").await.expect_code(1502);
    assert_eq!(refused(1502).await, 1.0, "a failed upstream");
    assert_eq!(refused(1503).await, 0.0);
}

#[tokio::test]
async fn sign_ins_that_fail_at_the_platform_are_refusals_and_open_the_circuit() {
    let desk = Gateway::start().await;
    assert_eq!(desk.metric("deskgate_platform_circuit_open", &[]).await, 0.0);
    desk.set_platform_switches(json!({ "bad_gateway": { "*": "all" } })).await;
    for _ in 0..5 {
        desk.phone("u1001").oauth2(&desk.client_url("h5")).await.expect_status(302);
    }
    assert_eq!(
        desk.settled_metric("deskgate_refusals_total", &["code=\"1005\""]).await,
        5.0,
        "the redirect has the error"
    );
    assert_eq!(desk.metric("deskgate_platform_circuit_open", &[]).await, 1.0);
}

#[tokio::test]
async fn live_sessions_are_counted() {
    let desk = Gateway::start().await;
    let live = async || desk.metric("deskgate_sessions_live", &[]).await;
    let before = live().await;
    let (first, _second) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    assert_eq!(live().await, before + 2.0);
    first.post("/api/auth/logout").await.expect_code(0);
    assert_eq!(live().await, before + 1.0);
}

#[tokio::test]
async fn overhead_is_the_time_of_the_gateway_alone() {
    let desk = Gateway::start().await;
    let observed = async || desk.settled_metric("deskgate_overhead_seconds_count", &[]).await;
    desk.anonymous().get("/nowhere").await.expect_code(1404);
    assert_eq!(observed().await, 1.0, "a refusal");
    desk.anonymous().get("/public/x").await.expect_status(200);
    assert_eq!(observed().await, 2.0, "a response of an upstream");
    desk.sign_in("u1001").await;
    assert_eq!(observed().await, 2.0, "endpoints of the gateway may wait on purpose");
    desk.upstream.set_behaviour(Behaviour::CloseWithoutResponse);
    desk.anonymous().get("/public/x").await.expect_code(1502);
    assert_eq!(observed().await, 2.0, "the wait for an upstream that does not respond is not the gateway's");
}
