use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::domain::clock::Clock;
use crate::domain::role::RoleName;
use crate::domain::session::{EndCause, LoginMethod, LoginSource, Stage, Version};
use crate::store::embedded::EmbeddedStore;

async fn live(capacity: usize) -> (Arc<SessionCache>, Clock, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("folder");
    let clock = Clock::system();
    let store = EmbeddedStore::open(&folder.path().join("state.db"), clock.clone()).await.expect("store");
    (Arc::new(SessionCache::new(Arc::new(store), capacity, Duration::from_secs(60))), clock, folder)
}

fn session(id: &str, clock: &Clock) -> Session {
    Session {
        id: SessionId::new(id),
        version: Version::FIRST,
        corp_id: CorpId::new("wwdemo"),
        employee_id: EmployeeId::new("a2001"),
        name: "Alex".to_owned(),
        department: String::new(),
        avatar: String::new(),
        roles: vec![RoleName::new("agent"), RoleName::new("user")],
        current_role: RoleName::new("agent"),
        login_method: LoginMethod::Dev,
        login_source: LoginSource::Dev,
        stage: Stage::Full,
        stepped_up_until: None,
        key_id: None,
        password_id: None,
        new_device: false,
        issued_at: clock.now(),
        expires_at: clock.now().plus(Duration::from_secs(60)),
        address: String::new(),
        user_agent: String::new(),
    }
}

/// What the pipeline does with a token whose signature is good.
async fn admit(live: &SessionCache, token: &str, id: &SessionId, now: Timestamp) -> Option<Arc<CachedSession>> {
    let (entry, known) = live.find(id, now).await.expect("find")?;
    live.remember(token, &entry);
    Some(known)
}

fn role_of(known: &CachedSession) -> &str {
    known.session.current_role.as_str()
}

#[tokio::test]
async fn an_ended_session_is_unknown_at_once_and_for_good() {
    let (live, clock, _folder) = live(100).await;
    let session = session("s1", &clock);
    live.create(&session).await.expect("create");
    admit(&live, "token-1", &session.id, clock.now()).await.expect("live");
    assert!(live.known("token-1", clock.now()).is_some());
    live.end(&session.id, EndCause::Logout).await.expect("end");
    assert!(live.known("token-1", clock.now()).is_none());
    assert!(admit(&live, "token-1", &session.id, clock.now()).await.is_none());
    // A late message about the session as it was must not bring it back.
    live.apply_change(&Change::SessionChanged(Box::new(session.clone())));
    assert!(live.session(&session.id, clock.now()).await.expect("read").is_none());
}

#[tokio::test]
async fn a_role_switch_shows_behind_the_same_token() {
    let (live, clock, _folder) = live(100).await;
    let session = session("s1", &clock);
    live.create(&session).await.expect("create");
    admit(&live, "token-1", &session.id, clock.now()).await.expect("live");
    let user = RoleName::new("user");
    assert!(matches!(live.switch_role(&session.id, &user).await.expect("switch"), SessionUpdate::Done(_)));
    assert_eq!(role_of(&live.known("token-1", clock.now()).expect("known")), "user");
    let admin = RoleName::new("admin");
    assert!(matches!(live.switch_role(&session.id, &admin).await.expect("switch"), SessionUpdate::NotHeld));
    // An older message does not undo it.
    live.apply_change(&Change::SessionChanged(Box::new(session)));
    assert_eq!(role_of(&live.known("token-1", clock.now()).expect("known")), "user");
}

#[tokio::test]
async fn lost_roles_reach_live_sessions_and_the_last_one_ends_them() {
    let (live, clock, _folder) = live(100).await;
    let session = session("s1", &clock);
    live.create(&session).await.expect("create");
    admit(&live, "token-1", &session.id, clock.now()).await.expect("live");
    let (corp, employee) = (session.corp_id.clone(), session.employee_id.clone());
    live.change_roles(&corp, &employee, &[RoleName::new("user")]).await.expect("change");
    assert_eq!(role_of(&live.known("token-1", clock.now()).expect("known")), "user");
    live.change_roles(&corp, &employee, &[]).await.expect("change");
    assert!(live.known("token-1", clock.now()).is_none());
}

#[tokio::test]
async fn expiry_is_judged_when_read() {
    let (live, clock, _folder) = live(100).await;
    let session = session("s1", &clock);
    live.create(&session).await.expect("create");
    admit(&live, "token-1", &session.id, clock.now()).await.expect("live");
    clock.advance(Duration::from_secs(61));
    assert!(live.known("token-1", clock.now()).is_none());
    live.sweep(clock.now());
    assert_eq!((live.by_id.len(), live.by_token.len()), (0, 0));
}

#[tokio::test]
async fn the_cache_is_bounded_and_what_falls_out_is_read_again() {
    let (live, clock, _folder) = live(32).await;
    for number in 0..200 {
        let session = session(&format!("s{number}"), &clock);
        live.create(&session).await.expect("create");
        admit(&live, &format!("token-{number}"), &session.id, clock.now()).await.expect("live");
    }
    assert!(live.by_id.len() <= 32, "{} sessions", live.by_id.len());
    assert!(live.by_token.len() <= 32, "{} tokens", live.by_token.len());
    for number in 0..200 {
        let id = SessionId::new(format!("s{number}"));
        assert!(live.session(&id, clock.now()).await.expect("read").is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_read_while_it_ends_stays_ended() {
    let (live, clock, _folder) = live(10_000).await;
    let alive_after = Arc::new(AtomicUsize::new(0));
    for round in 0..300 {
        let session = session(&format!("s{round}"), &clock);
        live.create(&session).await.expect("create");
        let token = format!("token-{round}");
        let reader = tokio::spawn({
            let (live, clock, id, token) = (live.clone(), clock.clone(), session.id.clone(), token.clone());
            async move {
                for _ in 0..3 {
                    admit(&live, &token, &id, clock.now()).await;
                }
            }
        });
        let switcher = tokio::spawn({
            let (live, id) = (live.clone(), session.id.clone());
            async move { live.switch_role(&id, &RoleName::new("user")).await.map(|_| ()) }
        });
        live.end(&session.id, EndCause::Logout).await.expect("end");
        reader.await.expect("reader");
        switcher.await.expect("switcher").expect("switch");
        if live.known(&token, clock.now()).is_some()
            || live.session(&session.id, clock.now()).await.expect("read").is_some()
        {
            alive_after.fetch_add(1, Ordering::Relaxed);
        }
    }
    assert_eq!(alive_after.load(Ordering::Relaxed), 0);
}

/// Row 58 of the attack table. Many at once, so that they share what each waits for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_thousand_switches_that_race_a_logout_none_brings_a_session_back() {
    let (live, clock, _folder) = live(10_000).await;
    for batch in 0..40 {
        let rounds = (0..250).map(|round| {
            let (live, clock) = (live.clone(), clock.clone());
            tokio::spawn(async move {
                let session = session(&format!("s{batch}-{round}"), &clock);
                live.create(&session).await.expect("create");
                let token = format!("token-{}", session.id);
                admit(&live, &token, &session.id, clock.now()).await.expect("live");
                let switch = |role: &'static str| {
                    let (live, id) = (live.clone(), session.id.clone());
                    tokio::spawn(async move { live.switch_role(&id, &RoleName::new(role)).await.map(|_| ()) })
                };
                let switches = [switch("user"), switch("agent")];
                live.end(&session.id, EndCause::Logout).await.expect("end");
                let active = || live.known(&token, clock.now()).is_some();
                assert!(!active(), "{} right after its logout", session.id);
                for switched in switches {
                    switched.await.expect("switcher").expect("switch");
                }
                assert!(!active(), "{} after the last switch", session.id);
                assert!(admit(&live, &token, &session.id, clock.now()).await.is_none(), "{} in the store", session.id);
            })
        });
        for round in futures::future::join_all(rounds).await {
            round.expect("a round");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_outlives_its_logout_when_the_cache_is_full() {
    let (live, clock, _folder) = live(1).await;
    let sessions: Vec<Session> = (0..12).map(|number| session(&format!("s{number}"), &clock)).collect();
    for session in &sessions {
        live.create(session).await.expect("create");
    }
    let readers: Vec<_> = (0..6)
        .map(|reader| {
            let (live, clock, sessions) = (live.clone(), clock.clone(), sessions.clone());
            tokio::spawn(async move {
                for round in 0..600 {
                    let session = &sessions[(round * 7 + reader) % sessions.len()];
                    admit(&live, &format!("token-{}", session.id), &session.id, clock.now()).await;
                }
            })
        })
        .collect();
    for session in &sessions {
        live.end(&session.id, EndCause::Logout).await.expect("end");
        assert!(live.known(&format!("token-{}", session.id), clock.now()).is_none(), "right after");
    }
    for reader in readers {
        reader.await.expect("reader");
    }
    for session in &sessions {
        assert!(live.known(&format!("token-{}", session.id), clock.now()).is_none(), "{} afterwards", session.id);
    }
    assert!(live.by_token.len() <= 2, "{} tokens", live.by_token.len());
}
