//! A directory on PostgreSQL: every flow works as with SQLite, and an outage of the server ends no session.

use std::time::{Duration, Instant};

use sqlx::Connection;

use crate::servers::postgres::{self, PostgresServer, psql_in};
use crate::support::*;

fn directory(url: &str) -> String {
    format!("[directory]\nurl = \"{url}\"\n")
}

#[tokio::test]
async fn sign_ins_roles_codes_and_logs_work_on_postgresql() {
    let url = postgres::empty_database();
    wait_for_otp_step_with_time_left().await;
    let mut desk = Gateway::with(&directory(&url)).await;
    let xiaoming = desk.sign_in_by_qrcode("u1001").await;
    let alice = desk.sign_in_by_oauth2("a2001", "itagent").await;
    assert_eq!(alice.get("/api/auth/me").await.expect_code(0).data()["name"], "Alice Chen");

    let admin = desk.sign_in("m5001").await;
    OtpDevice::step_up(&admin).await;
    let grant = json!({ "employee_id": "u1001", "role": "auditor" });
    let headers = [("Content-Type", "application/json")];
    let granted = admin.send("PUT", "/api/admin/roles/user-roles", &headers, grant.to_string().as_bytes()).await;
    granted.expect_code(0);
    let me = xiaoming.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!(me["roles"], json!(["user", "auditor"]), "{me}");
    desk.command(&["role", "take", "u1001", "auditor"]).await.expect_success();
    let last = desk.command(&["role", "take", "m5001", "admin"]).await;
    assert!(!last.status.success() && last.output_text().contains("administrator"), "{}", last.output_text());

    xiaoming.post("/api/auth/logout").await.expect_code(0);
    let logins =
        "SELECT login_method, result FROM deskgate.login_log WHERE employee_id IN ('u1001', 'a2001') ORDER BY at";
    assert_eq!(psql_in(&url, logins), "qrcode|success\noauth2|success");
    let audited =
        "SELECT event FROM deskgate.audit_log WHERE employee_id = 'u1001' AND refused = '' ORDER BY at, sequence";
    let events = psql_in(&url, audited);
    assert!(events.contains("grant_role") && events.ends_with("logout"), "{events}");

    desk.restart().await;
    alice.get("/api/auth/me").await.expect_code(0);
    let list = desk.command(&["employee", "list", "--json"]).await.expect_success();
    assert!(list.contains("n6001"), "{list}");
}

#[tokio::test]
async fn killed_server_ends_no_session_and_is_used_again_without_a_restart() {
    let mut server = PostgresServer::start();
    let desk = Gateway::with(&directory(&server.database("desk"))).await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    socket.echo("hello").await;
    until_ready_is(&desk, 200).await;

    server.kill();
    expect_directory_named(&desk).await;
    for _ in 0..10 {
        let started = Instant::now();
        assert_eq!(try_sign_in(&desk).await.code(), 1503);
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
        xiaoming.get("/api/auth/me").await.expect_code(0);
        xiaoming.get("/api/desk/tickets").await.expect_status(200);
        socket.echo("still here").await;
    }
    let logout = xiaoming.post("/api/auth/logout").await;
    assert_eq!(logout.code(), 1503, "a logout without a record does not happen");

    server.start_again();
    until_ready_is(&desk, 200).await;
    let again =
        eventually("a sign-in", || async { Some(try_sign_in(&desk).await).filter(|response| response.code() == 0) });
    again.await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn paused_server_delays_only_what_needs_it() {
    let server = PostgresServer::start();
    // Longer than the readiness check waits: that must still name the right part.
    let desk = Gateway::with(&format!("{}timeout = \"2500ms\"\n", directory(&server.database("desk")))).await;
    let xiaoming = desk.sign_in("u1001").await;
    server.pause();
    let sign_ins = futures::future::join_all((0..5).map(|_| try_sign_in(&desk)));
    let requests = async {
        for _ in 0..20 {
            let started = Instant::now();
            xiaoming.get("/api/desk/tickets").await.expect_status(200);
            assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
        }
    };
    let (refused, (), ()) = tokio::join!(sign_ins, requests, expect_directory_named(&desk));
    assert!(refused.iter().all(|response| response.code() == 1503));
    server.resume();
    eventually("a sign-in", || async { Some(try_sign_in(&desk).await).filter(|response| response.code() == 0) }).await;
}

#[tokio::test]
async fn server_that_is_read_only_or_has_no_free_connection_ends_no_session_and_is_used_again() {
    let server = PostgresServer::start_with(&["max_connections=12"]);
    let url = server.database("desk");
    let desk = Gateway::with(&directory(&url)).await;
    let xiaoming = desk.sign_in("u1001").await;
    let expect_outage = async || {
        expect_directory_named(&desk).await;
        let started = Instant::now();
        assert_eq!(try_sign_in(&desk).await.code(), 1503);
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
        assert_eq!(xiaoming.post("/api/auth/logout").await.code(), 1503);
        xiaoming.get("/api/auth/me").await.expect_code(0);
        xiaoming.get("/api/desk/tickets").await.expect_status(200);
    };
    let expect_recovery = async || {
        until_ready_is(&desk, 200).await;
        eventually("a sign-in", || async { (try_sign_in(&desk).await.code() == 0).then_some(()) }).await;
        assert_eq!(desk.metric("deskgate_directory_up", &[]).await, 1.0);
    };

    psql_in(&url, "ALTER SYSTEM SET default_transaction_read_only = on");
    psql_in(&url, "SELECT pg_reload_conf()");
    expect_outage().await;
    psql_in(&url, "ALTER SYSTEM RESET default_transaction_read_only");
    psql_in(&url, "SELECT pg_reload_conf()");
    expect_recovery().await;

    let others = format!("{url}?application_name=others");
    let mut occupied = vec![sqlx::PgConnection::connect(&others).await.expect("a connection")];
    sqlx::raw_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name <> 'others' AND backend_type = 'client backend'")
        .execute(&mut occupied[0])
        .await
        .expect("the gateway's connections are closed");
    while let Ok(another) = sqlx::PgConnection::connect(&others).await {
        occupied.push(another);
    }
    expect_outage().await;
    drop(occupied);
    expect_recovery().await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn gateways_on_one_database_share_the_directory() {
    let url = postgres::empty_database();
    let settings = directory(&url);
    let (first, second) = tokio::join!(Gateway::with(&settings), Gateway::with(&settings));
    first.command(&["role", "grant", "n6001", "auditor"]).await.expect_success();
    let roles = second.sign_in("n6001").await.get("/api/auth/me").await.expect_code(0).data()["roles"].clone();
    assert_eq!(roles, json!(["auditor"]));
}

#[tokio::test]
async fn unreachable_server_is_named_without_its_password() {
    let port = crate::servers::free_port();
    let folder = tempfile::tempdir().expect("a folder");
    let file = crate::servers::write(folder.path(), "password", "hunter2\n");
    for (case, settings) in [
        ("in the URL", directory(&format!("postgres://desk:hunter2@127.0.0.1:{port}/desk"))),
        (
            "in a file",
            format!(
                "{}password_file = \"{}\"\n",
                directory(&format!("postgres://desk@127.0.0.1:{port}/desk")),
                file.display()
            ),
        ),
    ] {
        let failure = Gateway::setup().toml(&settings).try_start().await.err().expect("no server");
        let place = format!("postgres://127.0.0.1:{port}/desk");
        assert!(failure.stderr.contains(&place) && !failure.stderr.contains("hunter2"), "{case}: {}", failure.stderr);
        let check = Gateway::setup().toml(&settings).write_files().await.command(&["check"]).await;
        assert!(!check.output_text().contains("hunter2"), "{case}");
    }
}

#[tokio::test]
async fn start_says_what_the_server_would_lose() {
    let server = PostgresServer::start_with(&["synchronous_commit=off", "fsync=off"]);
    let desk = Gateway::with(&directory(&server.database("desk"))).await;
    for part in ["synchronous_commit = off", "fsync = off", "sessions belong to this gateway alone"] {
        desk.wait_for_log(&["WARN", part]).await;
    }
    assert!(!desk.logs().contains("full_page_writes"), "{}", desk.logs());
    let safe = PostgresServer::start();
    let desk = Gateway::with(&directory(&safe.database("desk"))).await;
    assert!(!desk.logs().contains("the directory's PostgreSQL server"), "{}", desk.logs());
}

#[tokio::test]
async fn check_warns_about_servers_that_need_not_prove_their_name() {
    for (mode, warned) in [("verify-full", false), ("verify-ca", true), ("require", true), ("disable", true)] {
        let settings = directory(&format!("postgres://desk@db.example.com/desk?sslmode={mode}"));
        let output = Gateway::setup().toml(&settings).write_files().await.command(&["check"]).await.output_text();
        assert_eq!(output.contains(&format!("with sslmode={mode}")), warned, "{mode}: {output}");
    }
}

#[tokio::test]
async fn employees_of_the_help_desk_sign_in_and_are_changed_there() {
    let url = postgres::empty_database();
    psql_in(
        &url,
        "CREATE TABLE staff (id TEXT, name TEXT, role TEXT);
         INSERT INTO staff VALUES ('u1001', 'Wang', 'user'), ('m5001', 'Zhou', 'admin');
         CREATE SCHEMA deskgate;
         CREATE VIEW deskgate.desk_employees AS SELECT 'wwdemo' AS corp_id, id AS employee_id, name, '' AS department,
             '' AS avatar, false AS disabled FROM staff;
         CREATE VIEW deskgate.desk_user_roles AS SELECT 'wwdemo' AS corp_id, id AS employee_id, role FROM staff;
         CREATE VIEW deskgate.desk_agents AS SELECT 'wwdemo' AS corp_id, id AS employee_id, role, false AS otp_required
             FROM staff WHERE role = 'admin'",
    );
    wait_for_otp_step_with_time_left().await;
    let desk = Gateway::with(&format!("{}employees = \"views\"\n", directory(&url))).await;
    let me = desk.sign_in_by_qrcode("u1001").await.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["name"], &me["roles"]), (&json!("Wang"), &json!(["user"])), "the desk's, not the platform's");
    let stranger = desk.phone("s3001").oauth2(&desk.client_url("h5")).await.location();
    assert!(fragment_parameter(&stranger, "token").is_none(), "{stranger}");

    let command = desk.command(&["role", "grant", "u1001", "agent"]).await;
    assert!(!command.status.success() && command.output_text().contains("help desk"), "{}", command.output_text());
    let admin = desk.sign_in("m5001").await;
    OtpDevice::step_up(&admin).await;
    let (headers, grant) =
        ([("Content-Type", "application/json")], json!({ "employee_id": "u1001", "role": "agent" }).to_string());
    let refused = admin.send("PUT", "/api/admin/roles/user-roles", &headers, grant.as_bytes()).await;
    assert_eq!(refused.code(), 1003);
    assert!(refused.text().contains("managed in the help desk"), "{}", refused.text());
    assert_eq!(psql_in(&url, "SELECT string_agg(role, ',' ORDER BY id) FROM staff"), "admin,user");
}

#[tokio::test]
async fn backup_leaves_the_directory_to_the_server() {
    let desk = Gateway::with(&directory(&postgres::empty_database())).await;
    let target = desk.temporary_folder().join("copy");
    desk.command(&["backup", target.to_str().expect("a path")]).await.expect_success();
    assert!(target.join("state.db").exists() && !target.join("directory.db").exists());
}

async fn try_sign_in(desk: &Gateway) -> Response {
    desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await
}

/// `/api/ready` and the metrics name the directory, and only the directory.
async fn expect_directory_named(desk: &Gateway) {
    let report = until_ready_is(desk, 503).await.data();
    assert_eq!((&report["directory"], &report["store"]), (&json!("unavailable"), &json!("ok")), "{report}");
    for (name, up) in [("deskgate_directory_up", 0.0), ("deskgate_store_up", 1.0)] {
        assert_eq!(desk.metric(name, &[]).await, up, "{name}");
    }
}

async fn until_ready_is(desk: &Gateway, status: u16) -> Response {
    eventually("the readiness", || async {
        Some(desk.anonymous().get("/api/ready").await).filter(|response| response.status == status)
    })
    .await
}
