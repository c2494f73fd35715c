//! Development mode's way in: a token without the platform.

use super::attempt::Attempt;
use super::session::LoggedIn;
use super::{Development, Device, SignIn};
use crate::domain::employee::{Employee, EmployeeId};
use crate::domain::session::{LoginMethod, LoginSource};
use crate::error::{Error, Forbidden};

impl SignIn {
    /// Refuses outside development mode.
    pub fn development_only(&self) -> Result<(), Error> {
        match self.settings.development {
            Development::On => Ok(()),
            Development::Off => Err(Forbidden::Development.into()),
        }
    }

    /// Signs an employee of the main corporation in.
    pub async fn development_login(&self, employee_id: &str, device: &Device) -> Result<LoggedIn, Error> {
        self.development_only()?;
        let mut attempt = Attempt::new(LoginMethod::Dev, device).from(LoginSource::Dev);
        let logged_in = self.log_in_without_platform(employee_id, &mut attempt).await;
        if let Err(error) = &logged_in {
            self.record_refusal(&attempt, error).await;
        }
        logged_in
    }

    async fn log_in_without_platform(&self, employee_id: &str, attempt: &mut Attempt<'_>) -> Result<LoggedIn, Error> {
        if !EmployeeId::is_well_formed(employee_id) {
            return Err(Forbidden::EmployeeUnknown.into());
        }
        let employee_id = EmployeeId::new(employee_id);
        attempt.is(&self.settings.main_corp, &employee_id);
        let found = self.directory.employee(&self.settings.main_corp, &employee_id).await?;
        let employee = found.ok_or(Forbidden::EmployeeUnknown)?;
        let roles = self.directory.roles(&employee.corp_id, &employee.employee_id).await?;
        let session = self.begin(&employee, roles, attempt).await?;
        Ok(self.logged_in(&session))
    }

    /// Who can be signed in.
    pub async fn development_users(&self) -> Result<Vec<Employee>, Error> {
        self.development_only()?;
        Ok(self.directory.employees(None, 200).await?)
    }
}
