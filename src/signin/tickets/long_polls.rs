//! Long polls that wait for a ticket to change.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::domain::network::Network;
use crate::domain::ticket::TicketDigest;

/// Most polls that wait for one ticket. A page has one, and some more while it reconnects.
const MAX_PER_TICKET: usize = 8;

/// Most polls that wait for clients of one network. A whole office may share an address.
const MAX_PER_NETWORK: usize = 1000;

/// The waiters of all tickets that are being polled.
#[derive(Default)]
pub(in crate::signin) struct LongPolls {
    state: Mutex<PollState>,
    /// No poll waits any more.
    ended: AtomicBool,
}

#[derive(Default)]
struct PollState {
    by_ticket: HashMap<TicketDigest, TicketPolls>,
    /// The waiting polls of each network.
    by_network: HashMap<Network, usize>,
}

impl PollState {
    /// Removes a waiting poll from the counts.
    fn leave(&mut self, id: &TicketDigest, network: Network) {
        if let Some(polls) = self.by_ticket.get_mut(id) {
            polls.waiting -= 1;
        }
        match self.by_network.get_mut(&network) {
            Some(waiting) if *waiting > 1 => *waiting -= 1,
            _ => drop(self.by_network.remove(&network)),
        }
    }
}

/// The polls of one ticket.
#[derive(Default)]
struct TicketPolls {
    waiters: Arc<Waiters>,
    /// How many of them may wait.
    waiting: usize,
}

/// The polls that wait for one ticket.
#[derive(Default)]
pub(super) struct Waiters {
    pub(super) changed: Notify,
    /// Held while the session is created, so that concurrent polls create one.
    pub(super) delivery: AsyncMutex<()>,
}

/// Whether a poll may wait for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// The poll may wait.
    Wait,
    /// The poll is answered at once: it does not ask to wait.
    AtOnce,
    /// The poll is answered at once: its ticket or its network has as many waiting polls as it may.
    Crowded,
}

/// A poll's membership among the waiters of a ticket. Dropping the last one removes the waiters, also when a poll is
/// cancelled. It holds the poll's only reference to them: the last one is recognised by the number of references.
pub(super) struct WaiterGuard<'a> {
    long_polls: &'a LongPolls,
    id: &'a TicketDigest,
    network: Network,
    waiters: Arc<Waiters>,
    pub(super) patience: Patience,
}

impl WaiterGuard<'_> {
    pub(super) fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.long_polls.state();
        if self.patience == Patience::Wait {
            state.leave(self.id, self.network);
        }
        // The map's reference and this one; others can join only under the lock.
        if Arc::strong_count(&self.waiters) == 2 {
            state.by_ticket.remove(self.id);
        }
    }
}

impl LongPolls {
    /// Joins the polls of a ticket. `asks` is what the client asks for; it gets less where too many wait already.
    pub(super) fn join<'a>(&'a self, id: &'a TicketDigest, network: Network, asks: Patience) -> WaiterGuard<'a> {
        let mut state = self.state();
        let PollState { by_ticket, by_network } = &mut *state;
        let polls = by_ticket.entry(id.clone()).or_default();
        let in_network = by_network.get(&network).copied().unwrap_or_default();
        let crowded = polls.waiting >= MAX_PER_TICKET || in_network >= MAX_PER_NETWORK;
        let patience = if asks == Patience::Wait && crowded { Patience::Crowded } else { asks };
        if patience == Patience::Wait {
            polls.waiting += 1;
            by_network.insert(network, in_network + 1);
        }
        WaiterGuard { long_polls: self, id, network, waiters: polls.waiters.clone(), patience }
    }

    pub(super) fn wake(&self, id: &TicketDigest) {
        if let Some(polls) = self.state().by_ticket.get(id) {
            polls.waiters.changed.notify_waiters();
        }
    }

    pub(super) fn wake_all(&self) {
        for polls in self.state().by_ticket.values() {
            polls.waiters.changed.notify_waiters();
        }
    }

    /// Ends all waits, present and future ones.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, PollState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
