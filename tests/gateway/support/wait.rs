//! Waits for conditions and data, never for a fixed time.

use std::future::Future;
use std::time::{Duration, Instant};

/// Time limit of every single wait; only a failing test reaches it.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Time between two evaluations of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Awaits a future; panics with `what` at the time limit.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not happen within {limit:?}"),
    }
}

/// Evaluates `condition` until it returns a value; panics with `what` after [`TEST_TIMEOUT`].
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "{what} did not happen within {TEST_TIMEOUT:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The contract's bound for a revocation to take effect.
const REVOCATION_BOUND: Duration = Duration::from_millis(100);

/// Asserts that the median is within the contract's revocation bound. The median, because a busy machine delays
/// single rounds.
#[track_caller]
pub fn assert_within_revocation_bound(mut times: Vec<Duration>) {
    times.sort_unstable();
    assert!(times[times.len() / 2] <= REVOCATION_BOUND, "{times:?}");
}
