//! Development mode's way in: a token without the platform.

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
        if !EmployeeId::is_well_formed(employee_id) {
            return Err(Forbidden::EmployeeUnknown.into());
        }
        let found = self.directory.employee(&self.settings.main_corp, &EmployeeId::new(employee_id)).await?;
        let employee = found.ok_or(Forbidden::EmployeeUnknown)?;
        let roles = self.directory.roles(&employee.corp_id, &employee.employee_id).await?;
        let session = self.begin(&employee, roles, LoginMethod::Dev, LoginSource::Dev, device).await?;
        Ok(self.logged_in(&session))
    }

    /// Who can be signed in.
    pub async fn development_users(&self) -> Result<Vec<Employee>, Error> {
        self.development_only()?;
        Ok(self.directory.employees(200).await?)
    }
}
