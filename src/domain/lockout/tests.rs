use super::*;

const START: Timestamp = Timestamp::from_seconds(1_800_000_000);
const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn failed(times: u32, now: Timestamp) -> Lockout {
    let mut lockout = Lockout::default();
    (0..times).for_each(|_| lockout.on_failure(now));
    lockout
}

#[test]
fn five_tries_are_free_then_each_failure_doubles_the_wait_up_to_a_quarter_of_an_hour() {
    let table = [
        (0, None),
        (1, None),
        (4, None),
        (5, Some(30)),
        (6, Some(MINUTE)),
        (7, Some(2 * MINUTE)),
        (8, Some(4 * MINUTE)),
        (9, Some(8 * MINUTE)),
        (10, Some(15 * MINUTE)),
        (11, Some(15 * MINUTE)),
        (1_000, Some(15 * MINUTE)),
    ];
    for (failures, wait) in table {
        let expected = wait.map_or(Ok(()), |wait| Err(Locked { retry_after: seconds(wait) }));
        assert_eq!(failed(failures, START).admit(START), expected, "{failures}");
    }
}

#[test]
fn the_wait_runs_out_to_the_millisecond() {
    let lockout = failed(5, START);
    let table = [
        ("in the middle", 10_000, Err(Locked { retry_after: seconds(20) })),
        ("just before", 29_999, Err(Locked { retry_after: Duration::from_millis(1) })),
        ("at its end", 30_000, Ok(())),
        ("later", 3_600_000, Ok(())),
    ];
    for (case, millis, expected) in table {
        assert_eq!(lockout.admit(START.plus(Duration::from_millis(millis))), expected, "{case}");
    }
}

#[test]
fn a_wait_that_ran_out_gives_one_try_and_the_next_wait_is_longer() {
    let mut lockout = failed(5, START);
    let later = START.plus(seconds(30));
    assert_eq!(lockout.admit(later), Ok(()));
    lockout.on_failure(later);
    assert_eq!(lockout.admit(later), Err(Locked { retry_after: seconds(MINUTE) }));
}

#[test]
fn a_day_of_quiet_forgets_the_wait_but_not_what_the_owner_is_told() {
    let table = [("a moment less", DAY - 1, Err(Locked { retry_after: seconds(15 * MINUTE) })), ("a day", DAY, Ok(()))];
    for (case, quiet, expected) in table {
        let mut lockout = failed(20, START);
        let later = START.plus(seconds(quiet));
        lockout.on_failure(later);
        assert_eq!(lockout.admit(later), expected, "{case}");
        let told = FailedAttempts { failures_since_last_success: 21, last_failure_at: Some(later) };
        assert_eq!(lockout.on_success(), told, "{case}");
    }
}

#[test]
fn a_success_tells_and_forgets_everything() {
    let mut lockout = failed(7, START);
    assert_eq!(lockout.on_success(), FailedAttempts { failures_since_last_success: 7, last_failure_at: Some(START) });
    assert_eq!(lockout, Lockout::default());
    assert_eq!(lockout.on_success(), FailedAttempts { failures_since_last_success: 0, last_failure_at: None });
}

#[test]
fn tries_at_once_cannot_be_more_than_the_free_ones() {
    let mut lockout = Lockout::default();
    let admitted = (0..1_000).filter(|_| lockout.charge(START).is_ok()).count();
    assert_eq!(admitted, 5);
    assert_eq!(lockout, failed(5, START), "what is refused is not counted");
}

#[test]
fn a_charged_try_that_succeeds_is_not_told_as_a_failure() {
    let mut lockout = failed(3, START);
    let later = START.plus(seconds(10));
    let told = lockout.charge(later).expect("admitted");
    assert_eq!(told, FailedAttempts { failures_since_last_success: 3, last_failure_at: Some(START) });
    lockout.on_success();
    assert_eq!(lockout, Lockout::default());
}

#[test]
fn a_guesser_has_about_a_hundred_tries_a_day() {
    let (mut lockout, mut tries) = (Lockout::default(), 0);
    for second in 0..DAY {
        while lockout.charge(START.plus(seconds(second))).is_ok() {
            tries += 1;
        }
    }
    assert!((96..=106).contains(&tries), "{tries}");
}

#[test]
fn it_is_kept_as_json_and_read_back_the_same() {
    for lockout in [Lockout::default(), failed(1, START), failed(9, START)] {
        let text = serde_json::to_string(&lockout).expect("json");
        assert_eq!(serde_json::from_str::<Lockout>(&text).expect("a lockout"), lockout, "{text}");
    }
    assert_eq!(serde_json::from_str::<Lockout>("{}").expect("a lockout"), Lockout::default());
}

#[test]
fn endless_failures_do_not_overflow() {
    let mut lockout = Lockout { failures: u32::MAX, streak: u32::MAX, ..failed(1, START) };
    lockout.on_failure(START);
    assert_eq!(lockout.admit(START), Err(Locked { retry_after: seconds(15 * MINUTE) }));
    assert_eq!(lockout.on_success().failures_since_last_success, u32::MAX);
}

#[test]
fn a_clock_that_is_set_back_does_not_make_the_wait_longer() {
    for back in [1, 3600, 10 * 365 * DAY] {
        let mut lockout = failed(7, START);
        let now = START.minus(seconds(back));
        lockout.limit_to(now);
        assert_eq!(lockout.admit(now), Err(Locked { retry_after: seconds(2 * MINUTE) }), "{back}");
        let again = lockout.clone();
        lockout.limit_to(now.plus(seconds(MINUTE)));
        assert_eq!(lockout, again, "it is moved once");
        assert_eq!(lockout.admit(now.plus(seconds(2 * MINUTE))), Ok(()), "{back}");
        lockout.on_failure(now.plus(seconds(2 * MINUTE)));
        let longer = Err(Locked { retry_after: seconds(4 * MINUTE) });
        assert_eq!(lockout.admit(now.plus(seconds(2 * MINUTE))), longer, "the failures stay counted");
    }
}
