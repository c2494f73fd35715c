//! Checks the sessions of open WebSockets and exchanges again: after changes may have been missed, and after new rules or keys.
//!
//! Sessions are read by partition, beside the task that applies changes. A session that cannot be read was not revoked: what
//! belongs to it stays open, and is checked again until it can be. Meanwhile the change feed does not count as applied, so that
//! after `store.outage_grace` the feed is lost and everything signed in is closed ([`feed_watch`](super::feed_watch)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;

use crate::domain::partition::Partition;
use crate::domain::session::{Session, SessionId};
use crate::error::{Error, chain};
use crate::pipeline::Gate;
use crate::sockets::CloseReason;
use crate::sockets::registry::Registry;
use crate::token::ring::KeyValidity;

/// How many sessions are read at once, and how many such reads run at the same time: requests use the store as well.
const BATCH: usize = 500;
const READS: usize = 4;

/// Pause after a round in which sessions could not be read; doubled each time up to the longest. A server that has just taken
/// over may not answer yet.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// The partitions whose sessions must be checked, and how many rounds are checking others.
#[derive(Default)]
struct RecheckState {
    due: BTreeSet<Partition>,
    running: usize,
}

/// Checks what is open again, whenever it is asked to.
pub(super) struct OpenRecheck {
    gate: Arc<Gate>,
    registry: Arc<Registry>,
    state: Mutex<RecheckState>,
    requested: Notify,
}

impl OpenRecheck {
    pub(super) fn new(gate: Arc<Gate>, registry: Arc<Registry>) -> Self {
        Self { gate, registry, state: Mutex::default(), requested: Notify::new() }
    }

    /// Has the sessions of these partitions checked soon.
    pub(super) fn request(&self, partitions: impl IntoIterator<Item = Partition>) {
        self.lock().due.extend(partitions);
        self.requested.notify_one();
    }

    /// Checks all sessions now. Those that cannot be read are checked later.
    pub(super) async fn check_all(&self) {
        self.request(Partition::all());
        self.check_due().await;
    }

    /// Whether everything that was asked for is done.
    pub(super) fn is_done(&self) -> bool {
        let state = self.lock();
        state.due.is_empty() && state.running == 0
    }

    /// Checks what is asked for.
    pub(super) async fn run(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let Some(error) = self.check_due().await else {
                pause = FIRST_PAUSE;
                self.requested.notified().await;
                continue;
            };
            if pause == FIRST_PAUSE {
                tracing::warn!(error = chain(&error), "could not check the sessions of open connections; retrying");
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Checks the partitions that are due. Those that cannot be read are due again; returns a reason if there are any.
    async fn check_due(&self) -> Option<Error> {
        let mut round = RecheckRound::begin(self)?;
        let mut sessions: BTreeMap<Partition, Vec<SessionId>> = BTreeMap::new();
        for id in self.registry.sessions() {
            let partition = Partition::of(id.as_str());
            if round.left.contains(&partition) {
                sessions.entry(partition).or_default().push(id);
            }
        }
        // A primary that is away fails the reads of its own partitions only.
        let reads = futures::stream::iter(sessions).map(|(partition, ids)| async move {
            for batch in ids.chunks(BATCH) {
                if let Err(error) = self.check(batch).await {
                    return Some((partition, error));
                }
            }
            None
        });
        let failed: Vec<(Partition, Error)> =
            reads.buffer_unordered(READS).filter_map(std::future::ready).collect().await;
        round.left = failed.iter().map(|(partition, _)| *partition).collect();
        failed.into_iter().next().map(|(_, error)| error)
    }

    async fn check(&self, ids: &[SessionId]) -> Result<(), Error> {
        let found = self.gate.sessions.sessions(ids, self.gate.clock.now()).await?;
        for (id, found) in ids.iter().zip(found) {
            match found {
                Some(cached) if self.has_valid_key(&cached.session) => self.registry.recheck_session(&cached.session),
                Some(_) | None => self.registry.close_session(id, CloseReason::Revoked),
            }
        }
        Ok(())
    }

    fn has_valid_key(&self, session: &Session) -> bool {
        match self.gate.tokens.keys().validity_of_sessions(session.key_id.as_ref()) {
            KeyValidity::Gone | KeyValidity::Unknown => false,
            KeyValidity::Until(end) => self.gate.clock.now() < end,
            KeyValidity::Open => true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, RecheckState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A check of the partitions that were due. Those that are left when it ends, or is cancelled, are due again.
struct RecheckRound<'a> {
    recheck: &'a OpenRecheck,
    left: BTreeSet<Partition>,
}

impl<'a> RecheckRound<'a> {
    /// `None` if nothing is due.
    fn begin(recheck: &'a OpenRecheck) -> Option<Self> {
        let mut state = recheck.lock();
        if state.due.is_empty() {
            return None;
        }
        state.running += 1;
        Some(Self { recheck, left: std::mem::take(&mut state.due) })
    }
}

impl Drop for RecheckRound<'_> {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.left);
        if !left.is_empty() {
            self.recheck.request(left);
        }
        self.recheck.lock().running -= 1;
    }
}
