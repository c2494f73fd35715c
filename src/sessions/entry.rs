//! One cache entry: a session and the tokens that lead to it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::cached::CachedSession;
use crate::domain::clock::Timestamp;
use crate::domain::session::SessionId;
use crate::token::fingerprint::TokenFingerprint;

/// A cached session, pending until the store has answered. What every request reads comes first, side by side.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct CacheEntry {
    /// Empty while pending and after the entry is retired.
    session: ArcSwapOption<CachedSession>,
    /// When the session was last used on this gateway, in milliseconds; 0 if never.
    last_seen: AtomicI64,
    retired: AtomicBool,
    /// The `last_seen` that was last written to the store.
    saved_last_seen: AtomicI64,
    tokens: Mutex<Vec<KnownToken>>,
}

/// A token that was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownToken {
    /// Of the whole token.
    pub(super) whole: TokenFingerprint,
    /// Of its header and payload.
    pub(super) signed: TokenFingerprint,
}

/// Most token strings per session. A session has one token, but ES256 gives a new string each time it is issued.
const TOKENS_PER_SESSION: usize = 4;

/// Resolution of `last_seen` in milliseconds. Coarse, so that cores do not contend for its cache line.
const LAST_SEEN_RESOLUTION: u64 = 5_000;

/// How recently a session in use was used, in milliseconds.
const IN_USE: u64 = 60_000;

/// How far the stored `last_seen` may lag, in milliseconds.
const MAX_LAST_SEEN_LAG: u64 = 60_000;

impl CacheEntry {
    /// The session, unless it is pending, revoked, expired or from the future.
    pub(super) fn live_session(&self, now: Timestamp, leeway: Duration) -> Option<Arc<CachedSession>> {
        let cached = self.session.load_full()?;
        if self.is_retired() || !cached.lifetime().contains(now, leeway) { None } else { Some(cached) }
    }

    /// Whether the store has answered and the entry is not retired.
    pub(super) fn is_filled(&self) -> bool {
        self.session.load().is_some()
    }

    /// Stores a record, unless a newer version is there or the entry was retired meanwhile.
    pub(super) fn update(&self, newer: Arc<CachedSession>) {
        self.session.rcu(|current| match current {
            Some(cached) if cached.session.version >= newer.session.version => Some(cached.clone()),
            _ => Some(newer.clone()),
        });
        if self.is_retired() {
            self.session.store(None);
        }
    }

    /// Records a use of the session.
    pub(super) fn touch(&self, now: Timestamp) {
        if now.millis().abs_diff(self.last_seen.load(Ordering::Relaxed)) >= LAST_SEEN_RESOLUTION {
            self.last_seen.store(now.millis(), Ordering::Relaxed);
        }
    }

    /// When the session was last used on this gateway; the epoch if never.
    pub(super) fn last_seen(&self) -> Timestamp {
        Timestamp::from_millis(self.last_seen.load(Ordering::Relaxed))
    }

    /// The `last_seen` to be written to the store, if it is due; counts as written from then on.
    pub(super) fn take_unsaved_last_seen(&self) -> Option<Timestamp> {
        let seen = self.last_seen();
        let due = seen.millis().abs_diff(self.saved_last_seen.load(Ordering::Relaxed)) >= MAX_LAST_SEEN_LAG;
        due.then(|| {
            self.saved_last_seen.store(seen.millis(), Ordering::Relaxed);
            seen
        })
    }

    /// Whether the session was used within the last minute.
    pub(super) fn is_in_use(&self, now: Timestamp) -> bool {
        now.millis().abs_diff(self.last_seen.load(Ordering::Relaxed)) < IN_USE
    }

    /// The id of the session, unless the entry is pending or retired.
    pub(super) fn session_id(&self) -> Option<SessionId> {
        self.session.load().as_ref().map(|cached| cached.session.id.clone())
    }

    /// Whether the entry can no longer be filled or get tokens.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether the session has expired, or a failing store left the entry pending and no task holds it.
    pub(super) fn is_removable(self: &Arc<Self>, now: Timestamp) -> bool {
        match &*self.session.load() {
            Some(cached) => cached.session.is_expired(now),
            // Only the map holds a reference.
            None => Arc::strong_count(self) == 1,
        }
    }

    /// Frees the encoded headers, except for assertions that are still fresh.
    pub(super) fn drop_encoded(&self, now: Timestamp) {
        if let Some(cached) = &*self.session.load() {
            cached.drop_encoded(now);
        }
    }

    /// Retires the entry for good.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.session.store(None);
    }

    /// Attaches a token that is not attached yet. `insert` runs before another task can take the tokens.
    pub(super) fn attach_token(&self, token: KnownToken, insert: impl FnOnce()) {
        let mut tokens = self.tokens();
        if tokens.len() < TOKENS_PER_SESSION && !tokens.contains(&token) {
            // Hardly any session has a second one.
            tokens.reserve_exact(1);
            tokens.push(token);
            insert();
        }
    }

    /// Detaches and returns the tokens.
    pub(super) fn take_tokens(&self) -> Vec<KnownToken> {
        std::mem::take(&mut *self.tokens())
    }

    /// Whether an attached token has the same header and payload as this one, and another signature.
    pub(super) fn has_other_signature(&self, token: KnownToken) -> bool {
        self.tokens().iter().any(|known| known.signed == token.signed && known.whole != token.whole)
    }

    fn tokens(&self) -> MutexGuard<'_, Vec<KnownToken>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
