//! One cache entry: a session and the tokens that lead to it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::cached::CachedSession;
use crate::domain::clock::Timestamp;
use crate::domain::session::SessionId;
use crate::token::fingerprint::TokenFingerprint;

/// A cached session, pending until the store has answered.
#[derive(Debug, Default)]
pub(super) struct CacheEntry {
    /// Empty while pending and after the entry is retired. Written only while `tokens` is locked, so that they lead to this session.
    session: ArcSwapOption<CachedSession>,
    retired: AtomicBool,
    /// The `last_seen` that was last written to the store.
    saved_last_seen: AtomicI64,
    /// Attached only while there is a session.
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

/// How far the stored `last_seen` may lag, in milliseconds.
const MAX_LAST_SEEN_LAG: u64 = 60_000;

impl CacheEntry {
    /// The session, unless it is pending, revoked, expired or from the future.
    pub(super) fn live_session(&self, now: Timestamp, leeway: Duration) -> Option<Arc<CachedSession>> {
        let cached = self.session.load_full()?;
        if self.is_retired() || !cached.is_valid(now, leeway) { None } else { Some(cached) }
    }

    /// Whether the store has answered and the entry is not retired.
    pub(super) fn is_filled(&self) -> bool {
        self.session.load().is_some()
    }

    /// Stores a record, unless a newer version is there or the entry was retired meanwhile. `index` leads an attached token to it,
    /// no longer to the version that it replaces.
    pub(super) fn update(&self, newer: &Arc<CachedSession>, index: impl Fn(TokenFingerprint, &Arc<CachedSession>)) {
        let tokens = self.tokens();
        let replaced = self.session.load_full();
        if self.is_retired() || replaced.as_ref().is_some_and(|cached| cached.session.version >= newer.session.version)
        {
            return;
        }
        if let Some(replaced) = &replaced {
            newer.take_over(replaced);
        }
        self.session.store(Some(newer.clone()));
        if let Some(replaced) = replaced {
            tokens.iter().for_each(|token| index(token.whole, &replaced));
            replaced.set_outdated();
        }
    }

    /// When the session was last used on this gateway; None if the entry is pending or retired.
    pub(super) fn last_seen(&self) -> Option<Timestamp> {
        self.session.load().as_ref().map(|cached| cached.last_seen())
    }

    /// The `last_seen` to be written to the store, if it is due.
    pub(super) fn unsaved_last_seen(&self) -> Option<Timestamp> {
        let seen = self.last_seen()?;
        let lag = seen.millis().abs_diff(self.saved_last_seen.load(Ordering::Relaxed));
        (lag >= MAX_LAST_SEEN_LAG).then_some(seen)
    }

    /// Notes a `last_seen` that was written to the store.
    pub(super) fn set_saved_last_seen(&self, seen: Timestamp) {
        self.saved_last_seen.store(seen.millis(), Ordering::Relaxed);
    }

    /// Whether the session was used within the last minute.
    pub(super) fn is_in_use(&self, now: Timestamp) -> bool {
        self.session.load().as_ref().is_some_and(|cached| cached.is_in_use(now))
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

    /// Retires the entry for good and detaches its tokens. `remove` removes one from the index if it leads to this session.
    pub(super) fn retire(&self, remove: impl Fn(TokenFingerprint, &Arc<CachedSession>)) {
        let mut tokens = self.tokens();
        self.retired.store(true, Ordering::Release);
        if let Some(last) = self.session.swap(None) {
            last.set_outdated();
            std::mem::take(&mut *tokens).iter().for_each(|token| remove(token.whole, &last));
        }
    }

    /// Attaches a token that is not attached yet, unless the entry is pending or retired. `index` leads it to the session.
    pub(super) fn attach_token(&self, token: KnownToken, index: impl FnOnce(Arc<CachedSession>)) {
        let mut tokens = self.tokens();
        if let Some(session) = self.session.load_full()
            && tokens.len() < TOKENS_PER_SESSION
            && !tokens.contains(&token)
        {
            // Hardly any session has a second one.
            tokens.reserve_exact(1);
            tokens.push(token);
            session.set_token(token.whole);
            index(session);
        }
    }

    /// Whether an attached token has the same header and payload as this one, and another signature.
    pub(super) fn has_other_signature(&self, token: KnownToken) -> bool {
        self.tokens().iter().any(|known| known.signed == token.signed && known.whole != token.whole)
    }

    fn tokens(&self) -> MutexGuard<'_, Vec<KnownToken>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
