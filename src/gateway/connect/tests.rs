use std::collections::BTreeMap;

use pingora_core::ErrorType;

use super::*;
use crate::config::{PathCase, UpstreamConfig};
use crate::metrics::Metrics;

fn upstreams(retries: usize) -> (Upstreams, UpstreamRef) {
    let addresses = ["127.0.0.1:1", "127.0.0.1:2"].map(|address| address.parse().expect("an address")).to_vec();
    let config = BTreeMap::from([("desk".to_owned(), UpstreamConfig { addresses, retries, ..Default::default() })]);
    let metrics = Metrics::new().expect("metrics");
    (Upstreams::new(&config, &metrics), UpstreamRef { name: "desk".into(), index: 0, path_case: PathCase::Undeclared })
}

#[test]
fn a_failed_connect_is_retried_as_often_as_configured() {
    for retries in [0, 1, 3] {
        let (upstreams, upstream) = upstreams(retries);
        let mut attempts = UpstreamAttempts::default();
        for _ in 0..retries {
            assert_eq!(attempts.after_failed_connect(&upstreams, &upstream), RetryDecision::Retry, "{retries}");
        }
        assert_eq!(attempts.after_failed_connect(&upstreams, &upstream), RetryDecision::GiveUp, "{retries}");
    }
}

#[test]
fn each_attempt_takes_the_next_peer() {
    let (upstreams, upstream) = upstreams(1);
    let mut attempts = UpstreamAttempts::default();
    let peers: Vec<String> = (0..3).map(|_| attempts.next_peer(&upstreams, &upstream).to_string()).collect();
    assert_ne!(peers[0], peers[1]);
    assert_eq!(peers[0], peers[2]);
}

#[test]
fn a_sent_request_is_retried_only_after_a_stale_pooled_connection() {
    let table = [
        ("stale pooled connection", ConnectionSource::Pool, Replay::Safe, RetryType::ReusedOnly, RetryDecision::Retry),
        ("new connection", ConnectionSource::New, Replay::Safe, RetryType::ReusedOnly, RetryDecision::GiveUp),
        ("POST", ConnectionSource::Pool, Replay::Unsafe, RetryType::ReusedOnly, RetryDecision::GiveUp),
        ("response timeout", ConnectionSource::Pool, Replay::Safe, RetryType::Decided(false), RetryDecision::GiveUp),
    ];
    for (case, source, replay, retry, expected) in table {
        let mut error = pingora_core::Error::new(ErrorType::ReadError);
        error.retry = retry;
        let mut attempts = UpstreamAttempts::default();
        assert_eq!(attempts.after_failed_exchange(&error, source, replay), expected, "{case}");
        let next = if expected == RetryDecision::Retry { ConnectionSource::New } else { ConnectionSource::Pool };
        assert_eq!(attempts.source, next, "{case}");
    }
}

#[test]
fn the_elapsed_time_is_taken_once() {
    let (upstreams, upstream) = upstreams(1);
    let mut attempts = UpstreamAttempts::default();
    assert_eq!(attempts.take_elapsed(), None);
    attempts.next_peer(&upstreams, &upstream);
    assert!(attempts.take_elapsed().is_some());
    assert_eq!(attempts.take_elapsed(), None);
}
