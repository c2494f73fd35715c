//! Where signing keys are stored: in the key folder of one gateway, or encrypted in the directory of a fleet.

use std::sync::Arc;

use crate::directory::keys::{KeyGeneration, KeyRecord, KeyRecordChange};
use crate::directory::{Directory, DirectoryError};
use crate::domain::secret::Secret;
use crate::domain::session::KeyId;
use crate::domain::write::WriteOutcome;
use crate::token::key_folder::KeyFolder;
use crate::token::ring::KeyFault;
use crate::token::stored_key::{KeyChange, PrivateKey, StoredKey};
use crate::token::vault::Vault;

/// Why signing keys cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A key or its file is at fault.
    #[error(transparent)]
    Fault(#[from] KeyFault),
    /// The directory failed.
    #[error("cannot use the signing keys in the directory")]
    Directory(#[from] DirectoryError),
    /// Other gateways changed the keys each time.
    #[error("other gateways are changing the signing keys at the same time; try again")]
    Busy,
    /// The keys are in the directory, and the secret that decrypts them is not set.
    #[error("the directory holds signing keys that are encrypted with the secret of a fleet; set server.secret_file")]
    NoSecret,
    /// Keys were to be copied to where there are others.
    #[error("key {0} is at the destination only; keys are copied to a place that has none but those of the source")]
    OtherKeys(KeyId),
}

/// The stored keys at one moment.
#[derive(Debug)]
pub(super) struct KeySnapshot {
    pub(super) generation: KeyGeneration,
    pub(super) keys: Vec<StoredKey>,
}

/// Where signing keys are stored.
pub enum KeyStorage {
    /// In files, which one process changes at a time.
    Folder(KeyFolder),
    /// In the directory, which all gateways of a fleet change.
    Directory(DirectoryKeys),
}

impl KeyStorage {
    /// How many keys there are, with those that were removed.
    pub async fn count(&self) -> Result<usize, KeyError> {
        Ok(self.read().await?.keys.len())
    }

    pub(super) async fn read(&self) -> Result<KeySnapshot, KeyError> {
        match self {
            KeyStorage::Folder(folder) => {
                Ok(KeySnapshot { generation: KeyGeneration::default(), keys: folder.read()? })
            }
            KeyStorage::Directory(keys) => keys.read().await,
        }
    }

    /// Makes these changes. Conflicts if the stored keys have changed since generation `seen`.
    pub(super) async fn apply(&self, seen: KeyGeneration, changes: &[KeyChange]) -> Result<WriteOutcome, KeyError> {
        match self {
            KeyStorage::Folder(folder) => {
                changes.iter().try_for_each(|change| folder.apply(change))?;
                Ok(WriteOutcome::Applied)
            }
            KeyStorage::Directory(keys) => keys.apply(seen, changes).await,
        }
    }
}

/// Signing keys in the directory. Their ids are readable, their private keys are encrypted.
pub struct DirectoryKeys {
    directory: Arc<dyn Directory>,
    vault: Box<Vault>,
}

/// The associated data that ties an encrypted private key to its id.
fn associated_data(id: &KeyId) -> String {
    format!("signing-key:{id}")
}

impl DirectoryKeys {
    /// `vault` encrypts and decrypts the private keys.
    pub fn new(directory: Arc<dyn Directory>, vault: Vault) -> Self {
        Self { directory, vault: Box::new(vault) }
    }

    pub(super) async fn generation(&self) -> Result<KeyGeneration, KeyError> {
        Ok(self.directory.key_generation().await?)
    }

    async fn read(&self) -> Result<KeySnapshot, KeyError> {
        let set = self.directory.key_records().await?;
        let keys = set.records.into_iter().map(|record| self.decrypted(record)).collect();
        Ok(KeySnapshot { generation: set.generation, keys })
    }

    async fn apply(&self, seen: KeyGeneration, changes: &[KeyChange]) -> Result<WriteOutcome, KeyError> {
        let changes = changes.iter().map(|change| self.encrypted(change)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.directory.change_keys(seen, &changes).await?)
    }

    /// Encrypts the keys of previous secrets again with the current one. Returns how many keys it changed.
    pub(super) async fn renew(&self) -> Result<usize, KeyError> {
        let prefix = self.vault.current_prefix();
        for _ in 0..super::ATTEMPTS {
            let set = self.directory.key_records().await?;
            let is_old = |record: &KeyRecord| record.private_key.as_ref().is_some_and(|key| !key.starts_with(&prefix));
            let old = set.records.into_iter().filter(is_old).map(|record| self.decrypted(record));
            let old: Vec<KeyChange> =
                old.filter(|key| key.private != PrivateKey::Unreadable).map(KeyChange::Put).collect();
            if old.is_empty() || self.apply(set.generation, &old).await? == WriteOutcome::Applied {
                return Ok(old.len());
            }
        }
        Err(KeyError::Busy)
    }

    /// How many keys are encrypted with another secret than the current one.
    pub(super) async fn count_old(&self) -> Result<usize, KeyError> {
        let prefix = self.vault.current_prefix();
        let records = self.directory.key_records().await?.records;
        Ok(records
            .iter()
            .filter_map(|record| record.private_key.as_ref())
            .filter(|key| !key.starts_with(&prefix))
            .count())
    }

    fn decrypted(&self, record: KeyRecord) -> StoredKey {
        let private = match record.private_key {
            None => PrivateKey::Removed,
            Some(encrypted) => match self.vault.decrypt(&encrypted, &associated_data(&record.id)) {
                Some(pkcs8) => PrivateKey::Pkcs8(Secret::new(pkcs8)),
                None => PrivateKey::Unreadable,
            },
        };
        StoredKey { id: record.id, private }
    }

    fn encrypted(&self, change: &KeyChange) -> Result<KeyRecordChange, KeyFault> {
        let key = match change {
            KeyChange::Delete(id) => return Ok(KeyRecordChange::Delete(id.clone())),
            KeyChange::Put(key) => key,
        };
        let private_key = match &key.private {
            PrivateKey::Pkcs8(pkcs8) => Some(self.vault.encrypt(pkcs8.reveal(), &associated_data(&key.id))),
            PrivateKey::Removed => None,
            PrivateKey::Unreadable => return Err(KeyFault::Unreadable(key.id.clone())),
        };
        Ok(KeyRecordChange::Put(KeyRecord { id: key.id.clone(), private_key }))
    }
}
