//! `[audit]`: audit records in a stream of their own.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use crate::support::*;

/// The records of a file, once it has one that contains `part`.
async fn records_with(file: &PathBuf, part: &str) -> Vec<Value> {
    eventually(&format!("a record with {part} in {}", file.display()), || async {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let is_there = text.lines().any(|line| line.contains(part));
        is_there.then(|| text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
    })
    .await
}

#[tokio::test]
async fn audit_file_has_the_records_and_the_log_has_not() {
    let mut desk = Gateway::with("[audit]\noutput = \"file\"\n[log]\nlevel = \"error\"").await;
    let file = desk.data_dir().join("audit.log");
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    let records = records_with(&file, "\"event\":\"logout\"").await;
    let logout = records.iter().find(|record| record["event"] == "logout").expect("a logout");
    assert_eq!(logout["employee.id"], "u1001", "{logout}");
    assert!(records.iter().all(|record| record["target"] == "deskgate::audit"), "{records:?}");
    let text = std::fs::read_to_string(&file).expect("text");
    assert!(!text.contains(xiaoming.token()), "{text}");
    assert!(!desk.logs().contains("deskgate::audit"), "{}", desk.logs());

    desk.terminate().await;
    let output = desk.command(&["employee", "disable", "u1001"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    records_with(&file, "employee disable").await;
    assert!(!String::from_utf8_lossy(&output.stderr).contains("deskgate::audit"), "a command without a gateway");
}

#[tokio::test]
async fn sighup_opens_the_audit_file_again() {
    let desk = Gateway::with("[audit]\noutput = \"file\"\nrotate_bytes = 0").await;
    let (file, moved) = (desk.data_dir().join("audit.log"), desk.data_dir().join("audit.log.moved"));
    desk.sign_in("u1001").await;
    records_with(&file, "u1001").await;
    std::fs::rename(&file, &moved).expect("renamed");
    desk.signal("HUP");
    desk.wait_for_log(&["\"reloaded\""]).await;
    desk.sign_in("a2001").await;
    records_with(&file, "a2001").await;
    let old = std::fs::read_to_string(&moved).expect("text");
    assert!(!old.contains("a2001"), "{old}");
}

#[tokio::test]
async fn syslog_gets_the_records_and_what_it_misses_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let daemon = UnixDatagram::bind(&path).expect("a socket");
    let settings = format!("[audit]\noutput = \"syslog\"\nsyslog_socket = \"{}\"", path.display());
    let desk = Gateway::with(&settings).await;
    desk.sign_in("u1001").await;
    let record = tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; 4096];
        loop {
            let length = daemon.recv(&mut buffer).expect("a record");
            let text = String::from_utf8(buffer[..length].to_vec()).expect("text");
            if text.contains("u1001") {
                return text;
            }
        }
    })
    .await
    .expect("a record");
    let (tag, json) = record.split_once(": ").expect("a tag");
    assert_eq!(tag, format!("<86>deskgate[{}]", desk.pid()));
    let record: Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(record["employee.id"], "u1001", "{record}");

    // The daemon is gone.
    std::fs::remove_file(&path).expect("removed");
    desk.sign_in("a2001").await;
    desk.wait_for_log(&["ERROR", "audit lines cannot be written"]).await;
    eventually("lost lines in the metric", || async {
        (desk.metric("deskgate_audit_lines_dropped_total", &[]).await > 0.0).then_some(())
    })
    .await;
    desk.wait_for_log(&["ERROR", "audit lines were dropped"]).await;
}

#[tokio::test]
async fn gateway_does_not_start_without_its_audit_stream() {
    for (settings, fault) in [
        ("[audit]\noutput = \"file\"\nfile = \"/nonexistent/audit.log\"", "audit.file: /nonexistent/audit.log: "),
        (
            "[audit]\noutput = \"syslog\"\nsyslog_socket = \"/nonexistent/log\"",
            "audit.syslog_socket: /nonexistent/log: ",
        ),
        ("[audit]\noutput = \"printer\"", "audit.output"),
        ("[audit]\nrotate_bytes = 5", "audit.rotate_bytes"),
        ("[audit]\nrotate_keep = 0", "audit.rotate_keep"),
    ] {
        let failure = Gateway::setup().toml(settings).try_start().await.err().expect("refused");
        assert!(failure.stderr.contains(fault), "{settings}: {}", failure.stderr);
    }
}
