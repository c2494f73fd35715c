//! The handle of one open WebSocket or exchange: closes it, and checks it against its rule. The tunnel or the exchange's
//! task polls the handle and ends the connections; the registry keeps the handles.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Instant;

use arc_swap::ArcSwap;
use futures::task::AtomicWaker;
use prometheus::IntGauge;

use super::CloseReason;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{Session, SessionId};
use crate::error::{Error, Forbidden};
use crate::rules::evaluate::{RuleInput, StepUp, evaluate};
use crate::rules::{CorsHandling, Mode, Rule, RuleMatch, RuleSet};

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
            step_up: StepUp::Fresh,
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
    /// 0 while it is open, otherwise the code of its close reason.
    closing: AtomicU8,
    closing_since: OnceLock<Instant>,
    waker: AtomicWaker,
    /// The rule in force; a reload may replace it.
    rule: ArcSwap<Rule>,
    opener: Opener,
}

impl CloseHandle {
    pub(super) fn new(opener: Opener, rule: Arc<Rule>) -> Self {
        opener.gauge(&rule).inc();
        Self {
            closing: AtomicU8::new(0),
            closing_since: OnceLock::new(),
            waker: AtomicWaker::new(),
            rule: ArcSwap::new(rule),
            opener,
        }
    }

    pub(super) fn opener(&self) -> &Opener {
        &self.opener
    }

    /// Tells the task that polls the handle to close what is open.
    pub(super) fn close(&self, reason: CloseReason) {
        let code = match reason {
            CloseReason::Revoked => 1,
            CloseReason::Expired => 2,
            CloseReason::Forbidden => 3,
            CloseReason::Drain => 4,
        };
        if self.closing.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let _ = self.closing_since.set(Instant::now());
            self.waker.wake();
        }
    }

    /// The close reason, if it is to be closed. Otherwise `waker` is woken when it is.
    pub(super) fn poll_close(&self, waker: &std::task::Waker) -> Option<CloseReason> {
        self.waker.register(waker);
        match self.closing.load(Ordering::Acquire) {
            1 => Some(CloseReason::Revoked),
            2 => Some(CloseReason::Expired),
            3 => Some(CloseReason::Forbidden),
            4 => Some(CloseReason::Drain),
            _ => None,
        }
    }

    /// Waits until it is to be closed.
    pub(crate) async fn closed(&self) -> CloseReason {
        poll_fn(|cx| self.poll_close(cx.waker()).map_or(Poll::Pending, Poll::Ready)).await
    }

    pub(super) fn closing_since(&self) -> Option<Instant> {
        self.closing_since.get().copied()
    }

    /// The rule in force.
    pub(crate) fn rule(&self) -> Arc<Rule> {
        self.rule.load_full()
    }

    pub(super) fn has_rule(&self, name: &str) -> bool {
        &*self.rule.load().name == name
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
    pub(super) fn close_unless_admitted(&self, session: Option<&Session>) {
        if self.check_admitted(session).is_err() {
            self.close(CloseReason::Forbidden);
        }
    }

    /// Assigns the rule that now matches the path; closes what is open if none does.
    pub(super) fn apply_rules(&self, rules: &RuleSet) -> Result<(), Error> {
        let RuleMatch::Rule(rule) = rules.find(self.opener.method.as_str(), &self.opener.path) else {
            self.close(CloseReason::Forbidden);
            return Err(Error::NotFound);
        };
        self.opener.gauge(rule).inc();
        self.opener.gauge(&self.rule.swap(rule.clone())).dec();
        Ok(())
    }

    /// Closes it because its token has expired.
    pub(super) fn expire(&self) {
        self.close(CloseReason::Expired);
    }
}
