//! Assertions that are kept with a cached session.

use super::*;
use crate::domain::identity::ASSERTION;
use crate::token::assertion::FRESH;

#[test]
fn an_assertion_is_reused_while_it_is_fresh_and_never_sent_from_the_future() {
    let (fresh, start) = (FRESH, Timestamp::from_seconds(1_800_000_000));
    let hour = Duration::from_secs(3600);
    for (case, now, reused) in [
        ("at once", start, true),
        ("a moment before the end", start.plus(fresh - Duration::from_millis(1)), true),
        ("at the end", start.plus(fresh), false),
        ("an hour later", start.plus(hour), false),
        ("the clock was set back by an hour", start.minus(hour), false),
        ("the clock was set back by a second", start.minus(Duration::from_secs(1)), false),
    ] {
        let (cached, upstream) = (CachedSession::new(Session::sample()), Arc::from("helpdesk"));
        let assertion = |now, text: &str| {
            let signed =
                cached.assertion(&upstream, None, now, AssertionUse::Shared, || text.to_owned()).expect("an assertion");
            value_of(&signed)
        };
        assert_eq!(assertion(start, "first"), "first");
        assert_eq!(assertion(now, "second"), if reused { "first" } else { "second" }, "{case}");
    }
}

/// The assertion among the headers of an encoded identity.
fn value_of(assertion: &CachedAssertion) -> String {
    let found = assertion.lines().find(|(name, _)| *name == ASSERTION).expect("an assertion");
    found.1.to_str().expect("text").to_owned()
}

#[test]
fn an_assertion_for_one_request_is_not_kept_and_a_kept_one_is_used_instead() {
    let (upstream, now) = (Arc::from("helpdesk"), Timestamp::from_seconds(1_800_000_000));
    let cached = CachedSession::new(Session::sample());
    let assertion = |usage, text: &str| {
        let signed = cached.assertion(&upstream, None, now, usage, || text.to_owned()).expect("an assertion");
        (value_of(&signed), Arc::downgrade(&signed))
    };
    let (value, single) = assertion(AssertionUse::Single, "first");
    assert_eq!(value, "first");
    assert!(single.upgrade().is_none(), "it is freed with its request");
    assert_eq!(assertion(AssertionUse::Shared, "second").0, "second");
    assert_eq!(assertion(AssertionUse::Single, "third").0, "second");
}

#[tokio::test]
async fn sweep_frees_an_assertion_that_is_no_longer_fresh_and_keeps_the_others() {
    let (cache, clock, _folder) = cache(100).await;
    let (used, idle, now) = (session("s1", &clock), session("s2", &clock), clock.now());
    let upstream = Arc::from("helpdesk");
    let assertion_of = async |session: &Session, now, text: &str| {
        let cached = admit(&cache, session.id.as_str(), &session.id, now).await.expect("live");
        cached.assertion(&upstream, None, now, AssertionUse::Shared, || text.to_owned()).expect("an assertion")
    };
    for session in [&used, &idle] {
        cache.create(session).await.expect("create");
    }
    let later = now.plus(FRESH);
    let freed = Arc::downgrade(&assertion_of(&idle, now, "first").await);
    let kept = assertion_of(&used, later, "first").await;
    cache.sweep(later).await;
    assert!(freed.upgrade().is_none(), "the assertion of a session that is not in use");
    assert!(Arc::ptr_eq(&kept, &assertion_of(&used, later, "second").await));
    let second = assertion_of(&idle, later, "second").await;
    assert_eq!(value_of(&second), "second");
}
