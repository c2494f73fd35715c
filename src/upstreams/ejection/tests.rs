use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::config::{EjectionConfig, HumanDuration, UpstreamConfig};
use crate::metrics::Metrics;
use crate::upstreams::peer::ResolvedNames;
use crate::upstreams::tls::UpstreamTlsFiles;

const AT: Timestamp = Timestamp::from_seconds(0);

fn upstream(count: u16, ejection: EjectionConfig) -> Upstream {
    let addresses = (1..=count).map(|port| format!("127.0.0.1:{port}").parse().expect("an address")).collect();
    let config =
        UpstreamConfig { addresses, ejection, slow_start: HumanDuration::seconds(0), ..UpstreamConfig::default() };
    let metrics = Metrics::new().expect("metrics");
    Upstream::build("desk", &config, None, &ResolvedNames::new(), None, &metrics)
}

fn settings() -> EjectionConfig {
    EjectionConfig { failures: 3, ..EjectionConfig::default() }
}

fn fail(upstream: &Upstream, index: usize, times: usize, now: Moment) {
    (0..times).for_each(|_| upstream.failed_at(&upstream.addresses[index], FailureReason::Refused, now, AT));
}

fn availability(upstream: &Upstream, index: usize, now: Moment) -> Availability {
    upstream.availability(&upstream.addresses[index], now)
}

#[test]
fn an_address_is_ejected_after_failures_in_a_row_only() {
    let (upstream, now) = (upstream(2, settings()), Moment::now());
    fail(&upstream, 0, 2, now);
    upstream.succeeded(&upstream.addresses[0], Duration::from_millis(1));
    fail(&upstream, 0, 2, now);
    assert_eq!(availability(&upstream, 0, now), Availability::Available);
    fail(&upstream, 0, 1, now);
    assert_eq!(availability(&upstream, 0, now), Availability::Ejected);
    assert_eq!(availability(&upstream, 0, now.plus(Duration::from_secs(10))), Availability::Available);
    assert_eq!(upstream.addresses[0].metrics.ejections.get(), 1);
}

#[test]
fn no_more_addresses_are_ejected_than_may_be() {
    let now = Moment::now();
    for (count, most, expected) in [(1, 50, 0), (2, 50, 1), (3, 50, 1), (4, 50, 2), (3, 100, 3), (3, 0, 0)] {
        let upstream = upstream(count, EjectionConfig { most, ..settings() });
        (0..usize::from(count)).for_each(|index| fail(&upstream, index, 10, now));
        let is_ejected = |index: &usize| availability(&upstream, *index, now) == Availability::Ejected;
        let ejected = (0..usize::from(count)).filter(is_ejected).count();
        assert_eq!(ejected, expected, "{count} addresses, {most} per cent");
    }
}

#[test]
fn an_address_that_fails_when_it_returns_is_ejected_for_longer() {
    let (upstream, mut now) = (upstream(2, settings()), Moment::now());
    let seconds = |seconds| Duration::from_secs(seconds);
    let mut lengths = Vec::new();
    for attempt in 0..7 {
        // On probation one failure is enough.
        fail(&upstream, 0, if attempt == 0 { 3 } else { 1 }, now);
        assert_eq!(availability(&upstream, 0, now), Availability::Ejected, "{attempt}");
        let (end, length) = upstream.addresses[0].state.record().ejection.expect("an ejection");
        lengths.push(length);
        now = end;
    }
    assert_eq!(lengths, [10, 20, 40, 80, 160, 300, 300].map(seconds));
    upstream.succeeded(&upstream.addresses[0], Duration::from_millis(1));
    now = now.plus(seconds(301));
    fail(&upstream, 0, 3, now);
    assert_eq!(upstream.addresses[0].state.record().ejection.map(|(_, length)| length), Some(seconds(10)));
}

#[test]
fn an_address_returns_once_after_each_ejection() {
    let (upstream, now) = (upstream(2, settings()), Moment::now());
    let state = &upstream.addresses[0].state;
    assert!(!state.take_return(now), "it was not ejected");
    for _ in 0..2 {
        fail(&upstream, 0, 3, now);
        let (end, _) = state.record().ejection.expect("an ejection");
        assert!(!state.take_return(now), "it is ejected");
        assert!(state.take_return(end) && !state.take_return(end), "it returns once");
        state.set_available_from(now);
    }
    fail(&upstream, 0, 3, now);
    state.set_available_from(Moment::NEVER);
    state.set_available_from(now);
    assert!(!state.take_return(now), "checks have found it unhealthy and healthy again, and that is logged");
}

#[test]
fn ejection_can_be_turned_off() {
    let (upstream, now) = (upstream(2, EjectionConfig { failures: 0, ..settings() }), Moment::now());
    fail(&upstream, 0, 100, now);
    assert_eq!(availability(&upstream, 0, now), Availability::Available);
}

#[test]
fn an_ejection_outlives_a_change_of_the_configuration() {
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    let config = |addresses: &[&str]| {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        let settings = UpstreamConfig { addresses, ejection: settings(), ..UpstreamConfig::default() };
        BTreeMap::from([("desk".to_owned(), settings)])
    };
    let clock = crate::domain::clock::Clock::system();
    let before = config(&["127.0.0.1:1", "127.0.0.1:2"]);
    let upstreams = crate::upstreams::Upstreams::new(&before, metrics, clock).expect("upstreams");
    let now = Moment::now();
    fail(&upstreams.at(0).expect("an upstream"), 1, 3, now);
    upstreams.apply(&config(&["127.0.0.1:3", "127.0.0.1:2"]), UpstreamTlsFiles::new());
    let changed = upstreams.at(0).expect("an upstream");
    assert_eq!(availability(&changed, 0, now), Availability::Available);
    assert_eq!(availability(&changed, 1, now), Availability::Ejected);
}
