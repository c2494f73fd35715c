//! What every directory promises.

use std::sync::Arc;
use std::time::Duration;

use deskgate::directory::audit::{AuditRecord, Event};
use deskgate::directory::factors::{Account, ExpectedPassword, FactorKind, OtpDevice};
use deskgate::directory::people::AgentEdit;
use deskgate::directory::sql::SqlDirectory;
use deskgate::directory::{Directory, EmployeeProfile, LoginRecord, LoginResult, RoleChange};
use deskgate::domain::client::Client;
use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId, Standing};
use deskgate::domain::lockout::Lockout;
use deskgate::domain::role::RoleName;
use deskgate::domain::session::{LoginMethod, LoginSource};
use deskgate::domain::write::WriteOutcome;

/// A directory under test, and what must live as long as it.
struct Subject {
    directory: Arc<dyn Directory>,
    clock: Clock,
    _folder: tempfile::TempDir,
}

async fn sqlite() -> Subject {
    let folder = tempfile::tempdir().expect("folder");
    let clock = Clock::system();
    let file = folder.path().join("directory.db");
    let directory = SqlDirectory::open(&file, clock.clone()).await.expect("directory");
    directory.fill_for_development().await.expect("people");
    Subject { directory: Arc::new(directory), clock, _folder: folder }
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

async fn the_development_people_are_those_of_the_contract(Subject { directory, .. }: &Subject) {
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
        let held = directory.roles(&corp(), &id(employee)).await.expect("roles");
        assert_eq!(names(&held), roles, "{employee}, in order of priority");
    }
    assert!(directory.employee(&corp(), &id("U1001")).await.expect("find").is_none(), "ids are exact");
    assert!(directory.employee(&CorpId::new("other"), &id("u1001")).await.expect("find").is_none());
}

async fn a_first_sign_in_creates_and_a_later_one_refreshes(Subject { directory, .. }: &Subject) {
    let (corp_id, employee_id) = (corp(), id("new1"));
    let profile = |name, department, avatar| EmployeeProfile {
        corp_id: &corp_id,
        employee_id: &employee_id,
        name,
        department,
        avatar,
    };
    let first = directory.upsert_employee(profile("", "IT", "")).await.expect("upsert_employee");
    assert_eq!((&*first.name, &*first.department), ("new1", "IT"), "without a name the id stands in");
    directory.upsert_employee(profile("New One", "", "https://a/b.png")).await.expect("upsert_employee");
    let kept = directory.upsert_employee(profile("", "", "")).await.expect("upsert_employee");
    assert_eq!((&*kept.name, &*kept.department, &*kept.avatar), ("New One", "IT", "https://a/b.png"));
}

async fn roles_are_given_and_taken_once(Subject { directory, .. }: &Subject) {
    let auditor = RoleName::new("auditor");
    let (corp, employee) = (corp(), id("u1001"));
    let grant = || directory.grant(&corp, &employee, &auditor);
    assert_eq!(grant().await.expect("grant"), RoleChange::Done);
    assert_eq!(grant().await.expect("grant"), RoleChange::Unchanged);
    let held = directory.roles(&corp, &employee).await.expect("roles");
    assert_eq!(names(&held), ["user", "auditor"]);
    let take = || directory.take(&corp, &employee, &auditor);
    assert_eq!(take().await.expect("take"), RoleChange::Done);
    assert_eq!(take().await.expect("take"), RoleChange::Unchanged);
    let ghost = id("ghost");
    assert_eq!(directory.grant(&corp, &ghost, &auditor).await.expect("grant"), RoleChange::NoEmployee);
    assert_eq!(directory.take(&corp, &ghost, &auditor).await.expect("take"), RoleChange::NoEmployee);
}

async fn an_agent_record_stands_in_for_missing_assignments(Subject { directory, .. }: &Subject) {
    directory.take(&corp(), &id("s3001"), &RoleName::new("supervisor")).await.expect("take");
    assert!(directory.assigned_roles(&corp(), &id("s3001")).await.expect("roles").is_empty());
    assert_eq!(names(&directory.roles(&corp(), &id("s3001")).await.expect("roles")), ["supervisor"]);
}

async fn a_successful_login_leaves_its_address(Subject { directory, .. }: &Subject) {
    let record = |result, address: &'static str| LoginRecord {
        corp_id: "wwdemo",
        employee_id: "u1001",
        method: LoginMethod::Qrcode,
        source: Some(LoginSource::Qrcode),
        client: Some(Client::Itagent),
        address,
        user_agent: "'; DROP TABLE login_log; --",
        result,
    };
    directory.record_login(record(LoginResult::Success, "203.0.113.7")).await.expect("record");
    directory.record_login(record(LoginResult::Refused("no_role"), "203.0.113.8")).await.expect("record");
    let employee = directory.employee(&corp(), &id("u1001")).await.expect("find").expect("there");
    assert_eq!(employee.last_login_ip.as_deref(), Some("203.0.113.7"));
}

async fn the_login_log_is_read_newest_first_and_forgotten_in_time(Subject { directory, clock, .. }: &Subject) {
    let record = |result, employee_id: &'static str| LoginRecord {
        corp_id: "wwdemo",
        employee_id,
        method: LoginMethod::Oauth2,
        source: None,
        client: None,
        address: "203.0.113.7",
        user_agent: "a browser",
        result,
    };
    directory.record_login(record(LoginResult::Success, "u1001")).await.expect("record");
    clock.advance(Duration::from_secs(3600));
    directory.record_login(record(LoginResult::Refused("disabled"), "x8001")).await.expect("record");
    let read = |limit| async move {
        let entries = directory.logins(None, limit).await.expect("read");
        entries.into_iter().map(|entry| (entry.employee_id, entry.result, entry.reason)).collect::<Vec<_>>()
    };
    let old = ("u1001".to_owned(), "success".to_owned(), String::new());
    let new = ("x8001".to_owned(), "refused".to_owned(), "disabled".to_owned());
    assert_eq!(read(10).await, [new.clone(), old]);
    assert_eq!(read(1).await, std::slice::from_ref(&new));
    directory.prune_login_log(Duration::from_secs(1800)).await.expect("forget");
    assert_eq!(read(10).await, [new]);
}

async fn deeds_are_read_newest_first_and_forgotten_in_time(Subject { directory, clock, .. }: &Subject) {
    let deed = |employee_id: &'static str, event| AuditRecord {
        corp_id: "wwdemo",
        employee_id,
        event,
        by: "m5001",
        session_id: "s-1",
        detail: "'; DROP TABLE audit_log; --",
    };
    directory.append_audit_record(deed("u1001", Event::OtpReset), "").await.expect("record");
    clock.advance(Duration::from_secs(3600));
    directory.append_audit_record(deed("a2001", Event::TakeRole), "forbidden").await.expect("record");
    directory.append_audit_record(deed("u1001", Event::Logout), "").await.expect("record");
    let read = |whose, limit| async move {
        let entries = directory.audit_entries(whose, limit).await.expect("read");
        entries.into_iter().map(|entry| (entry.employee_id, entry.event, entry.refused)).collect::<Vec<_>>()
    };
    let line = |whose: &str, event: &str, why: &str| (whose.to_owned(), event.to_owned(), why.to_owned());
    let (old, middle) = (line("u1001", "otp_reset", ""), line("a2001", "take_role", "forbidden"));
    let new = line("u1001", "logout", "");
    assert_eq!(read(None, 10).await, [new.clone(), middle.clone(), old.clone()]);
    assert_eq!(read(None, 1).await, std::slice::from_ref(&new));
    assert_eq!(read(Some("u1001"), 10).await, [new.clone(), old]);
    let whole = directory.audit_entries(None, 1).await.expect("read").remove(0);
    assert_eq!((whole.corp_id.as_str(), whole.by.as_str(), whole.session_id.as_str()), ("wwdemo", "m5001", "s-1"));
    assert_eq!(whole.detail, "'; DROP TABLE audit_log; --");
    assert!(whole.at <= clock.now() && whole.at.until(clock.now()) < Duration::from_secs(600), "{whole:?}");
    directory.prune_audit_log(Duration::from_secs(1800)).await.expect("forget");
    assert_eq!(read(None, 10).await, [new, middle]);
}

async fn a_one_time_code_is_used_once(Subject { directory, .. }: &Subject) {
    let (corp, id) = (corp(), id("u1001"));
    let whose = Account { corp_id: &corp, employee_id: &id };
    assert_eq!(directory.otp_device(whose).await.expect("read"), OtpDevice::default());
    assert_eq!(directory.use_otp(whose, "second", 1).await.expect("use"), WriteOutcome::Conflict, "no device");
    directory.offer_otp(whose, "first").await.expect("offer");
    directory.offer_otp(whose, "second").await.expect("offer");
    assert_eq!(
        directory.bind_otp(whose, "first", None, 7).await.expect("bind"),
        WriteOutcome::Conflict,
        "not on offer any more"
    );
    assert_eq!(directory.use_otp(whose, "second", 8).await.expect("use"), WriteOutcome::Conflict, "not bound yet");
    assert_eq!(directory.bind_otp(whose, "second", None, 7).await.expect("bind"), WriteOutcome::Applied);
    assert_eq!(directory.bind_otp(whose, "second", None, 7).await.expect("bind"), WriteOutcome::Conflict, "once");
    for (step, taken) in [
        (7, WriteOutcome::Conflict),
        (6, WriteOutcome::Conflict),
        (8, WriteOutcome::Applied),
        (8, WriteOutcome::Conflict),
        (9, WriteOutcome::Applied),
    ] {
        assert_eq!(directory.use_otp(whose, "second", step).await.expect("use"), taken, "{step}");
    }
    assert_eq!(directory.use_otp(whose, "first", 10).await.expect("use"), WriteOutcome::Conflict, "of another secret");
    directory.offer_otp(whose, "third").await.expect("offer");
    let bind = |in_use| directory.bind_otp(whose, "third", in_use, 11);
    assert_eq!(bind(None).await.expect("bind"), WriteOutcome::Conflict, "one was bound meanwhile");
    assert_eq!(bind(Some("first")).await.expect("bind"), WriteOutcome::Conflict, "another one is bound");
    let device = directory.otp_device(whose).await.expect("read");
    assert_eq!((device.secret.as_deref(), device.pending.as_deref()), (Some("second"), Some("third")));
    assert!(device.bound_at.is_some() && device.last_verified_at >= device.bound_at);

    let unlike = |prefix| async move {
        let secrets = directory.otp_secrets_unlike(prefix).await.expect("read");
        secrets.into_iter().map(|(_, id, closed)| (id.to_string(), closed)).collect::<Vec<_>>()
    };
    let of_u1001 = |closed: &str| ("u1001".to_owned(), closed.to_owned());
    assert_eq!(unlike("x").await, [of_u1001("second"), of_u1001("third")]);
    assert_eq!(unlike("sec").await, [of_u1001("third")]);
    assert_eq!(directory.renew_otp(whose, "first", "anew").await.expect("renew"), WriteOutcome::Conflict);
    assert_eq!(directory.renew_otp(whose, "second", "second anew").await.expect("renew"), WriteOutcome::Applied);
    assert_eq!(directory.renew_otp(whose, "third", "third anew").await.expect("renew"), WriteOutcome::Applied);
    let renewed =
        OtpDevice { secret: Some("second anew".to_owned()), pending: Some("third anew".to_owned()), ..device };
    assert_eq!(directory.otp_device(whose).await.expect("read"), renewed);
    assert_eq!(
        directory.use_otp(whose, "second anew", 9).await.expect("use"),
        WriteOutcome::Conflict,
        "its steps stay used"
    );

    assert_eq!(directory.remove_otp(whose).await.expect("remove"), WriteOutcome::Applied);
    assert_eq!(directory.remove_otp(whose).await.expect("remove"), WriteOutcome::Conflict);
}

async fn a_password_takes_the_place_of_the_one_that_was_seen(Subject { directory, .. }: &Subject) {
    let (corp, id) = (corp(), id("a2001"));
    let whose = Account { corp_id: &corp, employee_id: &id };
    let set = |hash: &'static str, seen| directory.set_password(whose, hash, seen);
    let only = |seen: &'static str| ExpectedPassword::Only(Some(seen));
    assert_eq!(set("h0", only("another")).await.expect("set"), None, "there is none");
    let first = set("h1", ExpectedPassword::Only(None)).await.expect("set").expect("the first one");
    assert_eq!(set("h2", ExpectedPassword::Only(None)).await.expect("set"), None, "there is one by now");
    assert_eq!(set("h2", only("another")).await.expect("set"), None);
    assert_eq!(directory.renew_password(whose, "h1", "h1 better").await.expect("renew"), WriteOutcome::Applied);
    let password = directory.agent(whose).await.expect("read").expect("an agent").password.expect("a password");
    assert_eq!((&password.id, password.hash.reveal().as_str()), (&first, "h1 better"), "still the same one");
    let second = directory.set_password(whose, "h2", ExpectedPassword::Only(Some(&first))).await.expect("set");
    assert!(second.is_some_and(|second| second != first));
    assert_eq!(directory.clear_password(whose).await.expect("clear"), WriteOutcome::Applied);
    assert_eq!(directory.agent(whose).await.expect("read").expect("an agent").password, None);
    let stale = directory.set_password(whose, "h3", ExpectedPassword::Only(Some(&first))).await.expect("set");
    assert_eq!(stale, None, "an operator has taken it away meanwhile");
    assert!(set("h4", ExpectedPassword::Any).await.expect("set").is_some());
    let nobody = EmployeeId::new("z9999");
    let nobodys = Account { corp_id: &corp, employee_id: &nobody };
    assert_eq!(directory.set_password(nobodys, "h5", ExpectedPassword::Any).await.expect("set"), None);
}

async fn a_lockout_is_changed_by_one_at_a_time(Subject { directory, clock, .. }: &Subject) {
    let (corp, id) = (corp(), id("u1001"));
    let whose = Account { corp_id: &corp, employee_id: &id };
    let (mut lockout, seen) = directory.lockout(FactorKind::Otp, whose).await.expect("read");
    lockout.on_failure(clock.now());
    let put = || directory.replace_lockout(FactorKind::Otp, whose, &lockout, seen);
    assert_eq!(put().await.expect("put"), WriteOutcome::Applied);
    assert_eq!(put().await.expect("put"), WriteOutcome::Conflict, "somebody was faster");
    let (kept, seen) = directory.lockout(FactorKind::Otp, whose).await.expect("read");
    assert_eq!(kept, lockout);
    assert_eq!(
        directory.replace_lockout(FactorKind::Otp, whose, &Lockout::default(), seen).await.expect("put"),
        WriteOutcome::Applied
    );
}

async fn a_try_under_way_does_not_undo_an_unlock(Subject { directory, clock, .. }: &Subject) {
    let (corp, id) = (corp(), id("u1001"));
    let whose = Account { corp_id: &corp, employee_id: &id };
    for _ in 0..6 {
        let (mut lockout, seen) = directory.lockout(FactorKind::Password, whose).await.expect("read");
        lockout.on_failure(clock.now());
        directory.replace_lockout(FactorKind::Password, whose, &lockout, seen).await.expect("put");
    }
    assert_eq!(directory.locked(10).await.expect("read").len(), 1);
    let (before, seen) = directory.lockout(FactorKind::Password, whose).await.expect("read");
    assert_eq!(
        directory.unlock(whose, Some(FactorKind::Otp)).await.expect("unlock"),
        WriteOutcome::Conflict,
        "only what is named"
    );
    assert_eq!(directory.unlock(whose, None).await.expect("unlock"), WriteOutcome::Applied);
    assert_eq!(directory.unlock(whose, None).await.expect("unlock"), WriteOutcome::Conflict);
    let late = directory.replace_lockout(FactorKind::Password, whose, &before, seen).await.expect("put");
    assert_eq!(late, WriteOutcome::Conflict);
    assert_eq!(directory.lockout(FactorKind::Password, whose).await.expect("read").0, Lockout::default());
    assert!(directory.locked(10).await.expect("read").is_empty());
}

async fn the_last_administrator_is_not_lost_by_a_grant(Subject { directory, .. }: &Subject) {
    let (corp, admin, other) = (corp(), id("m5001"), id("s3001"));
    let grant = |who: EmployeeId, role: &'static str| {
        let corp = corp.clone();
        async move { directory.grant(&corp, &who, &RoleName::new(role)).await.expect("grant") }
    };
    let whose = Account { corp_id: &corp, employee_id: &other };
    for role in directory.assigned_roles(&corp, &other).await.expect("read") {
        directory.take(&corp, &other, &role).await.expect("take");
    }
    directory
        .change_agent(whose, AgentEdit { role: Some(&RoleName::new("admin")), ..AgentEdit::default() })
        .await
        .expect("change");
    assert_eq!(directory.take(&corp, &admin, &RoleName::new("admin")).await.expect("take"), RoleChange::Done);
    // An assignment outdoes the record that makes this one the last.
    assert_eq!(grant(other.clone(), "user").await, RoleChange::LastAdmin);
    assert_eq!(directory.roles(&corp, &other).await.expect("read"), [RoleName::new("admin")]);
    assert_eq!(grant(other.clone(), "admin").await, RoleChange::Done);
    assert_eq!(grant(other.clone(), "user").await, RoleChange::Done);
    assert_eq!(grant(id("nobody"), "user").await, RoleChange::NoEmployee);
}

async fn nothing_is_left_of_a_removed_employee(Subject { directory, .. }: &Subject) {
    let (corp, id) = (corp(), id("a2001"));
    let whose = Account { corp_id: &corp, employee_id: &id };
    directory.offer_otp(whose, "a secret").await.expect("offer");
    directory.bind_otp(whose, "a secret", None, 1).await.expect("bind");
    assert_eq!(directory.remove_employee(whose).await.expect("remove"), RoleChange::Done);
    assert_eq!(directory.remove_employee(whose).await.expect("remove"), RoleChange::NoEmployee);
    assert_eq!(directory.grant(&corp, &id, &RoleName::new("admin")).await.expect("grant"), RoleChange::NoEmployee);
    directory.offer_otp(whose, "another").await.expect("offer");
    let profile = EmployeeProfile { corp_id: &corp, employee_id: &id, name: "", department: "", avatar: "" };
    directory.upsert_employee(profile).await.expect("upsert_employee");
    assert!(directory.roles(&corp, &id).await.expect("read").is_empty());
    assert_eq!(directory.agent(whose).await.expect("read"), None);
    assert_eq!(directory.otp_device(whose).await.expect("read"), OtpDevice::default());
}

async fn employees_are_found_by_what_is_in_their_names(Subject { directory, .. }: &Subject) {
    let find = |text: &'static str| async move {
        let found = directory.employees(Some(text), 10).await.expect("find");
        found.into_iter().map(|employee| employee.employee_id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(find("A200").await, ["a2001"]);
    assert_eq!(find("").await.len(), 6);
    for none in ["%", "_", "!", "nobody", "' OR 1=1 --"] {
        assert!(find(none).await.is_empty(), "{none}");
    }
}

async fn a_name_is_found_however_it_is_spelled(Subject { directory, .. }: &Subject) {
    let find = |name: &'static str| async move {
        let found = directory.by_name(&corp(), name).await.expect("find");
        found.map(|(employee, agent)| (employee.employee_id.as_str().to_owned(), agent.map(|agent| agent.role)))
    };
    let agent = Some(("a2001".to_owned(), Some(RoleName::new("agent"))));
    for name in ["a2001", "A2001", "ａ２００１"] {
        assert_eq!(find(name).await, agent, "{name}");
    }
    assert_eq!(find("U1001").await, Some(("u1001".to_owned(), None)), "no agent");
    for name in ["", "a200", "a20011", "a2001 ", "%", "a2001\0", "' OR 1=1 --"] {
        assert_eq!(find(name).await, None, "{name:?}");
    }
    assert!(directory.by_name(&CorpId::new("other"), "a2001").await.expect("find").is_none());
    // Two who differ in nothing but the case are each found by their own name.
    let (corp_id, upper) = (corp(), id("A2001"));
    let profile = EmployeeProfile { corp_id: &corp_id, employee_id: &upper, name: "", department: "", avatar: "" };
    directory.upsert_employee(profile).await.expect("upsert_employee");
    assert_eq!(find("a2001").await, agent);
    assert_eq!(find("A2001").await, Some(("A2001".to_owned(), None)));
}

async fn lockouts_of_nobody_are_forgotten_and_never_too_many(Subject { directory, clock, .. }: &Subject) {
    let nobody = CorpId::of_nobody();
    let put = |corp_id: &CorpId, name: &str| {
        let (corp_id, name) = (corp_id.clone(), id(name));
        async move {
            let whose = Account { corp_id: &corp_id, employee_id: &name };
            let (mut lockout, seen) = directory.lockout(FactorKind::Password, whose).await.expect("read");
            lockout.on_failure(clock.now());
            directory.replace_lockout(FactorKind::Password, whose, &lockout, seen).await.expect("put");
        }
    };
    let kept = |corp_id: &CorpId, name: &str| {
        let (corp_id, name) = (corp_id.clone(), id(name));
        async move {
            let whose = Account { corp_id: &corp_id, employee_id: &name };
            directory.lockout(FactorKind::Password, whose).await.expect("read").0 != Lockout::default()
        }
    };
    put(&corp(), "a2001").await;
    for name in ["first", "second", "third", "fourth"] {
        put(&nobody, name).await;
        clock.advance(Duration::from_secs(60));
    }
    put(&nobody, "first").await;
    let day = Duration::from_secs(24 * 60 * 60);
    directory.prune_unknown_lockouts(day, 4).await.expect("forget");
    assert!(kept(&nobody, "second").await, "there is room");
    directory.prune_unknown_lockouts(day, 2).await.expect("forget");
    for (name, expected) in [("first", true), ("second", false), ("third", false), ("fourth", true)] {
        assert_eq!(kept(&nobody, name).await, expected, "{name}");
    }
    clock.advance(day - Duration::from_secs(60));
    directory.prune_unknown_lockouts(day, 2).await.expect("forget");
    assert!(kept(&nobody, "first").await, "a day is not over before it is");
    clock.advance(Duration::from_secs(60));
    directory.prune_unknown_lockouts(day, 2).await.expect("forget");
    assert!(!kept(&nobody, "first").await);
    assert!(kept(&corp(), "a2001").await, "an owner still wants to hear of it");
}

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
    sqlite: the_development_people_are_those_of_the_contract,
    a_first_sign_in_creates_and_a_later_one_refreshes,
    roles_are_given_and_taken_once,
    an_agent_record_stands_in_for_missing_assignments,
    a_successful_login_leaves_its_address,
    the_login_log_is_read_newest_first_and_forgotten_in_time,
    deeds_are_read_newest_first_and_forgotten_in_time,
    a_one_time_code_is_used_once,
    a_password_takes_the_place_of_the_one_that_was_seen,
    a_lockout_is_changed_by_one_at_a_time,
    a_try_under_way_does_not_undo_an_unlock,
    the_last_administrator_is_not_lost_by_a_grant,
    nothing_is_left_of_a_removed_employee,
    employees_are_found_by_what_is_in_their_names,
    a_name_is_found_however_it_is_spelled,
    lockouts_of_nobody_are_forgotten_and_never_too_many,
);
