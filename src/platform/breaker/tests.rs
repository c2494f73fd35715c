use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn breaker() -> (Breaker, Clock) {
    let clock = Clock::system();
    (Breaker::new(clock.clone(), PATIENCE), clock)
}

fn fail(breaker: &Breaker, times: u32) {
    for _ in 0..times {
        breaker.admit().unwrap();
        breaker.note(CallOutcome::Failure);
    }
}

/// How long it rests, rounded: the clock goes on while a test runs.
fn rest_of(breaker: &Breaker) -> Option<u64> {
    breaker.circuit_open_for().map(|rest| rest.as_millis().div_ceil(1000) as u64)
}

#[test]
fn failures_in_a_row_open_it_and_others_do_not() {
    let (breaker, _) = breaker();
    for _ in 0..10 {
        fail(&breaker, TRIES - 1);
        breaker.note(CallOutcome::Success);
    }
    assert_eq!(rest_of(&breaker), None, "never five in a row");
    fail(&breaker, TRIES);
    assert_eq!(rest_of(&breaker), Some(5));
    assert!(matches!(breaker.admit(), Err(PlatformError::CircuitOpen { .. })));
}

#[test]
fn after_a_rest_one_call_tries_and_its_success_closes_it() {
    let (breaker, clock) = breaker();
    fail(&breaker, TRIES);
    clock.advance(FIRST_REST);
    breaker.admit().unwrap();
    for _ in 0..100 {
        assert!(breaker.admit().is_err(), "one tries, the others do not wait with it");
    }
    breaker.note(CallOutcome::Success);
    for _ in 0..100 {
        breaker.admit().unwrap();
    }
}

#[test]
fn each_failed_try_doubles_the_rest_up_to_a_minute() {
    let (breaker, clock) = breaker();
    fail(&breaker, TRIES);
    for rest in [10, 20, 40, 60, 60] {
        clock.advance(LONGEST_REST);
        fail(&breaker, 1);
        assert_eq!(rest_of(&breaker), Some(rest));
    }
    clock.advance(LONGEST_REST);
    breaker.admit().unwrap();
    breaker.note(CallOutcome::Success);
    fail(&breaker, TRIES);
    assert_eq!(rest_of(&breaker), Some(5), "a success starts anew");
}

#[test]
fn a_try_that_never_ends_does_not_keep_it_open_for_ever() {
    let (breaker, clock) = breaker();
    fail(&breaker, TRIES);
    clock.advance(FIRST_REST);
    breaker.admit().unwrap();
    assert!(breaker.admit().is_err());
    clock.advance(PATIENCE);
    breaker.admit().unwrap();
}

#[test]
fn late_failures_of_calls_from_before_change_nothing() {
    let (breaker, clock) = breaker();
    fail(&breaker, TRIES);
    clock.advance(Duration::from_secs(2));
    for _ in 0..100 {
        breaker.note(CallOutcome::Failure);
    }
    assert_eq!(rest_of(&breaker), Some(3));
}

#[test]
fn asked_too_often_it_rests_a_minute_at_once() {
    let (breaker, _) = breaker();
    breaker.admit().unwrap();
    breaker.note(CallOutcome::Throttled);
    assert_eq!(rest_of(&breaker), Some(60));
}
