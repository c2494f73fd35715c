//! Logs, metrics and files contain no secrets, and clients cannot forge log lines (attacks 91 and 92 of
//! `docs/threats.md`).

use crate::support::*;

/// Runs every sign-in flow and returns the secrets that the gateway issued.
async fn collect_secrets(desk: &Gateway) -> Vec<(String, String)> {
    let mut secrets: Vec<(String, String)> = Vec::new();
    let mut keep = |what: &str, value: &str| {
        // Short values would match by accident.
        if value.len() >= 16 {
            secrets.push((what.to_owned(), value.to_owned()));
        }
    };

    let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let (id, url) = (ticket["ticket"].as_str().expect("a ticket"), ticket["qrcode_url"].as_str().expect("a URL"));
    keep("ticket", id);
    let phone = desk.phone("u1001");
    let callback = phone.authorize(url).await;
    keep("code", &query_parameter(&callback, "code").expect("a code"));
    let page = phone.page(&phone.client().get(&callback).await.location()).await;
    let form = page.form("confirm");
    for (_, value) in &form.fields {
        keep("confirm field", value);
    }
    phone.submit(&page, &form).await;
    let state = desk.anonymous().get(&format!("/api/auth/scan/status?ticket={id}")).await.expect_code(0).data();
    let by_qrcode = desk.with_token(state["token"].as_str().expect("a token"));
    for (_, value) in phone.client().jar().pairs() {
        keep("phone's cookie", &value);
    }

    let phone = desk.phone("a2001");
    let authorize_url = phone.authorize_url(&desk.client_url("itagent")).await;
    for (_, value) in phone.client().jar().pairs() {
        keep("flow cookie", &value);
    }
    let callback = phone.authorize(&authorize_url).await;
    keep("code", &query_parameter(&callback, "code").expect("a code"));
    let location = phone.client().get(&callback).await.location();
    let by_oauth2 = desk.with_token(&fragment_parameter(&location, "token").expect("a token"));

    let partner = desk.phone("wwpartner/p7001");
    partner.oauth2(&desk.client_url("h5")).await;
    for (_, value) in partner.client().jar().pairs() {
        keep("proof cookie", &value);
    }
    partner.client().post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
    desk.command(&["employee", "link", "approve", "wwpartner/p7001", "u1001"]).await.expect_success();
    let bound = partner.client().post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await;
    let by_bind = desk.with_token(bound.expect_code(0).data()["token"].as_str().expect("a token"));

    for person in [desk.sign_in("m5001").await, by_qrcode, by_oauth2, by_bind] {
        let token = person.token();
        keep("token", token);
        keep("signature", token.rsplit('.').next().unwrap_or_default());
        keep("claims", token.split('.').nth(1).unwrap_or_default());
        let anonymous = desk.anonymous();
        person.get("/api/desk/x").await.expect_status(200);
        person.get("/public/x").await.expect_status(200);
        person.get("/api/auth/me").await.expect_code(0);
        person.post_json("/api/auth/verify", &json!({ "token": token })).await.expect_code(0);
        // Tokens in places that must not accept them.
        anonymous.get(&format!("/api/desk/x?token={token}")).await;
        anonymous.get(&format!("/nowhere/x?token={token}")).await;
        anonymous.get(&format!("/api/auth/scan/status?ticket={token}")).await;
        anonymous.get(&format!("/api/auth/oauth2/callback?code={token}&state=auth_login")).await;
        anonymous.post_json("/api/auth/verify", &json!({ "token": 1, "x": token })).await;
        anonymous.with_header("Authorization", &format!("Bearer {token}x")).get("/api/desk/x").await;
        anonymous.with_header("Authorization", &format!("Basic {token}")).get("/api/desk/x").await;
        person.websocket("/ws/employee").await.echo("hello").await;
        let by_query = format!("/ws/employee?a=1&token={token}&b=2");
        anonymous.handshake(&by_query).expect_accepted().await.echo("hello").await;
        desk.send_raw(format!("GET /api/desk/x?token={token} HTTP/1.1\r\nBad Header: {token}\r\n\r\n").as_bytes())
            .await;
        person.post("/api/auth/logout").await.expect_code(0);
        person.get("/api/desk/x").await.expect_invalid_token();
    }
    secrets
}

#[tokio::test]
async fn secrets_are_absent_from_logs_and_metrics() {
    let mut desk = Gateway::with("[log]\nlevel = \"debug\"").await;
    let secrets = collect_secrets(&desk).await;
    for kind in ["token", "ticket", "code", "confirm field", "phone's cookie", "flow cookie", "proof cookie"] {
        assert!(secrets.iter().any(|(what, _)| what == kind), "no {kind} was collected");
    }
    let metrics = desk.metrics().await;
    let listed = desk.command(&["session", "list", "--json"]).await;
    desk.terminate().await;
    let logs = desk.logs();
    assert!(logs.lines().count() > 50, "the logs are empty");

    for (what, secret) in &secrets {
        let line = logs.lines().find(|line| line.contains(secret.as_str()));
        assert_eq!(line, None, "a {what} is in the log");
        assert!(!metrics.contains(secret.as_str()), "a {what} is in the metrics");
        assert!(!String::from_utf8_lossy(&listed.stdout).contains(secret.as_str()), "a {what} is in a list");
    }
}

#[tokio::test]
async fn tokens_are_not_sent_upstream() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let token = xiaoming.token();
    xiaoming.get("/api/desk/x").await.expect_status(200);
    xiaoming.get("/public/x").await.expect_status(200);
    xiaoming.post_json("/api/desk/x", &json!({ "a": 1 })).await.expect_status(200);
    xiaoming.websocket("/ws/employee").await.echo("hello").await;
    xiaoming.handshake("/ws/employee").also_protocols(&["chat"]).expect_accepted().await.echo("hello").await;
    let by_query = format!("/ws/employee?a=1&token={token}&b=2");
    desk.anonymous().handshake(&by_query).expect_accepted().await.echo("hello").await;
    let both = xiaoming.handshake(&by_query).header("Authorization", &format!("Bearer {token}"));
    both.expect_accepted().await.echo("hello").await;

    let received = desk.upstream.all_bytes();
    let received = String::from_utf8_lossy(&received);
    let signature = token.rsplit('.').next().expect("a signature");
    for secret in [token, signature] {
        assert!(!received.contains(secret), "the upstream saw it:\n{received}");
    }
    assert_eq!(desk.upstream.requests().len(), 7, "not every request was forwarded");
}

#[tokio::test]
async fn store_keeps_only_token_hashes() {
    let mut desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let mut tokens = vec![desk.sign_in("u1001").await.token().to_owned()];
    tokens.push(desk.sign_in_by_oauth2("a2001", "h5").await.token().to_owned());
    let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    desk.phone("m5001").scan(ticket["qrcode_url"].as_str().expect("a URL")).await;
    let poll = format!("/api/auth/scan/status?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
    let state = desk.anonymous().get(&poll).await.expect_code(0).data();
    tokens.push(state["token"].as_str().expect("a token").to_owned());
    desk.terminate().await;

    let mut folders = vec![desk.data_dir()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a kind").is_dir() {
                folders.push(entry.path());
            } else if let Ok(bytes) = std::fs::read(entry.path()) {
                files += 1;
                let text = String::from_utf8_lossy(&bytes);
                for token in &tokens {
                    let signature = token.rsplit('.').next().expect("a signature");
                    assert!(!text.contains(signature), "a token is in {}", entry.path().display());
                }
            }
        }
    }
    assert!(files > 1, "the logs are empty");
}

#[cfg(unix)]
#[tokio::test]
async fn private_key_files_are_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Gateway::start().await;
    let keys = desk.data_dir().join("keys");
    let mut count = 0;
    for entry in std::fs::read_dir(&keys).expect("the keys") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("its mode").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", entry.path().display());
        count += 1;
    }
    assert!(count > 0, "no keys in {}", keys.display());
}

#[cfg(unix)]
#[tokio::test]
async fn data_files_are_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    // The folder is world-readable: only the modes of the files protect them.
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    std::fs::set_permissions(elsewhere.path(), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let database = elsewhere.path().join("dir.db");
    let desk = Gateway::with(&format!("[directory]\nurl = \"sqlite:{}\"", database.display())).await;
    desk.sign_in("u1001").await.get("/api/auth/me").await.expect_code(0);
    let mut seen = Vec::new();
    for folder in [desk.data_dir(), elsewhere.path().to_owned()] {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let mode = entry.metadata().expect("its mode").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", entry.path().display());
            seen.push(entry.file_name().into_string().expect("a name"));
        }
    }
    for name in ["dir.db", "dir.db-wal", "dir.db-shm", "state.db", "state.db-wal", "state.db-shm"] {
        assert!(seen.iter().any(|file| file == name), "{name} is not among {seen:?}");
    }
}

/// Hostile values for the log.
const HOSTILE: &[&str] = &[
    "\"}{\"level\":\"ERROR\",\"message\":\"forged\"}",
    "\\\"}\\n{\"message\":\"forged\"}",
    "%0d%0aforged",
    "\u{1b}[31mforged\u{1b}[0m",
    "forged\u{85}line\u{2028}line",
];

async fn send_hostile_requests(desk: &Gateway) {
    let xiaoming = desk.sign_in("u1001").await;
    for text in HOSTILE {
        xiaoming.with_header("User-Agent", text).get("/api/desk/x").await;
        desk.anonymous().with_header("User-Agent", text).get("/api/auth/me").await;
        desk.anonymous().with_header("X-Forwarded-For", text).get("/api/auth/me").await;
        desk.anonymous().with_header("X-Request-Id", text).get("/api/auth/me").await;
        desk.anonymous().with_header("User-Agent", text).get("/api/auth/qrcode").await;
        let path: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        desk.anonymous().get(&format!("/nowhere/{path}?{path}")).await;
        xiaoming.get(&format!("/api/desk/{path}")).await;
        let raw = format!("GET /nowhere/{text} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address());
        desk.send_raw(raw.as_bytes()).await;
        let named = format!("a\r\n{text}");
        desk.anonymous().post_json("/api/auth/bind", &json!({ "employee_id": named, "corp_id": named })).await;
        desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": named })).await;
        xiaoming.post_json("/api/auth/switch-role", &json!({ "role": named })).await;
    }
}

#[tokio::test]
async fn hostile_input_stays_within_one_json_log_line() {
    let mut desk = Gateway::with("[bind]\nproof = \"none\"\n[log]\nlevel = \"debug\"").await;
    send_hostile_requests(&desk).await;
    desk.terminate().await;
    let logs = desk.logs();
    assert!(logs.lines().count() > 20);
    for line in logs.lines() {
        let parsed: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in the line {line:?}"));
        assert!(parsed.is_object(), "{line}");
        assert_ne!(parsed["message"], "forged", "{line}");
        assert!(!line.contains('\u{1b}') && !line.contains('\u{85}'), "a raw control character in {line:?}");
    }
}

#[tokio::test]
async fn text_log_escapes_control_characters() {
    let mut desk = Gateway::with("[bind]\nproof = \"none\"\n[log]\nformat = \"human\"").await;
    send_hostile_requests(&desk).await;
    desk.terminate().await;
    for line in desk.logs().lines() {
        assert!(!line.contains("\u{1b}[31mforged"), "{line:?}");
        assert!(!line.trim_start().starts_with("forged"), "a forged line: {line:?}");
    }
}

#[tokio::test]
async fn access_log_has_one_line_per_request() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut ids = Vec::new();
    for path in ["/api/desk/x", "/api/agent-desk/x", "/api/auth/me", "/nowhere"] {
        ids.push(xiaoming.get(path).await.header("x-request-id").expect("an id").to_owned());
    }
    desk.terminate().await;
    let logs = desk.logs();
    for id in ids {
        assert_eq!(logs.lines().filter(|line| line.contains(&id)).count(), 1, "lines of {id}:\n{logs}");
    }
}
