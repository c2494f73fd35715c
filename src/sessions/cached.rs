//! A cached session: the record with its encoded identity headers and its signed assertions.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::HeaderValue;

use crate::domain::clock::Timestamp;
use crate::domain::identity::{self, IdentityLines};
use crate::domain::scope::Scope;
use crate::domain::session::Session;

/// A session at one version, with the headers that requests need already encoded.
#[derive(Debug)]
pub struct CachedSession {
    /// The session record.
    pub session: Session,
    /// The encoded identity headers.
    pub lines: IdentityLines,
    /// The newest assertion, linked to those for other upstreams and scopes.
    assertions: ArcSwapOption<CachedAssertion>,
}

/// A signed session assertion for one upstream and scope, reused while it is fresh.
#[derive(Debug)]
pub struct CachedAssertion {
    /// The header value.
    pub value: HeaderValue,
    /// All identity headers and this assertion, encoded for an HTTP/1.1 head. One contiguous block: with many sessions
    /// the cost is in cache misses.
    pub block: Bytes,
    upstream: Arc<str>,
    scope: Option<Scope>,
    signed_at: Timestamp,
    fresh_until: Timestamp,
    next: Option<Arc<CachedAssertion>>,
}

impl CachedAssertion {
    fn new(
        lines: &IdentityLines,
        signed: &str,
        upstream: &Arc<str>,
        scope: Option<Scope>,
        signed_at: Timestamp,
        fresh: Duration,
    ) -> Option<Self> {
        let name = identity::ASSERTION;
        let start = lines.block().len() + name.as_str().len() + 2;
        let pieces = [lines.block(), name.as_str().as_bytes(), b": ", signed.as_bytes(), b"\r\n"];
        let block = Bytes::from(pieces.concat());
        let value = HeaderValue::from_maybe_shared(block.slice(start..start + signed.len())).ok()?;
        let fresh_until = signed_at.plus(fresh);
        Some(Self { value, block, upstream: upstream.clone(), scope, signed_at, fresh_until, next: None })
    }

    fn linked_to(&self, next: Option<Arc<CachedAssertion>>) -> Arc<Self> {
        Arc::new(Self {
            value: self.value.clone(),
            block: self.block.clone(),
            upstream: self.upstream.clone(),
            scope: self.scope,
            signed_at: self.signed_at,
            fresh_until: self.fresh_until,
            next,
        })
    }

    fn is_for(&self, upstream: &Arc<str>, scope: Option<Scope>) -> bool {
        self.scope == scope && self.upstream == *upstream
    }

    /// Whether it may still be sent. One from the future may not: upstreams refuse it, and it would live too long.
    fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.fresh_until && !self.signed_at.is_ahead_of(now, Duration::ZERO)
    }
}

impl CachedSession {
    /// Builds the identity headers of a session.
    pub(crate) fn new(session: Session) -> Self {
        Self { lines: IdentityLines::of(&session), session, assertions: ArcSwapOption::empty() }
    }

    /// Returns the fresh assertion for an upstream and scope, or signs a new one.
    pub fn assertion(
        &self,
        upstream: &Arc<str>,
        scope: Option<Scope>,
        now: Timestamp,
        fresh: Duration,
        sign: impl FnOnce() -> String,
    ) -> Option<Arc<CachedAssertion>> {
        let newest = self.assertions.load_full();
        let all = || std::iter::successors(newest.as_ref(), |one| one.next.as_ref());
        if let Some(found) = all().find(|one| one.is_for(upstream, scope) && one.is_fresh(now)) {
            return Some(found.clone());
        }
        let others = all()
            .filter(|one| !one.is_for(upstream, scope) && one.is_fresh(now))
            .fold(None, |next, one| Some(one.linked_to(next)));
        let signed = CachedAssertion::new(&self.lines, &sign(), upstream, scope, now, fresh)?;
        let latest = Arc::new(CachedAssertion { next: others, ..signed });
        // Two requests may both sign one; either is valid.
        self.assertions.store(Some(latest.clone()));
        Some(latest)
    }
}
