//! The handle of one open WebSocket or exchange: closes it, and checks it against its rule. The tunnel or the exchange's
//! task polls the handle and ends the connections; the registry keeps the handles.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::task::AtomicWaker;
use prometheus::IntGauge;

use super::CloseReason;
use super::close_batch::{BatchMember, CloseBatch};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{Session, SessionId, SessionLifetime};
use crate::error::{Error, Forbidden};
use crate::rules::evaluate::{RuleInput, StepUp, evaluate};
use crate::rules::{CorsHandling, Mode, Rule, RuleMatch, RuleSet};
use crate::store::socket_slots::SocketSlot;

/// What a handle closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenKind {
    /// A WebSocket, from its handshake on.
    WebSocket,
    /// A proxied request that has run for a while: a download, an upload, server-sent events.
    Exchange,
    /// A preflight that an upstream has been answering for a while.
    Preflight,
}

/// Who opened a WebSocket or exchange, from where and how: what its rule is checked against.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    pub(crate) kind: OpenKind,
    /// None if the caller is anonymous.
    pub(crate) session: Option<SessionId>,
    /// When the session's token is valid; None if the caller is anonymous.
    pub(crate) lifetime: Option<SessionLifetime>,
    /// Whose limit on open WebSockets it counts against.
    pub(crate) employee: Option<(CorpId, EmployeeId)>,
    /// The method that the rule admits; a preflight's is the announced one.
    pub(crate) method: http::Method,
    pub(crate) path: Box<str>,
    pub(crate) address: IpAddr,
}

impl Opener {
    fn input<'a>(&'a self, session: Option<&'a Session>) -> RuleInput<'a> {
        // A rule that requires a one-time password requires it when the request arrives, and it was fresh then.
        RuleInput {
            method: self.method.as_str(),
            path: &self.path,
            address: self.address,
            host: None,
            session,
            step_up: StepUp::NotRequiredAgain,
        }
    }

    /// The gauge of a rule that counts this kind.
    fn gauge<'a>(&self, rule: &'a Rule) -> &'a IntGauge {
        match self.kind {
            OpenKind::WebSocket => &rule.metrics.websockets_open,
            OpenKind::Exchange | OpenKind::Preflight => &rule.metrics.exchanges_open,
        }
    }
}

/// Closes one WebSocket or exchange. The first reason wins; later ones are ignored.
#[derive(Debug)]
pub(crate) struct CloseHandle {
    /// Set when it is to be closed. Boxed, so that what stays open does not hold its memory.
    closing: OnceLock<Box<Closing>>,
    waker: AtomicWaker,
    /// Its position in the registry's list of its session; changed under the registry's lock.
    pub(super) position: AtomicUsize,
    /// Its slot in a shared store, for the limit per employee.
    pub(super) slot: Mutex<Option<Box<SocketSlot>>>,
    /// The rule in force; a reload may replace it.
    rule: ArcSwap<Rule>,
    opener: Opener,
}

#[derive(Debug)]
struct Closing {
    reason: CloseReason,
    since: Instant,
    /// None for what has no close frame to send.
    batch: Option<BatchMember>,
}

impl CloseHandle {
    pub(super) fn new(opener: Opener, rule: Arc<Rule>) -> Self {
        opener.gauge(&rule).inc();
        Self {
            closing: OnceLock::new(),
            waker: AtomicWaker::new(),
            position: AtomicUsize::new(0),
            slot: Mutex::new(None),
            rule: ArcSwap::new(rule),
            opener,
        }
    }

    pub(super) fn opener(&self) -> &Opener {
        &self.opener
    }

    /// Tells the task that polls the handle to close what is open.
    pub(super) fn close(&self, reason: CloseReason, batch: &Arc<CloseBatch>) {
        if self.closing.get().is_some() {
            return;
        }
        let batch = (self.opener.kind == OpenKind::WebSocket).then(|| batch.join());
        // If another reason came first, the member is dropped and so leaves the batch.
        let closing = Box::new(Closing { reason, since: Instant::now(), batch });
        if self.closing.set(closing).is_ok() {
            self.waker.wake();
        }
    }

    /// Wakes `waker` when it is to be closed, in place of the one before.
    pub(super) fn watch(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// The close reason, if it is to be closed.
    pub(super) fn close_reason(&self) -> Option<CloseReason> {
        self.closing.get().map(|closing| closing.reason)
    }

    /// The WebSockets that are closed together with this one.
    pub(super) fn batch(&self) -> Option<&BatchMember> {
        self.closing.get().and_then(|closing| closing.batch.as_ref())
    }

    /// Waits until it is to be closed.
    pub(crate) async fn closed(&self) -> CloseReason {
        poll_fn(|cx| {
            self.watch(cx.waker());
            self.close_reason().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    pub(super) fn closing_since(&self) -> Option<Instant> {
        self.closing.get().map(|closing| closing.since)
    }

    /// The rule in force.
    pub(crate) fn rule(&self) -> Arc<Rule> {
        self.rule.load_full()
    }

    /// Counts it as closed in the metrics of its rule.
    pub(super) fn count_closed(&self) {
        self.opener.gauge(&self.rule.load()).dec();
    }

    /// Refuses if the rule in force does not admit the caller. In shadow mode it admits every session.
    pub(crate) fn check_admitted(&self, session: Option<&Session>) -> Result<(), Error> {
        let rule = self.rule.load();
        let input = self.opener.input(session);
        match (self.opener.kind, rule.mode_for(session)) {
            (OpenKind::Preflight, _) if rule.cors == CorsHandling::Gateway => Err(Forbidden::CrossOrigin.into()),
            (OpenKind::Preflight, _) => evaluate(rule.preflight_checks(), &input, &mut ()),
            (_, Mode::Shadow) => Ok(()),
            (_, Mode::Enforce) => rule.evaluate(&input, &mut ()).map(|_| ()),
        }
    }

    /// Closes it if its rule no longer admits the caller.
    pub(super) fn close_unless_admitted(&self, session: Option<&Session>, batch: &Arc<CloseBatch>) {
        if self.check_admitted(session).is_err() {
            self.close(CloseReason::Forbidden, batch);
        }
    }

    /// Assigns the rule that now matches the path; closes what is open if none does. Returns the rule before.
    pub(super) fn apply_rules(&self, rules: &RuleSet, batch: &Arc<CloseBatch>) -> Result<Arc<Rule>, Error> {
        let RuleMatch::Rule(rule) = rules.find(self.opener.method.as_str(), &self.opener.path) else {
            self.close(CloseReason::Forbidden, batch);
            return Err(Error::NotFound);
        };
        let before = self.rule.swap(rule.clone());
        self.opener.gauge(rule).inc();
        self.opener.gauge(&before).dec();
        Ok(before)
    }

    /// Closes it because its token has expired.
    pub(super) fn expire(&self) {
        self.close(CloseReason::Expired, &CloseBatch::new());
    }

    /// Closes it if its token is not valid at this time, by which a request with it would be refused.
    pub(super) fn close_unless_valid(&self, now: Timestamp, leeway: Duration, batch: &Arc<CloseBatch>) {
        if self.opener.lifetime.is_some_and(|lifetime| !lifetime.contains(now, leeway)) {
            self.close(CloseReason::Expired, batch);
        }
    }
}
