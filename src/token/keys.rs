//! One signing key: what it signs, what it believes, and its public half.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use crate::config::TokenAlgorithm;
use crate::domain::clock::Timestamp;
use crate::domain::secret::source;
use crate::domain::session::KeyId;
use crate::error::TokenFault;

/// What a signature is for. Each purpose has a header of its own, so that one cannot pass for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A caller's access token.
    Access,
    /// The gateway's word to an upstream.
    Assertion,
}

impl Purpose {
    fn kind(self) -> &'static str {
        match self {
            Purpose::Access => "at+jwt",
            Purpose::Assertion => "deskgate-assertion+jwt",
        }
    }
}

enum Pair {
    EdDSA(Box<Ed25519KeyPair>),
    ES256(Box<EcdsaKeyPair>),
}

/// One key pair.
pub struct Key {
    id: KeyId,
    start: Timestamp,
    pair: Pair,
    public: Vec<u8>,
    access_header: String,
    assertion_header: String,
}

#[derive(Serialize)]
struct Header<'a> {
    typ: &'a str,
    alg: &'a str,
    kid: &'a str,
}

impl Key {
    pub(super) fn from_pkcs8(id: &str, start: Timestamp, algorithm: TokenAlgorithm, document: &[u8]) -> Option<Self> {
        let (pair, public) = match algorithm {
            TokenAlgorithm::EdDSA => {
                let pair = Ed25519KeyPair::from_pkcs8(document).ok()?;
                let public = pair.public_key().as_ref().to_vec();
                (Pair::EdDSA(Box::new(pair)), public)
            }
            TokenAlgorithm::ES256 => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document).ok()?;
                let public = pair.public_key().as_ref().to_vec();
                (Pair::ES256(Box::new(pair)), public)
            }
        };
        let header = |purpose: Purpose| encode(&Header { typ: purpose.kind(), alg: name(algorithm), kid: id });
        Some(Self {
            id: KeyId::new(id),
            start,
            pair,
            public,
            access_header: header(Purpose::Access),
            assertion_header: header(Purpose::Assertion),
        })
    }

    /// The key's id, the `kid` of what it signs.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// From when on it signs.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// How it signs.
    pub fn algorithm(&self) -> TokenAlgorithm {
        match self.pair {
            Pair::EdDSA(_) => TokenAlgorithm::EdDSA,
            Pair::ES256(_) => TokenAlgorithm::ES256,
        }
    }

    pub(super) fn header(&self, purpose: Purpose) -> &str {
        match purpose {
            Purpose::Access => &self.access_header,
            Purpose::Assertion => &self.assertion_header,
        }
    }

    /// A signed JWT of these claims.
    pub fn sign(&self, purpose: Purpose, claims: &impl Serialize) -> String {
        let mut token = format!("{}.{}", self.header(purpose), encode(claims));
        let signature = match &self.pair {
            Pair::EdDSA(pair) => pair.sign(token.as_bytes()).as_ref().to_vec(),
            // Fails only without randomness; an empty signature is then refused by every reader.
            Pair::ES256(pair) => {
                pair.sign(&source(), token.as_bytes()).map(|signature| signature.as_ref().to_vec()).unwrap_or_default()
            }
        };
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }

    /// Whether this key signed the message.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.pair {
            Pair::EdDSA(_) => UnparsedPublicKey::new(&ED25519, &self.public).verify(message, signature).is_ok(),
            Pair::ES256(_) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public).verify(message, signature).is_ok()
            }
        }
    }

    /// Whether it believes what it signs.
    pub(super) fn works(&self) -> bool {
        let token = self.sign(Purpose::Assertion, &"self-test");
        token.rsplit_once('.').is_some_and(|(signed, signature)| {
            URL_SAFE_NO_PAD.decode(signature).is_ok_and(|signature| self.verify(signed.as_bytes(), &signature))
        })
    }

    /// The public half for `jwks.json`.
    pub fn jwk(&self) -> Jwk<'_> {
        let point = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(self.public.get(range).unwrap_or_default());
        let common =
            |kty, crv, x, y| Jwk { kty, crv, x, y, kid: self.id.as_str(), alg: name(self.algorithm()), usage: "sig" };
        match self.pair {
            Pair::EdDSA(_) => common("OKP", "Ed25519", URL_SAFE_NO_PAD.encode(&self.public), None),
            // 0x04, then the two coordinates of 32 bytes each.
            Pair::ES256(_) => common("EC", "P-256", point(1..33), Some(point(33..65))),
        }
    }
}

/// A public key as RFC 7517 writes it.
#[derive(Debug, Serialize)]
pub struct Jwk<'a> {
    kty: &'static str,
    crv: &'static str,
    x: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    kid: &'a str,
    alg: &'static str,
    #[serde(rename = "use")]
    usage: &'static str,
}

/// For the log: whether a header is of a key that we do not have, or not of our making at all.
pub fn why_not_ours(header: &str) -> TokenFault {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Ours {
        typ: String,
        alg: String,
        #[serde(rename = "kid")]
        _kid: String,
    }
    let decoded = URL_SAFE_NO_PAD.decode(header).ok();
    match decoded.and_then(|json| serde_json::from_slice::<Ours>(&json).ok()) {
        Some(ours) if ours.typ == Purpose::Access.kind() && matches!(ours.alg.as_str(), "EdDSA" | "ES256") => {
            TokenFault::UnknownKey
        }
        _ => TokenFault::Header,
    }
}

/// As RFC 7518 and RFC 8037 spell it.
pub fn name(algorithm: TokenAlgorithm) -> &'static str {
    match algorithm {
        TokenAlgorithm::EdDSA => "EdDSA",
        TokenAlgorithm::ES256 => "ES256",
    }
}

fn encode(value: &impl Serialize) -> String {
    // Our own plain structs: no map with foreign keys, nothing that cannot be written.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).unwrap_or_default())
}
