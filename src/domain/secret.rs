//! Secrets that do not print themselves, and the only source of randomness.

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

    /// The value, where it is really needed.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl Secret<String> {
    /// Writes the value itself, for the one answer that hands it to its owner (`serialize_with`).
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

/// The operating system's randomness, for what makes keys and signatures.
pub fn source() -> SystemRandom {
    SystemRandom::new()
}

/// Letters and digits only: what the platform allows in `state`, and safe everywhere else.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Random bytes from the operating system.
///
/// A machine that cannot give randomness can issue nothing safely, so the process ends there.
#[allow(clippy::expect_used)]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Fails only where the operating system has no entropy source at all; going on would make guessable tokens.
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// A random name of letters and digits; 22 of them carry 130 bits.
pub fn random_name(length: usize) -> String {
    let mut name = String::with_capacity(length);
    while name.len() < length {
        for byte in random_bytes::<32>() {
            // 248 = 4 · 62: larger bytes would favour the first letters.
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

/// Stands for a secret where the secret itself must not be kept: its SHA-256, in base64url.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// Of these words in their order.
    pub fn of(words: &[&str]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for word in words {
            context.update(&(word.len() as u64).to_le_bytes());
            context.update(word.as_bytes());
        }
        Self(URL_SAFE_NO_PAD.encode(context.finish()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Compares without telling by its time where the difference is.
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(left, right).is_ok()
}
