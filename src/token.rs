//! Access tokens, identity assertions and sealed cookies: what the gateway signs and believes.
//!
//! The signing itself is aws-lc-rs. A JOSE library is left to the tests, as the independent reader:
//! every token that we accept is one that we wrote, so its header must be ours to the byte, and
//! there is no algorithm, key address or critical extension left to negotiate.

pub mod assertion;

pub mod claims;

pub mod rejected;

pub(crate) mod key_file;

pub mod keys;

pub mod ring;

pub mod cookie;

pub mod vault;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::Notify;

use crate::domain::clock::Timestamp;
use crate::domain::session::{KeyId, Session};
use crate::error::TokenFault;
use claims::Claims;
use keys::{Key, Purpose};
use rejected::RejectedTokens;
use ring::{KeyRing, KeyValidity};

/// Longer than any token of ours; what exceeds it is not looked at.
const LONGEST: usize = 8 * 1024;

/// Makes and reads access tokens.
pub struct Tokens {
    keys: ArcSwap<KeyRing>,
    issuer: String,
    leeway: Duration,
    rejected: RejectedTokens,
    changed: Notify,
}

impl Tokens {
    /// `issuer` is the public URL without its last slash.
    pub fn new(keys: KeyRing, issuer: String, leeway: Duration) -> Self {
        Self {
            keys: ArcSwap::from_pointee(keys),
            issuer,
            leeway,
            rejected: RejectedTokens::new(),
            changed: Notify::new(),
        }
    }

    /// The keys in use.
    pub fn keys(&self) -> Arc<KeyRing> {
        self.keys.load_full()
    }

    /// Takes new keys into use. What was rejected under the old ones is judged afresh.
    pub fn use_keys(&self, keys: KeyRing) {
        self.keys.store(Arc::new(keys));
        self.rejected.forget();
        self.changed.notify_one();
    }

    /// Resolves when other keys have been taken into use; for one listener.
    pub async fn keys_changed(&self) {
        self.changed.notified().await;
    }

    /// The key that signs a session that begins now, and until when it is believed, if that is known.
    pub fn signing(&self, now: Timestamp) -> (KeyId, Option<Timestamp>) {
        let keys = self.keys.load();
        let id = keys.active(now).id().clone();
        let end = match keys.validity(&id) {
            KeyValidity::Until(end) => Some(end),
            KeyValidity::Open | KeyValidity::Gone => None,
        };
        (id, end)
    }

    /// The address that tokens and assertions name as their issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The token of a session, signed by its own key. The same session gives the same claims every time.
    pub fn mint(&self, session: &Session, now: Timestamp) -> String {
        let keys = self.keys.load();
        let own: Option<&Key> = session.key_id.as_ref().and_then(|id| keys.verification_key(id, now));
        own.unwrap_or_else(|| keys.active(now)).sign(Purpose::Access, &Claims::of(session, &self.issuer))
    }

    /// Reads a token: cheap checks first, the signature last. Says nothing about the session behind it.
    pub fn read(&self, token: &str, now: Timestamp) -> Result<Claims, TokenFault> {
        if token.len() > LONGEST {
            return Err(TokenFault::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenFault::Malformed)?;
        if header.is_empty() || payload.is_empty() || signature.is_empty() || payload.contains('.') {
            return Err(TokenFault::Malformed);
        }
        let keys = self.keys.load();
        let key = keys.find(Purpose::Access, header, now).ok_or_else(|| keys::why_not_ours(header))?;
        // Known rejected is refused before anything is decoded: whoever sends it, sends it again and again.
        if self.rejected.contains(token) {
            return Err(TokenFault::Signature);
        }
        // The engine refuses padding, other alphabets and non-zero trailing bits.
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| TokenFault::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenFault::Malformed)?;
        let claims = Claims::parse(&payload, &self.issuer)?;
        claims.check_time(now, self.leeway)?;
        if !key.verify(signed.as_bytes(), &signature) {
            self.rejected.remember(token);
            return Err(TokenFault::Signature);
        }
        Ok(claims.signed_by(key.id()))
    }
}

#[cfg(test)]
mod tests;
