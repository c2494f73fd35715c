//! Signing keys: listing, rotation and removal.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::audit::{Action, AuditTrail, AuditedResult, loggable_name};
use super::{Actor, AdminError};
use crate::config::TokenAlgorithm;
use crate::domain::clock::Timestamp;
use crate::domain::session::KeyId;
use crate::token::keys::{SigningKey, algorithm_name};
use crate::token::ring::{KeyRing, KeyState};

mod storage;

mod open;

mod rotation;

mod session_updates;

pub use open::{OpenedKeys, copy_keys};
pub use rotation::KeyRotation;
pub use session_updates::{SessionUpdateError, SessionUpdates, UpdateProgress};
pub use storage::{DirectoryKeys, KeyError, KeyStorage};

/// How often a change of the keys is tried while other gateways change them.
const ATTEMPTS: usize = 16;

/// How long a new key of a fleet is stored before it signs, at least: all gateways learn of it within a second.
const SPREAD_TIME: Duration = Duration::from_secs(2);

/// Settings of signing keys.
#[derive(Debug, Clone)]
pub struct KeySettings {
    /// The algorithm of new keys.
    pub algorithm: TokenAlgorithm,
    /// How long a new key is published before it signs.
    pub lead: Duration,
    /// How long a replaced key's signatures stay valid.
    pub grace: Duration,
}

/// When a new key of a fleet starts to sign: as wanted, but not before every gateway knows it.
fn spread_start(ring: &KeyRing, wanted: Timestamp, now: Timestamp) -> Timestamp {
    ring.free_start(wanted.max(now.plus(SPREAD_TIME)))
}

/// A signing key as `deskgate key list` shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyRow {
    /// The key's ID, the `kid` of what it signs.
    pub id: String,
    /// `EdDSA` or `ES256`.
    pub algorithm: String,
    /// Whether the key signs, will sign, or only verifies.
    pub state: KeyState,
    /// When the key starts to sign.
    pub signs_from: String,
    /// Until when its signatures are valid; not known before the next key takes over.
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

/// When a new key starts to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStart {
    /// After `token.key_lead`, when all verifiers have fetched it.
    AfterLead,
    /// Immediately.
    Now,
}

/// A new key, and the sessions that it shortens.
pub(crate) struct CreatedKey {
    pub(crate) key: KeyRow,
    pub(crate) sessions: SessionUpdates,
}

impl AuditedResult for CreatedKey {
    fn is_unchanged(&self) -> bool {
        false
    }
}

/// What the removal of a key did to its sessions.
pub(crate) struct RemovedKey {
    pub(crate) sessions: SessionUpdates,
}

impl AuditedResult for RemovedKey {
    fn is_unchanged(&self) -> bool {
        false
    }
}

/// Administers signing keys.
pub(crate) struct KeyAdmin {
    pub(super) rotation: Arc<KeyRotation>,
    pub(super) audit: AuditTrail,
}

impl KeyAdmin {
    pub(crate) async fn list(&self) -> Vec<KeyRow> {
        self.rotation.list().await
    }

    /// How many keys a previous secret encrypts.
    pub(crate) async fn count_old_secrets(&self) -> Result<usize, AdminError> {
        Ok(self.rotation.count_old_secrets().await?)
    }

    /// Creates a key that will replace the signing one.
    pub(crate) async fn rotate(&self, actor: Actor<'_>, start: KeyStart) -> Result<CreatedKey, AdminError> {
        let command = match start {
            KeyStart::AfterLead => "key rotate",
            KeyStart::Now => "key rotate --now",
        };
        self.audit.run(actor, None, Action::Command(command.into()), self.rotation.rotate(start)).await
    }

    /// Removes a key, whose tokens are refused from then on, and ends the sessions of these tokens.
    pub(crate) async fn remove(&self, actor: Actor<'_>, id: &KeyId) -> Result<RemovedKey, AdminError> {
        let action = Action::Command(format!("key remove {}", loggable_name(id.as_str())).into());
        self.audit.run(actor, None, action, self.rotation.remove(id)).await
    }
}
