//! Verifies tokens and assertions as an upstream would: an independent JOSE library and the published JWKS.

use std::collections::HashSet;

use jsonwebtoken::jwk::{JwkSet, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;

use super::{Gateway, RecordedRequest};

/// Verifies tokens with the keys of `/.well-known/jwks.json`.
pub struct Verifier {
    keys: JwkSet,
    issuer: String,
}

impl Verifier {
    /// Fetches the keys.
    pub async fn of(desk: &Gateway) -> Verifier {
        let keys = desk.anonymous().get("/.well-known/jwks.json").await.expect_status(200).json();
        Verifier { keys: serde_json::from_value(keys).expect("a JWK set"), issuer: desk.public_url() }
    }

    /// The claims of an assertion for this upstream, or the reason of its rejection.
    pub fn assertion(&self, token: &str, upstream: &str) -> Result<Value, String> {
        self.read(token, "deskgate-assertion+jwt", upstream)
    }

    /// The claims of an access token, or the reason of its rejection.
    pub fn access_token(&self, token: &str) -> Result<Value, String> {
        self.read(token, "at+jwt", "deskgate")
    }

    fn read(&self, token: &str, kind: &str, audience: &str) -> Result<Value, String> {
        let header = jsonwebtoken::decode_header(token).map_err(|error| error.to_string())?;
        if header.typ.as_deref() != Some(kind) {
            return Err(format!("unexpected type {:?}", header.typ));
        }
        let key = header.kid.as_deref().and_then(|kid| self.keys.find(kid)).ok_or("unknown key")?;
        // The algorithm comes from the key, never from the token.
        let algorithm = match key.common.key_algorithm {
            Some(KeyAlgorithm::EdDSA) => Algorithm::EdDSA,
            Some(KeyAlgorithm::ES256) => Algorithm::ES256,
            other => return Err(format!("unsupported algorithm {other:?}")),
        };
        let mut validation = Validation::new(algorithm);
        validation.set_audience(&[audience]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_required_spec_claims(&["exp", "nbf", "aud", "iss", "sub"]);
        validation.validate_nbf = true;
        validation.leeway = 0;
        let key = DecodingKey::from_jwk(key).map_err(|error| error.to_string())?;
        let read = jsonwebtoken::decode::<Value>(token, &key, &validation);
        read.map(|read| read.claims).map_err(|error| error.to_string())
    }
}

/// Replay protection of an upstream: accepts only request assertions, each once.
#[derive(Default)]
pub struct ReplayGuard {
    seen: HashSet<String>,
}

impl ReplayGuard {
    /// Accepts a request with these assertion claims, or returns the reason of its rejection.
    pub fn take(&mut self, claims: &Value, request: &RecordedRequest) -> Result<(), &'static str> {
        let Some(id) = claims["jti"].as_str() else { return Err("no request assertion") };
        if claims["htm"] != request.method.as_str() {
            return Err("another method");
        }
        if claims["path"].as_str() != request.target.split('?').next() {
            return Err("another path");
        }
        if self.seen.insert(id.to_owned()) { Ok(()) } else { Err("seen before") }
    }
}
