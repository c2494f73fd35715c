//! Reads and forges tokens, with the gateway's keys and with unknown ones.

use std::path::Path;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::Gateway;

/// Bytes as a token segment (unpadded base64url).
pub fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The header of a token, unverified.
pub fn header_of(token: &str) -> Value {
    part(token, 0)
}

/// The claims of a token, unverified.
pub fn claims_of(token: &str) -> Value {
    part(token, 1)
}

/// The session id of a token.
pub fn jti_of(token: &str) -> String {
    claims_of(token)["jti"].as_str().expect("a jti").to_owned()
}

fn part(token: &str, number: usize) -> Value {
    let text = token.split('.').nth(number).unwrap_or_else(|| panic!("no part {number} in {token}"));
    let bytes = URL_SAFE_NO_PAD.decode(text).expect("base64url");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// A private key.
pub enum Signer {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

impl Signer {
    /// The gateway's key that signed this token.
    pub fn of_gateway(desk: &Gateway, token: &str) -> Signer {
        let header = header_of(token);
        let kid = header["kid"].as_str().expect("a kid");
        let file = desk.data_dir().join("keys").join(format!("{kid}.pem"));
        Signer::from_pem_file(&file, header["alg"].as_str().expect("an alg"))
    }

    /// Reads a PKCS#8 PEM file.
    pub fn from_pem_file(file: &Path, algorithm: &str) -> Signer {
        let pem = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let text: String = pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
        let der = STANDARD.decode(text).expect("base64 in the PEM file");
        match algorithm {
            "EdDSA" => Signer::Ed25519(
                Ed25519KeyPair::from_pkcs8(&der)
                    .or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der))
                    .expect("an Ed25519 key"),
            ),
            "ES256" => {
                Signer::P256(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).expect("a P-256 key"))
            }
            other => panic!("no key of algorithm {other}"),
        }
    }

    /// A new Ed25519 key that the gateway does not know.
    pub fn unknown_ed25519() -> Signer {
        Signer::Ed25519(Ed25519KeyPair::generate().expect("a key"))
    }

    /// A new P-256 key that the gateway does not know.
    pub fn unknown_p256() -> Signer {
        Signer::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"))
    }

    /// The raw public key.
    pub fn public_key(&self) -> Vec<u8> {
        match self {
            Signer::Ed25519(key) => key.public_key().as_ref().to_vec(),
            Signer::P256(key) => key.public_key().as_ref().to_vec(),
        }
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Signer::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Signer::P256(key) => key.sign(&SystemRandom::new(), message).expect("a signature").as_ref().to_vec(),
        }
    }

    /// Signs a token with this header and these claims.
    pub fn token(&self, header: &Value, claims: &Value) -> String {
        self.token_of_text(header.to_string(), claims.to_string())
    }

    /// Signs a token with these segments, which need not be JSON.
    pub fn token_of_text(&self, header: impl AsRef<[u8]>, claims: impl AsRef<[u8]>) -> String {
        let message = format!("{}.{}", base64url(header), base64url(claims));
        let signature = self.sign(message.as_bytes());
        format!("{message}.{}", base64url(signature))
    }
}

/// Decodes base32, the encoding of TOTP secrets.
pub fn decode_base32(text: &str) -> Vec<u8> {
    let mut bits = String::new();
    for letter in text.bytes() {
        let value = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|known| *known == letter).expect("base32");
        bits.push_str(&format!("{value:05b}"));
    }
    (0..bits.len() / 8).map(|at| u8::from_str_radix(&bits[at * 8..at * 8 + 8], 2).expect("bits")).collect()
}
