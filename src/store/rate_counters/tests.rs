use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};

use proptest::prelude::*;

use super::key_table::{CompactKey, KeyEntry};
use super::sliding_window::BUCKETS;
use super::*;
use crate::domain::network::Network;
use crate::domain::rate::{charge_network, refund_network};

const MINUTE: Duration = Duration::from_secs(60);
const NANOSECOND: Duration = Duration::from_nanos(1);

fn key(subject: u128) -> RateKey {
    RateKey { rate: 1, subject }
}

fn window(limit: u32, per: Duration) -> Window {
    Window { limit, per }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn is_admitted(charged: Charged) -> bool {
    matches!(charged, Charged::Admitted { .. })
}

/// The longest time that a charge counts beyond the window.
fn longest_span(window: Window) -> Duration {
    if window.limit < BUCKETS as u32 { Duration::ZERO } else { window.per / (BUCKETS as u32 - 2) + NANOSECOND }
}

/// How many of these admissions still count at `now` if each counts for `length`.
fn counting(admitted: &[Duration], now: Duration, length: Duration) -> usize {
    admitted.iter().filter(|&&at| at + length > now).count()
}

/// The most admissions in any window, wherever it starts.
fn most_in_a_window(admitted: &[Duration], per: Duration) -> usize {
    let mut sorted = admitted.to_vec();
    sorted.sort_unstable();
    let from = |start: usize| sorted[start..].iter().take_while(|&&at| at < sorted[start] + per).count();
    (0..sorted.len()).map(from).max().unwrap_or(0)
}

/// A pseudo-random number; the sequence depends on the seed only.
fn scattered(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Intervals between requests: none, within a bucket, across buckets and across windows.
fn steps(per: u64) -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![
        3 => Just(0),
        2 => 1..4_u64,
        6 => 0..=per / 40,
        3 => 0..=per / 6,
        1 => 0..=per * 2,
        1 => (per.saturating_sub(2))..=per + 2,
    ];
    prop::collection::vec(step, 1..300)
}

fn arrivals() -> impl Strategy<Value = (u32, u64, Vec<u64>)> {
    let per = prop_oneof![1..200_u64, Just(1_000_000), Just(60_000_000_000), Just(30 * 86_400_000_000_000)];
    let limit = prop_oneof![0..5_u32, 5..20_u32, 20..130_u32];
    (limit, per).prop_flat_map(|(limit, per)| (Just(limit), Just(per), steps(per)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_window_admits_more_than_the_limit_or_refuses_below_it((limit, per, steps) in arrivals()) {
        let window = window(limit, Duration::from_nanos(per));
        let counters = InMemoryRateCounters::new(10);
        let mut admitted = Vec::new();
        let mut now = Duration::ZERO;
        for step in steps {
            now += Duration::from_nanos(step);
            match counters.charge(key(1), window, now) {
                Charged::Admitted { left } => {
                    admitted.push(now);
                    prop_assert!(left as usize + counting(&admitted, now, window.per) <= limit as usize);
                }
                Charged::Refused { retry_after } => {
                    let counted = counting(&admitted, now, window.per + longest_span(window));
                    prop_assert!(counted >= limit as usize, "refused with {counted} of {limit}");
                    prop_assert!(retry_after > Duration::ZERO && retry_after <= window.per);
                }
            }
        }
        prop_assert!(most_in_a_window(&admitted, window.per) <= limit as usize);
    }

    #[test]
    fn retry_after_is_exact_to_the_nanosecond((limit, per, steps) in arrivals()) {
        let window = window(limit.max(1), Duration::from_nanos(per));
        let mut buckets = SlidingWindow::new(0);
        let mut admitted = Vec::new();
        let mut now = Duration::ZERO;
        for step in steps {
            now += Duration::from_nanos(step);
            let Charged::Refused { retry_after } = buckets.charge(window, nanoseconds(now)) else {
                admitted.push(now);
                continue;
            };
            let early = buckets.charge(window, nanoseconds(now + retry_after - NANOSECOND));
            prop_assert_eq!(early, Charged::Refused { retry_after: NANOSECOND });
            // An exact log would admit it at most one bucket earlier.
            let needed = admitted[admitted.len() - window.limit as usize] + window.per;
            prop_assert!(now + retry_after <= needed.max(now) + longest_span(window));
            now += retry_after;
            prop_assert!(is_admitted(buckets.charge(window, nanoseconds(now))));
            admitted.push(now);
        }
    }

    #[test]
    fn late_requests_and_refunds_never_exceed_the_limit(
        (limit, per, steps) in arrivals(),
        seed in any::<u64>(),
        latest in 0..4_u64,
    ) {
        let window = window(limit, Duration::from_nanos(per));
        let (mut clock, mut seed) = (per * 2, seed);
        let mut buckets = SlidingWindow::new(clock);
        let mut admitted: Vec<Duration> = Vec::new();
        for step in steps {
            clock += step;
            let now = clock - scattered(&mut seed) % (per * latest / 2 + 1);
            if is_admitted(buckets.charge(window, now)) {
                admitted.push(Duration::from_nanos(now));
                // Also long after the charge, when its bucket may have been dropped.
                if scattered(&mut seed).is_multiple_of(4) {
                    let refunded = scattered(&mut seed) as usize % admitted.len();
                    buckets.refund(nanoseconds(admitted.swap_remove(refunded)));
                }
            }
            prop_assert!(buckets.last[..usize::from(buckets.used)].is_sorted_by(|one, next| one < next));
        }
        prop_assert!(most_in_a_window(&admitted, window.per) <= limit as usize);
    }

    #[test]
    fn earlier_charges_count_against_a_reloaded_limit(
        (limit, per, steps) in arrivals(),
        (new_limit, new_steps) in (1..130_u32, steps(1_000_000)),
    ) {
        // The new window is shorter, so all charges that it needs are still there.
        let (old, new) = (window(limit, Duration::from_nanos(per)), window(new_limit, Duration::from_nanos(per / 2 + 1)));
        let counters = InMemoryRateCounters::new(10);
        let mut admitted = Vec::new();
        let mut now = Duration::ZERO;
        for step in steps {
            now += Duration::from_nanos(step);
            if is_admitted(counters.charge(key(1), old, now)) {
                admitted.push(now);
            }
        }
        for step in new_steps {
            now += Duration::from_nanos(step % (per / 4 + 1));
            if is_admitted(counters.charge(key(1), new, now)) {
                admitted.push(now);
                prop_assert!(counting(&admitted, now, new.per) <= new_limit as usize);
            }
        }
    }
}

#[test]
fn twenty_of_thirty_concurrent_requests_are_admitted_and_the_rest_wait_a_minute() {
    let counters = InMemoryRateCounters::new(10);
    let window = window(20, MINUTE);
    let charged: Vec<Charged> = (0..30).map(|_| counters.charge(key(1), window, seconds(5))).collect();
    let expected = (0..20).rev().map(|left| Charged::Admitted { left });
    let refused = std::iter::repeat_n(Charged::Refused { retry_after: MINUTE }, 10);
    assert_eq!(charged, expected.chain(refused).collect::<Vec<_>>());
    assert!(!is_admitted(counters.charge(key(1), window, seconds(65) - NANOSECOND)));
    assert_eq!(counters.charge(key(1), window, seconds(65)), Charged::Admitted { left: 19 });
}

#[test]
fn an_even_rate_below_the_limit_is_never_refused() {
    let table = [("at half speed", 2000, 0), ("slower than the limit by one bucket", 1072, 0)];
    for (case, thousandths, refusals) in table {
        let counters = InMemoryRateCounters::new(10);
        let window = window(120, MINUTE);
        let between = MINUTE * thousandths / 1000 / 120;
        let refused = (0..2000).filter(|&turn| !is_admitted(counters.charge(key(1), window, between * turn))).count();
        assert_eq!(refused, refusals, "{case}");
    }
    // At exactly the limit at most one in fifteen is refused: the share of a bucket in a window and a bucket.
    let counters = InMemoryRateCounters::new(10);
    let refused = (0..12_000)
        .filter(|&turn| !is_admitted(counters.charge(key(1), window(120, MINUTE), MINUTE / 120 * turn)))
        .count();
    assert!(refused <= 12_000 / 15, "{refused}");
}

#[test]
fn each_key_and_rate_has_its_own_counter() {
    let counters = InMemoryRateCounters::new(10);
    let keys = [key(1), key(2), key(1 << 64), RateKey { rate: 2, subject: 1 }];
    for one in keys {
        assert_eq!(counters.charge(one, window(1, MINUTE), seconds(0)), Charged::Admitted { left: 0 });
    }
    assert_eq!(counters.len(), keys.len());
}

#[test]
fn extreme_windows_are_enforced() {
    let far = Duration::from_secs(86_400 * 365);
    let table = [
        ("no request at all", window(0, MINUTE), seconds(1), 0, MINUTE),
        ("a millisecond", window(2, Duration::from_millis(1)), seconds(1), 2, Duration::from_millis(1)),
        ("a nanosecond", window(100, NANOSECOND), seconds(1), 100, NANOSECOND),
        ("thirty days", window(3, seconds(30 * 86_400)), far, 3, seconds(30 * 86_400)),
        ("longer than the clock", window(3, Duration::MAX), far, 3, Duration::from_nanos(u64::MAX) - far),
        ("at the first moment", window(3, MINUTE), seconds(0), 3, MINUTE),
    ];
    for (case, window, now, expected, retry_after) in table {
        let counters = InMemoryRateCounters::new(10);
        let admitted = (0..200).take_while(|_| is_admitted(counters.charge(key(1), window, now))).count();
        assert_eq!(admitted, expected, "{case}");
        assert_eq!(counters.charge(key(1), window, now), Charged::Refused { retry_after }, "{case}");
    }
    let most = window(u32::MAX, MINUTE);
    assert_eq!(InMemoryRateCounters::new(1).charge(key(1), most, seconds(0)), Charged::Admitted { left: u32::MAX - 1 });
    let mut full = SlidingWindow::new(0);
    assert!(is_admitted(full.charge(most, 0)));
    full.counts[0] = u32::MAX;
    assert_eq!(full.charge(most, 0), Charged::Refused { retry_after: MINUTE });
}

#[test]
fn a_refused_new_key_is_not_stored() {
    let counters = InMemoryRateCounters::new(10);
    counters.charge(key(1), window(0, MINUTE), seconds(0));
    assert!(counters.is_empty());
}

#[test]
fn a_refund_frees_exactly_one_charge() {
    let counters = InMemoryRateCounters::new(10);
    for limit in [5, 100] {
        let (key, window) = (key(limit.into()), window(limit, MINUTE));
        for turn in 0..limit {
            assert!(is_admitted(counters.charge(key, window, Duration::from_millis(turn.into()))));
        }
        let now = seconds(30);
        assert!(!is_admitted(counters.charge(key, window, now)));
        counters.refund(key, window, Duration::from_millis(2));
        assert_eq!(counters.charge(key, window, now), Charged::Admitted { left: 0 });
        assert!(!is_admitted(counters.charge(key, window, now)));
        // Charges that are refunded at once use up nothing.
        counters.refund(key, window, now);
        for turn in 0..1000 {
            let now = now + Duration::from_micros(turn);
            assert_eq!(counters.charge(key, window, now), Charged::Admitted { left: 0 });
            counters.refund(key, window, now);
        }
    }
}

#[test]
fn a_refund_of_an_unknown_or_evicted_charge_changes_nothing() {
    let counters = InMemoryRateCounters::new(1);
    let window = window(2, MINUTE);
    counters.refund(key(1), window, seconds(0));
    counters.charge(key(1), window, seconds(0));
    counters.charge(key(2), window, seconds(1));
    // The key is back, but not its charge.
    counters.charge(key(1), window, seconds(2));
    counters.charge(key(1), window, seconds(2));
    counters.refund(key(1), window, seconds(0));
    assert!(!is_admitted(counters.charge(key(1), window, seconds(3))));
    counters.refund(key(1), window, seconds(2));
    assert!(is_admitted(counters.charge(key(1), window, seconds(3))));
}

#[test]
fn a_changed_window_applies_at_once() {
    let counters = InMemoryRateCounters::new(10);
    for turn in 0..50 {
        assert!(is_admitted(counters.charge(key(1), window(50, MINUTE), seconds(turn))));
    }
    let table = [
        ("fewer", window(10, MINUTE), false),
        ("as many in a longer time", window(50, seconds(3600)), false),
        ("more", window(60, MINUTE), true),
        ("as many in a shorter time", window(50, seconds(10)), true),
    ];
    for (case, window, expected) in table {
        let charged = counters.charge(key(1), window, seconds(50));
        assert_eq!(is_admitted(charged), expected, "{case}");
    }
}

#[test]
fn a_longer_window_starts_with_the_known_charges_and_no_lockout() {
    let short = window(1000, Duration::from_nanos(1400));
    let mut buckets = SlidingWindow::new(0);
    for turn in 0..40 {
        assert!(is_admitted(buckets.charge(short, turn * 100)));
    }
    assert!(buckets.dropped);
    let long = window(20, Duration::from_secs(3600));
    let admitted = (1..10).filter(|&turn| is_admitted(buckets.charge(long, turn * nanoseconds(seconds(300))))).count();
    assert_eq!(admitted, 20 - BUCKETS);
}

#[test]
fn a_request_too_late_for_its_window_is_refused() {
    let window = window(100, Duration::from_nanos(1400));
    let mut buckets = SlidingWindow::new(0);
    for _ in 0..100 {
        assert!(is_admitted(buckets.charge(window, 0)));
    }
    for turn in 1..=BUCKETS as u64 {
        assert!(is_admitted(buckets.charge(window, 1300 + turn * 100)));
    }
    assert_eq!(buckets.charge(window, 10), Charged::Refused { retry_after: Duration::from_nanos(1390) });
    assert!(is_admitted(buckets.charge(window, 1400)));
}

#[test]
fn a_refunded_bucket_does_not_extend_the_previous_one() {
    let window = window(100, Duration::from_nanos(1400));
    let mut buckets = SlidingWindow::new(0);
    buckets.charge(window, 1000);
    buckets.charge(window, 1100);
    buckets.refund(1100);
    buckets.charge(window, 1150);
    assert_eq!(buckets.count(2400), 1);
}

#[test]
fn a_retired_counter_is_not_charged() {
    type Retire = fn(&InMemoryRateCounters);
    let table: [(&str, Retire); 2] = [
        ("evicted", |counters| _ = counters.charge(key(2), window(5, MINUTE), seconds(0))),
        ("swept", |counters| counters.sweep(seconds(100))),
    ];
    for (case, retire) in table {
        let counters = InMemoryRateCounters::new(1);
        counters.charge(key(1), window(5, MINUTE), seconds(0));
        let pinned = counters.0.entries.pin();
        let counter = pinned.get(&CompactKey::from(key(1))).unwrap();
        retire(&counters);
        assert_eq!(counter.with(|counted| counted.charge(window(5, MINUTE), 1)), None, "{case}");
    }
}

#[test]
fn concurrent_requests_never_exceed_the_limit() {
    for limit in [10, 1000] {
        let counters = InMemoryRateCounters::new(10);
        let window = window(limit, MINUTE);
        let admitted = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        if is_admitted(counters.charge(key(1), window, seconds(5))) {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), limit);
        assert_eq!(counters.charge(key(1), window, seconds(65)), Charged::Admitted { left: limit - 1 });
    }
}

#[test]
fn concurrent_refunds_are_all_counted() {
    let counters = InMemoryRateCounters::new(10);
    let window = window(1000, MINUTE);
    // The counter is created at the earliest time: charges before its creation are not refunded.
    counters.charge(key(1), window, seconds(5));
    counters.refund(key(1), window, seconds(5));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let counters = &counters;
            scope.spawn(move || {
                for turn in 0..1000_u64 {
                    let now = seconds(5) + Duration::from_micros(turn + thread);
                    if is_admitted(counters.charge(key(1), window, now)) && turn % 10 != 0 {
                        counters.refund(key(1), window, now);
                    }
                }
            });
        }
    });
    // Each of the eight threads has kept a hundred charges.
    assert_eq!(counters.charge(key(1), window, seconds(6)), Charged::Admitted { left: 199 });
}

#[test]
fn skewed_clocks_and_concurrent_sweeps_never_exceed_the_limit() {
    const THREADS: u64 = 8;
    // Every tenth round follows a pause in which the window empties, so that sweeps find idle keys.
    let begins = |round: u64| Duration::from_millis(round * 10 + round / 10 * 3000);
    let skew = 20_000_000;
    for limit in [7, 100] {
        let window = window(limit, Duration::from_millis(100));
        let counters = InMemoryRateCounters::new(10);
        let rounds = Barrier::new(THREADS as usize);
        let admitted = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let charge = |mut seed: u64| {
                let is_sweeper = seed == 0;
                let mut own = Vec::new();
                for round in 0..300 {
                    rounds.wait();
                    for _ in 0..20 {
                        if is_sweeper {
                            counters.sweep(begins(round) + Duration::from_nanos(skew));
                        }
                        let now = begins(round) + Duration::from_nanos(scattered(&mut seed) % skew);
                        if is_admitted(counters.charge(key(1), window, now)) {
                            own.push(now);
                        }
                    }
                }
                admitted.lock().unwrap().append(&mut own);
            };
            for seed in 0..THREADS {
                scope.spawn(move || charge(seed));
            }
        });
        let admitted = admitted.into_inner().unwrap();
        assert!(most_in_a_window(&admitted, window.per) <= limit as usize);
        assert!(admitted.len() > 30 * limit as usize, "{}", admitted.len());
    }
}

#[test]
fn concurrent_requests_never_exceed_the_key_limit() {
    let counters = InMemoryRateCounters::new(16);
    let window = window(5, MINUTE);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let counters = &counters;
            scope.spawn(move || {
                let mut seed = thread;
                for turn in 0..10_000 {
                    let now = Duration::from_millis(turn);
                    let key = key(u128::from(scattered(&mut seed) % 40));
                    if is_admitted(counters.charge(key, window, now)) && turn % 3 == 0 {
                        counters.refund(key, window, now);
                    }
                    if turn % 1000 == 0 {
                        counters.sweep(now);
                    }
                }
            });
        }
    });
    let listed = counters.0.index.lock().unwrap().keys.clone();
    assert!(listed.len() <= 16);
    assert_eq!(counters.len(), listed.len());
    let pinned = counters.0.entries.pin();
    assert!(listed.iter().all(|key| pinned.get(key).is_some_and(|counter| counter.0.lock().unwrap().is_some())));
}

#[test]
fn a_million_invented_keys_evict_each_other_and_not_heavy_ones() {
    let counters = InMemoryRateCounters::new(10_000);
    let window = window(20, MINUTE);
    let heavy: Vec<RateKey> = (0..50).map(|subject| RateKey { rate: 2, subject }).collect();
    for one in heavy.iter().flat_map(|one| std::iter::repeat_n(one, 20)) {
        assert!(is_admitted(counters.charge(*one, window, seconds(0))));
    }
    for subject in 0..1_000_000 {
        assert!(is_admitted(counters.charge(key(subject), window, Duration::from_micros(subject as u64))));
    }
    assert_eq!(counters.len(), 10_000);
    for one in heavy {
        assert!(!is_admitted(counters.charge(one, window, seconds(1))));
    }
}

#[test]
fn a_new_key_evicts_an_idle_one_first() {
    let counters = InMemoryRateCounters::new(1000);
    let window = window(5, MINUTE);
    for subject in 0..1000 {
        // Half of the keys are idle, and these have more charges.
        let (now, charges) = if subject % 2 == 0 { (seconds(0), 4) } else { (seconds(50), 2) };
        (0..charges).for_each(|_| {
            counters.charge(key(subject), window, now);
        });
    }
    for subject in 1000..1100 {
        counters.charge(key(subject), window, seconds(61));
    }
    let pinned = counters.0.entries.pin();
    let kept =
        (0..1000).filter(|&subject| subject % 2 == 1 && pinned.contains_key(&CompactKey::from(key(subject)))).count();
    // One sample in 256 has only busy keys.
    assert!(kept >= 490, "{kept}");
}

#[test]
fn a_sweep_removes_idle_keys_only() {
    let counters = InMemoryRateCounters::new(10_000);
    for subject in 0..1000 {
        counters.charge(key(subject), window(5, MINUTE), Duration::from_millis(subject as u64 * 100));
    }
    counters.charge(key(5000), window(5, MINUTE), seconds(1));
    counters.refund(key(5000), window(5, MINUTE), seconds(1));
    counters.sweep(seconds(2));
    assert_eq!(counters.len(), 1000, "only the refunded one is idle");
    // Keys charged before second 50 expired a second ago.
    counters.sweep(seconds(110) + MAX_LATENESS);
    assert_eq!(counters.len(), 499);
    assert_eq!(counters.charge(key(700), window(5, MINUTE), seconds(110)), Charged::Admitted { left: 3 });
    counters.sweep(seconds(500));
    assert!(counters.is_empty());
}

#[test]
fn a_counter_has_the_documented_size() {
    assert_eq!(size_of::<(CompactKey, KeyEntry<SlidingWindow>)>(), 256);
}

/// The /64 network of this number in the /48 of a site.
fn network(site: u16, number: u16) -> Network {
    Network::of([0x2001, 0xdb8, site, number, 0, 0, 0, 1].into())
}

/// How many more requests a level admits, at the cost of one.
fn left(counters: &InMemoryRateCounters, level: Network, limit: u32) -> Option<u32> {
    match counters.charge(key(level.number()), window(limit, MINUTE), MINUTE) {
        Charged::Admitted { left } => Some(left),
        Charged::Refused { .. } => None,
    }
}

#[test]
fn a_request_that_a_wider_network_refuses_is_charged_to_none() {
    let counters = InMemoryRateCounters::new(1000);
    let limit = window(2, MINUTE);
    let charge = |network| charge_network(&counters, 1, network, limit, MINUTE);
    for number in 0..16 {
        assert!(is_admitted(charge(network(1, number))), "{number}");
    }
    let refused = network(1, 16);
    for _ in 0..10 {
        assert!(matches!(charge(refused), Charged::Refused { .. }), "the /56 is used up");
    }
    let levels: Vec<(Network, u32)> = refused.levels().collect();
    assert_eq!(left(&counters, levels[0].0, 2), Some(1), "the /64 was charged");
    assert_eq!(left(&counters, levels[1].0, 2 * 8), None);
    assert_eq!(left(&counters, levels[2].0, 2 * 32), Some(64 - 16 - 1), "the /48 was charged");
}

#[test]
fn a_refund_reaches_every_level() {
    let counters = InMemoryRateCounters::new(1000);
    let limit = window(2, MINUTE);
    for number in 0..1000 {
        let network = network(1, number);
        assert!(is_admitted(charge_network(&counters, 1, network, limit, MINUTE)), "{number}");
        refund_network(&counters, 1, network, limit, MINUTE);
    }
}

#[test]
fn an_ipv4_address_has_one_key_and_an_ipv6_address_three() {
    let counters = InMemoryRateCounters::new(1000);
    let limit = window(2, MINUTE);
    charge_network(&counters, 1, Network::of([192, 0, 2, 1].into()), limit, MINUTE);
    assert_eq!(counters.len(), 1);
    charge_network(&counters, 1, network(1, 1), limit, MINUTE);
    assert_eq!(counters.len(), 4);
}

#[test]
fn a_site_cannot_escape_its_limit_by_evicting_keys() {
    let counters = InMemoryRateCounters::new(100);
    let limit = window(10, MINUTE);
    let admitted =
        (0..60_000).filter(|number| is_admitted(charge_network(&counters, 1, network(1, *number), limit, MINUTE)));
    assert_eq!(admitted.count(), 320);
    assert!(counters.len() <= 100);
}
