//! Waits for open requests and sockets to finish. Stopping the listeners and the tasks is left to `App::stop`.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::api::ready::Readiness;
use crate::metrics::Metrics;
use crate::sockets::registry::Registry;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reports not ready at `/api/ready`, closes sockets with 1001 and waits for open requests, at most for `timeout`.
/// Listeners stay open meanwhile, so that clients get a response instead of a reset.
pub(super) async fn drain(readiness: &Readiness, registry: &Registry, metrics: &Metrics, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    readiness.drain();
    registry.drain();
    let idle = async {
        let mut tick = tokio::time::interval(POLL_INTERVAL);
        while metrics.requests_in_flight.get() > 0 || registry.count_sockets() > 0 {
            tick.tick().await;
        }
    };
    if timeout_at(deadline, idle).await.is_err() {
        let (requests, sockets) = (metrics.requests_in_flight.get(), registry.count_sockets());
        tracing::warn!(requests, sockets, "drain timeout: closing the connections that are still open");
    }
}
