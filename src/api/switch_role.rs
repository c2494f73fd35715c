//! `POST /api/auth/switch-role`

use serde::{Deserialize, Serialize};

use crate::domain::language::Language;
use crate::domain::role::RoleName;
use crate::error::Error;
use crate::messages::Message;
use crate::sessions::CachedSession;
use crate::signin::SignIn;

/// What is asked.
#[derive(Debug, Deserialize)]
pub struct SwitchRole {
    role: String,
}

/// The answer.
#[derive(Debug, Serialize)]
pub struct SwitchedRole {
    success: bool,
    current_role: RoleName,
    message: &'static str,
}

/// Makes another held role the active one; the token stays the same.
pub async fn switch_role(
    signin: &SignIn,
    known: &CachedSession,
    request: SwitchRole,
    language: Language,
) -> Result<SwitchedRole, Error> {
    let current_role = signin.switch_role(known, &request.role).await?;
    let message = Message::ROLE_SWITCHED.text(language);
    Ok(SwitchedRole { success: true, current_role, message })
}
