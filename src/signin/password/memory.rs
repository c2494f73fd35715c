//! The memory that Argon2 fills, kept while there is a queue: a storm must not ask the allocator for 19 MiB, and the
//! system for five thousand fresh pages, a hundred times a second.

use std::sync::{Mutex, MutexGuard, PoisonError};

use argon2::Block;

/// Sets of blocks that go from one hash to the next. Never more sets than hashes that ran at once.
pub(super) struct Pool {
    /// Blocks of a set at today's cost.
    size: usize,
    sets: Mutex<Sets>,
}

#[derive(Default)]
struct Sets {
    idle: Vec<Vec<Block>>,
    in_use: usize,
    most_in_use: usize,
}

impl Pool {
    pub(super) fn new(size: usize) -> Self {
        Self { size, sets: Mutex::default() }
    }

    /// A set of at least `size` blocks, with whatever the last one left in them: Argon2 writes each block before it
    /// reads it. `None` when there is no memory: one sign-in fails then, and not the gateway.
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

    /// Takes a set back. One that was made larger for an old hash is not kept.
    pub(super) fn give(&self, blocks: Vec<Block>) {
        let mut sets = self.sets();
        sets.in_use -= 1;
        if blocks.len() == self.size {
            sets.idle.push(blocks);
        }
    }

    /// Gives back what nobody uses.
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

    fn sets(&self) -> MutexGuard<'_, Sets> {
        // Nothing in here panics half-way; a poisoned lock would still hold whole sets.
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
