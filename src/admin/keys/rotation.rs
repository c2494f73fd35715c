//! Changes the signing keys, follows the changes of other gateways, and applies both to live sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::open::new_key;
use super::session_updates::{SessionUpdateError, SessionUpdater, SessionUpdates};
use super::storage::{DirectoryKeys, KeyError, KeySnapshot, KeyStorage};
use super::{ATTEMPTS, CreatedKey, KeyRow, KeySettings, KeyStart, RemovedKey, SPREAD_TIME, spread_start};
use crate::admin::AdminError;
use crate::directory::keys::KeyGeneration;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::session::KeyId;
use crate::domain::write::WriteOutcome;
use crate::sessions::SessionCache;
use crate::token::ring::{KeyRing, KeyState, KeyValidity};
use crate::token::stored_key::{KeyChange, PrivateKey, StoredKey};
use crate::token::{KeyAccess, Tokens};

/// How long a command waits while sessions are ended or shortened. The gateway continues afterwards; with a million
/// sessions that takes minutes.
const COMMAND_WAIT: Duration = Duration::from_secs(5);

/// Rotates the signing keys of a gateway.
pub struct KeyRotation {
    settings: KeySettings,
    storage: KeyStorage,
    tokens: Arc<Tokens>,
    sessions: Arc<SessionCache>,
    updater: SessionUpdater,
    clock: Clock,
    /// The generation of the stored keys that `tokens` uses.
    installed: AtomicI64,
    /// Serializes changes of the keys by this process.
    change_lock: Mutex<()>,
}

impl KeyRotation {
    /// Rotates the keys behind `tokens`, which are those of `generation`.
    pub fn new(
        settings: KeySettings,
        storage: KeyStorage,
        generation: KeyGeneration,
        tokens: Arc<Tokens>,
        sessions: Arc<SessionCache>,
        clock: Clock,
    ) -> Self {
        Self {
            settings,
            storage,
            updater: SessionUpdater::new(tokens.clone(), sessions.clone(), clock.clone()),
            tokens,
            sessions,
            clock,
            installed: AtomicI64::new(generation.0),
            change_lock: Mutex::default(),
        }
    }

    /// Reads the key folder without changing anything; `None` if the keys are in the directory, whose changes
    /// [`KeyRotation::refresh`] applies.
    pub fn read_folder(&self) -> Result<Option<KeyRing>, KeyError> {
        match &self.storage {
            KeyStorage::Folder(folder) => Ok(Some(folder.read_ring(self.settings.grace, self.clock.now())?)),
            KeyStorage::Directory(_) => Ok(None),
        }
    }

    /// Whether other gateways change the keys, too.
    pub fn are_shared(&self) -> bool {
        matches!(self.storage, KeyStorage::Directory(_))
    }

    /// Keeps commands of this process from changing the keys.
    pub async fn lock(&self) -> MutexGuard<'_, ()> {
        self.change_lock.lock().await
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

    /// Uses the keys of the directory if another gateway has changed them. On an error the current ones stay in use, each
    /// until its time is over.
    pub async fn refresh(&self) -> Result<(), KeyError> {
        let KeyStorage::Directory(keys) = &self.storage else { return Ok(()) };
        let refreshed = self.refresh_from(keys).await;
        self.tokens.note_key_access(if refreshed.is_ok() { KeyAccess::Current } else { KeyAccess::Lost });
        refreshed
    }

    async fn refresh_from(&self, keys: &DirectoryKeys) -> Result<(), KeyError> {
        if keys.generation().await?.0 == self.installed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let _lock = self.change_lock.lock().await;
        let snapshot = self.storage.read().await?;
        self.install_snapshot(&snapshot)
    }

    fn install_snapshot(&self, snapshot: &KeySnapshot) -> Result<(), KeyError> {
        self.install(self.ring_of(snapshot)?);
        self.installed.store(snapshot.generation.0, Ordering::Relaxed);
        Ok(())
    }

    /// The ring of the stored keys. In a folder each must be intact.
    fn ring_of(&self, snapshot: &KeySnapshot) -> Result<KeyRing, KeyError> {
        let current = self.tokens.keys();
        if matches!(self.storage, KeyStorage::Folder(_)) {
            return Ok(KeyRing::new(&snapshot.keys, self.settings.grace)?);
        }
        let is_known = |id: &KeyId| current.validity(id) != KeyValidity::Unknown;
        for key in snapshot.keys.iter().filter(|key| key.private == PrivateKey::Unreadable && !is_known(&key.id)) {
            tracing::error!(
                key = %key.id,
                "a new signing key is encrypted with a secret that this gateway does not have; its tokens are refused here"
            );
        }
        Ok(current.successor(&snapshot.keys)?)
    }

    pub(super) async fn list(&self) -> Vec<KeyRow> {
        if let Err(error) = self.refresh().await {
            tracing::warn!(error = crate::error::chain(&error), "listing the signing keys that this gateway has");
        }
        let _lock = self.change_lock.lock().await;
        self.tokens.keys().states(self.clock.now()).map(KeyRow::of).collect()
    }

    pub(super) async fn rotate(&self, start: KeyStart) -> Result<CreatedKey, AdminError> {
        let now = self.clock.now();
        let (key, sessions) = self.change_with_sessions(|ring| self.next_key(ring, start, now)).await?;
        let ring = self.tokens.keys();
        if start == KeyStart::Now {
            self.until_signing(&key).await;
        }
        let row = ring.states(self.clock.now()).find(|(other, ..)| *other.id() == key).map(KeyRow::of);
        Ok(CreatedKey { key: row.ok_or(AdminError::KeyMissing(key))?, sessions })
    }

    fn next_key(&self, ring: &KeyRing, start: KeyStart, now: Timestamp) -> Result<KeyChange, AdminError> {
        let pending = ring.states(now).find(|(_, state, _)| *state == KeyState::Pending);
        let wanted = match (start, pending) {
            (KeyStart::Now, _) => now,
            (KeyStart::AfterLead, None) => now.plus(self.settings.lead),
            (KeyStart::AfterLead, Some((key, ..))) => {
                return Err(AdminError::KeyPending { id: key.id().clone(), start: key.signs_from().iso8601() });
            }
        };
        let start = match self.storage {
            KeyStorage::Folder(_) => ring.free_start(wanted),
            KeyStorage::Directory(_) => spread_start(ring, wanted, now),
        };
        Ok(new_key(&self.settings, start)?)
    }

    /// Waits until a key signs that was created to sign at once, so that a command after this one finds it signing.
    async fn until_signing(&self, id: &KeyId) {
        let ring = self.tokens.keys();
        if let Some(key) = ring.verification_key(id, self.clock.now()) {
            // A start that is further away was set by a clock that has since been set back.
            tokio::time::sleep(self.clock.now().until(key.signs_from()).min(SPREAD_TIME)).await;
        }
    }

    pub(super) async fn remove(&self, id: &KeyId) -> Result<RemovedKey, AdminError> {
        let now = self.clock.now();
        let remove = |ring: &KeyRing| {
            let Some((key, state, _)) = ring.states(now).find(|(key, ..)| key.id() == id) else {
                return Err(AdminError::NoSuchKey(id.clone()));
            };
            match state {
                KeyState::Signing => Err(AdminError::KeySigning(id.clone())),
                KeyState::Pending | KeyState::VerifyOnly | KeyState::Retired => Ok(StoredKey::removal(key, now)),
            }
        };
        let (_, sessions) = self.change_with_sessions(remove).await?;
        Ok(RemovedKey { sessions })
    }

    /// Makes a change like [`KeyRotation::change`] and updates the sessions.
    async fn change_with_sessions(
        &self,
        decide: impl Fn(&KeyRing) -> Result<KeyChange, AdminError>,
    ) -> Result<(KeyId, SessionUpdates), AdminError> {
        // Before the change, which the other gateways learn of at once: they leave the sessions to this one, so that the
        // command can say how many it has changed.
        let turn = self.updater.turn_if_free().await;
        match self.change(decide).await {
            Ok(key) => Ok((key, self.updater.update(turn, Some(Instant::now() + COMMAND_WAIT)).await?)),
            Err(error) => {
                self.updater.end_turn(turn).await;
                Err(error)
            }
        }
    }

    /// Makes a change that `decide` derives from the stored keys, uses the result, and returns the changed key. Decides
    /// again if another gateway has changed the keys meanwhile.
    async fn change(&self, decide: impl Fn(&KeyRing) -> Result<KeyChange, AdminError>) -> Result<KeyId, AdminError> {
        let _lock = self.change_lock.lock().await;
        for _ in 0..ATTEMPTS {
            let before = self.storage.read().await?;
            let change = decide(&self.ring_of(&before)?)?;
            if self.storage.apply(before.generation, std::slice::from_ref(&change)).await? == WriteOutcome::Applied {
                self.install_snapshot(&self.storage.read().await?)?;
                return Ok(match change {
                    KeyChange::Put(StoredKey { id, .. }) | KeyChange::Delete(id) => id,
                });
            }
        }
        Err(KeyError::Busy.into())
    }

    /// How many stored keys are encrypted with another secret than the current one; none if they are files.
    pub(super) async fn count_old_secrets(&self) -> Result<usize, KeyError> {
        match &self.storage {
            KeyStorage::Folder(_) => Ok(0),
            KeyStorage::Directory(keys) => keys.count_old().await,
        }
    }

    /// Ends the sessions of removed keys and shortens those of replaced keys, unless another gateway does so: then it waits
    /// until none is left. Fails while the keys cannot be read: the sessions are those of all gateways, and what this one
    /// remembers of the keys may no longer hold.
    pub async fn update_sessions(&self) -> Result<(), SessionUpdateError> {
        let turn = self.updater.turn(None).await?;
        if let Err(error) = self.refresh().await {
            self.updater.end_turn(turn).await;
            return Err(error.into());
        }
        self.updater.update(turn, None).await?;
        Ok(())
    }
}
