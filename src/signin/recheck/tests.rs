use std::time::Duration;

use super::{most_counted, pace};

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
