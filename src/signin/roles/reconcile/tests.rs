use std::sync::Arc;

use super::*;
use crate::directory::Directory;
use crate::directory::factors::{ExpectedPassword, Factors};
use crate::directory::links::Links;
use crate::directory::people::{EmployeeEdit, People};
use crate::directory::sql::SqlDirectory;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::link::PlatformUserId;
use crate::domain::session::SessionId;
use crate::sessions::SessionCache;
use crate::signin::roles::RoleAction;
use crate::store::StoreError;
use crate::store::embedded::EmbeddedStore;
use crate::store::sole_gateway::SoleGateway;

const CORP: &str = "wwdemo";

/// The development data and a cache that has not compared its sessions.
struct Restarted {
    directory: Arc<SqlDirectory>,
    sessions: Arc<SessionCache>,
    roles: Roles,
    clock: Clock,
    _folder: tempfile::TempDir,
}

impl Restarted {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let clock = Clock::system();
        let directory = SqlDirectory::open(&folder.path().join("directory.db"), clock.clone()).await;
        let directory = Arc::new(directory.expect("directory"));
        directory.fill_for_development().await.expect("employees");
        let store = EmbeddedStore::open(&folder.path().join("state.db"), clock.clone()).await.expect("store");
        let sessions = Arc::new(SessionCache::new(Arc::new(store), 5000, Duration::from_secs(60), Duration::ZERO));
        let roles = Roles::new(sessions.clone(), directory.clone(), None);
        sessions.distrust_store(roles.clone());
        Self { directory, sessions, roles, clock, _folder: folder }
    }

    /// Stores a session as the directory would have it, changed by `edit`.
    async fn store(&self, id: &str, employee_id: &str, edit: impl FnOnce(&mut Session)) -> SessionId {
        let (corp_id, employee_id) = (CorpId::new(CORP), EmployeeId::new(employee_id));
        let roles = self.roles.effective(&corp_id, &employee_id).await.expect("roles");
        let mut session = Session {
            id: SessionId::new(id),
            current_role: roles.first().cloned().unwrap_or(RoleName::new("user")),
            roles,
            corp_id,
            employee_id,
            expires_at: self.clock.now().plus(Duration::from_secs(3600)),
            ..Session::sample()
        };
        edit(&mut session);
        self.sessions.create(&session).await.expect("create");
        session.id
    }

    async fn read(&self, id: &SessionId) -> Option<Session> {
        let found = self.sessions.session(id, self.clock.now()).await.expect("a comparison");
        found.map(|cached| cached.session.clone())
    }
}

fn account(user: &str) -> PlatformAccount {
    PlatformAccount { corp_id: CorpId::new("wwpartner"), user_id: PlatformUserId::new(user) }
}

/// A session that a crash has left, and what becomes of it.
struct Leftover {
    case: &'static str,
    id: SessionId,
    /// The roles and whether it is stepped up; `None` if it ends.
    becomes: Option<(Vec<RoleName>, bool)>,
}

/// Sessions of each kind that a crash between the two writes can leave, and some that agree with the directory.
async fn leftovers(subject: &Restarted) -> Vec<Leftover> {
    let Restarted { directory, .. } = subject;
    let (corp_id, agent) = (CorpId::new(CORP), EmployeeId::new("a2001"));
    let alice = Account { corp_id: &corp_id, employee_id: &agent };
    let user_id = EmployeeId::new("u1001");
    let xiaoming = Account { corp_id: &corp_id, employee_id: &user_id };
    let password = directory.set_password(alice, "hash", ExpectedPassword::Any).await.expect("set").expect("an id");
    for (user, employee, by) in [
        ("wang", xiaoming, "uid 0"),
        ("li", xiaoming, "setting bind.approval"),
        ("zhao", alice, "setting bind.approval"),
    ] {
        directory.approve_link(&account(user), employee, by).await.expect("approve");
    }
    let (disabled, disable) = (EmployeeId::new("c4001"), Some(Standing::Disabled));
    let edit = EmployeeEdit { standing: disable, ..EmployeeEdit::default() };
    directory.change_employee(Account { corp_id: &corp_id, employee_id: &disabled }, edit).await.expect("disable");

    let roles = |names: &[&str]| names.iter().copied().map(RoleName::new).collect::<Vec<_>>();
    let (both, user) = (roles(&["agent", "user"]), roles(&["user"]));
    let until = Some(Timestamp::from_millis(i64::MAX));
    let leads = |user: &'static str| move |session: &mut Session| session.platform_account = Some(account(user));
    let mut all = Vec::new();
    let mut add = |case, id, becomes| all.push(Leftover { case, id, becomes });
    add("as it should be", subject.store("s1", "a2001", |_| ()).await, Some((both.clone(), false)));
    add("disabled", subject.store("s2", "c4001", |_| ()).await, None);
    add("removed", subject.store("s3", "x9999", |session| session.roles = user.clone()).await, None);
    let id = subject.store("s4", "u1001", |session| session.roles = roles(&["admin", "user"])).await;
    add("lost a role", id, Some((user.clone(), false)));
    let id = subject.store("s5", "a2001", |session| session.roles = user.clone()).await;
    add("gained a role", id, Some((both.clone(), false)));
    let id = subject.store("s6", "a2001", |session| session.password_id = Some("old".to_owned())).await;
    add("changed password", id, None);
    let id = subject.store("s7", "a2001", |session| session.password_id = Some(password)).await;
    add("its password", id, Some((both.clone(), false)));
    add("its link", subject.store("s8", "u1001", leads("wang")).await, Some((user.clone(), false)));
    add("its automatic link", subject.store("s9", "u1001", leads("li")).await, Some((user.clone(), false)));
    add("an automatic link to more than a user", subject.store("s10", "a2001", leads("zhao")).await, None);
    add("the link of another employee", subject.store("s11", "a2001", leads("wang")).await, None);
    add("no link", subject.store("s12", "u1001", leads("sun")).await, None);
    let id = subject.store("s13", "u1001", |session| session.stepped_up_until = until).await;
    add("stepped up by a device that is gone", id, Some((user, false)));
    all
}

#[tokio::test]
async fn session_that_a_crash_left_is_corrected_before_its_first_use() {
    let subject = Restarted::new().await;
    for Leftover { case, id, becomes } in leftovers(&subject).await {
        let found = subject.read(&id).await;
        assert_eq!(found.map(|session| (session.roles, session.stepped_up_until.is_some())), becomes, "{case}");
    }
}

#[tokio::test]
async fn comparison_corrects_what_differs_and_then_trusts_the_store() {
    let subject = Restarted::new().await;
    let leftovers = leftovers(&subject).await;
    subject.roles.reconcile_all(&SoleGateway).await;
    subject.directory.close().await;
    for Leftover { case, id, becomes } in leftovers {
        let found = subject.read(&id).await;
        assert_eq!(found.map(|session| (session.roles, session.stepped_up_until.is_some())), becomes, "{case}");
    }
}

#[tokio::test]
async fn comparison_covers_every_page() {
    const SESSIONS: usize = 2 * PAGE + 100;
    let subject = Restarted::new().await;
    let employees = ["a2001", "u1001", "m5001"];
    for part in (0..SESSIONS).collect::<Vec<_>>().chunks(200) {
        let stored = part.iter().map(async |number| {
            let stale = |session: &mut Session| session.roles.push(RoleName::new("supervisor"));
            let current = |_: &mut Session| ();
            let edit: fn(&mut Session) = if number.is_multiple_of(97) { stale } else { current };
            subject.store(&format!("s{number}"), employees[number % employees.len()], edit).await
        });
        futures::future::join_all(stored).await;
    }
    let (next, corrected) = subject.roles.reconcile_page(None, &SoleGateway).await.expect("a page");
    assert!(next.is_some() && corrected > 0, "one page is not all");
    subject.roles.reconcile_all(&SoleGateway).await;
    let all = subject.sessions.store().page(None, 2 * SESSIONS).await.expect("all").sessions;
    assert_eq!(all.len(), SESSIONS);
    assert!(all.iter().all(|session| !session.holds("supervisor")));
}

#[tokio::test]
async fn failing_directory_lets_no_session_in_that_was_not_compared() {
    let subject = Restarted::new().await;
    let (known, unknown) = (subject.store("s1", "u1001", |_| ()).await, subject.store("s2", "a2001", |_| ()).await);
    assert!(subject.read(&known).await.is_some());
    subject.directory.close().await;
    assert!(subject.read(&known).await.is_some(), "it was compared when it was read");
    assert!(subject.sessions.session(&unknown, subject.clock.now()).await.is_err());
    assert!(subject.roles.reconcile_page(None, &SoleGateway).await.is_err());
    assert!(
        subject.sessions.session(&unknown, subject.clock.now()).await.is_err(),
        "a failed comparison changes nothing"
    );
}

/// Leases during whose use another server becomes a primary of the store.
struct FailoverMeanwhile<'a>(&'a Roles);

#[async_trait]
impl WorkLeases for FailoverMeanwhile<'_> {
    async fn acquire(&self, work: Work, lasting: Duration) -> Result<LeaseOutcome, StoreError> {
        // Granted for the pass, and once for each page.
        self.0.distrust_store();
        SoleGateway.acquire(work, lasting).await
    }

    async fn end(&self, work: Work) -> Result<(), StoreError> {
        SoleGateway.end(work).await
    }
}

#[tokio::test]
async fn failover_during_the_comparison_leaves_the_store_distrusted() {
    let subject = Restarted::new().await;
    let id = subject.store("s1", "a2001", |_| ()).await;
    subject.roles.reconcile_all(&FailoverMeanwhile(&subject.roles)).await;
    subject.directory.close().await;
    assert!(subject.sessions.session(&id, subject.clock.now()).await.is_err(), "it must be compared again");
}

#[tokio::test]
async fn changes_during_the_comparison_are_not_undone() {
    let subject = Restarted::new().await;
    let id = subject.store("s1", "a2001", |_| ()).await;
    let (corp_id, employee_id) = (CorpId::new(CORP), EmployeeId::new("a2001"));
    let agent = RoleName::new("agent");
    let take = subject.roles.change(&corp_id, &employee_id, &agent, RoleAction::Take);
    let (taken, ()) = futures::join!(take, subject.roles.reconcile_all(&SoleGateway));
    taken.expect("take");
    assert_eq!(subject.read(&id).await.expect("a session").roles, [RoleName::new("user")]);
}
