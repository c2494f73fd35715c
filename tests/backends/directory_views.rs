//! A help desk that has tables of its own: deskgate reads them through views and writes only what is its own.

use std::time::Duration;

use deskgate::directory::access::AccessRecords;
use deskgate::directory::factors::{Account, ExpectedPassword, FactorKind, Factors, OtpDevice};
use deskgate::directory::membership::MembershipRecords;
use deskgate::directory::people::{AgentEdit, EmployeeEdit, People};
use deskgate::directory::sql::SqlDirectory;
use deskgate::directory::sql::postgres::PostgresSettings;
use deskgate::directory::{Directory, DirectoryError, EmployeeProfile, LoginRecord, LoginResult, RecordedRoles};
use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId, EmployeeSource, InactiveReason, Standing};
use deskgate::domain::role::RoleName;
use deskgate::domain::session::LoginMethod;
use deskgate::domain::write::WriteOutcome;

use crate::servers::postgres::{self, psql_in};

/// Tables of a help desk, in types of its own, and the views over them.
const DESK: &str = "
    CREATE TABLE staff (badge VARCHAR(20) PRIMARY KEY, full_name VARCHAR(80), unit VARCHAR(40), leaves DATE);
    CREATE TABLE staff_group (badge VARCHAR(20), group_name VARCHAR(20));
    CREATE TABLE operator (badge VARCHAR(20), level INTEGER);
    INSERT INTO staff VALUES ('e1', 'Ada', 'IT', NULL), ('e2', 'Ben', NULL, NULL), ('e3', 'Cy', 'HR', '2020-01-01'),
        ('e4', NULL, 'IT', NULL);
    INSERT INTO staff_group VALUES ('e1', 'admin'), ('e1', 'user'), ('e1', 'user');
    INSERT INTO operator VALUES ('e1', 2), ('e2', 1);
    CREATE SCHEMA deskgate;
    CREATE VIEW deskgate.desk_employees AS SELECT 'wwdemo'::varchar AS corp_id, badge AS employee_id, full_name AS name,
        unit AS department, NULL::varchar AS avatar, (leaves IS NOT NULL AND leaves < current_date) AS disabled FROM staff;
    CREATE VIEW deskgate.desk_user_roles AS SELECT 'wwdemo' AS corp_id, badge AS employee_id, group_name AS role
        FROM staff_group;
    CREATE VIEW deskgate.desk_agents AS SELECT 'wwdemo' AS corp_id, badge AS employee_id, 'agent' AS role,
        level > 1 AS otp_required FROM operator";

/// What the desk's tables hold.
const CONTENTS: &str = "SELECT string_agg(md5(staff::text), ',' ORDER BY badge) FROM staff
    UNION ALL SELECT string_agg(md5(staff_group::text), ',' ORDER BY badge, group_name) FROM staff_group
    UNION ALL SELECT string_agg(md5(operator::text), ',' ORDER BY badge) FROM operator";

fn settings(url: &str) -> PostgresSettings {
    PostgresSettings { employees: EmployeeSource::Views, ..postgres::settings(url) }
}

/// A desk, and the directory of a user who may read its views and nothing else of it.
async fn desk() -> (String, SqlDirectory) {
    let url = postgres::empty_database();
    let name = url.rsplit('/').next().expect("a name").to_owned();
    psql_in(&url, DESK);
    psql_in(
        &url,
        &format!(
            "CREATE ROLE reader_{name} LOGIN; ALTER SCHEMA deskgate OWNER TO reader_{name};
             CREATE SCHEMA deskgate_views AUTHORIZATION reader_{name};
             GRANT SELECT ON deskgate.desk_employees, deskgate.desk_user_roles, deskgate.desk_agents TO reader_{name}"
        ),
    );
    let own = url.replace("//desk@", &format!("//reader_{name}@"));
    let directory = SqlDirectory::connect(settings(&own), Clock::system()).await.expect("directory");
    (url, directory)
}

fn corp() -> CorpId {
    CorpId::new("wwdemo")
}

#[tokio::test]
async fn employees_roles_and_agents_are_the_desks() {
    let (url, directory) = desk().await;
    let find = async |id: &str| directory.employee(&corp(), &EmployeeId::new(id)).await.expect("find");
    let ada = find("e1").await.expect("Ada");
    assert_eq!((&*ada.name, &*ada.department, ada.standing), ("Ada", "IT", Standing::Active));
    assert_eq!(find("e3").await.expect("Cy").standing, Standing::Disabled);
    assert_eq!(find("e4").await.expect("e4").name, "e4");
    assert!(find("e9").await.is_none());
    let roles = async |id: &str| directory.roles(&corp(), &EmployeeId::new(id)).await.expect("roles");
    assert_eq!(roles("e1").await, RecordedRoles::Assigned(vec![RoleName::new("admin"), RoleName::new("user")]));
    assert_eq!(roles("e2").await, RecordedRoles::NeverAssigned(Some(RoleName::new("agent"))));
    assert_eq!(roles("e4").await, RecordedRoles::NeverAssigned(None));
    let (employee, agent) = directory.by_name(&corp(), "E1").await.expect("find").expect("Ada");
    assert!(employee.employee_id.as_str() == "e1" && agent.expect("an agent").otp_required);
    assert_eq!(directory.employees(Some("ad"), 10).await.expect("find").len(), 1);
    assert_eq!(directory.agents(10).await.expect("agents").len(), 2);
    let id = EmployeeId::new("e1");
    let ada = Account { corp_id: &corp(), employee_id: &id };
    assert!(directory.is_last_admin(ada).await.expect("read"));

    psql_in(&url, "DELETE FROM staff_group; UPDATE staff SET leaves = '2020-01-01' WHERE badge = 'e1'");
    assert_eq!(roles("e1").await, RecordedRoles::NeverAssigned(Some(RoleName::new("agent"))));
    assert_eq!(find("e1").await.expect("Ada").standing, Standing::Disabled);
    let access = directory.access(&[ada]).await.expect("access").remove(0).expect("Ada");
    assert_eq!(access.standing, Standing::Disabled);
}

#[tokio::test]
async fn factors_logs_and_the_platforms_word_are_written_beside_the_desks_tables() {
    let (url, directory) = desk().await;
    let before = psql_in(&url, CONTENTS);
    let (corp, ada, ben) = (corp(), EmployeeId::new("e1"), EmployeeId::new("e2"));
    let account = |employee_id| Account { corp_id: &corp, employee_id };
    let record = LoginRecord {
        corp_id: "wwdemo",
        employee_id: "e1",
        method: LoginMethod::Qrcode,
        source: None,
        client: None,
        address: "203.0.113.7",
        user_agent: "a browser",
        platform_account: None,
        request_id: "",
        result: LoginResult::Success,
    };
    directory.record_login(record).await.expect("record");
    let employee = directory.employee(&corp, &ada).await.expect("find").expect("Ada");
    assert_eq!(employee.last_login_ip.as_deref(), Some("203.0.113.7"));

    directory.offer_otp(account(&ada), "s").await.expect("offer");
    assert_eq!(directory.bind_otp(account(&ada), "s", None, 1).await.expect("bind"), WriteOutcome::Applied);
    let first = directory.set_password(account(&ben), "h1", ExpectedPassword::Only(None)).await.expect("set");
    let first = first.expect("the first password");
    let again = directory.set_password(account(&ben), "h2", ExpectedPassword::Only(None)).await.expect("set");
    assert_eq!(again, None, "a password is set");
    let password = directory.agent(account(&ben)).await.expect("read").expect("an agent").password.expect("a password");
    assert_eq!(password.id, first);
    let id = EmployeeId::new("e4");
    assert_eq!(directory.set_password(account(&id), "h", ExpectedPassword::Any).await.expect("set"), None, "no agent");
    let (mut lockout, seen) = directory.lockout(FactorKind::Password, account(&ben)).await.expect("read");
    lockout.on_failure(Clock::system().now());
    directory.replace_lockout(FactorKind::Password, account(&ben), &lockout, seen).await.expect("replace");

    directory.record_active(account(&ada)).await.expect("record");
    let standing = async || directory.employee(&corp, &ada).await.expect("find").expect("Ada").standing;
    let disabled = directory.disable_inactive(account(&ada), InactiveReason::Left).await.expect("disable");
    assert_eq!((disabled, standing().await), (WriteOutcome::Applied, Standing::Disabled));
    let disabled = directory.disable_inactive(account(&ada), InactiveReason::Left).await.expect("disable");
    assert_eq!(disabled, WriteOutcome::Conflict);
    let enabled = directory.enable_returned(account(&ada)).await.expect("enable");
    assert_eq!((enabled, standing().await), (WriteOutcome::Applied, Standing::Active));
    directory.queue_recheck(account(&ada)).await.expect("queue");
    let entry = directory.next_recheck(10).await.expect("next").expect("an entry");
    let moves = (0..8).map(|_| directory.move_recheck(&entry, None));
    let moved = futures::future::join_all(moves).await;
    let applied = moved.iter().filter(|moved| matches!(moved, Ok(WriteOutcome::Applied))).count();
    assert_eq!(applied, 1, "one gateway moves an entry");
    directory.prune_login_log(Duration::ZERO).await.expect("prune");
    directory.ready().await.expect("ready");
    assert_eq!(psql_in(&url, CONTENTS), before, "the desk's tables are as they were");
}

#[tokio::test]
async fn what_is_the_desks_is_not_changed() {
    let (url, directory) = desk().await;
    let before = psql_in(&url, CONTENTS);
    let (corp_id, employee_id, role) = (corp(), EmployeeId::new("e2"), RoleName::new("user"));
    let account = Account { corp_id: &corp_id, employee_id: &employee_id };
    let unknown = EmployeeId::new("e9");
    let profile = |employee_id| EmployeeProfile {
        corp_id: &corp_id,
        employee_id,
        name: "Another",
        department: "Another",
        avatar: "",
    };
    let refused = [
        ("grant", directory.grant(&corp_id, &employee_id, &role).await.err()),
        ("take", directory.take(&corp_id, &employee_id, &role).await.err()),
        ("add employee", directory.add_employee(profile(&unknown)).await.err()),
        ("change employee", directory.change_employee(account, EmployeeEdit::default()).await.err()),
        ("remove employee", directory.remove_employee(account).await.err()),
        ("add agent", directory.add_agent(account, &role, false).await.err()),
        ("change agent", directory.change_agent(account, AgentEdit::default()).await.err()),
        ("remove agent", directory.remove_agent(account).await.err()),
    ];
    for (case, error) in refused {
        assert!(matches!(error, Some(DirectoryError::ReadOnlyEmployees)), "{case}: {error:?}");
    }
    let known = directory.upsert_employee(profile(&employee_id)).await.expect("a known employee");
    assert_eq!(known.name, "Ben", "the profile is the desk's");
    let new = directory.upsert_employee(profile(&unknown)).await;
    assert!(matches!(new, Err(DirectoryError::UnknownEmployee)), "{new:?}");
    let nobody = Account { corp_id: &corp_id, employee_id: &unknown };
    directory.offer_otp(nobody, "s").await.expect("offer");
    assert_eq!(directory.otp_device(nobody).await.expect("read"), OtpDevice::default());
    assert_eq!(psql_in(&url, CONTENTS), before);
}

#[tokio::test]
async fn missing_or_different_views_are_named() {
    let url = postgres::empty_database();
    let refusal = async || match SqlDirectory::connect(settings(&url), Clock::system()).await {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    let why = refusal().await;
    assert!(why.contains("missing: deskgate.desk_agents, deskgate.desk_employees, deskgate.desk_user_roles"), "{why}");
    psql_in(
        &url,
        "CREATE VIEW deskgate.desk_employees AS SELECT 'c' AS corp_id, 'e' AS employee_id, 'n' AS name, 'd' AS department,
             false AS disabled;
         CREATE VIEW deskgate.desk_user_roles AS SELECT 'c' AS corp_id, 'e' AS employee_id, 'r' AS role;
         CREATE VIEW deskgate.desk_agents AS SELECT 'c' AS corp_id, 'e' AS employee_id, 'r' AS role, false AS otp_required",
    );
    let why = refusal().await;
    assert!(why.contains("column desk.avatar does not exist"), "{why}");
}
