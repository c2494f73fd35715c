//! The minimum rate of bodies: how long a transfer may wait for a client that sends or takes next to nothing. Only the time
//! in which a read or write of the transport is pending counts, so neither a silent nor a busy upstream is the client's
//! fault. The clock is read only when one becomes pending or is no longer. Uploads may also have a deadline, after which they may
//! not wait any longer.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use prometheus::IntCounter;

use super::super::deadline::Deadline;
use crate::config::LimitsConfig;
use crate::metrics::Metrics;

/// The grace without a minimum rate. Longer than any transfer, and short enough to be added to a time.
const UNLIMITED: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What bodies are held to: a minimum rate in both directions, and a deadline of uploads.
#[derive(Debug)]
pub(crate) struct BodyLimits {
    /// 0 without a minimum.
    bytes_per_second: u64,
    /// How long a client may stay below the rate.
    pub(super) grace: Duration,
    /// How long an upload may take, from when the gateway first waits for it.
    upload_deadline: Option<Duration>,
    too_slow: IntCounter,
    too_late: IntCounter,
}

impl BodyLimits {
    /// None without `limits.body_rate` and `limits.upload_deadline`.
    pub(crate) fn new(limits: &LimitsConfig, metrics: &Metrics) -> Option<Arc<Self>> {
        let upload_deadline = Some(limits.upload_deadline.get()).filter(|deadline| !deadline.is_zero());
        (limits.body_rate > 0 || upload_deadline.is_some()).then(|| {
            Arc::new(Self {
                bytes_per_second: u64::from(limits.body_rate),
                grace: if limits.body_rate > 0 { limits.body_grace.get() } else { UNLIMITED },
                upload_deadline,
                too_slow: metrics.limit_counter("body_rate"),
                too_late: metrics.limit_counter("upload_deadline"),
            })
        })
    }

    /// Counts a transfer that was ended.
    pub(super) fn count_ended(&self, meter: &RateMeter) {
        let is_late = meter.ends_at.is_some_and(|end| end <= Instant::now());
        let counter = if is_late { &self.too_late } else { &self.too_slow };
        counter.inc();
    }

    /// How long these bytes may take.
    fn time_for(&self, bytes: usize) -> Duration {
        let nanos = (bytes as u64).saturating_mul(1_000_000_000).checked_div(self.bytes_per_second);
        Duration::from_nanos(nanos.unwrap_or(0))
    }
}

/// How long a transfer may still wait for its client: the grace at first, less the time waited, more the time that each
/// byte may take, and never more than the grace.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateMeter {
    credit: Duration,
    waiting_since: Option<Instant>,
    /// How long the transfer may take.
    deadline: Option<Duration>,
    /// The deadline, once the transfer has waited.
    ends_at: Option<Instant>,
}

impl RateMeter {
    pub(super) fn of_upload(limits: &BodyLimits) -> Self {
        Self { deadline: limits.upload_deadline, ..Self::of_download(limits) }
    }

    pub(super) fn of_download(limits: &BodyLimits) -> Self {
        Self { credit: limits.grace, waiting_since: None, deadline: None, ends_at: None }
    }

    /// Waits for the client from now on, unless it did already. Returns when the client has been too slow.
    pub(super) fn wait(&mut self, now: Instant) -> Instant {
        let too_slow = *self.waiting_since.get_or_insert(now) + self.credit;
        let Some(deadline) = self.deadline else { return too_slow };
        too_slow.min(*self.ends_at.get_or_insert(now + deadline))
    }

    /// Waits for the client no longer.
    pub(super) fn pause(&mut self) {
        if let Some(since) = self.waiting_since.take() {
            self.credit = self.credit.saturating_sub(since.elapsed());
        }
    }

    /// Records bytes that the client sent or took.
    pub(super) fn record(&mut self, bytes: usize, limits: &BodyLimits) {
        self.pause();
        if self.credit < limits.grace {
            self.credit = (self.credit + limits.time_for(bytes)).min(limits.grace);
        }
    }

    /// A meter of another body in the same direction.
    fn restarted(&self, limits: &BodyLimits) -> Self {
        Self { deadline: self.deadline, ..Self::of_download(limits) }
    }
}

/// Holds the bodies of one direction of a connection to the minimum rate.
pub(super) struct RateGuard {
    /// None without limits.
    limits: Option<Arc<BodyLimits>>,
    meter: RateMeter,
    deadline: Deadline,
    /// The client waits for a 100, which the upstream has yet to send: its silence does not count.
    is_held: bool,
    is_too_slow: bool,
}

impl RateGuard {
    /// Holds request bodies.
    pub(super) fn of_uploads(limits: Option<Arc<BodyLimits>>) -> Self {
        Self::new(limits, RateMeter::of_upload)
    }

    /// Holds responses.
    pub(super) fn of_downloads(limits: Option<Arc<BodyLimits>>) -> Self {
        Self::new(limits, RateMeter::of_download)
    }

    fn new(limits: Option<Arc<BodyLimits>>, meter: impl Fn(&BodyLimits) -> RateMeter) -> Self {
        let unused = RateMeter { credit: UNLIMITED, waiting_since: None, deadline: None, ends_at: None };
        let meter = limits.as_deref().map_or(unused, meter);
        Self { limits, meter, deadline: Deadline::none(), is_held: false, is_too_slow: false }
    }

    /// Begins another body.
    pub(super) fn restart(&mut self) {
        if let Some(limits) = &self.limits {
            self.meter = self.meter.restarted(limits);
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
        let Some(limits) = &self.limits else { return progress };
        match progress {
            Poll::Ready(Ok(bytes)) => {
                self.is_held = false;
                self.meter.record(bytes, limits);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending if self.is_held => Poll::Pending,
            Poll::Pending => {
                self.deadline.set_at(self.meter.wait(Instant::now()));
                ready!(self.deadline.poll(cx, limits.grace));
                if !std::mem::replace(&mut self.is_too_slow, true) {
                    limits.count_ended(&self.meter);
                }
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
