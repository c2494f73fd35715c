use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::directory::factors::Account;
use crate::directory::people::AgentEdit;
use crate::directory::sql::SqlDirectory;
use crate::domain::clock::Clock;
use crate::domain::role;
use crate::domain::session::{Session, SessionId};
use crate::store::embedded::EmbeddedStore;

const ROLES: [&str; 4] = ["admin", "agent", "user", "supervisor"];

/// A change to the account, its agent record or its sessions. The number is an index of [`ROLES`].
#[derive(Debug, Clone, Copy)]
enum AccountChange {
    Grant(usize),
    Take(usize),
    SetAgentRole(usize),
    SignIn,
    SwitchRole(usize),
}

fn change() -> impl Strategy<Value = AccountChange> {
    let role = 0..ROLES.len();
    prop_oneof![
        2 => role.clone().prop_map(AccountChange::Grant),
        4 => role.clone().prop_map(AccountChange::Take),
        1 => role.clone().prop_map(AccountChange::SetAgentRole),
        1 => Just(AccountChange::SignIn),
        2 => role.prop_map(AccountChange::SwitchRole),
    ]
}

/// The account `n6001`, which begins without an assignment, and its live sessions. `m5001` stays an administrator.
struct Subject {
    directory: Arc<dyn Directory>,
    sessions: Arc<SessionCache>,
    roles: Roles,
    clock: Clock,
    corp_id: CorpId,
    employee_id: EmployeeId,
    _folder: tempfile::TempDir,
}

impl Subject {
    async fn new(default_role: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let clock = Clock::system();
        let directory =
            SqlDirectory::open(&folder.path().join("directory.db"), clock.clone()).await.expect("directory");
        directory.fill_for_development().await.expect("employees");
        let directory: Arc<dyn Directory> = Arc::new(directory);
        let store = EmbeddedStore::open(&folder.path().join("state.db"), clock.clone()).await.expect("store");
        let sessions = Arc::new(SessionCache::new(Arc::new(store), 100, Duration::from_secs(60), Duration::ZERO));
        let roles = Roles::new(sessions.clone(), directory.clone(), default_role.map(RoleName::new));
        let (corp_id, employee_id) = (CorpId::new("wwdemo"), EmployeeId::new("n6001"));
        Self { directory, sessions, roles, clock, corp_id, employee_id, _folder: folder }
    }

    async fn effective(&self) -> Vec<RoleName> {
        self.roles.effective(&self.corp_id, &self.employee_id).await.expect("roles")
    }

    async fn live_sessions(&self) -> Vec<Session> {
        self.sessions.store().of_employee(&self.corp_id, &self.employee_id).await.expect("sessions")
    }

    async fn change(&self, role: usize, action: RoleAction) {
        let role = RoleName::new(ROLES[role]);
        self.roles.change(&self.corp_id, &self.employee_id, &role, action).await.expect("change");
    }

    async fn set_agent_role(&self, role: usize) {
        let (role, account) =
            (RoleName::new(ROLES[role]), Account { corp_id: &self.corp_id, employee_id: &self.employee_id });
        self.directory.add_agent(account, &role, false).await.expect("add");
        let edit = AgentEdit { role: Some(&role), ..AgentEdit::default() };
        self.directory.change_agent(account, edit).await.expect("change");
        self.roles.sync_sessions(&self.corp_id, &self.employee_id).await.expect("sync");
    }

    async fn sign_in(&self, number: usize) {
        let roles = self.effective().await;
        let Some(current_role) = role::highest(&roles).cloned() else { return };
        let session = Session {
            id: SessionId::new(format!("s{number}")),
            corp_id: self.corp_id.clone(),
            employee_id: self.employee_id.clone(),
            roles,
            current_role,
            expires_at: self.clock.now().plus(Duration::from_secs(60)),
            ..Session::sample()
        };
        self.sessions.create(&session).await.expect("create");
    }

    async fn switch_roles(&self, role: usize) {
        for session in self.live_sessions().await {
            self.sessions.switch_role(&session.id, &RoleName::new(ROLES[role])).await.expect("switch");
        }
    }

    /// Takes a role and checks that neither the account nor a live session has gained anything.
    async fn take(&self, role: usize) {
        let (held, before) = (self.effective().await, self.live_sessions().await);
        self.change(role, RoleAction::Take).await;
        let left = self.effective().await;
        assert!(left.iter().all(|role| held.contains(role)), "{held:?} became {left:?}");
        for session in self.live_sessions().await {
            let old = before.iter().find(|old| old.id == session.id).expect("an older session");
            assert!(session.roles.iter().all(|role| old.holds(role.as_str())), "{old:?} became {session:?}");
            let raised = session.current_role.priority() > old.current_role.priority().max(1);
            assert!(!raised, "{} became {}", old.current_role, session.current_role);
        }
    }

    async fn run(&self, number: usize, change: AccountChange) {
        match change {
            AccountChange::Grant(role) => self.change(role, RoleAction::Grant).await,
            AccountChange::Take(role) => self.take(role).await,
            AccountChange::SetAgentRole(role) => self.set_agent_role(role).await,
            AccountChange::SignIn => self.sign_in(number).await,
            AccountChange::SwitchRole(role) => self.switch_roles(role).await,
        }
        let effective = self.effective().await;
        for session in self.live_sessions().await {
            assert_eq!(session.roles, effective);
            assert!(session.holds(session.current_role.as_str()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn taking_a_role_never_yields_another(
        default_role in proptest::option::of(0..ROLES.len()),
        changes in vec(change(), 1..16),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let subject = Subject::new(default_role.map(|role| ROLES[role])).await;
            subject.sign_in(usize::MAX).await;
            for (number, change) in changes.into_iter().enumerate() {
                subject.run(number, change).await;
            }
        });
    }
}

#[tokio::test]
async fn taking_the_last_assigned_role_ends_sessions_and_leaves_no_role() {
    let subject = Subject::new(Some("user")).await;
    subject.set_agent_role(0).await;
    assert_eq!(subject.effective().await, [RoleName::new("admin")], "the agent record applies before any assignment");
    subject.change(2, RoleAction::Grant).await;
    subject.sign_in(1).await;
    subject.change(2, RoleAction::Take).await;
    assert!(subject.effective().await.is_empty());
    assert!(subject.live_sessions().await.is_empty());
}

#[tokio::test]
async fn session_that_lost_its_active_role_does_not_continue_in_a_higher_one() {
    let table: [(&str, &[usize], usize, Option<&str>); 4] = [
        ("a lower role remains", &[0, 1, 2], 1, Some("user")),
        ("only admin remains", &[0, 2], 2, None),
        ("only a role of the operator's own remains", &[2, 3], 2, Some("supervisor")),
        ("user remains after a role of the operator's own", &[2, 3], 3, Some("user")),
    ];
    for (case, granted, active, expected) in table {
        let subject = Subject::new(None).await;
        for role in granted {
            subject.change(*role, RoleAction::Grant).await;
        }
        subject.sign_in(1).await;
        subject.switch_roles(active).await;
        subject.change(active, RoleAction::Take).await;
        let roles: Vec<RoleName> = subject.live_sessions().await.into_iter().map(|one| one.current_role).collect();
        assert_eq!(roles.first().map(RoleName::as_str), expected, "{case}");
    }
}
