//! All open WebSockets of this process and its exchanges that have run for a while, by session: closes the right ones
//! after a revocation, a role change, a reload or a drain. Ending the connections is left to the tasks that hold them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::CloseReason;
use super::handle::{CloseHandle, OpenKind, Opener};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{Session, SessionId};
use crate::error::Error;
use crate::rules::{Rule, RuleSet};
use crate::store::Change;

/// The open WebSockets and exchanges of this process.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    open: Mutex<OpenHandles>,
}

#[derive(Debug, Default)]
struct OpenHandles {
    by_session: HashMap<SessionId, Vec<Arc<CloseHandle>>>,
    /// The WebSockets of signed-in employees, for the limit per employee.
    by_employee: HashMap<(CorpId, EmployeeId), Vec<Arc<CloseHandle>>>,
    /// Those without a session, by the address of the handle: there may be many, and each end removes one.
    anonymous: HashMap<usize, Arc<CloseHandle>>,
    draining: bool,
}

impl OpenHandles {
    fn all(&self) -> impl Iterator<Item = &Arc<CloseHandle>> {
        self.by_session.values().flatten().chain(self.anonymous.values())
    }

    fn of_session(&self, id: &SessionId) -> impl Iterator<Item = &Arc<CloseHandle>> {
        self.by_session.get(id).into_iter().flatten()
    }

    fn sockets(&self) -> impl Iterator<Item = &Arc<CloseHandle>> {
        self.all().filter(|handle| handle.opener().kind == OpenKind::WebSocket)
    }

    /// The number of sockets that an employee has open under a rule.
    fn count_of(&self, employee: &(CorpId, EmployeeId), rule: &Rule) -> usize {
        let sockets = self.by_employee.get(employee).into_iter().flatten();
        sockets.filter(|handle| handle.has_rule(&rule.name)).count()
    }
}

/// Whether the rule allows the employee another socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    Available,
    Exhausted,
}

/// The entry of a WebSocket or exchange. Dropping it removes the entry, also after a panic or when the task is cancelled.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    handle: Arc<CloseHandle>,
}

impl Registration {
    /// Assigns the rule that now matches the path; refuses if none does.
    pub(crate) fn apply_rules(&self, rules: &ArcSwap<RuleSet>) -> Result<(), Error> {
        let _open = self.registry.lock();
        // The rules are loaded under the lock; otherwise a concurrent reload could be overwritten by older rules.
        self.handle.apply_rules(&rules.load())
    }

    pub(crate) fn handle(&self) -> &Arc<CloseHandle> {
        &self.handle
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut open = self.registry.lock();
        // Under the lock, because a reload replaces rules under it.
        self.handle.count_closed();
        let opener = self.handle.opener();
        match &opener.session {
            Some(id) => remove(&mut open.by_session, id, &self.handle),
            None => drop(open.anonymous.remove(&address_of(&self.handle))),
        }
        if let Some(employee) = &opener.employee {
            remove(&mut open.by_employee, employee, &self.handle);
        }
    }
}

/// Identifies a handle as long as it lives.
fn address_of(handle: &Arc<CloseHandle>) -> usize {
    Arc::as_ptr(handle).addr()
}

/// Removes a handle from the list of `key`, and the list if it is then empty.
fn remove<K: Eq + std::hash::Hash>(lists: &mut HashMap<K, Vec<Arc<CloseHandle>>>, key: &K, handle: &Arc<CloseHandle>) {
    let Some(list) = lists.get_mut(key) else { return };
    if let Some(index) = list.iter().position(|other| Arc::ptr_eq(other, handle)) {
        list.swap_remove(index);
    }
    if list.is_empty() {
        lists.remove(key);
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, OpenHandles> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a WebSocket or exchange. The caller must check the session again afterwards: a revocation before the
    /// registration did not reach the handle.
    pub(crate) fn register(self: &Arc<Self>, opener: Opener, rule: &Arc<Rule>) -> (Registration, Capacity) {
        let mut open = self.lock();
        let capacity = match (rule.most_sockets, &opener.employee) {
            (Some(most), Some(employee)) if open.count_of(employee, rule) >= most => Capacity::Exhausted,
            _ => Capacity::Available,
        };
        let handle = Arc::new(CloseHandle::new(opener, rule.clone()));
        let Opener { kind, session, employee, .. } = handle.opener();
        if let Some(employee) = employee {
            open.by_employee.entry(employee.clone()).or_default().push(handle.clone());
        }
        match session {
            Some(id) => open.by_session.entry(id.clone()).or_default().push(handle.clone()),
            None => drop(open.anonymous.insert(address_of(&handle), handle.clone())),
        }
        // Requests may finish during a drain, however long they have run.
        if open.draining && *kind == OpenKind::WebSocket {
            handle.close(CloseReason::Drain);
        }
        (Registration { registry: self.clone(), handle }, capacity)
    }

    /// Assigns new rules to everything open and closes what they do not admit. What belongs to a session is left to
    /// [`recheck_session`](Self::recheck_session), because the session must be read first.
    pub(crate) fn apply_rules(&self, rules: &RuleSet) {
        let open = self.lock();
        for handle in open.all() {
            // On an error the handle is already closing.
            let _ = handle.apply_rules(rules);
        }
        for handle in open.anonymous.values() {
            handle.close_unless_admitted(None);
        }
    }

    /// Applies a change from the change feed.
    pub(crate) fn apply_change(&self, change: &Change) {
        match change {
            Change::SessionEnded { id, cause } => self.close_session(id, (*cause).into()),
            Change::SessionChanged(session) => self.recheck_session(session),
            Change::TicketMoved(_) => {}
        }
    }

    /// Closes every WebSocket and exchange of a session.
    pub(crate) fn close_session(&self, id: &SessionId, reason: CloseReason) {
        for handle in self.lock().of_session(id) {
            handle.close(reason);
        }
    }

    /// Closes the WebSockets and exchanges of a session whose rules no longer admit it.
    pub(crate) fn recheck_session(&self, session: &Session) {
        for handle in self.lock().of_session(&session.id) {
            handle.close_unless_admitted(Some(session));
        }
    }

    /// Closes all WebSockets, and every one that is registered later. Exchanges may finish.
    pub(crate) fn drain(&self) {
        let mut open = self.lock();
        open.draining = true;
        for handle in open.sockets() {
            handle.close(CloseReason::Drain);
        }
    }

    /// The sessions that have open WebSockets or exchanges.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.lock().by_session.keys().cloned().collect()
    }

    /// The number of open WebSockets.
    pub(crate) fn count_sockets(&self) -> usize {
        self.lock().sockets().count()
    }
}
