//! The application's access token: one for all calls, fetched by one caller while the others wait.
//!
//! The platform guards the call that hands it out (too many bad ones block the corporation for an
//! hour), so a failure is shared with everybody who waited for it instead of being tried again by each.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use super::super::PlatformError;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::secret::Secret;

/// How long before its end a token is replaced: longer than any call that might still carry it.
const AHEAD: Duration = Duration::from_secs(200);

/// How long a token that is still good is used on after it could not be replaced.
const NEXT_TRY: Duration = Duration::from_secs(10);

/// A token as the platform hands it out.
pub struct FreshToken {
    /// What to send.
    pub token: Secret<String>,
    /// From now on.
    pub lifetime: Duration,
}

/// A token that calls carry.
pub type AppToken = Arc<Secret<String>>;

struct Held {
    token: AppToken,
    replace_at: Timestamp,
    expires_at: Timestamp,
}

#[derive(Default)]
struct Shelf {
    held: Option<Held>,
    last_failure: Option<PlatformError>,
}

/// Keeps the token.
pub struct AppTokens {
    clock: Clock,
    shelf: Mutex<Shelf>,
    /// How often the platform has been asked; tells a waiter whether that happened while it waited.
    attempts: AtomicU64,
}

impl AppTokens {
    /// None yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, shelf: Mutex::default(), attempts: AtomicU64::new(0) }
    }

    /// The token, from `fetch` when there is none that lasts.
    pub async fn current<F>(&self, fetch: impl FnOnce() -> F) -> Result<AppToken, PlatformError>
    where
        F: Future<Output = Result<FreshToken, PlatformError>>,
    {
        let seen = self.attempts.load(Ordering::Acquire);
        let mut shelf = self.shelf.lock().await;
        if let Some(held) = &shelf.held
            && self.clock.now() < held.replace_at
        {
            return Ok(Arc::clone(&held.token));
        }
        if self.attempts.load(Ordering::Acquire) != seen
            && let Some(failure) = &shelf.last_failure
        {
            return Err(failure.clone());
        }
        let fetched = fetch().await;
        self.attempts.fetch_add(1, Ordering::Release);
        let now = self.clock.now();
        match fetched {
            Ok(fresh) => {
                // Short lifetimes are halved: a fixed margin would make every call fetch.
                let margin = AHEAD.min(fresh.lifetime / 2);
                let token = Arc::new(fresh.token);
                let replace_at = now.plus(fresh.lifetime.saturating_sub(margin));
                let held = Held { token: Arc::clone(&token), replace_at, expires_at: now.plus(fresh.lifetime) };
                *shelf = Shelf { held: Some(held), last_failure: None };
                Ok(token)
            }
            Err(failure) => match &mut shelf.held {
                Some(held) if now < held.expires_at => {
                    held.replace_at = now.plus(NEXT_TRY);
                    Ok(Arc::clone(&held.token))
                }
                _ => {
                    shelf.last_failure = Some(failure.clone());
                    Err(failure)
                }
            },
        }
    }

    /// Drops a token that the platform refused, unless another caller has replaced it already.
    pub async fn refuse(&self, token: &AppToken) {
        let mut shelf = self.shelf.lock().await;
        if shelf.held.as_ref().is_some_and(|held| Arc::ptr_eq(&held.token, token)) {
            shelf.held = None;
        }
    }
}

#[cfg(test)]
mod tests;
