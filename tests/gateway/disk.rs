//! Disks that fill, fail, lag or vanish: nothing is acknowledged that is not on disk, and the gateway recovers by itself.

use std::path::Path;
use std::time::{Duration, Instant};

use deskgate::directory::audit::AuditLog;
use deskgate::directory::{Directory, LoginQuery};

use crate::support::*;

/// Ways in which a write fails.
const WRITE_FAULTS: [&str; 3] = ["write_error=ENOSPC", "write_error=EIO", "sync_error=EIO"];

async fn try_sign_in(desk: &Gateway) -> Response {
    desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await
}

/// Waits until `/api/ready` answers with this status.
async fn until_ready_is(desk: &Gateway, status: u16) -> Response {
    eventually("the readiness", || async {
        Some(desk.anonymous().get("/api/ready").await).filter(|response| response.status == status)
    })
    .await
}

async fn successful_logins(desk: &Gateway) -> usize {
    let logins = desk
        .directory()
        .await
        .logins(&LoginQuery { employee_id: Some("u1001".to_owned()), ..LoginQuery::default() }, 1000)
        .await
        .expect("the login log");
    logins.iter().filter(|login| login.result == "success").count()
}

async fn logouts(desk: &Gateway) -> usize {
    let entries = desk.directory().await.audit_entries(Some("u1001"), 1000).await.expect("the audit log");
    entries.iter().filter(|entry| entry.event == "logout" && entry.refused.is_empty()).count()
}

#[tokio::test]
async fn failed_directory_write_locks_nothing_and_loses_no_record() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    for fault in WRITE_FAULTS {
        let mut desk = Gateway::setup().faulty_disk().start().await;
        let mut signed_in = vec![desk.sign_in("u1001").await];

        desk.disk().set(&["file=directory.db", fault]);
        for _ in 0..5 {
            assert_eq!(try_sign_in(&desk).await.code(), 1503, "{fault}");
        }
        let logout = signed_in[0].post("/api/auth/logout").await;
        assert_eq!(logout.code(), 1503, "{fault}: a logout without a record");
        signed_in[0].get("/api/auth/me").await.expect_code(0);

        desk.disk().clear();
        for _ in 0..10 {
            signed_in.push(desk.sign_in("u1001").await);
        }
        for client in &signed_in[..5] {
            client.post("/api/auth/logout").await.expect_code(0);
        }
        let disabled = desk.command(&["employee", "disable", "u1001"]).await;
        assert!(disabled.status.success(), "{fault}: {disabled:?}");

        desk.sigkill();
        desk.restart().await;
        assert_eq!(successful_logins(&desk).await, signed_in.len(), "{fault}: sign-ins and login-log records");
        assert_eq!(logouts(&desk).await, 5, "{fault}: logouts and audit records");
    }
}

#[tokio::test]
async fn failed_store_write_is_not_acknowledged() {
    for fault in WRITE_FAULTS {
        let mut desk = Gateway::setup().faulty_disk().start().await;
        let (before, after) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
        desk.disk().set(&["file=state.db", fault]);
        assert_eq!(try_sign_in(&desk).await.code(), 1503, "{fault}");
        assert_eq!(before.post("/api/auth/logout").await.code(), 1503, "{fault}");
        desk.disk().clear();
        after.post("/api/auth/logout").await.expect_code(0);
        desk.sigkill();
        desk.restart().await;
        desk.with_token(after.token()).get("/api/auth/me").await.expect_status(401);
    }
}

#[tokio::test]
async fn readiness_knows_whether_writes_work() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    for (file, part) in [("directory.db", "directory"), ("state.db", "store")] {
        let desk = Gateway::setup().faulty_disk().start().await;
        until_ready_is(&desk, 200).await;
        desk.disk().set(&[&format!("file={file}"), "write_error=ENOSPC"]);
        let report = until_ready_is(&desk, 503).await.data();
        assert_eq!(report[part], "unavailable", "{report}");
        desk.disk().clear();
        until_ready_is(&desk, 200).await;
    }
}

#[tokio::test]
async fn sign_ins_at_the_same_time_share_a_sync() {
    if skipped_on_postgres("the files of SQLite; as many sign-ins at once are more than directory.pool allows") {
        return;
    }
    const SIGN_INS: usize = 150;
    let desk = Gateway::setup().faulty_disk().start().await;
    desk.disk().set(&["file=.db", "sync_ms=100"]);
    let started = Instant::now();
    let sign_ins = (0..SIGN_INS).map(|_| try_sign_in(&desk));
    for response in futures::future::join_all(sign_ins).await {
        response.expect_code(0);
    }
    // One after the other, the syncs of the directory alone would take 150 × 100 ms.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(successful_logins(&desk).await, SIGN_INS);
}

#[tokio::test]
async fn deleted_data_directory_is_noticed() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    until_ready_is(&desk, 200).await;
    std::fs::remove_dir_all(desk.data_dir()).expect("a data directory");
    let report = until_ready_is(&desk, 503).await.data();
    assert_eq!((&report["store"], &report["directory"]), (&json!("unavailable"), &json!("unavailable")));
    assert_eq!(try_sign_in(&desk).await.code(), 1503);
    assert_eq!(xiaoming.post("/api/auth/logout").await.code(), 1503);
    // A known token needs no disk.
    xiaoming.get("/api/desk/tickets").await.expect_status(200);
}

#[tokio::test]
async fn replaced_database_file_is_not_written() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    let desk = Gateway::start().await;
    let file = desk.data_dir().join("directory.db");
    let copy = desk.data_dir().join("copy.db");
    std::fs::copy(&file, &copy).expect("a copy");
    std::fs::rename(&copy, &file).expect("another file");
    assert_eq!(try_sign_in(&desk).await.code(), 1503);
    until_ready_is(&desk, 503).await;
    desk.wait_for_log(&["was deleted or replaced"]).await;
}

/// Copies only the database files and the keys to the data directory of a gateway that does not run.
fn copy_databases(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("keys")).expect("a folder");
    for name in ["state.db", "directory.db"] {
        std::fs::copy(from.join(name), to.join(name)).expect("a copy");
    }
    for key in std::fs::read_dir(from.join("keys")).expect("the keys").flatten() {
        std::fs::copy(key.path(), to.join("keys").join(key.file_name())).expect("a copy");
    }
}

#[tokio::test]
async fn clean_stop_leaves_complete_database_files() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    let mut desk = Gateway::start().await;
    let (live, ended) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    ended.post("/api/auth/logout").await.expect_code(0);
    assert!(desk.terminate().await.success());

    let data = desk.data_dir();
    let original = data.with_extension("original");
    std::fs::rename(&data, &original).expect("another name");
    copy_databases(&original, &data);
    desk.restart().await;
    desk.with_token(live.token()).get("/api/auth/me").await.expect_code(0);
    desk.with_token(ended.token()).get("/api/auth/me").await.expect_status(401);
}

#[tokio::test]
async fn command_without_a_gateway_leaves_complete_database_files() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    assert!(desk.command(&["employee", "disable", "u1001"]).await.status.success());
    let wal = desk.data_dir().join("directory.db-wal");
    assert_eq!(std::fs::metadata(wal).map_or(0, |log| log.len()), 0);
}

#[tokio::test]
async fn backup_of_a_running_gateway_is_a_data_directory() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    let mut desk = Gateway::start().await;
    let (live, ended) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    ended.post("/api/auth/logout").await.expect_code(0);
    let target = desk.temporary_folder().join("backup");
    let target_text = target.display().to_string();
    let made = desk.command(&["backup", &target_text]).await;
    assert!(made.status.success(), "{made:?}");
    assert!(String::from_utf8_lossy(&made.stderr).contains("copied state.db ("), "{made:?}");

    let again = desk.command(&["backup", &target_text]).await;
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"), "{again:?}");

    desk.terminate().await;
    std::fs::remove_dir_all(desk.data_dir()).expect("a data directory");
    std::fs::rename(&target, desk.data_dir()).expect("the backup");
    desk.restart().await;
    desk.with_token(live.token()).get("/api/auth/me").await.expect_code(0);
    desk.with_token(ended.token()).get("/api/auth/me").await.expect_status(401);
    assert_eq!(successful_logins(&desk).await, 2);
}

#[tokio::test]
async fn backup_is_readable_by_its_owner_only() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let desk = Gateway::start().await;
    let target = desk.temporary_folder().join("backup");
    assert!(desk.command(&["backup", &target.display().to_string()]).await.status.success());
    let mode = |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(&target), 0o700);
    for name in ["state.db", "directory.db"] {
        assert_eq!(mode(&target.join(name)), 0o600, "{name}");
    }
    for key in std::fs::read_dir(target.join("keys")).expect("the keys").flatten() {
        assert_eq!(mode(&key.path()), 0o600, "{}", key.path().display());
    }
}

/// Stops the gateway, damages a file and expects that the next start refuses it.
async fn expect_refused_start(file: &str, damage: impl Fn(&mut Vec<u8>)) {
    let mut desk = Gateway::start().await;
    desk.sign_in("u1001").await.post("/api/auth/logout").await.expect_code(0);
    desk.sigkill();
    let path = desk.data_dir().join(file);
    let mut bytes = std::fs::read(&path).expect("a file");
    damage(&mut bytes);
    std::fs::write(&path, &bytes).expect("a damaged file");
    let started = desk.command(&["serve"]).await;
    let text = String::from_utf8_lossy(&started.stderr);
    assert_eq!(started.status.code(), Some(1), "{file}: {text}");
    assert!(text.contains(file) && text.contains("damaged"), "{file}: {text}");
    assert_eq!(std::fs::read(&path).expect("a file"), bytes, "{file} was changed");
}

#[tokio::test]
async fn damaged_directory_refuses_to_start() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    let overwrite = |bytes: &mut Vec<u8>| bytes.iter_mut().skip(4096).for_each(|byte| *byte = 0xa5);
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    let path = desk.data_dir().join("directory.db");
    let mut bytes = std::fs::read(&path).expect("a file");
    overwrite(&mut bytes);
    std::fs::write(&path, &bytes).expect("a damaged file");
    let started = desk.command(&["serve"]).await;
    let text = String::from_utf8_lossy(&started.stderr);
    assert_eq!(started.status.code(), Some(1), "{text}");
    assert!(text.contains("directory.db") && text.contains("damaged"), "{text}");
}

#[tokio::test]
async fn write_ahead_log_that_cannot_be_read_refuses_to_start() {
    if skipped_on_postgres("the files of SQLite") {
        return;
    }
    for file in ["state.db-wal", "directory.db-wal"] {
        expect_refused_start(file, |bytes| bytes[..32].fill(0xa5)).await;
        // The second frame: the changes after it were acknowledged.
        expect_refused_start(file, |bytes| bytes[32 + 24 + 4096 + 100] ^= 1).await;
    }
}
