//! What a directory on PostgreSQL does with its server: migrations, TLS, limits, outages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deskgate::directory::sql::SqlDirectory;
use deskgate::directory::{Directory, DirectoryError, LoginQuery, LoginRecord, LoginResult};
use deskgate::domain::clock::Clock;
use deskgate::domain::employee::{CorpId, EmployeeId};
use deskgate::domain::secret::Secret;
use deskgate::domain::session::LoginMethod;
use futures::FutureExt;
use futures::future::join_all;
use sqlx::Connection;

use crate::servers::postgres::{self, PostgresServer, psql_in};

async fn connect(url: &str) -> Result<SqlDirectory, DirectoryError> {
    SqlDirectory::connect(postgres::settings(url), Clock::system()).await
}

/// Connects with a short timeout, and a pool of two.
async fn impatient(url: &str) -> Arc<SqlDirectory> {
    let mut settings = postgres::settings(url);
    (settings.pool, settings.timeout) = (2, Duration::from_secs(2));
    Arc::new(SqlDirectory::connect(settings, Clock::system()).await.expect("directory"))
}

async fn refusal(url: &str) -> String {
    match connect(url).await {
        Ok(_) => panic!("{url} is accepted"),
        Err(error) => deskgate::error::chain(&error),
    }
}

async fn read(directory: &SqlDirectory) -> Result<(), DirectoryError> {
    directory.employee(&CorpId::new("wwdemo"), &EmployeeId::new("u1001")).await.map(|_| ())
}

async fn write(directory: &SqlDirectory) -> Result<(), DirectoryError> {
    let record = LoginRecord {
        corp_id: "wwdemo",
        employee_id: "u1001",
        method: LoginMethod::Qrcode,
        source: None,
        client: None,
        address: "203.0.113.7",
        user_agent: "a browser",
        platform_account: None,
        request_id: "",
        result: LoginResult::Success,
    };
    directory.record_login(record).await
}

#[tokio::test]
async fn eight_gateways_start_at_once_on_an_empty_database() {
    let url = postgres::empty_database();
    let started = join_all((0..8).map(|_| connect(&url))).await;
    for directory in started {
        directory.expect("directory").ready().await.expect("ready");
    }
    let applied =
        psql_in(&url, "SELECT count(*), count(DISTINCT version) FROM deskgate._sqlx_migrations WHERE success");
    let (all, distinct) = applied.split_once('|').expect("two numbers");
    assert_eq!(all, distinct);
}

#[tokio::test]
async fn databases_that_are_not_this_programs_are_refused() {
    let newer = postgres::database();
    psql_in(
        &newer,
        "INSERT INTO deskgate._sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'later', true, '', 0)",
    );
    let changed = postgres::database();
    psql_in(&changed, "UPDATE deskgate._sqlx_migrations SET checksum = 'x' WHERE version = 1");
    let foreign = postgres::empty_database();
    psql_in(&foreign, "CREATE SCHEMA deskgate; CREATE TABLE deskgate.employees (name TEXT)");
    for (url, why) in [
        (&newer, "a newer deskgate has migrated the database (migration 9999)"),
        (&changed, "migration 1 in the database is not this program's"),
        (&foreign, "the schema deskgate holds tables that deskgate did not create"),
    ] {
        let found = refusal(url).await;
        assert!(found.contains(why), "{found}");
    }
    assert_eq!(psql_in(&foreign, "SELECT count(*) FROM pg_class WHERE relnamespace = 'deskgate'::regnamespace"), "1");
}

#[tokio::test]
async fn tables_live_beside_those_of_another_program() {
    let url = postgres::empty_database();
    psql_in(
        &url,
        "CREATE TABLE employees (name TEXT); INSERT INTO employees VALUES ('theirs'); CREATE SCHEMA deskgate",
    );
    let directory = connect(&url).await.expect("directory");
    directory.fill_for_development().await.expect("employees");
    assert_eq!(psql_in(&url, "SELECT name FROM public.employees"), "theirs");
    assert_eq!(psql_in(&url, "SELECT count(*) FROM deskgate.employees"), "6");
}

#[tokio::test]
async fn exhausted_pool_refuses_at_once_and_recovers() {
    let url = postgres::database();
    let directory = impatient(&url).await;
    read(&directory).await.expect("read");
    let mut other = sqlx::PgConnection::connect(&url).await.expect("a connection");
    let lock = "BEGIN; LOCK TABLE deskgate.employees IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut other).await.expect("a lock");
    let reads = (0..50).map(|_| {
        let directory = directory.clone();
        async move {
            let started = Instant::now();
            read(&directory).await.expect_err("locked");
            started.elapsed()
        }
    });
    let times = join_all(reads).await;
    // Two have a connection and eight wait for one.
    let at_once = times.iter().filter(|time| **time < Duration::from_secs(1)).count();
    assert_eq!(at_once, 40, "{times:?}");
    assert!(times.iter().all(|time| *time < Duration::from_secs(4)), "{times:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("unlock");
    read(&directory).await.expect("read");
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    assert_eq!(psql_in(&url, waiting), "0", "the server has given up as well");
}

#[tokio::test]
async fn killed_server_is_refused_quickly_and_used_again_when_it_is_back() {
    let mut server = PostgresServer::start();
    let url = server.database("desk");
    let directory = impatient(&url).await;
    write(&directory).await.expect("write");
    server.kill();
    let mut times = Vec::new();
    for _ in 0..20 {
        let started = Instant::now();
        read(&directory).await.expect_err("no server");
        write(&directory).await.expect_err("no server");
        directory.ready().await.expect_err("no server");
        times.push(started.elapsed());
    }
    times.sort_unstable();
    assert!(times[10] < Duration::from_millis(200), "the median of three operations: {times:?}");
    server.start_again();
    eventually_ok(|| write(&directory).boxed()).await;
    eventually_ok(|| directory.ready().boxed()).await;
    assert_eq!(
        directory.logins(&LoginQuery::default(), 10).await.expect("read").len(),
        2,
        "each acknowledged record once"
    );
}

#[tokio::test]
async fn restart_between_two_reads_is_not_noticed() {
    let mut server = PostgresServer::start();
    let directory = impatient(&server.database("desk")).await;
    join_all((0..2).map(|_| read(&directory))).await;
    server.kill();
    server.start_again();
    read(&directory).await.expect("a read on another connection");
}

#[tokio::test]
async fn paused_server_is_left_after_the_timeout_and_no_answer_is_mixed_up() {
    let server = PostgresServer::start();
    let directory = impatient(&server.database("desk")).await;
    directory.fill_for_development().await.expect("employees");
    server.pause();
    let started = Instant::now();
    let corp = CorpId::new("wwdemo");
    let late = join_all(["u1001", "a2001"].map(|id| {
        let (directory, corp) = (directory.clone(), corp.clone());
        async move { directory.employee(&corp, &EmployeeId::new(id)).await }
    }));
    assert!(late.await.iter().all(Result::is_err));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    server.resume();
    eventually_ok(|| read(&directory).boxed()).await;
    for id in ["m5001", "s3001", "c4001", "n6001"] {
        let found = directory.employee(&corp, &EmployeeId::new(id)).await.expect("read").expect("an employee");
        assert_eq!(found.employee_id.as_str(), id);
    }
}

#[tokio::test]
async fn operation_that_a_deadlock_ended_is_tried_again() {
    let url = postgres::database();
    let directory = Arc::new(connect(&url).await.expect("directory"));
    let mut other = sqlx::PgConnection::connect(&url).await.expect("a connection");
    let lock = "BEGIN; UPDATE deskgate.employees SET name = name WHERE employee_id = 'u1001'";
    sqlx::raw_sql(lock).execute(&mut other).await.expect("a lock");
    // Writes to the log, then waits for the row.
    let record = tokio::spawn({
        let directory = directory.clone();
        async move { write(&directory).await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()";
    let deadline = Instant::now() + Duration::from_secs(20);
    while psql_in(&url, waits) == "0" {
        assert!(Instant::now() < deadline, "the record does not wait for the row");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Waits for the log: a deadlock, which the server ends after a second at the cost of the one that waited first.
    let deadlock = "LOCK TABLE deskgate.login_log IN ACCESS EXCLUSIVE MODE; COMMIT";
    let survived = sqlx::raw_sql(deadlock).execute(&mut other).await;
    record.await.expect("a task").expect("the record");
    survived.expect("the other transaction");
    assert_eq!(directory.logins(&LoginQuery::default(), 10).await.expect("read").len(), 1);
}

#[tokio::test]
async fn readiness_writes_at_most_once_a_second() {
    let url = postgres::database();
    let directory = connect(&url).await.expect("directory");
    let started = Instant::now();
    join_all((0..100).map(|_| directory.ready())).await.into_iter().for_each(|ready| ready.expect("ready"));
    let writes: u64 = psql_in(&url, "SELECT checked_at FROM deskgate.write_probe").parse().expect("a number");
    assert!((1..=1 + started.elapsed().as_secs()).contains(&writes), "{writes}");
}

#[tokio::test]
async fn flood_of_operations_does_not_look_like_an_outage() {
    let directory = impatient(&postgres::database()).await;
    let (reads, ready) = tokio::join!(join_all((0..100).map(|_| read(&directory))), directory.ready());
    assert!(reads.iter().any(Result::is_err), "more than the pool admits");
    ready.expect("ready");
}

#[tokio::test]
async fn read_only_server_is_not_ready() {
    let url = postgres::database();
    let directory = connect(&url).await.expect("directory");
    directory.ready().await.expect("ready");
    let name = url.rsplit('/').next().expect("a name");
    psql_in(&url, &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'deskgate'
         AND datname = current_database()";
    psql_in(&url, end);
    let deadline = Instant::now() + Duration::from_secs(20);
    let error = loop {
        assert!(Instant::now() < deadline, "the read-only database is not noticed");
        if let Err(error) = directory.ready().await {
            let error = deskgate::error::chain(&error);
            if error.contains("read-only") {
                break error;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(error.contains("read-only transaction"), "{error}");
    read(&directory).await.expect("read");
}

#[tokio::test]
async fn closed_directory_completes_what_it_accepted_and_refuses_the_rest() {
    let url = postgres::database();
    let directory = impatient(&url).await;
    let writes: Vec<_> = (0..8)
        .map(|_| {
            let directory = directory.clone();
            tokio::spawn(async move { write(&directory).await })
        })
        .collect();
    tokio::task::yield_now().await;
    directory.close().await;
    let done = join_all(writes).await.into_iter().filter(|written| matches!(written, Ok(Ok(())))).count();
    write(&directory).await.expect_err("closed");
    assert_eq!(psql_in(&url, "SELECT count(*) FROM deskgate.login_log"), done.to_string());
}

/// A server with a certificate for `localhost`, to which the user `guarded` connects with TLS and a password.
fn server_with_tls() -> (PostgresServer, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let server = PostgresServer::prepare(&["ssl=on"], |data| {
        let authority_key = rcgen::KeyPair::generate().expect("a key");
        let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_certificate = authority.self_signed(&authority_key).expect("an authority");
        std::fs::write(folder.path().join("ca.pem"), pem("CERTIFICATE", authority_certificate.der())).expect("a file");
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let certificate = parameters.signed_by(&key, &issuer).expect("a certificate");
        postgres::write_private(data, "server.crt", &pem("CERTIFICATE", certificate.der()));
        postgres::write_private(data, "server.key", &pem("PRIVATE KEY", key.serialized_der()));
        let rules = "hostssl all guarded 127.0.0.1/32 scram-sha-256\nhost all desk 127.0.0.1/32 trust\n";
        postgres::write_private(data, "pg_hba.conf", rules);
    });
    let url = server.database("desk");
    psql_in(&url, "CREATE ROLE guarded LOGIN PASSWORD 'hunter2'; GRANT ALL ON DATABASE desk TO guarded");
    (server, folder)
}

fn pem(kind: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("ASCII")).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

#[tokio::test]
async fn server_must_prove_its_name_and_the_password_never_shows() {
    let (server, folder) = server_with_tls();
    let port = server.port;
    let ca_file = Some(folder.path().join("ca.pem"));
    let verify = format!("postgres://guarded:hunter2@localhost:{port}/desk?sslmode=verify-full");
    for (case, url, ca_file, expected) in [
        ("right certificate", verify.clone(), &ca_file, None),
        ("unknown authority", verify.clone(), &None, Some("certificate")),
        ("another name", verify.replace("localhost", "127.0.0.1"), &ca_file, Some("certificate")),
        ("any certificate", verify.replace("verify-full", "require"), &None, None),
        ("no TLS", verify.replace("verify-full", "disable"), &None, Some("no pg_hba.conf entry")),
        ("wrong password", verify.replace("hunter2", "hunter3"), &ca_file, Some("password authentication failed")),
    ] {
        let mut settings = postgres::settings(&url);
        settings.ca_file.clone_from(ca_file);
        let connected = SqlDirectory::connect(settings, Clock::system()).await;
        let error = connected.as_ref().err().map(|error| deskgate::error::chain(error));
        match (expected, &error) {
            (None, None) => {}
            (Some(expected), Some(error)) => assert!(error.contains(expected), "{case}: {error}"),
            _ => panic!("{case}: {error:?}"),
        }
        assert!(error.is_none_or(|error| !error.contains("hunter")), "{case}");
    }
    let mut from_file = postgres::settings(&verify.replace(":hunter2", ""));
    (from_file.ca_file, from_file.url.password) = (ca_file, Some(Secret::new("hunter2".to_owned())));
    SqlDirectory::connect(from_file, Clock::system()).await.expect("directory");
}

#[tokio::test]
async fn server_without_tls_is_refused_where_tls_is_expected() {
    let url = format!("{}?sslmode=verify-full", postgres::database());
    assert!(refusal(&url).await.contains("server does not support TLS"));
}

/// Repeats an operation until it succeeds, for as long as a reconnect may take.
async fn eventually_ok<'a>(mut operation: impl FnMut() -> futures::future::BoxFuture<'a, Result<(), DirectoryError>>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(error) = operation().await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
