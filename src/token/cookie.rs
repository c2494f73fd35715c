//! Signed cookies: the OAuth2 flow and the bind proof. The values are readable; the HMAC makes them unforgeable.

use std::io;
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::key_file::write_private;
use crate::domain::clock::{RECORD_LEEWAY, Timestamp};
use crate::domain::secret::random_bytes;

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

/// Signs and verifies cookie values with HMAC-SHA256.
pub struct CookieSigner {
    key: hmac::Key,
}

impl CookieSigner {
    /// Reads the key from the key folder; creates it on the first start.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("seal.key");
        let bytes = match std::fs::read(&path) {
            Ok(bytes) if bytes.len() == 32 => bytes,
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{}: must hold 32 bytes", path.display()),
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let fresh = random_bytes::<32>();
                write_private(&path, &fresh)?;
                fresh.to_vec()
            }
            Err(error) => return Err(error),
        };
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &bytes) })
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
        hmac::verify(&self.key, &message(kind, &body), &tag).ok()?;
        let (end, value): (Timestamp, T) = serde_json::from_slice(&body).ok()?;
        (now < end && !end.is_ahead_of(now, lifetime + RECORD_LEEWAY)).then_some(value)
    }

    fn tag(&self, kind: CookieKind, body: &[u8]) -> hmac::Tag {
        hmac::sign(&self.key, &message(kind, body))
    }
}

fn message(kind: CookieKind, body: &[u8]) -> Vec<u8> {
    [kind.label().as_bytes(), b"\0", body].concat()
}
