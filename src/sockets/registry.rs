//! All open WebSockets of this process and its exchanges that have run for a while, by session: closes the right ones
//! after a revocation, a role change, a reload or a drain. Ending the connections is left to the tasks that hold them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::close_batch::CloseBatch;
use super::handle::{CloseHandle, OpenKind, Opener};
use super::handle_list::HandleList;
use super::shared_slots::SharedSlots;
use super::socket_counts::SocketCounts;
use super::{Capacity, CloseReason};
use crate::domain::clock::Timestamp;
use crate::domain::session::{Session, SessionId};
use crate::error::Error;
use crate::rules::{Rule, RuleSet};
use crate::store::Change;
use crate::store::socket_slots::SocketSlots;

/// The pause between two close frames of a drain, unless there are too many.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// The open WebSockets and exchanges of this process.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    open: Mutex<OpenHandles>,
    /// For the limit per employee over all gateways; `None` if this one shares its store with no other.
    slots: Option<SharedSlots>,
}

/// Adding and removing a handle takes constant time, also if its session has thousands.
#[derive(Debug, Default)]
struct OpenHandles {
    by_session: HashMap<SessionId, HandleList>,
    anonymous: HandleList,
    /// For the limit per employee.
    sockets_of_employees: SocketCounts,
    sockets: usize,
    drain: DrainPhase,
}

/// What a drain closes, those included that are registered later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum DrainPhase {
    /// There is no drain.
    #[default]
    None,
    /// WebSockets. Requests may finish, however long they have run.
    Sockets,
    /// Everything: the time of the drain is over.
    Everything,
}

impl DrainPhase {
    fn closes(self, kind: OpenKind) -> bool {
        match kind {
            OpenKind::WebSocket => self >= DrainPhase::Sockets,
            OpenKind::Exchange | OpenKind::Preflight => self == DrainPhase::Everything,
        }
    }
}

impl OpenHandles {
    fn all(&self) -> impl Iterator<Item = &Arc<CloseHandle>> {
        self.by_session.values().flat_map(HandleList::iter).chain(self.anonymous.iter())
    }

    fn of_session(&self, id: &SessionId) -> impl Iterator<Item = &Arc<CloseHandle>> {
        self.by_session.get(id).into_iter().flat_map(HandleList::iter)
    }

    fn add(&mut self, handle: &Arc<CloseHandle>) {
        let Opener { kind, session, employee, .. } = handle.opener();
        if let Some(employee) = employee {
            self.sockets_of_employees.add(employee, &handle.rule().name);
        }
        match session {
            Some(id) => self.by_session.entry(id.clone()).or_default().add(handle.clone()),
            None => self.anonymous.add(handle.clone()),
        }
        self.sockets += usize::from(*kind == OpenKind::WebSocket);
    }

    fn remove(&mut self, handle: &CloseHandle) {
        let Opener { kind, session, employee, .. } = handle.opener();
        if let Some(employee) = employee {
            self.sockets_of_employees.remove(employee, &handle.rule().name);
        }
        match session {
            Some(id) => self.remove_from_session(id, handle),
            None => self.anonymous.remove(handle),
        }
        self.sockets -= usize::from(*kind == OpenKind::WebSocket);
    }

    fn remove_from_session(&mut self, id: &SessionId, handle: &CloseHandle) {
        let Some(list) = self.by_session.get_mut(id) else { return };
        list.remove(handle);
        if list.is_empty() {
            self.by_session.remove(id);
        }
    }
}

/// Closes handles at once, so that every client is told before the rest of the work is done.
fn close_each<'a>(
    handles: impl Iterator<Item = &'a Arc<CloseHandle>>,
    mut close: impl FnMut(&CloseHandle, &Arc<CloseBatch>),
) {
    let batch = CloseBatch::new();
    // Until all are in the batch, so that the first does not take itself for the last.
    let _filling = batch.join();
    for handle in handles {
        close(handle, &batch);
    }
}

/// Assigns the rule that now matches a handle's path, and counts its employee's socket under that rule.
fn apply_rules(
    counts: &mut SocketCounts,
    slots: Option<&SharedSlots>,
    handle: &CloseHandle,
    rules: &RuleSet,
    batch: &Arc<CloseBatch>,
) -> Result<(), Error> {
    let before = handle.apply_rules(rules, batch)?;
    if let Some(employee) = &handle.opener().employee {
        counts.remove(employee, &before.name);
        counts.add(employee, &handle.rule().name);
        if let Some(slots) = slots {
            slots.follow_rule(handle);
        }
    }
    Ok(())
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
        let mut open = self.registry.lock();
        // The rules are loaded under the lock; otherwise a concurrent reload could be overwritten by older rules.
        let (counts, slots) = (&mut open.sockets_of_employees, self.registry.slots.as_ref());
        apply_rules(counts, slots, &self.handle, &rules.load(), &CloseBatch::new())
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
        open.remove(&self.handle);
        if let Some(slots) = &self.registry.slots {
            slots.free(&self.handle);
        }
    }
}

impl Registry {
    /// Counts WebSockets in these slots of a shared store as well.
    pub(crate) fn new(slots: Option<Arc<dyn SocketSlots>>) -> Self {
        Self { open: Mutex::default(), slots: slots.map(SharedSlots::new) }
    }

    fn lock(&self) -> MutexGuard<'_, OpenHandles> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a WebSocket or exchange. The caller must check the session again afterwards: a revocation before the
    /// registration did not reach the handle.
    pub(crate) fn register(self: &Arc<Self>, opener: Opener, rule: &Arc<Rule>) -> (Registration, Capacity) {
        let mut open = self.lock();
        let capacity = match (rule.most_sockets, &opener.employee) {
            (Some(most), Some(employee)) if open.sockets_of_employees.count(employee, &rule.name) >= most => {
                Capacity::Exhausted
            }
            _ => Capacity::Available,
        };
        let handle = Arc::new(CloseHandle::new(opener, rule.clone()));
        open.add(&handle);
        if open.drain.closes(handle.opener().kind) {
            handle.close(CloseReason::Drain, &CloseBatch::new());
        }
        (Registration { registry: self.clone(), handle }, capacity)
    }

    /// Registers a WebSocket like [`register`](Self::register). If this gateway has room for it and its rule limits the
    /// WebSockets of an employee, those of the other gateways count, too.
    pub(crate) async fn register_socket(
        self: &Arc<Self>,
        opener: Opener,
        rule: &Arc<Rule>,
    ) -> (Registration, Capacity) {
        let (registration, capacity) = self.register(opener, rule);
        match (&self.slots, rule.most_sockets, capacity) {
            (Some(slots), Some(most), Capacity::Available) => {
                let capacity = slots.take(registration.handle(), most).await;
                (registration, capacity)
            }
            _ => (registration, capacity),
        }
    }

    /// Assigns new rules to everything open and closes what they do not admit. What belongs to a session is left to
    /// [`recheck_session`](Self::recheck_session), because the session must be read first.
    pub(crate) fn apply_rules(&self, rules: &RuleSet) {
        let mut open = self.lock();
        let OpenHandles { by_session, anonymous, sockets_of_employees, .. } = &mut *open;
        let all = by_session.values().flat_map(HandleList::iter).chain(anonymous.iter());
        close_each(all, |handle, batch| {
            // On an error the handle is already closing.
            let _ = apply_rules(sockets_of_employees, self.slots.as_ref(), handle, rules, batch);
            if handle.opener().session.is_none() {
                handle.close_unless_admitted(None, batch);
            }
        });
    }

    /// Applies a change from the change feed.
    pub(crate) fn apply_change(&self, change: &Change) {
        match change {
            Change::SessionEnded { id, cause } => self.close_session(id, (*cause).into()),
            Change::SessionChanged(session) => self.recheck_session(session),
            // The sessions must be read from the store: `app::background` does it.
            Change::Missed(_)
            | Change::TicketMoved(_)
            | Change::CaughtUp
            | Change::Unconfirmed
            | Change::PrimaryChanged => {}
        }
    }

    /// Closes every WebSocket and exchange of a session.
    pub(crate) fn close_session(&self, id: &SessionId, reason: CloseReason) {
        close_each(self.lock().of_session(id), |handle, batch| handle.close(reason, batch));
    }

    /// Closes the WebSockets and exchanges of a session whose rules no longer admit it.
    pub(crate) fn recheck_session(&self, session: &Session) {
        let open = self.lock();
        close_each(open.of_session(&session.id), |handle, batch| handle.close_unless_admitted(Some(session), batch));
    }

    /// Closes the WebSockets and exchanges whose token is not valid at this time.
    pub(crate) fn close_invalid(&self, now: Timestamp, leeway: Duration) {
        close_each(self.lock().all(), |handle, batch| handle.close_unless_valid(now, leeway, batch));
    }

    /// Closes all WebSockets, and every one that is registered later at once. Exchanges may finish.
    ///
    /// A client that is told reconnects. So that not all of them do at the same moment, one is told every
    /// [`DRAIN_INTERVAL`], and of many as many as it takes to tell all `within` this time.
    pub(crate) async fn drain(&self, within: Duration) {
        let sockets = self.begin_drain();
        let intervals = (within.as_millis() / DRAIN_INTERVAL.as_millis()).max(1);
        let share = sockets.len().div_ceil(usize::try_from(intervals).unwrap_or(usize::MAX)).max(1);
        for (number, some) in sockets.chunks(share).enumerate() {
            if number > 0 {
                tokio::time::sleep(DRAIN_INTERVAL).await;
            }
            close_each(some.iter(), |handle, batch| handle.close(CloseReason::Drain, batch));
        }
    }

    /// The open WebSockets; one that is registered from now on is closed at once.
    fn begin_drain(&self) -> Vec<Arc<CloseHandle>> {
        let mut open = self.lock();
        open.drain = DrainPhase::Sockets;
        open.all().filter(|handle| handle.opener().kind == OpenKind::WebSocket).cloned().collect()
    }

    /// Closes what is left at the end of a drain: exchanges, too, and every one that is registered later at once.
    pub(crate) fn end_drain(&self) {
        let mut open = self.lock();
        open.drain = DrainPhase::Everything;
        close_each(open.all(), |handle, batch| handle.close(CloseReason::Drain, batch));
    }

    /// Closes what belongs to a session.
    pub(crate) fn close_signed_in(&self, reason: CloseReason) {
        let open = self.lock();
        close_each(open.by_session.values().flat_map(HandleList::iter), |handle, batch| handle.close(reason, batch));
    }

    /// The sessions that have open WebSockets or exchanges.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.lock().by_session.keys().cloned().collect()
    }

    /// The number of open WebSockets.
    pub(crate) fn count_sockets(&self) -> usize {
        self.lock().sockets
    }
}

#[cfg(test)]
mod tests;
