//! `POST /api/auth/bind`

use serde::Deserialize;

use super::incoming::Incoming;
use super::oauth2_callback::BIND_COOKIE;
use crate::error::Error;
use crate::signin::SignIn;
use crate::signin::bind::Binding;
use crate::signin::session::LoggedIn;

/// What is asked.
#[derive(Debug, Deserialize)]
pub struct Bind {
    employee_id: String,
    corp_id: Option<String>,
}

/// Binds the caller to an existing employee and signs them in.
pub async fn bind(signin: &SignIn, request: Bind, incoming: &Incoming) -> Result<LoggedIn, Error> {
    let binding = Binding {
        employee_id: &request.employee_id,
        corp_id: request.corp_id.as_deref(),
        proof: incoming.cookie(BIND_COOKIE),
    };
    signin.bind(binding, &incoming.device).await
}
