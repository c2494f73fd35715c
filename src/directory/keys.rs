//! Signing keys of a fleet, encrypted with a key that the directory does not hold.

use async_trait::async_trait;

use super::DirectoryError;
use crate::domain::session::KeyId;
use crate::domain::write::WriteOutcome;

/// Counts the changes of the signing keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyGeneration(pub i64);

/// A signing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key's id.
    pub id: KeyId,
    /// The encrypted private key; `None` once the key was removed.
    pub private_key: Option<String>,
}

/// All signing keys at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRecordSet {
    /// The number of changes so far.
    pub generation: KeyGeneration,
    /// The records, in the order of their ids.
    pub records: Vec<KeyRecord>,
}

/// A change of a signing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRecordChange {
    /// Adds a record, or replaces the one with its id.
    Put(KeyRecord),
    /// Deletes the record with this id.
    Delete(KeyId),
}

/// The signing keys of a fleet.
#[async_trait]
pub trait KeyRecords: Send + Sync {
    /// How often the keys have changed. Cheap: every gateway asks twice a second.
    async fn key_generation(&self) -> Result<KeyGeneration, DirectoryError>;

    /// All keys, as of one moment.
    async fn key_records(&self) -> Result<KeyRecordSet, DirectoryError>;

    /// Makes all of these changes, or none. Conflicts if the keys have changed since generation `seen`: of several gateways
    /// that change them at the same time one succeeds, and the others look again.
    async fn change_keys(
        &self,
        seen: KeyGeneration,
        changes: &[KeyRecordChange],
    ) -> Result<WriteOutcome, DirectoryError>;
}
