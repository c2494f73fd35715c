//! One signing key: signs and verifies JWTs with the `jsonwebtoken` crate and describes its public half as a JWK.
//!
//! Which key signs when is decided in [`super::ring`].

use std::cell::RefCell;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::{self, JwtSigner, aws_lc};
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use serde::Serialize;

use crate::config::TokenAlgorithm;
use crate::domain::clock::Timestamp;
use crate::domain::session::KeyId;
use crate::error::TokenFault;

/// What a JWT is for. Each purpose has its own `typ`, so that one cannot be used as the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A caller's access token.
    Access,
    /// An identity assertion for an upstream.
    Assertion,
}

impl Purpose {
    fn typ(self) -> &'static str {
        match self {
            Purpose::Access => "at+jwt",
            Purpose::Assertion => "deskgate-assertion+jwt",
        }
    }
}

/// The signer of the key that signed last, and that key's public key.
type CachedSigner = (Vec<u8>, Box<dyn JwtSigner>);

thread_local! {
    /// A signer parses and checks the private key when it is made, which costs more than the signature, and is not
    /// `Send`; so every thread keeps one.
    static SIGNER: RefCell<Option<CachedSigner>> = const { RefCell::new(None) };
}

/// A key pair that signs and verifies tokens and assertions.
pub struct SigningKey {
    id: KeyId,
    signs_from: Timestamp,
    algorithm: TokenAlgorithm,
    private: EncodingKey,
    public: DecodingKey,
    jwk: Jwk,
    access_header: String,
    assertion_header: String,
}

#[derive(Serialize)]
struct JwtHeader<'a> {
    typ: &'a str,
    alg: &'a str,
    kid: &'a str,
}

impl SigningKey {
    pub(super) fn from_pkcs8(id: &str, signs_from: Timestamp, algorithm: TokenAlgorithm, pkcs8: &[u8]) -> Option<Self> {
        let (private, public) = match algorithm {
            TokenAlgorithm::EdDSA => {
                let pair = Ed25519KeyPair::from_pkcs8(pkcs8).ok()?;
                (EncodingKey::from_ed_der(pkcs8), DecodingKey::from_ed_der(pair.public_key().as_ref()))
            }
            TokenAlgorithm::ES256 => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).ok()?;
                (EncodingKey::from_ec_der(pkcs8), DecodingKey::from_ec_der(pair.public_key().as_ref()))
            }
        };
        let mut jwk = Jwk::from_decoding_key(&public, Some(jose_algorithm(algorithm))).ok()?;
        jwk.common.key_id = Some(id.to_owned());
        jwk.common.public_key_use = Some(PublicKeyUse::Signature);
        let header = |purpose: Purpose| {
            encode_segment(&JwtHeader { typ: purpose.typ(), alg: algorithm_name(algorithm), kid: id })
        };
        Some(Self {
            id: KeyId::new(id),
            signs_from,
            algorithm,
            private,
            public,
            jwk,
            access_header: header(Purpose::Access),
            assertion_header: header(Purpose::Assertion),
        })
    }

    /// The key's id, the `kid` of the tokens that it signs.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// When the key begins to sign.
    pub fn signs_from(&self) -> Timestamp {
        self.signs_from
    }

    /// The signature algorithm.
    pub fn algorithm(&self) -> TokenAlgorithm {
        self.algorithm
    }

    /// Whether it makes the same signature of the same message each time. EdDSA does (RFC 8032); ECDSA draws a random number.
    pub(super) fn is_deterministic(&self) -> bool {
        match self.algorithm {
            TokenAlgorithm::EdDSA => true,
            TokenAlgorithm::ES256 => false,
        }
    }

    /// The encoded JWT header, byte for byte as this key writes it.
    pub(super) fn header(&self, purpose: Purpose) -> &str {
        match purpose {
            Purpose::Access => &self.access_header,
            Purpose::Assertion => &self.assertion_header,
        }
    }

    /// Signs these claims as a JWT.
    pub fn sign(&self, purpose: Purpose, claims: &impl Serialize) -> String {
        let mut token = format!("{}.{}", self.header(purpose), encode_segment(claims));
        let signature = self.signature(token.as_bytes());
        token.push('.');
        // Signing was tried when the key was loaded; it can fail only without randomness, and then the token has an
        // empty signature, which every reader refuses.
        URL_SAFE_NO_PAD.encode_string(signature.unwrap_or_default(), &mut token);
        token
    }

    fn signature(&self, message: &[u8]) -> Option<Vec<u8>> {
        let public = self.public.try_get_as_bytes().ok()?;
        SIGNER.with_borrow_mut(|cached| {
            let signer = match cached {
                Some((key, signer)) if key == public => signer,
                other => {
                    let new_signer = aws_lc::DEFAULT_PROVIDER.signer_factory;
                    let signer = new_signer(&jose_algorithm(self.algorithm), &self.private).ok()?;
                    &mut other.insert((public.to_vec(), signer)).1
                }
            };
            signer.try_sign(message).ok()
        })
    }

    /// Verifies the base64url signature of `message`, the header and payload segments of a JWT.
    pub fn verify(&self, message: &str, signature: &str) -> Result<(), TokenFault> {
        match crypto::verify(signature, message.as_bytes(), &self.public, jose_algorithm(self.algorithm)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(TokenFault::Signature),
            // The signature is not canonical base64url.
            Err(_) => Err(TokenFault::Malformed),
        }
    }

    /// Whether the key verifies what it signs; tried when the key is loaded.
    pub(super) fn passes_self_test(&self) -> bool {
        let token = self.sign(Purpose::Assertion, &"self-test");
        token.rsplit_once('.').is_some_and(|(message, signature)| self.verify(message, signature).is_ok())
    }

    /// The public key for `jwks.json`.
    pub fn jwk(&self) -> &Jwk {
        &self.jwk
    }
}

/// Tells, for the log, a header of a key that we do not have from a header that we would never have written.
pub fn classify_foreign_header(header: &str) -> TokenFault {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct OurHeader {
        typ: String,
        alg: String,
        #[serde(rename = "kid")]
        _kid: String,
    }
    let decoded = URL_SAFE_NO_PAD.decode(header).ok();
    match decoded.and_then(|json| serde_json::from_slice::<OurHeader>(&json).ok()) {
        Some(header) if header.typ == Purpose::Access.typ() && matches!(header.alg.as_str(), "EdDSA" | "ES256") => {
            TokenFault::UnknownKey
        }
        _ => TokenFault::Header,
    }
}

/// The algorithm's name in JOSE (RFC 7518, RFC 8037).
pub fn algorithm_name(algorithm: TokenAlgorithm) -> &'static str {
    match algorithm {
        TokenAlgorithm::EdDSA => "EdDSA",
        TokenAlgorithm::ES256 => "ES256",
    }
}

fn jose_algorithm(algorithm: TokenAlgorithm) -> Algorithm {
    match algorithm {
        TokenAlgorithm::EdDSA => Algorithm::EdDSA,
        TokenAlgorithm::ES256 => Algorithm::ES256,
    }
}

fn encode_segment(value: &impl Serialize) -> String {
    // Serialising our own structs cannot fail: they have no maps with non-string keys.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).unwrap_or_default())
}
