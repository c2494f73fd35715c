use std::mem::offset_of;

use super::*;
use crate::domain::role::RoleName;
use crate::domain::session::Stage;

/// The bytes of a cache line, and of the counters that an `Arc` has in front of its value.
const LINE: usize = 64;
const COUNTERS: usize = 2 * size_of::<usize>();

#[test]
fn what_every_request_reads_of_a_session_is_in_one_cache_line() {
    let role = offset_of!(CachedSession, session) + offset_of!(Session, current_role) + size_of::<RoleName>();
    let block = offset_of!(CachedAssertion, lines) + size_of::<&[u8]>();
    for (case, end) in [
        ("lifetime", offset_of!(CachedSession, lifetime) + size_of::<SessionLifetime>()),
        ("assertions", offset_of!(CachedSession, assertions) + size_of::<usize>()),
        ("stage", offset_of!(CachedSession, session) + offset_of!(Session, stage) + size_of::<Stage>()),
        ("active role", role),
        ("upstream of an assertion", offset_of!(CachedAssertion, upstream) + size_of::<Arc<str>>()),
        ("scope of an assertion", offset_of!(CachedAssertion, scope) + size_of::<Option<Scope>>()),
        ("block of an assertion", block),
    ] {
        assert!(COUNTERS + end <= LINE, "{case} ends at {}", COUNTERS + end);
    }
    // Two lines, so that the allocator's memory for one begins with a line.
    assert!(COUNTERS + size_of::<CachedAssertion>() <= 2 * LINE);
}
