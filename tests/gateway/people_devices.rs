//! `deskgate employee otp-bind`: operators bind devices in the terminal.

use std::io::{BufRead, BufReader, Read, Write};

use deskgate::domain::clock::Clock;
use deskgate::signin::totp::{OtpSecret, Step};

use super::people::find;
use crate::support::*;

/// The pixels of a QR code drawn with half blocks, three by module.
fn pixels_of(drawn: &[String]) -> Vec<Vec<bool>> {
    let mut rows = Vec::new();
    for line in drawn {
        let (upper, lower): (Vec<bool>, Vec<bool>) =
            line.chars().map(|c| (matches!(c, '█' | '▀'), matches!(c, '█' | '▄'))).unzip();
        rows.extend([upper, lower]);
    }
    rows
}

fn decode_drawn_qr_code(drawn: &[String]) -> String {
    const SIZE: usize = 4;
    let rows = pixels_of(drawn);
    let width = rows.iter().map(Vec::len).max().expect("a row");
    let mut picture = rqrr::PreparedImage::prepare_from_greyscale(width * SIZE, rows.len() * SIZE, |x, y| {
        if rows[y / SIZE].get(x / SIZE).copied().unwrap_or(false) { 0 } else { 255 }
    });
    picture.detect_grids().first().expect("a QR code").decode().expect("a text").1
}

/// Binds a device to a2001 in the terminal, with a wrong code first. Returns the secret and its printed form.
async fn bind_in_terminal(desk: &Gateway) -> (OtpSecret, String) {
    wait_for_otp_step_with_time_left().await;
    let mut bind = desk.spawn_command(&["employee", "otp-bind", "a2001"]);
    let mut input = bind.stdin.take().expect("an input");
    let mut output = BufReader::new(bind.stdout.take().expect("an output"));
    let bound = tokio::task::spawn_blocking(move || {
        let (mut drawn, mut line) = (Vec::new(), String::new());
        while !line.contains("or enter this key:") {
            drawn.push(line.trim_end_matches('\n').to_owned());
            line.clear();
            assert_ne!(output.read_line(&mut line).expect("a line"), 0, "{drawn:?}");
        }
        let url = decode_drawn_qr_code(&drawn);
        let text = query_parameter(&url, "secret").expect("a secret");
        assert!(line.contains(&text), "no secret to type in: {line}");
        let secret = OtpSecret::from_bytes(&decode_base32(&text)).expect("a secret");
        let code = |steps| secret.code(Step::from_number(Step::at(Clock::system().now()).number() + steps)).text();
        let wrong = if code(0) == "000000" { "111111" } else { "000000" };
        writeln!(input, "{wrong}\n{}", code(-1)).expect("codes");
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("the rest");
        assert!(bind.wait().expect("an exit status").success(), "{rest}");
        (secret, text)
    });
    within(TEST_TIMEOUT, "the device", bound).await.expect("no failure")
}

#[tokio::test]
async fn otp_bind_works_in_the_terminal() {
    let desk = Gateway::start().await;
    let (secret, text) = bind_in_terminal(&desk).await;
    assert_eq!(find(&desk, &["employee", "list"], "a2001").await.expect("a row")["otp_bound"], true);
    let code = secret.code(Step::at(Clock::system().now())).text();
    let alice = desk.sign_in("a2001").await;
    alice.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(0);
    assert!(!desk.logs().contains(&text), "a secret is in the log");

    desk.command(&["employee", "otp-remove", "a2001", "--yes"]).await.expect_success();
    assert_eq!(alice.get("/api/auth/otp-status").await.expect_code(0).data()["bound"], false);
}

#[tokio::test]
async fn otp_bind_works_without_a_running_gateway() {
    let mut desk = Gateway::start().await;
    desk.terminate().await;
    let (secret, _) = bind_in_terminal(&desk).await;
    desk.restart().await;
    let code = secret.code(Step::at(Clock::system().now())).text();
    desk.sign_in("a2001").await.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(0);
}

#[tokio::test]
async fn otp_bind_replaces_a_device_only_with_yes() {
    let desk = Gateway::start().await;
    let (first, _) = bind_in_terminal(&desk).await;
    let output = desk.command_with_input(&["employee", "otp-bind", "a2001"], "000000\n").await;
    assert_eq!(output.status.code(), Some(5), "{}", output.output_text());
    assert!(output.output_text().contains("--yes"), "{}", output.output_text());
    assert!(!output.output_text().contains("enter this key:"), "a secret is shown");
    let code = first.code(Step::at(Clock::system().now())).text();
    desk.sign_in("a2001").await.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(0);
    let alice = desk.sign_in("a2001").await;
    let next = first.code(Step::from_number(Step::at(Clock::system().now()).number() + 1)).text();
    alice.post_json("/api/auth/otp-verify", &json!({ "code": next })).await.expect_code(0);
    let data = alice.post("/api/auth/otp-setup").await.expect_code(0).data();
    let second = OtpSecret::from_bytes(&decode_base32(data["secret"].as_str().expect("text"))).expect("a secret");
    let output = desk.command_with_input(&["employee", "otp-bind", "a2001"], "").await;
    assert_eq!(output.status.code(), Some(5), "{}", output.output_text());
    let code = second.code(Step::at(Clock::system().now())).text();
    let bound = alice.post_json("/api/auth/otp-bind", &json!({ "code": code })).await;
    assert_eq!(bound.code(), 0, "the pending setup was replaced: {}", bound.describe());
    let confirmed = desk.command_with_input(&["employee", "otp-bind", "a2001", "--yes"], "").await;
    assert_eq!(confirmed.status.code(), Some(1), "no code was entered: {}", confirmed.output_text());
    assert!(confirmed.output_text().contains("enter this key:"), "{}", confirmed.output_text());
}

#[tokio::test]
async fn otp_bind_ends_the_step_up_of_a_removed_device() {
    let desk = Gateway::start().await;
    wait_for_otp_step_with_time_left().await;
    let alice = desk.sign_in("a2001").await;
    OtpDevice::step_up(&alice).await;
    desk.change_directory("DELETE FROM otp_devices").await;
    bind_in_terminal(&desk).await;
    let status = alice.get("/api/auth/otp-status").await.expect_code(0).data();
    assert_eq!((&status["bound"], &status["stepped_up_until"]), (&json!(true), &json!(null)));
}

#[tokio::test]
async fn otp_bind_refuses_wrong_codes() {
    let desk = Gateway::start().await;
    let output = desk.command_with_input(&["employee", "otp-bind", "a2001"], "000 000\n111111\n222222\n").await;
    assert_eq!(output.status.code(), Some(4), "{}", output.output_text());
    let ended = desk.command_with_input(&["employee", "otp-bind", "a2001"], "12345\nabc\n\n").await;
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output_text());
    assert_eq!(find(&desk, &["employee", "list"], "a2001").await.expect("a row")["otp_bound"], false);
}

#[tokio::test]
async fn wrong_codes_in_the_terminal_do_not_lock_the_employee() {
    let desk = Gateway::start().await;
    for _ in 0..3 {
        let output = desk.command_with_input(&["employee", "otp-bind", "a2001"], "000000\n111111\n222222\n").await;
        assert_eq!(output.status.code(), Some(4), "{}", output.output_text());
        assert!(!output.output_text().contains("Too many failed attempts"), "{}", output.output_text());
    }
    assert_eq!(find(&desk, &["employee", "list"], "a2001").await.expect("a row")["locked_until"], json!(null));
}

#[tokio::test]
async fn otp_remove_ends_the_lockout_of_wrong_codes() {
    let desk = Gateway::start().await;
    wait_for_otp_step_with_time_left().await;
    let alice = desk.sign_in("a2001").await;
    let device = OtpDevice::set_up_and_bind(&alice).await;
    let wrong = if device.code(0) == "000000" { "111111" } else { "000000" };
    for _ in 0..6 {
        alice.post_json("/api/auth/otp-verify", &json!({ "code": wrong })).await;
    }
    let locked = || async { find(&desk, &["employee", "list"], "a2001").await.expect("a row")["locked_until"].clone() };
    assert!(locked().await.is_string());
    desk.command(&["employee", "otp-remove", "a2001", "--yes"]).await.expect_success();
    assert_eq!(locked().await, json!(null));
    OtpDevice::set_up_and_bind(&alice).await;
}
