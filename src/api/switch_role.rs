//! `POST /api/auth/switch-role`

use serde::{Deserialize, Serialize};

use crate::domain::language::Language;
use crate::domain::role::RoleName;
use crate::error::Error;
use crate::messages::Message;
use crate::sessions::CachedSession;
use crate::signin::sessions::UserSessions;

/// The role to switch to.
#[derive(Debug, Deserialize)]
pub struct SwitchRoleBody {
    role: String,
}

/// The role was switched.
#[derive(Debug, Serialize)]
pub struct SwitchedRole {
    success: bool,
    current_role: RoleName,
    message: &'static str,
}

/// Makes another held role the active one; the token stays the same.
pub async fn switch_role(
    sessions: &UserSessions,
    caller: &CachedSession,
    body: SwitchRoleBody,
    language: Language,
) -> Result<SwitchedRole, Error> {
    let current_role = sessions.switch_role(caller, &body.role).await?;
    Ok(SwitchedRole { success: true, current_role, message: Message::ROLE_SWITCHED.text(language) })
}
