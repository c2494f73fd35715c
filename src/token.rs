//! Signs and verifies access tokens, identity assertions and cookies, and encrypts secrets at rest. Whether a session
//! stands behind a token is for `sessions` to say.
//!
//! The `jsonwebtoken` crate signs, verifies and writes the JWKS ([`keys`]). Four things stay here:
//! - The header is compared byte for byte with those that our keys write. Every token that we accept is one that we
//!   issued, so there is no algorithm, key address or critical extension to negotiate.
//! - The time comes from the injected clock; the crate would read the system's.
//! - The claims are strict: exactly ours, each once and of its type. The crate ignores members that it does not know.
//! - The order of the checks and the caches: the signature comes last, and a token that failed before is refused
//!   without a second signature check. So is a known token with another signature, by `sessions`.

pub mod assertion;

pub mod claims;

pub mod fingerprint;

pub mod rejected;

pub mod keys;

pub mod stored_key;

pub mod ring;

pub(crate) mod key_file;

pub mod key_folder;

pub mod cookie;

pub mod vault;

pub mod root_secret;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::Notify;

use crate::domain::clock::Timestamp;
use crate::domain::session::{KeyId, Session, SessionId};
use crate::error::{Error, Part, TokenFault};
use claims::Claims;
use keys::{Purpose, SigningKey};
use rejected::RejectedTokens;
use ring::{KeyRing, KeyValidity};

/// Longer than any token that we issue; longer ones are refused unread.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// Whether the keys that other gateways store can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAccess {
    /// All stored keys are known.
    Current,
    /// There may be keys that are not known.
    Lost,
}

/// Issues and verifies access tokens with the current keys.
pub struct Tokens {
    keys: ArcSwap<KeyRing>,
    issuer: String,
    leeway: Duration,
    rejected: RejectedTokens,
    changed: Notify,
    /// Whether other gateways may have created keys that are not known here.
    may_lack_keys: AtomicBool,
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
            may_lack_keys: AtomicBool::new(false),
        }
    }

    /// The current keys.
    pub fn keys(&self) -> Arc<KeyRing> {
        self.keys.load_full()
    }

    /// Replaces the keys. Tokens that the old keys rejected are verified again.
    pub fn use_keys(&self, keys: KeyRing) {
        self.keys.store(Arc::new(keys));
        self.rejected.clear();
        self.changed.notify_one();
    }

    /// Records whether the stored keys can be read.
    pub fn note_key_access(&self, access: KeyAccess) {
        self.may_lack_keys.store(access == KeyAccess::Lost, Ordering::Relaxed);
    }

    /// The error of a token with this fault. A token of an unknown key may be valid while the stored keys cannot be read: then
    /// the client is told to try again, not to sign in again.
    pub fn refusal(&self, fault: TokenFault) -> Error {
        if fault == TokenFault::UnknownKey && self.may_lack_keys.load(Ordering::Relaxed) {
            return Error::Unavailable { part: Part::Directory, cause: None };
        }
        Error::InvalidToken(fault)
    }

    /// Resolves when the keys have been replaced; supports one waiting task.
    pub async fn keys_changed(&self) {
        self.changed.notified().await;
    }

    /// The key that signs tokens of a session that begins now, and when that key stops verifying, if known.
    pub fn signing(&self, now: Timestamp) -> (KeyId, Option<Timestamp>) {
        let keys = self.keys.load();
        let id = keys.active(now).id().clone();
        let end = match keys.validity(&id) {
            KeyValidity::Until(end) => Some(end),
            KeyValidity::Open | KeyValidity::Gone | KeyValidity::Unknown => None,
        };
        (id, end)
    }

    /// The `iss` of tokens and assertions.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// How far the clocks of gateways may differ.
    pub fn leeway(&self) -> Duration {
        self.leeway
    }

    /// Issues the token of a session, signed by the session's own key. The claims depend on the session alone.
    pub fn mint(&self, session: &Session, now: Timestamp) -> String {
        let keys = self.keys.load();
        let own: Option<&SigningKey> = session.key_id.as_ref().and_then(|id| keys.verification_key(id, now));
        own.unwrap_or_else(|| keys.active(now)).sign(Purpose::Access, &Claims::of(session, &self.issuer))
    }

    /// Reads a token and makes all checks but that of the signature, the cheapest first. Does not look at the session
    /// behind it.
    pub fn read<'a>(&'a self, token: &'a str, now: Timestamp) -> Result<UnverifiedToken<'a>, TokenFault> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenFault::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenFault::Malformed)?;
        if header.is_empty() || payload.is_empty() || signature.is_empty() || payload.contains('.') {
            return Err(TokenFault::Malformed);
        }
        let keys = self.keys.load();
        let key = keys.find(Purpose::Access, header, now).ok_or_else(|| {
            let is_retired = keys.knows(Purpose::Access, header);
            if is_retired { TokenFault::Expired } else { keys::classify_foreign_header(header) }
        })?;
        // A token that failed before is refused before anything is decoded: clients repeat bad tokens.
        if self.rejected.contains(token) {
            return Err(TokenFault::Signature);
        }
        // The decoder refuses padding, other alphabets and non-zero trailing bits.
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| TokenFault::Malformed)?;
        let claims = Claims::parse(&payload, &self.issuer)?;
        claims.check_time(now, self.leeway)?;
        Ok(UnverifiedToken { token, signed, signature, claims, key: key.clone(), rejected: &self.rejected })
    }
}

/// A token whose signature is yet to be checked, so that nothing in it can be trusted: it is verified or refused.
pub struct UnverifiedToken<'a> {
    token: &'a str,
    signed: &'a str,
    signature: &'a str,
    claims: Claims,
    key: Arc<SigningKey>,
    rejected: &'a RejectedTokens,
}

impl UnverifiedToken<'_> {
    /// The id of the session that it claims to belong to.
    pub fn session_id(&self) -> &SessionId {
        self.claims.session_id()
    }

    /// The header and payload, if the key makes the same signature of them each time.
    pub fn signed_once(&self) -> Option<&str> {
        self.key.is_deterministic().then_some(self.signed)
    }

    /// Checks the signature.
    pub fn verify(self) -> Result<Claims, TokenFault> {
        match self.key.verify(self.signed, self.signature) {
            Ok(()) => Ok(self.claims.signed_by(self.key.id())),
            Err(TokenFault::Signature) => Err(self.reject()),
            Err(fault) => Err(fault),
        }
    }

    /// Refuses the token for a wrong signature, and at once if it comes again.
    pub fn reject(self) -> TokenFault {
        self.rejected.remember(self.token);
        TokenFault::Signature
    }
}

#[cfg(test)]
mod tests;
