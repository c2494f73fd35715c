//! Idle HTTP/1.1 connections to upstreams, to be used again. Each thread has a shard of its own, so that threads do not wait for
//! each other; one whose shard is empty takes from the others before it connects.
//!
//! Pingora's own pool watches every idle connection by a task, which a request would start and end. Here a connection is looked
//! at when it is taken, and once a second by [`IdlePool::sweep`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use pingora_core::protocols::Stream;
use tokio::io::AsyncReadExt;

use super::plain_stream::PlainStream;
use crate::domain::ready_hash::BuildReadyHash;

/// How long a connection is used at most, so that an upstream behind a name or a balancer sees new ones from time to time.
const LONGEST_USE: Duration = Duration::from_secs(3600);

/// How often idle connections are looked at.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The idle connections of all threads.
pub(super) struct IdlePool {
    shards: Box<[Mutex<Shard>]>,
    /// The most connections of a shard.
    most: usize,
}

/// The idle connections of one thread by their peer, each list with the last used one at its end.
#[derive(Default)]
struct Shard {
    connections: HashMap<u64, Vec<IdleEntry>, BuildReadyHash>,
    count: usize,
}

/// A connection that no request uses.
struct IdleEntry {
    connection: PooledConnection,
    /// When the upstream would not expect a request on it any longer.
    until: Option<Instant>,
}

/// A connection that came from the pool or may return to it.
pub(super) struct PooledConnection {
    pub(super) stream: Stream,
    /// When it was opened.
    pub(super) opened: Instant,
}

impl PooledConnection {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, opened: Instant::now() }
    }
}

impl IdleEntry {
    /// Whether a request can be sent over it: its time has not come, and the upstream is not known to have closed it or to have sent
    /// anything, which would belong to no request. If it closes the connection at this moment, the exchange fails as on
    /// any stale connection, and is repeated if it can be.
    fn is_usable(&mut self, now: Instant) -> bool {
        let is_in_time = self.until.is_none_or(|until| now < until) && now < self.connection.opened + LONGEST_USE;
        let stream = &mut self.connection.stream;
        is_in_time
            && match (**stream).as_any().downcast_ref::<PlainStream>() {
                Some(plain) => plain.has_nothing_to_read(),
                // Over TLS, bytes that have arrived need not be application data, so only a read can tell.
                None => stream.read(&mut [0]).now_or_never().is_none(),
            }
    }
}

impl IdlePool {
    /// A pool with a shard for each of `threads`, and together room for `size` connections.
    pub(super) fn new(threads: usize, size: usize) -> Self {
        let threads = threads.max(1);
        let shards = std::iter::repeat_with(Mutex::default).take(threads).collect();
        Self { shards, most: size.div_ceil(threads) }
    }

    /// Takes the connection to a peer that was used last and can be used at `now`.
    pub(super) fn take(&self, peer: u64, now: Instant) -> Option<PooledConnection> {
        let own = self.own_shard();
        // Only the own shard is waited for, which others lock for a moment. One that another thread has locked is skipped.
        let other = |offset: usize| match self.shards[(own + offset) % self.shards.len()].try_lock() {
            Ok(mut shard) => shard.pop(peer),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().pop(peer),
            Err(TryLockError::WouldBlock) => None,
        };
        let pop = || lock(&self.shards[own]).pop(peer).or_else(|| (1..self.shards.len()).find_map(other));
        loop {
            let mut idle = pop()?;
            if idle.is_usable(now) {
                return Some(idle.connection);
            }
        }
    }

    /// Keeps a connection, until `until` at the latest. If this thread's part of the pool is full, it replaces the connection to the same peer
    /// that has been idle the longest; if there is none, it is closed.
    pub(super) fn put(&self, peer: u64, connection: PooledConnection, until: Option<Instant>) {
        let mut shard = lock(&self.shards[self.own_shard()]);
        let is_full = shard.count >= self.most;
        let list = shard.connections.entry(peer).or_default();
        if !is_full {
            list.push(IdleEntry { connection, until });
            shard.count += 1;
        } else if !list.is_empty() {
            list.remove(0);
            list.push(IdleEntry { connection, until });
        }
    }

    /// Closes the connections that cannot be used again. A thread waits for its part of the pool meanwhile: one system call for each idle
    /// connection, once in a sweep.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.connections.retain(|_, list| {
                list.retain_mut(|idle| idle.is_usable(now));
                !list.is_empty()
            });
            shard.count = shard.connections.values().map(Vec::len).sum();
        }
    }

    fn own_shard(&self) -> usize {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
        }
        NUMBER.with(|number| number % self.shards.len())
    }
}

impl Shard {
    fn pop(&mut self, peer: u64) -> Option<IdleEntry> {
        let idle = self.connections.get_mut(&peer)?.pop()?;
        self.count -= 1;
        Some(idle)
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
