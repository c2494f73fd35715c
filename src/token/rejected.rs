//! Tokens whose signature was found wrong, remembered for a while so that the same rejected sent again
//! costs no second check.
//!
//! A fixed table that overwrites in place: an attacker can push out other rejected, but can neither
//! make it grow nor put a good token in, because only a failed signature leads here and the
//! fingerprint is keyed with a secret of this process.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 4096;

/// Fingerprints of bad tokens.
pub struct RejectedTokens {
    slots: Box<[AtomicU64]>,
    key: RandomState,
}

impl RejectedTokens {
    /// An empty table, 32 KiB.
    pub fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), key: RandomState::new() }
    }

    /// Whether this token is known to be bad.
    pub fn contains(&self, token: &str) -> bool {
        let print = self.key.hash_one(token);
        print != 0 && self.slot(print).load(Ordering::Relaxed) == print
    }

    /// Remembers a bad token, in place of another.
    pub fn remember(&self, token: &str) {
        let print = self.key.hash_one(token);
        self.slot(print).store(print, Ordering::Relaxed);
    }

    /// Forgets everything.
    pub fn forget(&self) {
        for slot in &self.slots {
            slot.store(0, Ordering::Relaxed);
        }
    }

    fn slot(&self, print: u64) -> &AtomicU64 {
        let index = usize::try_from(print % SLOTS as u64).unwrap_or(0);
        &self.slots[index]
    }
}

impl Default for RejectedTokens {
    fn default() -> Self {
        Self::new()
    }
}
