//! The application's access token: one for all calls, fetched by one caller while the others wait.
//!
//! The platform guards the call that hands it out (too many bad ones block the corporation for an
//! hour), so a failure is shared with everybody who waited for it instead of being tried again by each.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

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
    given_at: Timestamp,
    replace_at: Timestamp,
    expires_at: Timestamp,
}

#[derive(Default)]
struct Shelf {
    held: Option<Held>,
    /// The last failure, and until when it is believed.
    failure: Option<(PlatformError, Timestamp)>,
    /// How often the platform has been asked; tells a waiter whether that happened while it waited.
    attempts: u64,
}

/// What stands on the shelf.
enum Stock {
    /// A token that lasts.
    Fresh(AppToken),
    /// A token that is good and should be replaced.
    Ageing(AppToken),
    /// None that is good.
    None,
}

/// Keeps the token.
pub struct AppTokens {
    clock: Clock,
    /// Held for moments only.
    shelf: Mutex<Shelf>,
    /// Held by the one who asks the platform.
    turn: AsyncMutex<()>,
}

impl AppTokens {
    /// None yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, shelf: Mutex::default(), turn: AsyncMutex::default() }
    }

    /// The token, from `fetch` when there is none that lasts. While an ageing one is being replaced, the others
    /// go on with it.
    pub async fn current<F>(&self, fetch: impl FnOnce() -> F) -> Result<AppToken, PlatformError>
    where
        F: Future<Output = Result<FreshToken, PlatformError>>,
    {
        let seen = self.shelf().attempts;
        let _turn = match self.stock() {
            Stock::Fresh(token) => return Ok(token),
            Stock::Ageing(token) => match self.turn.try_lock() {
                Ok(turn) => turn,
                Err(_) => return Ok(token),
            },
            Stock::None => self.turn.lock().await,
        };
        if let Stock::Fresh(token) = self.stock() {
            return Ok(token);
        }
        if let Some(failure) = self.known_failure(seen) {
            return Err(failure);
        }
        let fetched = fetch().await;
        let mut shelf = self.shelf();
        shelf.attempts += 1;
        let now = self.clock.now();
        match fetched {
            Ok(fresh) => {
                // Short lifetimes are halved: a fixed margin would make every call fetch.
                let margin = AHEAD.min(fresh.lifetime / 2);
                let token = Arc::new(fresh.token);
                let replace_at = now.plus(fresh.lifetime.saturating_sub(margin));
                let expires_at = now.plus(fresh.lifetime);
                shelf.held = Some(Held { token: Arc::clone(&token), given_at: now, replace_at, expires_at });
                shelf.failure = None;
                Ok(token)
            }
            Err(failure) => match &mut shelf.held {
                Some(held) if now < held.expires_at => {
                    held.replace_at = now.plus(NEXT_TRY);
                    Ok(Arc::clone(&held.token))
                }
                _ => {
                    // Asking again with the same wrong setting soon blocks the whole corporation.
                    let pause = match failure {
                        PlatformError::Configuration { .. } => NEXT_TRY,
                        _ => Duration::ZERO,
                    };
                    shelf.failure = Some((failure.clone(), now.plus(pause)));
                    Err(failure)
                }
            },
        }
    }

    /// Drops a token that the platform refused, unless another caller has replaced it already.
    pub fn refuse(&self, token: &AppToken) {
        let mut shelf = self.shelf();
        if shelf.held.as_ref().is_some_and(|held| Arc::ptr_eq(&held.token, token)) {
            shelf.held = None;
        }
    }

    /// How old the token is that is used now.
    pub fn age(&self) -> Option<Duration> {
        self.shelf().held.as_ref().map(|held| held.given_at.until(self.clock.now()))
    }

    fn stock(&self) -> Stock {
        let now = self.clock.now();
        match &self.shelf().held {
            Some(held) if now < held.replace_at => Stock::Fresh(Arc::clone(&held.token)),
            Some(held) if now < held.expires_at => Stock::Ageing(Arc::clone(&held.token)),
            _ => Stock::None,
        }
    }

    /// The failure that somebody has just had, or one that is still believed.
    fn known_failure(&self, seen: u64) -> Option<PlatformError> {
        let shelf = self.shelf();
        let (failure, believed_until) = shelf.failure.as_ref()?;
        (shelf.attempts != seen || self.clock.now() < *believed_until).then(|| failure.clone())
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
