//! Opens the signing keys at start: creates the first one, imports those of the key folder, encrypts them again after the
//! secret was changed; and copies them between a folder and a directory.

use std::collections::BTreeSet;

use super::storage::{DirectoryKeys, KeyError, KeySnapshot, KeyStorage};
use super::{ATTEMPTS, KeySettings, spread_start};
use crate::directory::keys::KeyGeneration;
use crate::domain::clock::Timestamp;
use crate::domain::session::KeyId;
use crate::domain::write::WriteOutcome;
use crate::token::key_folder::KeyFolder;
use crate::token::ring::{KeyFault, KeyRing};
use crate::token::stored_key::{KeyChange, StoredKey};

/// The keys that a gateway starts with.
pub struct OpenedKeys {
    /// The keys.
    pub ring: KeyRing,
    /// Which state of the storage they are.
    pub generation: KeyGeneration,
}

impl KeyStorage {
    /// Reads the keys, and creates one if there is none, or if the newest has another algorithm. In the directory of a
    /// fleet, all gateways that start at the same time end up with the same keys.
    ///
    /// `import` is a key folder whose keys a directory takes over that never had any: tokens that they signed stay valid.
    pub async fn open(
        &self,
        settings: &KeySettings,
        import: &KeyFolder,
        now: Timestamp,
    ) -> Result<OpenedKeys, KeyError> {
        match self {
            KeyStorage::Folder(folder) => {
                let ring = folder.open_ring(settings.algorithm, settings.grace, now)?;
                Ok(OpenedKeys { ring, generation: KeyGeneration::default() })
            }
            KeyStorage::Directory(keys) => {
                let opened = self.open_shared(settings, import, now).await?;
                note_renewed(keys).await?;
                Ok(opened)
            }
        }
    }

    async fn open_shared(
        &self,
        settings: &KeySettings,
        import: &KeyFolder,
        now: Timestamp,
    ) -> Result<OpenedKeys, KeyError> {
        for _ in 0..ATTEMPTS {
            let KeySnapshot { generation, keys } = self.read().await?;
            let changes = match KeyRing::of_fleet(&keys, settings.grace) {
                Ok(ring) if !needs_key(&ring, settings, now) => return Ok(OpenedKeys { ring, generation }),
                Ok(ring) => vec![new_key(settings, spread_start(&ring, now.plus(settings.lead), now))?],
                Err(KeyFault::Empty) => first_keys(settings, generation, import, now)?,
                Err(fault) => return Err(fault.into()),
            };
            self.apply(generation, &changes).await?;
        }
        Err(KeyError::Busy)
    }
}

/// Whether the newest key is of another algorithm than the configured one. A pending key is not replaced: gateways with
/// different configurations must not replace each other's keys at every start.
fn needs_key(ring: &KeyRing, settings: &KeySettings, now: Timestamp) -> bool {
    ring.newest().algorithm() != settings.algorithm && ring.newest().signs_from() <= now
}

/// The first keys of a directory: those of the key folder, otherwise a new one.
fn first_keys(
    settings: &KeySettings,
    generation: KeyGeneration,
    import: &KeyFolder,
    now: Timestamp,
) -> Result<Vec<KeyChange>, KeyError> {
    let files = if generation == KeyGeneration::default() { import.read()? } else { Vec::new() };
    match KeyRing::new(&files, settings.grace) {
        Ok(_) => {}
        Err(KeyFault::Empty) => return Ok(vec![new_key(settings, now)?]),
        Err(fault) => return Err(fault.into()),
    }
    tracing::info!(
        target: "deskgate::audit",
        keys = files.len(),
        "moving the signing keys from the key folder to the directory; their files are no longer used"
    );
    Ok(files.into_iter().map(KeyChange::Put).collect())
}

pub(super) fn new_key(settings: &KeySettings, start: Timestamp) -> Result<KeyChange, KeyError> {
    let key = StoredKey::generate(settings.algorithm, start).ok_or(KeyFault::NotGenerated)?;
    Ok(KeyChange::Put(key))
}

/// Encrypts the keys of previous secrets again, and says so: an operator waits for it.
async fn note_renewed(keys: &DirectoryKeys) -> Result<(), KeyError> {
    let renewed = keys.renew().await?;
    if renewed > 0 {
        tracing::info!(
            target: "deskgate::audit",
            renewed,
            "all signing keys are encrypted with the current secret"
        );
    }
    Ok(())
}

/// Copies all keys to another storage, and returns how many there are. Repeating it completes a copy that was interrupted.
/// The destination must have no other keys: which key signs depends on all of them.
pub async fn copy_keys(from: &KeyStorage, to: &KeyStorage) -> Result<usize, KeyError> {
    for _ in 0..ATTEMPTS {
        let (source, target) = (from.read().await?, to.read().await?);
        let ids: BTreeSet<&KeyId> = source.keys.iter().map(|key| &key.id).collect();
        if let Some(other) = target.keys.iter().find(|key| !ids.contains(&key.id)) {
            return Err(KeyError::OtherKeys(other.id.clone()));
        }
        let missing = source.keys.iter().filter(|key| !target.keys.contains(key)).cloned();
        let missing: Vec<KeyChange> = missing.map(KeyChange::Put).collect();
        if missing.is_empty() || to.apply(target.generation, &missing).await? == WriteOutcome::Applied {
            return Ok(source.keys.len());
        }
    }
    Err(KeyError::Busy)
}
