use super::*;
use crate::app::{PlatformReport, ReloadResult, UpstreamReport};
use crate::domain::clock::Timestamp;

fn report() -> GatewayReport {
    let backend = |kind: &str| BackendReport { kind: kind.to_owned(), error: None, feed_lag_ms: None };
    GatewayReport {
        version: "0.1.0".to_owned(),
        commit: "0123456789ab".to_owned(),
        pid: 42,
        started_at: Timestamp::from_seconds(0),
        uptime_seconds: 3600,
        ready: true,
        not_ready: vec![],
        development: false,
        listeners: vec!["127.0.0.1:8080".to_owned()],
        admin_listener: "127.0.0.1:9090".to_owned(),
        config_digest: "0123456789".to_owned(),
        rules_digest: "abcdefghij".to_owned(),
        rules: 7,
        last_reload: None,
        sessions: Some(12),
        websockets: 3,
        connections: 9,
        connections_limit: 100,
        requests_in_flight: 1,
        store: backend("embedded"),
        directory: backend("sqlite"),
        platform: PlatformReport { kind: "wecom".to_owned(), circuit_open_seconds: None },
        upstreams: vec![UpstreamReport { name: "helpdesk".to_owned(), healthy: 1, total: 2 }],
    }
}

#[test]
fn a_healthy_gateway_is_one_screen() {
    let text = text(&report());
    for line in [
        "version       0.1.0 (0123456789ab)",
        "process       42, up 1h since 1970-01-01T00:00:00.000Z",
        "ready         yes",
        "rules         7 (abcdefgh)",
        "last reload   none since the start",
        "load          9 of 100 connections, 3 WebSockets, 1 requests in flight",
        "platform      wecom, circuit closed",
        "upstream      helpdesk: 1 of 2 addresses healthy",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}:\n{text}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let mut report = report();
    report.ready = false;
    report.not_ready = vec!["store: connection refused".to_owned(), "the gateway drains".to_owned()];
    report.store.error = Some("connection refused".to_owned());
    report.store.feed_lag_ms = Some(7);
    report.platform.circuit_open_seconds = Some(5);
    report.sessions = None;
    report.last_reload =
        Some(ReloadResult { at: Timestamp::from_seconds(1), error: Some("desk.toml:3: no such key".to_owned()) });
    let text = text(&report);
    for part in [
        "ready         no: store: connection refused; the gateway drains",
        "last reload   1970-01-01T00:00:01.000Z, refused: desk.toml:3: no such key",
        "sessions      unknown",
        "embedded, unavailable: connection refused, change feed read 7 ms ago",
        "circuit open for another 5 s",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert_eq!(json(&report)["last_reload"]["at"], "1970-01-01T00:00:01.000Z");
}

#[test]
fn an_uptime_has_its_two_largest_units() {
    let table = [(0, "0s"), (59, "59s"), (60, "1m"), (3_661, "1h 1m"), (3_601, "1h"), (273_600, "3d 4h")];
    for (seconds, expected) in table {
        assert_eq!(uptime(seconds), expected);
    }
}
