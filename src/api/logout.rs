//! `POST /api/auth/logout`

use serde::Serialize;

use crate::domain::language::Language;
use crate::error::Error;
use crate::messages::Message;
use crate::sessions::CachedSession;
use crate::signin::SignIn;

/// The answer.
#[derive(Debug, Serialize)]
pub struct LoggedOut {
    success: bool,
    message: &'static str,
}

/// Ends the caller's session, on every gateway and in every open socket.
pub async fn logout(signin: &SignIn, known: &CachedSession, language: Language) -> Result<LoggedOut, Error> {
    signin.logout(known).await?;
    let message = Message::LOGGED_OUT.text(language);
    Ok(LoggedOut { success: true, message })
}
