//! File descriptors: raises the limit of the process and divides it, so that clients and upstreams leave enough for the
//! databases, the admin listener and the control socket.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::StartError;
use crate::config::Config;

/// Descriptors that are opened after the start: commands, scrapes and probes, connections to the platform, and the readers
/// of the databases.
const OWN: usize = 32;

/// About as many as the databases, the listeners and the runtime take, for a check that opens none of them.
const OPENED_AT_START: usize = 24;

/// Connections to the servers of a shared store, which are opened as they are needed.
const STORE_CONNECTIONS: usize = 64;

/// Idle connections kept open to all upstreams together, and requests on HTTP/2 connections: an eighth each of what the
/// clients and upstreams share, at most these.
const LARGEST_POOL: usize = 3072;
const LARGEST_STREAM_SHARE: usize = 4096;

/// With fewer, the gateway does not start.
const FEWEST_CONNECTIONS: usize = 4;

/// How the descriptors are divided. A client on HTTP/1.1 may need two: its own and the upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptors {
    limit: usize,
    reserve: usize,
    /// Client connections, WebSockets included.
    pub(super) connections: usize,
    /// Concurrent requests on all HTTP/2 connections, each of which may hold a connection to an upstream.
    pub(super) streams: usize,
    /// Idle connections to upstreams.
    pub(super) pool: usize,
}

impl Descriptors {
    /// Raises the limit to what the operator allows, and divides what the databases and listeners, which are open by now, have
    /// left. Warns if it does not suffice for `limits.connections`.
    pub(super) fn claim(config: &Config) -> Result<Self, StartError> {
        let limit = raise_limit();
        let reserve = open_descriptors() + opened_later(config);
        let wanted = config.limits.connections;
        let claimed = Self::divide(limit, reserve, wanted);
        let claimed = claimed.ok_or(StartError::Descriptors { limit, reserve, needed: needed(reserve, wanted) })?;
        if let Some(shortage) = claimed.shortage(wanted) {
            tracing::warn!("{shortage}");
        }
        Ok(claimed)
    }

    /// What to say if there are too few for `limits.connections`.
    fn shortage(&self, wanted: usize) -> Option<String> {
        let Self { limit, reserve, connections, .. } = *self;
        let needed = needed(reserve, wanted);
        (connections < wanted).then(|| {
            format!(
                "the limit on open files is {limit}: {reserve} are reserved for the gateway itself, so at most {connections} \
                 clients can be connected at once instead of limits.connections ({wanted}); raise the limit to {needed} (ulimit -n, \
                 LimitNOFILE=) or lower limits.connections"
            )
        })
    }

    fn divide(limit: usize, reserve: usize, wanted: usize) -> Option<Self> {
        let shared = limit.saturating_sub(reserve);
        let pool = (shared / 8).min(LARGEST_POOL);
        let streams = (shared / 8).min(LARGEST_STREAM_SHARE);
        let connections = ((shared - pool - streams) / 2).min(wanted);
        let is_enough = connections >= FEWEST_CONNECTIONS.min(wanted);
        is_enough.then(|| Self { limit, reserve, connections, streams: shared - pool - 2 * connections, pool })
    }

    /// Divides them again for another `limits.connections`.
    pub(super) fn for_connections(self, wanted: usize) -> Self {
        // With as few connections as there are now there was enough.
        Self::divide(self.limit, self.reserve, wanted).unwrap_or(self)
    }
}

/// What a start of this process, which has not opened databases and listeners, would claim.
pub(super) fn foresee(config: &Config) -> Result<Descriptors, StartError> {
    let (limit, wanted) = (raise_limit(), config.limits.connections);
    let reserve = open_descriptors() + OPENED_AT_START + opened_later(config);
    let share = Descriptors::divide(limit, reserve, wanted);
    share.ok_or(StartError::Descriptors { limit, reserve, needed: needed(reserve, wanted) })
}

/// The warning or the error of a start, see [`foresee`].
pub(super) fn shortage(config: &Config) -> Option<String> {
    match foresee(config) {
        Ok(share) => share.shortage(config.limits.connections),
        Err(error) => Some(error.to_string()),
    }
}

/// The limit that suffices for `wanted` connections.
fn needed(reserve: usize, wanted: usize) -> usize {
    reserve + 2 * wanted + LARGEST_POOL + LARGEST_STREAM_SHARE
}

/// Raises the soft limit to the hard one and returns it. The soft one is low for programs that use `select`.
fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Fails only where the kernel's own maximum is lower than the hard limit.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current };
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX / 4).min(usize::MAX / 4)
}

/// The descriptors of the databases, listeners and the runtime; a guess where the kernel does not list them.
fn open_descriptors() -> usize {
    const GUESS: usize = 64;
    std::fs::read_dir("/proc/self/fd").map_or(GUESS, Iterator::count)
}

fn opened_later(config: &Config) -> usize {
    let directory = config.directory.server().map_or(0, |_| config.directory.pool as usize);
    let store = if config.store.is_shared() { STORE_CONNECTIONS } else { 0 };
    OWN + directory + store
}

#[cfg(test)]
mod tests;
