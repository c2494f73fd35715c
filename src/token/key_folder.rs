//! The key folder: signing keys as files, one per key, PKCS#8 in PEM. The file name is the key id:
//! `eddsa-1800000000000-x7Kq2a.pem`. A removed key leaves an empty file `….removed` behind if it has signed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::key_file::{create_private_folder, sync_folder, write_private};
use super::ring::{KeyFault, KeyRing};
use super::stored_key::{KeyChange, PrivateKey, StoredKey};
use crate::config::TokenAlgorithm;
use crate::domain::clock::Timestamp;
use crate::domain::secret::Secret;
use crate::domain::session::KeyId;

const KEY: &str = "pem";

/// The extension of the file that a removed key leaves behind.
const REMOVED: &str = "removed";

const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";

const PEM_END: &str = "-----END PRIVATE KEY-----";

/// A folder of signing keys.
#[derive(Debug, Clone)]
pub struct KeyFolder {
    path: PathBuf,
}

impl KeyFolder {
    /// The folder need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads the folder. Generates a key that signs from now on if none has begun to sign, or if the newest has another
    /// algorithm.
    pub fn open_ring(&self, algorithm: TokenAlgorithm, grace: Duration, now: Timestamp) -> Result<KeyRing, KeyFault> {
        let newest = match self.read_ring(grace, now) {
            Ok(ring) if ring.newest().algorithm() == algorithm => return Ok(ring),
            Ok(ring) => Some(ring.newest().signs_from()),
            Err(KeyFault::Missing(_)) => None,
            Err(fault) => return Err(fault),
        };
        // Strictly after the newest: the order of two keys with the same start would be undefined.
        let start = newest.map_or(now, |newest| now.max(newest.plus(Duration::from_millis(1))));
        self.apply(&KeyChange::Put(StoredKey::generate(algorithm, start).ok_or(KeyFault::NotGenerated)?))?;
        self.read_ring(grace, now)
    }

    /// Reads the folder; at least one key must have begun to sign.
    pub fn read_ring(&self, grace: Duration, now: Timestamp) -> Result<KeyRing, KeyFault> {
        match KeyRing::new(&self.read()?, grace) {
            Ok(ring) if ring.has_begun(now) => Ok(ring),
            Ok(_) | Err(KeyFault::Empty) => Err(KeyFault::Missing(self.path.clone())),
            Err(fault) => Err(fault),
        }
    }

    /// The stored keys; none if the folder does not exist.
    pub fn read(&self) -> Result<Vec<StoredKey>, KeyFault> {
        let entries = match std::fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(file_fault(&self.path))?,
        };
        let mut keys = Vec::new();
        for entry in entries {
            let path = entry.map_err(file_fault(&self.path))?.path();
            let name = || KeyId::new(path.file_stem().unwrap_or_default().to_string_lossy());
            if path.extension().is_some_and(|extension| extension == REMOVED) {
                keys.push(StoredKey { id: name(), private: PrivateKey::Removed });
            } else if path.extension().is_some_and(|extension| extension == KEY) {
                let text = std::fs::read_to_string(&path).map_err(file_fault(&path))?;
                let not_pem = || io::Error::new(io::ErrorKind::InvalidData, "not a private key (PKCS#8) in PEM");
                let pkcs8 = decode_pem(&text).ok_or_else(not_pem).map_err(file_fault(&path))?;
                keys.push(StoredKey { id: name(), private: PrivateKey::Pkcs8(Secret::new(pkcs8)) });
            }
        }
        Ok(keys)
    }

    /// Changes the folder; durable when it returns.
    pub fn apply(&self, change: &KeyChange) -> Result<(), KeyFault> {
        create_private_folder(&self.path).map_err(file_fault(&self.path))?;
        match change {
            KeyChange::Put(StoredKey { id, private: PrivateKey::Pkcs8(pkcs8) }) => {
                let path = self.file(id, KEY);
                write_private(&path, encode_pem(pkcs8.reveal()).as_bytes()).map_err(file_fault(&path))
            }
            KeyChange::Put(StoredKey { id, private: PrivateKey::Removed }) => {
                let path = self.file(id, REMOVED);
                write_private(&path, b"").map_err(file_fault(&path))?;
                self.delete(id)
            }
            KeyChange::Put(StoredKey { id, private: PrivateKey::Unreadable }) => Err(KeyFault::Unreadable(id.clone())),
            KeyChange::Delete(id) => self.delete(id),
        }
    }

    fn delete(&self, id: &KeyId) -> Result<(), KeyFault> {
        let path = self.file(id, KEY);
        match std::fs::remove_file(&path) {
            // Removed before.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_folder(&self.path)).map_err(file_fault(&path)),
        }
    }

    fn file(&self, id: &KeyId, extension: &str) -> PathBuf {
        self.path.join(format!("{id}.{extension}"))
    }
}

fn file_fault(path: &Path) -> impl Fn(io::Error) -> KeyFault {
    let path = path.to_owned();
    move |source| KeyFault::File { path: path.clone(), source }
}

fn encode_pem(pkcs8: &[u8]) -> String {
    let base64 = STANDARD.encode(pkcs8);
    let lines: Vec<&str> = (0..base64.len()).step_by(64).map(|at| &base64[at..base64.len().min(at + 64)]).collect();
    format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", lines.join("\n"))
}

fn decode_pem(text: &str) -> Option<Vec<u8>> {
    let body = text.trim().strip_prefix(PEM_BEGIN)?.strip_suffix(PEM_END)?;
    let base64: String = body.split_whitespace().collect();
    STANDARD.decode(base64).ok()
}
