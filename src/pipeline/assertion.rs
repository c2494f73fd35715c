//! Phase 7: signs the assertion of the caller's identity for the upstream. Runs after rate limiting, because a signature
//! is the most expensive operation that a request can cause.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

use super::arrive::CheckedRequest;
use super::{Caller, Gate, Permit};
use crate::domain::clock::Timestamp;
use crate::domain::identity::IdentityLines;
use crate::rules::AssertionKind;
use crate::sessions::{AssertionUse, CachedAssertion};

/// The encoded identity of the caller, signed unless the rule says otherwise.
#[derive(Debug)]
pub enum Assertion {
    /// The session's assertion, which its requests share, or one like it for a handshake.
    Session(Arc<CachedAssertion>),
    /// An assertion of this request alone.
    Request(Arc<IdentityLines>, HeaderValue),
    /// None: the rule has `assertion = "off"`.
    Off(Arc<IdentityLines>),
}

/// Adds the assertion to a permit. Without one `forward` refuses the request of a signed-in caller.
pub fn sign(gate: &Gate, permit: &mut Permit, request: &CheckedRequest<'_>, now: Timestamp) {
    let Permit::Upstream(permit) = permit else { return };
    let Caller::SignedIn(known) = &permit.caller else { return };
    let (session, upstream, scope) = (&known.session, &permit.rule.upstream.name, permit.scope);
    permit.assertion = match permit.rule.assertion {
        AssertionKind::Session => {
            let sign = || gate.tokens.assert_identity(session, upstream, scope, now);
            let usage = if permit.handshake.is_some() { AssertionUse::Single } else { AssertionUse::Shared };
            known.assertion(upstream, scope, now, usage, sign).map(Assertion::Session)
        }
        AssertionKind::Request => {
            let method = request.head.method;
            let signed = gate.tokens.assert_request(session, upstream, scope, method, &request.path, now);
            let value = HeaderValue::from_maybe_shared(Bytes::from(signed)).ok();
            value.map(|value| Assertion::Request(known.lines(), value))
        }
        AssertionKind::Off => Some(Assertion::Off(known.lines())),
    };
}
