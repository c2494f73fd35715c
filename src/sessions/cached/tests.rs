use std::mem::offset_of;

use super::*;
use crate::domain::role::RoleName;
use crate::domain::session::Stage;

/// The bytes of a cache line, and of the counters that an `Arc` has in front of its value.
const LINE: usize = 64;
const COUNTERS: usize = 2 * size_of::<usize>();

#[test]
fn what_every_request_reads_of_a_session_is_side_by_side() {
    let role = offset_of!(CachedSession, session) + offset_of!(Session, current_role) + size_of::<RoleName>();
    let block = offset_of!(CachedAssertion, lines) + size_of::<&[u8]>();
    for (case, end, lines) in [
        ("lifetime", offset_of!(CachedSession, lifetime) + size_of::<SessionLifetime>(), 1),
        ("outdated", offset_of!(CachedSession, outdated) + size_of::<AtomicBool>(), 1),
        ("last use", offset_of!(CachedSession, last_seen) + size_of::<AtomicI64>(), 1),
        ("assertions", offset_of!(CachedSession, assertions) + size_of::<usize>(), 1),
        ("token", offset_of!(CachedSession, token) + size_of::<OnceLock<TokenFingerprint>>(), 2),
        ("stage", offset_of!(CachedSession, session) + offset_of!(Session, stage) + size_of::<Stage>(), 2),
        ("active role", role, 2),
        ("upstream of an assertion", offset_of!(CachedAssertion, upstream) + size_of::<Arc<str>>(), 1),
        ("scope of an assertion", offset_of!(CachedAssertion, scope) + size_of::<Option<Scope>>(), 1),
        ("block of an assertion", block, 1),
    ] {
        assert!(COUNTERS + end <= lines * LINE, "{case} ends at {}", COUNTERS + end);
    }
    // Two lines, so that the allocator's memory for one begins with a line.
    assert!(COUNTERS + size_of::<CachedAssertion>() <= 2 * LINE);
}
