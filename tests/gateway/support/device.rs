//! One-time-password devices.

use base64::Engine;
use deskgate::domain::clock::Clock;
use deskgate::signin::totp::{OtpSecret, Step};
use serde_json::json;

use super::{Client, base32, eventually, query_of, read_code};

/// Waits until the next change of codes, every 30 s, is far enough away not to come in between.
pub async fn time_left_in_step() {
    eventually("a step with time left", || async {
        (Clock::system().now().seconds().rem_euclid(30) < 20).then_some(())
    })
    .await;
}

/// A person's device.
pub struct Device {
    secret: OtpSecret,
}

impl Device {
    /// Sets one up and reads its secret from the link in the QR code.
    pub async fn offered(client: &Client) -> Device {
        let data = client.post("/api/auth/otp-setup").await.expect_code(0).data();
        let picture = data["qrcode_png_base64"].as_str().expect("a picture");
        let picture = base64::engine::general_purpose::STANDARD.decode(picture).expect("base64");
        let url = read_code(&picture);
        assert_eq!(data["otpauth_url"], url.as_str(), "the code says the link");
        assert!(url.starts_with("otpauth://totp/"), "{url}");
        let text = query_of(&url, "secret").expect("a secret");
        assert_eq!(data["secret"], text.as_str());
        Device { secret: OtpSecret::from_bytes(&base32(&text)).expect("a secret") }
    }

    /// Sets one up and binds it, with the code of the step before this one.
    pub async fn bound(client: &Client) -> Device {
        let device = Device::offered(client).await;
        client.post_json("/api/auth/otp-bind", &json!({ "code": device.code(-1) })).await.expect_code(0);
        device
    }

    /// The code so many steps from now.
    pub fn code(&self, steps: i64) -> String {
        let step = Step::at(Clock::system().now()).number() + steps;
        self.secret.code(Step::from_number(step)).text()
    }

    /// A code that fits at no time near now.
    pub fn wrong(&self) -> String {
        let near: Vec<String> = (-3..=3).map(|steps| self.code(steps)).collect();
        (0..).map(|number| format!("{number:06}")).find(|code| !near.contains(code)).expect("one of a million")
    }
}
