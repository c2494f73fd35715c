//! `/api/dev/…`: development mode only.

use serde::{Deserialize, Serialize};

use crate::domain::device::ClientDevice;
use crate::error::Error;
use crate::signin::development::DevelopmentSignIn;
use crate::signin::issuer::IssuedToken;

/// The body of a development sign-in.
#[derive(Debug, Deserialize)]
pub struct DevLoginBody {
    employee_id: String,
}

/// An employee who can be signed in.
#[derive(Debug, Serialize)]
pub struct DevUser {
    employee_id: String,
    name: String,
    department: String,
}

/// Whether development mode is on.
#[derive(Debug, Serialize)]
pub struct DevHealth {
    development: bool,
}

/// Issues a token without the platform.
pub async fn login(
    development: &DevelopmentSignIn,
    body: DevLoginBody,
    device: &ClientDevice,
) -> Result<IssuedToken, Error> {
    development.login(&body.employee_id, device).await
}

/// Lists the employees who can be signed in.
pub async fn users(development: &DevelopmentSignIn) -> Result<Vec<DevUser>, Error> {
    let users = development.users().await?.into_iter().map(|user| DevUser {
        employee_id: user.employee_id.to_string(),
        name: user.name,
        department: user.department,
    });
    Ok(users.collect())
}

/// Reports that development mode is on.
pub fn health(development: &DevelopmentSignIn) -> Result<DevHealth, Error> {
    development.check_enabled()?;
    Ok(DevHealth { development: true })
}
