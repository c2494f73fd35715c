//! Seventh phase: the signed word to the upstream about the caller, as the rule asks for it. After the rates: a
//! signature is the dearest thing that a request can make us do.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

use super::arrive::Request;
use super::{Caller, Gate, Permit};
use crate::domain::clock::Timestamp;
use crate::rules::AssertionKind;
use crate::sessions::CachedAssertion;
use crate::token::assertion;

/// The signed form of an identity.
#[derive(Debug)]
pub enum Assertion {
    /// The session's, which other requests carry as well.
    Session(Arc<CachedAssertion>),
    /// This request's own.
    Request(HeaderValue),
    /// None: the rule wants it so.
    Off,
}

/// Signs for a permitted request whose caller is known. What could not be signed is not forwarded.
pub fn sign(gate: &Gate, permit: &mut Permit, request: &Request<'_>, now: Timestamp) {
    let Permit::Upstream(pass) = permit else { return };
    let Caller::SignedIn(known) = &pass.caller else { return };
    let (session, upstream) = (&known.session, &pass.rule.upstream.name);
    pass.assertion = match pass.rule.assertion {
        AssertionKind::Session => {
            let sign = || gate.tokens.assert_identity(session, upstream, now);
            known.assertion(upstream, now, assertion::FRESH, sign).map(Assertion::Session)
        }
        AssertionKind::Request => {
            let signed = gate.tokens.assert_request(session, upstream, request.head.method, &request.path, now);
            HeaderValue::from_maybe_shared(Bytes::from(signed)).ok().map(Assertion::Request)
        }
        AssertionKind::Off => Some(Assertion::Off),
    };
}
