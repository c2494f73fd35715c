//! The root secret of `server.secret_file`, and the keys that are derived from it.
//!
//! A fleet shares this one file, and every gateway derives the same keys: HKDF-SHA256 (RFC 5869) with one label for
//! each purpose. Keys of different purposes tell nothing about each other, and none of them about the secret.

use std::fmt;
use std::io;
use std::path::Path;

use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::domain::secret::random_bytes;

/// Separates these keys from those of other programs that are given the same secret.
const SALT: &[u8] = b"deskgate";

/// The least that a secret may hold, in bits.
const LEAST_BITS: usize = 256;

/// Random contents have more different bytes than this; even 64 random hexadecimal digits have 16 or hardly fewer.
const LEAST_DIFFERENT_BYTES: usize = 10;

/// What a derived key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPurpose {
    /// Signs cookies.
    Cookies,
    /// Encrypts one-time-password secrets.
    OneTimePasswords,
    /// Encrypts the results of callbacks in the store.
    CallbackResults,
    /// Encrypts the signing keys in the directory.
    SigningKeys,
}

impl KeyPurpose {
    fn label(self) -> &'static [u8] {
        match self {
            KeyPurpose::Cookies => b"deskgate cookies v1",
            KeyPurpose::OneTimePasswords => b"deskgate one-time passwords v1",
            KeyPurpose::CallbackResults => b"deskgate callback results v1",
            KeyPurpose::SigningKeys => b"deskgate signing keys v1",
        }
    }
}

/// Why a secret is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WeakSecret {
    /// Nothing but whitespace.
    #[error("the file is empty; create a secret with `deskgate secret new`")]
    Empty,
    /// Fewer than 256 bits.
    #[error(
        "the secret is too short: it needs 256 bits, such as 32 raw bytes, 43 base64 or 64 hexadecimal digits; create one \
         with `deskgate secret new` or `openssl rand -base64 48`"
    )]
    Short,
    /// A repeated pattern or a padded word.
    #[error("the secret is not random; create one with `deskgate secret new` or `openssl rand -base64 48`")]
    Guessable,
}

/// A root secret.
#[derive(Clone, PartialEq, Eq)]
pub struct RootSecret(Vec<u8>);

impl RootSecret {
    /// Reads a secret file.
    pub fn read(file: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        let bytes = std::fs::read(file).map_err(named)?;
        Self::parse(&bytes).map_err(|why| named(io::Error::new(io::ErrorKind::InvalidData, why)))
    }

    /// Takes the contents of a secret file. Whitespace around a text does not count, so that an editor's or a shell's line
    /// end makes no other secret of it; raw bytes are taken as they are.
    pub fn parse(bytes: &[u8]) -> Result<Self, WeakSecret> {
        let is_text = bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        let secret = if is_text { bytes.trim_ascii() } else { bytes };
        let bits_per_byte = match secret {
            hexadecimal if hexadecimal.iter().all(u8::is_ascii_hexdigit) => 4,
            _ if is_text => 6,
            _ => 8,
        };
        if secret.is_empty() {
            return Err(WeakSecret::Empty);
        }
        if secret.len() * bits_per_byte < LEAST_BITS {
            return Err(WeakSecret::Short);
        }
        let mut different = secret.to_vec();
        different.sort_unstable();
        different.dedup();
        if different.len() < LEAST_DIFFERENT_BYTES {
            return Err(WeakSecret::Guessable);
        }
        Ok(Self(secret.to_vec()))
    }

    /// The text of a new secret file.
    pub fn generate() -> String {
        STANDARD.encode(random_bytes::<48>())
    }

    /// The key of one purpose.
    pub fn derive(&self, purpose: KeyPurpose) -> [u8; 32] {
        hkdf(SALT, &self.0, purpose.label())
    }
}

impl fmt::Debug for RootSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootSecret(***)")
    }
}

/// HKDF-SHA256 with an output of 32 bytes.
#[allow(clippy::expect_used)]
fn hkdf(salt: &[u8], secret: &[u8], info: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let pseudorandom = Salt::new(HKDF_SHA256, salt).extract(secret);
    // Both fail only for another length than the algorithm's 32 bytes.
    let info = [info];
    let output = pseudorandom.expand(&info, HKDF_SHA256).expect("an output of 32 bytes");
    output.fill(&mut key).expect("a buffer of 32 bytes");
    key
}

#[cfg(test)]
mod tests;
