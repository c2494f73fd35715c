//! The proxied exchange that a task carries, as far as registering and cutting it need. The callbacks tell about it, `cut`
//! reads it.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};

use crate::pipeline::record::ReachedUpstream;
use crate::pipeline::{Arrival, Caller};
use crate::rules::Rule;
use crate::upstreams::Upstream;

/// The most bytes that a connection keeps for the path of its next exchange, and for its host.
const KEPT_TEXT: usize = 256;

tokio::task_local! {
    /// The exchange that this task carries. Pingora creates the request's context, so it cannot be passed in.
    pub(super) static CURRENT: Arc<CurrentExchange>;
}

/// Stands for a time that is not known.
const UNKNOWN: u64 = u64::MAX;

/// What the callbacks tell about the exchange that a task carries. What changes during the exchange is kept outside the details, so
/// that noting it takes no lock.
pub(super) struct CurrentExchange {
    /// A number of its own for each watched exchange; 0 while there is none.
    number: AtomicU64,
    /// When this was created, and the nanoseconds from then to the start of the exchange.
    created: Instant,
    started: AtomicU64,
    /// The attempts at the upstream so far, and the index of the last one's address.
    attempts: AtomicU64,
    address: AtomicU64,
    /// The status that was sent to the client; 0 before.
    status: AtomicU16,
    /// The overhead in nanoseconds, or [`UNKNOWN`].
    overhead: AtomicU64,
    details: Mutex<ExchangeDetails>,
}

#[derive(Default)]
pub(super) struct ExchangeDetails {
    last_number: u64,
    /// The canonical path. A short one outlives the exchange, so that the next one needs no allocation; so does the host.
    pub(super) path: Vec<u8>,
    pub(super) host: Vec<u8>,
    pub(super) watched: Option<WatchedExchange>,
}

/// A permitted exchange, as far as registering and logging it need.
pub(super) struct WatchedExchange {
    pub(super) arrival: Arrival,
    pub(super) caller: Caller,
    pub(super) rule: Arc<Rule>,
    pub(super) method: Method,
    /// The method that a preflight announces.
    pub(super) announced_method: Option<Method>,
    pub(super) upstream: Option<Arc<Upstream>>,
}

impl CurrentExchange {
    pub(super) fn new() -> Self {
        Self {
            number: AtomicU64::new(0),
            created: Instant::now(),
            started: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            address: AtomicU64::new(0),
            status: AtomicU16::new(0),
            overhead: AtomicU64::new(UNKNOWN),
            details: Mutex::default(),
        }
    }

    pub(super) fn details(&self) -> MutexGuard<'_, ExchangeDetails> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the exchange; 0 while there is none.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// When the exchange started.
    pub(super) fn started(&self) -> Instant {
        self.created + Duration::from_nanos(self.started.load(Ordering::Relaxed))
    }

    /// The status that was sent to the client; 0 before.
    pub(super) fn status(&self) -> u16 {
        self.status.load(Ordering::Relaxed)
    }

    pub(super) fn overhead(&self) -> Option<Duration> {
        Some(self.overhead.load(Ordering::Relaxed)).filter(|nanos| *nanos != UNKNOWN).map(Duration::from_nanos)
    }

    pub(super) fn begin(&self, started: Instant, target: &[u8], host: &[u8], watched: WatchedExchange) {
        let mut details = self.details();
        details.last_number += 1;
        details.path.clear();
        let path = memchr::memchr(b'?', target).map_or(target, |query| &target[..query]);
        details.path.extend_from_slice(path);
        details.host.clear();
        details.host.extend_from_slice(host);
        self.started.store(nanos(started.saturating_duration_since(self.created)), Ordering::Relaxed);
        details.watched = Some(watched);
        self.attempts.store(0, Ordering::Relaxed);
        self.status.store(0, Ordering::Relaxed);
        self.overhead.store(UNKNOWN, Ordering::Relaxed);
        self.number.store(details.last_number, Ordering::Release);
    }

    pub(super) fn end(&self) {
        if self.number.swap(0, Ordering::AcqRel) != 0 {
            let mut details = self.details();
            details.watched = None;
            let ExchangeDetails { path, host, .. } = &mut *details;
            for text in [path, host] {
                text.clear();
                text.shrink_to(KEPT_TEXT);
            }
        }
    }

    /// Which address the exchange last tried; None before its first attempt.
    pub(super) fn reached<'a>(&self, watched: &'a WatchedExchange) -> Option<ReachedUpstream<'a>> {
        let attempts = self.attempts.load(Ordering::Relaxed);
        let upstream = watched.upstream.as_deref().filter(|_| attempts > 0)?;
        let index = usize::try_from(self.address.load(Ordering::Relaxed)).ok();
        let address = index.and_then(|index| upstream.address_name(index));
        Some(ReachedUpstream { name: &upstream.name, address, attempts })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(UNKNOWN)
}

/// Notes an attempt and the index of its address, for the log line of an exchange that is cut later.
pub(super) fn note_attempt(attempts: u64, address: Option<usize>) {
    let _ = CURRENT.try_with(|current| {
        let index = address.and_then(|index| u64::try_from(index).ok()).unwrap_or(u64::MAX);
        current.address.store(index, Ordering::Relaxed);
        current.attempts.store(attempts, Ordering::Relaxed);
    });
}

/// Notes the response header, for the log line of an exchange that is cut later.
pub(super) fn note_response(status: StatusCode, overhead: Option<Duration>) {
    let _ = CURRENT.try_with(|current| {
        current.status.store(status.as_u16(), Ordering::Relaxed);
        current.overhead.store(overhead.map_or(UNKNOWN, nanos), Ordering::Relaxed);
    });
}

/// Ends the watch: the exchange is complete and logged.
pub(super) fn end() {
    let _ = CURRENT.try_with(|current| current.end());
}

#[cfg(test)]
mod tests;
