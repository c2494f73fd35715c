//! The drain: what is told that the gateway stops, in which order, and what it waits for. Stopping the background tasks
//! is left to `App::stop`.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::api::ready::Readiness;
use crate::gateway::cut::REGISTERED_AFTER;
use crate::gateway::drain_signal::{Backlog, DrainSignal};
use crate::metrics::Metrics;
use crate::signin::SignInServices;
use crate::sockets::registry::Registry;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long connections without a request may take to close. Longer than idle ones stay open for a last request; a client
/// that has vanished, or that neither sends a request nor reacts to a GOAWAY, does not hold the exit.
const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// How long cutting the requests may take that are open at the end of a drain. One that has just begun is cut when it is old
/// enough to be registered.
const CUT_TIMEOUT: Duration = REGISTERED_AFTER.saturating_add(Duration::from_millis(500));

/// How long the steps of a drain may take.
pub(super) struct DrainTimes {
    /// How long everything is served although the gateway is not ready.
    pub(super) delay: Duration,
    /// How long requests may take to finish.
    pub(super) limit: Duration,
    /// Over how long the close frames of WebSockets are spread, so that their clients do not all reconnect at once.
    pub(super) spread: Duration,
}

/// Why the gateway drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainCause {
    /// It stops.
    Stop,
    /// Another process takes its place on the same sockets: the service stays ready.
    HandOver,
}

/// A drain, from its cause to the last response.
pub(super) struct Drain<'a> {
    pub(super) cause: DrainCause,
    pub(super) readiness: &'a Readiness,
    pub(super) signal: &'a DrainSignal,
    pub(super) signin: &'a SignInServices,
    pub(super) registry: &'a Registry,
    pub(super) metrics: &'a Metrics,
}

impl Drain<'_> {
    /// Reports not ready at `/api/ready`, unless another process is, and serves everything for `delay`. Then stops accepting, ends keep-alive and long
    /// polls at once and WebSockets one after the other, and waits until no request runs and no connection is open.
    pub(super) async fn run(&self, times: DrainTimes) {
        let DrainTimes { delay, limit, spread } = times;
        let backlog = match self.cause {
            DrainCause::Stop => Backlog::Accept,
            DrainCause::HandOver => Backlog::Leave,
        };
        if self.cause == DrainCause::Stop {
            self.readiness.drain();
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.signal.begin(backlog);
        self.signin.end_polls();
        let finished = async { tokio::join!(self.registry.drain(spread), self.idle()) };
        if timeout(limit, finished).await.is_err() {
            let (requests, sockets) = (self.metrics.requests_in_flight.get(), self.registry.count_sockets());
            tracing::warn!(requests, sockets, "drain timeout: closing the connections that are still open");
            self.registry.end_drain();
            let _ = timeout(CUT_TIMEOUT, self.idle_requests()).await;
        }
    }

    /// Waits until no request runs and no WebSocket is open.
    async fn idle_requests(&self) {
        let mut tick = tokio::time::interval(POLL_INTERVAL);
        while self.is_busy() {
            tick.tick().await;
        }
    }

    fn is_busy(&self) -> bool {
        self.metrics.requests_in_flight.get() > 0 || self.registry.count_sockets() > 0
    }

    async fn idle(&self) {
        let mut tick = tokio::time::interval(POLL_INTERVAL);
        let mut busy_at = Instant::now();
        loop {
            tick.tick().await;
            if self.is_busy() {
                busy_at = Instant::now();
            } else if !self.signal.has_open_connections() || busy_at.elapsed() >= QUIET_PERIOD {
                return;
            }
        }
    }
}
