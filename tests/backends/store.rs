//! The contract of `Store`. `suite!` runs it against one implementation.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deskgate::domain::clock::{Clock, Timestamp};
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::link::{PlatformAccount, PlatformUserId};
use deskgate::domain::partition::Partition;
use deskgate::domain::role::RoleName;
use deskgate::domain::session::{EndCause, KeyId, Session, SessionId, Version};
use deskgate::domain::ticket::{ScanId, Ticket, TicketId, TicketState};
use deskgate::domain::write::WriteOutcome;
use deskgate::metrics::Metrics;
use deskgate::store::embedded::EmbeddedStore;
use deskgate::store::redis::RedisStore;
use deskgate::store::transfer::{Denial, ImportCounts, PortableSession};
use deskgate::store::{Change, ChangeEvent, KeyInUse, Store, StoreError};
use sqlx::Connection;
use tokio::sync::broadcast;

use crate::redis_servers::config;
use crate::servers::redis;

pub const LIFETIME: Duration = Duration::from_secs(600);

/// A store under test, its clock and its folder.
struct Subject {
    store: Arc<dyn Store>,
    clock: Clock,
    folder: tempfile::TempDir,
}

async fn embedded() -> Subject {
    let folder = tempfile::tempdir().expect("folder");
    let clock = Clock::system();
    let store = EmbeddedStore::open(&folder.path().join("state.db"), clock.clone()).await.expect("store");
    Subject { store: Arc::new(store), clock, folder }
}

/// A Redis store at a URL, with a key prefix of its own.
async fn redis_at(url: &str) -> Subject {
    let (clock, metrics) = (Clock::system(), Arc::new(Metrics::new().expect("metrics")));
    let store = RedisStore::open(&config(url), clock.clone(), metrics).await.expect("store");
    Subject { store: Arc::new(store), clock, folder: tempfile::tempdir().expect("folder") }
}

async fn redis_standalone() -> Subject {
    redis_at(&redis::standalone()).await
}

async fn redis_sentinel() -> Subject {
    redis_at(&redis::sentinel()).await
}

async fn redis_cluster() -> Subject {
    redis_at(&redis::cluster()).await
}

/// The next change that says something.
pub async fn next_change(changes: &mut broadcast::Receiver<ChangeEvent>) -> Change {
    let next = async {
        loop {
            let event = changes.recv().await.expect("a change");
            if !matches!(event.change, Change::CaughtUp) {
                return event.change;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), next).await.expect("a change in time")
}

pub fn session(id: &str, clock: &Clock) -> Session {
    Session {
        id: SessionId::new(id),
        issued_at: clock.now(),
        expires_at: clock.now().plus(LIFETIME),
        address: "203.0.113.7".into(),
        user_agent: "a \"browser\"\r\n".into(),
        ..Session::sample()
    }
}

pub fn ticket(id: &str, clock: &Clock) -> Ticket {
    Ticket {
        id: TicketId::new(id).digest(),
        scan_id: ScanId::new(format!("scan-{id}")).digest(),
        number: 42,
        version: Version::FIRST,
        state: TicketState::Waiting,
        created_at: clock.now(),
        expires_at: clock.now().plus(Duration::from_secs(180)),
        address: String::new(),
        user_agent: String::new(),
        client: None,
        misses: 0,
        browser: None,
    }
}

async fn stored_session_is_found_unchanged(Subject { store, clock, .. }: &Subject) {
    let kept = session("s1", clock);
    store.create(&kept).await.expect("create");
    assert_eq!(store.find(&kept.id).await.expect("find").as_ref(), Some(&kept));
    assert_eq!(store.find(&SessionId::new("unknown")).await.expect("find"), None);
    let other = session("s2", clock);
    store.create(&other).await.expect("create");
    let ids = [other.id.clone(), SessionId::new("unknown"), kept.id.clone()];
    assert_eq!(store.find_all(&ids).await.expect("find"), [Some(other), None, Some(kept)]);
}

async fn duplicate_session_id_is_refused(Subject { store, clock, .. }: &Subject) {
    store.create(&session("s1", clock)).await.expect("create");
    assert!(matches!(store.create(&session("s1", clock)).await, Err(StoreError::Unavailable(_))));
}

async fn expired_session_is_not_found_before_a_sweep(Subject { store, clock, .. }: &Subject) {
    store.create(&session("s1", clock)).await.expect("create");
    clock.advance(LIFETIME);
    assert_eq!(store.find(&SessionId::new("s1")).await.expect("find"), None);
    assert_eq!(store.find_all(&[SessionId::new("s1")]).await.expect("find"), [None]);
    let found = store.of_employee(&CorpId::new("wwdemo"), &EmployeeId::new("u1001")).await.expect("list");
    assert!(found.is_empty());
}

async fn session_is_replaced_only_at_the_expected_version(Subject { store, clock, .. }: &Subject) {
    let first = session("s1", clock);
    store.create(&first).await.expect("create");
    let second = Session { version: first.version.next(), current_role: RoleName::new("user"), ..first.clone() };
    assert_eq!(store.replace(&second, first.version).await.expect("replace"), WriteOutcome::Applied);
    assert_eq!(
        store.replace(&second, first.version).await.expect("replace"),
        WriteOutcome::Conflict,
        "a stale version"
    );
    assert_eq!(store.find(&first.id).await.expect("find"), Some(second));
}

async fn revoked_session_stays_revoked(Subject { store, clock, .. }: &Subject) {
    let revoked = session("s1", clock);
    store.create(&revoked).await.expect("create");
    store.revoke(&revoked.id, LIFETIME, EndCause::Logout).await.expect("revoke");
    assert_eq!(store.find(&revoked.id).await.expect("find"), None);
    let back = Session { version: revoked.version.next(), ..revoked.clone() };
    assert_eq!(store.replace(&back, revoked.version).await.expect("replace"), WriteOutcome::Conflict);
    store.create(&revoked).await.ok();
    assert_eq!(store.find(&revoked.id).await.expect("find"), None, "the deny list outlives the session record");
    assert_eq!(store.find_all(std::slice::from_ref(&revoked.id)).await.expect("find"), [None]);
    store.sweep().await.expect("sweep");
    assert_eq!(store.find(&revoked.id).await.expect("find"), None, "the deny list outlives a sweep");
}

async fn revoking_an_unknown_session_succeeds(Subject { store, .. }: &Subject) {
    store.revoke(&SessionId::new("unknown"), LIFETIME, EndCause::Logout).await.expect("revoke");
    store.revoke(&SessionId::new("unknown"), LIFETIME, EndCause::Logout).await.expect("again");
}

async fn role_switch_racing_a_logout_never_revives_the_session(Subject { store, clock, .. }: &Subject) {
    for round in 0..100 {
        let racing = session(&format!("s{round}"), clock);
        store.create(&racing).await.expect("create");
        let switched =
            Session { version: racing.version.next(), current_role: RoleName::new("user"), ..racing.clone() };
        let (revoked, replaced) = tokio::join!(
            store.revoke(&racing.id, LIFETIME, EndCause::Logout),
            store.replace(&switched, racing.version)
        );
        revoked.expect("revoke");
        replaced.expect("replace");
        assert_eq!(store.find(&racing.id).await.expect("find"), None, "round {round}");
    }
}

async fn concurrent_ticket_changes_apply_once(Subject { store, clock, .. }: &Subject) {
    let waiting = ticket("t1", clock);
    store.create_ticket(&waiting).await.expect("create");
    let changes = (0..20).map(|_| {
        let cancelled = Ticket { version: waiting.version.next(), state: TicketState::Cancelled, ..waiting.clone() };
        let (store, seen) = (store.clone(), waiting.version);
        async move { store.advance(&cancelled, seen).await.expect("advance") }
    });
    let outcomes = futures::future::join_all(changes).await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == WriteOutcome::Applied).count(), 1);
}

async fn ticket_is_found_by_id_and_scan_id(Subject { store, clock, .. }: &Subject) {
    let kept = ticket("t1", clock);
    store.create_ticket(&kept).await.expect("create");
    assert_eq!(store.ticket(&kept.id).await.expect("find"), Some(kept.clone()));
    assert_eq!(store.ticket_of_scan(&kept.scan_id).await.expect("find"), Some(kept));
    assert_eq!(store.ticket(&TicketId::new("*").digest()).await.expect("find"), None);
    assert_eq!(store.ticket_of_scan(&ScanId::new("%").digest()).await.expect("find"), None);
}

async fn changes_are_published_in_order(Subject { store, clock, .. }: &Subject) {
    let mut changes = store.changes();
    let kept = session("s1", clock);
    store.create(&kept).await.expect("create");
    let next = Session { version: kept.version.next(), ..kept.clone() };
    store.replace(&next, kept.version).await.expect("replace");
    store.revoke(&kept.id, LIFETIME, EndCause::Operator).await.expect("revoke");
    assert!(matches!(next_change(&mut changes).await, Change::SessionChanged(session) if *session == next));
    let ended = next_change(&mut changes).await;
    assert!(matches!(ended, Change::SessionEnded { id, cause: EndCause::Operator } if id == kept.id));
}

async fn of_employee_lists_only_that_employees_sessions(Subject { store, clock, .. }: &Subject) {
    store.create(&session("s1", clock)).await.expect("create");
    let other = Session { employee_id: EmployeeId::new("u1002"), ..session("s2", clock) };
    let elsewhere = Session { corp_id: CorpId::new("wwother"), ..session("s3", clock) };
    store.create(&other).await.expect("create");
    store.create(&elsewhere).await.expect("create");
    let found = store.of_employee(&CorpId::new("wwdemo"), &EmployeeId::new("a2001")).await.expect("list");
    assert_eq!(found.iter().map(|session| session.id.as_str()).collect::<Vec<_>>(), ["s1"]);
    assert_eq!(store.newest(10).await.expect("list").len(), 3);
    assert_eq!(store.newest(2).await.expect("list").len(), 2);
}

/// A session that soon expires: a shared store removes it by the clock of its servers, which no test moves.
fn soon_over(id: &str, clock: &Clock) -> Session {
    Session { expires_at: clock.now().plus(Duration::from_millis(300)), ..session(id, clock) }
}

async fn until_over(session: &Session, clock: &Clock) {
    clock.sleep_until(session.expires_at.plus(Duration::from_millis(200))).await;
}

async fn sweep_removes_only_expired_records(Subject { store, clock, .. }: &Subject) {
    let old = soon_over("old", clock);
    store.create(&old).await.expect("create");
    until_over(&old, clock).await;
    store.create(&session("new", clock)).await.expect("create");
    store.sweep().await.expect("sweep");
    assert!(store.find(&SessionId::new("new")).await.expect("find").is_some());
    store.create(&session("old", clock)).await.expect("the sweep removed the old record");
}

async fn sessions_are_counted_until_they_end_or_are_swept(Subject { store, clock, .. }: &Subject) {
    let account = PlatformAccount { corp_id: CorpId::new("wwpartner"), user_id: PlatformUserId::new("p7001") };
    let linked = Session { platform_account: Some(account), ..session("linked", clock) };
    let old = soon_over("old", clock);
    for session in [&old, &session("plain", clock), &linked] {
        store.create(session).await.expect("create");
    }
    assert_eq!(store.count().await.expect("count"), 3);
    store.revoke(&linked.id, LIFETIME, EndCause::Logout).await.expect("revoke");
    assert_eq!(store.count().await.expect("count"), 2);
    until_over(&old, clock).await;
    store.sweep().await.expect("sweep");
    assert_eq!(store.count().await.expect("count"), 1);
}

async fn sweep_of_many_records_lets_other_writes_through(Subject { store, clock, .. }: &Subject) {
    const RECORDS: usize = 5000;
    let old: Vec<Session> = (0..RECORDS).map(|number| soon_over(&format!("old{number}"), clock)).collect();
    for part in old.chunks(1000) {
        futures::future::try_join_all(part.iter().map(|old| store.create(old))).await.expect("create");
    }
    let seen: Vec<_> = old.iter().map(|old| (old.id.clone(), clock.now())).collect();
    store.note_seen(&seen).await.expect("note");
    until_over(&old[RECORDS - 1], clock).await;
    let (swept, sweeping) = (AtomicBool::new(false), store.sweep());
    let sweep = async {
        sweeping.await.expect("sweep");
        swept.store(true, Ordering::SeqCst);
    };
    let others = async {
        for number in 0..3 {
            store.create(&session(&format!("new{number}"), clock)).await.expect("create");
        }
        assert!(!swept.load(Ordering::SeqCst), "the writes waited for the whole sweep");
    };
    futures::join!(sweep, others);
    let ids: Vec<SessionId> = old.iter().map(|old| old.id.clone()).collect();
    assert!(store.last_seen(&ids[..10]).await.expect("seen").iter().all(Option::is_none));
    assert_eq!(store.page(None, 2 * RECORDS).await.expect("page").sessions.len(), 3);
    for old in &old[..10] {
        store.create(old).await.expect("the sweep removed the old record");
    }
}

async fn pages_hold_every_live_session_once(Subject { store, clock, .. }: &Subject) {
    const SESSIONS: usize = 1000;
    let numbered = |number: usize| Session {
        employee_id: EmployeeId::new(format!("u{}", number * 7 % 300)),
        corp_id: CorpId::new(if number.is_multiple_of(3) { "wwother" } else { "wwdemo" }),
        expires_at: clock.now().plus(if number.is_multiple_of(10) { Duration::from_secs(1) } else { LIFETIME }),
        ..session(&format!("s{number}"), clock)
    };
    let all: Vec<Session> = (0..SESSIONS).map(numbered).collect();
    futures::future::try_join_all(all.iter().map(|one| store.create(one))).await.expect("create");
    clock.advance(Duration::from_secs(2));
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.page(after.as_ref(), 64).await.expect("page");
        assert!(page.sessions.len() <= 64);
        found.extend(page.sessions);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let key = |session: &Session| (session.corp_id.clone(), session.employee_id.clone(), session.id.clone());
    let mut live: Vec<Session> = all.into_iter().filter(|one| !one.is_expired(clock.now())).collect();
    live.sort_by_key(key);
    found.sort_by_key(key);
    assert_eq!(found, live);
}

async fn key_ids(store: &dyn Store) -> Vec<Option<KeyId>> {
    store.keys().await.expect("keys").into_iter().map(|key| key.id).collect()
}

/// Ends the sessions of a key as a gateway does that removes it. Returns how many.
async fn end_sessions_of(store: &dyn Store, key: &KeyInUse, end: Timestamp) -> usize {
    let (mut ended, mut after) = (0, None);
    loop {
        let page = store.of_key(key, end, after.as_ref(), 2).await.expect("of_key");
        if !page.ids.is_empty() {
            store.revoke_all(&page.ids, LIFETIME, EndCause::KeyRemoved).await.expect("revoke");
        }
        store.settle_key(key, end, after.as_ref(), page.next.as_ref()).await.expect("settle");
        ended += page.ids.len();
        after = page.next;
        if after.is_none() {
            return ended;
        }
    }
}

async fn settled_key_is_in_use_again_only_with_new_sessions(Subject { store, clock, .. }: &Subject) {
    let of_key = |id: String, key: &str| Session { key_id: Some(KeyId::new(key)), ..session(&id, clock) };
    for number in 0..20 {
        store.create(&of_key(format!("a{number}"), "a")).await.expect("create");
        store.create(&of_key(format!("b{number}"), "b")).await.expect("create");
    }
    let keys = store.keys().await.expect("keys");
    assert_eq!(end_sessions_of(&**store, &keys[0], clock.now()).await, 20);
    assert_eq!(key_ids(&**store).await, [Some(KeyId::new("b"))], "nobody looks at the sessions of the ended key again");

    // In every partition that has sessions of the other key, one is created after the keys were read.
    let keys = store.keys().await.expect("keys");
    clock.advance(Duration::from_secs(1));
    for number in 0..20 {
        let same = |id: &String| Partition::of(id) == Partition::of(&format!("b{number}"));
        let id = (0..).map(|attempt| format!("late{attempt}")).filter(same).nth(number).expect("an id");
        store.create(&of_key(id, "b")).await.expect("create");
    }
    store.settle_key(&keys[0], clock.now(), None, None).await.expect("settle");
    let keys = store.keys().await.expect("keys");
    assert_eq!(end_sessions_of(&**store, &keys[0], clock.now()).await, 40, "no session is overlooked");
    assert!(key_ids(&**store).await.is_empty());
}

async fn sessions_of_a_key_are_found_shortened_and_revoked(Subject { store, clock, .. }: &Subject) {
    let of_key = |id: &str, key: Option<&str>| Session { key_id: key.map(KeyId::new), ..session(id, clock) };
    for one in [of_key("a1", Some("a")), of_key("a2", Some("a")), of_key("b1", Some("b")), of_key("none", None)] {
        store.create(&one).await.expect("create");
    }
    let (a, b) = (KeyId::new("a"), KeyId::new("b"));
    assert_eq!(key_ids(&**store).await, [None, Some(a.clone()), Some(b.clone())]);
    let ids = async |key: Option<&KeyId>, end| {
        let keys = store.keys().await.expect("keys");
        let Some(key) = keys.iter().find(|one| one.id.as_ref() == key) else { return Vec::new() };
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.of_key(key, end, after.as_ref(), 1).await.expect("of_key");
            assert!(page.ids.len() <= 1, "a limit");
            found.extend(page.ids);
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
    };
    let (now, soon) = (clock.now(), clock.now().plus(Duration::from_secs(5)));
    assert_eq!(ids(None, now).await, [SessionId::new("none")]);
    let mut of_a = ids(Some(&a), now).await;
    of_a.sort();
    assert_eq!(of_a, [SessionId::new("a1"), SessionId::new("a2")]);

    let mut changes = store.changes();
    let mut shortened = store.shorten_all(&of_a, soon).await.expect("shorten");
    shortened.sort_by_key(|session| session.id.clone());
    for session in &shortened {
        assert_eq!((session.expires_at, session.version), (soon, Version::FIRST.next()));
        assert_eq!(store.find(&session.id).await.expect("find").as_ref(), Some(session));
        assert!(matches!(next_change(&mut changes).await, Change::SessionChanged(_)));
    }
    assert_eq!(shortened.len(), 2);
    assert!(ids(Some(&a), soon).await.is_empty(), "no session of the key expires later");
    assert!(store.shorten_all(&of_a, soon).await.expect("shorten").is_empty(), "none is shortened twice");

    store.revoke_all(&of_a, LIFETIME, EndCause::KeyRemoved).await.expect("revoke");
    let keys = key_ids(&**store).await;
    assert!(keys.contains(&None) && keys.contains(&Some(b)), "{keys:?}");
    assert!(ids(Some(&a), now).await.is_empty());
    for id in &of_a {
        store.create(&of_key(id.as_str(), Some("a"))).await.expect("create");
        assert_eq!(store.find(id).await.expect("find"), None, "denied");
    }
}

async fn sessions_of_a_platform_account_are_found(Subject { store, clock, .. }: &Subject) {
    let account = |user: &str| PlatformAccount { corp_id: CorpId::new("wwp"), user_id: PlatformUserId::new(user) };
    let linked = |id: &str, user| Session { platform_account: Some(account(user)), ..session(id, clock) };
    for one in [linked("s1", "wang"), linked("s2", "li"), linked("s3", "wang"), session("s4", clock)] {
        store.create(&one).await.expect("create");
    }
    let found = store.of_platform_account(&account("wang")).await.expect("list");
    let mut ids: Vec<&str> = found.iter().map(|session| session.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["s1", "s3"]);
    assert!(store.of_platform_account(&account("zhao")).await.expect("list").is_empty());
}

async fn last_use_only_moves_forward_and_ends_with_the_session(Subject { store, clock, .. }: &Subject) {
    let (kept, later) = (session("s1", clock), clock.now().plus(Duration::from_secs(5)));
    store.create(&kept).await.expect("create");
    let unknown = SessionId::new("unknown");
    clock.advance(Duration::from_secs(10));
    for at in [kept.issued_at, later, kept.issued_at] {
        store.note_seen(&[(kept.id.clone(), at), (unknown.clone(), at)]).await.expect("note");
    }
    let ids = [unknown, kept.id.clone()];
    assert_eq!(store.last_seen(&ids).await.expect("seen"), [None, Some(later)]);
    assert_eq!(store.find(&kept.id).await.expect("find"), Some(kept.clone()), "a use changes nothing else");
    let next = Session { version: kept.version.next(), ..kept.clone() };
    store.replace(&next, kept.version).await.expect("replace");
    assert_eq!(store.last_seen(&ids).await.expect("seen"), [None, Some(later)], "a change keeps it");
    store.revoke(&kept.id, LIFETIME, EndCause::Logout).await.expect("revoke");
    assert_eq!(store.last_seen(&ids).await.expect("seen"), [None, None]);
}

/// All denials of a store.
async fn denials(store: &Arc<dyn Store>) -> HashMap<SessionId, Timestamp> {
    let (mut found, mut after) = (HashMap::new(), None);
    loop {
        let page = store.denials(after.as_ref(), 7).await.expect("denials");
        found.extend(page.denials.into_iter().map(|denial| (denial.id, denial.until)));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn imported_session_is_as_it_was_exported(Subject { store, clock, .. }: &Subject) {
    let account = PlatformAccount { corp_id: CorpId::new("wwp"), user_id: PlatformUserId::new("wang") };
    let used = clock.now().plus(Duration::from_secs(3));
    let numbered = |number: u64| PortableSession {
        session: Session {
            version: Version(3),
            platform_account: Some(account.clone()).filter(|_| number == 7),
            key_id: Some(KeyId::new("k1")),
            issued_at: clock.now().minus(Duration::from_secs(number)),
            ..session(&format!("s{number}"), clock)
        },
        last_seen: Some(used).filter(|_| number.is_multiple_of(2)),
    };
    let all: Vec<PortableSession> = (0..300).map(numbered).collect();
    let written = ImportCounts { written: all.len(), ..ImportCounts::default() };
    assert_eq!(store.import_sessions(&all).await.expect("import"), written);
    let ids: Vec<SessionId> = all.iter().map(|one| one.session.id.clone()).collect();
    let seen: Vec<_> = all.iter().map(|one| one.last_seen).collect();
    assert_eq!(store.last_seen(&ids).await.expect("seen"), seen);
    for PortableSession { session, .. } in &all {
        assert_eq!(store.find(&session.id).await.expect("find").as_ref(), Some(session));
    }
    let sample = &all[0].session;
    assert_eq!(store.of_employee(&sample.corp_id, &sample.employee_id).await.expect("list").len(), all.len());
    assert_eq!(store.of_platform_account(&account).await.expect("list"), [all[7].session.clone()]);
    assert_eq!(key_ids(&**store).await, [Some(KeyId::new("k1"))]);
    let newest: Vec<Session> = store.newest(20).await.expect("newest");
    assert_eq!(
        newest,
        all[..20].iter().map(|one| one.session.clone()).collect::<Vec<_>>(),
        "by the time of their start"
    );

    let kept = ImportCounts { kept: all.len(), ..ImportCounts::default() };
    assert_eq!(store.import_sessions(&all).await.expect("import"), kept, "again");
    assert_eq!(store.newest(1000).await.expect("newest").len(), all.len(), "each once");
}

async fn import_replaces_nothing_newer_and_revives_nothing(Subject { store, clock, .. }: &Subject) {
    let at_version = |id: &str, version: i64, name: &str| Session {
        version: Version(version),
        name: name.to_owned(),
        ..session(id, clock)
    };
    for id in ["older", "newer", "ended"] {
        store.create(&at_version(id, 5, "stored")).await.expect("create");
    }
    store.revoke(&SessionId::new("ended"), LIFETIME, EndCause::Logout).await.expect("revoke");
    let mut changes = store.changes();
    let imported = [("older", 6), ("newer", 4), ("ended", 9), ("unknown", 1)];
    let imported =
        imported.map(|(id, version)| PortableSession { session: at_version(id, version, "imported"), last_seen: None });
    let counts = store.import_sessions(&imported).await.expect("import");
    assert_eq!(counts, ImportCounts { written: 2, kept: 1, denied: 1 });
    // A gateway that has it cached must learn of it.
    while !matches!(next_change(&mut changes).await, Change::SessionChanged(session) if session.name == "imported") {}
    for (id, name) in
        [("older", Some("imported")), ("newer", Some("stored")), ("ended", None), ("unknown", Some("imported"))]
    {
        let found = store.find(&SessionId::new(id)).await.expect("find").map(|one| one.name);
        assert_eq!(found.as_deref(), name, "{id}");
    }
}

async fn denials_are_exported_and_imported(Subject { store, clock, .. }: &Subject) {
    let ids: Vec<SessionId> = (0..100).map(|number| SessionId::new(format!("s{number}"))).collect();
    store.revoke_all(&ids[..50], LIFETIME, EndCause::Logout).await.expect("revoke");
    store.create(&session("s60", clock)).await.expect("create");
    let mut changes = store.changes();
    let until = clock.now().plus(LIFETIME * 2);
    // Some are denied already, for a shorter time.
    let imported: Vec<Denial> = ids[40..].iter().map(|id| Denial { id: id.clone(), until }).collect();
    store.import_denials(&imported).await.expect("import");
    while !matches!(next_change(&mut changes).await, Change::SessionEnded { id, .. } if id == ids[60]) {}
    assert_eq!(store.find(&ids[60]).await.expect("find"), None, "its session has ended");
    store.import_denials(&[Denial { id: ids[99].clone(), until: clock.now().plus(LIFETIME) }]).await.expect("import");

    let found = denials(store).await;
    assert_eq!(found.len(), ids.len());
    for (number, id) in ids.iter().enumerate() {
        let expected = if number < 40 { clock.now().plus(LIFETIME) } else { until };
        let difference = (found[id].millis() - expected.millis()).abs();
        assert!(difference < 30_000, "{id}: {difference} ms");
    }
    store.create(&session("s99", clock)).await.expect("create");
    assert_eq!(store.find(&ids[99]).await.expect("find"), None, "denied");
}

/// Runs every test against the store of one constructor.
macro_rules! suite {
    ($make:ident: $($test:ident),* $(,)?) => {
        mod $make {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test(&super::$make().await).await;
                }
            )*
        }
    };
}

macro_rules! whole_suite {
    ($($make:ident),*) => { $(suite!(
    $make: stored_session_is_found_unchanged,
    duplicate_session_id_is_refused,
    expired_session_is_not_found_before_a_sweep,
    session_is_replaced_only_at_the_expected_version,
    revoked_session_stays_revoked,
    revoking_an_unknown_session_succeeds,
    role_switch_racing_a_logout_never_revives_the_session,
    concurrent_ticket_changes_apply_once,
    ticket_is_found_by_id_and_scan_id,
    changes_are_published_in_order,
    of_employee_lists_only_that_employees_sessions,
    sweep_removes_only_expired_records,
    sessions_are_counted_until_they_end_or_are_swept,
    sweep_of_many_records_lets_other_writes_through,
    pages_hold_every_live_session_once,
    last_use_only_moves_forward_and_ends_with_the_session,
    sessions_of_a_key_are_found_shortened_and_revoked,
    settled_key_is_in_use_again_only_with_new_sessions,
    sessions_of_a_platform_account_are_found,
    imported_session_is_as_it_was_exported,
    import_replaces_nothing_newer_and_revives_nothing,
    denials_are_exported_and_imported,
);)* };
}

whole_suite!(embedded, redis_standalone, redis_sentinel, redis_cluster);

#[tokio::test]
async fn acknowledged_writes_survive_a_reopen() {
    let Subject { store, clock, folder } = embedded().await;
    let (live, revoked) = (session("live", &clock), session("revoked", &clock));
    store.create(&live).await.expect("create");
    store.create(&revoked).await.expect("create");
    store.revoke(&revoked.id, LIFETIME, EndCause::Logout).await.expect("revoke");
    drop(store);
    let reopened = EmbeddedStore::open(&folder.path().join("state.db"), clock).await.expect("open");
    use deskgate::store::SessionStore;
    assert!(reopened.find(&live.id).await.expect("find").is_some());
    assert!(reopened.find(&revoked.id).await.expect("find").is_none());
}

#[tokio::test]
async fn damaged_file_is_refused_and_left_unchanged() {
    let Subject { store, clock, folder } = embedded().await;
    for number in 0..200 {
        store.create(&session(&format!("s{number}"), &clock)).await.expect("create");
    }
    drop(store);
    let path = folder.path().join("state.db");
    // Moves the write-ahead log into the database file.
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("connect");
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await.expect("checkpoint");
    connection.close().await.expect("close");
    let bytes = std::fs::read(&path).expect("read");
    let cases: [(&str, Vec<u8>); 3] = [
        ("not a database", b"this is not a database, and never was".repeat(300)),
        ("truncated", bytes[..bytes.len() / 2].to_vec()),
        (
            "overwritten",
            bytes.iter().enumerate().map(|(i, byte)| if i % 4096 > 100 && i > 4096 { 0xa5 } else { *byte }).collect(),
        ),
    ];
    for (case, damaged) in cases {
        let other = tempfile::tempdir().expect("folder");
        let path = other.path().join("state.db");
        std::fs::write(&path, &damaged).expect("write");
        assert!(EmbeddedStore::open(&path, clock.clone()).await.is_err(), "{case}");
        assert_eq!(std::fs::read(&path).expect("read").len(), damaged.len(), "{case}: the file was changed");
    }
}

#[tokio::test]
async fn unwritable_store_is_not_ready() {
    let Subject { store, clock, folder } = embedded().await;
    store.ready().await.expect("ready");
    // Another writer holds the lock: a full disk would need a file system of its own.
    let path = folder.path().join("state.db");
    let mut other = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("connect");
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.expect("lock");
    clock.advance(Duration::from_secs(2));
    assert!(store.ready().await.is_err());
    sqlx::query("ROLLBACK").execute(&mut other).await.expect("unlock");
    clock.advance(Duration::from_secs(2));
    store.ready().await.expect("ready again");
}

/// The plan of a query, without its constants.
async fn query_plan(connection: &mut sqlx::SqliteConnection, query: &str) -> String {
    let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}"));
    let rows = sqlx::query(explain).fetch_all(connection).await.expect("a plan");
    rows.iter().map(|row| sqlx::Row::get::<String, _>(row, 3)).collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn file_of_an_older_version_gets_the_indexes_and_keeps_a_record_that_cannot_be_decoded() {
    let Subject { store, clock, folder } = embedded().await;
    store.create(&session("s1", &clock)).await.expect("create");
    store.create(&session("s2", &clock)).await.expect("create");
    store.close().await;
    let path = folder.path().join("state.db");
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("connect");
    sqlx::raw_sql(
        "DROP INDEX sessions_by_start; DROP INDEX sessions_of_key; DROP INDEX sessions_of_platform_account; DROP INDEX denied_by_end;
         UPDATE sessions SET body = 'no JSON' WHERE id = 's1'",
    )
    .execute(&mut connection)
    .await
    .expect("an older file");
    connection.close().await.expect("close");
    let store = EmbeddedStore::open(&path, clock.clone()).await.expect("open");
    use deskgate::store::SessionStore;
    let page = store.page(None, 10).await.expect("page");
    assert_eq!(page.sessions.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["s2"]);
    assert_eq!(key_ids(&store).await, [None]);
    // A new connection: a plan is made from the indexes that its connection knows.
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("connect");
    let key = "CASE WHEN json_valid(body) THEN json_extract(body, '$.key_id') END";
    let plan =
        query_plan(&mut connection, &format!("SELECT id FROM sessions WHERE {key} = 'a' AND expires_at > 1")).await;
    assert!(plan.contains("sessions_of_key"), "{plan}");
    let page = "SELECT body FROM sessions WHERE (corp_id, employee_id, id) > ('a', 'b', 'c')
         ORDER BY corp_id, employee_id, id LIMIT 500";
    let plan = query_plan(&mut connection, page).await;
    assert!(plan.contains("sessions_of_employee") && !plan.contains("TEMP B-TREE"), "{plan}");
}
