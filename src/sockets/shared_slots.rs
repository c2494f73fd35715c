//! The slots that this gateway's WebSockets have in a store that several gateways share, so that `max_per_employee`
//! holds over all of them. A slot belongs to the handle of its WebSocket and follows its rule.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::Capacity;
use super::handle::CloseHandle;
use crate::error::chain;
use crate::store::socket_slots::{SlotOutcome, SocketSlot, SocketSlots};

/// Takes and frees the slots of WebSockets.
#[derive(Debug)]
pub(super) struct SharedSlots {
    store: Arc<dyn SocketSlots>,
    next_number: AtomicU64,
}

impl SharedSlots {
    pub(super) fn new(store: Arc<dyn SocketSlots>) -> Self {
        Self { store, next_number: AtomicU64::new(0) }
    }

    #[cfg(test)]
    pub(super) fn start_numbers_at(&self, number: u64) {
        self.next_number.store(number, Ordering::Relaxed);
    }

    /// Takes a slot for a WebSocket. If the store is unavailable, only this gateway's own count limits it.
    pub(super) async fn take(&self, handle: &CloseHandle, most: usize) -> Capacity {
        let Some(slot) = self.slot_of(handle) else { return Capacity::Available };
        *held(handle) = Some(Box::new(slot.clone()));
        let capacity = match self.store.take(&slot, most).await {
            Ok(SlotOutcome::Taken) => Capacity::Available,
            Ok(SlotOutcome::Exhausted) => Capacity::Exhausted,
            Err(error) => {
                tracing::debug!(error = %chain(&error), "WebSockets are counted in this gateway only");
                self.store.hold(slot.clone());
                Capacity::Available
            }
        };
        let mut held = held(handle);
        if capacity == Capacity::Exhausted {
            held.take_if(|held| **held == slot);
        } else if held.as_deref() != Some(&slot) {
            // A reload has given the WebSocket another slot meanwhile.
            self.store.free(slot);
        }
        capacity
    }

    /// Moves a WebSocket's slot to the rule that is now in force for it.
    pub(super) fn follow_rule(&self, handle: &CloseHandle) {
        let wanted = self.slot_of(handle);
        let mut held = held(handle);
        if held.as_ref().map(|slot| &slot.group) == wanted.as_ref().map(|slot| &slot.group) {
            return;
        }
        if let Some(before) = held.take() {
            self.store.free(*before);
        }
        if let Some(slot) = wanted {
            self.store.hold(slot.clone());
            *held = Some(Box::new(slot));
        }
    }

    /// Frees the slot of a WebSocket that has closed.
    pub(super) fn free(&self, handle: &CloseHandle) {
        if let Some(slot) = held(handle).take() {
            self.store.free(*slot);
        }
    }

    /// The slot that a WebSocket needs under its rule; `None` if the rule does not limit it.
    fn slot_of(&self, handle: &CloseHandle) -> Option<SocketSlot> {
        let (rule, employee) = (handle.rule(), handle.opener().employee.as_ref()?);
        rule.most_sockets?;
        Some(SocketSlot::new(employee, &rule.name, self.next_number.fetch_add(1, Ordering::Relaxed)))
    }
}

fn held(handle: &CloseHandle) -> MutexGuard<'_, Option<Box<SocketSlot>>> {
    handle.slot.lock().unwrap_or_else(PoisonError::into_inner)
}
