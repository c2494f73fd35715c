//! A session as requests need it: the record, its identity headers and its assertions, ready-made.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::HeaderValue;

use crate::domain::clock::Timestamp;
use crate::domain::identity::{self, IdentityLines};
use crate::domain::session::Session;

/// A session's state at one version, with everything that requests need of it ready-made.
#[derive(Debug)]
pub struct CachedSession {
    /// The record.
    pub session: Session,
    /// Its identity headers.
    pub lines: IdentityLines,
    /// The assertion that was made last, and behind it those for other upstreams.
    assertions: ArcSwapOption<CachedAssertion>,
}

/// The gateway's signed word to one upstream about a session, as it is sent again and again.
#[derive(Debug)]
pub struct CachedAssertion {
    /// As a header's value.
    pub value: HeaderValue,
    /// All identity headers as a piece of an HTTP/1.1 head, this one among them: in one place, because with
    /// many sessions what costs is the way to memory.
    pub block: Bytes,
    upstream: Arc<str>,
    fresh_until: Timestamp,
    next: Option<Arc<CachedAssertion>>,
}

impl CachedAssertion {
    fn new(lines: &IdentityLines, signed: &str, upstream: &Arc<str>, fresh_until: Timestamp) -> Option<Self> {
        let name = identity::ASSERTION;
        let start = lines.block().len() + name.as_str().len() + 2;
        let pieces = [lines.block(), name.as_str().as_bytes(), b": ", signed.as_bytes(), b"\r\n"];
        let block = Bytes::from(pieces.concat());
        let value = HeaderValue::from_maybe_shared(block.slice(start..start + signed.len())).ok()?;
        Some(Self { value, block, upstream: upstream.clone(), fresh_until, next: None })
    }

    fn behind(&self, next: Option<Arc<CachedAssertion>>) -> Arc<Self> {
        Arc::new(Self {
            value: self.value.clone(),
            block: self.block.clone(),
            upstream: self.upstream.clone(),
            fresh_until: self.fresh_until,
            next,
        })
    }
}

impl CachedSession {
    pub(super) fn new(session: Session) -> Self {
        Self { lines: IdentityLines::of(&session), session, assertions: ArcSwapOption::empty() }
    }

    /// The assertion for an upstream, signed anew when there is no fresh one.
    pub fn assertion(
        &self,
        upstream: &Arc<str>,
        now: Timestamp,
        fresh: Duration,
        sign: impl FnOnce() -> String,
    ) -> Option<Arc<CachedAssertion>> {
        let made = self.assertions.load_full();
        let all = || std::iter::successors(made.as_ref(), |one| one.next.as_ref());
        if let Some(found) = all().find(|one| one.upstream == *upstream && now < one.fresh_until) {
            return Some(found.clone());
        }
        let others = all()
            .filter(|one| one.upstream != *upstream && now < one.fresh_until)
            .fold(None, |next, one| Some(one.behind(next)));
        let signed = CachedAssertion::new(&self.lines, &sign(), upstream, now.plus(fresh))?;
        let latest = Arc::new(CachedAssertion { next: others, ..signed });
        // Two requests may both make one; either is good.
        self.assertions.store(Some(latest.clone()));
        Some(latest)
    }
}
