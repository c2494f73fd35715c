//! Secrets at rest: what the database keeps of one-time-password devices is of no use without a key that the
//! database does not hold.
//!
//! AES-256-GCM with a random nonce. A random nonce of 96 bits is good for 2^32 secrets under one key (NIST SP 800-38D,
//! 8.3); a gateway closes one per device. The text is `v1.<key id>.<nonce, ciphertext and tag in base64url>`. The
//! key id comes from the key itself, so that nobody has to name keys and no name can be given twice.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::domain::secret::random_bytes;

/// The only form so far. It is also part of what is authenticated: a later form cannot be passed off as this one.
const FORM: &str = "v1";

/// Closes secrets with the current key, and opens those of older keys too.
pub struct Vault {
    current: VaultKey,
    older: Vec<VaultKey>,
}

impl Vault {
    /// Closes with `current`; opens with `current` and `older`.
    pub fn new(current: &[u8; 32], older: &[[u8; 32]]) -> Self {
        Self { current: VaultKey::new(current), older: older.iter().map(VaultKey::new).collect() }
    }

    /// Closes a secret. `about` says whose it is (`otp:corp/employee`); it is needed to open it, so that a secret
    /// copied into another account's row opens nothing there.
    #[allow(clippy::expect_used)]
    pub fn encrypt(&self, plain: &[u8], about: &str) -> String {
        let nonce = random_bytes::<NONCE_LEN>();
        let mut body = plain.to_vec();
        let about = Aad::from(self.current.about(about));
        // Fails only for more than 64 GiB.
        self.current
            .cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), about, &mut body)
            .expect("the secret fits into one message");
        self.current_prefix() + &URL_SAFE_NO_PAD.encode([&nonce[..], &body].concat())
    }

    /// The secret, if one of our keys closed it about this very thing. Does not say why not: a damaged text, a
    /// moved one and one of a lost key are all the same to whoever asks.
    pub fn decrypt(&self, text: &str, about: &str) -> Option<Vec<u8>> {
        let (key, body) = self.find(text)?;
        let mut body = URL_SAFE_NO_PAD.decode(body).ok()?;
        let (nonce, sealed) = body.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = key.cipher.open_in_place(nonce, Aad::from(key.about(about)), sealed).ok()?;
        Some(plain.to_vec())
    }

    /// Whether it opens what older keys have closed.
    pub fn has_older(&self) -> bool {
        !self.older.is_empty()
    }

    /// How every text begins that the current key has closed.
    pub fn current_prefix(&self) -> String {
        format!("{FORM}.{}.", self.current.id)
    }

    /// Stands for a text that is compared and must not be kept: nobody without the key can tell whether a guess at it
    /// is right. Another key gives another mark.
    pub fn keyed_hash(&self, text: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.current.marking, text.as_bytes()))
    }

    fn find<'t>(&self, text: &'t str) -> Option<(&VaultKey, &'t str)> {
        let (form, rest) = text.split_once('.')?;
        let (id, body) = rest.split_once('.')?;
        if form != FORM {
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
    marking: hmac::Key,
}

impl VaultKey {
    #[allow(clippy::expect_used)]
    fn new(key: &[u8; 32]) -> Self {
        // A keyed hash of a fixed word: tells keys apart and tells nothing about them.
        let tagging = hmac::Key::new(hmac::HMAC_SHA256, key);
        let tag = hmac::sign(&tagging, b"deskgate vault key id");
        let id = URL_SAFE_NO_PAD.encode(&tag.as_ref()[..6]);
        // Fails only for a key of another length; the type says 32.
        let unbound = UnboundKey::new(&AES_256_GCM, key).expect("AES-256 takes 32 bytes");
        // A key of its own, so that no mark is a tag that means something else.
        let marking = hmac::sign(&tagging, b"deskgate vault marks");
        let marking = hmac::Key::new(hmac::HMAC_SHA256, marking.as_ref());
        Self { id, cipher: LessSafeKey::new(unbound), marking }
    }

    /// What is authenticated beside the secret. Neither the form nor the key id can hold a dot, so no two differ only
    /// in where one ends.
    fn about(&self, about: &str) -> String {
        format!("deskgate.{FORM}.{}.{about}", self.id)
    }
}

#[cfg(test)]
mod tests;
