//! From a session to its open sockets: who gets 4401, 4403 and 1001.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use futures::task::AtomicWaker;

use super::Ending;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{Session, SessionId};
use crate::error::Error;
use crate::rules::evaluate::{RuleInput, StepUp};
use crate::rules::{Mode, Rule, RuleMatch, RuleSet};
use crate::store::Change;

/// What holds a socket: closing once, it ends it.
#[derive(Debug)]
pub struct SocketHandle {
    closing: AtomicU8,
    since: OnceLock<Instant>,
    waker: AtomicWaker,
    /// The rule in force; a reload may bring another.
    rule: ArcSwap<Rule>,
    opener: Opener,
}

/// Who opened a socket, from where and at which path: what its rule is judged by.
#[derive(Debug, Clone)]
pub struct Opener {
    /// Whose; nobody's on a public rule.
    pub session: Option<SessionId>,
    /// Whose person's.
    pub person: Option<(CorpId, EmployeeId)>,
    /// At which path.
    pub path: Box<str>,
    /// From where.
    pub address: IpAddr,
}

impl Opener {
    fn input<'a>(&'a self, session: Option<&'a Session>) -> RuleInput<'a> {
        // A one-time password was fresh when the socket was opened, and that is what its rule wants.
        RuleInput { method: "GET", path: &self.path, address: self.address, session, step_up: StepUp::Fresh }
    }
}

impl SocketHandle {
    fn close(&self, ending: Ending) {
        let code = match ending {
            Ending::Revoked => 1,
            Ending::Expired => 2,
            Ending::Forbidden => 3,
            Ending::Drain => 4,
        };
        // The first reason stands.
        if self.closing.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let _ = self.since.set(Instant::now());
            self.waker.wake();
        }
    }

    /// Whether it has been closing, and since when. The task that asks is woken when it is.
    pub fn poll(&self, waker: &std::task::Waker) -> Option<Ending> {
        self.waker.register(waker);
        self.ending()
    }

    fn ending(&self) -> Option<Ending> {
        match self.closing.load(Ordering::Acquire) {
            1 => Some(Ending::Revoked),
            2 => Some(Ending::Expired),
            3 => Some(Ending::Forbidden),
            4 => Some(Ending::Drain),
            _ => None,
        }
    }

    /// When it was closing.
    pub fn since(&self) -> Option<Instant> {
        self.since.get().copied()
    }

    /// The socket's own clock says that the token has expired.
    pub fn expire(&self) {
        self.close(Ending::Expired);
    }

    /// The rule that holds for the socket.
    pub fn rule(&self) -> Arc<Rule> {
        self.rule.load_full()
    }

    /// Ends the socket if its rule no longer admits it.
    fn judge(&self, session: Option<&Session>) {
        if self.still_admits(session).is_err() {
            self.close(Ending::Forbidden);
        }
    }

    /// Whether its rule admits this session now; the refusal when not. A rule in shadow mode refuses nobody.
    pub fn still_admits(&self, session: Option<&Session>) -> Result<(), Error> {
        let rule = self.rule.load();
        match rule.mode {
            Mode::Shadow => Ok(()),
            Mode::Enforce => rule.evaluate(&self.opener.input(session), &mut ()).map(|_| ()),
        }
    }

    /// Puts it under the rule that holds now; without one it ends.
    fn follow(&self, rules: &RuleSet) -> Result<(), Error> {
        let RuleMatch::Rule(rule) = rules.find("GET", &self.opener.path) else {
            self.close(Ending::Forbidden);
            return Err(Error::NotFound);
        };
        rule.metrics.websockets_open.inc();
        self.rule.swap(rule.clone()).metrics.websockets_open.dec();
        Ok(())
    }
}

/// All open sockets of this gateway.
#[derive(Debug, Default)]
pub struct Registry {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    by_session: HashMap<SessionId, Vec<Arc<SocketHandle>>>,
    /// The same sockets by whose they are, for limits on one person's.
    by_person: HashMap<(CorpId, EmployeeId), Vec<Arc<SocketHandle>>>,
    /// Sockets of public rules.
    anonymous: Vec<Arc<SocketHandle>>,
    draining: bool,
}

/// Whether the rule allows a person one socket more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// It does.
    Enough,
    /// As many are open as may be.
    None,
}

impl Held {
    /// How many sockets a person has open under a rule.
    fn open_of(&self, person: &(CorpId, EmployeeId), rule: &Rule) -> usize {
        let own = self.by_person.get(person).into_iter().flatten();
        own.filter(|handle| handle.rule.load().name == rule.name).count()
    }
}

/// A socket's entry; gone when the socket is, also by a panic or a dropped task.
#[derive(Debug)]
pub struct Registration {
    registry: Arc<Registry>,
    handle: Arc<SocketHandle>,
}

impl Registration {
    /// Puts the socket under the rule that holds now; the refusal when there is none.
    pub fn follow(&self, rules: &ArcSwap<RuleSet>) -> Result<(), Error> {
        let _held = self.registry.held.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at under the lock: a reload that came between would be undone by the rules of before.
        self.handle.follow(&rules.load())
    }

    /// What holds the socket.
    pub fn handle(&self) -> &Arc<SocketHandle> {
        &self.handle
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut held = self.registry.held.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: a reload changes rules under it.
        self.handle.rule.load().metrics.websockets_open.dec();
        match &self.handle.opener.session {
            Some(id) => forget(&mut held.by_session, id, &self.handle),
            None => {
                if let Some(place) = held.anonymous.iter().position(|other| Arc::ptr_eq(other, &self.handle)) {
                    held.anonymous.swap_remove(place);
                }
            }
        }
        if let Some(person) = &self.handle.opener.person {
            forget(&mut held.by_person, person, &self.handle);
        }
    }
}

/// Takes a socket out of its list, and a list that is empty out of the lists.
fn forget<K: Eq + std::hash::Hash>(lists: &mut HashMap<K, Vec<Arc<SocketHandle>>>, of: &K, handle: &Arc<SocketHandle>) {
    let Some(list) = lists.get_mut(of) else { return };
    if let Some(place) = list.iter().position(|other| Arc::ptr_eq(other, handle)) {
        list.swap_remove(place);
    }
    if list.is_empty() {
        lists.remove(of);
    }
}

impl Registry {
    /// Enters a socket. Whoever enters it looks at the session once more afterwards: an end that came
    /// before the entry has not found it.
    pub fn enter(self: &Arc<Self>, opener: Opener, rule: &Arc<Rule>) -> (Registration, Room) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let room = match (rule.most_sockets, &opener.person) {
            (Some(most), Some(person)) if held.open_of(person, rule) >= most => Room::None,
            _ => Room::Enough,
        };
        let (session, person) = (opener.session.clone(), opener.person.clone());
        let handle = Arc::new(SocketHandle {
            closing: AtomicU8::new(0),
            since: OnceLock::new(),
            waker: AtomicWaker::new(),
            rule: ArcSwap::new(rule.clone()),
            opener,
        });
        rule.metrics.websockets_open.inc();
        if let Some(person) = person {
            held.by_person.entry(person).or_default().push(handle.clone());
        }
        match session {
            Some(id) => held.by_session.entry(id).or_default().push(handle.clone()),
            None => held.anonymous.push(handle.clone()),
        }
        if held.draining {
            handle.close(Ending::Drain);
        }
        (Registration { registry: self.clone(), handle }, room)
    }

    /// Puts every socket under the rules that hold now. Whether these admit it is then to be judged.
    pub fn follow(&self, rules: &RuleSet) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in held.by_session.values().flatten().chain(&held.anonymous) {
            // One without a rule has been told to end.
            let _ = handle.follow(rules);
        }
        for handle in &held.anonymous {
            handle.judge(None);
        }
    }

    /// Takes in a change that was made here or elsewhere.
    pub fn apply_change(&self, change: &Change) {
        match change {
            Change::SessionEnded { id, cause } => self.end_session(id, Ending::of(*cause)),
            Change::SessionChanged(session) => self.judge_again(session),
            Change::TicketMoved(_) => {}
        }
    }

    /// Ends every socket of a session.
    pub fn end_session(&self, id: &SessionId, ending: Ending) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in held.by_session.get(id).into_iter().flatten() {
            handle.close(ending);
        }
    }

    /// Ends the sockets of a session whose rule no longer admits it.
    pub fn judge_again(&self, session: &Session) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in held.by_session.get(&session.id).into_iter().flatten() {
            handle.judge(Some(session));
        }
    }

    /// Ends all sockets, now and from now on: the gateway stops.
    pub fn drain(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.draining = true;
        let handles = held.by_session.values().flatten().chain(&held.anonymous);
        for handle in handles {
            handle.close(Ending::Drain);
        }
    }

    /// The sessions that have sockets open.
    pub fn sessions(&self) -> Vec<SessionId> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.by_session.keys().cloned().collect()
    }

    /// How many sockets are open.
    pub fn count(&self) -> usize {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.by_session.values().map(Vec::len).sum::<usize>() + held.anonymous.len()
    }
}
