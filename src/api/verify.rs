//! `POST /api/auth/verify`

use serde::{Deserialize, Serialize};

use crate::domain::role::RoleName;
use crate::domain::secret::Secret;
use crate::domain::session::LoginSource;
use crate::error::Error;
use crate::signin::SignIn;

/// What is asked.
#[derive(Debug, Deserialize)]
pub struct Verify {
    token: Secret<String>,
}

/// Whether a token is good; the rest only when it is.
#[derive(Debug, Serialize)]
pub struct Verification {
    valid: bool,
    #[serde(flatten)]
    identity: Option<Identity>,
}

#[derive(Debug, Serialize)]
struct Identity {
    employee_id: String,
    name: String,
    roles: Vec<RoleName>,
    current_role: RoleName,
    login_source: LoginSource,
    expires_in: u64,
}

/// Verifies a token. One that is not valid is an answer, not an error.
pub async fn verify(signin: &SignIn, request: Verify) -> Result<Verification, Error> {
    let Some(verified) = signin.verify(request.token.reveal()).await? else {
        return Ok(Verification { valid: false, identity: None });
    };
    let session = verified.session;
    let identity = Identity {
        employee_id: session.employee_id.to_string(),
        name: session.name,
        roles: session.roles,
        current_role: session.current_role,
        login_source: session.login_source,
        expires_in: verified.expires_in,
    };
    Ok(Verification { valid: true, identity: Some(identity) })
}
