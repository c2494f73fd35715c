//! Durability: SIGKILL at any moment loses no acknowledged logout, role switch or confirmed ticket.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::*;

/// The number of kills; `DESKGATE_KILLS=100` for a long run.
fn kills() -> usize {
    std::env::var("DESKGATE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// The writes that the gateway has acknowledged.
#[derive(Default)]
struct AcknowledgedWrites {
    logged_out: Mutex<Vec<String>>,
    switched: Mutex<Vec<String>>,
    confirmed: Mutex<Vec<String>>,
    responses: AtomicUsize,
}

impl AcknowledgedWrites {
    fn take(list: &Mutex<Vec<String>>) -> Vec<String> {
        std::mem::take(&mut *list.lock().unwrap())
    }

    fn record(&self, list: &Mutex<Vec<String>>, value: String) {
        list.lock().unwrap().push(value);
        self.responses.fetch_add(1, Ordering::SeqCst);
    }
}

/// Writes until the gateway is killed, then returns `Err`.
async fn write_until_killed(anonymous: Client, acknowledged: Arc<AcknowledgedWrites>) -> Result<(), String> {
    loop {
        log_out(&anonymous, &acknowledged).await?;
        switch_role(&anonymous, &acknowledged).await?;
        confirm(&anonymous, &acknowledged).await?;
    }
}

async fn sign_in(anonymous: &Client, employee: &str) -> Result<Client, String> {
    let body = json!({ "employee_id": employee }).to_string();
    let json = [("Content-Type", "application/json")];
    let response = anonymous.try_send("POST", "/api/dev/login", &json, body.as_bytes()).await?;
    let data = response.expect_code(0).data();
    Ok(anonymous.with_token(data["token"].as_str().expect("a token")))
}

async fn log_out(anonymous: &Client, acknowledged: &AcknowledgedWrites) -> Result<(), String> {
    let xiaoming = sign_in(anonymous, "u1001").await?;
    xiaoming.try_send("POST", "/api/auth/logout", &[], b"").await?.expect_code(0);
    acknowledged.record(&acknowledged.logged_out, xiaoming.token().to_owned());
    Ok(())
}

async fn switch_role(anonymous: &Client, acknowledged: &AcknowledgedWrites) -> Result<(), String> {
    let alice = sign_in(anonymous, "a2001").await?;
    let json = [("Content-Type", "application/json")];
    alice.try_send("POST", "/api/auth/switch-role", &json, br#"{"role":"user"}"#).await?.expect_code(0);
    acknowledged.record(&acknowledged.switched, alice.token().to_owned());
    Ok(())
}

async fn confirm(anonymous: &Client, acknowledged: &AcknowledgedWrites) -> Result<(), String> {
    let data = anonymous.try_send("GET", "/api/auth/qrcode", &[], b"").await?.expect_code(0).data();
    let url = data["qrcode_url"].as_str().expect("a URL").split('#').next().unwrap_or_default().to_owned();
    let callback = anonymous.try_send("GET", &format!("{url}&as=u1001"), &[], b"").await?.location();
    let response = anonymous.try_send("GET", &callback, &[], b"").await?;
    assert!(matches!(response.status, 200 | 302 | 303), "{}", response.describe());
    assert!(!response.header("location").unwrap_or_default().contains("error"), "{}", response.describe());
    acknowledged.record(&acknowledged.confirmed, data["ticket"].as_str().expect("a ticket").to_owned());
    Ok(())
}

/// Fails unless every acknowledged write survived.
async fn expect_durable(desk: &Gateway, round: usize, acknowledged: &AcknowledgedWrites) {
    for token in AcknowledgedWrites::take(&acknowledged.logged_out) {
        let response = desk.with_token(&token).get("/api/auth/me").await;
        assert_eq!(response.status, 401, "round {round}: a logout was lost: {}", response.describe());
    }
    for token in AcknowledgedWrites::take(&acknowledged.switched) {
        let response = desk.with_token(&token).get("/api/auth/me").await;
        assert_eq!(response.status, 200, "round {round}: a session was lost: {}", response.describe());
        assert_eq!(response.data()["current_role"], "user", "round {round}: a role switch was lost");
    }
    for ticket in AcknowledgedWrites::take(&acknowledged.confirmed) {
        let poll = format!("/api/auth/scan/status?ticket={ticket}");
        let state = desk.anonymous().get(&poll).await.expect_code(0).data();
        assert_eq!(state["status"], "confirmed", "round {round}: a confirmed ticket was lost: {state}");
        let token = state["token"].as_str().expect("a token");
        desk.with_token(token).get("/api/auth/me").await.expect_code(0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkill_during_writes_loses_no_acknowledged_write() {
    let mut desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let mut responses = 0;
    for round in 0..kills() {
        let acknowledged = Arc::new(AcknowledgedWrites::default());
        let writers: Vec<_> =
            (0..4).map(|_| tokio::spawn(write_until_killed(desk.anonymous(), acknowledged.clone()))).collect();
        // A different number of writes each round, so that the kill interrupts a different one.
        let minimum = 1 + (round * 7) % 19;
        eventually("acknowledged writes", || async {
            (acknowledged.responses.load(Ordering::SeqCst) >= minimum).then_some(())
        })
        .await;
        desk.sigkill();
        for writer in writers {
            let ended = within(TEST_TIMEOUT, "the end of a writer", writer).await;
            assert!(ended.expect("a writer that did not panic").is_err(), "a writer goes on after the kill");
        }
        responses += acknowledged.responses.load(Ordering::SeqCst);
        desk.restart().await;
        expect_durable(&desk, round, &acknowledged).await;
    }
    assert!(responses >= kills(), "a round had no acknowledged write");
}

#[tokio::test]
async fn sigkill_during_the_first_start_leaves_a_usable_store() {
    // The store files exist once the gateway is ready; the kill follows at once.
    let mut desk = Gateway::start().await;
    for _ in 0..3 {
        desk.sigkill();
        desk.restart().await;
    }
    desk.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn second_gateway_on_the_same_data_directory_is_refused() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let refused = Gateway::setup().sharing_data_dir(&desk).try_start().await.err().expect("a refusal");
    assert!(!refused.status.success());
    assert!(!refused.stderr.is_empty(), "no error on stderr");
    xiaoming.get("/api/auth/me").await.expect_code(0);
    xiaoming.post("/api/auth/logout").await.expect_code(0);

    desk.sigkill();
    let second = Gateway::setup().sharing_data_dir(&desk).start().await;
    second.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn damaged_store_refuses_to_start() {
    let mut desk = Gateway::start().await;
    desk.sign_in("u1001").await;
    desk.terminate().await;
    let mut damaged = 0;
    for entry in std::fs::read_dir(desk.data_dir()).expect("the data directory") {
        let path = entry.expect("an entry").path();
        let Ok(mut bytes) = std::fs::read(&path) else { continue };
        // SQLite could recover from the write-ahead log, so the test damages that as well.
        let is_log = path.extension().is_some_and(|end| end.to_string_lossy().ends_with("-wal"));
        if is_log || bytes.starts_with(b"SQLite format 3\0") {
            bytes.fill(0xA5);
            std::fs::write(&path, bytes).expect("a damaged file");
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no database under the data directory");
    let refused = Gateway::setup().sharing_data_dir(&desk).try_start().await.err().expect("a refusal");
    assert!(!refused.status.success());
    assert!(!refused.stderr.contains("panicked"), "a panic instead of an error: {}", refused.stderr);
}

#[tokio::test]
async fn data_directory_permissions_are_tightened() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a data directory");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let desk = Gateway::with(&format!("[server]\ndata_dir = \"{}\"", data.display())).await;
    let mode = std::fs::metadata(&data).expect("the data directory").permissions().mode();
    assert_eq!(mode & 0o7777, 0o700, "{mode:o}");
    desk.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0);
}
