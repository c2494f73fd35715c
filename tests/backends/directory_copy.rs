//! Copies of a directory, between all engines.

use std::collections::BTreeSet;

use deskgate::directory::audit::{AuditLog, AuditRecord, Event};
use deskgate::directory::copy::{CopiedTable, CopyRun, CopyState, DirectoryCopy, RowPage};
use deskgate::directory::factors::{Account, FactorKind, Factors};
use deskgate::directory::keys::{KeyGeneration, KeyRecord, KeyRecordChange, KeyRecords};
use deskgate::directory::links::Links;
use deskgate::directory::sql::SqlDirectory;
use deskgate::directory::{Directory, LoginQuery, LoginRecord, LoginResult, RoleChange};
use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::link::{PlatformAccount, PlatformUserId};
use deskgate::domain::lockout::Lockout;
use deskgate::domain::role::RoleName;
use deskgate::domain::session::{KeyId, LoginMethod, Version};
use deskgate::domain::write::WriteOutcome;
use sqlx::{Connection, Row};

use crate::servers::postgres;

/// A directory and, for SQLite, its folder.
struct Subject(SqlDirectory, Option<tempfile::TempDir>);

async fn sqlite() -> Subject {
    let folder = tempfile::tempdir().expect("folder");
    let directory = SqlDirectory::open(&folder.path().join("directory.db"), Clock::system()).await;
    Subject(directory.expect("directory"), Some(folder))
}

async fn postgres() -> Subject {
    let settings = postgres::settings(&postgres::empty_database());
    Subject(SqlDirectory::connect(settings, Clock::system()).await.expect("directory"), None)
}

async fn log_in(directory: &SqlDirectory, employee_id: &str) {
    let login = LoginRecord {
        corp_id: "wwdemo",
        employee_id,
        method: LoginMethod::Dev,
        source: None,
        client: None,
        address: "203.0.113.7",
        user_agent: "浏览器",
        platform_account: None,
        request_id: "",
        result: LoginResult::Refused("a reason"),
    };
    directory.record_login(login).await.expect("login");
}

/// At least one row in every table, more log records than a page, and two that only their order tells apart.
async fn fill(directory: &SqlDirectory) {
    directory.fill_for_development().await.expect("employees");
    let (corp_id, employee_id) = (CorpId::new("wwdemo"), EmployeeId::new("u1001"));
    let account = Account { corp_id: &corp_id, employee_id: &employee_id };
    // The names of roles get other ids at the target.
    for role in ["auditor", "clerk"] {
        directory.grant(&corp_id, &employee_id, &RoleName::new(role)).await.expect("grant");
    }
    directory.take(&corp_id, &employee_id, &RoleName::new("auditor")).await.expect("take");
    directory.offer_otp(account, "v1.k.pending").await.expect("offer");
    let lockout = directory.replace_lockout(FactorKind::Otp, account, &Lockout::default(), Version(0)).await;
    assert_eq!(lockout.expect("lockout"), WriteOutcome::Applied);
    let platform_account = PlatformAccount { corp_id: CorpId::new("wwp"), user_id: PlatformUserId::new("p'\"%1") };
    directory.approve_link(&platform_account, account, "uid 0").await.expect("a link");
    for number in 0..12 {
        log_in(directory, if number < 2 { "twice" } else { "u1001" }).await;
        let record = AuditRecord {
            corp_id: "wwdemo",
            employee_id: "u1001",
            event: Event::Logout,
            by: "op",
            session_id: "",
            detail: "",
        };
        directory.append_audit_record(record, "").await.expect("audit");
    }
}

/// All rows of a table, read in small pages.
async fn all(directory: &SqlDirectory, table: CopiedTable) -> Vec<deskgate::directory::copy::CopiedRow> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let RowPage { rows: page, next } = directory.rows(table, after.as_ref(), 5).await.expect("rows");
        assert!(page.len() <= 5, "a limit");
        rows.extend(page);
        after = next;
        if after.is_none() {
            assert_eq!(rows.len(), directory.count_rows(table).await.expect("count"));
            return rows;
        }
    }
}

async fn copy(from: &SqlDirectory, to: &SqlDirectory, run: &CopyRun) {
    for table in CopiedTable::ALL {
        let rows = all(from, table).await;
        assert!(!rows.is_empty(), "{table:?}");
        assert_eq!(to.insert_rows(run, table, &rows).await.expect("insert"), WriteOutcome::Applied);
    }
}

async fn copy_has_every_row(Subject(from, _): Subject, Subject(to, _): Subject) {
    fill(&from).await;
    let run = CopyRun::new();
    assert_eq!(to.begin_copy(&run).await.expect("begin"), WriteOutcome::Applied);
    copy(&from, &to, &run).await;
    assert_eq!(to.finish_copy(&run).await.expect("finish"), WriteOutcome::Applied);
    for table in CopiedTable::ALL {
        assert!(all(&from, table).await == all(&to, table).await, "{table:?}");
    }
    assert_eq!(
        to.logins(&LoginQuery::default(), 100).await.expect("logins"),
        from.logins(&LoginQuery::default(), 100).await.expect("logins")
    );
    let (corp_id, employee_id) = (CorpId::new("wwdemo"), EmployeeId::new("u1001"));
    let roles = to.assigned_roles(&corp_id, &employee_id).await.expect("roles");
    assert_eq!(roles, from.assigned_roles(&corp_id, &employee_id).await.expect("roles"));
    // New rows do not collide with those that were copied.
    let granted = to.grant(&corp_id, &employee_id, &RoleName::new("another")).await.expect("grant");
    assert_eq!(granted, RoleChange::Done);
    log_in(&to, "later").await;
    assert_eq!(to.logins(&LoginQuery::default(), 1).await.expect("logins")[0].employee_id, "later");
}

#[tokio::test]
async fn copy_from_sqlite_to_postgres_has_every_row() {
    copy_has_every_row(sqlite().await, postgres().await).await;
}

#[tokio::test]
async fn copy_from_postgres_to_sqlite_has_every_row() {
    copy_has_every_row(postgres().await, sqlite().await).await;
}

async fn only_an_empty_directory_or_an_unused_copy_is_overwritten(Subject(to, _): &Subject) {
    let Subject(from, _folder) = sqlite().await;
    fill(&from).await;
    assert_eq!(to.copy_state().await.expect("state"), CopyState::Own);
    let (first, second) = (CopyRun::new(), CopyRun::new());
    to.begin_copy(&first).await.expect("begin");
    copy(&from, to, &first).await;
    assert_eq!(to.copy_state().await.expect("state"), CopyState::Unfinished);

    assert_eq!(to.begin_copy(&second).await.expect("begin"), WriteOutcome::Applied, "run again");
    let rows = all(&from, CopiedTable::Employees).await;
    let late = to.insert_rows(&first, CopiedTable::Employees, &rows).await.expect("insert");
    assert_eq!(late, WriteOutcome::Conflict, "another run has begun");
    assert_eq!(to.finish_copy(&first).await.expect("finish"), WriteOutcome::Conflict);
    for table in CopiedTable::ALL {
        assert_eq!(to.count_rows(table).await.expect("count"), 0, "{table:?}");
    }
    copy(&from, to, &second).await;
    to.finish_copy(&second).await.expect("finish");
    assert_eq!(to.copy_state().await.expect("state"), CopyState::Complete);
    let third = CopyRun::new();
    assert_eq!(to.begin_copy(&third).await.expect("begin"), WriteOutcome::Applied, "nobody has used it");
    copy(&from, to, &third).await;
    to.finish_copy(&third).await.expect("finish");

    to.adopt_copy().await.expect("adopt");
    assert_eq!(to.copy_state().await.expect("state"), CopyState::Own);
    assert_eq!(to.begin_copy(&CopyRun::new()).await.expect("begin"), WriteOutcome::Conflict, "a gateway has used it");
    assert!(to.count_rows(CopiedTable::Employees).await.expect("count") > 0, "nothing was removed");
}

async fn directory_that_holds_only_keys_is_not_overwritten(Subject(to, _): &Subject) {
    let key = KeyRecordChange::Put(KeyRecord { id: KeyId::new("k"), private_key: None });
    to.change_keys(KeyGeneration(0), &[key]).await.expect("a key");
    assert_eq!(to.begin_copy(&CopyRun::new()).await.expect("begin"), WriteOutcome::Conflict);
    assert_eq!(to.key_records().await.expect("keys").records.len(), 1);
}

#[tokio::test]
async fn only_an_empty_directory_or_an_unused_copy_is_overwritten_on_sqlite() {
    only_an_empty_directory_or_an_unused_copy_is_overwritten(&sqlite().await).await;
    directory_that_holds_only_keys_is_not_overwritten(&sqlite().await).await;
}

#[tokio::test]
async fn only_an_empty_directory_or_an_unused_copy_is_overwritten_on_postgres() {
    only_an_empty_directory_or_an_unused_copy_is_overwritten(&postgres().await).await;
    directory_that_holds_only_keys_is_not_overwritten(&postgres().await).await;
}

/// Columns that a copy does not carry, and why.
const NOT_COPIED: &[(&str, &str)] = &[
    // Generated ids; assignments name their role.
    ("roles", "id"),
    ("user_roles", "role_id"),
    // Copied by `copy_keys`, which encrypts them for the target.
    ("signing_keys", "key_id"),
    ("signing_keys", "private_key"),
    ("signing_key_generation", "row_id"),
    ("signing_key_generation", "generation"),
    // About the directory itself.
    ("copy_target", "row_id"),
    ("copy_target", "copy_id"),
    ("copy_target", "completed_at"),
];

#[tokio::test]
async fn every_column_is_copied_or_named_as_an_exception() {
    let Subject(directory, folder) = sqlite().await;
    directory.close().await;
    let folder = folder.expect("a folder");
    let file = folder.path().join("directory.db").display().to_string();
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite:{file}")).await.expect("a file");
    let columns = sqlx::query(
        "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
         WHERE tables.type = 'table' AND tables.name NOT LIKE '!_%' ESCAPE '!' AND tables.name NOT LIKE 'sqlite%'",
    );
    let columns = columns.fetch_all(&mut connection).await.expect("columns");
    let existing: BTreeSet<(String, String)> = columns.iter().map(|row| (row.get(0), row.get(1))).collect();
    let name = |table| match table {
        CopiedTable::Employees => "employees",
        CopiedTable::Roles => "roles",
        CopiedTable::Assignments => "user_roles",
        CopiedTable::Agents => "agents",
        CopiedTable::OtpDevices => "otp_devices",
        CopiedTable::Lockouts => "lockouts",
        CopiedTable::Links => "platform_links",
        CopiedTable::LoginLog => "login_log",
        CopiedTable::AuditLog => "audit_log",
    };
    let copied =
        CopiedTable::ALL.into_iter().flat_map(|table| table.columns().iter().map(move |one| (name(table), one.name())));
    let known: BTreeSet<(String, String)> = copied
        .chain(NOT_COPIED.iter().copied())
        .map(|(table, column)| (table.to_owned(), column.to_owned()))
        .filter(|one| *one != ("user_roles".to_owned(), "role".to_owned()))
        .collect();
    assert_eq!(existing, known, "directory/copy.rs and the migrations disagree");
}
