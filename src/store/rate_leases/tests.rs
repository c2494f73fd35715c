use std::time::Duration;

use proptest::prelude::*;

use crate::domain::rate::Window;

mod fleet;

mod service;

use fleet::{Fleet, MessageFate, SkewedClock, most_in_a_window};

const SECOND: u64 = 1_000_000_000;
const EXACT: SkewedClock = SkewedClock { offset: 7 * SECOND, millionths: 0 };

#[derive(Debug, Clone, Copy)]
enum FleetEvent {
    Request(usize),
    Burst(usize, u8),
    RefundedRequest(usize),
    Review(usize),
    Crash(usize),
    Network(MessageFate),
}

fn message_time(per: u64) -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        6 => (1_000..2_000_000_u64).prop_map(Some),
        2 => (0..per / 4 + 1).prop_map(Some),
        1 => (0..per * 2).prop_map(Some),
        1 => Just(None),
    ]
}

fn event(per: u64) -> impl Strategy<Value = FleetEvent> {
    let member = 0..4_usize;
    prop_oneof![
        12 => member.clone().prop_map(FleetEvent::Request),
        4 => (member.clone(), 2..40_u8).prop_map(|(member, count)| FleetEvent::Burst(member, count)),
        2 => member.clone().prop_map(FleetEvent::RefundedRequest),
        6 => member.clone().prop_map(FleetEvent::Review),
        1 => member.prop_map(FleetEvent::Crash),
        3 => (message_time(per), message_time(per)).prop_map(|(there, back)| FleetEvent::Network(MessageFate { there, back })),
    ]
}

fn histories() -> impl Strategy<Value = (u32, u64, Vec<SkewedClock>, Vec<(u64, FleetEvent)>)> {
    let per = prop_oneof![Just(SECOND / 10), Just(SECOND), Just(60 * SECOND)];
    let limit = prop_oneof![1..16_u32, 16..40_u32, 40..200_u32];
    let clock = (0..100 * SECOND, -900..900_i64);
    let clock = clock.prop_map(|(offset, millionths)| SkewedClock { offset, millionths });
    (limit, per, prop::collection::vec(clock, 4)).prop_flat_map(|(limit, per, clocks)| {
        let step = prop_oneof![4 => Just(0), 6 => 0..per / 50, 4 => 0..per / 8, 1 => 0..per * 2];
        let events = prop::collection::vec((step, event(per)), 1..400);
        (Just(limit), Just(per), Just(clocks), events)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_window_of_the_fleet_admits_more_than_the_limit((limit, per, clocks, events) in histories()) {
        let window = Window { limit, per: Duration::from_nanos(per) };
        let mut fleet = Fleet::new(window, &clocks);
        for (step, event) in events {
            fleet.advance(step);
            match event {
                FleetEvent::Request(member) => fleet.request(member),
                FleetEvent::Burst(member, count) => (0..count).for_each(|_| fleet.request(member)),
                FleetEvent::RefundedRequest(member) => fleet.refunded_request(member),
                FleetEvent::Review(member) => fleet.review(member),
                FleetEvent::Crash(member) => fleet.crash(member),
                FleetEvent::Network(network) => fleet.network = network,
            }
        }
        let most = most_in_a_window(&fleet.admitted, window.per);
        prop_assert!(most <= limit as usize, "{most} of {limit}");
    }
}

/// Sends evenly spaced requests for so many windows, `rates[member]` per window each, and reviews as the gateways do.
fn run(fleet: &mut Fleet, rates: &[u64], windows: u64) {
    let per = u64::try_from(fleet.window.per.as_nanos()).unwrap();
    let steps = 4000 * windows;
    let mut due: Vec<f64> = rates.iter().enumerate().map(|(member, _)| member as f64 / 7.0).collect();
    for step in 0..steps {
        fleet.advance(per / 4000);
        for (member, &rate) in rates.iter().enumerate() {
            due[member] += rate as f64 / 4000.0;
            while due[member] >= 1.0 {
                due[member] -= 1.0;
                fleet.request(member);
            }
            if (step + member as u64).is_multiple_of(4000 / 16) {
                fleet.review(member);
            }
        }
    }
}

/// How many requests each gateway admitted after `from`.
fn admitted_since(fleet: &Fleet, from: u64, members: usize) -> Vec<usize> {
    (0..members).map(|one| fleet.admitted.iter().filter(|(at, by)| *by == one && *at >= from).count()).collect()
}

fn fleet_of(members: usize, limit: u32, seconds: u64) -> Fleet {
    Fleet::new(Window { limit, per: Duration::from_secs(seconds) }, &vec![EXACT; members])
}

#[test]
fn a_busy_gateway_beside_idle_ones_uses_nine_tenths_of_the_limit() {
    for (limit, seconds) in [(20, 60), (120, 60), (1000, 1), (60_000, 60)] {
        let mut fleet = fleet_of(3, limit, seconds);
        // All are busy first; then two of them fall silent.
        run(&mut fleet, &[u64::from(limit); 3], 3);
        run(&mut fleet, &[u64::from(limit) * 2, 0, 0], 2);
        let from = fleet.now;
        run(&mut fleet, &[u64::from(limit) * 2, 0, 0], 4);
        let admitted = admitted_since(&fleet, from, 3)[0];
        assert!(admitted * 10 >= limit as usize * 4 * 9, "{admitted} of 4 times {limit}");
        assert!(most_in_a_window(&fleet.admitted, fleet.window.per) <= limit as usize);
    }
}

#[test]
fn gateways_with_equal_traffic_get_equal_shares() {
    for (limit, seconds) in [(120, 60), (1000, 1), (60_000, 60)] {
        let mut fleet = fleet_of(2, limit, seconds);
        // The second one comes when the first has everything.
        run(&mut fleet, &[u64::from(limit) * 2, 0], 2);
        run(&mut fleet, &[u64::from(limit) * 2; 2], 4);
        let from = fleet.now;
        run(&mut fleet, &[u64::from(limit) * 2; 2], 4);
        let admitted = admitted_since(&fleet, from, 2);
        let total: usize = admitted.iter().sum();
        assert!(total * 10 >= limit as usize * 4 * 9, "{admitted:?} of 4 times {limit}");
        assert!(admitted.iter().all(|one| one * 100 >= total * 42), "{admitted:?}");
        assert!(most_in_a_window(&fleet.admitted, fleet.window.per) <= limit as usize);
    }
}

#[test]
fn the_ledger_is_asked_far_less_than_once_per_request() {
    for (case, limit, seconds, rates) in [
        ("half of a large limit", 120_000, 60, [30_000, 30_000]),
        ("half of a limit per second", 2000, 1, [500, 500]),
        ("twice a large limit", 30_000, 60, [30_000, 30_000]),
        ("twice a limit per second", 500, 1, [500, 500]),
    ] {
        let mut fleet = fleet_of(2, limit, seconds);
        run(&mut fleet, &rates, 3);
        let (asks, requests) = (fleet.asks, fleet.admitted.len() as u64 + fleet.refused);
        run(&mut fleet, &rates, 10);
        let requests = fleet.admitted.len() as u64 + fleet.refused - requests;
        let asks = (fleet.asks - asks) as f64 / requests as f64;
        assert!(asks < 0.05, "{case}: {asks} per request");
    }
}

#[test]
fn traffic_below_the_limit_is_never_refused() {
    for (limit, seconds, rates) in [(120, 60, [30, 60]), (1000, 1, [700, 100]), (60_000, 60, [3000, 40_000])] {
        let mut fleet = fleet_of(2, limit, seconds);
        run(&mut fleet, &rates, 6);
        assert_eq!(fleet.refused, 0, "{limit} per {seconds} s, asked {} times", fleet.asks);
    }
}

#[test]
fn a_small_limit_is_exact_over_the_fleet() {
    let mut fleet = fleet_of(3, 5, 60);
    let mut request = |member, seconds: u64| {
        fleet.advance((seconds * SECOND).saturating_sub(fleet.now));
        let before = fleet.admitted.len();
        fleet.request(member);
        fleet.advance(SECOND / 10);
        fleet.admitted.len() - before
    };
    let admitted = [(0, 0), (1, 10), (2, 20), (0, 30), (1, 40)].map(|(member, seconds)| request(member, seconds));
    assert_eq!(admitted, [1; 5]);
    assert_eq!([request(2, 50), request(0, 59)], [0, 0]);
    assert_eq!([request(1, 61), request(2, 62)], [1, 0], "one has left the window");
    assert_eq!(request(2, 71), 1);
}

#[test]
fn a_burst_that_uses_up_a_long_window_asks_few_times() {
    let mut fleet = fleet_of(2, 200, 3600);
    for _ in 0..200 {
        for member in [0, 1] {
            fleet.advance(SECOND / 200);
            fleet.request(member);
        }
    }
    let (asks, admitted) = (fleet.asks, fleet.admitted.len());
    assert!((180..=200).contains(&admitted), "{admitted}");
    assert!(asks < 30, "asked {asks} times");
}
