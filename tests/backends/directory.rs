//! The contract of `Directory`. `suite!` runs it against one implementation.

use std::sync::Arc;
use std::time::Duration;

use deskgate::directory::audit::{AuditRecord, Event};
use deskgate::directory::factors::{Account, ExpectedPassword, FactorKind, OtpDevice};
use deskgate::directory::links::{LinkApproval, LinkQuery, LinkRequestOutcome};
use deskgate::directory::membership::{MemberEvidence, MembershipRecords};
use deskgate::directory::people::EmployeeEdit;
use deskgate::directory::sql::SqlDirectory;
use deskgate::directory::{
    Directory, EmployeeProfile, LoginOutcome, LoginQuery, LoginRecord, LoginResult, RecordedRoles, RoleChange,
};
use deskgate::domain::client::Client;
use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId, InactiveReason, Standing};
use deskgate::domain::link::{Approval, LinkState, PlatformAccount};
use deskgate::domain::lockout::Lockout;
use deskgate::domain::role::RoleName;
use deskgate::domain::session::{LoginMethod, LoginSource};
use deskgate::domain::write::WriteOutcome;

use crate::servers;

/// A directory under test, its clock and, for SQLite, its folder.
struct Subject {
    directory: Arc<dyn Directory>,
    clock: Clock,
    _folder: Option<tempfile::TempDir>,
}

async fn sqlite() -> Subject {
    let folder = tempfile::tempdir().expect("folder");
    let clock = Clock::system();
    let file = folder.path().join("directory.db");
    let directory = SqlDirectory::open(&file, clock.clone()).await.expect("directory");
    directory.fill_for_development().await.expect("employees");
    Subject { directory: Arc::new(directory), clock, _folder: Some(folder) }
}

async fn postgres() -> Subject {
    let clock = Clock::system();
    let settings = servers::postgres::settings(&servers::postgres::database());
    let directory = SqlDirectory::connect(settings, clock.clone()).await.expect("directory");
    Subject { directory: Arc::new(directory), clock, _folder: None }
}

fn corp() -> CorpId {
    CorpId::new("wwdemo")
}

fn id(text: &str) -> EmployeeId {
    EmployeeId::new(text)
}

fn names(roles: &[RoleName]) -> Vec<&str> {
    roles.iter().map(RoleName::as_str).collect()
}

async fn development_employees_match_the_contract(Subject { directory, .. }: &Subject) {
    for (employee, roles) in [
        ("u1001", &["user"][..]),
        ("a2001", &["agent", "user"]),
        ("s3001", &["supervisor"]),
        ("c4001", &["security"]),
        ("m5001", &["admin", "agent", "user"]),
        ("n6001", &[]),
    ] {
        let found = directory.employee(&corp(), &id(employee)).await.expect("find").expect(employee);
        assert_eq!(found.standing, Standing::Active);
        let held = directory.roles(&corp(), &id(employee)).await.expect("roles").or_default(None);
        assert_eq!(names(&held), roles, "{employee}, in order of priority");
    }
    assert!(directory.employee(&corp(), &id("U1001")).await.expect("find").is_none(), "IDs are compared exactly");
    assert!(directory.employee(&CorpId::new("other"), &id("u1001")).await.expect("find").is_none());
}

async fn upsert_creates_and_refreshes_an_employee(Subject { directory, .. }: &Subject) {
    let (corp_id, employee_id) = (corp(), id("new1"));
    let profile = |name, department, avatar| EmployeeProfile {
        corp_id: &corp_id,
        employee_id: &employee_id,
        name,
        department,
        avatar,
    };
    let first = directory.upsert_employee(profile("", "IT", "")).await.expect("upsert_employee");
    assert_eq!((&*first.name, &*first.department), ("new1", "IT"), "the ID is the default name");
    directory.upsert_employee(profile("New One", "", "https://a/b.png")).await.expect("upsert_employee");
    let kept = directory.upsert_employee(profile("", "", "")).await.expect("upsert_employee");
    assert_eq!((&*kept.name, &*kept.department, &*kept.avatar), ("New One", "IT", "https://a/b.png"));
}

async fn repeated_role_changes_are_unchanged(Subject { directory, .. }: &Subject) {
    let auditor = RoleName::new("auditor");
    let (corp, employee) = (corp(), id("u1001"));
    let grant = || directory.grant(&corp, &employee, &auditor);
    assert_eq!(grant().await.expect("grant"), RoleChange::Done);
    assert_eq!(grant().await.expect("grant"), RoleChange::Unchanged);
    let held = directory.roles(&corp, &employee).await.expect("roles").or_default(None);
    assert_eq!(names(&held), ["user", "auditor"]);
    let take = || directory.take(&corp, &employee, &auditor);
    assert_eq!(take().await.expect("take"), RoleChange::Done);
    assert_eq!(take().await.expect("take"), RoleChange::Unchanged);
    let unknown = id("z9999");
    assert_eq!(directory.grant(&corp, &unknown, &auditor).await.expect("grant"), RoleChange::NoEmployee);
    assert_eq!(directory.take(&corp, &unknown, &auditor).await.expect("take"), RoleChange::NoEmployee);
}

async fn agent_record_supplies_the_role_only_before_any_assignment(Subject { directory, .. }: &Subject) {
    let (corp, employee, supervisor) = (corp(), id("n6001"), RoleName::new("supervisor"));
    let roles = || async { directory.roles(&corp, &employee).await.expect("roles") };
    assert_eq!(roles().await, RecordedRoles::NeverAssigned(None));
    let account = Account { corp_id: &corp, employee_id: &employee };
    directory.add_agent(account, &supervisor, false).await.expect("add");
    assert_eq!(roles().await, RecordedRoles::NeverAssigned(Some(supervisor)));
    let user = RoleName::new("user");
    directory.grant(&corp, &employee, &user).await.expect("grant");
    assert_eq!(roles().await, RecordedRoles::Assigned(vec![user.clone()]));
    directory.take(&corp, &employee, &user).await.expect("take");
    assert_eq!(roles().await, RecordedRoles::Assigned(Vec::new()));
    let unknown = directory.roles(&corp, &id("z9999")).await.expect("roles");
    assert_eq!(unknown, RecordedRoles::Assigned(Vec::new()), "an unknown employee has no default role");
}

/// Applies the migrations that come before the one whose name contains `name`.
async fn migrate_up_to(file: &std::path::Path, name: &str) -> sqlx::SqliteConnection {
    let folder = tempfile::tempdir().expect("folder");
    let mut migrations: Vec<_> =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/directory/migrations/sqlite"))
            .expect("migrations")
            .map(|entry| entry.expect("a file").path())
            .collect();
    migrations.sort();
    for path in migrations.iter().take_while(|path| !path.display().to_string().contains(name)) {
        std::fs::copy(path, folder.path().join(path.file_name().expect("a name"))).expect("copy");
    }
    let url = format!("sqlite:{}?mode=rwc", file.display());
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("database");
    let migrator = sqlx::migrate::Migrator::new(folder.path()).await.expect("migrations");
    migrator.run(&mut connection).await.expect("migrate");
    connection
}

#[tokio::test]
async fn upgrade_finds_former_assignments_in_the_audit_log() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("directory.db");
    let mut old = migrate_up_to(&file, "ever_assigned").await;
    sqlx::raw_sql(
        "INSERT INTO roles VALUES (1, 'user');
         INSERT INTO employees (corp_id, employee_id, name, department, avatar, created_at)
             SELECT 'wwdemo', column1, column1, '', '', 100
             FROM (VALUES ('never'), ('held'), ('taken'), ('command'), ('refused'), ('again'));
         INSERT INTO agents (corp_id, employee_id, role) SELECT corp_id, employee_id, 'admin' FROM employees;
         INSERT INTO user_roles VALUES ('wwdemo', 'held', 1);
         INSERT INTO audit_log VALUES
             ('1', 200, 'wwdemo', 'taken', 'take_role', 'm5001', '', 'user', ''),
             ('2', 200, 'wwdemo', 'command', 'order', 'uid 1', '', 'role take user', ''),
             ('3', 200, 'wwdemo', 'refused', 'grant_role', 'm5001', '', 'user', 'last_admin'),
             ('4', 50, 'wwdemo', 'again', 'grant_role', 'm5001', '', 'user', '')",
    )
    .execute(&mut old)
    .await
    .expect("records");
    drop(old);

    let directory = SqlDirectory::open(&file, Clock::system()).await.expect("directory");
    for (employee, expected) in [
        ("never", &["admin"][..]),
        ("held", &["user"]),
        ("taken", &[]),
        ("command", &[]),
        ("refused", &["admin"]),
        ("again", &["admin"]),
    ] {
        let roles = directory.roles(&corp(), &id(employee)).await.expect("roles").or_default(None);
        assert_eq!(names(&roles), expected, "{employee}");
    }
}

#[tokio::test]
async fn upgrade_takes_platform_sign_ins_for_membership() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("directory.db");
    let mut old = migrate_up_to(&file, "platform_status").await;
    sqlx::raw_sql(
        "INSERT INTO employees (corp_id, employee_id, name, department, avatar, created_at)
             SELECT column1, column2, column2, '', '', column3 FROM (VALUES
                 ('wwdemo', 'before the audit log', 100), ('wwdemo', 'by redirect', 100), ('wwdemo', 'by QR code', 100),
                 ('wwdemo', 'by password', 100), ('wwdemo', 'refused', 100), ('wwpartner', 'by redirect', 100),
                 ('wwdemo', 'added', 300), ('wwdemo', 'addition refused', 300), ('wwdemo', 'came by themselves', 300));
         INSERT INTO audit_log VALUES
             ('1', 200, '', '', 'order', 'uid 1', '', 'key rotate', ''),
             ('2', 300, 'wwdemo', 'added', 'order', 'uid 1', '', 'employee add', ''),
             ('3', 400, 'wwdemo', 'addition refused', 'order', 'uid 1', '', 'employee add', 'refused');
         INSERT INTO login_log (at, corp_id, employee_id, login_method, login_source, ip_address, user_agent, result, reason)
             SELECT 150, column1, column2, column3, 'h5', '', '', column4, '' FROM (VALUES
                 ('wwdemo', 'by redirect', 'oauth2', 'success'), ('wwdemo', 'by QR code', 'qrcode', 'success'),
                 ('wwdemo', 'by password', 'password', 'success'), ('wwdemo', 'refused', 'oauth2', 'failure'),
                 ('wwpartner', 'by redirect', 'oauth2', 'success'))",
    )
    .execute(&mut old)
    .await
    .expect("records");
    drop(old);

    let directory = SqlDirectory::open(&file, Clock::system()).await.expect("directory");
    for (corp, employee, expected) in [
        ("wwdemo", "before the audit log", None),
        ("wwdemo", "by redirect", Some(MemberEvidence::SignedIn)),
        ("wwdemo", "by QR code", Some(MemberEvidence::SignedIn)),
        ("wwdemo", "by password", None),
        ("wwdemo", "refused", None),
        ("wwpartner", "by redirect", Some(MemberEvidence::SignedIn)),
        ("wwdemo", "added", None),
        ("wwdemo", "addition refused", Some(MemberEvidence::SignedIn)),
        ("wwdemo", "came by themselves", Some(MemberEvidence::SignedIn)),
    ] {
        let (corp_id, employee_id) = (CorpId::new(corp), id(employee));
        let account = Account { corp_id: &corp_id, employee_id: &employee_id };
        assert_eq!(directory.member_evidence(account).await.expect("evidence"), expected, "{corp} {employee}");
        directory.record_active(account).await.expect("record");
        let known = directory.member_evidence(account).await.expect("evidence");
        assert_eq!(known, Some(MemberEvidence::CalledActive), "{corp} {employee}");
    }
}

async fn successful_login_updates_the_last_address(Subject { directory, .. }: &Subject) {
    let record = |result, address: &'static str| LoginRecord {
        corp_id: "wwdemo",
        employee_id: "u1001",
        method: LoginMethod::Qrcode,
        source: Some(LoginSource::Qrcode),
        client: Some(Client::Itagent),
        address,
        user_agent: "'; DROP TABLE login_log; --",
        platform_account: None,
        request_id: "",
        result,
    };
    directory.record_login(record(LoginResult::Success, "203.0.113.7")).await.expect("record");
    directory.record_login(record(LoginResult::Refused("no_role"), "203.0.113.8")).await.expect("record");
    let employee = directory.employee(&corp(), &id("u1001")).await.expect("find").expect("there");
    assert_eq!(employee.last_login_ip.as_deref(), Some("203.0.113.7"));
}

async fn login_log_is_newest_first_and_pruned_by_age(Subject { directory, clock, .. }: &Subject) {
    let record = |result, employee_id: &'static str| LoginRecord {
        corp_id: "wwdemo",
        employee_id,
        method: LoginMethod::Oauth2,
        source: None,
        client: None,
        address: "203.0.113.7",
        user_agent: "a browser",
        platform_account: None,
        request_id: "",
        result,
    };
    directory.record_login(record(LoginResult::Success, "u1001")).await.expect("record");
    clock.advance(Duration::from_secs(3600));
    directory.record_login(record(LoginResult::Refused("disabled"), "x8001")).await.expect("record");
    let read = |limit| async move {
        let entries = directory.logins(&LoginQuery::default(), limit).await.expect("read");
        entries.into_iter().map(|entry| (entry.employee_id, entry.result, entry.reason)).collect::<Vec<_>>()
    };
    let old = ("u1001".to_owned(), "success".to_owned(), String::new());
    let new = ("x8001".to_owned(), "refused".to_owned(), "disabled".to_owned());
    assert_eq!(read(10).await, [new.clone(), old]);
    assert_eq!(read(1).await, std::slice::from_ref(&new));
    let half_an_hour_ago = clock.now().minus(Duration::from_secs(1800));
    let of = |employee_id: Option<&str>, since, outcome| {
        let query = LoginQuery { employee_id: employee_id.map(str::to_owned), since, outcome };
        async move {
            let entries = directory.logins(&query, 10).await.expect("read");
            entries.into_iter().map(|entry| entry.employee_id).collect::<Vec<_>>()
        }
    };
    assert_eq!(of(None, Some(half_an_hour_ago), None).await, ["x8001"]);
    assert_eq!(of(None, None, Some(LoginOutcome::Success)).await, ["u1001"]);
    assert_eq!(of(Some("x8001"), None, Some(LoginOutcome::Refused)).await, ["x8001"]);
    assert!(of(Some("u1001"), Some(half_an_hour_ago), None).await.is_empty());
    directory.prune_login_log(Duration::from_secs(1800)).await.expect("prune");
    assert_eq!(read(10).await, [new]);
}

async fn audit_log_is_newest_first_and_pruned_by_age(Subject { directory, clock, .. }: &Subject) {
    let record = |employee_id: &'static str, event| AuditRecord {
        corp_id: "wwdemo",
        employee_id,
        event,
        by: "m5001",
        session_id: "s-1",
        detail: "'; DROP TABLE audit_log; --",
    };
    directory.append_audit_record(record("u1001", Event::OtpReset), "").await.expect("record");
    clock.advance(Duration::from_secs(3600));
    directory.append_audit_record(record("a2001", Event::TakeRole), "forbidden").await.expect("record");
    directory.append_audit_record(record("u1001", Event::Logout), "").await.expect("record");
    let read = |employee, limit| async move {
        let entries = directory.audit_entries(employee, limit).await.expect("read");
        entries.into_iter().map(|entry| (entry.employee_id, entry.event, entry.refused)).collect::<Vec<_>>()
    };
    let row = |employee: &str, event: &str, refused: &str| (employee.to_owned(), event.to_owned(), refused.to_owned());
    let (old, middle) = (row("u1001", "otp_reset", ""), row("a2001", "take_role", "forbidden"));
    let new = row("u1001", "logout", "");
    assert_eq!(read(None, 10).await, [new.clone(), middle.clone(), old.clone()]);
    assert_eq!(read(None, 1).await, std::slice::from_ref(&new));
    assert_eq!(read(Some("u1001"), 10).await, [new.clone(), old]);
    let entry = directory.audit_entries(None, 1).await.expect("read").remove(0);
    assert_eq!((entry.corp_id.as_str(), entry.by.as_str(), entry.session_id.as_str()), ("wwdemo", "m5001", "s-1"));
    assert_eq!(entry.detail, "'; DROP TABLE audit_log; --");
    assert!(entry.at <= clock.now() && entry.at.until(clock.now()) < Duration::from_secs(600), "{entry:?}");
    directory.prune_audit_log(Duration::from_secs(1800)).await.expect("prune");
    assert_eq!(read(None, 10).await, [new, middle]);
}

async fn one_time_code_is_accepted_once(Subject { directory, .. }: &Subject) {
    let (corp, id) = (corp(), id("u1001"));
    let account = Account { corp_id: &corp, employee_id: &id };
    assert_eq!(directory.otp_device(account).await.expect("read"), OtpDevice::default());
    assert_eq!(directory.use_otp(account, "second", 1).await.expect("use"), WriteOutcome::Conflict, "no device");
    directory.offer_otp(account, "first").await.expect("offer");
    directory.offer_otp(account, "second").await.expect("offer");
    assert_eq!(
        directory.bind_otp(account, "first", None, 7).await.expect("bind"),
        WriteOutcome::Conflict,
        "replaced by a newer offer"
    );
    assert_eq!(directory.use_otp(account, "second", 8).await.expect("use"), WriteOutcome::Conflict, "not bound yet");
    assert_eq!(directory.bind_otp(account, "second", None, 7).await.expect("bind"), WriteOutcome::Applied);
    assert_eq!(
        directory.bind_otp(account, "second", None, 7).await.expect("bind"),
        WriteOutcome::Conflict,
        "bound already"
    );
    for (step, outcome) in [
        (7, WriteOutcome::Conflict),
        (6, WriteOutcome::Conflict),
        (8, WriteOutcome::Applied),
        (8, WriteOutcome::Conflict),
        (9, WriteOutcome::Applied),
    ] {
        assert_eq!(directory.use_otp(account, "second", step).await.expect("use"), outcome, "step {step}");
    }
    assert_eq!(directory.use_otp(account, "first", 10).await.expect("use"), WriteOutcome::Conflict, "another secret");
    directory.offer_otp(account, "third").await.expect("offer");
    let bind = |expected| directory.bind_otp(account, "third", expected, 11);
    assert_eq!(bind(None).await.expect("bind"), WriteOutcome::Conflict, "a device is bound");
    assert_eq!(bind(Some("first")).await.expect("bind"), WriteOutcome::Conflict, "another device is bound");
    let device = directory.otp_device(account).await.expect("read");
    assert_eq!((device.secret.as_deref(), device.pending.as_deref()), (Some("second"), Some("third")));
    assert!(device.bound_at.is_some() && device.last_verified_at >= device.bound_at);

    let unlike = |prefix| async move {
        let secrets = directory.otp_secrets_unlike(prefix).await.expect("read");
        secrets.into_iter().map(|(_, id, encrypted)| (id.to_string(), encrypted)).collect::<Vec<_>>()
    };
    let of_u1001 = |encrypted: &str| ("u1001".to_owned(), encrypted.to_owned());
    assert_eq!(unlike("x").await, [of_u1001("second"), of_u1001("third")]);
    assert_eq!(unlike("sec").await, [of_u1001("third")]);
    assert_eq!(directory.renew_otp(account, "first", "re-encrypted").await.expect("renew"), WriteOutcome::Conflict);
    assert_eq!(
        directory.renew_otp(account, "second", "second re-encrypted").await.expect("renew"),
        WriteOutcome::Applied
    );
    assert_eq!(
        directory.renew_otp(account, "third", "third re-encrypted").await.expect("renew"),
        WriteOutcome::Applied
    );
    let renewed = OtpDevice {
        secret: Some("second re-encrypted".to_owned()),
        pending: Some("third re-encrypted".to_owned()),
        ..device
    };
    assert_eq!(directory.otp_device(account).await.expect("read"), renewed);
    assert_eq!(
        directory.use_otp(account, "second re-encrypted", 9).await.expect("use"),
        WriteOutcome::Conflict,
        "the used steps are kept"
    );

    let unbind = |bound, replaced| directory.unbind_otp(account, bound, replaced);
    assert_eq!(unbind("first", None).await.expect("unbind"), WriteOutcome::Conflict, "another secret is bound");
    assert_eq!(unbind("second re-encrypted", Some("first")).await.expect("unbind"), WriteOutcome::Applied);
    assert_eq!(directory.use_otp(account, "first", 9).await.expect("use"), WriteOutcome::Conflict, "a used step");
    assert_eq!(directory.use_otp(account, "first", 10).await.expect("use"), WriteOutcome::Applied);
    assert_eq!(unbind("first", None).await.expect("unbind"), WriteOutcome::Applied);
    let device = directory.otp_device(account).await.expect("read");
    assert_eq!((device.secret, device.bound_at), (None, None));

    assert_eq!(directory.remove_otp(account).await.expect("remove"), WriteOutcome::Applied);
    assert_eq!(directory.remove_otp(account).await.expect("remove"), WriteOutcome::Conflict);
}

async fn password_is_replaced_only_if_the_expected_one_is_set(Subject { directory, .. }: &Subject) {
    let (corp, id) = (corp(), id("a2001"));
    let account = Account { corp_id: &corp, employee_id: &id };
    let set = |hash: &'static str, expected| directory.set_password(account, hash, expected);
    let only = |expected: &'static str| ExpectedPassword::Only(Some(expected));
    assert_eq!(set("h0", only("another")).await.expect("set"), None, "no password is set");
    let first = set("h1", ExpectedPassword::Only(None)).await.expect("set").expect("the first password");
    assert_eq!(set("h2", ExpectedPassword::Only(None)).await.expect("set"), None, "a password is set");
    assert_eq!(set("h2", only("another")).await.expect("set"), None);
    assert_eq!(directory.renew_password(account, "h1", "h1 better").await.expect("renew"), WriteOutcome::Applied);
    let password = directory.agent(account).await.expect("read").expect("an agent").password.expect("a password");
    assert_eq!((&password.id, password.hash.reveal().as_str()), (&first, "h1 better"), "the same password ID");
    let second = directory.set_password(account, "h2", ExpectedPassword::Only(Some(&first))).await.expect("set");
    assert!(second.is_some_and(|second| second != first));
    let stale = directory.clear_password(account, ExpectedPassword::Only(Some(&first))).await.expect("clear");
    assert_eq!(stale, WriteOutcome::Conflict, "another password is set");
    assert_eq!(directory.clear_password(account, ExpectedPassword::Any).await.expect("clear"), WriteOutcome::Applied);
    assert_eq!(directory.agent(account).await.expect("read").expect("an agent").password, None);
    let stale = directory.set_password(account, "h3", ExpectedPassword::Only(Some(&first))).await.expect("set");
    assert_eq!(stale, None, "the password was cleared");
    assert!(set("h4", ExpectedPassword::Any).await.expect("set").is_some());
    let unknown = EmployeeId::new("z9999");
    let unknown_account = Account { corp_id: &corp, employee_id: &unknown };
    assert_eq!(directory.set_password(unknown_account, "h5", ExpectedPassword::Any).await.expect("set"), None);
}

async fn lockout_is_replaced_only_at_the_expected_version(Subject { directory, clock, .. }: &Subject) {
    let (corp, id) = (corp(), id("u1001"));
    let account = Account { corp_id: &corp, employee_id: &id };
    let (mut lockout, seen) = directory.lockout(FactorKind::Otp, account).await.expect("read");
    lockout.on_failure(clock.now());
    let replace = || directory.replace_lockout(FactorKind::Otp, account, &lockout, seen);
    assert_eq!(replace().await.expect("replace"), WriteOutcome::Applied);
    assert_eq!(replace().await.expect("replace"), WriteOutcome::Conflict, "a stale version");
    let (kept, seen) = directory.lockout(FactorKind::Otp, account).await.expect("read");
    assert_eq!(kept, lockout);
    assert_eq!(
        directory.replace_lockout(FactorKind::Otp, account, &Lockout::default(), seen).await.expect("replace"),
        WriteOutcome::Applied
    );
}

async fn concurrent_attempt_does_not_undo_an_unlock(Subject { directory, clock, .. }: &Subject) {
    let (corp, id) = (corp(), id("u1001"));
    let account = Account { corp_id: &corp, employee_id: &id };
    for _ in 0..6 {
        let (mut lockout, seen) = directory.lockout(FactorKind::Password, account).await.expect("read");
        lockout.on_failure(clock.now());
        directory.replace_lockout(FactorKind::Password, account, &lockout, seen).await.expect("replace");
    }
    assert_eq!(directory.locked(10).await.expect("read").len(), 1);
    let (before, seen) = directory.lockout(FactorKind::Password, account).await.expect("read");
    assert_eq!(
        directory.unlock(account, Some(FactorKind::Otp)).await.expect("unlock"),
        WriteOutcome::Conflict,
        "only the named factor"
    );
    assert_eq!(directory.unlock(account, None).await.expect("unlock"), WriteOutcome::Applied);
    assert_eq!(directory.unlock(account, None).await.expect("unlock"), WriteOutcome::Conflict);
    let late = directory.replace_lockout(FactorKind::Password, account, &before, seen).await.expect("replace");
    assert_eq!(late, WriteOutcome::Conflict);
    assert_eq!(directory.lockout(FactorKind::Password, account).await.expect("read").0, Lockout::default());
    assert!(directory.locked(10).await.expect("read").is_empty());
}

async fn grant_cannot_remove_the_last_administrator(Subject { directory, .. }: &Subject) {
    let (corp, admin, other) = (corp(), id("m5001"), id("n6001"));
    let grant = |employee: EmployeeId, role: &'static str| {
        let corp = corp.clone();
        async move { directory.grant(&corp, &employee, &RoleName::new(role)).await.expect("grant") }
    };
    let account = Account { corp_id: &corp, employee_id: &other };
    directory.add_agent(account, &RoleName::new("admin"), false).await.expect("add");
    assert_eq!(directory.take(&corp, &admin, &RoleName::new("admin")).await.expect("take"), RoleChange::Done);
    // An assignment overrides the agent record, which makes this employee the last administrator.
    assert_eq!(grant(other.clone(), "user").await, RoleChange::LastAdmin);
    let held = directory.roles(&corp, &other).await.expect("read");
    assert_eq!(held, RecordedRoles::NeverAssigned(Some(RoleName::new("admin"))));
    assert_eq!(grant(other.clone(), "admin").await, RoleChange::Done);
    assert_eq!(grant(other.clone(), "user").await, RoleChange::Done);
    assert_eq!(grant(id("unknown"), "user").await, RoleChange::NoEmployee);
}

async fn removed_employee_leaves_no_records(Subject { directory, .. }: &Subject) {
    let (corp, id) = (corp(), id("a2001"));
    let account = Account { corp_id: &corp, employee_id: &id };
    directory.offer_otp(account, "a secret").await.expect("offer");
    directory.bind_otp(account, "a secret", None, 1).await.expect("bind");
    assert_eq!(directory.remove_employee(account).await.expect("remove"), RoleChange::Done);
    assert_eq!(directory.remove_employee(account).await.expect("remove"), RoleChange::NoEmployee);
    assert_eq!(directory.grant(&corp, &id, &RoleName::new("admin")).await.expect("grant"), RoleChange::NoEmployee);
    directory.offer_otp(account, "another").await.expect("offer");
    let profile = EmployeeProfile { corp_id: &corp, employee_id: &id, name: "", department: "", avatar: "" };
    directory.upsert_employee(profile).await.expect("upsert_employee");
    assert_eq!(directory.roles(&corp, &id).await.expect("read"), RecordedRoles::NeverAssigned(None));
    assert_eq!(directory.agent(account).await.expect("read"), None);
    assert_eq!(directory.otp_device(account).await.expect("read"), OtpDevice::default());
}

async fn employees_are_found_by_substring(Subject { directory, .. }: &Subject) {
    let find = |text: &'static str| async move {
        let found = directory.employees(Some(text), 10).await.expect("find");
        found.into_iter().map(|employee| employee.employee_id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(find("A200").await, ["a2001"]);
    assert_eq!(find("").await.len(), 6);
    for none in ["%", "_", "!", "unknown", "' OR 1=1 --"] {
        assert!(find(none).await.is_empty(), "{none}");
    }
}

async fn by_name_ignores_case_and_width(Subject { directory, .. }: &Subject) {
    let find = |name: &'static str| async move {
        let found = directory.by_name(&corp(), name).await.expect("find");
        found.map(|(employee, agent)| (employee.employee_id.as_str().to_owned(), agent.map(|agent| agent.role)))
    };
    let agent = Some(("a2001".to_owned(), Some(RoleName::new("agent"))));
    for name in ["a2001", "A2001", "ａ２００１"] {
        assert_eq!(find(name).await, agent, "{name}");
    }
    assert_eq!(find("U1001").await, Some(("u1001".to_owned(), None)), "not an agent");
    for name in ["", "a200", "a20011", "a2001 ", "%", "a2001\0", "' OR 1=1 --"] {
        assert_eq!(find(name).await, None, "{name:?}");
    }
    assert!(directory.by_name(&CorpId::new("other"), "a2001").await.expect("find").is_none());
    // Two IDs that differ only in case are each found by their exact spelling.
    let (corp_id, upper) = (corp(), id("A2001"));
    let profile = EmployeeProfile { corp_id: &corp_id, employee_id: &upper, name: "", department: "", avatar: "" };
    directory.upsert_employee(profile).await.expect("upsert_employee");
    assert_eq!(find("a2001").await, agent);
    assert_eq!(find("A2001").await, Some(("A2001".to_owned(), None)));
}

async fn lockouts_of_unknown_names_are_pruned_by_age_and_count(Subject { directory, clock, .. }: &Subject) {
    let unknown = CorpId::unknown();
    let fail_once = |corp_id: &CorpId, name: &str| {
        let (corp_id, name) = (corp_id.clone(), id(name));
        async move {
            let account = Account { corp_id: &corp_id, employee_id: &name };
            let (mut lockout, seen) = directory.lockout(FactorKind::Password, account).await.expect("read");
            lockout.on_failure(clock.now());
            directory.replace_lockout(FactorKind::Password, account, &lockout, seen).await.expect("replace");
        }
    };
    let is_kept = |corp_id: &CorpId, name: &str| {
        let (corp_id, name) = (corp_id.clone(), id(name));
        async move {
            let account = Account { corp_id: &corp_id, employee_id: &name };
            directory.lockout(FactorKind::Password, account).await.expect("read").0 != Lockout::default()
        }
    };
    fail_once(&corp(), "a2001").await;
    for name in ["first", "second", "third", "fourth"] {
        fail_once(&unknown, name).await;
        clock.advance(Duration::from_secs(60));
    }
    fail_once(&unknown, "first").await;
    let day = Duration::from_secs(24 * 60 * 60);
    directory.prune_unknown_lockouts(day, 4).await.expect("prune");
    assert!(is_kept(&unknown, "second").await, "below the maximum count");
    directory.prune_unknown_lockouts(day, 2).await.expect("prune");
    for (name, expected) in [("first", true), ("second", false), ("third", false), ("fourth", true)] {
        assert_eq!(is_kept(&unknown, name).await, expected, "{name}");
    }
    clock.advance(day - Duration::from_secs(60));
    directory.prune_unknown_lockouts(day, 2).await.expect("prune");
    assert!(is_kept(&unknown, "first").await, "younger than a day");
    clock.advance(Duration::from_secs(60));
    directory.prune_unknown_lockouts(day, 2).await.expect("prune");
    assert!(!is_kept(&unknown, "first").await);
    assert!(is_kept(&corp(), "a2001").await, "the lockout of a known account is kept");
}

async fn rechecks_from_the_future_are_moved_to_now(Subject { directory, clock, .. }: &Subject) {
    let (corp, first, second) = (corp(), id("u1001"), id("a2001"));
    let account = |employee_id| Account { corp_id: &corp, employee_id };
    let ten_years = Duration::from_secs(10 * 365 * 24 * 3600);
    clock.set_forward(ten_years);
    directory.queue_recheck(account(&first)).await.expect("queue");
    clock.set_back(ten_years);
    directory.limit_rechecks().await.expect("limit");
    let head = directory.next_recheck(100).await.expect("next").expect("an entry");
    assert!(head.checked_at <= clock.now(), "{head:?}");
    clock.advance(Duration::from_secs(1));
    directory.queue_recheck(account(&second)).await.expect("queue");
    directory.limit_rechecks().await.expect("limit");
    let first_of_two = directory.next_recheck(100).await.expect("next").expect("an entry");
    assert_eq!((&first_of_two.employee_id, first_of_two.checked_at), (&first, head.checked_at), "others stay");
}

async fn recheck_queue_is_ordered_by_the_last_check(Subject { directory, clock, .. }: &Subject) {
    let (corp, first, second) = (corp(), id("u1001"), id("a2001"));
    let account = |employee_id| Account { corp_id: &corp, employee_id };
    assert_eq!(directory.next_recheck(100).await.expect("next"), None);
    directory.queue_recheck(account(&first)).await.expect("queue");
    clock.advance(Duration::from_secs(1));
    directory.set_password(account(&second), "hash", ExpectedPassword::Any).await.expect("set_password");
    directory.queue_recheck(account(&first)).await.expect("queue");
    let head = directory.next_recheck(100).await.expect("next").expect("an entry");
    assert_eq!((&head.employee_id, head.queued), (&first, 2), "queued once, at the first time");
    let head = directory.next_recheck(1).await.expect("next").expect("an entry");
    assert_eq!((&head.employee_id, head.queued), (&first, 1), "counts no more than it is asked for");

    clock.advance(Duration::from_secs(1));
    let moved = directory.move_recheck(&head, Some(clock.now())).await.expect("move");
    assert_eq!(moved, WriteOutcome::Applied);
    let moved = directory.move_recheck(&head, None).await.expect("move");
    assert_eq!(moved, WriteOutcome::Conflict, "another gateway was faster");
    let head = directory.next_recheck(100).await.expect("next").expect("an entry");
    assert_eq!(head.employee_id, second);
    clock.advance(Duration::from_secs(1));
    directory.record_active(account(&second)).await.expect("record");
    let head = directory.next_recheck(100).await.expect("next").expect("an entry");
    assert_eq!(head.employee_id, first, "the platform spoke about the other one");
    directory.move_recheck(&head, None).await.expect("move");
    directory.record_active(account(&first)).await.expect("record");
    let head = directory.next_recheck(100).await.expect("next").expect("an entry");
    assert_eq!((&head.employee_id, head.queued), (&second, 1), "a word of the platform queues no one");
}

async fn platforms_word_is_undone_only_if_no_operator_spoke(Subject { directory, .. }: &Subject) {
    let (corp_id, employee_id) = (corp(), id("m5001"));
    let admin = Account { corp_id: &corp_id, employee_id: &employee_id };
    let standing = |standing| EmployeeEdit { standing: Some(standing), ..EmployeeEdit::default() };
    let read = async || {
        let employee = directory.employee(&corp(), &id("m5001")).await.expect("find").expect("an employee");
        (employee.standing, employee.inactive)
    };
    assert_eq!(directory.member_evidence(admin).await.expect("evidence"), None);
    directory.record_active(admin).await.expect("record");
    assert_eq!(directory.member_evidence(admin).await.expect("evidence"), Some(MemberEvidence::CalledActive));

    assert_eq!(directory.enable_returned(admin).await.expect("enable"), WriteOutcome::Conflict, "never disabled");
    for reason in InactiveReason::ALL {
        assert_eq!(directory.disable_inactive(admin, reason).await.expect("disable"), WriteOutcome::Applied);
        assert_eq!(read().await, (Standing::Disabled, Some(reason)), "the last administrator too");
        let again = directory.disable_inactive(admin, InactiveReason::Left).await.expect("disable");
        assert_eq!(again, WriteOutcome::Conflict);
        assert_eq!(directory.enable_returned(admin).await.expect("enable"), WriteOutcome::Applied);
        assert_eq!(read().await, (Standing::Active, None));
    }
    directory.disable_inactive(admin, InactiveReason::Left).await.expect("disable");
    directory
        .change_employee(admin, EmployeeEdit { name: Some("Min"), ..EmployeeEdit::default() })
        .await
        .expect("change");
    assert_eq!(read().await, (Standing::Disabled, Some(InactiveReason::Left)));
    directory.change_employee(admin, standing(Standing::Disabled)).await.expect("change");
    assert_eq!(read().await, (Standing::Disabled, None));
    assert_eq!(directory.enable_returned(admin).await.expect("enable"), WriteOutcome::Conflict, "an operator spoke");
    directory.change_employee(admin, standing(Standing::Active)).await.expect("change");
    assert_eq!(read().await, (Standing::Active, None));
}

fn platform_account(text: &str) -> PlatformAccount {
    PlatformAccount::parse(text).expect("an account")
}

async fn account_has_one_link_and_its_request_can_change(Subject { directory, .. }: &Subject) {
    let (p1, corp_id) = (platform_account("wwp/p1"), corp());
    assert_eq!(directory.link(&p1).await.expect("link"), None);
    for employee in ["u1001", "m5001"] {
        let employee_id = id(employee);
        let target = Account { corp_id: &corp_id, employee_id: &employee_id };
        let outcome = directory.request_link(&p1, target, 10).await.expect("request");
        assert_eq!(outcome, LinkRequestOutcome::Requested);
        let link = directory.link(&p1).await.expect("link").expect("there");
        assert!(link.leads_to(&corp_id, &employee_id) && link.state() == LinkState::Pending, "{link:?}");
    }
    let unknown = id("z9999");
    let target = Account { corp_id: &corp_id, employee_id: &unknown };
    assert_eq!(directory.request_link(&p1, target, 10).await.expect("request"), LinkRequestOutcome::NoEmployee);
    assert_eq!(directory.approve_link(&p1, target, "uid 0").await.expect("approve"), LinkApproval::NoEmployee);
    let (user, admin) = (id("u1001"), id("m5001"));
    let account = |employee_id| Account { corp_id: &corp_id, employee_id };
    for (case, employee, state, expected) in [
        ("another state", &admin, Some(LinkState::Approved), WriteOutcome::Conflict),
        ("another employee", &user, None, WriteOutcome::Conflict),
        ("the link", &admin, Some(LinkState::Pending), WriteOutcome::Applied),
        ("no link", &admin, None, WriteOutcome::Conflict),
    ] {
        assert_eq!(directory.remove_link(&p1, account(employee), state).await.expect("remove"), expected, "{case}");
    }
}

async fn approved_link_is_not_replaced(Subject { directory, .. }: &Subject) {
    let (p1, corp_id) = (platform_account("wwp/p1"), corp());
    let (user, admin) = (id("u1001"), id("m5001"));
    let user = Account { corp_id: &corp_id, employee_id: &user };
    let admin = Account { corp_id: &corp_id, employee_id: &admin };
    assert_eq!(directory.request_link(&p1, admin, 10).await.expect("request"), LinkRequestOutcome::Requested);
    assert_eq!(directory.approve_link(&p1, user, "uid 0").await.expect("approve"), LinkApproval::Done);
    assert_eq!(directory.approve_link(&p1, user, "m5001").await.expect("approve"), LinkApproval::Unchanged);
    assert_eq!(directory.approve_link(&p1, admin, "m5001").await.expect("approve"), LinkApproval::LinkedToAnother);
    assert_eq!(directory.request_link(&p1, admin, 10).await.expect("request"), LinkRequestOutcome::AlreadyLinked);
    let link = directory.link(&p1).await.expect("link").expect("there");
    assert!(link.leads_to(user.corp_id, user.employee_id), "{link:?}");
    assert_eq!(link.approval.map(|approval| approval.by).as_deref(), Some("uid 0"));
}

async fn link_has_the_time_of_the_request_for_its_employee(Subject { directory, clock, .. }: &Subject) {
    let (p1, corp_id, user, admin) = (platform_account("wwp/p1"), corp(), id("u1001"), id("m5001"));
    let account = |employee_id| Account { corp_id: &corp_id, employee_id };
    let requested_at = async || directory.link(&p1).await.expect("link").expect("there").requested_at;
    directory.request_link(&p1, account(&user), 10).await.expect("request");
    clock.advance(Duration::from_secs(60));
    directory.request_link(&p1, account(&admin), 10).await.expect("request");
    let requested = requested_at().await;
    assert!(clock.now().seconds() - requested.seconds() < 30, "a request for another employee is a new one");
    clock.advance(Duration::from_secs(60));
    directory.approve_link(&p1, account(&admin), Approval::AUTOMATIC).await.expect("approve");
    assert_eq!(requested_at().await, requested);
    directory.withdraw_automatic_approval(&p1).await.expect("withdraw");
    directory.approve_link(&p1, account(&user), "uid 0").await.expect("approve");
    assert!(clock.now().seconds() - requested_at().await.seconds() < 30, "nobody asked for this employee");
}

async fn other_spellings_of_linked_accounts_are_found(Subject { directory, .. }: &Subject) {
    let (corp_id, employee_id) = (corp(), id("u1001"));
    let user = Account { corp_id: &corp_id, employee_id: &employee_id };
    directory.approve_link(&platform_account("wwp/p1"), user, "uid 0").await.expect("approve");
    for (account, expected) in [("wwp/P1", Some("wwp/p1")), ("wwp/p1", None), ("wwq/P1", None), ("wwp/P2", None)] {
        let found = directory.other_spelling(&platform_account(account)).await.expect("links");
        assert_eq!(found.map(|found| found.to_string()).as_deref(), expected, "{account}");
    }
    assert_eq!(directory.linked_corps().await.expect("links"), [CorpId::new("wwp")]);
}

async fn account_is_gone_until_it_is_active_again(Subject { directory, .. }: &Subject) {
    let (p1, corp_id, employee_id) = (platform_account("wwp/p1"), corp(), id("u1001"));
    let user = Account { corp_id: &corp_id, employee_id: &employee_id };
    directory.approve_link(&p1, user, "uid 0").await.expect("approve");
    let gone_at = async || directory.link(&p1).await.expect("link").expect("there").gone_at;
    assert_eq!(gone_at().await, None);
    directory.record_link_inactive(&p1).await.expect("record");
    assert!(gone_at().await.is_some());
    directory.record_link_active(&p1).await.expect("record");
    assert_eq!(gone_at().await, None);
}

async fn pending_links_are_limited_per_corporation(Subject { directory, .. }: &Subject) {
    let (corp_id, employee_id) = (corp(), id("u1001"));
    let user = Account { corp_id: &corp_id, employee_id: &employee_id };
    for (account, expected) in [
        ("wwp/p1", LinkRequestOutcome::Requested),
        ("wwp/p2", LinkRequestOutcome::Requested),
        ("wwp/p3", LinkRequestOutcome::TooMany),
        ("wwp/p2", LinkRequestOutcome::Requested),
        ("wwq/p3", LinkRequestOutcome::Requested),
    ] {
        let outcome = directory.request_link(&platform_account(account), user, 2).await.expect("request");
        assert_eq!(outcome, expected, "{account}");
    }
    directory.approve_link(&platform_account("wwp/p1"), user, "uid 0").await.expect("approve");
    let freed = directory.request_link(&platform_account("wwp/p3"), user, 2).await.expect("request");
    assert_eq!(freed, LinkRequestOutcome::Requested, "an approved link does not count");
}

async fn automatic_approval_can_be_withdrawn_or_confirmed(Subject { directory, .. }: &Subject) {
    let (p1, corp_id, employee_id) = (platform_account("wwp/p1"), corp(), id("u1001"));
    let user = Account { corp_id: &corp_id, employee_id: &employee_id };
    let approve = async |by| directory.approve_link(&p1, user, by).await.expect("approve");
    assert_eq!(approve(Approval::AUTOMATIC).await, LinkApproval::Done);
    assert_eq!(approve(Approval::AUTOMATIC).await, LinkApproval::Unchanged);
    assert_eq!(directory.withdraw_automatic_approval(&p1).await.expect("withdraw"), WriteOutcome::Applied);
    assert_eq!(directory.link(&p1).await.expect("link").map(|link| link.state()), Some(LinkState::Pending));
    assert_eq!(approve(Approval::AUTOMATIC).await, LinkApproval::Done);
    assert_eq!(approve("m5001").await, LinkApproval::Done, "a person confirms it");
    assert_eq!(directory.withdraw_automatic_approval(&p1).await.expect("withdraw"), WriteOutcome::Conflict);
}

async fn links_are_filtered_and_paged(Subject { directory, .. }: &Subject) {
    let (corp_id, user, agent) = (corp(), id("u1001"), id("a2001"));
    for (account, employee_id) in [("wwp/p1", &user), ("wwp/p2", &user), ("wwq/p1", &agent)] {
        let target = Account { corp_id: &corp_id, employee_id };
        directory.request_link(&platform_account(account), target, 10).await.expect("request");
    }
    let target = Account { corp_id: &corp_id, employee_id: &user };
    directory.approve_link(&platform_account("wwp/p1"), target, "uid 0").await.expect("approve");
    let all = LinkQuery { limit: 10, ..LinkQuery::default() };
    let other = CorpId::new("wwother");
    for (case, query, expected) in [
        ("all, pending first", all, &["wwp/p2", "wwq/p1", "wwp/p1"][..]),
        ("pending", LinkQuery { state: Some(LinkState::Pending), ..all }, &["wwp/p2", "wwq/p1"]),
        ("approved", LinkQuery { state: Some(LinkState::Approved), ..all }, &["wwp/p1"]),
        ("an employee", LinkQuery { employee_id: Some("a2001"), ..all }, &["wwq/p1"]),
        ("a partner", LinkQuery { corp_id: Some("wwq"), ..all }, &["wwq/p1"]),
        ("employees of another corporation", LinkQuery { employee_corp_id: Some(&other), ..all }, &[]),
        ("the second page", LinkQuery { skip: 1, limit: 1, ..all }, &["wwq/p1"]),
    ] {
        let page = directory.links(query).await.expect("links");
        let found: Vec<String> = page.items.iter().map(|link| link.account.to_string()).collect();
        assert_eq!(found, expected, "{case}");
    }
    assert_eq!(directory.links(LinkQuery { limit: 1, ..all }).await.expect("links").total, 3);
}

async fn old_link_requests_are_pruned(Subject { directory, clock, .. }: &Subject) {
    let (corp_id, employee_id) = (corp(), id("u1001"));
    let user = Account { corp_id: &corp_id, employee_id: &employee_id };
    directory.request_link(&platform_account("wwp/p1"), user, 10).await.expect("request");
    directory.approve_link(&platform_account("wwp/p2"), user, "uid 0").await.expect("approve");
    clock.advance(Duration::from_secs(3600));
    directory.request_link(&platform_account("wwp/p3"), user, 10).await.expect("request");
    directory.prune_link_requests(Duration::from_secs(1800)).await.expect("prune");
    let left = directory.links(LinkQuery { limit: 10, ..LinkQuery::default() }).await.expect("links");
    let left: Vec<String> = left.items.iter().map(|link| link.account.to_string()).collect();
    assert_eq!(left, ["wwp/p3", "wwp/p2"]);
}

/// Runs every test on each engine.
macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        suite!(@on sqlite: $($test),*);
        suite!(@on postgres: $($test),*);
    };
    (@on $make:ident: $($test:ident),*) => {
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
    development_employees_match_the_contract,
    upsert_creates_and_refreshes_an_employee,
    repeated_role_changes_are_unchanged,
    agent_record_supplies_the_role_only_before_any_assignment,
    successful_login_updates_the_last_address,
    login_log_is_newest_first_and_pruned_by_age,
    audit_log_is_newest_first_and_pruned_by_age,
    one_time_code_is_accepted_once,
    password_is_replaced_only_if_the_expected_one_is_set,
    lockout_is_replaced_only_at_the_expected_version,
    concurrent_attempt_does_not_undo_an_unlock,
    grant_cannot_remove_the_last_administrator,
    removed_employee_leaves_no_records,
    employees_are_found_by_substring,
    by_name_ignores_case_and_width,
    lockouts_of_unknown_names_are_pruned_by_age_and_count,
    recheck_queue_is_ordered_by_the_last_check,
    rechecks_from_the_future_are_moved_to_now,
    platforms_word_is_undone_only_if_no_operator_spoke,
    account_has_one_link_and_its_request_can_change,
    approved_link_is_not_replaced,
    link_has_the_time_of_the_request_for_its_employee,
    other_spellings_of_linked_accounts_are_found,
    account_is_gone_until_it_is_active_again,
    pending_links_are_limited_per_corporation,
    automatic_approval_can_be_withdrawn_or_confirmed,
    links_are_filtered_and_paged,
    old_link_requests_are_pruned,
);
