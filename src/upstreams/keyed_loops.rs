//! Runs one loop per key in a single task, and starts a loop for every key that a change of the table adds.

use std::collections::HashSet;
use std::hash::Hash;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;

/// Starts a loop for each wanted key that has none. A loop ends, with its key, when it finds that it is no longer wanted.
pub(super) async fn run<K: Clone + Eq + Hash>(
    mut changes: watch::Receiver<()>,
    wanted: impl Fn() -> Vec<K>,
    start: impl Fn(K) -> BoxFuture<'static, K>,
) {
    let mut running = HashSet::new();
    let mut loops = FuturesUnordered::new();
    loop {
        changes.mark_unchanged();
        for key in wanted() {
            if running.insert(key.clone()) {
                loops.push(start(key));
            }
        }
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(ended) = loops.next() => {
                running.remove(&ended);
            }
        }
    }
}
