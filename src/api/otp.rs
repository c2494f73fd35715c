//! `POST /api/auth/otp-setup`, `otp-bind`, `otp-verify` and `GET /api/auth/otp-status`.

use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;
use crate::domain::device::ClientDevice;
use crate::error::Error;
use crate::sessions::CachedSession;
use crate::signin::issuer::SignInGrant;
use crate::signin::otp::{OneTimePasswords, OtpSetup};

/// A code of the caller's device.
#[derive(Deserialize)]
pub struct OtpCodeBody {
    code: String,
}

/// The session was stepped up.
#[derive(Debug, Serialize)]
pub struct SteppedUp {
    success: bool,
    stepped_up_until: String,
}

/// The device was bound.
#[derive(Serialize)]
pub struct OtpBound {
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<SignInGrant>,
}

/// The state of the caller's device.
#[derive(Debug, Serialize)]
pub struct OtpStatusData {
    bound: bool,
    bound_at: Option<String>,
    last_verified_at: Option<String>,
    stepped_up_until: Option<String>,
}

/// Offers a new secret.
pub async fn set_up(otp: &OneTimePasswords, caller: &CachedSession) -> Result<OtpSetup, Error> {
    otp.set_up(caller).await
}

/// Binds the device by its first code.
pub async fn bind(
    otp: &OneTimePasswords,
    caller: &CachedSession,
    body: OtpCodeBody,
    device: &ClientDevice,
) -> Result<OtpBound, Error> {
    Ok(OtpBound { success: true, login: otp.bind(caller, &body.code, device).await? })
}

/// Steps the session up.
pub async fn verify(otp: &OneTimePasswords, caller: &CachedSession, body: OtpCodeBody) -> Result<SteppedUp, Error> {
    let until = otp.verify(caller, &body.code).await?;
    Ok(SteppedUp { success: true, stepped_up_until: until.iso8601() })
}

/// Describes the caller's device.
pub async fn status(otp: &OneTimePasswords, caller: &CachedSession) -> Result<OtpStatusData, Error> {
    let status = otp.status(caller).await?;
    let device = status.device;
    Ok(OtpStatusData {
        bound: device.secret.is_some(),
        bound_at: device.bound_at.map(Timestamp::iso8601),
        last_verified_at: device.last_verified_at.map(Timestamp::iso8601),
        stepped_up_until: status.stepped_up_until.map(Timestamp::iso8601),
    })
}
