//! The proxied exchange that a task carries, as far as registering and cutting it need. The lanes tell about it, `cut`
//! reads it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};

use crate::pipeline::record::ReachedUpstream;
use crate::pipeline::{Arrival, Caller};
use crate::rules::Rule;
use crate::upstreams::Upstream;

/// The most bytes that a connection keeps for the path of its next exchange, and for its host.
const KEPT_TEXT: usize = 256;

tokio::task_local! {
    /// The exchange that this task carries. Only the task itself reads and writes it, so it needs no lock. Boxed, because each poll of the
    /// task moves it.
    static CURRENT: Box<RefCell<CurrentExchange>>;
}

/// What the lanes tell about the exchange that a task carries.
#[derive(Default)]
pub(super) struct CurrentExchange {
    /// How many exchanges have been watched; the number of the last one.
    count: u64,
    /// The attempts at the upstream so far, and the index of the last one's address.
    attempts: u64,
    address: Option<usize>,
    /// The status of the response that was begun; 0 before.
    pub(super) status: u16,
    pub(super) overhead: Option<Duration>,
    /// The canonical path. A short one outlives the exchange, so that the next one needs no allocation; so does the host.
    pub(super) path: Vec<u8>,
    pub(super) host: Vec<u8>,
    /// None while there is no exchange.
    pub(super) watched: Option<WatchedExchange>,
}

/// A permitted exchange, as far as registering and logging it need.
pub(super) struct WatchedExchange {
    pub(super) started: Instant,
    pub(super) arrival: Arrival,
    pub(super) caller: Caller,
    pub(super) rule: Arc<Rule>,
    pub(super) method: Method,
    /// The method that a preflight announces.
    pub(super) announced_method: Option<Method>,
    pub(super) upstream: Option<Arc<Upstream>>,
}

impl CurrentExchange {
    /// The exchange, and a number that it has alone; None while there is none.
    pub(super) fn watched(&self) -> Option<(u64, &WatchedExchange)> {
        self.watched.as_ref().map(|watched| (self.count, watched))
    }

    fn begin(&mut self, target: &[u8], host: &[u8], watched: WatchedExchange) {
        self.count += 1;
        let path = memchr::memchr(b'?', target).map_or(target, |query| &target[..query]);
        for (kept, text) in [(&mut self.path, path), (&mut self.host, host)] {
            kept.clear();
            kept.extend_from_slice(text);
        }
        (self.attempts, self.address, self.status, self.overhead) = (0, None, 0, None);
        self.watched = Some(watched);
    }

    fn end(&mut self) {
        if self.watched.take().is_some() {
            for text in [&mut self.path, &mut self.host] {
                text.clear();
                text.shrink_to(KEPT_TEXT);
            }
        }
    }

    /// Which address the exchange last tried; None before its first attempt.
    pub(super) fn reached<'a>(&self, watched: &'a WatchedExchange) -> Option<ReachedUpstream<'a>> {
        let upstream = watched.upstream.as_deref().filter(|_| self.attempts > 0)?;
        let address = self.address.and_then(|index| upstream.address_name(index));
        Some(ReachedUpstream { name: &upstream.name, address, attempts: self.attempts })
    }
}

/// Runs a future that carries exchanges, one after the other.
pub(super) async fn scope<T>(exchanges: impl Future<Output = T>) -> T {
    CURRENT.scope(Box::default(), exchanges).await
}

/// Reads what the lanes have told. None outside of [`scope`].
pub(super) fn read<T>(read: impl FnOnce(&CurrentExchange) -> T) -> Option<T> {
    CURRENT.try_with(|current| read(&current.borrow())).ok()
}

/// Begins the watch of an exchange; `describe` is called only within [`scope`].
pub(super) fn begin(target: &[u8], host: &[u8], describe: impl FnOnce() -> WatchedExchange) {
    change(|current| current.begin(target, host, describe()));
}

/// Notes an attempt and the index of its address, for the log line of an exchange that is cut later.
pub(super) fn note_attempt(attempts: u64, address: Option<usize>) {
    change(|current| (current.attempts, current.address) = (attempts, address));
}

/// Notes the response header, for the log line of an exchange that is cut later.
pub(super) fn note_response(status: StatusCode, overhead: Option<Duration>) {
    change(|current| (current.status, current.overhead) = (status.as_u16(), overhead));
}

/// Ends the watch: the exchange is complete and logged.
pub(super) fn end() {
    change(CurrentExchange::end);
}

fn change(change: impl FnOnce(&mut CurrentExchange)) {
    let _ = CURRENT.try_with(|current| change(&mut current.borrow_mut()));
}

#[cfg(test)]
mod tests;
