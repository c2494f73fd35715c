//! `POST /api/agents/login` and `POST /api/agents/password`.

use serde::{Deserialize, Serialize};

use crate::domain::language::Language;
use crate::error::Error;
use crate::messages::Message;
use crate::sessions::CachedSession;
use crate::signin::agent::AgentLogin;
use crate::signin::session::LoggedIn;
use crate::signin::{Device, SignIn};

/// What an agent signs in with.
#[derive(Deserialize)]
pub struct Login {
    employee_id: String,
    code: Option<String>,
    password: Option<String>,
    otp: Option<String>,
}

/// A new password, and the old one if there is one.
#[derive(Deserialize)]
pub struct Password {
    old_password: Option<String>,
    new_password: String,
}

/// It is set.
#[derive(Debug, Serialize)]
pub struct PasswordSet {
    success: bool,
    message: &'static str,
}

/// Signs an agent in.
pub async fn login(signin: &SignIn, body: Login, device: &Device) -> Result<LoggedIn, Error> {
    let ask = AgentLogin {
        employee_id: &body.employee_id,
        code: body.code.as_deref(),
        password: body.password.as_deref(),
        otp: body.otp.as_deref(),
    };
    signin.agent_login(ask, device).await
}

/// Sets the caller's password.
pub async fn password(
    signin: &SignIn,
    caller: &CachedSession,
    body: Password,
    language: Language,
) -> Result<PasswordSet, Error> {
    signin.set_password(caller, body.old_password.as_deref(), &body.new_password).await?;
    let message = Message::PASSWORD_SET.text(language);
    Ok(PasswordSet { success: true, message })
}
