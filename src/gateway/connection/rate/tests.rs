use super::*;

fn rate() -> MinRate {
    let reached = IntCounter::new("reached", "For tests.").unwrap();
    MinRate { bytes_per_second: 100, grace: Duration::from_secs(10), reached }
}

/// A meter that has waited for this long.
fn waited(seconds: u64) -> RateMeter {
    let mut meter = RateMeter::new(&rate());
    meter.waiting_since = Instant::now().checked_sub(Duration::from_secs(seconds));
    meter
}

fn credit_in_seconds(meter: &RateMeter) -> u64 {
    // Rounded, because the tests' own time is charged too.
    (meter.credit.as_secs_f64()).round() as u64
}

#[test]
fn only_time_spent_waiting_is_charged() {
    for (case, seconds, bytes, left) in [
        ("no wait", 0, 1, 10),
        ("a wait for nothing", 4, 0, 6),
        ("a wait for a few bytes", 4, 100, 7),
        ("a wait for bytes at the rate", 4, 400, 10),
        ("no more than the grace is earned", 4, 1_000_000, 10),
        ("a wait longer than the grace", 60, 200, 2),
    ] {
        let mut meter = waited(seconds);
        meter.record(bytes, &rate());
        assert_eq!(credit_in_seconds(&meter), left, "{case}");
    }
    let mut paused = waited(4);
    paused.pause();
    assert_eq!((credit_in_seconds(&paused), paused.waiting_since), (6, None));
}

#[test]
fn wait_goes_on_until_bytes_arrive() {
    let mut meter = RateMeter::new(&rate());
    let began = Instant::now();
    let due = meter.wait(began);
    assert_eq!(due, began + Duration::from_secs(10));
    assert_eq!(meter.wait(began + Duration::from_secs(5)), due, "a second poll does not restart the wait");
}
