//! Development sign-in: issues a token without the platform.

use std::sync::Arc;

use super::attempt::Attempt;
use super::issuer::{SessionIssuer, SignInGrant};
use super::login_log::LoginLog;
use crate::config::Development;
use crate::directory::Directory;
use crate::domain::device::ClientDevice;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::session::{LoginMethod, LoginSource};
use crate::error::{Error, Forbidden};

/// Most employees that the development endpoint lists.
const MAX_USERS: usize = 200;

/// Signs employees in without the platform, in development mode only.
pub struct DevelopmentSignIn {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) issuer: Arc<SessionIssuer>,
    pub(super) login_log: Arc<LoginLog>,
    pub(super) main_corp: CorpId,
    pub(super) mode: Development,
}

impl DevelopmentSignIn {
    /// Refuses outside development mode.
    pub fn check_enabled(&self) -> Result<(), Error> {
        match self.mode {
            Development::On => Ok(()),
            Development::Off => Err(Forbidden::Development.into()),
        }
    }

    /// Signs in an employee of the main corporation.
    pub async fn login(&self, employee_id: &str, device: &ClientDevice) -> Result<SignInGrant, Error> {
        self.check_enabled()?;
        let mut attempt = Attempt::new(LoginMethod::Dev, device).with_source(LoginSource::Dev);
        let issued = self.find_and_issue(employee_id, &mut attempt).await;
        if let Err(error) = &issued {
            self.login_log.record_refusal(&attempt, error).await;
        }
        issued
    }

    async fn find_and_issue(&self, employee_id: &str, attempt: &mut Attempt<'_>) -> Result<SignInGrant, Error> {
        if !EmployeeId::is_well_formed(employee_id) {
            return Err(Forbidden::EmployeeUnknown.into());
        }
        let employee_id = EmployeeId::new(employee_id);
        attempt.set_proved(&self.main_corp, &employee_id);
        let found = self.directory.employee(&self.main_corp, &employee_id).await?;
        let employee = found.ok_or(Forbidden::EmployeeUnknown)?;
        let roles = self.directory.roles(&employee.corp_id, &employee.employee_id).await?.or_default(None);
        let session = self.issuer.create(&employee, roles, attempt).await?;
        Ok(self.issuer.issue(&session))
    }

    /// The employees who can be signed in.
    pub async fn users(&self) -> Result<Vec<Employee>, Error> {
        self.check_enabled()?;
        Ok(self.directory.employees(None, MAX_USERS).await?)
    }
}
