//! `POST /api/auth/otp-setup`, `otp-bind`, `otp-verify` and `GET /api/auth/otp-status`.

use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;
use crate::error::Error;
use crate::sessions::CachedSession;
use crate::signin::session::LoggedIn;
use crate::signin::{Device, SignIn};

/// A code.
#[derive(Deserialize)]
pub struct OtpCode {
    code: String,
}

/// What a device is set up with.
#[derive(Serialize)]
pub struct Setup {
    secret: String,
    otpauth_url: String,
    qrcode_png_base64: String,
}

/// The session is stepped up.
#[derive(Debug, Serialize)]
pub struct SteppedUp {
    success: bool,
    stepped_up_until: String,
}

/// The device is bound.
#[derive(Serialize)]
pub struct Bound {
    #[serde(flatten)]
    stepped_up: SteppedUp,
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<LoggedIn>,
}

/// How the caller's device stands.
#[derive(Debug, Serialize)]
pub struct Status {
    bound: bool,
    bound_at: Option<String>,
    last_verified_at: Option<String>,
    stepped_up_until: Option<String>,
}

/// Offers a new secret.
pub async fn setup(signin: &SignIn, caller: &CachedSession) -> Result<Setup, Error> {
    let setup = signin.otp_setup(caller).await?;
    let (secret, otpauth_url) = (setup.secret, setup.otpauth_url);
    Ok(Setup { secret, otpauth_url, qrcode_png_base64: setup.qrcode_png_base64 })
}

/// Binds the device with its first code.
pub async fn bind(signin: &SignIn, caller: &CachedSession, body: OtpCode, device: &Device) -> Result<Bound, Error> {
    let bound = signin.otp_bind(caller, &body.code, device).await?;
    Ok(Bound { stepped_up: stepped_up(bound.stepped_up_until), login: bound.login })
}

/// Steps the session up.
pub async fn verify(signin: &SignIn, caller: &CachedSession, body: OtpCode) -> Result<SteppedUp, Error> {
    signin.otp_verify(caller, &body.code).await.map(stepped_up)
}

/// Tells how the device stands.
pub async fn status(signin: &SignIn, caller: &CachedSession) -> Result<Status, Error> {
    let status = signin.otp_status(caller).await?;
    let device = status.device;
    Ok(Status {
        bound: device.secret.is_some(),
        bound_at: device.bound_at.map(Timestamp::iso8601),
        last_verified_at: device.last_verified_at.map(Timestamp::iso8601),
        stepped_up_until: status.stepped_up_until.map(Timestamp::iso8601),
    })
}

fn stepped_up(until: Timestamp) -> SteppedUp {
    SteppedUp { success: true, stepped_up_until: until.iso8601() }
}
