//! Changes the key folder and applies the change to live sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use super::{CreatedKey, KeyRow, KeyStart, RemovedKey};
use crate::admin::AdminError;
use crate::config::TokenAlgorithm;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::session::{EndCause, KeyId};
use crate::sessions::SessionCache;
use crate::store::StoreError;
use crate::token::Tokens;
use crate::token::ring::{self, KeyFault, KeyRing, KeyState, KeyValidity};

/// How many sessions are ended or shortened in one change of the store.
const SESSIONS_PER_CHANGE: usize = 500;

/// How long a command waits while sessions are ended or shortened. The gateway continues afterwards; with a million
/// sessions that takes minutes.
const COMMAND_WAIT: Duration = Duration::from_secs(5);

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

/// Settings of key rotation.
#[derive(Debug, Clone)]
pub struct KeySettings {
    /// The folder of the key files.
    pub folder: PathBuf,
    /// The algorithm of new keys.
    pub algorithm: TokenAlgorithm,
    /// How long a new key is published before it signs.
    pub lead: Duration,
    /// How long a replaced key's signatures stay valid.
    pub grace: Duration,
}

/// Rotates the signing keys of a gateway.
pub struct KeyRotation {
    settings: KeySettings,
    tokens: Arc<Tokens>,
    sessions: Arc<SessionCache>,
    clock: Clock,
    /// Serializes changes of the key folder.
    folder_lock: Mutex<()>,
    /// Serializes session updates: the number of changed sessions must not count one twice.
    session_lock: Mutex<()>,
}

impl KeyRotation {
    /// Rotates the keys behind `tokens`.
    pub fn new(settings: KeySettings, tokens: Arc<Tokens>, sessions: Arc<SessionCache>, clock: Clock) -> Self {
        Self { settings, tokens, sessions, clock, folder_lock: Mutex::default(), session_lock: Mutex::default() }
    }

    /// Reads the key folder without changing anything.
    pub fn read_folder(&self) -> Result<KeyRing, KeyFault> {
        KeyRing::read(&self.settings.folder, self.settings.grace, self.clock.now())
    }

    /// Locks the key folder against commands of this process.
    pub async fn lock_folder(&self) -> MutexGuard<'_, ()> {
        self.folder_lock.lock().await
    }

    /// Signs and verifies with these keys from now on. The caller then runs [`KeyRotation::update_sessions`].
    pub fn install(&self, ring: KeyRing) {
        let before = self.tokens.keys();
        if ring.is_same_as(&before) {
            return;
        }
        let key_removed = !ring.has_all_of(&before);
        self.tokens.use_keys(ring);
        if key_removed {
            // Cached sessions hold assertions that the removed key has signed, also sessions of other keys.
            self.sessions.forget_all();
        }
    }

    pub(super) async fn list(&self) -> Vec<KeyRow> {
        let _lock = self.folder_lock.lock().await;
        self.tokens.keys().states(self.clock.now()).map(KeyRow::of).collect()
    }

    pub(super) async fn rotate(&self, start: KeyStart) -> Result<CreatedKey, AdminError> {
        let _lock = self.folder_lock.lock().await;
        let now = self.clock.now();
        let ring = self.tokens.keys();
        let pending = ring.states(now).find(|(_, state, _)| *state == KeyState::Pending);
        let wanted = match (start, pending) {
            (KeyStart::Now, _) => now,
            (KeyStart::AfterLead, None) => now.plus(self.settings.lead),
            (KeyStart::AfterLead, Some((key, ..))) => {
                return Err(AdminError::KeyPending { id: key.id().clone(), start: key.signs_from().iso8601() });
            }
        };
        // Start times are unique: they alone decide which key signs.
        let starts: Vec<i64> = ring.states(now).map(|(key, ..)| key.signs_from().millis()).collect();
        let start = (wanted.millis()..).find(|moment| !starts.contains(moment)).unwrap_or(wanted.millis());
        // Fails before it writes if the folder cannot be read.
        self.read_folder()?;
        let id = ring::add(&self.settings.folder, self.settings.algorithm, Timestamp::from_millis(start))?;
        let sessions = self.reload().await?;
        let ring = self.tokens.keys();
        let key = ring.states(now).find(|(key, ..)| *key.id() == id).map(KeyRow::of);
        Ok(CreatedKey { key: key.ok_or(AdminError::KeyMissing(id))?, sessions })
    }

    pub(super) async fn remove(&self, id: &KeyId) -> Result<RemovedKey, AdminError> {
        let _lock = self.folder_lock.lock().await;
        let now = self.clock.now();
        let ring = self.tokens.keys();
        let Some((key, state, _)) = ring.states(now).find(|(key, ..)| key.id() == id) else {
            return Err(AdminError::NoSuchKey(id.clone()));
        };
        if state == KeyState::Signing {
            return Err(AdminError::KeySigning(id.clone()));
        }
        // Fails before it removes anything if the folder cannot be read.
        self.read_folder()?;
        ring::remove(&self.settings.folder, key, now)?;
        Ok(RemovedKey { sessions: self.reload().await? })
    }

    /// Uses the keys of the folder, and waits a while for the update of the sessions. The gateway's background task, or
    /// that of the next start, does the rest.
    async fn reload(&self) -> Result<SessionUpdates, AdminError> {
        self.install(self.read_folder()?);
        Ok(self.update_sessions_until(Some(Instant::now() + COMMAND_WAIT)).await?)
    }

    /// Ends the sessions of removed keys and shortens those of replaced keys.
    ///
    /// Tokens are checked against their key anyway. This closes sockets that are already open and keeps the
    /// sessions' expiry times right.
    pub async fn update_sessions(&self) -> Result<(), StoreError> {
        self.update_sessions_until(None).await.map(|_| ())
    }

    async fn update_sessions_until(&self, deadline: Option<Instant>) -> Result<SessionUpdates, StoreError> {
        let mut update = RunningUpdate::new(deadline);
        let lock = self.session_lock.lock();
        let locked = match deadline {
            Some(deadline) => timeout_at(deadline, lock).await.ok(),
            None => Some(lock.await),
        };
        let Some(_lock) = locked else { return Ok(SessionUpdates { count: 0, progress: UpdateProgress::Unfinished }) };
        let progress = self.run_update(&mut update).await?;
        if update.count > 0 {
            let sessions = update.count;
            tracing::info!(target: "deskgate::audit", sessions, "sessions ended or shortened with their key");
        }
        Ok(SessionUpdates { count: update.count, progress })
    }

    async fn run_update(&self, update: &mut RunningUpdate) -> Result<UpdateProgress, StoreError> {
        let ring = self.tokens.keys();
        for key in self.sessions.store().keys().await? {
            let validity = ring.validity_of_sessions(key.as_ref());
            if self.apply_validity(key.as_ref(), validity, update).await? == UpdateProgress::Unfinished {
                return Ok(UpdateProgress::Unfinished);
            }
        }
        Ok(UpdateProgress::Complete)
    }

    /// Ends or shortens the sessions of a key, a few at a time: other writes do not wait for all of them.
    async fn apply_validity(
        &self,
        key: Option<&KeyId>,
        validity: KeyValidity,
        update: &mut RunningUpdate,
    ) -> Result<UpdateProgress, StoreError> {
        let latest = match validity {
            KeyValidity::Gone => self.clock.now(),
            KeyValidity::Until(end) => end,
            KeyValidity::Open => return Ok(UpdateProgress::Complete),
        };
        let mut after = None;
        loop {
            let page = self.sessions.store().of_key(key, latest, after.as_ref(), SESSIONS_PER_CHANGE).await?;
            if !page.ids.is_empty() {
                if update.is_over() {
                    return Ok(UpdateProgress::Unfinished);
                }
                match validity {
                    KeyValidity::Gone => self.sessions.end_all(&page.ids, EndCause::KeyRemoved).await?,
                    KeyValidity::Until(_) | KeyValidity::Open => self.sessions.shorten_all(&page.ids, latest).await?,
                }
                update.record(page.ids.len());
            }
            after = page.next;
            if after.is_none() {
                return Ok(UpdateProgress::Complete);
            }
        }
    }
}
