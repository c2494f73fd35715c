//! Who may hash now: a few at once, some waiting, the others are told when to come back.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Too many passwords are being worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords are being checked")]
pub struct Busy {
    /// When to come back: by then everybody who waits now has had a turn or has been sent away. At least a second.
    pub retry_after: Duration,
}

/// The gate. Those who wait are served in the order of their coming; who goes away gives up the place.
#[derive(Debug)]
pub(super) struct Gate {
    /// Everybody inside, running or waiting.
    places: Arc<Semaphore>,
    places_total: usize,
    /// Those running.
    turns: Arc<Semaphore>,
    turns_total: usize,
    longest_wait: Duration,
}

/// The right to wait for a turn; dropped, it is given up.
#[derive(Debug)]
pub struct Place {
    place: OwnedSemaphorePermit,
    turns: Arc<Semaphore>,
    longest_wait: Duration,
}

/// The right to run; dropped, it goes to the next.
#[derive(Debug)]
pub(super) struct Pass {
    // In this order: a turn is given up before its place, so that there is never a turn without a place.
    _turn: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Gate {
    pub(super) fn new(parallel: NonZeroUsize, waiting: usize, longest_wait: Duration) -> Self {
        let turns_total = parallel.get().min(Semaphore::MAX_PERMITS);
        let places_total = turns_total.saturating_add(waiting).min(Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(places_total)),
            places_total,
            turns: Arc::new(Semaphore::new(turns_total)),
            turns_total,
            longest_wait,
        }
    }

    /// A place among those who wait. Busy when too many do already.
    pub(super) fn place(&self) -> Result<Place, Busy> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| self.busy())?;
        Ok(Place { place, turns: Arc::clone(&self.turns), longest_wait: self.longest_wait })
    }

    pub(super) fn busy(&self) -> Busy {
        busy(self.longest_wait)
    }

    pub(super) fn running(&self) -> usize {
        self.turns_total - self.turns.available_permits()
    }

    pub(super) fn waiting(&self) -> usize {
        // The two are read one after the other, so they may belong to different moments.
        (self.places_total - self.places.available_permits()).saturating_sub(self.running())
    }
}

impl Place {
    /// Waits for a turn. Busy after the longest wait.
    pub(super) async fn turn(self) -> Result<Pass, Busy> {
        match timeout(self.longest_wait, self.turns.acquire_owned()).await {
            Ok(Ok(turn)) => Ok(Pass { _turn: turn, _place: self.place }),
            // The semaphores are never closed; if one were, nobody could run.
            Ok(Err(_)) | Err(_) => Err(busy(self.longest_wait)),
        }
    }
}

fn busy(longest_wait: Duration) -> Busy {
    Busy { retry_after: longest_wait.max(Duration::from_secs(1)) }
}

#[cfg(test)]
mod tests;
