//! `POST /api/auth/logout`

use serde::Serialize;

use crate::domain::language::Language;
use crate::error::Error;
use crate::messages::Message;
use crate::sessions::CachedSession;
use crate::signin::sessions::UserSessions;

/// The session has ended.
#[derive(Debug, Serialize)]
pub struct LoggedOut {
    success: bool,
    message: &'static str,
}

/// Ends the caller's session on every gateway, and closes its open WebSockets.
pub async fn logout(sessions: &UserSessions, caller: &CachedSession, language: Language) -> Result<LoggedOut, Error> {
    sessions.logout(caller).await?;
    Ok(LoggedOut { success: true, message: Message::LOGGED_OUT.text(language) })
}
