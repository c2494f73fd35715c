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
