//! When a session was last used.

use super::*;

#[tokio::test]
async fn the_last_use_follows_a_clock_that_is_set_back() {
    let (cache, clock, _folder) = cache(100).await;
    let old = Session { issued_at: clock.now().minus(Duration::from_secs(7200)), ..session("s1", &clock) };
    cache.create(&old).await.expect("create");
    let last_seen = async || {
        admit(&cache, "token-1", &old.id, clock.now()).await.expect("live");
        cache.cached("token-1", clock.now()).expect("cached");
        cache.note_seen().await.expect("a write");
        let sessions = cache.of_employee(&old.corp_id, &old.employee_id).await.expect("sessions");
        sessions[0].1
    };
    let before = last_seen().await;
    clock.set_back(Duration::from_secs(3600));
    let after = last_seen().await;
    assert!(after <= clock.now() && after < before, "{after:?} after {before:?}");
}

#[tokio::test]
async fn the_last_use_that_could_not_be_written_is_written_later() {
    let (cache, store, clock, _folder) = shared_cache().await;
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    cache.cached("token-1", clock.now()).expect("cached");
    let is_due = || cache.by_id.pin().get(&session.id).expect("an entry").unsaved_last_seen().is_some();
    assert!(is_due());
    store.close().await;
    assert!(cache.note_seen().await.is_err());
    assert!(is_due());
}

#[tokio::test]
async fn the_last_use_outlives_a_change_of_the_session() {
    let (cache, clock, _folder) = cache(100).await;
    let session = Session { issued_at: clock.now().minus(Duration::from_secs(30)), ..session("s1", &clock) };
    cache.create(&session).await.expect("create");
    admit(&cache, "token-1", &session.id, clock.now()).await.expect("live");
    cache.cached("token-1", clock.now()).expect("cached");
    let used = clock.now();
    cache.switch_role(&session.id, &RoleName::new("user")).await.expect("switch");
    for saved in [false, true] {
        let sessions = cache.of_employee(&session.corp_id, &session.employee_id).await.expect("sessions");
        assert!(sessions[0].1.is_ahead_of(session.issued_at, Duration::from_secs(20)), "saved: {saved}");
        assert!(sessions[0].1 <= used, "saved: {saved}");
        cache.note_seen().await.expect("a write");
        cache.forget_all();
    }
}
