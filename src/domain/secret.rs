//! Secrets that are not printed, digests, constant-time comparison and the only source of randomness.

#![expect(clippy::disallowed_methods, reason = "the home of randomness")]

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// A value that must not reach a log: its `Debug` prints `***`.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl Secret<String> {
    /// Serialises the value itself, for the response that hands it to its owner (`serialize_with`).
    pub fn hand_out<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

/// The operating system's random source, for generating keys.
pub fn source() -> SystemRandom {
    SystemRandom::new()
}

/// Letters and digits only: the platform allows nothing else in `state`.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Random bytes from the operating system.
///
/// Panics if the operating system has none: the gateway could issue nothing safely.
#[allow(clippy::expect_used)]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Fails only without any entropy source; continuing would issue guessable tokens.
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// A random string of letters and digits; 22 characters carry 130 bits.
pub fn random_name(length: usize) -> String {
    let mut name = String::with_capacity(length);
    while name.len() < length {
        for byte in random_bytes::<32>() {
            // 248 = 4 · 62: larger bytes would bias towards the first letters.
            if byte < 248 && name.len() < length {
                name.push(char::from(ALPHABET[usize::from(byte % 62)]));
            }
        }
    }
    name
}

/// A random number below `bound`, which must not be zero.
pub fn random_below(bound: u32) -> u32 {
    // 2^64 is so much larger than any `bound` that the bias is below 2^-32.
    let wide = u64::from_le_bytes(random_bytes::<8>());
    u32::try_from(wide % u64::from(bound)).unwrap_or(0)
}

/// A SHA-256 digest in base64url, stored in place of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// Hashes these parts in order; each is prefixed with its length.
    pub fn of(parts: &[&str]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        Self(URL_SAFE_NO_PAD.encode(context.finish()))
    }

    /// Wraps a digest that was read from the store.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The digest as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Compares in constant time.
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(left, right).is_ok()
}
