use std::time::Duration;

use super::{RecheckResult, Silence, most_counted, pace};
use crate::domain::clock::Timestamp;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn the_queue_is_spread_over_the_interval_and_never_faster_than_the_platform_allows() {
    for (case, interval, queued, expected) in [
        ("nobody", HOUR, 0, Duration::from_secs(60)),
        ("a few are asked about on time", HOUR, 3, Duration::from_secs(60)),
        ("a thousand", HOUR, 1_000, Duration::from_millis(3600)),
        ("as many as fit", HOUR, 36_000, Duration::from_millis(100)),
        ("more than fit", HOUR, 1_000_000, Duration::from_millis(100)),
        ("a short interval", Duration::from_secs(1), 5, Duration::from_millis(100)),
    ] {
        assert_eq!(pace(interval, queued), expected, "{case}");
        assert_eq!(pace(interval, queued.min(most_counted(interval))), expected, "{case}, counted in part");
    }
}

#[test]
fn silence_lasts_from_the_first_recheck_without_an_answer_to_the_next_answer() {
    use RecheckResult::*;
    for answer in [Active, Inactive, OutOfSight, NotAMember] {
        let mut silence = Silence::default();
        for (seconds, result, lasted) in
            [(0, answer, 0), (60, Unreachable, 0), (120, Paused, 60), (7260, Failed, 7200), (7320, answer, 0)]
        {
            let now = Timestamp::from_seconds(seconds);
            silence.note(result, now);
            assert_eq!(silence.lasted(now).as_secs(), lasted, "{answer:?}, {result:?} at {seconds}");
        }
    }
}
