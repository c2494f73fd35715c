//! `POST /api/auth/logout`

use serde::Serialize;

use crate::domain::language::Language;
use crate::domain::phrase::Message;
use crate::error::Error;
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
    let message = Message::LoggedOut.text(language);
    Ok(LoggedOut { success: true, message })
}
