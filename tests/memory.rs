//! The memory that a cached session takes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use deskgate::config::TokenAlgorithm;
use deskgate::domain::clock::{Clock, Timestamp};
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::session::{Session, SessionId};
use deskgate::sessions::{AssertionUse, SessionCache};
use deskgate::store::SessionStore;
use deskgate::store::embedded::EmbeddedStore;
use deskgate::token::Tokens;
use deskgate::token::assertion;
use deskgate::token::key_folder::KeyFolder;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Few, because the allocator records every call; the maps' tables are as full as those of 200,000.
const SESSIONS: usize = 780;

const HOUR: Duration = Duration::from_secs(3600);

/// A session with a long profile, as the platform reports it.
fn session(number: usize, tokens: &Tokens, now: Timestamp) -> Session {
    Session {
        id: SessionId::new(format!("s{number:021}")),
        corp_id: CorpId::new("ww0123456789abcdef"),
        employee_id: EmployeeId::new(format!("e{number:07}")),
        name: "Alice Chen".to_owned(),
        department: "IT Service Desk".to_owned(),
        avatar: format!("https://wework.qpic.cn/wwpic/{number:0>72}"),
        issued_at: now,
        expires_at: now.plus(HOUR),
        key_id: Some(tokens.signing(now).0),
        address: "10.20.30.40".into(),
        user_agent: "Mozilla/5.0 (Windows NT 10.0) ".repeat(4).into(),
        ..Session::sample()
    }
}

/// The bytes that each session takes on the heap, given those that all of them take.
fn per_session(before: usize) -> usize {
    (dhat::HeapStats::get().curr_bytes - before) / SESSIONS
}

#[tokio::test]
async fn a_cached_session_takes_less_than_2_kb_and_less_than_1_kb_when_it_is_idle() {
    let folder = tempfile::tempdir().expect("folder");
    let (clock, now) = (Clock::system(), Clock::system().now());
    let keys = KeyFolder::new(folder.path().join("keys")).open_ring(TokenAlgorithm::EdDSA, HOUR, now).expect("keys");
    let tokens = Tokens::new(keys, "https://desk.example.com".to_owned(), Duration::from_secs(30));
    let store = EmbeddedStore::open(&folder.path().join("state.db"), clock).await.expect("store");
    let sessions: Vec<Session> = (0..SESSIONS).map(|number| session(number, &tokens, now)).collect();
    let created = futures::future::join_all(sessions.iter().map(|session| store.create(session))).await;
    created.into_iter().collect::<Result<Vec<_>, _>>().expect("create");
    let signed: Vec<String> = sessions.iter().map(|session| tokens.mint(session, now)).collect();
    let cache = SessionCache::new(Arc::new(store), SESSIONS, HOUR, Duration::from_secs(30));
    let upstream: Arc<str> = Arc::from("helpdesk");

    let profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get().curr_bytes;
    for session in &sessions {
        cache.session(&session.id, now).await.expect("read").expect("a session");
    }
    let record = per_session(before);
    for token in &signed {
        cache.of_token(&tokens, token, now).await.expect("a valid token");
    }
    let admitted = per_session(before);
    for token in &signed {
        let cached = cache.cached(token, now).expect("cached");
        let sign = || tokens.assert_identity(&cached.session, &upstream, None, now);
        cached.assertion(&upstream, None, now, AssertionUse::Shared, sign).expect("an assertion");
    }
    let used = per_session(before);
    cache.sweep(now.plus(assertion::FRESH)).await;
    let idle = per_session(before);
    drop(profiler);
    let parts = format!("record {record}, with its token {admitted}, just used {used}, idle {idle}");
    assert!(used <= 2000, "bytes per session: {parts}");
    assert!(idle <= 1000, "bytes per session: {parts}");
}
