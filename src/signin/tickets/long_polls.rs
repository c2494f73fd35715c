//! Long polls that wait for a ticket to change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::domain::ticket::TicketId;

/// The waiters of all tickets that are being polled.
#[derive(Default)]
pub(in crate::signin) struct LongPolls {
    by_ticket: Mutex<HashMap<TicketId, Arc<Waiters>>>,
}

/// The polls that wait for one ticket.
#[derive(Default)]
pub(super) struct Waiters {
    pub(super) changed: Notify,
    /// Held while the session is created, so that concurrent polls create one.
    pub(super) delivery: AsyncMutex<()>,
}

/// A poll's membership among the waiters of a ticket. Dropping the last one removes the waiters, also when a poll is
/// cancelled. It holds the poll's only reference to them: the last one is recognised by the number of references.
pub(super) struct WaiterGuard<'a> {
    long_polls: &'a LongPolls,
    id: &'a TicketId,
    waiters: Arc<Waiters>,
}

impl WaiterGuard<'_> {
    pub(super) fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut by_ticket = self.long_polls.by_ticket.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's reference and this one; others can join only under the lock.
        if Arc::strong_count(&self.waiters) == 2 {
            by_ticket.remove(self.id);
        }
    }
}

impl LongPolls {
    pub(super) fn join<'a>(&'a self, id: &'a TicketId) -> WaiterGuard<'a> {
        let mut by_ticket = self.by_ticket.lock().unwrap_or_else(PoisonError::into_inner);
        let waiters = by_ticket.entry(id.clone()).or_default().clone();
        WaiterGuard { long_polls: self, id, waiters }
    }

    pub(super) fn wake(&self, id: &TicketId) {
        let by_ticket = self.by_ticket.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiters) = by_ticket.get(id) {
            waiters.changed.notify_waiters();
        }
    }

    pub(super) fn wake_all(&self) {
        let by_ticket = self.by_ticket.lock().unwrap_or_else(PoisonError::into_inner);
        for waiters in by_ticket.values() {
            waiters.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
