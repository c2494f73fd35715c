//! All signing keys of this gateway, and their turns.
//!
//! Each key begins to sign at the time that its id names, and signs until the next one begins. What it has signed is
//! believed for `token.key_grace` longer. A key that is still to begin is published already: others who check our
//! signatures have it in hand when its turn comes. So the folder alone says everything, and no gateway has to be told
//! a state.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::assertion;
use super::key_file::{create_private_folder, make, parse, start_in, sync_folder, write_private};
use super::keys::{Jwk, Key, Purpose};
use crate::config::TokenAlgorithm;
use crate::domain::clock::Timestamp;
use crate::domain::session::KeyId;

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// The folder or a file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not a key of the kind that its name says.
    #[error("{0}: not a PKCS#8 private key of the kind its name says (eddsa-MILLISECONDS-NAME.pem, es256-…)")]
    NotAKey(PathBuf),
    /// There is no key to sign with.
    #[error("{0}: holds no key that has begun to sign")]
    Missing(PathBuf),
    /// A key cannot verify what it signed.
    #[error("key {0} failed its self-test")]
    SelfTest(KeyId),
}

/// Where a key stands.
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

/// What becomes of the sessions of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyValidity {
    /// The key is not here: its tokens are refused.
    Gone,
    /// Its tokens are believed until then.
    Until(Timestamp),
    /// No end is in sight.
    Open,
}

/// The keys, the one that begins last first.
pub struct KeyRing {
    keys: Vec<Key>,
    /// When each turn begins, those of removed keys included: without them, removing a key would bring the one
    /// before it back.
    turns: Vec<Timestamp>,
    grace: Duration,
}

/// A key that has signed leaves its name behind when it is removed.
const REMOVED: &str = "removed";

impl KeyRing {
    /// Reads the keys of a folder; makes one that signs from now on where the last is not of this algorithm, or
    /// where there is none.
    pub fn open(folder: &Path, algorithm: TokenAlgorithm, grace: Duration, now: Timestamp) -> Result<Self, KeyFault> {
        let last = match Self::read(folder, grace, now) {
            Ok(ring) if ring.keys.first().is_some_and(|key| key.algorithm() == algorithm) => return Ok(ring),
            Ok(ring) => ring.keys.first().map(Key::start),
            Err(KeyFault::Missing(_)) => None,
            Err(fault) => return Err(fault),
        };
        // After the last: of two that begin at the same time nobody could say which comes first.
        let start = last.map_or(now, |last| now.max(last.plus(Duration::from_millis(1))));
        add(folder, algorithm, start)?;
        Self::read(folder, grace, now)
    }

    /// Reads the keys of a folder, one of which must have begun to sign.
    pub fn read(folder: &Path, grace: Duration, now: Timestamp) -> Result<Self, KeyFault> {
        let fault = |path: &Path| {
            let path = path.to_owned();
            move |source| KeyFault::File { path, source }
        };
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(KeyFault::Missing(folder.to_owned())),
            entries => entries.map_err(fault(folder))?,
        };
        let (mut keys, mut turns) = (Vec::new(), Vec::new());
        for entry in entries {
            let path = entry.map_err(fault(folder))?.path();
            if path.extension().is_some_and(|extension| extension == REMOVED) {
                turns.extend(start_in(&path));
            } else if path.extension().is_some_and(|extension| extension == "pem") {
                let text = std::fs::read_to_string(&path).map_err(fault(&path))?;
                keys.push(parse(&path, &text).ok_or_else(|| KeyFault::NotAKey(path.clone()))?);
            }
        }
        if let Some(key) = keys.iter().find(|key| !key.works()) {
            return Err(KeyFault::SelfTest(key.id().clone()));
        }
        if !keys.iter().any(|key| has_begun(key, now)) {
            return Err(KeyFault::Missing(folder.to_owned()));
        }
        turns.extend(keys.iter().map(Key::start));
        keys.sort_by(|a, b| b.start().cmp(&a.start()).then_with(|| b.id().cmp(a.id())));
        Ok(Self { keys, turns, grace })
    }

    /// The key that signs.
    pub fn active(&self, now: Timestamp) -> &Key {
        // `read` never leaves the ring empty. A clock that was set back before the first key's time signs with it.
        self.keys.iter().find(|key| has_begun(key, now)).unwrap_or(&self.keys[self.keys.len() - 1])
    }

    /// The key of this id, if it is believed.
    pub fn verification_key(&self, id: &KeyId, now: Timestamp) -> Option<&Key> {
        self.keys.iter().find(|key| key.id() == id).filter(|key| self.can_verify(key, now))
    }

    /// The key whose header this is, to the byte, if it is believed.
    pub fn find(&self, purpose: Purpose, header: &str, now: Timestamp) -> Option<&Key> {
        self.keys.iter().find(|key| key.header(purpose) == header).filter(|key| self.can_verify(key, now))
    }

    /// Until when what a key signed is believed.
    pub fn validity(&self, id: &KeyId) -> KeyValidity {
        match self.keys.iter().find(|key| key.id() == id) {
            None => KeyValidity::Gone,
            Some(key) => self.end(key).map_or(KeyValidity::Open, KeyValidity::Until),
        }
    }

    /// Until when a token is believed of which nobody knows the key: as long as those of the oldest one, and not at all
    /// once a key was removed.
    pub fn validity_of_unknown(&self) -> KeyValidity {
        match self.keys.last() {
            Some(oldest) if self.turns.len() == self.keys.len() => self.validity(oldest.id()),
            _ => KeyValidity::Gone,
        }
    }

    /// Whether every key of another ring is here as well.
    pub fn has_all_of(&self, other: &KeyRing) -> bool {
        other.keys.iter().all(|theirs| self.keys.iter().any(|own| own.id() == theirs.id()))
    }

    /// Whether another ring has the same keys and the same turns.
    pub fn is_same_as(&self, other: &KeyRing) -> bool {
        let turns = |ring: &KeyRing| ring.turns.iter().copied().collect::<BTreeSet<_>>();
        self.has_all_of(other) && other.has_all_of(self) && turns(self) == turns(other)
    }

    /// Where each key stands, and until when it is believed, if that is known; the one that begins last first.
    pub fn states(&self, now: Timestamp) -> impl Iterator<Item = (&Key, KeyState, Option<Timestamp>)> {
        let active = self.active(now).id();
        self.keys.iter().map(move |key| {
            let end = self.end(key);
            let state = match end {
                Some(end) if now >= end => KeyState::Retired,
                _ if key.id() == active => KeyState::Signing,
                _ if has_begun(key, now) => KeyState::VerifyOnly,
                _ => KeyState::Pending,
            };
            (key, state, end)
        })
    }

    /// When the next key stops being believed.
    pub fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.keys.iter().filter_map(|key| self.end(key)).filter(|end| now < *end).min()
    }

    /// The public halves of all that are believed or still to come. A short grace is for our own tokens: what was
    /// asserted to upstreams just before a key's turn was over is still to be checked by them.
    pub fn jwks(&self, now: Timestamp) -> Vec<Jwk<'_>> {
        let asserted = |key: &Key| self.next_turn(key).is_none_or(|next| now < next.plus(assertion::LIFETIME));
        self.keys.iter().filter(|key| self.can_verify(key, now) || asserted(key)).map(Key::jwk).collect()
    }

    fn can_verify(&self, key: &Key, now: Timestamp) -> bool {
        self.end(key).is_none_or(|end| now < end)
    }

    fn end(&self, key: &Key) -> Option<Timestamp> {
        Some(self.next_turn(key)?.plus(self.grace))
    }

    fn next_turn(&self, key: &Key) -> Option<Timestamp> {
        self.turns.iter().copied().filter(|turn| *turn > key.start()).min()
    }
}

fn has_begun(key: &Key, now: Timestamp) -> bool {
    key.start() <= now
}

/// Puts a new key into a folder.
pub fn add(folder: &Path, algorithm: TokenAlgorithm, start: Timestamp) -> Result<KeyId, KeyFault> {
    let fault = |source| KeyFault::File { path: folder.to_owned(), source };
    create_private_folder(folder).map_err(fault)?;
    let (id, pem) = make(algorithm, start).ok_or_else(|| KeyFault::NotAKey(folder.to_owned()))?;
    write_private(&file_of(folder, &id), pem.as_bytes()).map_err(fault)?;
    Ok(id)
}

/// Takes a key out of a folder.
pub fn remove(folder: &Path, key: &Key, now: Timestamp) -> Result<(), KeyFault> {
    let path = file_of(folder, key.id());
    let fault = |source| KeyFault::File { path: path.clone(), source };
    if has_begun(key, now) {
        write_private(&path.with_extension(REMOVED), b"").map_err(fault)?;
    }
    match std::fs::remove_file(&path) {
        // Somebody was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_folder(folder)).map_err(fault),
    }
}

fn file_of(folder: &Path, id: &KeyId) -> PathBuf {
    folder.join(format!("{id}.pem"))
}

#[cfg(test)]
mod tests;
