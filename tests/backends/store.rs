//! The contract of `Store`. `suite!` runs it against one implementation.

use std::sync::Arc;
use std::time::Duration;

use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::role::RoleName;
use deskgate::domain::session::{EndCause, Session, SessionId, Version};
use deskgate::domain::ticket::{ScanId, Ticket, TicketId, TicketState};
use deskgate::domain::write::WriteOutcome;
use deskgate::store::embedded::EmbeddedStore;
use deskgate::store::{Change, Store, StoreError};
use sqlx::Connection;

const LIFETIME: Duration = Duration::from_secs(600);

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

fn session(id: &str, clock: &Clock) -> Session {
    Session {
        id: SessionId::new(id),
        issued_at: clock.now(),
        expires_at: clock.now().plus(LIFETIME),
        address: "203.0.113.7".to_owned(),
        user_agent: "a \"browser\"\r\n".to_owned(),
        ..Session::sample()
    }
}

fn ticket(id: &str, clock: &Clock) -> Ticket {
    Ticket {
        id: TicketId::new(id),
        scan_id: ScanId::new(format!("scan-{id}")),
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
    assert_eq!(store.find(&kept.id).await.expect("find"), Some(kept));
    assert_eq!(store.find(&SessionId::new("unknown")).await.expect("find"), None);
}

async fn duplicate_session_id_is_refused(Subject { store, clock, .. }: &Subject) {
    store.create(&session("s1", clock)).await.expect("create");
    assert!(matches!(store.create(&session("s1", clock)).await, Err(StoreError::Unavailable(_))));
}

async fn expired_session_is_not_found_before_a_sweep(Subject { store, clock, .. }: &Subject) {
    store.create(&session("s1", clock)).await.expect("create");
    clock.advance(LIFETIME);
    assert_eq!(store.find(&SessionId::new("s1")).await.expect("find"), None);
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
    assert_eq!(store.ticket(&TicketId::new("*")).await.expect("find"), None);
    assert_eq!(store.ticket_of_scan(&ScanId::new("%")).await.expect("find"), None);
}

async fn changes_are_published_in_order(Subject { store, clock, .. }: &Subject) {
    let mut changes = store.changes();
    let kept = session("s1", clock);
    store.create(&kept).await.expect("create");
    let next = Session { version: kept.version.next(), ..kept.clone() };
    store.replace(&next, kept.version).await.expect("replace");
    store.revoke(&kept.id, LIFETIME, EndCause::Operator).await.expect("revoke");
    assert!(
        matches!(changes.recv().await.expect("a change").change, Change::SessionChanged(session) if *session == next)
    );
    let ended = changes.recv().await.expect("a change").change;
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
    assert_eq!(store.all(10).await.expect("all").len(), 3);
}

async fn sweep_removes_only_expired_records(Subject { store, clock, .. }: &Subject) {
    store.create(&session("old", clock)).await.expect("create");
    clock.advance(LIFETIME);
    store.create(&session("new", clock)).await.expect("create");
    store.sweep().await.expect("sweep");
    assert!(store.find(&SessionId::new("new")).await.expect("find").is_some());
    store.create(&session("old", clock)).await.expect("the sweep removed the old record");
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

suite!(
    embedded: stored_session_is_found_unchanged,
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
);

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
