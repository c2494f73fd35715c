//! `/api/admin/…`: who has which role, and ending what others have.

use serde::{Deserialize, Serialize};

use super::request::Query;
use crate::directory::{Assignment, AssignmentQuery, RoleChange};
use crate::domain::role::RoleName;
use crate::domain::write::WriteOutcome;
use crate::error::{BadRequest, Error};
use crate::sessions::CachedSession;
use crate::signin::admin::Administration;
use crate::signin::roles::RoleAction;

/// Most rows of a page.
const LONGEST_PAGE: usize = 200;

/// Rows of a page when nobody says.
const USUAL_PAGE: usize = 50;

/// A page of assignments.
#[derive(Debug, Serialize)]
pub struct UserRoles {
    items: Vec<Assignment>,
    total: usize,
    page: usize,
    page_size: usize,
}

/// Whose role, and which.
#[derive(Debug, Deserialize)]
pub struct UserRole {
    employee_id: String,
    role: String,
}

impl UserRole {
    pub(super) fn of(query: &Query) -> Result<Self, Error> {
        let text = |name| query.required(name).map(str::to_owned);
        Ok(Self { employee_id: text("employee_id")?, role: text("role")? })
    }

    /// The constant_time_eq, unless the query names another.
    pub(super) fn agreeing_with(self, query: &Query) -> Result<Self, Error> {
        for (name, own) in [("employee_id", &self.employee_id), ("role", &self.role)] {
            if query.optional(name)?.is_some_and(|other| other != own) {
                return Err(BadRequest::Parameter(name).into());
            }
        }
        Ok(self)
    }
}

/// What became of it.
#[derive(Debug, Serialize)]
pub struct Changed {
    success: bool,
    changed: bool,
    sessions: usize,
}

/// Lists assignments, by page and filter.
pub async fn user_roles(signin: &Administration, query: &Query) -> Result<UserRoles, Error> {
    let number = |name: &'static str, usual: usize, most: usize| match query.optional(name)? {
        None => Ok(usual),
        Some(text) => text.parse().ok().filter(|number| (1..=most).contains(number)).ok_or(BadRequest::Parameter(name)),
    };
    let (page, page_size) = (number("page", 1, 1_000_000)?, number("page_size", USUAL_PAGE, LONGEST_PAGE)?);
    let asked = AssignmentQuery {
        role: query.optional("role")?,
        employee_id: query.optional("employee_id")?,
        skip: (page - 1) * page_size,
        limit: page_size,
    };
    let found = signin.assignments(asked).await?;
    Ok(UserRoles { items: found.items, total: found.total, page, page_size })
}

/// What became of a change of roles.
#[derive(Debug, Serialize)]
pub struct RolesChanged {
    success: bool,
    changed: bool,
    sessions: usize,
    roles: Vec<RoleName>,
}

/// Gives or takes a role. Says which roles there are now: an agent's record may give the one that was taken.
pub async fn change(
    signin: &Administration,
    admin: &CachedSession,
    body: UserRole,
    change: RoleAction,
) -> Result<RolesChanged, Error> {
    let (changed, sessions) = signin.change_role(admin, &body.employee_id, &body.role, change).await?;
    let roles = signin.roles_now(&body.employee_id).await?;
    Ok(RolesChanged { success: true, changed: changed == RoleChange::Done, sessions, roles })
}

/// Ends every session of an employee.
pub async fn end_sessions(signin: &Administration, admin: &CachedSession, query: &Query) -> Result<Changed, Error> {
    let sessions = signin.end_sessions_of(admin, query.required("employee_id")?).await?;
    Ok(Changed { success: true, changed: sessions > 0, sessions })
}

/// Resets an employee's one-time-password device.
pub async fn reset_otp(signin: &Administration, admin: &CachedSession, query: &Query) -> Result<Changed, Error> {
    let taken = signin.reset_otp(admin, query.required("employee_id")?).await?;
    Ok(Changed { success: true, changed: taken == WriteOutcome::Applied, sessions: 0 })
}
