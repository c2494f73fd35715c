//! Whoever would rather verify than trust: a JOSE library that is not the gateway's, and the published keys, nothing else.

use std::collections::HashSet;

use jsonwebtoken::jwk::{JwkSet, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;

use super::{Gateway, Recorded};

/// Reads tokens by what `/.well-known/jwks.json` says.
pub struct Verifier {
    keys: JwkSet,
    issuer: String,
}

impl Verifier {
    /// Fetches the keys.
    pub async fn of(desk: &Gateway) -> Verifier {
        let keys = desk.anyone().get("/.well-known/jwks.json").await.expect_status(200).json();
        Verifier { keys: serde_json::from_value(keys).expect("a JWK set"), issuer: desk.public_url() }
    }

    /// What an assertion says to this upstream, or why it is not believed.
    pub fn assertion(&self, token: &str, upstream: &str) -> Result<Value, String> {
        self.read(token, "deskgate-assertion+jwt", upstream)
    }

    /// What an access token says, or why it is not believed.
    pub fn access_token(&self, token: &str) -> Result<Value, String> {
        self.read(token, "at+jwt", "deskgate")
    }

    fn read(&self, token: &str, kind: &str, audience: &str) -> Result<Value, String> {
        let header = jsonwebtoken::decode_header(token).map_err(|error| error.to_string())?;
        if header.typ.as_deref() != Some(kind) {
            return Err(format!("it is of type {:?}", header.typ));
        }
        let key = header.kid.as_deref().and_then(|kid| self.keys.find(kid)).ok_or("no such key")?;
        // The key says how it signs, never the token.
        let algorithm = match key.common.key_algorithm {
            Some(KeyAlgorithm::EdDSA) => Algorithm::EdDSA,
            Some(KeyAlgorithm::ES256) => Algorithm::ES256,
            other => return Err(format!("a key for {other:?}")),
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

/// An upstream that takes assertions of requests only, and each once.
#[derive(Default)]
pub struct OnceOnly {
    seen: HashSet<String>,
}

impl OnceOnly {
    /// Takes a request whose assertion says this, or says why not.
    pub fn take(&mut self, claims: &Value, request: &Recorded) -> Result<(), &'static str> {
        let Some(id) = claims["jti"].as_str() else { return Err("it is not of a request") };
        if claims["htm"] != request.method.as_str() {
            return Err("another method");
        }
        if claims["path"].as_str() != request.target.split('?').next() {
            return Err("another path");
        }
        if self.seen.insert(id.to_owned()) { Ok(()) } else { Err("seen before") }
    }
}
