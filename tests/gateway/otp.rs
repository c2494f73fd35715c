//! /api/auth/otp-*: TOTP devices are set up and bound, a code is accepted once, and wrong codes lock the account.

use deskgate::domain::clock::Timestamp;
use deskgate::signin::totp::{OtpSecret, Step, TotpCode};

use crate::support::*;

const STEP_UP: &str = r#"
[[rule]]
name = "step-up"
path = "/api/danger"
methods = ["POST"]
upstream = "helpdesk"
signed_in = true
step_up = true
"#;

async fn desk() -> Gateway {
    desk_with("").await
}

async fn desk_with(settings: &str) -> Gateway {
    wait_for_otp_step_with_time_left().await;
    Gateway::setup().more_rules(STEP_UP).toml(settings).start().await
}

async fn verify(client: &Client, code: &str) -> Response {
    client.post_json("/api/auth/otp-verify", &json!({ "code": code })).await
}

#[tokio::test]
async fn devices_survive_an_encryption_key_change() {
    let mut desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    let device = OtpDevice::set_up_and_bind(&xiaoming).await;
    let (first, second) = (desk.data_dir().join("first.key"), desk.data_dir().join("second.key"));
    for (file, key) in [(&first, [1; 32]), (&second, [2; 32])] {
        use base64::Engine;
        std::fs::write(file, base64::engine::general_purpose::STANDARD.encode(key)).expect("a key");
    }
    let config = std::fs::read_to_string(desk.config_file()).expect("the configuration");
    let configure = |desk: &Gateway, otp: &str| {
        std::fs::write(desk.config_file(), format!("{config}\n[otp]\n{otp}\n")).expect("a new configuration");
    };
    let (first, second) = (first.display(), second.display());

    // From the generated key to a configured one: after one start the old key is not needed.
    configure(&desk, &format!("key_file = \"{first}\""));
    desk.restart().await;
    desk.wait_for_log(&["remove keys/vault.key and otp.old_key_files"]).await;
    std::fs::remove_file(desk.data_dir().join("keys").join("vault.key")).expect("an old key");
    desk.restart().await;
    verify(&xiaoming, &device.code(0)).await.expect_code(0);

    configure(&desk, &format!("key_file = \"{second}\"\nold_key_files = [\"{first}\"]"));
    desk.restart().await;
    configure(&desk, &format!("key_file = \"{second}\""));
    desk.restart().await;
    assert!(!desk.logs().contains("cannot decrypt some one-time-password secrets"), "no key is missing");
    verify(&xiaoming, &device.code(1)).await.expect_code(0);

    // A lost key: its devices are unusable, and the gateway logs that at start.
    configure(&desk, &format!("key_file = \"{first}\""));
    desk.restart().await;
    desk.wait_for_log(&["cannot decrypt some one-time-password secrets"]).await;
    verify(&xiaoming, &device.code(1)).await.expect_status(500);
    configure(&desk, &format!("key_file = \"{first}\"\nold_key_files = [\"nowhere.key\"]"));
    desk.terminate().await;
    let refused = desk.command(&["employee", "list"]).await;
    assert!(refused.output_text().contains("nowhere.key"), "{}", refused.output_text());
}

#[tokio::test]
async fn binding_a_device_does_not_step_up_and_its_next_code_does() {
    let desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    let status = xiaoming.get("/api/auth/otp-status").await.expect_code(0).data();
    assert_eq!((&status["bound"], &status["bound_at"]), (&json!(false), &json!(null)));
    let refused = xiaoming.post("/api/danger").await;
    let challenge = refused.header("www-authenticate").unwrap_or_default().to_owned();
    assert!(challenge.contains("insufficient_user_authentication"), "{challenge}");
    assert!(challenge.contains("acr_values=\"otp\""), "RFC 9470: {challenge}");
    let refused = refused.expect_code(1021);
    assert!(refused.text().contains("set one up first"), "there is no code to enter: {}", refused.describe());

    let device = OtpDevice::set_up(&xiaoming).await;
    let bound =
        xiaoming.post_json("/api/auth/otp-bind", &json!({ "code": device.code(-1) })).await.expect_code(0).data();
    assert_eq!(bound, json!({ "success": true }));
    let status = xiaoming.get("/api/auth/otp-status").await.expect_code(0).data();
    assert_eq!((&status["bound"], &status["stepped_up_until"]), (&json!(true), &json!(null)));
    xiaoming.post("/api/danger").await.expect_code(1021);
    // The code that bound the device is used up; the next one steps up.
    verify(&xiaoming, &device.code(-1)).await.expect_code(1022);
    let verified = verify(&xiaoming, &device.code(0)).await.expect_code(0).data();
    xiaoming.post("/api/danger").await.expect_status(200);
    let status = xiaoming.get("/api/auth/otp-status").await.expect_code(0).data();
    assert_eq!(status["stepped_up_until"], verified["stepped_up_until"]);

    // Another session of the same employee needs its own step-up.
    let other = desk.sign_in("u1001").await;
    other.post("/api/danger").await.expect_code(1021);
    verify(&other, &device.code(1)).await.expect_code(0);
    other.post("/api/danger").await.expect_status(200);
}

#[tokio::test]
async fn step_up_ends_in_time_and_on_role_switch() {
    let desk = desk_with("[otp]\nvalid_for = \"1s\"").await;
    let alice = desk.sign_in("a2001").await;
    OtpDevice::step_up(&alice).await;
    eventually("the end of the step-up", || async { (alice.post("/api/danger").await.status == 401).then_some(()) })
        .await;
    let refused = alice.post("/api/danger").await;
    let challenge = refused.header("www-authenticate").unwrap_or_default().to_owned();
    assert!(challenge.contains("insufficient_user_authentication"), "{challenge}");
    refused.expect_code(1021);

    let desk = self::desk().await;
    let alice = desk.sign_in("a2001").await;
    OtpDevice::step_up(&alice).await;
    alice.post("/api/danger").await.expect_status(200);
    alice.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
    alice.post("/api/danger").await.expect_code(1021);
}

#[tokio::test]
async fn only_fresh_six_digit_codes_are_accepted() {
    type Spelling = fn(&OtpDevice) -> String;
    fn digits_from(zero: u32, code: &str) -> String {
        code.chars().map(|digit| char::from_u32(zero + digit as u32 - 48).expect("a digit")).collect()
    }
    let table: [(&str, Spelling); 20] = [
        ("an empty code", |_| String::new()),
        ("five digits", |device| device.code(0)[..5].to_owned()),
        ("seven digits", |device| format!("{}0", device.code(0))),
        ("a leading zero", |device| format!("0{}", device.code(0))),
        ("an inner space", |device| format!("{} {}", &device.code(0)[..3], &device.code(0)[3..])),
        ("a trailing space", |device| format!("{} ", device.code(0))),
        ("a leading space", |device| format!(" {}", device.code(0))),
        ("a line end", |device| format!("{}\n", device.code(0))),
        ("a trailing NUL", |device| format!("{}\0", device.code(0))),
        ("a leading minus", |device| format!("-{}", device.code(0))),
        ("a minus instead of a digit", |device| format!("-{}", &device.code(0)[1..])),
        ("a leading plus", |device| format!("+{}", device.code(0))),
        ("a fraction", |device| format!("{}.0", device.code(0))),
        ("Arabic digits", |device| digits_from(0x0660, &device.code(0))),
        ("full-width digits", |device| digits_from(0xFF10, &device.code(0))),
        ("Devanagari digits", |device| digits_from(0x0966, &device.code(0))),
        ("ten thousand digits", |device| device.code(0).repeat(1_700)),
        ("two steps ahead, outside the window", |device| device.code(2)),
        ("two steps ago, outside the window", |device| device.code(-2)),
        ("the step that bound the device", |device| device.code(-1)),
    ];
    let desk = desk().await;
    // Five wrong codes lock an account, so each employee gets four.
    let employees = ["u1001", "a2001", "s3001", "c4001", "m5001"];
    for (employee, cases) in employees.into_iter().zip(table.chunks(4)) {
        let client = desk.sign_in(employee).await;
        let device = OtpDevice::set_up_and_bind(&client).await;
        for (case, spell) in cases {
            assert_eq!(verify(&client, &spell(&device)).await.code(), 1022, "{case}");
        }
        for code in [json!(123456), json!(-123456), json!(null), json!([device.code(0)]), json!({})] {
            let response = client.post_json("/api/auth/otp-verify", &json!({ "code": code })).await;
            assert_eq!(response.code(), 1400, "{code}");
        }
        verify(&client, &device.code(0)).await.expect_code(0);
        verify(&client, &device.code(0)).await.expect_code(1022);
    }
}

#[tokio::test]
async fn code_is_accepted_once_under_concurrency() {
    let desk = desk().await;
    let sessions = [desk.sign_in("u1001").await, desk.sign_in("u1001").await, desk.sign_in("u1001").await];
    let device = OtpDevice::set_up_and_bind(&sessions[0]).await;
    let code = device.code(0);
    let responses = futures::future::join_all(sessions.iter().map(|session| verify(session, &code))).await;
    let accepted = responses.iter().filter(|response| response.code() == 0).count();
    assert_eq!(accepted, 1, "{:?}", responses.iter().map(Response::code).collect::<Vec<_>>());
}

#[tokio::test]
async fn wrong_codes_lock_the_account_across_addresses() {
    let desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    let device = OtpDevice::set_up_and_bind(&xiaoming).await;
    let other_session = desk.sign_in("u1001").await;
    let wrong = device.wrong_code();
    for number in 0..5 {
        let client = if number % 2 == 0 { &xiaoming } else { &other_session };
        let from = format!("203.0.113.{number}");
        let body = json!({ "code": wrong }).to_string();
        let headers = [("Content-Type", "application/json"), ("X-Forwarded-For", from.as_str())];
        client.send("POST", "/api/auth/otp-verify", &headers, body.as_bytes()).await.expect_code(1022);
    }
    for client in [&xiaoming, &other_session] {
        let refused = verify(client, &device.code(1)).await;
        let wait: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((1..=30).contains(&wait), "{wait}");
        refused.expect_code(1429);
    }
    // Only this account is locked, and only for codes.
    xiaoming.get("/api/auth/me").await.expect_code(0);
    let alice = desk.sign_in("a2001").await;
    let device = OtpDevice::set_up_and_bind(&alice).await;
    verify(&alice, &device.code(1)).await.expect_code(0);
}

#[tokio::test]
async fn device_replacement_requires_a_code_of_the_old_device() {
    let desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    let first = OtpDevice::set_up_and_bind(&xiaoming).await;
    // A recent platform sign-in is not enough once there is a device, not even for the session that bound it.
    for session in [&xiaoming, &desk.sign_in("u1001").await] {
        let refused = session.post("/api/auth/otp-setup").await;
        let challenge = refused.header("www-authenticate").unwrap_or_default().to_owned();
        assert!(challenge.contains("acr_values=\"otp\"") && !challenge.contains("max_age"), "{challenge}");
        refused.expect_code(1021);
        session.post_json("/api/auth/otp-bind", &json!({ "code": first.code(0) })).await.expect_code(1021);
    }
    verify(&xiaoming, &first.wrong_code()).await.expect_code(1022);
    xiaoming.post("/api/auth/otp-setup").await.expect_code(1021);

    verify(&xiaoming, &first.code(0)).await.expect_code(0);
    let second = OtpDevice::set_up(&xiaoming).await;
    // The old device works until the new one is bound; its step-ups end with it.
    let other = desk.sign_in("u1001").await;
    verify(&other, &first.code(1)).await.expect_code(0);
    other.post("/api/danger").await.expect_status(200);
    xiaoming.post_json("/api/auth/otp-bind", &json!({ "code": second.code(0) })).await.expect_code(0);
    for session in [&xiaoming, &other] {
        session.post("/api/danger").await.expect_code(1021);
        session.post("/api/auth/otp-setup").await.expect_code(1021);
    }
    verify(&other, &first.code(1)).await.expect_code(1022);
    verify(&other, &second.code(1)).await.expect_code(0);
}

#[tokio::test]
async fn step_up_of_a_removed_device_ends_when_another_is_bound() {
    let desk = desk().await;
    let (xiaoming, other) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    OtpDevice::step_up(&xiaoming).await;
    // As a removal leaves it that was interrupted before it reached the sessions.
    desk.change_directory("DELETE FROM otp_devices").await;
    xiaoming.post("/api/danger").await.expect_status(200);
    OtpDevice::set_up_and_bind(&other).await;
    xiaoming.post("/api/danger").await.expect_code(1021);
}

#[tokio::test]
async fn step_ups_end_when_the_binding_of_a_revoked_session_is_undone() {
    let desk = desk().await;
    let (revoked, other) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    let first = OtpDevice::set_up_and_bind(&revoked).await;
    verify(&revoked, &first.code(0)).await.expect_code(0);
    let second = OtpDevice::set_up(&revoked).await;
    // In place of a code of the second device, which works from the binding until it is undone.
    verify(&other, &first.code(1)).await.expect_code(0);
    // The gateway still has the session in its cache, as when it is revoked during the request.
    let revoke = format!("DELETE FROM sessions WHERE id = '{}'", jti_of(revoked.token()));
    desk.change_database("state.db", &revoke).await;
    revoked.post_json("/api/auth/otp-bind", &json!({ "code": second.code(0) })).await.expect_invalid_token();
    other.post("/api/danger").await.expect_code(1021);
    verify(&other, &second.code(1)).await.expect_code(1022);
}

/// Checks that a response demands a platform sign-in of the last five minutes.
#[track_caller]
fn expect_recent_sign_in_required(response: Response) {
    let challenge = response.header("www-authenticate").unwrap_or_default().to_owned();
    assert!(challenge.contains("error=\"insufficient_user_authentication\""), "{challenge}");
    assert!(challenge.contains("max_age=\"300\"") && !challenge.contains("acr_values"), "{challenge}");
    response.expect_code(1021).expect_status(401);
}

#[tokio::test]
async fn first_device_requires_a_recent_platform_sign_in() {
    let desk = desk().await;
    let thief = desk.sign_in_an_hour_ago("u1001").await;
    expect_recent_sign_in_required(thief.post("/api/auth/otp-setup").await);
    // Not with a secret that the owner has just requested, either.
    let owner = desk.sign_in("u1001").await;
    let device = OtpDevice::set_up(&owner).await;
    let bind = json!({ "code": device.code(0) });
    expect_recent_sign_in_required(thief.post_json("/api/auth/otp-bind", &bind).await);
    thief.post("/api/danger").await.expect_code(1021);
    let events = desk.command(&["employee", "events", "u1001", "--json"]).await.expect_success();
    assert_eq!(events.matches("sign_in_too_old").count(), 2, "{events}");

    owner.post_json("/api/auth/otp-bind", &bind).await.expect_code(0);
    verify(&thief, &device.code(1)).await.expect_code(0);
}

#[tokio::test]
async fn every_platform_sign_in_may_set_up_the_first_device() {
    let desk = desk().await;
    desk.sign_in("u1001").await.post("/api/auth/otp-setup").await.expect_code(0);
    desk.sign_in_by_oauth2("u1001", "h5").await.post("/api/auth/otp-setup").await.expect_code(0);
    desk.sign_in_by_qrcode("u1001").await.post("/api/auth/otp-setup").await.expect_code(0);
}

#[tokio::test]
async fn enrolment_can_be_left_to_operators() {
    let desk = desk_with("[otp]\nenrol_within = \"0s\"").await;
    let alice = desk.sign_in("a2001").await;
    let refused = alice.post("/api/auth/otp-setup").await;
    assert!(refused.header("www-authenticate").unwrap_or_default().contains("max_age=\"0\""), "{}", refused.describe());
    refused.expect_code(1021);
    let password = "tidal meadow 47 envelope";
    alice.post_json("/api/agents/password", &json!({ "new_password": password })).await.expect_code(1021);
    desk.command_with_input(&["agent", "password", "a2001"], &format!("{password}\n")).await.expect_success();
    let body = json!({ "employee_id": "a2001", "password": password });
    desk.anonymous().post_json("/api/agents/login", &body).await.expect_code(0);
}

#[tokio::test]
async fn concurrent_first_enrolments_bind_one_device() {
    let desk = desk().await;
    for round in 0..4 {
        let sessions = [desk.sign_in("u1001").await, desk.sign_in("u1001").await];
        let enrol = async |session: &Client| {
            let device = OtpDevice::set_up(session).await;
            let bound = session.post_json("/api/auth/otp-bind", &json!({ "code": device.code(0) })).await;
            (device, bound.code())
        };
        let enrolled = futures::future::join(enrol(&sessions[0]), enrol(&sessions[1])).await;
        let enrolled = [enrolled.0, enrolled.1];
        let bound: Vec<&OtpDevice> = enrolled.iter().filter(|(_, code)| *code == 0).map(|(device, _)| device).collect();
        assert!(bound.len() <= 1, "round {round}: two devices are bound");
        if let [device] = bound[..] {
            verify(&sessions[0], &device.code(1)).await.expect_code(0);
        }
        desk.command(&["employee", "otp-remove", "u1001", "--yes"]).await.expect_success();
    }
}

#[tokio::test]
async fn enrolment_racing_a_logout_leaves_no_device_after_it() {
    wait_for_otp_step_with_time_left().await;
    let unlimited = "[[endpoint]]\npath = \"/api/auth/otp-setup\"\nrate = []\n";
    let desk = Gateway::setup().more_rules(unlimited).start().await;
    let (mut refused, rounds) = (0, 15);
    for round in 0..rounds {
        let session = desk.sign_in("u1001").await;
        let device = OtpDevice::set_up(&session).await;
        let body = json!({ "code": device.code(0) });
        let (bound, _) =
            futures::future::join(session.post_json("/api/auth/otp-bind", &body), session.post("/api/auth/logout"))
                .await;
        let owner = desk.sign_in("u1001").await;
        let status = owner.get("/api/auth/otp-status").await.expect_code(0).data();
        assert_eq!(status["bound"], bound.code() == 0, "round {round}: {}", bound.describe());
        refused += usize::from(bound.code() != 0);
        desk.command(&["employee", "otp-remove", "u1001", "--yes"]).await;
    }
    eprintln!("{refused} of {rounds} enrolments lost the race");
}

#[tokio::test]
async fn otp_endpoints_require_a_device_and_a_token() {
    let desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    verify(&xiaoming, "123456").await.expect_code(1003);
    xiaoming.post_json("/api/auth/otp-bind", &json!({ "code": "123456" })).await.expect_code(1003);
    for (method, path) in [("POST", "otp-setup"), ("POST", "otp-bind"), ("POST", "otp-verify"), ("GET", "otp-status")] {
        desk.anonymous().send(method, &format!("/api/auth/{path}"), &[], b"").await.expect_code(1001);
    }
}

#[tokio::test]
async fn otp_secret_is_encrypted_at_rest_and_absent_from_logs() {
    let desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    let data = xiaoming.post("/api/auth/otp-setup").await.expect_code(0).data();
    let secret = data["secret"].as_str().expect("a secret").to_owned();
    desk.wait_for_log(&["/api/auth/otp-setup"]).await;
    assert!(!desk.logs().contains(&secret));
    for entry in std::fs::read_dir(desk.data_dir()).expect("the data") {
        let path = entry.expect("a file").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("its bytes");
            let raw = decode_base32(&secret);
            for needle in [secret.as_bytes(), raw.as_slice()] {
                assert!(!bytes.windows(needle.len()).any(|window| window == needle), "{}", path.display());
            }
        }
    }
}

#[tokio::test]
async fn device_survives_a_restart() {
    let mut desk = desk().await;
    let xiaoming = desk.sign_in("u1001").await;
    let device = OtpDevice::set_up_and_bind(&xiaoming).await;
    desk.sigkill();
    desk.restart().await;
    verify(&xiaoming, &device.code(0)).await.expect_code(0);
}

#[test]
fn codes_match_rfc_6238() {
    let secret = OtpSecret::from_bytes(b"12345678901234567890").expect("a secret");
    assert_eq!(secret.code(Step::at(Timestamp::from_seconds(59))).text(), "287082", "RFC 6238, appendix B");
    assert!(TotpCode::read("287082").is_some());
}

#[tokio::test]
async fn step_up_ends_with_its_device_and_role() {
    let desk = desk().await;
    let alice = desk.sign_in("a2001").await;
    OtpDevice::step_up(&alice).await;
    alice.post("/api/danger").await.expect_status(200);
    desk.command(&["role", "take", "a2001", "agent"]).await.expect_success();
    alice.post("/api/danger").await.expect_code(1021);

    let zhou_min = desk.sign_in("m5001").await;
    OtpDevice::step_up(&zhou_min).await;
    zhou_min.post("/api/danger").await.expect_status(200);
    desk.command(&["employee", "otp-remove", "m5001", "--yes"]).await.expect_success();
    zhou_min.post("/api/danger").await.expect_code(1021);
}

#[tokio::test]
async fn code_at_sign_in_steps_up_the_session() {
    let desk = desk().await;
    let alice = desk.sign_in("a2001").await;
    let password = "tidal meadow 47 envelope";
    alice.post_json("/api/agents/password", &json!({ "new_password": password })).await.expect_code(0);
    let device = OtpDevice::set_up_and_bind(&alice).await;
    let body = json!({ "employee_id": "a2001", "password": password, "otp": device.code(0) });
    let data = desk.anonymous().post_json("/api/agents/login", &body).await.expect_code(0).data();
    let agent = desk.with_token(data["token"].as_str().expect("a token"));
    agent.post("/api/danger").await.expect_status(200);
}
