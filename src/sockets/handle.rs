//! The handle of one open socket: closes it, and checks it against its rule. The tunnel polls the handle and sends the
//! close frames; the registry keeps the handles.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use futures::task::AtomicWaker;

use super::CloseReason;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{Session, SessionId};
use crate::error::Error;
use crate::rules::evaluate::{RuleInput, StepUp};
use crate::rules::{Mode, Rule, RuleMatch, RuleSet};

/// Who opened a socket, from where and at which path: what its rule is checked against.
#[derive(Debug, Clone)]
pub(crate) struct SocketOwner {
    /// None on a public rule.
    pub(crate) session: Option<SessionId>,
    pub(crate) employee: Option<(CorpId, EmployeeId)>,
    pub(crate) path: Box<str>,
    pub(crate) address: IpAddr,
}

impl SocketOwner {
    fn input<'a>(&'a self, session: Option<&'a Session>) -> RuleInput<'a> {
        // A rule that requires a one-time password requires it when the socket is opened, and it was fresh then.
        RuleInput { method: "GET", path: &self.path, address: self.address, session, step_up: StepUp::Fresh }
    }
}

/// Closes one socket. The first reason wins; later ones are ignored.
#[derive(Debug)]
pub(crate) struct SocketHandle {
    /// 0 while the socket is open, otherwise the code of its close reason.
    closing: AtomicU8,
    closing_since: OnceLock<Instant>,
    waker: AtomicWaker,
    /// The rule in force; a reload may replace it.
    rule: ArcSwap<Rule>,
    owner: SocketOwner,
}

impl SocketHandle {
    pub(super) fn new(owner: SocketOwner, rule: Arc<Rule>) -> Self {
        Self {
            closing: AtomicU8::new(0),
            closing_since: OnceLock::new(),
            waker: AtomicWaker::new(),
            rule: ArcSwap::new(rule),
            owner,
        }
    }

    pub(super) fn owner(&self) -> &SocketOwner {
        &self.owner
    }

    /// Tells the tunnel to close the socket.
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

    /// The close reason, if the socket is to be closed. Otherwise `waker` is woken when it is.
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

    pub(super) fn closing_since(&self) -> Option<Instant> {
        self.closing_since.get().copied()
    }

    /// The rule in force for the socket.
    pub(crate) fn rule(&self) -> Arc<Rule> {
        self.rule.load_full()
    }

    pub(super) fn has_rule(&self, name: &str) -> bool {
        &*self.rule.load().name == name
    }

    /// Counts the socket as closed in the metrics of its rule.
    pub(super) fn count_closed(&self) {
        self.rule.load().metrics.websockets_open.dec();
    }

    /// Refuses if the rule in force does not admit the session. In shadow mode it admits every session.
    pub(crate) fn check_admitted(&self, session: Option<&Session>) -> Result<(), Error> {
        let rule = self.rule.load();
        match rule.mode_for(session) {
            Mode::Shadow => Ok(()),
            Mode::Enforce => rule.evaluate(&self.owner.input(session), &mut ()).map(|_| ()),
        }
    }

    /// Closes the socket if its rule no longer admits the session.
    pub(super) fn close_unless_admitted(&self, session: Option<&Session>) {
        if self.check_admitted(session).is_err() {
            self.close(CloseReason::Forbidden);
        }
    }

    /// Assigns the rule that now matches the socket's path; closes the socket if none does.
    pub(super) fn apply_rules(&self, rules: &RuleSet) -> Result<(), Error> {
        let RuleMatch::Rule(rule) = rules.find("GET", &self.owner.path) else {
            self.close(CloseReason::Forbidden);
            return Err(Error::NotFound);
        };
        rule.metrics.websockets_open.inc();
        self.rule.swap(rule.clone()).metrics.websockets_open.dec();
        Ok(())
    }

    /// Closes the socket because its token has expired.
    pub(super) fn expire(&self) {
        self.close(CloseReason::Expired);
    }
}
