//! Signing keys: shown, rotated and removed, and what that means for sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard};

use super::{AdminError, Done, failed};
use crate::config::TokenAlgorithm;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::session::{EndCause, KeyId, Session};
use crate::sessions::SessionCache;
use crate::store::StoreError;
use crate::token::Tokens;
use crate::token::keys::{SigningKey, algorithm_name};
use crate::token::ring::{self, KeyFault, KeyRing, KeyState, KeyValidity};

/// Sessions that are changed at once after a key has gone: the store groups what comes together.
const AT_ONCE: usize = 64;

/// An order about keys.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyCommand {
    /// Shows them.
    List,
    /// Makes a new one.
    Rotate {
        /// When it signs.
        turn: Turn,
    },
    /// Removes one; what it signed is refused from then on.
    Remove {
        /// Which.
        id: String,
    },
}

impl KeyCommand {
    pub(super) fn description(&self) -> Option<String> {
        match self {
            KeyCommand::List => None,
            KeyCommand::Rotate { turn: Turn::Later } => Some("rotate".to_owned()),
            KeyCommand::Rotate { turn: Turn::Now } => Some("rotate --now".to_owned()),
            KeyCommand::Remove { id } => Some(format!("remove {}", super::typed_name(id))),
        }
    }
}

/// When a new key begins to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// After `token.key_lead`, when everybody knows it.
    Later,
    /// At once.
    Now,
}

/// A key as operators see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyRow {
    /// Its id, the `kid` of what it signs.
    pub id: String,
    /// `EdDSA` or `ES256`.
    pub algorithm: String,
    /// Where it stands.
    pub state: KeyState,
    /// From when on it signs.
    pub signs_from: String,
    /// Until when what it signed is believed, if that is known.
    #[serde(rename = "believed_until")]
    pub valid_until: Option<String>,
}

impl KeyRow {
    fn of((key, state, end): (&SigningKey, KeyState, Option<Timestamp>)) -> Self {
        Self {
            id: key.id().to_string(),
            algorithm: algorithm_name(key.algorithm()).to_owned(),
            state,
            signs_from: key.signs_from().iso8601(),
            valid_until: end.map(Timestamp::iso8601),
        }
    }
}

/// How keys are made.
#[derive(Debug, Clone)]
pub struct KeySettings {
    /// Where their files are.
    pub folder: PathBuf,
    /// Of which kind new ones are.
    pub algorithm: TokenAlgorithm,
    /// How long a new one is published before it signs.
    pub lead: Duration,
    /// How long what a replaced one signed is believed.
    pub grace: Duration,
}

/// Looks after the keys of a gateway.
pub struct KeyRotation {
    settings: KeySettings,
    tokens: Arc<Tokens>,
    live: Arc<SessionCache>,
    clock: Clock,
    /// One change of the folder at a time.
    turn: Mutex<()>,
    /// A session ends once, however many notice at the same time that its key is gone.
    settling: Mutex<()>,
}

impl KeyRotation {
    /// Of these tokens and sessions.
    pub fn new(settings: KeySettings, tokens: Arc<Tokens>, live: Arc<SessionCache>, clock: Clock) -> Self {
        Self { settings, tokens, live, clock, turn: Mutex::default(), settling: Mutex::default() }
    }

    pub(super) async fn run(&self, order: KeyCommand) -> Result<Done, AdminError> {
        let _turn = self.turn.lock().await;
        match order {
            KeyCommand::List => Ok(Done::Keys(self.tokens.keys().states(self.clock.now()).map(KeyRow::of).collect())),
            KeyCommand::Rotate { turn } => self.rotate(turn).await,
            KeyCommand::Remove { id } => self.remove(&KeyId::new(id)).await,
        }
    }

    /// Reads the folder, and changes nothing.
    pub fn read(&self) -> Result<KeyRing, KeyFault> {
        KeyRing::read(&self.settings.folder, self.settings.grace, self.clock.now())
    }

    /// Nobody else changes the folder while this is held.
    pub async fn alone(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Takes keys into use, if they are others than before; [`KeyRotation::settle`] is to follow.
    pub fn take(&self, ring: KeyRing) {
        let before = self.tokens.keys();
        if ring.is_same_as(&before) {
            return;
        }
        let lost = !ring.has_all_of(&before);
        self.tokens.use_keys(ring);
        if lost {
            // What the key has asserted is kept beside sessions, also those of other keys.
            self.live.forget_all();
        }
    }

    async fn rotate(&self, turn: Turn) -> Result<Done, AdminError> {
        let now = self.clock.now();
        let ring = self.tokens.keys();
        let waiting = ring.states(now).find(|(_, state, _)| *state == KeyState::Pending);
        let wanted = match (turn, waiting) {
            (Turn::Now, _) => now,
            (Turn::Later, None) => now.plus(self.settings.lead),
            (Turn::Later, Some((key, ..))) => {
                return Err(AdminError::Refused(format!(
                    "key {} takes over at {} already; `--now` makes another one that signs at once",
                    key.id(),
                    key.signs_from().iso8601()
                )));
            }
        };
        // Of two keys that begin at the same time nobody could say which comes first.
        let taken: Vec<i64> = ring.states(now).map(|(key, ..)| key.signs_from().millis()).collect();
        let start = (wanted.millis()..).find(|moment| !taken.contains(moment)).unwrap_or(wanted.millis());
        // First: what cannot be read must not be added to.
        self.read().map_err(failed)?;
        let id = ring::add(&self.settings.folder, self.settings.algorithm, Timestamp::from_millis(start));
        let id = id.map_err(failed)?;
        let sessions = self.reload().await?;
        let ring = self.tokens.keys();
        let row = ring.states(now).find(|(key, ..)| *key.id() == id).map(KeyRow::of);
        let key = row.ok_or_else(|| AdminError::Failed(format!("key {id} was made and is not there")))?;
        Ok(Done::KeyMade { key, sessions })
    }

    async fn remove(&self, id: &KeyId) -> Result<Done, AdminError> {
        let now = self.clock.now();
        let ring = self.tokens.keys();
        let Some((key, state, _)) = ring.states(now).find(|(key, ..)| key.id() == id) else {
            return Err(AdminError::NotThere(format!("there is no key {id}; see `deskgate key list`")));
        };
        if state == KeyState::Signing {
            return Err(AdminError::Refused(format!(
                "key {id} is the one that signs; `deskgate key rotate --now` puts another in its place"
            )));
        }
        // First: what cannot be read must not be taken from.
        self.read().map_err(failed)?;
        ring::remove(&self.settings.folder, key, now).map_err(failed)?;
        let sessions = self.reload().await?;
        Ok(Done::changed(sessions))
    }

    async fn reload(&self) -> Result<usize, AdminError> {
        self.take(self.read().map_err(failed)?);
        self.settle().await.map_err(failed)
    }

    /// Lets sessions follow their keys: without a key they end, with one that was replaced they end when it does.
    /// Returns how many there were. Tokens themselves are judged by their key in any case; this is for what they
    /// opened before, and so that a session's end is true.
    pub async fn settle(&self) -> Result<usize, StoreError> {
        let _alone = self.settling.lock().await;
        let ring = self.tokens.keys();
        let sessions = self.live.store().all(usize::MAX).await?;
        let changes = sessions.into_iter().filter_map(|session| {
            let validity =
                match session.key_id.as_ref().map_or_else(|| ring.validity_of_unknown(), |id| ring.validity(id)) {
                    KeyValidity::Until(end) if end < session.expires_at => KeyValidity::Until(end),
                    KeyValidity::Gone => KeyValidity::Gone,
                    KeyValidity::Until(_) | KeyValidity::Open => return None,
                };
            Some(self.end_with_key(session, validity))
        });
        let mut running = futures::stream::iter(changes).buffer_unordered(AT_ONCE);
        let mut changed = 0;
        while let Some(done) = running.next().await {
            done?;
            changed += 1;
        }
        if changed > 0 {
            tracing::info!(target: "deskgate::audit", sessions = changed, "sessions end with the key that signed them");
        }
        Ok(changed)
    }

    async fn end_with_key(&self, session: Session, validity: KeyValidity) -> Result<(), StoreError> {
        match validity {
            KeyValidity::Gone => self.live.end(&session.id, EndCause::KeyRemoved).await,
            KeyValidity::Until(end) => self.live.shorten(&session.id, end).await.map(|_| ()),
            KeyValidity::Open => Ok(()),
        }
    }
}
