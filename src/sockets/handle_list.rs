//! Handles in no order. Each knows its position, so that removing one takes constant time and no hashing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::handle::CloseHandle;

/// The handles of one session, or those without one. A handle is in one list at a time, and all lists change under the
/// registry's lock.
#[derive(Debug, Default)]
pub(super) struct HandleList(Vec<Arc<CloseHandle>>);

impl HandleList {
    pub(super) fn add(&mut self, handle: Arc<CloseHandle>) {
        handle.position.store(self.0.len(), Ordering::Relaxed);
        if self.0.is_empty() {
            // Most sessions have one WebSocket.
            self.0.reserve_exact(1);
        }
        self.0.push(handle);
    }

    /// Removes a handle of this list; the last one takes its position.
    pub(super) fn remove(&mut self, handle: &CloseHandle) {
        let position = handle.position.load(Ordering::Relaxed);
        if self.0.get(position).is_some_and(|other| std::ptr::eq(&raw const **other, handle)) {
            self.0.swap_remove(position);
            if let Some(moved) = self.0.get(position) {
                moved.position.store(position, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Arc<CloseHandle>> {
        self.0.iter()
    }
}
