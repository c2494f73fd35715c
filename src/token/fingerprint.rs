//! Fingerprints of verified tokens: what the session cache knows a token by, so that it holds no token.
//!
//! A fingerprint is the authentication tag of AES-128-GCM over the whole token, with a random key of this process and one
//! nonce for all (GMAC as a universal hash). Using a nonce twice would reveal the key only to somebody who sees tags: they
//! stay in memory. A client that tries forged tokens matches one of `n` cached tokens with a probability of less than
//! `n × 2^-110` a try. GMAC takes about 0.1 µs for a token, HMAC-SHA-256 about 1 µs, and comparing whole tokens costs cache misses.

use std::hash::{Hash, Hasher};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::domain::secret::random_bytes;

/// A keyed hash of a whole token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenFingerprint([u8; 16]);

impl TokenFingerprint {
    /// The half of it that its hash does not use. Every bit of it depends on the whole token.
    pub fn bits(&self) -> u64 {
        let [.., last] = self.0.as_chunks().0 else { return 0 };
        u64::from_le_bytes(*last)
    }
}

impl Hash for TokenFingerprint {
    /// Half of it suffices: every bit of it depends on the whole token.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let [first, ..] = self.0.as_chunks().0 else { return };
        hasher.write_u64(u64::from_le_bytes(*first));
    }
}

/// Makes the fingerprints of tokens.
pub struct Fingerprinter {
    key: LessSafeKey,
}

impl Fingerprinter {
    /// Generates the key.
    #[allow(clippy::expect_used)]
    pub fn new() -> Self {
        // Fails only for a key of another length.
        let key = UnboundKey::new(&AES_128_GCM, &random_bytes::<16>()).expect("a key of 16 bytes");
        Self { key: LessSafeKey::new(key) }
    }

    /// The fingerprint of a token; `None` if the cipher fails, and then the token counts as unknown.
    pub fn fingerprint(&self, token: impl AsRef<[u8]>) -> Option<TokenFingerprint> {
        let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(token.as_ref()), &mut []).ok()?;
        tag.as_ref().try_into().ok().map(TokenFingerprint)
    }
}

impl Default for Fingerprinter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_token_counts() {
        let fingerprinter = Fingerprinter::new();
        let token = "eyJhbGciOiJFZERTQSJ9.".to_owned() + &"payload-".repeat(60) + "." + &"signature".repeat(9);
        let own = fingerprinter.fingerprint(&token).expect("a fingerprint");
        assert_eq!(fingerprinter.fingerprint(&token), Some(own));
        for position in 0..token.len() {
            let mut other = token.clone().into_bytes();
            other[position] ^= 1;
            let other = String::from_utf8(other).expect("ASCII");
            assert_ne!(fingerprinter.fingerprint(&other), Some(own), "byte {position}");
        }
        assert_ne!(fingerprinter.fingerprint(&token[1..]), Some(own));
        assert_ne!(fingerprinter.fingerprint(format!("{token}\0")), Some(own), "longer");
        assert_ne!(Fingerprinter::new().fingerprint(&token), Some(own), "another process");
    }
}
