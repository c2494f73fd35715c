//! `POST /api/auth/logout`

use serde::Serialize;

use crate::domain::language::Language;
use crate::domain::phrase::Phrase;
use crate::error::Error;
use crate::signin::SignIn;
use crate::store::live::Known;

/// The answer.
#[derive(Debug, Serialize)]
pub struct LoggedOut {
    success: bool,
    message: &'static str,
}

/// Ends the caller's session, on every gateway and in every open socket.
pub async fn logout(signin: &SignIn, known: &Known, language: Language) -> Result<LoggedOut, Error> {
    signin.logout(known).await?;
    let message = Phrase::LoggedOut.text(language);
    Ok(LoggedOut { success: true, message })
}
