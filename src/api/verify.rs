//! `POST /api/auth/verify`

use serde::{Deserialize, Serialize};

use crate::domain::role::RoleName;
use crate::domain::secret::Secret;
use crate::domain::session::LoginSource;
use crate::error::Error;
use crate::signin::sessions::UserSessions;

/// The token to verify.
#[derive(Debug, Deserialize)]
pub struct VerifyBody {
    token: Secret<String>,
}

/// Whether a token is valid, and whose it is if so.
#[derive(Debug, Serialize)]
pub struct Verification {
    valid: bool,
    #[serde(flatten)]
    identity: Option<VerifiedIdentity>,
}

#[derive(Debug, Serialize)]
struct VerifiedIdentity {
    employee_id: String,
    name: String,
    roles: Vec<RoleName>,
    current_role: RoleName,
    login_source: LoginSource,
    expires_in: u64,
}

/// Verifies a token. An invalid one is reported in the data, not as an error.
pub async fn verify(sessions: &UserSessions, body: VerifyBody) -> Result<Verification, Error> {
    let Some(verified) = sessions.verify(body.token.reveal()).await? else {
        return Ok(Verification { valid: false, identity: None });
    };
    let session = verified.session;
    let identity = VerifiedIdentity {
        employee_id: session.employee_id.to_string(),
        name: session.name,
        roles: session.roles,
        current_role: session.current_role,
        login_source: session.login_source,
        expires_in: verified.expires_in,
    };
    Ok(Verification { valid: true, identity: Some(identity) })
}
