//! What administrators do to others: roles, sessions, devices.

use std::sync::Arc;

use super::audit::{Audit, UNCHANGED, own_action};
use super::roles::{RoleAction, Roles};
use crate::directory::audit::{AuditRecord, Event};
use crate::directory::factors::Account;
use crate::directory::{AssignmentQuery, Assignments, Directory, RoleChange};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::RoleName;
use crate::domain::session::EndCause;
use crate::domain::write::WriteOutcome;
use crate::error::{BadRequest, Error, Forbidden};
use crate::sessions::{CachedSession, SessionCache};

/// What an administrator does to somebody's account.
fn to<'a>(
    admin: &'a CachedSession,
    corp_id: &'a CorpId,
    employee_id: &'a EmployeeId,
    event: Event,
    detail: &'a str,
) -> AuditRecord<'a> {
    let (corp_id, employee_id) = (corp_id.as_str(), employee_id.as_str());
    AuditRecord { corp_id, employee_id, ..own_action(&admin.session, event, detail) }
}

/// What administrators do to other employees' accounts.
pub struct Administration {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) roles: Roles,
    pub(super) audit: Audit,
    pub(super) main_corp: CorpId,
}

impl Administration {
    /// Who has which role, a page of it.
    pub async fn assignments(&self, asked: AssignmentQuery<'_>) -> Result<Assignments, Error> {
        Ok(self.directory.assignments_page(asked).await?)
    }

    /// Gives or takes a role of an employee of the main corporation. The last administrator stays one.
    pub async fn change_role(
        &self,
        admin: &CachedSession,
        employee_id: &str,
        role: &str,
        change: RoleAction,
    ) -> Result<(RoleChange, usize), Error> {
        if !RoleName::is_well_formed(role) {
            return Err(BadRequest::Parameter("role").into());
        }
        let (corp_id, employee_id) = self.employee_named(employee_id)?;
        let role = RoleName::new(role);
        let event = match change {
            RoleAction::Grant => Event::GrantRole,
            RoleAction::Take => Event::TakeRole,
        };
        let record = to(admin, &corp_id, &employee_id, event, role.as_str());
        let begun = self.audit.record(record).await?;
        let changed = match self.roles.change(&corp_id, &employee_id, &role, change).await {
            Ok((RoleChange::NoEmployee, _)) => Err(Forbidden::NoSuchEmployee.into()),
            Ok((RoleChange::LastAdmin, _)) => Err(Forbidden::LastAdmin.into()),
            Ok((RoleChange::TooMany, _)) => Err(Forbidden::TooManyRoles.into()),
            Ok((RoleChange::Unchanged, 0)) => {
                self.audit.mark_failed(begun, UNCHANGED).await;
                return Ok((RoleChange::Unchanged, 0));
            }
            Ok(changed) => Ok(changed),
            Err(fault) => Err(fault.into()),
        };
        self.audit.finish(begun, changed).await
    }

    /// The roles that an employee of the main corporation has, by assignment, by their agent's record or by default.
    pub async fn roles_now(&self, employee_id: &str) -> Result<Vec<RoleName>, Error> {
        let (corp_id, employee_id) = self.employee_named(employee_id)?;
        Ok(self.roles.effective(&corp_id, &employee_id).await?)
    }

    /// Ends every session of an employee. Returns how many there were.
    pub async fn end_sessions_of(&self, admin: &CachedSession, employee_id: &str) -> Result<usize, Error> {
        // By name alone: somebody who was removed may have left sessions behind.
        let (corp_id, employee_id) = self.employee_named(employee_id)?;
        let begun = self.audit.record(to(admin, &corp_id, &employee_id, Event::EndSessions, "")).await?;
        let ended = self.end_all_of(&corp_id, &employee_id).await;
        match ended {
            Ok(0) => self.audit.mark_failed(begun, UNCHANGED).await,
            ended => return self.audit.finish(begun, ended).await,
        }
        Ok(0)
    }

    async fn end_all_of(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<usize, Error> {
        let ended = self.sessions.end_all_of(corp_id, employee_id, EndCause::Operator).await?;
        if ended == 0 && self.directory.employee(corp_id, employee_id).await?.is_none() {
            return Err(Forbidden::NoSuchEmployee.into());
        }
        Ok(ended)
    }

    /// Removes an employee's one-time-password device, so that they can bind another.
    pub async fn reset_otp(&self, admin: &CachedSession, employee_id: &str) -> Result<WriteOutcome, Error> {
        let (corp_id, employee_id) = self.known_employee(employee_id).await?;
        let begun = self.audit.record(to(admin, &corp_id, &employee_id, Event::OtpReset, "")).await?;
        match self.remove_otp(Account { corp_id: &corp_id, employee_id: &employee_id }).await {
            Ok(WriteOutcome::Conflict) => self.audit.mark_failed(begun, UNCHANGED).await,
            taken => return self.audit.finish(begun, taken).await,
        }
        Ok(WriteOutcome::Conflict)
    }

    async fn remove_otp(&self, whose: Account<'_>) -> Result<WriteOutcome, Error> {
        let taken = self.directory.remove_otp(whose).await?;
        self.sessions.step_down(whose.corp_id, whose.employee_id).await?;
        Ok(taken)
    }

    async fn known_employee(&self, employee_id: &str) -> Result<(CorpId, EmployeeId), Error> {
        let (corp_id, employee_id) = self.employee_named(employee_id)?;
        match self.directory.employee(&corp_id, &employee_id).await? {
            Some(_) => Ok((corp_id, employee_id)),
            None => Err(Forbidden::NoSuchEmployee.into()),
        }
    }

    fn employee_named(&self, employee_id: &str) -> Result<(CorpId, EmployeeId), Error> {
        if !EmployeeId::is_well_formed(employee_id) {
            return Err(Forbidden::NoSuchEmployee.into());
        }
        Ok((self.main_corp.clone(), EmployeeId::new(employee_id)))
    }
}
