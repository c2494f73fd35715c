//! `/api/dev/…`: development mode only.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::signin::session::LoggedIn;
use crate::signin::{Device, SignIn};

/// What is asked.
#[derive(Debug, Deserialize)]
pub struct DevLogin {
    employee_id: String,
}

/// Somebody who can be signed in.
#[derive(Debug, Serialize)]
pub struct DevUser {
    employee_id: String,
    name: String,
    department: String,
}

/// Whether it is on.
#[derive(Debug, Serialize)]
pub struct DevHealth {
    development: bool,
}

/// A token without the platform.
pub async fn login(signin: &SignIn, request: DevLogin, device: &Device) -> Result<LoggedIn, Error> {
    signin.development_login(&request.employee_id, device).await
}

/// Who can be signed in.
pub async fn users(signin: &SignIn) -> Result<Vec<DevUser>, Error> {
    let users = signin.development_users().await?;
    let shown = users.into_iter().map(|user| DevUser {
        employee_id: user.employee_id.to_string(),
        name: user.name,
        department: user.department,
    });
    Ok(shown.collect())
}

/// Whether development mode is on.
pub fn health(signin: &SignIn) -> Result<DevHealth, Error> {
    signin.development_only()?;
    Ok(DevHealth { development: true })
}
