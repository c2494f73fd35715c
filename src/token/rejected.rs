//! Negative cache: tokens whose signature failed, so that repeating one costs no second signature check.
//!
//! A fixed table that is overwritten in place. An attacker can evict other entries, but can neither make the table grow
//! nor insert a valid token: only a failed signature adds an entry, and the hash is keyed with a secret of this process.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 4096;

/// Keyed hashes of tokens whose signature failed.
pub struct RejectedTokens {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl RejectedTokens {
    /// Allocates an empty table of 32 KiB.
    pub fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), hasher: RandomState::new() }
    }

    /// Whether this token's signature failed before.
    pub fn contains(&self, token: &str) -> bool {
        let hash = self.hasher.hash_one(token);
        hash != 0 && self.slot(hash).load(Ordering::Relaxed) == hash
    }

    /// Adds a token, evicting the one in its slot.
    pub fn remember(&self, token: &str) {
        let hash = self.hasher.hash_one(token);
        self.slot(hash).store(hash, Ordering::Relaxed);
    }

    /// Empties the table.
    pub fn clear(&self) {
        for slot in &self.slots {
            slot.store(0, Ordering::Relaxed);
        }
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        let index = usize::try_from(hash % SLOTS as u64).unwrap_or(0);
        &self.slots[index]
    }
}

impl Default for RejectedTokens {
    fn default() -> Self {
        Self::new()
    }
}
