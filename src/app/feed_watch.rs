//! Watches how current the change feed of a shared store is: shows it as metrics, and closes what is open once the feed is
//! lost. A session that ended meanwhile on another gateway must not go on here for longer than `store.outage_grace`.

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Metrics;
use crate::sockets::CloseReason;
use crate::sockets::registry::Registry;
use crate::store::Store;
use crate::store::feed_state::{FeedState, FeedTrust};

/// How often the metrics are set.
const INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn run(store: Arc<dyn Store>, metrics: Arc<Metrics>, registry: Arc<Registry>) {
    let feed = store.feed();
    let mut before = feed.trust();
    loop {
        let now = feed.trust();
        show(feed, now, &metrics);
        if now != before {
            report(before, now);
        }
        // A clock that was set forward makes the feed be read again; what is open does not close for that.
        if now == FeedTrust::Lost && !feed.is_catching_up() {
            // Each time, because a handshake may have been admitted just before.
            registry.close_signed_in(CloseReason::StoreLost);
        }
        before = now;
        let left = feed.time_left();
        // A moment longer than is left, so that the feed is lost when this looks again.
        let pause = if left.is_zero() { INTERVAL } else { INTERVAL.min(left + Duration::from_millis(1)) };
        tokio::time::sleep(pause).await;
    }
}

fn show(feed: &FeedState, trust: FeedTrust, metrics: &Metrics) {
    metrics.revocation_feed_up.set(i64::from(trust == FeedTrust::Current));
    // Not a number before anything was applied: neither 0 nor any age would be true.
    metrics.feed_lag_seconds.set(feed.age().map_or(f64::NAN, |age| age.as_secs_f64()));
}

fn report(before: FeedTrust, now: FeedTrust) {
    match now {
        FeedTrust::Current => tracing::info!("the change feed of the store is current again"),
        FeedTrust::Stale => {
            tracing::warn!("the change feed of the store is stale: known sessions go on for store.outage_grace");
        }
        FeedTrust::Lost if before == FeedTrust::Current => {
            tracing::error!("the change feed of the store is lost: requests with a token are answered 1503");
        }
        FeedTrust::Lost => {
            tracing::error!(
                "store.outage_grace is over: requests with a token are answered 1503, what is open is closed"
            );
        }
    }
}
