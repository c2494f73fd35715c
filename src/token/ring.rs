//! The key ring: all signing keys, and which of them signs or verifies at a given time.
//!
//! A key signs from the time in its id until the next key begins. Its tokens stay valid for `token.key_grace` longer. A
//! pending key is already published, so that upstreams, and all gateways of a fleet, have it when it begins to sign. The
//! stored keys and the time alone determine all of this; no other state has to be passed between gateways.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::Jwk;

use super::assertion;
use super::keys::{Purpose, SigningKey};
use super::stored_key::{PrivateKey, StoredKey};
use crate::domain::clock::Timestamp;
use crate::domain::session::KeyId;

/// Why the keys cannot be loaded or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// The folder or a file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The folder or file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// It is no private key of the algorithm in its id.
    #[error("key {0}: not a PKCS#8 private key of the kind its name says (eddsa-MILLISECONDS-NAME, es256-…)")]
    NotAKey(KeyId),
    /// It is encrypted with another secret.
    #[error(
        "key {0} in the directory is encrypted with another secret; set server.secret_file to the secret of this fleet, or \
         list the one that encrypted the key in server.old_secret_files"
    )]
    Unreadable(KeyId),
    /// No key in the folder has begun to sign.
    #[error("{0}: holds no key that has begun to sign")]
    Missing(PathBuf),
    /// There are no keys.
    #[error("there is no signing key")]
    Empty,
    /// The cryptographic library failed.
    #[error("cannot generate a key")]
    NotGenerated,
    /// A key does not verify what it signed.
    #[error("key {0} failed its self-test")]
    SelfTest(KeyId),
}

/// The state of a key at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Published, does not sign yet.
    #[serde(rename = "waiting")]
    Pending,
    /// Signs new tokens.
    Signing,
    /// Replaced; still verifies the tokens that it signed.
    #[serde(rename = "believed")]
    VerifyOnly,
    /// Replaced; its tokens are refused.
    #[serde(rename = "over")]
    Retired,
}

/// How long the tokens of a key stay valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyValidity {
    /// The key was removed: its tokens are refused.
    Gone,
    /// Its tokens are valid until this time.
    Until(Timestamp),
    /// No successor is known: its tokens stay valid.
    Open,
    /// Another gateway may have the key: its tokens are refused here, and its sessions are left alone.
    Unknown,
}

/// Who adds keys to the stored ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeySharing {
    /// This gateway alone: a key that is not stored is gone.
    Own,
    /// Every gateway of a fleet. Only a removed key is gone.
    Fleet,
}

/// The signing keys, the newest first.
pub struct KeyRing {
    keys: Vec<Arc<SigningKey>>,
    /// When each key begins to sign, removed keys included: otherwise removing a key would make its predecessor valid
    /// again.
    start_times: Vec<Timestamp>,
    removed: BTreeSet<KeyId>,
    sharing: KeySharing,
    grace: Duration,
}

impl KeyRing {
    /// A ring of these keys of one gateway, of which each must be intact.
    pub fn new(stored: &[StoredKey], grace: Duration) -> Result<Self, KeyFault> {
        Self::intact(stored, KeySharing::Own, grace)
    }

    /// A ring of these keys of a fleet, of which each must be intact.
    pub fn of_fleet(stored: &[StoredKey], grace: Duration) -> Result<Self, KeyFault> {
        Self::intact(stored, KeySharing::Fleet, grace)
    }

    fn intact(stored: &[StoredKey], sharing: KeySharing, grace: Duration) -> Result<Self, KeyFault> {
        let keys = stored.iter().filter_map(|key| match &key.private {
            PrivateKey::Pkcs8(pkcs8) => Some(checked_key(key, pkcs8.reveal())),
            PrivateKey::Removed => None,
            PrivateKey::Unreadable => Some(Err(KeyFault::Unreadable(key.id.clone()))),
        });
        Self::of(keys.collect::<Result<_, _>>()?, stored, sharing, grace)
    }

    /// A ring of these keys for a gateway that uses this one. Keys that it has are taken from it. Of an unreadable key that
    /// it does not have, only the start time counts: the change of the others, such as a removal, must not wait for it.
    pub fn successor(&self, stored: &[StoredKey]) -> Result<Self, KeyFault> {
        let keys = stored.iter().filter_map(|key| match (self.find_id(&key.id), &key.private) {
            (_, PrivateKey::Removed) | (None, PrivateKey::Unreadable) => None,
            (Some(known), _) => Some(Ok(known.clone())),
            (None, PrivateKey::Pkcs8(pkcs8)) => Some(checked_key(key, pkcs8.reveal())),
        });
        Self::of(keys.collect::<Result<_, _>>()?, stored, self.sharing, self.grace)
    }

    fn of(
        mut keys: Vec<Arc<SigningKey>>,
        stored: &[StoredKey],
        sharing: KeySharing,
        grace: Duration,
    ) -> Result<Self, KeyFault> {
        if keys.is_empty() {
            return Err(KeyFault::Empty);
        }
        keys.sort_by(|a, b| b.signs_from().cmp(&a.signs_from()).then_with(|| b.id().cmp(a.id())));
        let start_times = stored.iter().filter_map(StoredKey::signs_from).collect();
        let removed =
            stored.iter().filter(|key| key.private == PrivateKey::Removed).map(|key| key.id.clone()).collect();
        Ok(Self { keys, start_times, removed, sharing, grace })
    }

    /// The key that begins last.
    pub fn newest(&self) -> &SigningKey {
        // `of` makes no empty ring.
        &self.keys[0]
    }

    /// The first start time from this one on that no key has: start times alone decide which key signs.
    pub fn free_start(&self, wanted: Timestamp) -> Timestamp {
        let is_free = |moment: &i64| !self.start_times.contains(&Timestamp::from_millis(*moment));
        Timestamp::from_millis((wanted.millis()..).find(is_free).unwrap_or(wanted.millis()))
    }

    /// Whether a key has begun to sign.
    pub fn has_begun(&self, now: Timestamp) -> bool {
        self.keys.iter().any(|key| has_begun(key, now))
    }

    /// The key that signs now.
    pub fn active(&self, now: Timestamp) -> &SigningKey {
        // `of` makes no empty ring. If the clock is before the start of the first key, that key signs.
        self.keys.iter().find(|key| has_begun(key, now)).unwrap_or(&self.keys[self.keys.len() - 1])
    }

    /// The key with this id, if its tokens are valid now.
    pub fn verification_key(&self, id: &KeyId, now: Timestamp) -> Option<&SigningKey> {
        self.find_id(id).map(|key| &**key).filter(|key| self.can_verify(key, now))
    }

    /// The key that writes exactly this encoded header, if its tokens are valid now.
    pub fn find(&self, purpose: Purpose, header: &str, now: Timestamp) -> Option<&Arc<SigningKey>> {
        let key = self.keys.iter().find(|key| key.header(purpose) == header);
        key.filter(|key| self.can_verify(key, now))
    }

    /// Whether one of the keys, valid or not, writes exactly this encoded header.
    pub fn knows(&self, purpose: Purpose, header: &str) -> bool {
        self.keys.iter().any(|key| key.header(purpose) == header)
    }

    /// How long the tokens of a key stay valid.
    pub fn validity(&self, id: &KeyId) -> KeyValidity {
        match (self.find_id(id), self.sharing) {
            (Some(key), _) => self.valid_until(key).map_or(KeyValidity::Open, KeyValidity::Until),
            (None, KeySharing::Fleet) if !self.removed.contains(id) => KeyValidity::Unknown,
            (None, _) => KeyValidity::Gone,
        }
    }

    /// How long the sessions that record this key stay valid. Those that record none: as long as the tokens of the oldest
    /// key, and not at all once a key has been removed.
    pub fn validity_of_sessions(&self, key: Option<&KeyId>) -> KeyValidity {
        match (key, self.keys.last()) {
            (Some(id), _) => self.validity(id),
            (None, Some(oldest)) if self.removed.is_empty() => self.validity(oldest.id()),
            (None, _) => KeyValidity::Gone,
        }
    }

    /// Whether this ring has every key of another.
    pub fn has_all_of(&self, other: &KeyRing) -> bool {
        other.keys.iter().all(|theirs| self.find_id(theirs.id()).is_some())
    }

    /// Whether another ring has the same keys, start times and removed keys.
    pub fn is_same_as(&self, other: &KeyRing) -> bool {
        let starts = |ring: &KeyRing| ring.start_times.iter().copied().collect::<BTreeSet<_>>();
        let has_same_keys = self.has_all_of(other) && other.has_all_of(self);
        has_same_keys && starts(self) == starts(other) && self.removed == other.removed
    }

    /// Each key with its state and, if known, the time until which its tokens are valid; the newest first.
    pub fn states(&self, now: Timestamp) -> impl Iterator<Item = (&SigningKey, KeyState, Option<Timestamp>)> {
        let active = self.active(now).id();
        self.keys.iter().map(move |key| {
            let end = self.valid_until(key);
            let state = match end {
                Some(end) if now >= end => KeyState::Retired,
                _ if key.id() == active => KeyState::Signing,
                _ if has_begun(key, now) => KeyState::VerifyOnly,
                _ => KeyState::Pending,
            };
            (&**key, state, end)
        })
    }

    /// When the next key's tokens become invalid.
    pub fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.keys.iter().filter_map(|key| self.valid_until(key)).filter(|end| now < *end).min()
    }

    /// The public keys of all pending, signing and verify-only keys. A key also stays published for the lifetime of an
    /// assertion after its last signature, even where `token.key_grace` is shorter.
    pub fn jwks(&self, now: Timestamp) -> Vec<&Jwk> {
        let asserted =
            |key: &SigningKey| self.successor_start(key).is_none_or(|next| now < next.plus(assertion::LIFETIME));
        self.keys.iter().filter(|key| self.can_verify(key, now) || asserted(key)).map(|key| key.jwk()).collect()
    }

    fn find_id(&self, id: &KeyId) -> Option<&Arc<SigningKey>> {
        self.keys.iter().find(|key| key.id() == id)
    }

    fn can_verify(&self, key: &SigningKey, now: Timestamp) -> bool {
        self.valid_until(key).is_none_or(|end| now < end)
    }

    fn valid_until(&self, key: &SigningKey) -> Option<Timestamp> {
        Some(self.successor_start(key)?.plus(self.grace))
    }

    fn successor_start(&self, key: &SigningKey) -> Option<Timestamp> {
        self.start_times.iter().copied().filter(|start| *start > key.signs_from()).min()
    }
}

fn has_begun(key: &SigningKey, now: Timestamp) -> bool {
    key.signs_from() <= now
}

/// Parses a key and tries it.
fn checked_key(stored: &StoredKey, pkcs8: &[u8]) -> Result<Arc<SigningKey>, KeyFault> {
    let key = stored.signing_key(pkcs8).ok_or_else(|| KeyFault::NotAKey(stored.id.clone()))?;
    if !key.passes_self_test() {
        return Err(KeyFault::SelfTest(stored.id.clone()));
    }
    Ok(Arc::new(key))
}

#[cfg(test)]
mod tests;
