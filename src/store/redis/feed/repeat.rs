//! Writes remembered denials again, on a server that may have lost them.
//!
//! One task at a time, a partition at a time: a server that restarts again and again is asked for no more than that, and what is
//! copied is small.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::clock::Clock;
use crate::domain::partition::Partition;
use crate::store::redis::denials::DenialMemory;
use crate::store::redis::revoke;
use crate::store::redis::servers::RedisServers;

/// The partitions whose denials must be written again.
#[derive(Default)]
struct RepeatState {
    due: BTreeSet<Partition>,
    is_running: bool,
}

/// Writes denials again, beside the reading of the feed.
pub(super) struct DenialRepeat {
    servers: Arc<RedisServers>,
    clock: Clock,
    denials: Arc<DenialMemory>,
    state: Mutex<RepeatState>,
}

impl DenialRepeat {
    pub(super) fn new(servers: Arc<RedisServers>, clock: Clock, denials: Arc<DenialMemory>) -> Arc<Self> {
        Arc::new(Self { servers, clock, denials, state: Mutex::default() })
    }

    /// Has the denials of these partitions written again.
    pub(super) fn request(self: &Arc<Self>, partitions: &[Partition]) {
        let mut state = self.lock();
        state.due.extend(partitions);
        if !std::mem::replace(&mut state.is_running, true) {
            tokio::spawn(self.clone().run());
        }
    }

    async fn run(self: Arc<Self>) {
        let mut count = 0;
        while let Some(partition) = self.next() {
            let denials = self.denials.of_partition(partition, self.clock.now());
            let written = denials.len();
            match revoke::deny_again(&self.servers, &self.clock, denials).await {
                Ok(()) => count += written,
                Err(error) => {
                    tracing::error!(%error, "denials could not be written again; this gateway still refuses their tokens");
                }
            }
        }
        if count > 0 {
            tracing::info!(denials = count, "remembered denials were written again");
        }
    }

    /// The next partition that is due. Without one, the task ends.
    fn next(&self) -> Option<Partition> {
        let mut state = self.lock();
        let next = state.due.pop_first();
        state.is_running = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, RepeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
