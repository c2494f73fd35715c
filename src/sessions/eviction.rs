//! The order in which sessions leave a full cache: the longest cached first, except for those in use.
//!
//! A queue, because walking the map finds the entries of its first slots again and again: those that were just read would
//! leave, and idle ones at its end stay.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::entry::CacheEntry;
use crate::domain::clock::Timestamp;

/// The entries of the cache, next to be evicted first. Locked only when a session is read from the store.
#[derive(Default)]
pub(super) struct EvictionQueue {
    entries: Mutex<VecDeque<Weak<CacheEntry>>>,
}

/// How many entries in use are passed over before one of them is evicted.
const MAX_PASSED_OVER: usize = 16;

impl EvictionQueue {
    /// Adds an entry that was inserted into a cache of `cached` entries.
    pub(super) fn push(&self, entry: &Arc<CacheEntry>, cached: usize) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Entries that left the cache otherwise are still here. They are at least half of the queue when this frees them.
        if entries.len() > 2 * cached + MAX_PASSED_OVER {
            entries.retain(|entry| entry.strong_count() > 0);
        }
        entries.push_back(Arc::downgrade(entry));
    }

    /// Removes the entry to be evicted next. Pending entries stay: a revocation must find them.
    pub(super) fn pop(&self, now: Timestamp) -> Option<Arc<CacheEntry>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut passed_over = 0;
        while passed_over <= MAX_PASSED_OVER {
            let first = entries.pop_front()?;
            let Some(entry) = first.upgrade().filter(|entry| !entry.is_retired()) else { continue };
            if entry.is_filled() && (!entry.is_in_use(now) || passed_over == MAX_PASSED_OVER) {
                return Some(entry);
            }
            entries.push_back(first);
            passed_over += 1;
        }
        None
    }
}
