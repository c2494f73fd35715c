//! The background task of shared rate limits.

use std::sync::Arc;
use std::time::Duration;

use crate::store::Store;
use crate::store::rate_leases::LeasedRates;

/// How often the gateways of the fleet are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// Reviews leases, and counts the gateways that share limits, until the task is cancelled.
pub(super) async fn run(rates: LeasedRates, store: Arc<dyn Store>) {
    tokio::join!(rates.run(), count_gateways(&rates, &*store));
}

/// Keeps the last count while the store is away: it is needed then.
async fn count_gateways(rates: &LeasedRates, store: &dyn Store) {
    loop {
        if let Ok(gateways) = store.gateways().await {
            rates.set_gateways(gateways.len());
        }
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}
