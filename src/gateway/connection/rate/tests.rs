use super::*;

fn rate() -> BodyLimits {
    let counter = || IntCounter::new("reached", "For tests.").unwrap();
    BodyLimits {
        bytes_per_second: 100,
        grace: Duration::from_secs(10),
        upload_deadline: Some(Duration::from_secs(60)),
        too_slow: counter(),
        too_late: counter(),
    }
}

/// A meter that has waited for this long.
fn waited(seconds: u64) -> RateMeter {
    let mut meter = RateMeter::of_download(&rate());
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
    let mut meter = RateMeter::of_download(&rate());
    let began = Instant::now();
    let due = meter.wait(began);
    assert_eq!(due, began + Duration::from_secs(10));
    assert_eq!(meter.wait(began + Duration::from_secs(5)), due, "a second poll does not restart the wait");
}

#[test]
fn upload_that_keeps_the_rate_ends_at_its_deadline() {
    let limits = rate();
    let (mut upload, mut download) = (RateMeter::of_upload(&limits), RateMeter::of_download(&limits));
    let began = Instant::now();
    upload.wait(began);
    for seconds in 0..60 {
        let now = began + Duration::from_secs(seconds);
        assert!(upload.wait(now) > now, "{seconds} s");
        upload.record(1000, &limits);
        download.record(1000, &limits);
    }
    let later = began + Duration::from_secs(61);
    assert!(upload.wait(later) <= later, "the deadline has passed");
    assert!(download.wait(later) > later, "downloads have none");
    let mut next = upload.restarted(&limits);
    assert!(next.wait(later) > later, "the next body has a deadline of its own");
}

#[test]
fn a_deadline_needs_no_minimum_rate() {
    let metrics = Metrics::new().unwrap();
    let mut config = LimitsConfig { body_rate: 0, ..LimitsConfig::default() };
    assert!(BodyLimits::new(&config, &metrics).is_none());
    config.upload_deadline = crate::config::HumanDuration::seconds(60);
    let limits = BodyLimits::new(&config, &metrics).expect("limits");
    let began = Instant::now();
    let mut upload = RateMeter::of_upload(&limits);
    assert_eq!(upload.wait(began), began + Duration::from_secs(60));
    upload.record(1000, &limits);
    assert_eq!(upload.wait(began + Duration::from_secs(59)), began + Duration::from_secs(60));
}
