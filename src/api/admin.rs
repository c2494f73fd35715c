//! `/api/admin/…`: role assignments, other employees' sessions and devices, within the caller's own corporation.

use serde::{Deserialize, Serialize};

use super::request::Query;
use crate::admin::{Actor, Admin, AdminError, Effect};
use crate::directory::{Assignment, AssignmentQuery};
use crate::domain::role::RoleName;
use crate::error::{BadRequest, Error};
use crate::sessions::CachedSession;

const MAX_PAGE_SIZE: usize = 200;

const DEFAULT_PAGE_SIZE: usize = 50;

const MAX_PAGE: usize = 1_000_000;

/// The page that a query asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListPage {
    pub(super) number: usize,
    pub(super) size: usize,
}

impl ListPage {
    /// Reads `page` and `page_size`.
    pub(super) fn of(query: &Query) -> Result<Self, Error> {
        let number = |name: &'static str, default: usize, max: usize| match query.optional(name)? {
            None => Ok(default),
            Some(text) => {
                text.parse().ok().filter(|number| (1..=max).contains(number)).ok_or(BadRequest::Parameter(name))
            }
        };
        let size = number("page_size", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
        Ok(Self { number: number("page", 1, MAX_PAGE)?, size })
    }

    /// How many rows come before it.
    pub(super) fn skip(self) -> usize {
        (self.number - 1) * self.size
    }
}

/// A page of role assignments.
#[derive(Debug, Serialize)]
pub struct UserRoles {
    items: Vec<Assignment>,
    total: usize,
    page: usize,
    page_size: usize,
}

/// The assignment to grant or take.
#[derive(Debug, Deserialize)]
pub struct UserRole {
    employee_id: String,
    role: String,
}

impl UserRole {
    /// Reads it from the query.
    pub(super) fn of(query: &Query) -> Result<Self, Error> {
        let text = |name| query.required(name).map(str::to_owned);
        Ok(Self { employee_id: text("employee_id")?, role: text("role")? })
    }

    /// Fails if the query names another employee or role than the body.
    pub(super) fn agreeing_with(self, query: &Query) -> Result<Self, Error> {
        for (name, own) in [("employee_id", &self.employee_id), ("role", &self.role)] {
            if query.optional(name)?.is_some_and(|other| other != own) {
                return Err(BadRequest::Parameter(name).into());
            }
        }
        Ok(self)
    }

    fn role_name(&self) -> Result<RoleName, AdminError> {
        if RoleName::is_well_formed(&self.role) {
            Ok(RoleName::new(self.role.as_str()))
        } else {
            Err(AdminError::InvalidRoleName(self.role.clone()))
        }
    }
}

/// The answer to ending sessions, resetting a device or changing a link.
#[derive(Debug, Serialize)]
pub struct AccountUpdate {
    success: bool,
    changed: bool,
    sessions: usize,
}

impl From<Effect> for AccountUpdate {
    fn from(effect: Effect) -> Self {
        Self { success: true, changed: effect.changed, sessions: effect.sessions }
    }
}

/// The answer to a role change.
#[derive(Debug, Serialize)]
pub struct UserRoleUpdate {
    success: bool,
    changed: bool,
    sessions: usize,
    /// The roles that the employee has now; without any, they cannot sign in.
    roles: Vec<RoleName>,
}

/// Lists the role assignments of the caller's corporation, paged and filtered by role or employee.
pub async fn user_roles(admin: &Admin, caller: &CachedSession, query: &Query) -> Result<UserRoles, Error> {
    let page = ListPage::of(query)?;
    let assignments = admin
        .roles
        .list(AssignmentQuery {
            corp_id: Some(&caller.session.corp_id),
            role: query.optional("role")?,
            employee_id: query.optional("employee_id")?,
            skip: page.skip(),
            limit: page.size,
        })
        .await?;
    Ok(UserRoles { items: assignments.items, total: assignments.total, page: page.number, page_size: page.size })
}

/// Grants a role to an employee of the caller's corporation.
pub async fn grant_role(admin: &Admin, caller: &CachedSession, body: UserRole) -> Result<UserRoleUpdate, Error> {
    let role = body.role_name()?;
    let account = admin.colleague(&caller.session, &body.employee_id)?;
    let actor = Actor::Administrator(&caller.session);
    let effect = admin.roles.grant(actor, account.as_account(), &role).await?;
    Ok(role_update(effect, admin.roles.effective(account.as_account()).await?))
}

/// Takes a role from an employee of the caller's corporation.
pub async fn take_role(admin: &Admin, caller: &CachedSession, body: UserRole) -> Result<UserRoleUpdate, Error> {
    let role = body.role_name()?;
    let account = admin.colleague(&caller.session, &body.employee_id)?;
    let actor = Actor::Administrator(&caller.session);
    let effect = admin.roles.take(actor, account.as_account(), &role).await?;
    Ok(role_update(effect, admin.roles.effective(account.as_account()).await?))
}

fn role_update(effect: Effect, roles: Vec<RoleName>) -> UserRoleUpdate {
    UserRoleUpdate { success: true, changed: effect.changed, sessions: effect.sessions, roles }
}

/// Ends every session of an employee of the caller's corporation.
pub async fn end_sessions(admin: &Admin, caller: &CachedSession, query: &Query) -> Result<AccountUpdate, Error> {
    let account = admin.colleague(&caller.session, query.required("employee_id")?)?;
    Ok(admin.sessions.end_all(Actor::Administrator(&caller.session), account.as_account()).await?.into())
}

/// Removes the one-time-password device of an employee of the caller's corporation.
pub async fn reset_otp(admin: &Admin, caller: &CachedSession, query: &Query) -> Result<AccountUpdate, Error> {
    let account = admin.colleague(&caller.session, query.required("employee_id")?)?;
    let effect = admin.devices.reset(Actor::Administrator(&caller.session), account.as_account()).await?;
    Ok(AccountUpdate { success: true, changed: effect.changed, sessions: 0 })
}
