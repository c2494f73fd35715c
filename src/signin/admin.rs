//! What administrators do to others: roles, sessions, devices.

use super::SignIn;
use super::audit::{UNCHANGED, own};
use super::roles::{Change, RoleFault};
use crate::directory::audit::{AuditRecord, Event};
use crate::directory::factors::Account;
use crate::directory::{AssignmentQuery, Assignments, RoleChange};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::RoleName;
use crate::domain::session::EndCause;
use crate::domain::write::WriteOutcome;
use crate::error::{BadRequest, Error, Forbidden};
use crate::sessions::CachedSession;

impl From<RoleFault> for Error {
    fn from(fault: RoleFault) -> Self {
        match fault {
            RoleFault::Directory(error) => error.into(),
            RoleFault::Store(error) => error.into(),
        }
    }
}

/// What an administrator does to somebody's account.
fn to<'a>(
    admin: &'a CachedSession,
    corp_id: &'a CorpId,
    employee_id: &'a EmployeeId,
    event: Event,
    detail: &'a str,
) -> AuditRecord<'a> {
    let (corp_id, employee_id) = (corp_id.as_str(), employee_id.as_str());
    AuditRecord { corp_id, employee_id, ..own(&admin.session, event, detail) }
}

impl SignIn {
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
        change: Change,
    ) -> Result<(RoleChange, usize), Error> {
        if !RoleName::is_well_formed(role) {
            return Err(BadRequest::Parameter("role").into());
        }
        let (corp_id, employee_id) = self.employee_named(employee_id)?;
        let role = RoleName::new(role);
        let event = match change {
            Change::Grant => Event::GrantRole,
            Change::Take => Event::TakeRole,
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
        self.audited(begun, changed).await
    }

    /// The roles that an employee of the main corporation has, by assignment, by their agent's record or by default.
    pub async fn roles_now(&self, employee_id: &str) -> Result<Vec<RoleName>, Error> {
        let (corp_id, employee_id) = self.employee_named(employee_id)?;
        Ok(self.roles.now(&corp_id, &employee_id).await?)
    }

    /// Ends every session of an employee. Returns how many there were.
    pub async fn end_sessions_of(&self, admin: &CachedSession, employee_id: &str) -> Result<usize, Error> {
        // By name alone: somebody who was removed may have left sessions behind.
        let (corp_id, employee_id) = self.employee_named(employee_id)?;
        let begun = self.audit.record(to(admin, &corp_id, &employee_id, Event::EndSessions, "")).await?;
        let ended = self.end_all_of(&corp_id, &employee_id).await;
        match ended {
            Ok(0) => self.audit.mark_failed(begun, UNCHANGED).await,
            ended => return self.audited(begun, ended).await,
        }
        Ok(0)
    }

    async fn end_all_of(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<usize, Error> {
        let ended = self.live.end_all_of(corp_id, employee_id, EndCause::Operator).await?;
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
            taken => return self.audited(begun, taken).await,
        }
        Ok(WriteOutcome::Conflict)
    }

    async fn remove_otp(&self, whose: Account<'_>) -> Result<WriteOutcome, Error> {
        let taken = self.directory.remove_otp(whose).await?;
        self.live.step_down(whose.corp_id, whose.employee_id).await?;
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
        Ok((self.settings.main_corp.clone(), EmployeeId::new(employee_id)))
    }
}
