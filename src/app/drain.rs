//! The drain: what is told that the gateway stops, in which order, and what it waits for. Stopping the background tasks
//! is left to `App::stop`.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::api::ready::Readiness;
use crate::gateway::drain_signal::DrainSignal;
use crate::metrics::Metrics;
use crate::signin::SignInServices;
use crate::sockets::registry::Registry;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long connections without a request may take to close. Longer than idle ones stay open for a last request; a client
/// that has vanished, or that neither sends a request nor reacts to a GOAWAY, does not hold the exit.
const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// A drain, from SIGTERM to the last response.
pub(super) struct Drain<'a> {
    pub(super) readiness: &'a Readiness,
    pub(super) signal: &'a DrainSignal,
    pub(super) signin: &'a SignInServices,
    pub(super) registry: &'a Registry,
    pub(super) metrics: &'a Metrics,
}

impl Drain<'_> {
    /// Reports not ready at `/api/ready` and serves everything for `delay`. Then stops accepting, ends keep-alive, long
    /// polls and WebSockets, and waits until no request runs and no connection is open, at most for `limit`.
    pub(super) async fn run(&self, delay: Duration, limit: Duration) {
        self.readiness.drain();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.signal.begin();
        self.signin.end_polls();
        self.registry.drain();
        if timeout(limit, self.idle()).await.is_err() {
            let (requests, sockets) = (self.metrics.requests_in_flight.get(), self.registry.count_sockets());
            tracing::warn!(requests, sockets, "drain timeout: closing the connections that are still open");
        }
    }

    async fn idle(&self) {
        let mut tick = tokio::time::interval(POLL_INTERVAL);
        let mut busy_at = Instant::now();
        loop {
            tick.tick().await;
            if self.metrics.requests_in_flight.get() > 0 || self.registry.count_sockets() > 0 {
                busy_at = Instant::now();
            } else if !self.signal.has_open_connections() || busy_at.elapsed() >= QUIET_PERIOD {
                return;
            }
        }
    }
}
