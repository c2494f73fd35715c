//! Which version of which session a token leads to.

use super::*;

#[tokio::test]
async fn retired_entry_does_not_take_its_token_from_a_newer_one() {
    let (cache, clock, _folder) = cache(10).await;
    let entry_of = |id: &str| {
        let entry: Arc<CacheEntry> = Arc::default();
        cache.update(&entry, &Arc::new(CachedSession::new(session(id, &clock))));
        entry
    };
    let leads_to = || cache.cached("a.b.c", clock.now()).map(|cached| cached.session.id.clone());
    let (old, new) = (entry_of("old"), entry_of("new"));
    cache.index_token("a.b.c", &old);
    assert_eq!(leads_to(), Some(SessionId::new("old")));
    cache.index_token("a.b.c", &new);
    cache.retire(&SessionId::new("old"), &old);
    assert_eq!(leads_to(), Some(SessionId::new("new")));
    cache.retire(&SessionId::new("new"), &new);
    assert_eq!(leads_to(), None);
    assert!(cache.by_token.is_empty());
}

#[tokio::test]
async fn pending_and_retired_entries_take_no_token() {
    let (cache, clock, _folder) = cache(10).await;
    let entry: Arc<CacheEntry> = Arc::default();
    let record = Arc::new(CachedSession::new(session("s1", &clock)));
    cache.index_token("a.b.c", &entry);
    assert!(cache.by_token.is_empty(), "pending");
    cache.update(&entry, &record);
    cache.retire(&SessionId::new("s1"), &entry);
    for changed in [false, true] {
        if changed {
            cache.update(&entry, &record);
        }
        cache.index_token("a.b.c", &entry);
        assert!(cache.by_token.is_empty(), "retired, changed afterwards: {changed}");
    }
}

/// A lookup that began before a change may still reach the version that was replaced.
#[tokio::test]
async fn version_that_was_replaced_or_dropped_is_not_handed_out() {
    let (cache, clock, _folder) = cache(10).await;
    let (first, entry) = (session("s1", &clock), Arc::default());
    let second = Session { version: first.version.next(), ..first.clone() };
    let [first, second] = [first, second].map(|session| Arc::new(CachedSession::new(session)));
    let token = cache.fingerprinter.fingerprint("a.b.c").expect("a fingerprint");
    let is_handed_out = |version: &Arc<CachedSession>| {
        cache.by_token.pin().insert(token, version.clone());
        cache.cached("a.b.c", clock.now()).is_some()
    };
    cache.update(&entry, &first);
    assert!(is_handed_out(&first));
    cache.update(&entry, &second);
    assert!(!is_handed_out(&first), "replaced");
    assert!(is_handed_out(&second));
    cache.retire(&SessionId::new("s1"), &entry);
    assert!(!is_handed_out(&second), "dropped");
}

#[tokio::test]
async fn token_in_use_is_found_without_the_index_until_its_session_changes_or_ends() {
    let (cache, clock, _folder) = cache(10).await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    let is_found_without_index = || {
        let token = cache.fingerprinter.fingerprint("token-1").expect("a fingerprint");
        let indexed = cache.by_token.pin().remove(&token).cloned();
        let found = cache.cached("token-1", clock.now()).is_some();
        if let Some(indexed) = indexed {
            cache.by_token.pin().insert(token, indexed);
        }
        found
    };
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    assert!(!is_found_without_index(), "not used yet");
    cache.cached("token-1", clock.now()).expect("cached");
    assert!(is_found_without_index());
    cache.switch_role(&session.id, &RoleName::new("user")).await.expect("switch");
    assert!(!is_found_without_index(), "changed");
    assert_eq!(cache.recent.len(), 0, "the version before is freed");
    clock.advance(Duration::from_secs(6));
    assert_eq!(role_of(&cache.cached("token-1", clock.now()).expect("cached")), "user");
    assert!(is_found_without_index(), "the changed session");
    cache.end(&session.id, EndCause::Logout).await.expect("end");
    assert!(!is_found_without_index(), "ended");
    assert_eq!(cache.recent.len(), 0, "the session is freed");
}

#[tokio::test]
async fn tokens_in_one_place_do_not_replace_each_other_with_every_request() {
    let (cache, clock, _folder) = cache(2).await;
    // Four places.
    let place_of = |token: &str| cache.fingerprinter.fingerprint(token).expect("a fingerprint").bits() % 4;
    let tokens = (1..).map(|number| format!("token-{number}"));
    let [first, second] = [1, 2].map(|number| session(&format!("s{number}"), &clock));
    let other = tokens.skip(1).find(|token| place_of(token) == place_of("token-1")).expect("a token");
    for (session, token) in [(&first, "token-1"), (&second, &other)] {
        cache.create(session).await.expect("create");
        admit(&cache, token, &session.id, clock.now()).await.expect("live");
    }
    let has_place = |token: &str| cache.recent.get(&cache.fingerprinter.fingerprint(token).expect("one")).is_some();
    for (passed, token, has_a_place) in
        [(0, "token-1", true), (0, &other, true), (1, "token-1", false), (9, "token-1", true)]
    {
        clock.advance(Duration::from_secs(passed));
        cache.cached(token, clock.now()).expect("cached");
        assert_eq!(has_place(token), has_a_place, "{token} {passed} s later");
    }
}

#[tokio::test]
async fn every_token_of_a_session_leads_to_its_newest_version() {
    let (cache, clock, _folder) = cache(10).await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    for token in ["token-1", "token-2"] {
        admit(&cache, token, &session.id, clock.now()).await.expect("live");
    }
    cache.switch_role(&session.id, &RoleName::new("user")).await.expect("switch");
    for token in ["token-1", "token-2"] {
        assert_eq!(role_of(&cache.cached(token, clock.now()).expect("cached")), "user", "{token}");
    }
    cache.end(&session.id, EndCause::Logout).await.expect("end");
    assert!(cache.by_token.is_empty());
}
