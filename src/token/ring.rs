//! The key ring: all signing keys, and which of them signs or verifies at a given time.
//!
//! A key signs from the time in its id until the next key begins. Its tokens stay valid for `token.key_grace` longer. A
//! pending key is already published, so that upstreams have it when it begins to sign. The key folder alone determines
//! all of this; no state has to be passed between gateways.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::assertion;
use jsonwebtoken::jwk::Jwk;

use super::key_file::{create_private_folder, generate, parse, signs_from, sync_folder, write_private};
use super::keys::{Purpose, SigningKey};
use crate::config::TokenAlgorithm;
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
    /// A file does not hold a private key of the algorithm in its name.
    #[error("{0}: not a PKCS#8 private key of the kind its name says (eddsa-MILLISECONDS-NAME.pem, es256-…)")]
    NotAKey(PathBuf),
    /// No key has begun to sign.
    #[error("{0}: holds no key that has begun to sign")]
    Missing(PathBuf),
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
}

/// The signing keys, the newest first.
pub struct KeyRing {
    keys: Vec<SigningKey>,
    /// When each key begins to sign, removed keys included: otherwise removing a key would make its predecessor valid
    /// again.
    start_times: Vec<Timestamp>,
    grace: Duration,
}

/// The extension of the file that a removed key leaves behind if it has signed.
const REMOVED: &str = "removed";

impl KeyRing {
    /// Reads the key folder. Generates a key that signs from now on if there is none, or if the newest has another
    /// algorithm.
    pub fn open(folder: &Path, algorithm: TokenAlgorithm, grace: Duration, now: Timestamp) -> Result<Self, KeyFault> {
        let newest = match Self::read(folder, grace, now) {
            Ok(ring) if ring.keys.first().is_some_and(|key| key.algorithm() == algorithm) => return Ok(ring),
            Ok(ring) => ring.keys.first().map(SigningKey::signs_from),
            Err(KeyFault::Missing(_)) => None,
            Err(fault) => return Err(fault),
        };
        // Strictly after the newest: the order of two keys with the same start would be undefined.
        let start = newest.map_or(now, |newest| now.max(newest.plus(Duration::from_millis(1))));
        add(folder, algorithm, start)?;
        Self::read(folder, grace, now)
    }

    /// Reads the key folder; at least one key must have begun to sign.
    pub fn read(folder: &Path, grace: Duration, now: Timestamp) -> Result<Self, KeyFault> {
        let fault = |path: &Path| {
            let path = path.to_owned();
            move |source| KeyFault::File { path, source }
        };
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(KeyFault::Missing(folder.to_owned())),
            entries => entries.map_err(fault(folder))?,
        };
        let (mut keys, mut start_times) = (Vec::new(), Vec::new());
        for entry in entries {
            let path = entry.map_err(fault(folder))?.path();
            if path.extension().is_some_and(|extension| extension == REMOVED) {
                start_times.extend(signs_from(&path));
            } else if path.extension().is_some_and(|extension| extension == "pem") {
                let text = std::fs::read_to_string(&path).map_err(fault(&path))?;
                keys.push(parse(&path, &text).ok_or_else(|| KeyFault::NotAKey(path.clone()))?);
            }
        }
        if let Some(key) = keys.iter().find(|key| !key.passes_self_test()) {
            return Err(KeyFault::SelfTest(key.id().clone()));
        }
        if !keys.iter().any(|key| has_begun(key, now)) {
            return Err(KeyFault::Missing(folder.to_owned()));
        }
        start_times.extend(keys.iter().map(SigningKey::signs_from));
        keys.sort_by(|a, b| b.signs_from().cmp(&a.signs_from()).then_with(|| b.id().cmp(a.id())));
        Ok(Self { keys, start_times, grace })
    }

    /// The key that signs now.
    pub fn active(&self, now: Timestamp) -> &SigningKey {
        // `read` never leaves the ring empty. If the clock was set back before the first key, that key signs.
        self.keys.iter().find(|key| has_begun(key, now)).unwrap_or(&self.keys[self.keys.len() - 1])
    }

    /// The key with this id, if its tokens are valid now.
    pub fn verification_key(&self, id: &KeyId, now: Timestamp) -> Option<&SigningKey> {
        self.keys.iter().find(|key| key.id() == id).filter(|key| self.can_verify(key, now))
    }

    /// The key that writes exactly this encoded header, if its tokens are valid now.
    pub fn find(&self, purpose: Purpose, header: &str, now: Timestamp) -> Option<&SigningKey> {
        self.keys.iter().find(|key| key.header(purpose) == header).filter(|key| self.can_verify(key, now))
    }

    /// How long the tokens of a key stay valid.
    pub fn validity(&self, id: &KeyId) -> KeyValidity {
        match self.keys.iter().find(|key| key.id() == id) {
            None => KeyValidity::Gone,
            Some(key) => self.valid_until(key).map_or(KeyValidity::Open, KeyValidity::Until),
        }
    }

    /// How long the sessions that record this key stay valid. Those that record none: as long as the tokens of the oldest
    /// key, and not at all once a key has been removed.
    pub fn validity_of_sessions(&self, key: Option<&KeyId>) -> KeyValidity {
        match (key, self.keys.last()) {
            (Some(id), _) => self.validity(id),
            (None, Some(oldest)) if self.start_times.len() == self.keys.len() => self.validity(oldest.id()),
            (None, _) => KeyValidity::Gone,
        }
    }

    /// Whether this ring has every key of another.
    pub fn has_all_of(&self, other: &KeyRing) -> bool {
        other.keys.iter().all(|theirs| self.keys.iter().any(|own| own.id() == theirs.id()))
    }

    /// Whether another ring has the same keys and start times.
    pub fn is_same_as(&self, other: &KeyRing) -> bool {
        let starts = |ring: &KeyRing| ring.start_times.iter().copied().collect::<BTreeSet<_>>();
        self.has_all_of(other) && other.has_all_of(self) && starts(self) == starts(other)
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
            (key, state, end)
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
        self.keys.iter().filter(|key| self.can_verify(key, now) || asserted(key)).map(SigningKey::jwk).collect()
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

/// Generates a key and writes it to the key folder.
pub fn add(folder: &Path, algorithm: TokenAlgorithm, start: Timestamp) -> Result<KeyId, KeyFault> {
    let fault = |source| KeyFault::File { path: folder.to_owned(), source };
    create_private_folder(folder).map_err(fault)?;
    let (id, pem) = generate(algorithm, start).ok_or_else(|| KeyFault::NotAKey(folder.to_owned()))?;
    write_private(&key_path(folder, &id), pem.as_bytes()).map_err(fault)?;
    Ok(id)
}

/// Removes a key from the key folder.
pub fn remove(folder: &Path, key: &SigningKey, now: Timestamp) -> Result<(), KeyFault> {
    let path = key_path(folder, key.id());
    let fault = |source| KeyFault::File { path: path.clone(), source };
    if has_begun(key, now) {
        write_private(&path.with_extension(REMOVED), b"").map_err(fault)?;
    }
    match std::fs::remove_file(&path) {
        // Removed concurrently.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_folder(folder)).map_err(fault),
    }
}

fn key_path(folder: &Path, id: &KeyId) -> PathBuf {
    folder.join(format!("{id}.pem"))
}

#[cfg(test)]
mod tests;
