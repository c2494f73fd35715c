//! The minimum rate of bodies: how long a transfer may wait for a client that sends or takes next to nothing. Only the time
//! in which a read or write of the transport is pending counts, so neither a silent nor a busy upstream is the client's
//! fault. The clock is read only when one becomes pending or ends to be.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use prometheus::IntCounter;

use super::super::deadline::Deadline;
use crate::config::LimitsConfig;
use crate::metrics::Metrics;

/// The minimum rate of bodies in both directions.
#[derive(Debug)]
pub(crate) struct MinRate {
    bytes_per_second: u64,
    /// How long a client may stay below the rate.
    pub(super) grace: Duration,
    reached: IntCounter,
}

impl MinRate {
    /// None if `limits.body_rate` is 0.
    pub(crate) fn new(limits: &LimitsConfig, metrics: &Metrics) -> Option<Arc<Self>> {
        (limits.body_rate > 0).then(|| {
            Arc::new(Self {
                bytes_per_second: u64::from(limits.body_rate),
                grace: limits.body_grace.get(),
                reached: metrics.limit_counter("body_rate"),
            })
        })
    }

    /// Counts a transfer that was ended.
    pub(super) fn count_reached(&self) {
        self.reached.inc();
    }

    /// How long these bytes may take.
    fn time_for(&self, bytes: usize) -> Duration {
        Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_second)
    }
}

/// How long a transfer may still wait for its client: the grace at first, less the time waited, more the time that each
/// byte may take, and never more than the grace.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateMeter {
    credit: Duration,
    waiting_since: Option<Instant>,
}

impl RateMeter {
    pub(super) fn new(rate: &MinRate) -> Self {
        Self { credit: rate.grace, waiting_since: None }
    }

    /// Waits for the client from now on, unless it did already. Returns when the client has been too slow.
    pub(super) fn wait(&mut self, now: Instant) -> Instant {
        *self.waiting_since.get_or_insert(now) + self.credit
    }

    /// Waits for the client no longer.
    pub(super) fn pause(&mut self) {
        if let Some(since) = self.waiting_since.take() {
            self.credit = self.credit.saturating_sub(since.elapsed());
        }
    }

    /// Records bytes that the client sent or took.
    pub(super) fn record(&mut self, bytes: usize, rate: &MinRate) {
        self.pause();
        if self.credit < rate.grace {
            self.credit = (self.credit + rate.time_for(bytes)).min(rate.grace);
        }
    }
}

/// Holds the bodies of one direction of a connection to the minimum rate.
pub(super) struct RateGuard {
    /// None without a minimum.
    rate: Option<Arc<MinRate>>,
    meter: RateMeter,
    deadline: Deadline,
    /// The client waits for a 100, which the upstream has yet to send: its silence does not count.
    is_held: bool,
    is_too_slow: bool,
}

impl RateGuard {
    pub(super) fn new(rate: Option<Arc<MinRate>>) -> Self {
        let credit = rate.as_ref().map_or(Duration::ZERO, |rate| rate.grace);
        let meter = RateMeter { credit, waiting_since: None };
        Self { rate, meter, deadline: Deadline::none(), is_held: false, is_too_slow: false }
    }

    /// Begins another body.
    pub(super) fn restart(&mut self) {
        if let Some(rate) = &self.rate {
            self.meter = RateMeter::new(rate);
        }
        self.is_held = false;
    }

    /// Holds the body to no rate until [`RateGuard::release`], or until the client sends something.
    pub(super) fn hold(&mut self) {
        self.is_held = true;
    }

    pub(super) fn release(&mut self) {
        self.is_held = false;
    }

    pub(super) fn pause(&mut self) {
        self.meter.pause();
    }

    /// Passes on the progress of a read or write. A pending one fails once the client has been too slow.
    pub(super) fn poll_progress(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Some(rate) = &self.rate else { return progress };
        match progress {
            Poll::Ready(Ok(bytes)) => {
                self.is_held = false;
                self.meter.record(bytes, rate);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending if self.is_held => Poll::Pending,
            Poll::Pending => {
                self.deadline.set_at(self.meter.wait(Instant::now()));
                ready!(self.deadline.poll(cx, rate.grace));
                if !std::mem::replace(&mut self.is_too_slow, true) {
                    rate.count_reached();
                }
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
