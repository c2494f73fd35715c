//! What was answered is kept: SIGKILL at any moment loses no logout, role switch or confirmed ticket.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::*;

/// How often the gateway is killed; `DESKGATE_KILLS=100` for the long run.
fn kills() -> usize {
    std::env::var("DESKGATE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// What the gateway has answered, and so has promised.
#[derive(Default)]
struct Promised {
    logged_out: Mutex<Vec<String>>,
    switched: Mutex<Vec<String>>,
    confirmed: Mutex<Vec<String>>,
    responses: AtomicUsize,
}

impl Promised {
    fn take(list: &Mutex<Vec<String>>) -> Vec<String> {
        std::mem::take(&mut *list.lock().unwrap())
    }

    fn note(&self, list: &Mutex<Vec<String>>, what: String) {
        list.lock().unwrap().push(what);
        self.responses.fetch_add(1, Ordering::SeqCst);
    }
}

/// One writer's work until the gateway dies: `Err` when it has.
async fn write_on(anonymous: Client, promised: Arc<Promised>) -> Result<(), String> {
    loop {
        log_out(&anonymous, &promised).await?;
        switch(&anonymous, &promised).await?;
        confirm(&anonymous, &promised).await?;
    }
}

async fn sign_in(anonymous: &Client, employee: &str) -> Result<Client, String> {
    let body = json!({ "employee_id": employee }).to_string();
    let json = [("Content-Type", "application/json")];
    let response = anonymous.try_send("POST", "/api/dev/login", &json, body.as_bytes()).await?;
    let data = response.expect_code(0).data();
    Ok(anonymous.with_token(data["token"].as_str().expect("a token")))
}

async fn log_out(anonymous: &Client, promised: &Promised) -> Result<(), String> {
    let xiaoming = sign_in(anonymous, "u1001").await?;
    xiaoming.try_send("POST", "/api/auth/logout", &[], b"").await?.expect_code(0);
    promised.note(&promised.logged_out, xiaoming.token().to_owned());
    Ok(())
}

async fn switch(anonymous: &Client, promised: &Promised) -> Result<(), String> {
    let alice = sign_in(anonymous, "a2001").await?;
    let json = [("Content-Type", "application/json")];
    alice.try_send("POST", "/api/auth/switch-role", &json, br#"{"role":"user"}"#).await?.expect_code(0);
    promised.note(&promised.switched, alice.token().to_owned());
    Ok(())
}

async fn confirm(anonymous: &Client, promised: &Promised) -> Result<(), String> {
    let data = anonymous.try_send("GET", "/api/auth/qrcode", &[], b"").await?.expect_code(0).data();
    let url = data["qrcode_url"].as_str().expect("a URL").split('#').next().unwrap_or_default().to_owned();
    let callback = anonymous.try_send("GET", &format!("{url}&as=u1001"), &[], b"").await?.location();
    let response = anonymous.try_send("GET", &callback, &[], b"").await?;
    assert!(matches!(response.status, 200 | 302 | 303), "{}", response.describe());
    assert!(!response.header("location").unwrap_or_default().contains("error"), "{}", response.describe());
    promised.note(&promised.confirmed, data["ticket"].as_str().expect("a ticket").to_owned());
    Ok(())
}

/// Fails unless everything that was answered still holds.
async fn expect_kept(desk: &Gateway, round: usize, promised: &Promised) {
    for token in Promised::take(&promised.logged_out) {
        let response = desk.with_token(&token).get("/api/auth/me").await;
        assert_eq!(response.status, 401, "round {round}: a logout was lost: {}", response.describe());
    }
    for token in Promised::take(&promised.switched) {
        let response = desk.with_token(&token).get("/api/auth/me").await;
        assert_eq!(response.status, 200, "round {round}: a session was lost: {}", response.describe());
        assert_eq!(response.data()["current_role"], "user", "round {round}: a role switch was lost");
    }
    for ticket in Promised::take(&promised.confirmed) {
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
        let promised = Arc::new(Promised::default());
        let writers: Vec<_> = (0..4).map(|_| tokio::spawn(write_on(desk.anonymous(), promised.clone()))).collect();
        // Another number of writes each time, so that another one is in the middle.
        let enough = 1 + (round * 7) % 19;
        eventually("some writes", || async { (promised.responses.load(Ordering::SeqCst) >= enough).then_some(()) })
            .await;
        desk.sigkill();
        for writer in writers {
            let ended = within(TEST_TIMEOUT, "the end of a writer", writer).await;
            assert!(ended.expect("a writer that did not fail").is_err(), "writers end with the gateway");
        }
        responses += promised.responses.load(Ordering::SeqCst);
        desk.restart().await;
        expect_kept(&desk, round, &promised).await;
    }
    assert!(responses >= kills(), "every round had something to lose");
}

#[tokio::test]
async fn sigkill_during_the_first_start_leaves_a_usable_store() {
    // The files are there as soon as it is ready; the kill comes right behind.
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
    assert!(!refused.stderr.is_empty(), "it says why");
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
        // The log beside a database could heal it, so that is damaged as well.
        let is_log = path.extension().is_some_and(|end| end.to_string_lossy().ends_with("-wal"));
        if is_log || bytes.starts_with(b"SQLite format 3\0") {
            bytes.fill(0xA5);
            std::fs::write(&path, bytes).expect("the damage");
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no database under the data directory");
    let refused = Gateway::setup().sharing_data_dir(&desk).try_start().await.err().expect("a refusal");
    assert!(!refused.status.success());
    assert!(!refused.stderr.contains("panicked"), "a clear error: {}", refused.stderr);
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
