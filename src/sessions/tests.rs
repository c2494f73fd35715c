use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::domain::clock::Clock;
use crate::domain::role::RoleName;
use crate::domain::session::EndCause;
use crate::store::SessionStore;
use crate::store::embedded::EmbeddedStore;
use crate::store::feed_state::FeedState;

mod assertions;
mod index;
mod last_use;
mod signatures;

const LEEWAY: Duration = Duration::from_secs(30);

async fn cache(capacity: usize) -> (Arc<SessionCache>, Clock, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("folder");
    let clock = Clock::system();
    let store = EmbeddedStore::open(&folder.path().join("state.db"), clock.clone()).await.expect("store");
    (Arc::new(SessionCache::new(Arc::new(store), capacity, Duration::from_secs(60), LEEWAY)), clock, folder)
}

/// A cache of a store whose feed is stale after a second and lost after thirty, and that store.
async fn shared_cache() -> (SessionCache, Arc<EmbeddedStore>, Clock, tempfile::TempDir) {
    let (folder, clock) = (tempfile::tempdir().expect("folder"), Clock::system());
    let store = EmbeddedStore::open(&folder.path().join("state.db"), clock.clone()).await.expect("store");
    let feed = FeedState::new(clock.clone(), Duration::from_secs(1), Duration::from_secs(30));
    let store = Arc::new(store.with_feed(feed));
    store.feed().note_applied(clock.uptime());
    (SessionCache::new(store.clone(), 100, Duration::from_secs(3600), LEEWAY), store, clock, folder)
}

fn session(id: &str, clock: &Clock) -> Session {
    Session {
        id: SessionId::new(id),
        issued_at: clock.now(),
        expires_at: clock.now().plus(Duration::from_secs(60)),
        ..Session::sample()
    }
}

/// Looks a session up as the pipeline does for a token whose signature is valid.
async fn admit(cache: &SessionCache, token: &str, id: &SessionId, now: Timestamp) -> Option<Arc<CachedSession>> {
    let (entry, known) = cache.find(id, now).await.expect("find")?;
    cache.index_token(token, &entry);
    Some(known)
}

fn role_of(known: &CachedSession) -> &str {
    known.session.current_role.as_str()
}

#[tokio::test]
async fn a_revoked_session_leaves_the_cache_at_once_and_for_good() {
    let (cache, clock, _folder) = cache(100).await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    assert!(cache.cached("token-1", clock.now()).is_some());
    cache.end(&session.id, EndCause::Logout).await.expect("end");
    assert!(cache.cached("token-1", clock.now()).is_none());
    assert!(admit(&cache, "token-1", &session.id, clock.now()).await.is_none());
    // A late change event about the old version must not bring the session back.
    cache.apply_change(&Change::SessionChanged(Box::new(session.clone())));
    assert!(cache.session(&session.id, clock.now()).await.expect("read").is_none());
}

#[tokio::test]
async fn cache_is_used_only_while_the_feed_is_current() {
    let (cache, store, clock, _folder) = shared_cache().await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    assert!(cache.cached("token-1", clock.now()).is_some());
    // Another gateway revokes it, and this one gets no event.
    store.revoke(&session.id, Duration::from_secs(60), EndCause::Logout).await.expect("revoke");
    clock.advance(Duration::from_secs(2));
    assert!(cache.cached("token-1", clock.now()).is_none(), "the feed is stale");
    assert!(admit(&cache, "token-1", &session.id, clock.now()).await.is_none(), "the store is asked");
}

#[tokio::test]
async fn known_sessions_go_on_for_the_outage_grace_and_no_longer() {
    let (cache, store, clock, _folder) = shared_cache().await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    store.close().await;
    assert!(cache.cached("token-1", clock.now()).is_some(), "the feed is current");
    clock.advance(Duration::from_secs(2));
    for attempt in 1..=3 {
        let known = cache.session(&session.id, clock.now()).await.expect("grace");
        assert!(known.is_some(), "attempt {attempt}");
        let unknown = cache.session(&SessionId::new("s2"), clock.now()).await;
        assert!(matches!(unknown, Err(Error::Unavailable { .. })), "attempt {attempt}");
    }
    clock.advance(Duration::from_secs(29));
    let known = cache.session(&session.id, clock.now()).await;
    assert!(matches!(known, Err(Error::Unavailable { part: Part::Store, .. })), "the grace is over");
}

#[tokio::test]
async fn a_role_switch_takes_effect_for_the_same_token() {
    let (cache, clock, _folder) = cache(100).await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    let user = RoleName::new("user");
    assert!(matches!(cache.switch_role(&session.id, &user).await.expect("switch"), SessionUpdate::Done(_)));
    assert_eq!(role_of(&cache.cached("token-1", clock.now()).expect("cached")), "user");
    let admin = RoleName::new("admin");
    assert!(matches!(cache.switch_role(&session.id, &admin).await.expect("switch"), SessionUpdate::NotAllowed));
    // A change event about an older version does not undo it.
    cache.apply_change(&Change::SessionChanged(Box::new(session)));
    assert_eq!(role_of(&cache.cached("token-1", clock.now()).expect("cached")), "user");
}

#[tokio::test]
async fn role_changes_apply_to_live_sessions_and_losing_all_roles_ends_them() {
    let (cache, clock, _folder) = cache(100).await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    let (corp, employee) = (session.corp_id.clone(), session.employee_id.clone());
    cache.change_roles(&corp, &employee, &[RoleName::new("user")]).await.expect("change");
    assert_eq!(role_of(&cache.cached("token-1", clock.now()).expect("cached")), "user");
    cache.change_roles(&corp, &employee, &[]).await.expect("change");
    assert!(cache.cached("token-1", clock.now()).is_none());
}

/// Counts the comparisons, which fail while `fails` is set.
#[derive(Clone, Default)]
struct Comparison {
    count: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Reconcile for Comparison {
    async fn reconcile(&self, sessions: &[Session]) -> Result<Vec<SessionId>, Error> {
        self.count.fetch_add(sessions.len(), Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) { Err(Error::NotFound) } else { Ok(Vec::new()) }
    }
}

#[tokio::test]
async fn session_is_compared_when_it_is_read_and_not_when_it_is_cached() {
    let (cache, clock, _folder) = cache(100).await;
    let (first, second) = (session("s1", &clock), session("s2", &clock));
    cache.create(&first).await.expect("create");
    cache.create(&second).await.expect("create");
    let comparison = Comparison::default();
    cache.distrust_store(comparison.clone());
    for _ in 0..3 {
        admit(&cache, "token-1", &first.id, clock.now()).await.expect("live");
        assert!(cache.cached("token-1", clock.now()).is_some());
    }
    assert_eq!(comparison.count.load(Ordering::SeqCst), 1);
    cache.trust_store(&cache.store_distrust());
    admit(&cache, "token-2", &second.id, clock.now()).await.expect("live");
    assert_eq!(comparison.count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn comparison_ends_no_distrust_that_came_after_it_began() {
    let (cache, clock, _folder) = cache(100).await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    let comparison = Comparison::default();
    for distrusted_before in [false, true] {
        if distrusted_before {
            cache.distrust_store(comparison.clone());
        }
        let pass = cache.store_distrust();
        cache.distrust_store(comparison.clone());
        cache.trust_store(&pass);
        assert!(!cache.trusts_store(), "distrusted before: {distrusted_before}");
        cache.trust_store(&cache.store_distrust());
        assert!(cache.trusts_store());
    }
}

#[tokio::test]
async fn many_sessions_are_read_as_one_is() {
    let (cache, store, clock, _folder) = shared_cache().await;
    let sessions: Vec<Session> = (0..5).map(|number| session(&format!("s{number}"), &clock)).collect();
    for session in &sessions[..4] {
        cache.create(session).await.expect("create");
    }
    admit(&cache, "token-0", &sessions[0].id, clock.now()).await.expect("live");
    cache.forget_all();
    admit(&cache, "token-1", &sessions[1].id, clock.now()).await.expect("live");
    store.revoke(&sessions[2].id, Duration::from_secs(60), EndCause::Logout).await.expect("revoke");
    let comparison = Comparison::default();
    cache.distrust_store(comparison.clone());
    let ids: Vec<SessionId> = sessions.iter().map(|session| session.id.clone()).collect();
    let read = async || cache.sessions(&ids, clock.now()).await;
    let found: Vec<bool> = read().await.expect("read").iter().map(Option::is_some).collect();
    assert_eq!(found, [true, true, false, true, false], "those that are live, in their order");
    assert_eq!(comparison.count.load(Ordering::SeqCst), 2, "those that were not cached are compared");
    cache.forget_all();
    comparison.fails.store(true, Ordering::SeqCst);
    assert!(read().await.is_err(), "none is used that was not compared");
}

#[tokio::test]
async fn sessions_that_are_cached_are_used_while_the_store_cannot_answer_and_others_are_a_failure() {
    let (cache, store, clock, _folder) = shared_cache().await;
    let (known, unknown) = (session("s1", &clock), session("s2", &clock));
    cache.create(&known).await.expect("create");
    cache.create(&unknown).await.expect("create");
    cache.forget_all();
    admit(&cache, "token-1", &known.id, clock.now()).await.expect("live");
    store.close().await;
    clock.advance(Duration::from_secs(2));
    let both = cache.sessions(&[known.id.clone(), unknown.id.clone()], clock.now()).await;
    assert!(matches!(both, Err(Error::Unavailable { part: Part::Store, .. })));
    let found = cache.sessions(std::slice::from_ref(&known.id), clock.now()).await.expect("within the grace");
    assert!(found[0].is_some());
}

/// Makes a change while a session is read, and then fails as a store that cannot answer does.
struct ChangeAndFail(std::sync::Weak<SessionCache>, Change);

#[async_trait::async_trait]
impl Reconcile for ChangeAndFail {
    async fn reconcile(&self, _: &[Session]) -> Result<Vec<SessionId>, Error> {
        self.0.upgrade().expect("a cache").apply_change(&self.1);
        Err(Error::Unavailable { part: Part::Store, cause: None })
    }
}

#[tokio::test]
async fn session_that_changes_or_ends_while_the_store_fails_is_not_used_as_it_was() {
    for ends in [false, true] {
        let (cache, _store, clock, _folder) = shared_cache().await;
        let (cache, session) = (Arc::new(cache), session("s1", &clock));
        cache.create(&session).await.expect("create");
        admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
        let (id, user) = (session.id.clone(), RoleName::new("user"));
        let change = if ends {
            Change::SessionEnded { id: id.clone(), cause: EndCause::Logout }
        } else {
            let version = session.version.next();
            Change::SessionChanged(Box::new(Session { current_role: user, version, ..session }))
        };
        cache.distrust_store(ChangeAndFail(Arc::downgrade(&cache), change));
        clock.advance(Duration::from_secs(2));
        let one = cache.session(&id, clock.now()).await;
        // The first one ended the session, and the second one was not known at all.
        let many = cache.sessions(std::slice::from_ref(&id), clock.now()).await;
        if ends {
            assert!(matches!(one, Err(Error::Unavailable { .. })));
            assert!(matches!(many, Err(Error::Unavailable { .. })));
        } else {
            assert_eq!(role_of(&one.expect("within the grace").expect("live")), "user");
            assert_eq!(role_of(many.expect("within the grace")[0].as_ref().expect("live")), "user");
        }
    }
}

#[tokio::test]
async fn changed_record_enters_the_cache_only_if_it_was_compared() {
    let (cache, clock, _folder) = cache(100).await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    let comparison = Comparison::default();
    comparison.fails.store(true, Ordering::SeqCst);
    cache.distrust_store(comparison.clone());
    assert!(cache.session(&session.id, clock.now()).await.is_err());
    let until = clock.now().plus(Duration::from_secs(30));
    cache.step_up(&session.id, clock.now(), until).await.expect("a change");
    assert!(cache.session(&session.id, clock.now()).await.is_err(), "the change has filled the pending entry");
    comparison.fails.store(false, Ordering::SeqCst);
    let found = cache.session(&session.id, clock.now()).await.expect("read").expect("live");
    assert_eq!(found.session.stepped_up_until, Some(until));
}

#[tokio::test]
async fn an_expired_session_is_not_returned_before_any_sweep() {
    let (cache, clock, _folder) = cache(100).await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    clock.advance(Duration::from_secs(61));
    assert!(cache.cached("token-1", clock.now()).is_none());
    cache.sweep(clock.now()).await;
    assert_eq!((cache.by_id.len(), cache.by_token.len()), (0, 0));
}

#[tokio::test]
async fn the_cache_is_bounded_and_evicted_sessions_are_read_again() {
    let (cache, clock, _folder) = cache(32).await;
    for number in 0..200 {
        let session = session(&format!("s{number}"), &clock);
        cache.create(&session).await.expect("create");
        admit(&cache, &format!("token-{number}"), &session.id, clock.now()).await.expect("live");
    }
    assert!(cache.by_id.len() <= 32, "{} sessions", cache.by_id.len());
    assert!(cache.by_token.len() <= 32, "{} tokens", cache.by_token.len());
    for number in 0..200 {
        let id = SessionId::new(format!("s{number}"));
        assert!(cache.session(&id, clock.now()).await.expect("read").is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_read_while_it_is_revoked_stays_revoked() {
    let (cache, clock, _folder) = cache(10_000).await;
    let alive_after = Arc::new(AtomicUsize::new(0));
    for round in 0..300 {
        let session = session(&format!("s{round}"), &clock);
        cache.create(&session).await.expect("create");
        let token = format!("token-{round}");
        let reader = tokio::spawn({
            let (cache, clock, id, token) = (cache.clone(), clock.clone(), session.id.clone(), token.clone());
            async move {
                for _ in 0..3 {
                    admit(&cache, &token, &id, clock.now()).await;
                    cache.cached(&token, clock.now());
                }
            }
        });
        let switcher = tokio::spawn({
            let (cache, id) = (cache.clone(), session.id.clone());
            async move { cache.switch_role(&id, &RoleName::new("user")).await.map(|_| ()) }
        });
        cache.end(&session.id, EndCause::Logout).await.expect("end");
        reader.await.expect("reader");
        switcher.await.expect("switcher").expect("switch");
        if cache.cached(&token, clock.now()).is_some()
            || cache.session(&session.id, clock.now()).await.expect("read").is_some()
        {
            alive_after.fetch_add(1, Ordering::Relaxed);
        }
    }
    assert_eq!(alive_after.load(Ordering::Relaxed), 0);
}

/// 10,000 rounds in parallel batches, so that they share disk syncs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_role_switch_that_races_a_logout_revives_the_session() {
    let (cache, clock, _folder) = cache(10_000).await;
    for batch in 0..40 {
        let rounds = (0..250).map(|round| {
            let (cache, clock) = (cache.clone(), clock.clone());
            tokio::spawn(async move {
                let session = session(&format!("s{batch}-{round}"), &clock);
                cache.create(&session).await.expect("create");
                let token = format!("token-{}", session.id);
                admit(&cache, &token, &session.id, clock.now()).await.expect("live");
                let switch = |role: &'static str| {
                    let (cache, id) = (cache.clone(), session.id.clone());
                    tokio::spawn(async move { cache.switch_role(&id, &RoleName::new(role)).await.map(|_| ()) })
                };
                let switches = [switch("user"), switch("agent")];
                cache.cached(&token, clock.now());
                cache.end(&session.id, EndCause::Logout).await.expect("end");
                let active = || cache.cached(&token, clock.now()).is_some();
                assert!(!active(), "{} right after its logout", session.id);
                for switched in switches {
                    switched.await.expect("switcher").expect("switch");
                }
                assert!(!active(), "{} after the last switch", session.id);
                assert!(admit(&cache, &token, &session.id, clock.now()).await.is_none(), "{} in the store", session.id);
            })
        });
        for round in futures::future::join_all(rounds).await {
            round.expect("a round");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logout_invalidates_the_token_even_when_the_cache_is_full() {
    let (cache, clock, _folder) = cache(1).await;
    let sessions: Vec<Session> = (0..12).map(|number| session(&format!("s{number}"), &clock)).collect();
    for session in &sessions {
        cache.create(session).await.expect("create");
    }
    let readers: Vec<_> = (0..6)
        .map(|reader| {
            let (cache, clock, sessions) = (cache.clone(), clock.clone(), sessions.clone());
            tokio::spawn(async move {
                for round in 0..600 {
                    let session = &sessions[(round * 7 + reader) % sessions.len()];
                    let token = format!("token-{}", session.id);
                    admit(&cache, &token, &session.id, clock.now()).await;
                    cache.cached(&token, clock.now());
                }
            })
        })
        .collect();
    for session in &sessions {
        cache.end(&session.id, EndCause::Logout).await.expect("end");
        assert!(cache.cached(format!("token-{}", session.id), clock.now()).is_none(), "right after");
    }
    for reader in readers {
        reader.await.expect("reader");
    }
    for session in &sessions {
        assert!(cache.cached(format!("token-{}", session.id), clock.now()).is_none(), "{} afterwards", session.id);
    }
    assert!(cache.by_token.len() <= 2, "{} tokens", cache.by_token.len());
    assert!(cache.recent.len() <= cache.by_token.len(), "{} recent tokens", cache.recent.len());
}

#[tokio::test]
async fn a_session_from_the_future_is_refused_until_its_time_comes() {
    let (cache, clock, _folder) = cache(100).await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    clock.set_back(LEEWAY);
    assert!(cache.cached("token-1", clock.now()).is_some(), "within the leeway");
    clock.set_back(Duration::from_secs(3600));
    assert!(cache.cached("token-1", clock.now()).is_none(), "cached");
    assert!(cache.session(&session.id, clock.now()).await.expect("read").is_none(), "read from the store");
    clock.set_forward(Duration::from_secs(3600));
    assert!(cache.cached("token-1", clock.now()).is_some(), "the clock was set right");
}

#[tokio::test]
async fn cached_session_holds_no_address_and_no_user_agent_and_the_list_shows_both() {
    let (cache, clock, _folder) = cache(100).await;
    let (address, user_agent) = ("10.1.2.3".into(), "Firefox".into());
    let session = Session { address, user_agent, ..session("s1", &clock) };
    cache.create(&session).await.expect("create");
    let cached = cache.session(&session.id, clock.now()).await.expect("read").expect("live");
    assert_eq!((&*cached.session.address, &*cached.session.user_agent), ("", ""));
    cache.switch_role(&session.id, &RoleName::new("user")).await.expect("switch");
    let listed = cache.of_employee(&session.corp_id, &session.employee_id).await.expect("sessions");
    assert_eq!((&*listed[0].0.address, &*listed[0].0.user_agent), ("10.1.2.3", "Firefox"));
}

#[tokio::test]
async fn full_cache_evicts_the_session_that_was_cached_first_and_is_not_in_use() {
    let (cache, clock, _folder) = cache(20).await;
    let start = clock.now();
    let sessions: Vec<Session> = (0..60).map(|number| session(&format!("s{number}"), &clock)).collect();
    let token = |session: &Session| format!("token-{}", session.id);
    let is_cached = |session: &Session| cache.by_token.pin().iter().any(|(_, cached)| cached.session.id == session.id);
    let in_use = &sessions[0];
    for (number, session) in sessions.iter().enumerate() {
        cache.create(session).await.expect("create");
        admit(&cache, &token(session), &session.id, start).await.expect("live");
        assert!(cache.cached(token(in_use), start).is_some(), "in use, after {number} others");
        assert_eq!(cache.by_id.len(), 20.min(number + 1), "after {number}");
        assert_eq!(cache.by_token.len(), cache.by_id.len(), "after {number}");
    }
    let left: Vec<usize> = (0..60).filter(|number| is_cached(&sessions[*number])).collect();
    assert_eq!(left, [vec![0], (41..60).collect()].concat());
}

#[tokio::test]
async fn full_cache_evicts_a_session_in_use_if_all_are() {
    let (cache, clock, _folder) = cache(20).await;
    let now = clock.now();
    for number in 0..60 {
        let session = session(&format!("s{number}"), &clock);
        cache.create(&session).await.expect("create");
        admit(&cache, session.id.as_str(), &session.id, now).await.expect("live");
        assert!(cache.cached(session.id.as_str(), now).is_some());
        assert!(cache.by_id.len() <= 20, "{} entries", cache.by_id.len());
    }
}
