//! A pool for the memory that Argon2 fills. Under load it is reused: allocating 19 MiB, five thousand fresh pages, for every
//! hash would cost more than it must.

use std::sync::{Mutex, MutexGuard, PoisonError};

use argon2::Block;

/// Sets of blocks that are reused by later hashes. Never more sets than hashes that ran at once.
pub(super) struct BlockPool {
    /// Blocks of a set at the current cost.
    size: usize,
    sets: Mutex<BlockSets>,
}

#[derive(Default)]
struct BlockSets {
    idle: Vec<Vec<Block>>,
    in_use: usize,
    most_in_use: usize,
}

impl BlockPool {
    pub(super) fn new(size: usize) -> Self {
        Self { size, sets: Mutex::default() }
    }

    /// Takes a set of at least `size` blocks. They are not cleared: Argon2 writes each block before it reads it. `None`
    /// without memory, so that one sign-in fails and not the gateway.
    pub(super) fn take(&self, size: usize) -> Option<Vec<Block>> {
        let mut blocks = {
            let mut sets = self.sets();
            sets.in_use += 1;
            sets.most_in_use = sets.most_in_use.max(sets.in_use);
            sets.idle.pop().unwrap_or_default()
        };
        let missing = size.saturating_sub(blocks.len());
        if blocks.try_reserve_exact(missing).is_err() {
            self.sets().in_use -= 1;
            return None;
        }
        if missing > 0 {
            blocks.resize(size, Block::new());
        }
        Some(blocks)
    }

    /// Returns a set. One that was enlarged for an old hash is freed.
    pub(super) fn give(&self, blocks: Vec<Block>) {
        let mut sets = self.sets();
        sets.in_use -= 1;
        if blocks.len() == self.size {
            sets.idle.push(blocks);
        }
    }

    /// Frees the idle sets.
    pub(super) fn release_idle(&self) {
        let idle = std::mem::take(&mut self.sets().idle);
        // Outside the lock: unmapping takes a while.
        drop(idle);
    }

    pub(super) fn most_in_use(&self) -> usize {
        self.sets().most_in_use
    }

    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.sets().idle.len()
    }

    fn sets(&self) -> MutexGuard<'_, BlockSets> {
        // No code panics while it holds the lock, so even a poisoned one holds complete sets.
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
