//! The last refusals, bounded in number and in bytes. Only refused requests lock it, for as long as it takes to move one record.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::clock::Timestamp;
use crate::domain::finished_request::RefusedRequest;

/// The most refusals that are kept.
pub(super) const MOST_REFUSALS: usize = 4096;

/// The most bytes that they take.
pub(super) const MOST_BYTES: usize = 4 * 1024 * 1024;

/// The last refusals, the oldest first.
#[derive(Default)]
pub(super) struct Refusals(Mutex<KeptRefusals>);

#[derive(Default)]
struct KeptRefusals {
    kept: VecDeque<RefusedRequest>,
    bytes: usize,
    /// When the last of those that were forgotten had ended.
    forgotten_at: Option<Timestamp>,
}

impl KeptRefusals {
    fn pop(&mut self) -> Option<RefusedRequest> {
        let oldest = self.kept.pop_front()?;
        self.bytes = self.bytes.saturating_sub(oldest.memory_bytes());
        self.forgotten_at = Some(oldest.request.at);
        Some(oldest)
    }
}

impl Refusals {
    pub(super) fn push(&self, refused: RefusedRequest) {
        let bytes = refused.memory_bytes();
        let mut forgotten = Vec::new();
        let mut refusals = self.lock();
        refusals.bytes += bytes;
        refusals.kept.push_back(refused);
        while refusals.kept.len() > MOST_REFUSALS || refusals.bytes > MOST_BYTES {
            let Some(oldest) = refusals.pop() else { break };
            forgotten.push(oldest);
        }
        // Their memory is freed after the lock.
        drop(refusals);
    }

    pub(super) fn find(&self, request_id: &str) -> Vec<RefusedRequest> {
        let refusals = self.lock();
        refusals.kept.iter().rev().filter(|refused| refused.request.request_id == request_id).cloned().collect()
    }

    /// How many are kept, and when the last forgotten one had ended.
    pub(super) fn extent(&self) -> (usize, Option<Timestamp>) {
        let refusals = self.lock();
        (refusals.kept.len(), refusals.forgotten_at)
    }

    fn lock(&self) -> MutexGuard<'_, KeptRefusals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
