//! All open sockets of this process, by session and employee: closes the right ones after a revocation, a role change,
//! a reload or a drain. Sending the close frames is left to the tunnels.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::CloseReason;
use super::handle::{SocketHandle, SocketOwner};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{Session, SessionId};
use crate::error::Error;
use crate::rules::{Rule, RuleSet};
use crate::store::Change;

/// All open sockets of this process.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    sockets: Mutex<OpenSockets>,
}

#[derive(Debug, Default)]
struct OpenSockets {
    by_session: HashMap<SessionId, Vec<Arc<SocketHandle>>>,
    /// The same sockets by employee, for the limit on sockets per employee.
    by_employee: HashMap<(CorpId, EmployeeId), Vec<Arc<SocketHandle>>>,
    /// Sockets of public rules.
    anonymous: Vec<Arc<SocketHandle>>,
    draining: bool,
}

impl OpenSockets {
    fn all(&self) -> impl Iterator<Item = &Arc<SocketHandle>> {
        self.by_session.values().flatten().chain(&self.anonymous)
    }

    fn of_session(&self, id: &SessionId) -> impl Iterator<Item = &Arc<SocketHandle>> {
        self.by_session.get(id).into_iter().flatten()
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

/// The entry of a socket. Dropping it removes the socket, also after a panic or when the task is cancelled.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    handle: Arc<SocketHandle>,
}

impl Registration {
    /// Assigns the rule that now matches the socket's path; refuses if none does.
    pub(crate) fn apply_rules(&self, rules: &ArcSwap<RuleSet>) -> Result<(), Error> {
        let _sockets = self.registry.lock();
        // The rules are loaded under the lock; otherwise a concurrent reload could be overwritten by older rules.
        self.handle.apply_rules(&rules.load())
    }

    pub(crate) fn handle(&self) -> &Arc<SocketHandle> {
        &self.handle
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut sockets = self.registry.lock();
        // Under the lock, because a reload replaces rules under it.
        self.handle.count_closed();
        let owner = self.handle.owner();
        match &owner.session {
            Some(id) => remove(&mut sockets.by_session, id, &self.handle),
            None => {
                if let Some(index) = sockets.anonymous.iter().position(|other| Arc::ptr_eq(other, &self.handle)) {
                    sockets.anonymous.swap_remove(index);
                }
            }
        }
        if let Some(employee) = &owner.employee {
            remove(&mut sockets.by_employee, employee, &self.handle);
        }
    }
}

/// Removes a socket from the list of `key`, and the list if it is then empty.
fn remove<K: Eq + std::hash::Hash>(
    lists: &mut HashMap<K, Vec<Arc<SocketHandle>>>,
    key: &K,
    handle: &Arc<SocketHandle>,
) {
    let Some(list) = lists.get_mut(key) else { return };
    if let Some(index) = list.iter().position(|other| Arc::ptr_eq(other, handle)) {
        list.swap_remove(index);
    }
    if list.is_empty() {
        lists.remove(key);
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, OpenSockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a socket. The caller must check the session again afterwards: a revocation before the registration did
    /// not reach the socket.
    pub(crate) fn register(self: &Arc<Self>, owner: SocketOwner, rule: &Arc<Rule>) -> (Registration, Capacity) {
        let mut sockets = self.lock();
        let capacity = match (rule.most_sockets, &owner.employee) {
            (Some(most), Some(employee)) if sockets.count_of(employee, rule) >= most => Capacity::Exhausted,
            _ => Capacity::Available,
        };
        let (session, employee) = (owner.session.clone(), owner.employee.clone());
        let handle = Arc::new(SocketHandle::new(owner, rule.clone()));
        rule.metrics.websockets_open.inc();
        if let Some(employee) = employee {
            sockets.by_employee.entry(employee).or_default().push(handle.clone());
        }
        match session {
            Some(id) => sockets.by_session.entry(id).or_default().push(handle.clone()),
            None => sockets.anonymous.push(handle.clone()),
        }
        if sockets.draining {
            handle.close(CloseReason::Drain);
        }
        (Registration { registry: self.clone(), handle }, capacity)
    }

    /// Assigns new rules to all sockets and closes those that they do not admit. Sockets of sessions are left to
    /// [`recheck_session`](Self::recheck_session), because their sessions must be read first.
    pub(crate) fn apply_rules(&self, rules: &RuleSet) {
        let sockets = self.lock();
        for handle in sockets.all() {
            // On an error the handle is already closing.
            let _ = handle.apply_rules(rules);
        }
        for handle in &sockets.anonymous {
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

    /// Closes every socket of a session.
    pub(crate) fn close_session(&self, id: &SessionId, reason: CloseReason) {
        for handle in self.lock().of_session(id) {
            handle.close(reason);
        }
    }

    /// Closes the sockets of a session whose rules no longer admit it.
    pub(crate) fn recheck_session(&self, session: &Session) {
        for handle in self.lock().of_session(&session.id) {
            handle.close_unless_admitted(Some(session));
        }
    }

    /// Closes all sockets, and every socket that is registered later.
    pub(crate) fn drain(&self) {
        let mut sockets = self.lock();
        sockets.draining = true;
        for handle in sockets.all() {
            handle.close(CloseReason::Drain);
        }
    }

    /// The sessions that have open sockets.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.lock().by_session.keys().cloned().collect()
    }

    /// The number of open sockets.
    pub(crate) fn count(&self) -> usize {
        self.lock().all().count()
    }
}
