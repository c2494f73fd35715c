//! A signing key as it is stored, in a file or in the directory. Its id carries the algorithm and the time from which it
//! signs, in milliseconds: `eddsa-1800000000000-x7Kq2a`.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};

use super::keys::{SigningKey, algorithm_name};
use crate::config::TokenAlgorithm;
use crate::domain::clock::Timestamp;
use crate::domain::secret::{Secret, random_name, source};
use crate::domain::session::KeyId;

/// A stored signing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// The key's id.
    pub id: KeyId,
    /// Its private key, if it still has one.
    pub private: PrivateKey,
}

/// The private key of a stored key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrivateKey {
    /// A PKCS#8 document.
    Pkcs8(Secret<Vec<u8>>),
    /// The key was removed after it had begun to sign. Its start time still counts: without it, its predecessor would
    /// become valid again.
    Removed,
    /// It is encrypted with a key that this gateway does not have.
    Unreadable,
}

/// A change of the stored keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// Adds a key, or replaces what is stored under its id.
    Put(StoredKey),
    /// Deletes a key without a trace.
    Delete(KeyId),
}

impl StoredKey {
    /// Generates a key that signs from `start` on; `None` if the cryptographic library fails.
    pub fn generate(algorithm: TokenAlgorithm, start: Timestamp) -> Option<Self> {
        let random = source();
        let document = match algorithm {
            TokenAlgorithm::EdDSA => Ed25519KeyPair::generate_pkcs8(&random).ok()?.as_ref().to_vec(),
            TokenAlgorithm::ES256 => {
                EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?.as_ref().to_vec()
            }
        };
        let id = format!("{}-{}-{}", algorithm_name(algorithm).to_ascii_lowercase(), start.millis(), random_name(6));
        Some(Self { id: KeyId::new(id), private: PrivateKey::Pkcs8(Secret::new(document)) })
    }

    /// The change that removes a key: it leaves its start time behind if it has begun to sign.
    pub fn removal(key: &SigningKey, now: Timestamp) -> KeyChange {
        if key.signs_from() <= now {
            KeyChange::Put(Self { id: key.id().clone(), private: PrivateKey::Removed })
        } else {
            KeyChange::Delete(key.id().clone())
        }
    }

    /// When the key begins to sign, if its id says so.
    pub fn signs_from(&self) -> Option<Timestamp> {
        let millis = self.id.as_str().split('-').nth(1)?.parse().ok()?;
        Some(Timestamp::from_millis(millis))
    }

    /// The key pair of a PKCS#8 document, if it is of the kind that the id says.
    pub(super) fn signing_key(&self, pkcs8: &[u8]) -> Option<SigningKey> {
        let algorithm = match self.id.as_str().split('-').next()? {
            "eddsa" => TokenAlgorithm::EdDSA,
            "es256" => TokenAlgorithm::ES256,
            _ => return None,
        };
        SigningKey::from_pkcs8(self.id.as_str(), self.signs_from()?, algorithm, pkcs8)
    }
}
