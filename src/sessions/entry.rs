//! One session's place in memory, and the tokens that lead to it.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use papaya::Equivalent;

use super::cached::CachedSession;
use crate::domain::clock::Timestamp;
use crate::domain::session::Session;

/// One session in memory.
#[derive(Debug, Default)]
pub(super) struct CacheEntry {
    /// Nothing until the store has answered, and nothing again once it is over.
    known: ArcSwapOption<CachedSession>,
    ended: AtomicBool,
    /// When it was last used here, in milliseconds; 0 if it was not.
    seen: AtomicI64,
    /// The same, as far as the store has been told.
    noted: AtomicI64,
    tokens: Mutex<Vec<TokenKey>>,
}

/// Most token strings remembered for one session. A session has one; ES256 gives a new string each
/// time the same one is minted.
const TOKENS_PER_SESSION: usize = 4;

/// How exactly it is known when a session was last used. Coarse, so that cores do not fight for the place where
/// it is written down.
const SEEN_EVERY: i64 = 5_000;

/// How far the store's note may fall behind.
const NOTED_EVERY: i64 = 60_000;

impl CacheEntry {
    /// The state now; nothing if the session is over, by revocation or by the clock.
    pub(super) fn state(&self, now: Timestamp) -> Option<Arc<CachedSession>> {
        let known = self.known.load_full()?;
        if self.is_over() || known.session.is_expired(now) { None } else { Some(known) }
    }

    /// Whether the store has answered and the session is not over.
    pub(super) fn is_settled(&self) -> bool {
        self.known.load().is_some()
    }

    /// Takes a record over unless a newer one is there or the session has ended meanwhile.
    pub(super) fn update(&self, session: Session) {
        let fresh = Arc::new(CachedSession::new(session));
        self.known.rcu(|current| match current {
            Some(known) if known.session.version >= fresh.session.version => Some(known.clone()),
            _ => Some(fresh.clone()),
        });
        if self.is_over() {
            self.known.store(None);
        }
    }

    /// It is used now.
    pub(super) fn touch(&self, now: Timestamp) {
        if now.millis().saturating_sub(self.seen.load(Ordering::Relaxed)) >= SEEN_EVERY {
            self.seen.store(now.millis(), Ordering::Relaxed);
        }
    }

    /// When it was last used here; the beginning of time if it was not.
    pub(super) fn seen(&self) -> Timestamp {
        Timestamp::from_millis(self.seen.load(Ordering::Relaxed))
    }

    /// The same if the store is to be told, which it then counts as.
    pub(super) fn seen_news(&self) -> Option<Timestamp> {
        let seen = self.seen();
        let news = seen.millis().saturating_sub(self.noted.load(Ordering::Relaxed)) >= NOTED_EVERY;
        news.then(|| {
            self.noted.store(seen.millis(), Ordering::Relaxed);
            seen
        })
    }

    /// Whether nobody can update anything from it or attach_token anything on it any more.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether the clock has ended it, or a failing store left it pending and nobody reads into it any more.
    pub(super) fn is_idle(self: &Arc<Self>, now: Timestamp) -> bool {
        match &*self.known.load() {
            Some(known) => known.session.is_expired(now),
            // Only the map holds it.
            None => Arc::strong_count(self) == 1,
        }
    }

    /// Takes it out of use for good.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.known.store(None);
    }

    /// Hangs a token on it that is not there yet. `put` runs before anybody else can take the tokens off.
    pub(super) fn attach_token(&self, token: TokenKey, put: impl FnOnce(TokenKey)) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() < TOKENS_PER_SESSION && !tokens.contains(&token) {
            tokens.push(token.clone());
            put(token);
        }
    }

    /// Takes its tokens off.
    pub(super) fn take_tokens(&self) -> Vec<TokenKey> {
        std::mem::take(&mut *self.tokens.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A whole token as a key. Only its end is hashed: it is part of a signature, which nobody can
/// choose, and keys are only ever put in after that signature was found good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenKey(Arc<str>);

impl TokenKey {
    pub(super) fn new(token: &str) -> Self {
        Self(Arc::from(token))
    }
}

/// The same, to look with.
#[derive(PartialEq, Eq)]
pub(super) struct TokenRef<'a>(pub(super) &'a str);

fn hash_end<H: Hasher>(token: &str, state: &mut H) {
    let bytes = token.as_bytes();
    state.write(&bytes[bytes.len().saturating_sub(24)..]);
}

impl Hash for TokenKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_end(&self.0, state);
    }
}

impl Hash for TokenRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_end(self.0, state);
    }
}

impl Equivalent<TokenKey> for TokenRef<'_> {
    fn equivalent(&self, key: &TokenKey) -> bool {
        self.0 == &*key.0
    }
}
