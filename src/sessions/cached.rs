//! A cached session: the record with its encoded identity headers and its signed assertions.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use crate::domain::clock::Timestamp;
use crate::domain::identity::IdentityLines;
use crate::domain::scope::Scope;
use crate::domain::session::{Session, SessionLifetime};
use crate::token::assertion::FRESH;
use crate::token::fingerprint::TokenFingerprint;

/// A session at one version, with the headers that its requests need. They are encoded at the first request and freed by a sweep, except
/// for assertions that are still fresh.
///
/// In this order: with many sessions the cost is in cache misses, and what nearly every request reads is at the beginning.
#[derive(Debug)]
#[repr(C)]
pub struct CachedSession {
    /// When its token is valid; a copy.
    lifetime: SessionLifetime,
    /// Set when a newer version has replaced it, or the cache has dropped it.
    outdated: AtomicBool,
    /// When the session was last used on this gateway, in milliseconds; 0 if never.
    last_seen: AtomicI64,
    /// The newest assertion, linked to those for other upstreams and scopes.
    assertions: ArcSwapOption<CachedAssertion>,
    /// The first token that led to the session.
    token: OnceLock<TokenFingerprint>,
    /// The session record, without the address and user agent of the sign-in, which lists read from the store.
    pub session: Session,
    /// The identity headers, for requests that carry no session assertion.
    lines: ArcSwapOption<IdentityLines>,
}

/// Resolution of `last_seen` in milliseconds. Coarse, so that cores do not contend for its cache line.
const LAST_SEEN_RESOLUTION: u64 = 5_000;

/// How recently a session in use was used, in milliseconds.
const IN_USE: u64 = 60_000;

/// Which requests use an assertion that is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssertionUse {
    /// All of the session, while it is fresh.
    Shared,
    /// Only the one that it is signed for. A WebSocket handshake may be the only request of its session for hours, and its assertion would
    /// take about a kilobyte for nothing.
    Single,
}

/// A signed session assertion for one upstream and scope with the identity headers, reused while it is fresh. In this order for the same
/// reason as [`CachedSession`].
#[derive(Debug, Clone)]
#[repr(C)]
pub struct CachedAssertion {
    upstream: Arc<str>,
    signed_at: Timestamp,
    scope: Option<Scope>,
    /// The identity headers and this assertion in one block.
    lines: IdentityLines,
    next: Option<Arc<CachedAssertion>>,
}

impl CachedAssertion {
    /// All identity headers and the assertion, encoded for an HTTP/1.1 head.
    pub fn block(&self) -> &Bytes {
        self.lines.block()
    }

    /// All identity headers and the assertion, as names and values.
    pub fn lines(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        self.lines.lines()
    }

    fn linked_to(&self, next: Option<Arc<CachedAssertion>>) -> Arc<Self> {
        Arc::new(Self { next, ..self.clone() })
    }

    fn is_for(&self, upstream: &Arc<str>, scope: Option<Scope>) -> bool {
        self.scope == scope && self.upstream == *upstream
    }

    /// Whether it may still be sent. One from the future may not: upstreams refuse it, and it would live too long.
    fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.signed_at.plus(FRESH) && !self.signed_at.is_ahead_of(now, Duration::ZERO)
    }
}

impl CachedSession {
    pub(crate) fn new(session: Session) -> Self {
        Self {
            lifetime: session.lifetime(),
            outdated: AtomicBool::new(false),
            last_seen: AtomicI64::new(0),
            token: OnceLock::new(),
            session: Session { address: Box::default(), user_agent: Box::default(), ..session },
            lines: ArcSwapOption::empty(),
            assertions: ArcSwapOption::empty(),
        }
    }

    /// Whether its token is valid now: it has not expired and is not from the future.
    pub(super) fn is_valid(&self, now: Timestamp, leeway: Duration) -> bool {
        self.lifetime.contains(now, leeway)
    }

    /// Whether the cache has another version of the session by now, or none.
    pub(super) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire)
    }

    /// Notes that the cache has another version of the session by now, or none.
    pub(super) fn set_outdated(&self) {
        self.outdated.store(true, Ordering::Release);
    }

    /// The first token that led to the session.
    pub(super) fn token(&self) -> Option<&TokenFingerprint> {
        self.token.get()
    }

    /// Notes a token that leads to the session; only the first one counts.
    pub(super) fn set_token(&self, token: TokenFingerprint) {
        let _ = self.token.set(token);
    }

    /// Records a use of the session. Returns false if one was recorded just before.
    pub(super) fn touch(&self, now: Timestamp) -> bool {
        let is_due = now.millis().abs_diff(self.last_seen.load(Ordering::Relaxed)) >= LAST_SEEN_RESOLUTION;
        if is_due {
            self.last_seen.store(now.millis(), Ordering::Relaxed);
        }
        is_due
    }

    /// When the session was last used on this gateway; the epoch if never.
    pub(super) fn last_seen(&self) -> Timestamp {
        Timestamp::from_millis(self.last_seen.load(Ordering::Relaxed))
    }

    /// Takes over the token and the last use of the version that this one replaces. A use at this very moment may not be noted.
    pub(super) fn take_over(&self, replaced: &CachedSession) {
        if let Some(token) = replaced.token() {
            self.set_token(*token);
        }
        self.last_seen.store(replaced.last_seen.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether the session was used within the last minute.
    pub(super) fn is_in_use(&self, now: Timestamp) -> bool {
        now.millis().abs_diff(self.last_seen.load(Ordering::Relaxed)) < IN_USE
    }

    /// The identity headers without an assertion.
    pub fn lines(&self) -> Arc<IdentityLines> {
        self.lines.load_full().unwrap_or_else(|| {
            let lines = Arc::new(IdentityLines::of(&self.session));
            self.lines.store(Some(lines.clone()));
            lines
        })
    }

    /// Returns the fresh assertion for an upstream and scope, or signs a new one.
    pub fn assertion(
        &self,
        upstream: &Arc<str>,
        scope: Option<Scope>,
        now: Timestamp,
        usage: AssertionUse,
        sign: impl FnOnce() -> String,
    ) -> Option<Arc<CachedAssertion>> {
        // Borrowed, because only the one that is found is kept.
        let newest = self.assertions.load();
        let all = || std::iter::successors(newest.as_ref(), |one| one.next.as_ref());
        if let Some(found) = all().find(|one| one.is_for(upstream, scope) && one.is_fresh(now)) {
            return Some(found.clone());
        }
        let lines = IdentityLines::with_assertion(&self.session, &sign())?;
        let next = match usage {
            AssertionUse::Shared => all()
                .filter(|one| !one.is_for(upstream, scope) && one.is_fresh(now))
                .fold(None, |next, one| Some(one.linked_to(next))),
            AssertionUse::Single => None,
        };
        let latest = CachedAssertion { lines, upstream: upstream.clone(), scope, signed_at: now, next };
        let latest = Arc::new(latest);
        if usage == AssertionUse::Single {
            return Some(latest);
        }
        // Two requests may both sign one; either is valid.
        self.assertions.store(Some(latest.clone()));
        Some(latest)
    }

    /// Frees the encoded headers, except for assertions that are still fresh.
    pub(super) fn drop_encoded(&self, now: Timestamp) {
        if self.lines.load().is_some() {
            self.lines.store(None);
        }
        // The others are hardly ever younger than the newest.
        let is_stale = self.assertions.load().as_ref().is_some_and(|newest| !newest.is_fresh(now));
        if is_stale {
            // If a request has just stored another, the next one signs again.
            self.assertions.store(None);
        }
    }
}

#[cfg(test)]
mod tests;
