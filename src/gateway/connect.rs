//! Upstream connections and retries for every lane to an upstream: which address is tried, how often, whether a request may
//! be sent again, and what is recorded about an address. What is sent over a connection is left to the lanes.
//!
//! A retry goes to another address while one is available. After a failed connect nothing was sent, so any request is
//! retried. After that only a request that can be repeated is, if its connection was reset before a response: the upstream
//! may have worked on it. A request that timed out is not: its client has waited long enough.
//!
//! A pooled connection that turns out to be stale is no failure: a request that can be repeated goes to the same address over a new
//! connection, and no retry is used up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use pingora_core::protocols::http::ServerSession as Exchange;
use pingora_core::{Error as PingoraError, ErrorType, RetryType};
use pingora_http::RequestHeader;

use super::Gateway;
use super::connector::{ConnectionSource, UpstreamTransport};
use super::current_exchange;
use crate::config::UpstreamProtocol;
use crate::error::Error;
use crate::pipeline::forward::TRACEPARENT;
use crate::pipeline::record::ReachedUpstream;
use crate::pipeline::request_id::RequestId;
use crate::pipeline::trace::TraceParent;
use crate::pipeline::{Arrival, UpstreamPermit};
use crate::traces::{AttemptFailure, RequestTrace};
use crate::upstreams::{
    Address, Affinity, ChosenAddress, Culprit, FailureReason, RequestSlot, TOTAL_TIMEOUT, TriedAddresses, Upstream,
    Upstreams,
};

/// The attempts of one request to reach its upstream.
#[derive(Default)]
pub(super) struct UpstreamAttempts {
    target: Option<AttemptTarget>,
    tried: TriedAddresses,
    /// The address of the current attempt, until the attempt has failed.
    current: Option<ChosenAddress>,
    /// The address of the last attempt, once `current` has given it up.
    last: Option<Arc<Address>>,
    /// How many attempts have begun.
    count: u64,
    retries: usize,
    source: ConnectionSource,
    next: NextAddress,
    /// When the current attempt chose its address.
    started: Option<Instant>,
    /// The request among the concurrent ones of its upstream; None without a limit on them.
    slot: Option<RequestSlot>,
    /// The trace of the request, if it is sampled.
    pub(super) trace: Option<Box<RequestTrace>>,
}

/// What all attempts of a request have in common.
struct AttemptTarget {
    upstream: Arc<Upstream>,
    affinity: Affinity,
    request_id: RequestId,
    deadline: Option<Instant>,
}

/// Which address the next attempt uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum NextAddress {
    /// One that the upstream chooses, for a first attempt or after a failure.
    #[default]
    Another,
    /// The one of the attempt before, whose pooled connection was stale.
    Same,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryDecision {
    Retry,
    GiveUp,
}

/// Whether a request can be sent a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replay {
    /// Its method is idempotent, its body, if any, is still buffered, and no response has begun.
    Safe,
    /// Only if the upstream has refused it before working on it: its method is not idempotent.
    AfterRefusal,
    Unsafe,
}

impl Replay {
    pub(super) fn of(exchange: &Exchange) -> Self {
        let is_buffered = !exchange.retry_buffer_truncated();
        match exchange.req_header().method.is_idempotent() {
            _ if !is_buffered || has_begun_response(exchange) => Self::Unsafe,
            true => Self::Safe,
            false => Self::AfterRefusal,
        }
    }

    /// Of a request of which everything is kept that was sent.
    pub(super) fn of_method(method: &Method) -> Self {
        if method.is_idempotent() { Self::Safe } else { Self::AfterRefusal }
    }
}

fn has_begun_response(exchange: &Exchange) -> bool {
    exchange.response_written().is_some_and(|response| !response.status.is_informational())
}

/// How far an exchange came before it failed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// Bytes of the request's body that were read for the upstream.
    pub(super) sent: usize,
    /// Bytes behind the response's head that were relayed. The fast lane counts the framing of chunks as well.
    pub(super) received: usize,
    /// The body of the request has not been read to its end.
    pub(super) is_uploading: bool,
}

impl Progress {
    pub(super) fn of(exchange: &mut Exchange) -> Self {
        Self {
            sent: exchange.body_bytes_read(),
            received: exchange.body_bytes_sent(),
            is_uploading: !exchange.is_body_done(),
        }
    }
}

/// A connection to the address of the current attempt.
pub(super) struct UpstreamConnection {
    pub(super) transport: UpstreamTransport,
    pub(super) source: ConnectionSource,
}

impl UpstreamAttempts {
    /// Uses no pooled connection: a WebSocket keeps its connection to the end.
    pub(super) fn use_new_connections(&mut self) {
        self.source = ConnectionSource::New;
    }

    /// When the current attempt began; None once its response has.
    pub(super) fn started(&self) -> Option<Instant> {
        self.started
    }

    /// When the exchange must have ended.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.target.as_ref().and_then(|target| target.deadline)
    }

    /// Starts an attempt and chooses its address.
    pub(super) fn next_address(&mut self) -> pingora_core::Result<&Arc<Address>> {
        let Some(target) = &self.target else {
            return PingoraError::e_explain(ErrorType::InternalError, "no permit");
        };
        let now = Instant::now();
        self.started = Some(now);
        self.count += 1;
        let is_same = std::mem::take(&mut self.next) == NextAddress::Same && self.current.is_some();
        if !is_same {
            self.current = target.upstream.choose(target.affinity, &mut self.tried, now);
        }
        current_exchange::note_attempt(self.count, self.tried.last());
        if let (Some(trace), Some(chosen)) = (&mut self.trace, &self.current) {
            trace.begin_attempt(self.count, &target.upstream.name, chosen.address().name());
        }
        self.address()
    }

    /// The address of the current attempt.
    pub(super) fn address(&self) -> pingora_core::Result<&Arc<Address>> {
        match &self.current {
            Some(chosen) => Ok(chosen.address()),
            None => Err(PingoraError::explain(ErrorType::ConnectNoRoute, "the upstream has no address").into_up()),
        }
    }

    /// Decides after a failed connect: the request has not been sent.
    pub(super) fn after_failed_connect(&mut self, upstreams: &Upstreams, error: &PingoraError) -> RetryDecision {
        self.fail(upstreams, error, Progress::default());
        self.retry()
    }

    /// Decides after a request was sent and no response came.
    pub(super) fn after_failed_exchange(
        &mut self,
        upstreams: &Upstreams,
        error: &PingoraError,
        source: ConnectionSource,
        replay: Replay,
        progress: Progress,
    ) -> RetryDecision {
        // RFC 9113, section 8.7: a refused stream, and one behind the last that a GOAWAY names, was not processed.
        let is_refused = error.etype() == &ErrorType::H2Error && error.retry == RetryType::Decided(true);
        let is_stale = match replay {
            Replay::Safe => is_refused || error.retry == RetryType::ReusedOnly,
            Replay::AfterRefusal => is_refused,
            Replay::Unsafe => false,
        };
        if source == ConnectionSource::Pool && is_stale {
            // The upstream most likely closed the connection while it was idle, or is about to close it: no failure.
            self.source = ConnectionSource::New;
            self.next = NextAddress::Same;
            self.fail_attempt("stale_connection");
            return RetryDecision::Retry;
        }
        self.fail(upstreams, error, progress);
        let is_reset = FailureReason::of(error) == FailureReason::Reset && Culprit::of(error) == Culprit::Upstream;
        let has_other = self.target.as_ref().is_some_and(|target| target.upstream.has_other(&self.tried));
        if replay == Replay::Safe && is_reset && has_other { self.retry() } else { RetryDecision::GiveUp }
    }

    /// Takes a retry, if one is left and within the budget.
    fn retry(&mut self) -> RetryDecision {
        let Some(target) = &self.target else { return RetryDecision::GiveUp };
        let is_late = target.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_late || self.retries >= target.upstream.retries() || !target.upstream.spend_retry() {
            return RetryDecision::GiveUp;
        }
        self.retries += 1;
        RetryDecision::Retry
    }

    /// Records that the current attempt failed, if that is not recorded yet and the upstream has not done its part.
    pub(super) fn fail(&mut self, upstreams: &Upstreams, error: &PingoraError, progress: Progress) {
        let Some(chosen) = self.current.take_if(|chosen| chosen.is_counted()) else { return };
        let Some(target) = &self.target else { return };
        self.last = Some(chosen.address().clone());
        if let Some(trace) = &mut self.trace {
            trace.fail_attempt(FailureReason::of(error).as_str());
        }
        let is_timeout = FailureReason::of(error) == FailureReason::Timeout;
        let culprit = match Culprit::of(error) {
            // The client has disconnected, and the request's own log line says so.
            Culprit::Client => return,
            // The client sends so slowly that the upstream cannot answer.
            Culprit::Upstream if is_timeout && progress.is_uploading => Culprit::Client,
            culprit => culprit,
        };
        let (reason, address) = (FailureReason::of(error), chosen.address());
        // Once a response has begun, a client that reads it slowly may be why it took too long.
        let is_certain = error.etype() != &TOTAL_TIMEOUT || self.started.is_some();
        if culprit == Culprit::Upstream && is_certain {
            target.upstream.failed(address, reason, upstreams.clock().now());
        }
        tracing::warn!(
            target: "deskgate::upstream",
            { request.id = target.request_id.as_str(), upstream.name = &*target.upstream.name,
              upstream.address = address.name(), attempt = self.count, reason = reason.as_str(),
              fault = culprit.as_str(), bytes_sent = progress.sent, bytes_received = progress.received },
            "attempt to reach the upstream failed: {}", error.etype().as_str()
        );
    }

    fn fail_attempt(&mut self, failure: AttemptFailure) {
        if let Some(trace) = &mut self.trace {
            trace.fail_attempt(failure);
        }
    }

    /// Tells the upstream which span its own belong to, if the request is sampled. Every attempt is a span of its own, so
    /// this comes after the attempt has begun.
    pub(super) fn write_traceparent(&self, request: &mut RequestHeader) -> pingora_core::Result<()> {
        match self.traceparent() {
            Some(parent) => request.insert_header(TRACEPARENT, &parent.text()[..]),
            None => Ok(()),
        }
    }

    /// The span of the current attempt, if the request is sampled.
    pub(super) fn traceparent(&self) -> Option<TraceParent> {
        self.trace.as_ref().map(|trace| TraceParent::sampled(trace.trace_id(), trace.current_span()))
    }

    /// Records the first response header, which came `now`; returns the time since the attempt chose its address.
    pub(super) fn succeed(&mut self, now: Instant) -> Option<Duration> {
        let elapsed = now.saturating_duration_since(self.started.take()?);
        if let (Some(target), Some(chosen)) = (&self.target, &self.current) {
            target.upstream.succeeded(chosen.address(), elapsed);
        }
        Some(elapsed)
    }

    /// Counts the request no longer for its address: the upstream has done its part.
    pub(super) fn release_address(&mut self) {
        if let Some(chosen) = &mut self.current {
            chosen.release();
        }
    }

    /// The current address, for a socket that outlives its request.
    pub(super) fn take_current(&mut self) -> Option<ChosenAddress> {
        self.last = self.current.as_ref().map(|chosen| chosen.address().clone());
        self.current.take()
    }

    /// The upstream of the request.
    pub(super) fn upstream(&self) -> Option<&Arc<Upstream>> {
        self.target.as_ref().map(|target| &target.upstream)
    }

    /// Which address the last attempt used; None before the first.
    pub(super) fn reached(&self) -> Option<ReachedUpstream<'_>> {
        let upstream = self.upstream().filter(|_| self.count > 0)?;
        let address = self.current.as_ref().map(ChosenAddress::address).or(self.last.as_ref());
        let address = address.map(|address| address.name());
        Some(ReachedUpstream { name: &upstream.name, address, attempts: self.count })
    }
}

impl Gateway {
    /// Begins the attempts of a permitted request: finds its upstream, and waits for room among its concurrent requests.
    pub(super) async fn begin_attempts(
        &self,
        attempts: &mut UpstreamAttempts,
        permit: &UpstreamPermit,
        arrival: &Arrival,
        started: Instant,
    ) -> Result<(), Error> {
        let upstream = self.upstreams.at(permit.rule.upstream.index);
        let upstream = upstream.ok_or_else(|| Error::UpstreamFailed(Some("the upstream is not configured".into())))?;
        attempts.slot = match upstream.begin_request() {
            None => None,
            // Boxed, so that the future of a request without a limit stays small.
            Some(waiting) => Some(Box::pin(waiting).await.map_err(|_| {
                self.gate.metrics.count_limit_reached("upstream_requests");
                Error::UpstreamBusy { retry_after: upstream.retry_after() }
            })?),
        };
        attempts.target = Some(AttemptTarget {
            affinity: if upstream.needs_affinity() { affinity(permit, arrival) } else { Affinity::default() },
            request_id: arrival.request_id,
            deadline: upstream.total_timeout().map(|timeout| started + timeout),
            upstream,
        });
        Ok(())
    }

    /// Connects to an address of the upstream, and to further ones as long as retries are left.
    pub(super) async fn connect(
        &self,
        attempts: &mut UpstreamAttempts,
        protocol: UpstreamProtocol,
    ) -> pingora_core::Result<UpstreamConnection> {
        loop {
            attempts.next_address()?;
            let began = attempts.started.unwrap_or_else(Instant::now);
            match self.connector.open(attempts.address()?, attempts.source, protocol, began).await {
                Ok((transport, source)) => return Ok(UpstreamConnection { transport, source }),
                Err(error) => {
                    let error = error.into_up();
                    match attempts.after_failed_connect(&self.upstreams, &error) {
                        RetryDecision::Retry => {}
                        RetryDecision::GiveUp => return Err(error),
                    }
                }
            }
        }
    }
}

/// Runs a lane until the exchange must have ended.
pub(super) async fn within_total_timeout(
    deadline: Option<Instant>,
    lane: impl Future<Output = pingora_core::Result<()>>,
) -> pingora_core::Result<()> {
    let Some(deadline) = deadline else { return lane.await };
    // Boxed, because a timer is large, and its alignment would make the future of every request larger and slower to allocate.
    let done = Box::pin(tokio::time::timeout_at(deadline.into(), lane)).await;
    done.unwrap_or_else(|_| Err(total_timeout()))
}

/// The error of an exchange that took too long.
pub(super) fn total_timeout() -> Box<PingoraError> {
    PingoraError::explain(TOTAL_TIMEOUT, "the exchange took longer than total_timeout").into_up()
}

/// What requests of the same session, or without one of the same client, have in common.
fn affinity(permit: &UpstreamPermit, arrival: &Arrival) -> Affinity {
    match (permit.caller.session(), arrival.client) {
        (Some(session), _) => Affinity::of(session.id.as_str().as_bytes()),
        (None, std::net::IpAddr::V4(address)) => Affinity::of(&address.octets()),
        (None, std::net::IpAddr::V6(address)) => Affinity::of(&address.octets()),
    }
}

#[cfg(test)]
mod tests;
