use super::*;

const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

fn breaker() -> (CircuitBreaker, Clock) {
    let clock = Clock::system();
    (CircuitBreaker::new(clock.clone(), PROBE_TIMEOUT), clock)
}

fn fail(breaker: &CircuitBreaker, times: u32) {
    for _ in 0..times {
        breaker.admit().unwrap();
        breaker.record(CallOutcome::Failure);
    }
}

/// The remaining open time in seconds, rounded up: the clock advances while a test runs.
fn open_seconds(breaker: &CircuitBreaker) -> Option<u64> {
    breaker.circuit_open_for().map(|rest| rest.as_millis().div_ceil(1000) as u64)
}

#[test]
fn only_consecutive_failures_open_the_circuit() {
    let (breaker, _) = breaker();
    for _ in 0..10 {
        fail(&breaker, FAILURE_THRESHOLD - 1);
        breaker.record(CallOutcome::Success);
    }
    assert_eq!(open_seconds(&breaker), None, "never five in a row");
    fail(&breaker, FAILURE_THRESHOLD);
    assert_eq!(open_seconds(&breaker), Some(5));
    assert!(matches!(breaker.admit(), Err(PlatformError::CircuitOpen { .. })));
}

#[test]
fn a_half_open_circuit_admits_one_probe_and_its_success_closes_it() {
    let (breaker, clock) = breaker();
    fail(&breaker, FAILURE_THRESHOLD);
    clock.advance(MIN_OPEN_TIME);
    breaker.admit().unwrap();
    for _ in 0..100 {
        assert!(breaker.admit().is_err(), "only the probe is admitted");
    }
    breaker.record(CallOutcome::Success);
    for _ in 0..100 {
        breaker.admit().unwrap();
    }
}

#[test]
fn each_failed_probe_doubles_the_open_time_up_to_a_minute() {
    let (breaker, clock) = breaker();
    fail(&breaker, FAILURE_THRESHOLD);
    for seconds in [10, 20, 40, 60, 60] {
        clock.advance(MAX_OPEN_TIME);
        fail(&breaker, 1);
        assert_eq!(open_seconds(&breaker), Some(seconds));
    }
    clock.advance(MAX_OPEN_TIME);
    breaker.admit().unwrap();
    breaker.record(CallOutcome::Success);
    fail(&breaker, FAILURE_THRESHOLD);
    assert_eq!(open_seconds(&breaker), Some(5), "a success resets the open time");
}

#[test]
fn a_probe_without_an_outcome_is_replaced_after_its_timeout() {
    let (breaker, clock) = breaker();
    fail(&breaker, FAILURE_THRESHOLD);
    clock.advance(MIN_OPEN_TIME);
    breaker.admit().unwrap();
    assert!(breaker.admit().is_err());
    clock.advance(PROBE_TIMEOUT);
    breaker.admit().unwrap();
}

#[test]
fn failures_of_calls_from_before_the_circuit_opened_are_ignored() {
    let (breaker, clock) = breaker();
    fail(&breaker, FAILURE_THRESHOLD);
    clock.advance(Duration::from_secs(2));
    for _ in 0..100 {
        breaker.record(CallOutcome::Failure);
    }
    assert_eq!(open_seconds(&breaker), Some(3));
}

#[test]
fn throttling_opens_the_circuit_for_a_minute_at_once() {
    let (breaker, _) = breaker();
    breaker.admit().unwrap();
    breaker.record(CallOutcome::Throttled);
    assert_eq!(open_seconds(&breaker), Some(60));
}

#[test]
fn the_open_time_is_the_same_whatever_the_wall_clock_does() {
    let hour = Duration::from_secs(3600);
    let jumps: [fn(&Clock, Duration); 2] = [Clock::set_back, Clock::set_forward];
    for jump in jumps {
        let (breaker, clock) = breaker();
        fail(&breaker, FAILURE_THRESHOLD);
        jump(&clock, hour);
        assert_eq!(open_seconds(&breaker), Some(5));
        assert!(breaker.admit().is_err());
        clock.advance(MIN_OPEN_TIME);
        breaker.admit().expect("the probe");
        jump(&clock, hour);
        assert!(breaker.admit().is_err(), "one probe");
        clock.advance(PROBE_TIMEOUT);
        breaker.admit().expect("another probe");
    }
}
