//! `GET /api/auth/me`

use serde::Serialize;

use crate::domain::role::RoleName;
use crate::domain::session::LoginSource;
use crate::sessions::CachedSession;

/// The current user.
#[derive(Debug, Serialize)]
pub struct CurrentUser {
    employee_id: String,
    name: String,
    avatar: String,
    department: String,
    roles: Vec<RoleName>,
    current_role: RoleName,
    login_source: LoginSource,
}

/// Describes the caller.
pub fn me(caller: &CachedSession) -> CurrentUser {
    let session = &caller.session;
    CurrentUser {
        employee_id: session.employee_id.to_string(),
        name: session.name.clone(),
        avatar: session.avatar.clone(),
        department: session.department.clone(),
        roles: session.roles.clone(),
        current_role: session.current_role.clone(),
        login_source: session.login_source,
    }
}
