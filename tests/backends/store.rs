//! What every store promises. `suite!` runs it on one implementation.

use std::sync::Arc;
use std::time::Duration;

use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::role::RoleName;
use deskgate::domain::session::{EndCause, LoginMethod, LoginSource, Session, SessionId, Stage, Version};
use deskgate::domain::ticket::{ScanId, Ticket, TicketId, TicketState};
use deskgate::domain::write::WriteOutcome;
use deskgate::store::embedded::EmbeddedStore;
use deskgate::store::{Change, Store, StoreError};
use sqlx::Connection;

const LIFETIME: Duration = Duration::from_secs(600);

/// A store under test, its clock, and what must live as long as it.
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
        version: Version::FIRST,
        corp_id: CorpId::new("wwdemo"),
        employee_id: EmployeeId::new("u1001"),
        name: "林小雨".to_owned(),
        department: "财务部".to_owned(),
        avatar: String::new(),
        roles: vec![RoleName::new("agent"), RoleName::new("user")],
        current_role: RoleName::new("agent"),
        login_method: LoginMethod::Qrcode,
        login_source: LoginSource::Qrcode,
        stage: Stage::Full,
        stepped_up_until: None,
        key_id: None,
        password_id: None,
        new_device: false,
        issued_at: clock.now(),
        expires_at: clock.now().plus(LIFETIME),
        address: "203.0.113.7".to_owned(),
        user_agent: "a \"browser\"\r\n".to_owned(),
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

async fn a_session_is_found_as_it_was_kept(Subject { store, clock, .. }: &Subject) {
    let kept = session("s1", clock);
    store.create(&kept).await.expect("create");
    assert_eq!(store.find(&kept.id).await.expect("find"), Some(kept));
    assert_eq!(store.find(&SessionId::new("nobody")).await.expect("find"), None);
}

async fn a_second_session_of_the_same_id_is_refused(Subject { store, clock, .. }: &Subject) {
    store.create(&session("s1", clock)).await.expect("create");
    assert!(matches!(store.create(&session("s1", clock)).await, Err(StoreError::Unavailable(_))));
}

async fn an_expired_session_is_not_found_without_any_sweeper(Subject { store, clock, .. }: &Subject) {
    store.create(&session("s1", clock)).await.expect("create");
    clock.advance(LIFETIME);
    assert_eq!(store.find(&SessionId::new("s1")).await.expect("find"), None);
    let found = store.of_employee(&CorpId::new("wwdemo"), &EmployeeId::new("u1001")).await.expect("list");
    assert!(found.is_empty());
}

async fn a_change_is_made_only_on_the_version_that_was_seen(Subject { store, clock, .. }: &Subject) {
    let first = session("s1", clock);
    store.create(&first).await.expect("create");
    let second = Session { version: first.version.next(), current_role: RoleName::new("user"), ..first.clone() };
    assert_eq!(store.replace(&second, first.version).await.expect("replace"), WriteOutcome::Applied);
    assert_eq!(
        store.replace(&second, first.version).await.expect("replace"),
        WriteOutcome::Conflict,
        "seen too long ago"
    );
    assert_eq!(store.find(&first.id).await.expect("find"), Some(second));
}

async fn a_revoked_session_stays_revoked(Subject { store, clock, .. }: &Subject) {
    let gone = session("s1", clock);
    store.create(&gone).await.expect("create");
    store.revoke(&gone.id, LIFETIME, EndCause::Logout).await.expect("revoke");
    assert_eq!(store.find(&gone.id).await.expect("find"), None);
    let back = Session { version: gone.version.next(), ..gone.clone() };
    assert_eq!(store.replace(&back, gone.version).await.expect("replace"), WriteOutcome::Conflict);
    store.create(&gone).await.ok();
    assert_eq!(store.find(&gone.id).await.expect("find"), None, "the deny list outlives the record");
    store.sweep().await.expect("sweep");
    assert_eq!(store.find(&gone.id).await.expect("find"), None, "and a sweep");
}

async fn revoking_what_is_not_there_is_no_error(Subject { store, .. }: &Subject) {
    store.revoke(&SessionId::new("nobody"), LIFETIME, EndCause::Logout).await.expect("revoke");
    store.revoke(&SessionId::new("nobody"), LIFETIME, EndCause::Logout).await.expect("again");
}

async fn a_switch_that_races_a_logout_never_wins(Subject { store, clock, .. }: &Subject) {
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

async fn of_many_changes_to_one_version_one_is_made(Subject { store, clock, .. }: &Subject) {
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

async fn a_ticket_is_found_by_both_its_names(Subject { store, clock, .. }: &Subject) {
    let kept = ticket("t1", clock);
    store.create_ticket(&kept).await.expect("create");
    assert_eq!(store.ticket(&kept.id).await.expect("find"), Some(kept.clone()));
    assert_eq!(store.ticket_of_scan(&kept.scan_id).await.expect("find"), Some(kept));
    assert_eq!(store.ticket(&TicketId::new("*")).await.expect("find"), None);
    assert_eq!(store.ticket_of_scan(&ScanId::new("%")).await.expect("find"), None);
}

async fn changes_are_heard_in_their_order(Subject { store, clock, .. }: &Subject) {
    let mut changes = store.changes();
    let kept = session("s1", clock);
    store.create(&kept).await.expect("create");
    let next = Session { version: kept.version.next(), ..kept.clone() };
    store.replace(&next, kept.version).await.expect("replace");
    store.revoke(&kept.id, LIFETIME, EndCause::Operator).await.expect("revoke");
    assert!(matches!(changes.recv().await.expect("heard").change, Change::SessionChanged(session) if *session == next));
    let ended = changes.recv().await.expect("heard").change;
    assert!(matches!(ended, Change::SessionEnded { id, cause: EndCause::Operator } if id == kept.id));
}

async fn sessions_of_an_employee_are_theirs_alone(Subject { store, clock, .. }: &Subject) {
    store.create(&session("s1", clock)).await.expect("create");
    let other = Session { employee_id: EmployeeId::new("u1002"), ..session("s2", clock) };
    let elsewhere = Session { corp_id: CorpId::new("wwother"), ..session("s3", clock) };
    store.create(&other).await.expect("create");
    store.create(&elsewhere).await.expect("create");
    let found = store.of_employee(&CorpId::new("wwdemo"), &EmployeeId::new("u1001")).await.expect("list");
    assert_eq!(found.iter().map(|session| session.id.as_str()).collect::<Vec<_>>(), ["s1"]);
    assert_eq!(store.all(10).await.expect("all").len(), 3);
}

async fn a_sweep_removes_only_what_is_over(Subject { store, clock, .. }: &Subject) {
    store.create(&session("old", clock)).await.expect("create");
    clock.advance(LIFETIME);
    store.create(&session("new", clock)).await.expect("create");
    store.sweep().await.expect("sweep");
    assert!(store.find(&SessionId::new("new")).await.expect("find").is_some());
    store.create(&session("old", clock)).await.expect("the old record is gone");
}

/// Makes a test of every promise, for one way to make a store.
macro_rules! suite {
    ($make:ident: $($promise:ident),* $(,)?) => {
        mod $make {
            $(
                #[tokio::test]
                async fn $promise() {
                    super::$promise(&super::$make().await).await;
                }
            )*
        }
    };
}

suite!(
    embedded: a_session_is_found_as_it_was_kept,
    a_second_session_of_the_same_id_is_refused,
    an_expired_session_is_not_found_without_any_sweeper,
    a_change_is_made_only_on_the_version_that_was_seen,
    a_revoked_session_stays_revoked,
    revoking_what_is_not_there_is_no_error,
    a_switch_that_races_a_logout_never_wins,
    of_many_changes_to_one_version_one_is_made,
    a_ticket_is_found_by_both_its_names,
    changes_are_heard_in_their_order,
    sessions_of_an_employee_are_theirs_alone,
    a_sweep_removes_only_what_is_over,
);

#[tokio::test]
async fn what_was_answered_is_there_after_a_reopening() {
    let Subject { store, clock, folder } = embedded().await;
    let (kept, gone) = (session("kept", &clock), session("gone", &clock));
    store.create(&kept).await.expect("create");
    store.create(&gone).await.expect("create");
    store.revoke(&gone.id, LIFETIME, EndCause::Logout).await.expect("revoke");
    drop(store);
    let again = EmbeddedStore::open(&folder.path().join("state.db"), clock).await.expect("open");
    use deskgate::store::SessionStore;
    assert!(again.find(&kept.id).await.expect("find").is_some());
    assert!(again.find(&gone.id).await.expect("find").is_none());
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_not_replaced_by_an_empty_one() {
    let Subject { store, clock, folder } = embedded().await;
    for number in 0..200 {
        store.create(&session(&format!("s{number}"), &clock)).await.expect("create");
    }
    drop(store);
    let path = folder.path().join("state.db");
    // Folds the write-ahead log into the file.
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("connect");
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await.expect("checkpoint");
    connection.close().await.expect("close");
    let bytes = std::fs::read(&path).expect("read");
    let cases: [(&str, Vec<u8>); 3] = [
        ("not a database", b"this is not a database, and never was".repeat(300)),
        ("cut in the middle", bytes[..bytes.len() / 2].to_vec()),
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
        assert_eq!(std::fs::read(&path).expect("read").len(), damaged.len(), "{case}: left as it was");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_not_ready() {
    let Subject { store, clock, folder } = embedded().await;
    store.ready().await.expect("ready");
    // Another writer that does not let go is what a test can do without a disk of its own.
    let path = folder.path().join("state.db");
    let mut other = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("connect");
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.expect("lock");
    clock.advance(Duration::from_secs(2));
    assert!(store.ready().await.is_err());
    sqlx::query("ROLLBACK").execute(&mut other).await.expect("unlock");
    clock.advance(Duration::from_secs(2));
    store.ready().await.expect("ready again");
}
