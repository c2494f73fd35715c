//! The application's access token: one for all calls, fetched by one caller while the others wait.
//!
//! Too many failed fetches make the platform block the corporation for an hour, so all callers that waited for a fetch
//! share its failure instead of retrying.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use super::super::PlatformError;
use crate::domain::clock::Clock;
use crate::domain::secret::Secret;

/// How long before its expiry a token is replaced: longer than any call that carries it.
const REFRESH_MARGIN: Duration = Duration::from_secs(200);

/// The pause between fetches to replace a token that is still valid, and after a configuration error.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// A token that was just fetched.
pub struct FreshToken {
    pub(super) token: Secret<String>,
    pub(super) lifetime: Duration,
}

/// A shared access token.
pub type AppToken = Arc<Secret<String>>;

/// A token and its times, which are monotonic.
struct HeldToken {
    token: AppToken,
    fetched_at: Duration,
    replace_at: Duration,
    expires_at: Duration,
}

#[derive(Default)]
struct AppTokenState {
    held: Option<HeldToken>,
    /// The last failure, and until when callers get it without another fetch.
    failure: Option<(PlatformError, Duration)>,
    /// Counts fetches, so that a waiter knows whether one ended while it waited.
    fetches: u64,
}

/// The state of the held token.
enum TokenStatus {
    /// Valid.
    Fresh(AppToken),
    /// Valid, but due to be replaced.
    Ageing(AppToken),
    /// Missing or expired.
    Missing,
}

/// Holds the application's access token.
pub struct AppTokens {
    clock: Clock,
    /// Never locked across an await.
    state: Mutex<AppTokenState>,
    /// Locked by the caller that fetches.
    fetching: AsyncMutex<()>,
}

impl AppTokens {
    /// Without a token; the first call fetches one.
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default(), fetching: AsyncMutex::default() }
    }

    /// The token; calls `fetch` if it is missing or due to be replaced. While one caller replaces an ageing token, the
    /// others use it.
    pub async fn current<F>(&self, fetch: impl FnOnce() -> F) -> Result<AppToken, PlatformError>
    where
        F: Future<Output = Result<FreshToken, PlatformError>>,
    {
        let seen = self.state().fetches;
        let _guard = match self.status() {
            TokenStatus::Fresh(token) => return Ok(token),
            TokenStatus::Ageing(token) => match self.fetching.try_lock() {
                Ok(guard) => guard,
                Err(_) => return Ok(token),
            },
            TokenStatus::Missing => self.fetching.lock().await,
        };
        if let TokenStatus::Fresh(token) = self.status() {
            return Ok(token);
        }
        if let Some(failure) = self.recent_failure(seen) {
            return Err(failure);
        }
        let fetched = fetch().await;
        let mut state = self.state();
        state.fetches += 1;
        let now = self.clock.running();
        match fetched {
            Ok(fresh) => {
                // Half of a short lifetime: with the full margin, every call would fetch.
                let margin = REFRESH_MARGIN.min(fresh.lifetime / 2);
                let token = Arc::new(fresh.token);
                let replace_at = now.saturating_add(fresh.lifetime.saturating_sub(margin));
                let expires_at = now.saturating_add(fresh.lifetime);
                state.held = Some(HeldToken { token: Arc::clone(&token), fetched_at: now, replace_at, expires_at });
                state.failure = None;
                Ok(token)
            }
            Err(failure) => match &mut state.held {
                Some(held) if now < held.expires_at => {
                    held.replace_at = now + RETRY_PAUSE;
                    Ok(Arc::clone(&held.token))
                }
                _ => {
                    // Retrying a wrong setting soon makes the platform block the corporation.
                    let pause = match failure {
                        PlatformError::Configuration { .. } => RETRY_PAUSE,
                        _ => Duration::ZERO,
                    };
                    state.failure = Some((failure.clone(), now + pause));
                    Err(failure)
                }
            },
        }
    }

    /// Drops a token that the platform rejected, unless another caller has replaced it already.
    pub fn invalidate(&self, token: &AppToken) {
        let mut state = self.state();
        if state.held.as_ref().is_some_and(|held| Arc::ptr_eq(&held.token, token)) {
            state.held = None;
        }
    }

    /// The age of the current token. `None` also for one that has expired while no call needed it: nothing is wrong then.
    pub fn age(&self) -> Option<Duration> {
        let (state, now) = (self.state(), self.clock.running());
        let held = state.held.as_ref().filter(|held| now < held.expires_at || state.failure.is_some())?;
        Some(now.saturating_sub(held.fetched_at))
    }

    fn status(&self) -> TokenStatus {
        let now = self.clock.running();
        match &self.state().held {
            Some(held) if now < held.replace_at => TokenStatus::Fresh(Arc::clone(&held.token)),
            Some(held) if now < held.expires_at => TokenStatus::Ageing(Arc::clone(&held.token)),
            _ => TokenStatus::Missing,
        }
    }

    /// The failure of a fetch that ended while the caller waited, or that must not be retried yet.
    fn recent_failure(&self, seen: u64) -> Option<PlatformError> {
        let state = self.state();
        let (failure, retry_at) = state.failure.as_ref()?;
        (state.fetches != seen || self.clock.running() < *retry_at).then(|| failure.clone())
    }

    fn state(&self) -> MutexGuard<'_, AppTokenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
