//! `GET /api/auth/me`

use serde::Serialize;

use crate::domain::role::RoleName;
use crate::domain::session::LoginSource;
use crate::error::Error;
use crate::sessions::CachedSession;

/// The current user.
#[derive(Debug, Serialize)]
pub struct Me {
    employee_id: String,
    name: String,
    avatar: String,
    department: String,
    roles: Vec<RoleName>,
    current_role: RoleName,
    login_source: LoginSource,
}

/// Tells who the caller is.
pub fn me(known: &CachedSession) -> Result<Me, Error> {
    let session = &known.session;
    Ok(Me {
        employee_id: session.employee_id.to_string(),
        name: session.name.clone(),
        avatar: session.avatar.clone(),
        department: session.department.clone(),
        roles: session.roles.clone(),
        current_role: session.current_role.clone(),
        login_source: session.login_source,
    })
}
