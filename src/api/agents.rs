//! `POST /api/agents/login` and `POST /api/agents/password`.

use serde::{Deserialize, Serialize};

use crate::domain::device::ClientDevice;
use crate::domain::language::Language;
use crate::error::Error;
use crate::messages::Message;
use crate::sessions::CachedSession;
use crate::signin::agents::{AgentLogin, AgentSignIn};
use crate::signin::issuer::IssuedToken;

/// An agent's credentials. It has no `Debug`: it holds the password.
#[derive(Deserialize)]
pub struct AgentLoginBody {
    employee_id: String,
    code: Option<String>,
    password: Option<String>,
    otp: Option<String>,
}

/// A new password, and the one that it replaces.
#[derive(Deserialize)]
pub struct SetPasswordBody {
    old_password: Option<String>,
    new_password: String,
}

/// The password was set.
#[derive(Debug, Serialize)]
pub struct PasswordSet {
    success: bool,
    message: &'static str,
}

/// Signs an agent in.
pub async fn login(agents: &AgentSignIn, body: AgentLoginBody, device: &ClientDevice) -> Result<IssuedToken, Error> {
    let login = AgentLogin {
        employee_id: &body.employee_id,
        code: body.code.as_deref(),
        password: body.password.as_deref(),
        otp: body.otp.as_deref(),
    };
    agents.login(login, device).await
}

/// Sets the caller's password.
pub async fn set_password(
    agents: &AgentSignIn,
    caller: &CachedSession,
    body: SetPasswordBody,
    language: Language,
) -> Result<PasswordSet, Error> {
    agents.set_password(caller, body.old_password.as_deref(), &body.new_password).await?;
    Ok(PasswordSet { success: true, message: Message::PASSWORD_SET.text(language) })
}
