//! Changes of the directory that race each other from two gateways. What SQLite's one writer gives for free, PostgreSQL
//! must be made to keep.

use std::sync::Arc;

use deskgate::directory::factors::{Account, OtpDevice};
use deskgate::directory::links::{LinkQuery, LinkRequestOutcome};
use deskgate::directory::people::{AgentEdit, EmployeeEdit};
use deskgate::directory::sql::SqlDirectory;
use deskgate::directory::{Directory, EmployeeProfile, RoleChange};
use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId, InactiveReason, Standing};
use deskgate::domain::link::PlatformAccount;
use deskgate::domain::role::RoleName;

use crate::servers;

/// The directories of two gateways.
struct Pair {
    gateways: [Arc<dyn Directory>; 2],
    _folder: Option<tempfile::TempDir>,
}

/// An embedded directory belongs to one gateway.
async fn sqlite() -> Pair {
    let folder = tempfile::tempdir().expect("folder");
    let directory = SqlDirectory::open(&folder.path().join("directory.db"), Clock::system()).await.expect("directory");
    directory.fill_for_development().await.expect("employees");
    let directory: Arc<dyn Directory> = Arc::new(directory);
    Pair { gateways: [directory.clone(), directory], _folder: Some(folder) }
}

async fn postgres() -> Pair {
    let url = servers::postgres::database();
    let connect = async || {
        let settings = servers::postgres::settings(&url);
        let directory = SqlDirectory::connect(settings, Clock::system()).await.expect("directory");
        let directory: Arc<dyn Directory> = Arc::new(directory);
        directory
    };
    Pair { gateways: [connect().await, connect().await], _folder: None }
}

/// An account that a task can own.
#[derive(Clone)]
struct OwnedAccount(CorpId, EmployeeId);

impl OwnedAccount {
    fn new(name: &str) -> Self {
        Self(CorpId::new("wwdemo"), EmployeeId::new(name))
    }

    fn get(&self) -> Account<'_> {
        Account { corp_id: &self.0, employee_id: &self.1 }
    }

    async fn add(&self, directory: &dyn Directory) {
        let profile = EmployeeProfile { corp_id: &self.0, employee_id: &self.1, name: "n", department: "", avatar: "" };
        directory.add_employee(profile).await.expect("add");
    }
}

/// A way to make an administrator and to take that away.
#[derive(Debug, Clone, Copy)]
enum Removal {
    Take,
    Disable,
    Remove,
    AgentRole,
    RemoveAgent,
    Override,
}

impl Removal {
    const ALL: [Removal; 6] =
        [Removal::Take, Removal::Disable, Removal::Remove, Removal::AgentRole, Removal::RemoveAgent, Removal::Override];

    async fn appoint(self, directory: &dyn Directory, whom: &OwnedAccount) {
        let admin = RoleName::new("admin");
        let appointed = match self {
            Removal::Take | Removal::Disable | Removal::Remove => directory.grant(&whom.0, &whom.1, &admin).await,
            Removal::AgentRole | Removal::RemoveAgent | Removal::Override => {
                directory.add_agent(whom.get(), &admin, false).await
            }
        };
        assert_eq!(appointed.expect("appoint"), RoleChange::Done);
    }

    async fn apply(self, directory: Arc<dyn Directory>, whom: OwnedAccount) -> RoleChange {
        let user = RoleName::new("user");
        let result = match self {
            Removal::Take => directory.take(&whom.0, &whom.1, &RoleName::new("admin")).await,
            Removal::Disable => {
                let edit = EmployeeEdit { standing: Some(Standing::Disabled), ..EmployeeEdit::default() };
                directory.change_employee(whom.get(), edit).await
            }
            Removal::Remove => directory.remove_employee(whom.get()).await,
            Removal::AgentRole => {
                directory.change_agent(whom.get(), AgentEdit { role: Some(&user), ..AgentEdit::default() }).await
            }
            Removal::RemoveAgent => directory.remove_agent(whom.get()).await,
            // An assignment overrides the agent record.
            Removal::Override => directory.grant(&whom.0, &whom.1, &user).await,
        };
        result.expect("remove")
    }
}

async fn of_two_administrators_who_remove_each_other_one_remains(Pair { gateways, .. }: &Pair) {
    const ROUNDS: usize = 200;
    let [first, second] = gateways;
    let development = OwnedAccount::new("m5001");
    first.disable_inactive(development.get(), InactiveReason::Left).await.expect("disable");
    for round in 0..ROUNDS {
        let ways = [Removal::ALL[round % 6], Removal::ALL[(round / 6) % 6]];
        let admins = ["a", "b"].map(|name| OwnedAccount::new(&format!("{name}{round}")));
        for (way, admin) in ways.iter().zip(&admins) {
            admin.add(&**first).await;
            way.appoint(&**first, admin).await;
        }
        let remove =
            |n: usize, gateway: &Arc<dyn Directory>| tokio::spawn(ways[n].apply(gateway.clone(), admins[n].clone()));
        let (one, other) = (remove(0, first), remove(1, second));
        let mut results = [one.await.expect("a task"), other.await.expect("a task")];
        let mut left = 0;
        for admin in &admins {
            if first.is_last_admin(admin.get()).await.expect("read") {
                left += 1;
                // Only the platform may disable the last one.
                first.disable_inactive(admin.get(), InactiveReason::Left).await.expect("disable");
            }
        }
        assert_eq!(left, 1, "round {round}: {ways:?} {results:?}");
        results.sort_by_key(|result| *result != RoleChange::Done);
        assert_eq!(results, [RoleChange::Done, RoleChange::LastAdmin], "round {round}: {ways:?}");
    }
}

async fn nothing_is_added_to_an_employee_who_is_being_removed(Pair { gateways, .. }: &Pair) {
    let [first, second] = gateways;
    for round in 0..60 {
        let account = OwnedAccount::new(&format!("e{round}"));
        let platform = PlatformAccount::parse(&format!("wwp/p{round}")).expect("an account");
        account.add(&**first).await;
        let remove = tokio::spawn(Removal::Remove.apply(first.clone(), account.clone()));
        let (directory, whose, link) = (second.clone(), account.clone(), platform.clone());
        let add = tokio::spawn(async move {
            match round % 4 {
                0 => drop(directory.add_agent(whose.get(), &RoleName::new("agent"), false).await.expect("agent")),
                1 => directory.offer_otp(whose.get(), "a secret").await.expect("offer"),
                2 => drop(directory.approve_link(&link, whose.get(), "uid 0").await.expect("link")),
                _ => drop(directory.grant(&whose.0, &whose.1, &RoleName::new("user")).await.expect("grant")),
            }
        });
        assert_eq!(remove.await.expect("a task"), RoleChange::Done);
        add.await.expect("a task");
        assert_eq!(first.agent(account.get()).await.expect("read"), None, "round {round}");
        assert_eq!(first.otp_device(account.get()).await.expect("read"), OtpDevice::default(), "round {round}");
        assert_eq!(first.link(&platform).await.expect("read"), None, "round {round}");
        assert!(first.assigned_roles(&account.0, &account.1).await.expect("read").is_empty(), "round {round}");
    }
}

async fn requests_at_the_same_time_keep_the_limit_of_pending_links(Pair { gateways, .. }: &Pair) {
    let account = OwnedAccount::new("u1001");
    let requests = (0..20).map(|n| {
        let (directory, whose) = (gateways[n % 2].clone(), account.clone());
        tokio::spawn(async move {
            let platform = PlatformAccount::parse(&format!("wwp/p{n}")).expect("an account");
            directory.request_link(&platform, whose.get(), 5).await.expect("request")
        })
    });
    let outcomes = futures::future::join_all(requests).await;
    let requested = outcomes.iter().filter(|outcome| matches!(outcome, Ok(LinkRequestOutcome::Requested))).count();
    assert_eq!(requested, 5);
    let pending = gateways[0].links(LinkQuery { limit: 100, ..LinkQuery::default() }).await.expect("links");
    assert_eq!(pending.total, 5);
}

async fn one_time_code_is_accepted_by_one_gateway(Pair { gateways, .. }: &Pair) {
    use deskgate::domain::write::WriteOutcome;
    let account = OwnedAccount::new("u1001");
    gateways[0].offer_otp(account.get(), "s").await.expect("offer");
    gateways[0].bind_otp(account.get(), "s", None, 1).await.expect("bind");
    for step in 2..40 {
        let uses = (0..8).map(|n| {
            let (directory, whose) = (gateways[n % 2].clone(), account.clone());
            tokio::spawn(async move { directory.use_otp(whose.get(), "s", step).await.expect("use") })
        });
        let outcomes = futures::future::join_all(uses).await;
        let accepted = outcomes.iter().filter(|outcome| matches!(outcome, Ok(WriteOutcome::Applied))).count();
        assert_eq!(accepted, 1, "step {step}");
    }
}

macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        suite!(@on sqlite: $($test),*);
        suite!(@on postgres: $($test),*);
    };
    (@on $make:ident: $($test:ident),*) => {
        mod $make {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $test() {
                    super::$test(&super::$make().await).await;
                }
            )*
        }
    };
}

suite!(
    of_two_administrators_who_remove_each_other_one_remains,
    nothing_is_added_to_an_employee_who_is_being_removed,
    requests_at_the_same_time_keep_the_limit_of_pending_links,
    one_time_code_is_accepted_by_one_gateway,
);
