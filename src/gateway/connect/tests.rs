use std::collections::BTreeMap;

use super::*;
use crate::config::UpstreamConfig;
use crate::domain::clock::Clock;
use crate::metrics::Metrics;

fn upstreams(count: u16, settings: UpstreamConfig) -> Upstreams {
    let addresses = (1..=count).map(|port| format!("127.0.0.1:{port}").parse().expect("an address")).collect();
    let config = BTreeMap::from([("desk".to_owned(), UpstreamConfig { addresses, ..settings })]);
    Upstreams::new(&config, Arc::new(Metrics::new().expect("metrics")), Clock::system()).expect("upstreams")
}

fn attempts(upstreams: &Upstreams) -> UpstreamAttempts {
    let upstream = upstreams.at(0).expect("an upstream");
    let target =
        AttemptTarget { upstream, affinity: Affinity::default(), request_id: RequestId::fresh(), deadline: None };
    UpstreamAttempts { target: Some(target), ..UpstreamAttempts::default() }
}

fn error(kind: ErrorType, retry: RetryType) -> Box<PingoraError> {
    let mut error = PingoraError::new_up(kind);
    error.retry = retry;
    error
}

fn refused() -> Box<PingoraError> {
    error(ErrorType::ConnectRefused, RetryType::Decided(false))
}

#[test]
fn a_failed_connect_is_retried_as_often_as_configured_on_other_addresses() {
    for retries in [0, 1, 3] {
        let upstreams = upstreams(4, UpstreamConfig { retries, ..UpstreamConfig::default() });
        let mut attempts = attempts(&upstreams);
        let mut tried = Vec::new();
        for attempt in 0..=retries {
            tried.push(attempts.next_address().expect("an address").name().to_owned());
            let expected = if attempt < retries { RetryDecision::Retry } else { RetryDecision::GiveUp };
            assert_eq!(attempts.after_failed_connect(&upstreams, &refused()), expected, "{attempt} of {retries}");
        }
        tried.sort();
        tried.dedup();
        assert_eq!(tried.len(), retries + 1, "each address once");
    }
}

#[test]
fn a_sent_request_is_retried_only_if_it_can_be_repeated_and_was_reset() {
    use ConnectionSource::{New, Pool};
    use RetryDecision::{GiveUp, Retry};
    let table = [
        ("stale pooled connection", Pool, Replay::Safe, ErrorType::ReadError, RetryType::ReusedOnly, Retry),
        ("refused stream", Pool, Replay::Safe, ErrorType::H2Error, RetryType::Decided(true), Retry),
        ("refused POST", Pool, Replay::AfterRefusal, ErrorType::H2Error, RetryType::Decided(true), Retry),
        ("POST, refused twice", New, Replay::AfterRefusal, ErrorType::H2Error, RetryType::Decided(true), GiveUp),
        ("stale connection of a POST", Pool, Replay::AfterRefusal, ErrorType::ReadError, RetryType::ReusedOnly, GiveUp),
        ("reset", New, Replay::Safe, ErrorType::ReadError, RetryType::ReusedOnly, Retry),
        ("closed", New, Replay::Safe, ErrorType::ConnectionClosed, RetryType::Decided(false), Retry),
        ("POST", New, Replay::Unsafe, ErrorType::ReadError, RetryType::ReusedOnly, GiveUp),
        ("POST on a pooled connection", Pool, Replay::Unsafe, ErrorType::ReadError, RetryType::ReusedOnly, GiveUp),
        ("timeout", New, Replay::Safe, ErrorType::ReadTimedout, RetryType::Decided(false), GiveUp),
        ("no HTTP", New, Replay::Safe, ErrorType::InvalidHTTPHeader, RetryType::Decided(false), GiveUp),
    ];
    for (case, source, replay, kind, retry, expected) in table {
        let upstreams = upstreams(2, UpstreamConfig::default());
        let mut attempts = attempts(&upstreams);
        attempts.next_address().expect("an address");
        let error = error(kind, retry);
        let decision = attempts.after_failed_exchange(&upstreams, &error, source, replay, Progress::default());
        assert_eq!(decision, expected, "{case}");
    }
}

#[test]
fn a_stale_pooled_connection_is_no_failure_and_its_address_is_tried_again() {
    let upstreams = upstreams(3, UpstreamConfig { retries: 0, ..UpstreamConfig::default() });
    let mut attempts = attempts(&upstreams);
    let first = attempts.next_address().expect("an address").name().to_owned();
    let stale = error(ErrorType::ReadError, RetryType::ReusedOnly);
    let progress = Progress::default();
    let decision = attempts.after_failed_exchange(&upstreams, &stale, ConnectionSource::Pool, Replay::Safe, progress);
    assert_eq!((decision, attempts.source), (RetryDecision::Retry, ConnectionSource::New));
    assert_eq!(attempts.next_address().expect("an address").name(), first);
    assert!(upstreams.rows().iter().all(|row| row.failures == 0));
}

#[test]
fn a_sent_request_is_not_sent_twice_to_the_only_address() {
    let upstreams = upstreams(1, UpstreamConfig::default());
    let mut attempts = attempts(&upstreams);
    attempts.next_address().expect("an address");
    let reset = error(ErrorType::ReadError, RetryType::ReusedOnly);
    let (source, progress) = (ConnectionSource::New, Progress::default());
    let decision = attempts.after_failed_exchange(&upstreams, &reset, source, Replay::Safe, progress);
    assert_eq!(decision, RetryDecision::GiveUp);
}

#[test]
fn retries_end_with_their_budget() {
    let upstreams = upstreams(2, UpstreamConfig { retry_budget: 0, ..UpstreamConfig::default() });
    let retried = (0..100).filter(|_| {
        let mut attempts = attempts(&upstreams);
        attempts.next_address().expect("an address");
        attempts.after_failed_connect(&upstreams, &refused()) == RetryDecision::Retry
    });
    // Ten, and those of the time that the test takes.
    assert!((10..60).contains(&retried.count()));
}

#[test]
fn only_failures_of_the_upstream_count_against_its_address() {
    let timeout = || error(ErrorType::ReadTimedout, RetryType::Decided(false));
    let internal = error(ErrorType::InternalError, RetryType::Decided(false));
    let uploading = Progress { is_uploading: true, ..Progress::default() };
    let gone = PingoraError::new_down(ErrorType::ConnectionClosed);
    for (case, error, progress, expected) in [
        ("refused", refused(), Progress::default(), 1),
        ("timeout", timeout(), Progress::default(), 1),
        ("timeout while the client sends", timeout(), uploading, 0),
        ("no free descriptor", internal, Progress::default(), 0),
        ("the client is gone", gone, Progress::default(), 0),
    ] {
        let upstreams = upstreams(1, UpstreamConfig::default());
        let mut attempts = attempts(&upstreams);
        attempts.next_address().expect("an address");
        attempts.fail(&upstreams, &error, progress);
        attempts.fail(&upstreams, &error, progress);
        let row = upstreams.rows().remove(0);
        assert_eq!((row.failures, row.in_flight), (expected, 0), "{case}: once per attempt");
    }
}

#[test]
fn the_response_time_is_taken_once() {
    let upstreams = upstreams(2, UpstreamConfig::default());
    let mut attempts = attempts(&upstreams);
    assert_eq!(attempts.succeed(Instant::now()), None);
    attempts.next_address().expect("an address");
    assert!(attempts.succeed(Instant::now()).is_some());
    assert_eq!(attempts.succeed(Instant::now()), None);
}

#[test]
fn a_request_without_any_address_fails() {
    let upstreams = upstreams(0, UpstreamConfig::default());
    let error = attempts(&upstreams).next_address().map(|_| ()).expect_err("no address");
    assert_eq!(error.etype(), &ErrorType::ConnectNoRoute);
}

#[test]
fn an_upstream_that_has_done_its_part_has_no_request_and_cannot_fail() {
    let upstreams = upstreams(1, UpstreamConfig::default());
    let mut attempts = attempts(&upstreams);
    attempts.next_address().expect("an address");
    assert_eq!(upstreams.rows().remove(0).in_flight, 1);
    attempts.release_address();
    attempts.fail(&upstreams, &refused(), Progress::default());
    let row = upstreams.rows().remove(0);
    assert_eq!((row.failures, row.in_flight), (0, 0));
    assert!(attempts.address().is_ok(), "its connection returns to the pool of the address");
    drop(attempts);
    assert_eq!(upstreams.rows().remove(0).in_flight, 0, "it is not released twice");
}
