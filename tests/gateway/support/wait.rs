//! Waiting for conditions and data, never for time.

use std::future::Future;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine; only a broken program makes a test wait this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How long a condition rests between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The future's outcome, or a failure that says what was waited for.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("{what} did not happen within {limit:?}"),
    }
}

/// Asks again until there is an answer; fails when there is none within [`PATIENCE`].
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// The contract's bound for a revocation to take effect.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Fails unless half of them took no longer than the contract's bound: one slow turn of a busy machine is not the
/// gateway's.
#[track_caller]
pub fn within_the_bound(mut times: Vec<Duration>) {
    times.sort_unstable();
    assert!(times[times.len() / 2] <= AT_ONCE, "{times:?}");
}
