//! Ends or shortens sessions with their signing keys.
//!
//! One gateway at a time does it for all gateways of the store, under a lease. The others wait for the lease and then look
//! themselves: they find nothing left, or what a gateway that died has left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use super::storage::KeyError;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::session::{EndCause, SessionId};
use crate::sessions::SessionCache;
use crate::store::work_leases::{LeaseOutcome, Work, WorkLeases};
use crate::store::{KeyInUse, StoreError};
use crate::token::Tokens;
use crate::token::ring::KeyValidity;

/// How many sessions are ended or shortened in one change of the store.
const SESSIONS_PER_CHANGE: usize = 500;

/// How long the lease lasts without being renewed: much longer than a change takes.
const LEASE: Duration = Duration::from_secs(10);

/// How long a gateway waits before it asks for the lease again.
const LEASE_RETRY: Duration = Duration::from_secs(1);

/// How often a long update says in the log how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// How far an update of sessions has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateProgress {
    /// All sessions are as their keys require.
    Complete,
    /// The time was up; sessions are left.
    Unfinished,
}

/// Sessions that were ended or shortened with their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionUpdates {
    /// How many were changed.
    pub count: usize,
    /// Whether there are more.
    pub progress: UpdateProgress,
}

/// Why sessions could not be ended or shortened with their key.
#[derive(Debug, thiserror::Error)]
pub enum SessionUpdateError {
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The sessions cannot be read or changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An update of sessions while it runs.
struct RunningUpdate {
    /// None: it runs until all sessions are updated.
    deadline: Option<Instant>,
    count: usize,
    logged_at: Instant,
}

impl RunningUpdate {
    fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, count: 0, logged_at: Instant::now() }
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn record(&mut self, sessions: usize) {
        self.count += sessions;
        if self.logged_at.elapsed() >= PROGRESS_INTERVAL {
            self.logged_at = Instant::now();
            tracing::info!(sessions = self.count, "still ending or shortening sessions with their key");
        }
    }
}

/// The right to update sessions: of this gateway among all, and of one caller in this process. The number of changed
/// sessions must not count one twice.
pub(super) struct UpdateTurn<'a> {
    _lock: MutexGuard<'a, ()>,
}

/// Ends the sessions of removed keys and shortens those of replaced keys.
///
/// Tokens are checked against their key anyway. This closes sockets that are already open and keeps the sessions' expiry
/// times right.
pub(super) struct SessionUpdater {
    tokens: Arc<Tokens>,
    sessions: Arc<SessionCache>,
    leases: Arc<dyn WorkLeases>,
    clock: Clock,
    process_lock: Mutex<()>,
}

impl SessionUpdater {
    pub(super) fn new(tokens: Arc<Tokens>, sessions: Arc<SessionCache>, clock: Clock) -> Self {
        let leases = sessions.store().leases();
        Self { tokens, sessions, leases, clock, process_lock: Mutex::default() }
    }

    /// Takes the turn, unless it is taken or the store does not answer.
    pub(super) async fn turn_if_free(&self) -> Option<UpdateTurn<'_>> {
        self.lease(self.process_lock.try_lock().ok()?).await.ok().flatten()
    }

    /// Waits for the turn, at most until `deadline`.
    pub(super) async fn turn(&self, deadline: Option<Instant>) -> Result<Option<UpdateTurn<'_>>, StoreError> {
        let granted = async {
            loop {
                if let Some(turn) = self.lease(self.process_lock.lock().await).await? {
                    return Ok::<_, StoreError>(turn);
                }
                tokio::time::sleep(LEASE_RETRY).await;
            }
        };
        match deadline {
            Some(deadline) => timeout_at(deadline, granted).await.ok().transpose(),
            None => granted.await.map(Some),
        }
    }

    async fn lease<'a>(&self, lock: MutexGuard<'a, ()>) -> Result<Option<UpdateTurn<'a>>, StoreError> {
        let outcome = self.leases.acquire(Work::SessionsOfKeys, LEASE).await?;
        Ok((outcome == LeaseOutcome::Granted).then(|| UpdateTurn { _lock: lock }))
    }

    /// Lets another gateway, or another caller, update sessions.
    pub(super) async fn end_turn(&self, turn: Option<UpdateTurn<'_>>) {
        if turn.is_some()
            && let Err(error) = self.leases.end(Work::SessionsOfKeys).await
        {
            tracing::debug!(%error, "the lease of the sessions of keys ends by itself");
        }
    }

    /// Updates sessions until all are as their keys require, at most until `deadline`. Waits for the turn if the caller
    /// does not have it.
    pub(super) async fn update(
        &self,
        turn: Option<UpdateTurn<'_>>,
        deadline: Option<Instant>,
    ) -> Result<SessionUpdates, StoreError> {
        let turn = match turn {
            Some(turn) => Some(turn),
            None => self.turn(deadline).await?,
        };
        if turn.is_none() {
            return Ok(SessionUpdates { count: 0, progress: UpdateProgress::Unfinished });
        }
        let mut update = RunningUpdate::new(deadline);
        let progress = self.run(&mut update).await;
        self.end_turn(turn).await;
        if update.count > 0 {
            let sessions = update.count;
            tracing::info!(target: "deskgate::audit", sessions, "sessions ended or shortened with their key");
        }
        Ok(SessionUpdates { count: update.count, progress: progress? })
    }

    async fn run(&self, update: &mut RunningUpdate) -> Result<UpdateProgress, StoreError> {
        let ring = self.tokens.keys();
        for key in self.sessions.store().keys().await? {
            let validity = ring.validity_of_sessions(key.id.as_ref());
            if self.apply_validity(&key, validity, update).await? == UpdateProgress::Unfinished {
                return Ok(UpdateProgress::Unfinished);
            }
        }
        Ok(UpdateProgress::Complete)
    }

    /// Ends or shortens the sessions of a key, a few at a time: other writes do not wait for all of them.
    async fn apply_validity(
        &self,
        key: &KeyInUse,
        validity: KeyValidity,
        update: &mut RunningUpdate,
    ) -> Result<UpdateProgress, StoreError> {
        let end = match validity {
            KeyValidity::Gone => self.clock.now(),
            KeyValidity::Until(end) => end,
            KeyValidity::Open | KeyValidity::Unknown => return Ok(UpdateProgress::Complete),
        };
        let store = self.sessions.store();
        let mut after = None;
        loop {
            let page = store.of_key(key, end, after.as_ref(), SESSIONS_PER_CHANGE).await?;
            if !page.ids.is_empty() {
                if update.is_over() {
                    return Ok(UpdateProgress::Unfinished);
                }
                // If another gateway has the lease meanwhile, both go on, which does no harm.
                self.leases.acquire(Work::SessionsOfKeys, LEASE).await?;
                self.apply_end(&page.ids, validity, end).await?;
                update.record(page.ids.len());
            }
            store.settle_key(key, end, after.as_ref(), page.next.as_ref()).await?;
            after = page.next;
            if after.is_none() {
                return Ok(UpdateProgress::Complete);
            }
        }
    }

    async fn apply_end(&self, ids: &[SessionId], validity: KeyValidity, end: Timestamp) -> Result<(), StoreError> {
        match validity {
            KeyValidity::Gone => self.sessions.end_all(ids, EndCause::KeyRemoved).await,
            KeyValidity::Until(_) | KeyValidity::Open | KeyValidity::Unknown => {
                self.sessions.shorten_all(ids, end).await
            }
        }
    }
}
