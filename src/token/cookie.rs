//! Signed cookies: the OAuth2 flow and the bind proof. The values are readable; the HMAC makes them unforgeable.

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::clock::{RECORD_LEEWAY, Timestamp};

/// What a signed cookie is for; one kind cannot be used as the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieKind {
    /// Binds an OAuth2 callback to the browser that began the flow.
    Flow,
    /// Proves a platform sign-in whose user matches no employee.
    BindProof,
}

impl CookieKind {
    fn label(self) -> &'static str {
        match self {
            CookieKind::Flow => "flow",
            CookieKind::BindProof => "bind-proof",
        }
    }
}

/// Signs cookie values with HMAC-SHA256; verifies them with the current and the previous keys.
pub struct CookieSigner {
    current: hmac::Key,
    previous: Vec<hmac::Key>,
}

impl CookieSigner {
    /// Signs with `current`; verifies with `current` and `previous`.
    pub fn new(current: &[u8; 32], previous: &[[u8; 32]]) -> Self {
        let key = |bytes: &[u8; 32]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        Self { current: key(current), previous: previous.iter().map(key).collect() }
    }

    /// Signs a value that is valid until `end`.
    pub fn sign(&self, kind: CookieKind, end: Timestamp, value: &impl Serialize) -> String {
        let body = serde_json::to_vec(&(end, value)).unwrap_or_default();
        let tag = self.tag(kind, &body);
        format!("{}.{}", URL_SAFE_NO_PAD.encode(body), URL_SAFE_NO_PAD.encode(tag))
    }

    /// Returns the value if the signature is ours, the kind is this one and it has not expired. One that would still be
    /// valid for longer than `lifetime` was signed before the clock was set back, and is refused.
    pub fn verify<T: DeserializeOwned>(
        &self,
        kind: CookieKind,
        text: &str,
        lifetime: Duration,
        now: Timestamp,
    ) -> Option<T> {
        let (body, tag) = text.split_once('.')?;
        let body = URL_SAFE_NO_PAD.decode(body).ok()?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        let message = message(kind, &body);
        let mut keys = std::iter::once(&self.current).chain(&self.previous);
        keys.find(|key| hmac::verify(key, &message, &tag).is_ok())?;
        let (end, value): (Timestamp, T) = serde_json::from_slice(&body).ok()?;
        (now < end && !end.is_ahead_of(now, lifetime + RECORD_LEEWAY)).then_some(value)
    }

    fn tag(&self, kind: CookieKind, body: &[u8]) -> hmac::Tag {
        hmac::sign(&self.current, &message(kind, body))
    }
}

fn message(kind: CookieKind, body: &[u8]) -> Vec<u8> {
    [kind.label().as_bytes(), b"\0", body].concat()
}
