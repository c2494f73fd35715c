//! `POST /api/auth/otp-setup`, `otp-bind`, `otp-verify` and `GET /api/auth/otp-status`.

use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;
use crate::domain::device::ClientDevice;
use crate::error::Error;
use crate::sessions::CachedSession;
use crate::signin::issuer::IssuedToken;
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
    #[serde(flatten)]
    stepped_up: SteppedUp,
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<IssuedToken>,
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
    let bound = otp.bind(caller, &body.code, device).await?;
    Ok(OtpBound { stepped_up: stepped_up(bound.stepped_up_until), login: bound.login })
}

/// Steps the session up.
pub async fn verify(otp: &OneTimePasswords, caller: &CachedSession, body: OtpCodeBody) -> Result<SteppedUp, Error> {
    otp.verify(caller, &body.code).await.map(stepped_up)
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

fn stepped_up(until: Timestamp) -> SteppedUp {
    SteppedUp { success: true, stepped_up_until: until.iso8601() }
}
