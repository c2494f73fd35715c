//! Verifies tokens and assertions as an upstream would: with the published JWKS and a JOSE library that the gateway does
//! not use.

use std::collections::HashSet;
use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use jwt_compact::alg::{Ed25519, Es256};
use jwt_compact::jwk::JsonWebKey;
use jwt_compact::{Algorithm, AlgorithmExt, UntrustedToken};
use serde_json::Value;

use super::{Gateway, RecordedRequest, claims_of};

/// Verifies tokens with the keys of `/.well-known/jwks.json`.
pub struct Verifier {
    keys: Vec<Value>,
    issuer: String,
}

impl Verifier {
    /// Fetches the keys.
    pub async fn of(desk: &Gateway) -> Verifier {
        let jwks = desk.anonymous().get("/.well-known/jwks.json").await.expect_status(200).json();
        Verifier { keys: jwks["keys"].as_array().expect("a JWK set").clone(), issuer: desk.public_url() }
    }

    /// The claims of an assertion for this upstream, or the reason of its rejection.
    pub fn assertion(&self, token: &str, upstream: &str) -> Result<Value, String> {
        self.read(token, "deskgate-assertion+jwt", upstream)
    }

    /// The claims of an access token, or the reason of its rejection.
    pub fn access_token(&self, token: &str) -> Result<Value, String> {
        self.read(token, "at+jwt", "deskgate")
    }

    fn read(&self, token: &str, typ: &str, audience: &str) -> Result<Value, String> {
        let untrusted = UntrustedToken::new(token).map_err(|error| error.to_string())?;
        let header = untrusted.header();
        if header.token_type.as_deref() != Some(typ) {
            return Err(format!("unexpected type {:?}", header.token_type));
        }
        let kid = header.key_id.as_deref().ok_or("no key id")?;
        let jwk = self.keys.iter().find(|jwk| jwk["kid"] == kid).ok_or("unknown key")?;
        // The algorithm comes from the key, never from the token.
        match jwk["alg"].as_str() {
            Some("EdDSA") => verify_signature(Ed25519, jwk, &untrusted)?,
            Some("ES256") => verify_signature(Es256, jwk, &untrusted)?,
            other => return Err(format!("unsupported algorithm {other:?}")),
        }
        let claims = claims_of(token);
        self.check_claims(&claims, audience)?;
        Ok(claims)
    }

    /// Checks audience, issuer, subject and, without leeway, `exp` and `nbf`. All of them are required.
    fn check_claims(&self, claims: &Value, audience: &str) -> Result<(), String> {
        let seconds = |name: &str| claims[name].as_u64().ok_or_else(|| format!("no {name}"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
        if claims["aud"] != audience {
            return Err(format!("unexpected audience {}", claims["aud"]));
        }
        if claims["iss"] != self.issuer.as_str() {
            return Err(format!("unexpected issuer {}", claims["iss"]));
        }
        if !claims["sub"].is_string() {
            return Err("no sub".to_owned());
        }
        if seconds("exp")? <= now {
            return Err("expired".to_owned());
        }
        if seconds("nbf")? > now {
            return Err("not valid yet".to_owned());
        }
        Ok(())
    }
}

fn verify_signature<A>(algorithm: A, jwk: &Value, token: &UntrustedToken<'_>) -> Result<(), String>
where
    A: Algorithm,
    for<'a> A::VerifyingKey: TryFrom<&'a JsonWebKey<'a>, Error: Debug>,
{
    let text = jwk.to_string();
    let jwk: JsonWebKey<'_> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let key = A::VerifyingKey::try_from(&jwk).map_err(|error| format!("{error:?}"))?;
    let verified = algorithm.validator::<Value>(&key).validate(token);
    verified.map(drop).map_err(|error| error.to_string())
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
