//! Encrypts secrets at rest: the one-time-password secrets in the directory are useless without a key that the
//! directory does not hold.
//!
//! AES-256-GCM with a random nonce. A 96-bit random nonce is safe for 2^32 secrets under one key (NIST SP 800-38D,
//! 8.3); there is one secret per device. The format is `v1.<key id>.<nonce, ciphertext and tag in base64url>`. The key
//! id is derived from the key, so that operators do not have to name keys.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::domain::secret::random_bytes;

/// The format version. It is authenticated too, so that a later format cannot be passed off as this one.
const FORMAT: &str = "v1";

/// Encrypts with the current key; decrypts with the current and older keys.
pub struct Vault {
    current: VaultKey,
    older: Vec<VaultKey>,
}

impl Vault {
    /// Encrypts with `current`; decrypts with `current` and `older`.
    pub fn new(current: &[u8; 32], older: &[[u8; 32]]) -> Self {
        Self { current: VaultKey::new(current), older: older.iter().map(VaultKey::new).collect() }
    }

    /// Encrypts a secret. `context` names its owner (`otp:corp/employee`) and is authenticated, so that a ciphertext
    /// copied into another account's row does not decrypt there.
    #[allow(clippy::expect_used)]
    pub fn encrypt(&self, plaintext: &[u8], context: &str) -> String {
        let nonce = random_bytes::<NONCE_LEN>();
        let mut body = plaintext.to_vec();
        let context = Aad::from(self.current.associated_data(context));
        // Fails only for more than 64 GiB.
        self.current
            .cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), context, &mut body)
            .expect("the secret fits into one message");
        self.current_prefix() + &URL_SAFE_NO_PAD.encode([&nonce[..], &body].concat())
    }

    /// Decrypts a secret of this context. Does not distinguish a damaged ciphertext, a moved one and one of a lost
    /// key.
    pub fn decrypt(&self, text: &str, context: &str) -> Option<Vec<u8>> {
        let (key, body) = self.find(text)?;
        let mut body = URL_SAFE_NO_PAD.decode(body).ok()?;
        let (nonce, ciphertext) = body.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plaintext = key.cipher.open_in_place(nonce, Aad::from(key.associated_data(context)), ciphertext).ok()?;
        Some(plaintext.to_vec())
    }

    /// Whether older keys are configured.
    pub fn has_older_keys(&self) -> bool {
        !self.older.is_empty()
    }

    /// The prefix of everything that the current key encrypts.
    pub fn current_prefix(&self) -> String {
        format!("{FORMAT}.{}.", self.current.id)
    }

    /// Hashes a text that is compared but must not be stored. Without the key a guess cannot be checked; another key
    /// gives another hash.
    pub fn keyed_hash(&self, text: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.current.hash_key, text.as_bytes()))
    }

    fn find<'t>(&self, text: &'t str) -> Option<(&VaultKey, &'t str)> {
        let (format, rest) = text.split_once('.')?;
        let (id, body) = rest.split_once('.')?;
        if format != FORMAT {
            return None;
        }
        let key = std::iter::once(&self.current).chain(&self.older).find(|key| key.id == id)?;
        Some((key, body))
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let older: Vec<&str> = self.older.iter().map(|key| key.id.as_str()).collect();
        f.debug_struct("Vault").field("current", &self.current.id).field("older", &older).finish()
    }
}

struct VaultKey {
    id: String,
    cipher: LessSafeKey,
    hash_key: hmac::Key,
}

impl VaultKey {
    #[allow(clippy::expect_used)]
    fn new(key: &[u8; 32]) -> Self {
        // A keyed hash of a constant identifies the key without revealing it.
        let tagging = hmac::Key::new(hmac::HMAC_SHA256, key);
        let tag = hmac::sign(&tagging, b"deskgate vault key id");
        let id = URL_SAFE_NO_PAD.encode(&tag.as_ref()[..6]);
        // Fails only for a key of another length; the type says 32.
        let unbound = UnboundKey::new(&AES_256_GCM, key).expect("AES-256 takes 32 bytes");
        // A derived key, so that no keyed hash equals a tag made for another purpose.
        let hash_key = hmac::sign(&tagging, b"deskgate vault marks");
        let hash_key = hmac::Key::new(hmac::HMAC_SHA256, hash_key.as_ref());
        Self { id, cipher: LessSafeKey::new(unbound), hash_key }
    }

    /// The associated data that is authenticated with a secret. Neither the format nor the key id contains a dot, so
    /// the encoding is unambiguous.
    fn associated_data(&self, context: &str) -> String {
        format!("deskgate.{FORMAT}.{}.{context}", self.id)
    }
}

#[cfg(test)]
mod tests;
