//! The last refusals, bounded in number and in bytes. Only refused requests lock it, for as long as it takes to copy one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kept_refusal::KeptRefusal;
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
    kept: VecDeque<KeptRefusal>,
    bytes: usize,
    /// When the last of those that were forgotten had ended.
    forgotten_at: Option<Timestamp>,
}

impl KeptRefusals {
    /// Forgets the oldest one and returns its texts' memory.
    fn forget(&mut self) -> Option<Vec<u8>> {
        let oldest = self.kept.pop_front()?;
        self.bytes = self.bytes.saturating_sub(oldest.memory_bytes());
        self.forgotten_at = Some(oldest.at());
        Some(oldest.into_memory())
    }
}

impl Refusals {
    pub(super) fn push(&self, refused: &RefusedRequest<'_>) {
        let mut refusals = self.lock();
        let is_full = refusals.kept.len() >= MOST_REFUSALS;
        // Once as many are kept as may be, each new one uses the memory of the oldest: an attack costs no allocations.
        let memory = if is_full { refusals.forget() } else { None };
        let kept = KeptRefusal::new(refused, memory.unwrap_or_default());
        refusals.bytes += kept.memory_bytes();
        refusals.kept.push_back(kept);
        while refusals.bytes > MOST_BYTES && refusals.forget().is_some() {}
    }

    pub(super) fn find(&self, request_id: &str) -> Vec<RefusedRequest<'static>> {
        let refusals = self.lock();
        refusals.kept.iter().rev().filter(|kept| kept.request_id() == request_id).map(KeptRefusal::refusal).collect()
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
