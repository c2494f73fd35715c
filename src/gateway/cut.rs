//! Cuts proxied exchanges whose session ends, whose rule no longer admits them or that outlast a drain, in every lane and HTTP version. An
//! exchange that runs longer than a second is entered in the registry of `sockets`, which decides when it is closed.
//!
//! A lane cannot be told to give up an exchange: it may be anywhere in the code that waits for the client or the upstream. So the
//! future around it is dropped: that of the connection on HTTP/1.1, that of the stream on HTTP/2. Both connections go
//! with it: the client's ends without the final chunk or its stream is reset, and the upstream's never returns to the
//! pool.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;

use super::context::RequestContext;
use super::current_exchange::{self, CurrentExchange, WatchedExchange};
use super::deadline::Deadline;
use crate::domain::session::Session;
use crate::pipeline::record::{self, AccessLogEntry, NoRuleMetrics};
use crate::pipeline::{Caller, Gate, Handler, Phase};
use crate::rules::Rule;
use crate::sockets::CloseReason;
use crate::sockets::handle::{OpenKind, Opener};
use crate::sockets::registry::Registry;

/// The age at which an exchange is registered. Nearly all end sooner, and those pay for no entry. They share a timer of their
/// connection, which is set again about once a second at most.
pub(crate) const REGISTERED_AFTER: Duration = Duration::from_secs(1);

/// Watches a permitted exchange until it is complete.
pub(super) fn begin(method: &Method, target: &[u8], host: Option<&[u8]>, context: &RequestContext) {
    let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else { return };
    let target = permit.target.as_deref().map_or(target, str::as_bytes);
    current_exchange::begin(target, host.unwrap_or_default(), || WatchedExchange {
        started: context.started,
        arrival: arrival.clone(),
        caller: permit.caller.clone(),
        rule: permit.rule.clone(),
        method: method.clone(),
        announced_method: permit.announced_method.clone(),
        upstream: context.attempts.upstream().cloned(),
    });
}

/// Runs exchanges and cuts those whose session ends, whose rule no longer admits them or that outlast a drain.
pub(crate) struct ExchangeCutter {
    pub(crate) gate: Arc<Gate>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) no_rule_metrics: Arc<NoRuleMetrics>,
}

impl ExchangeCutter {
    /// Runs the exchanges of a connection or stream, one after the other. Returns None if one was cut.
    pub(super) async fn run<T>(self: &Arc<Self>, exchanges: impl Future<Output = T>) -> Option<T> {
        let mut exchanges = pin!(exchanges);
        let mut observer = CutObserver { cutter: self, number: 0, age: Deadline::none(), open: None };
        current_exchange::scope(poll_fn(|cx| match exchanges.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            // The lane ran in the poll above, so what it told is seen here without a wake-up.
            Poll::Pending => {
                let cut = current_exchange::read(|current| {
                    observer.poll_cut(current, cx).map(|reason| self.record(current, reason))
                });
                cut.unwrap_or(Poll::Pending).map(|()| None)
            }
        }))
        .await
    }

    /// Registers an exchange and waits until it must be cut.
    async fn until_closed(self: Arc<Self>, opener: Opener, caller: Caller, rule: Arc<Rule>) -> CloseReason {
        let (registration, _) = self.registry.register(opener, &rule);
        if let Some(reason) = registration.handle().closed().now_or_never() {
            // A drain is over; its databases may be closed.
            return reason;
        }
        // What happened before the registration did not reach the handle, so everything is checked once more.
        let now = self.gate.clock.now();
        let cached = match caller.session() {
            None => None,
            Some(session) if session.is_expired(now) => return CloseReason::Expired,
            Some(session) => match self.gate.sessions.session(&session.id, now).await {
                Ok(Some(cached)) => Some(cached),
                Ok(None) | Err(_) => return CloseReason::Revoked,
            },
        };
        let session = cached.as_ref().map(|cached| &cached.session);
        let handle = registration.handle();
        if registration.apply_rules(&self.gate.rules).is_err() || handle.check_admitted(session).is_err() {
            return CloseReason::Forbidden;
        }
        let Some(session) = session else { return handle.closed().await };
        tokio::select! {
            reason = handle.closed() => reason,
            () = self.gate.clock.sleep_until(session.expires_at) => CloseReason::Expired,
        }
    }

    fn record(&self, current: &CurrentExchange, reason: CloseReason) {
        self.gate.metrics.exchanges_cut.with_label_values(&[reason.as_str()]).inc();
        let Some(watched) = &current.watched else { return };
        record::request(
            &self.gate,
            &self.no_rule_metrics,
            &AccessLogEntry {
                arrival: &watched.arrival,
                method: watched.method.as_str(),
                path: &current.path,
                host: &|| Some(&current.host),
                handler: &Handler::Rule(watched.rule.clone()),
                caller: &watched.caller,
                phase: Phase::Upstream,
                status: current.status,
                error: None,
                shown_code: None,
                incomplete: None,
                cut: Some(reason.explanation()),
                trace_id: None,
                took: watched.started.elapsed(),
                upstream: current.reached(watched),
                overhead: current.overhead,
            },
        );
    }
}

/// Follows the exchanges of one task and reports when the current one must be cut.
struct CutObserver<'a> {
    cutter: &'a Arc<ExchangeCutter>,
    /// The number of the exchange that the other fields are about; 0 before the first.
    number: u64,
    age: Deadline,
    /// Set once the exchange is registered.
    open: Option<BoxFuture<'static, CloseReason>>,
}

impl CutObserver<'_> {
    fn poll_cut(&mut self, current: &CurrentExchange, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let Some((number, watched)) = current.watched() else {
            self.open = None;
            return Poll::Pending;
        };
        if number != self.number {
            self.number = number;
            self.open = None;
            self.age.set_at(watched.started + REGISTERED_AFTER);
        }
        if self.open.is_none() {
            ready!(self.age.poll(cx, REGISTERED_AFTER));
        }
        self.open.get_or_insert_with(|| register(self.cutter, watched, &current.path)).poll_unpin(cx)
    }
}

/// Registers an exchange; returns when it must be cut.
fn register(cutter: &Arc<ExchangeCutter>, watched: &WatchedExchange, path: &[u8]) -> BoxFuture<'static, CloseReason> {
    let (kind, method) = match &watched.announced_method {
        Some(announced) => (OpenKind::Preflight, announced),
        None => (OpenKind::Exchange, &watched.method),
    };
    let opener = Opener {
        kind,
        session: watched.caller.session().map(|session| session.id.clone()),
        lifetime: watched.caller.session().map(Session::lifetime),
        employee: None,
        method: method.clone(),
        // The pipeline has validated it, so it is ASCII.
        path: std::str::from_utf8(path).unwrap_or_default().into(),
        address: watched.arrival.client,
    };
    cutter.clone().until_closed(opener, watched.caller.clone(), watched.rule.clone()).boxed()
}
