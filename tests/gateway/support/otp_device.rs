//! A TOTP device.

use base64::Engine;
use deskgate::domain::clock::Clock;
use deskgate::signin::totp::{OtpSecret, Step};
use serde_json::json;

use super::{Client, decode_base32, decode_qr_code, eventually, query_parameter};

/// Waits until the current 30 s step has at least 10 s left, so that it does not change within a test.
pub async fn wait_for_otp_step_with_time_left() {
    eventually("a TOTP step with time left", || async {
        (Clock::system().now().seconds().rem_euclid(30) < 20).then_some(())
    })
    .await;
}

/// A TOTP device of an account.
pub struct OtpDevice {
    secret: OtpSecret,
}

impl OtpDevice {
    /// Calls `otp-setup` and reads the secret from the QR code.
    pub async fn set_up(client: &Client) -> OtpDevice {
        let data = client.post("/api/auth/otp-setup").await.expect_code(0).data();
        let picture = data["qrcode_png_base64"].as_str().expect("a picture");
        let picture = base64::engine::general_purpose::STANDARD.decode(picture).expect("base64");
        let url = decode_qr_code(&picture);
        assert_eq!(data["otpauth_url"], url.as_str(), "the QR code holds the link");
        assert!(url.starts_with("otpauth://totp/"), "{url}");
        let text = query_parameter(&url, "secret").expect("a secret");
        assert_eq!(data["secret"], text.as_str());
        OtpDevice { secret: OtpSecret::from_bytes(&decode_base32(&text)).expect("a secret") }
    }

    /// Sets a device up and binds it with the code of the previous step.
    pub async fn set_up_and_bind(client: &Client) -> OtpDevice {
        let device = OtpDevice::set_up(client).await;
        client.post_json("/api/auth/otp-bind", &json!({ "code": device.code(-1) })).await.expect_code(0);
        device
    }

    /// Sets a device up, binds it with the current code and steps the session up with the next one.
    pub async fn step_up(client: &Client) -> OtpDevice {
        let device = OtpDevice::set_up(client).await;
        client.post_json("/api/auth/otp-bind", &json!({ "code": device.code(0) })).await.expect_code(0);
        client.post_json("/api/auth/otp-verify", &json!({ "code": device.code(1) })).await.expect_code(0);
        device
    }

    /// The code of the step `steps` from now.
    pub fn code(&self, steps: i64) -> String {
        let step = Step::at(Clock::system().now()).number() + steps;
        self.secret.code(Step::from_number(step)).text()
    }

    /// A code that is valid in none of the steps around now.
    pub fn wrong_code(&self) -> String {
        let near: Vec<String> = (-3..=3).map(|steps| self.code(steps)).collect();
        (0..).map(|number| format!("{number:06}")).find(|code| !near.contains(code)).expect("a free code")
    }
}
