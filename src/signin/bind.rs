//! Binding: a member of a connected corporation takes up an existing employee account.

use super::session::LoggedIn;
use super::{Device, SignIn};
use crate::config::BindProof;
use crate::domain::employee::{CorpId, Employee, EmployeeId, Standing};
use crate::domain::session::{LoginMethod, LoginSource};
use crate::error::{Error, Forbidden};

/// What a caller asks to be bound to.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// The employee.
    pub employee_id: &'a str,
    /// Their corporation; the main one when absent.
    pub corp_id: Option<&'a str>,
    /// The proof that the callback has set.
    pub proof: Option<&'a str>,
}

impl SignIn {
    /// Signs in as an existing employee.
    pub async fn bind(&self, binding: Binding<'_>, device: &Device) -> Result<LoggedIn, Error> {
        if self.settings.bind_proof == BindProof::Platform {
            let claim = binding.proof.and_then(|proof| self.bind_claim(proof));
            let claim = claim.ok_or(Forbidden::BindProof)?;
            tracing::info!(
                target: "deskgate::audit",
                { linked.corp = claim.corp_id.as_str(), linked.member = claim.employee_id.as_str() },
                "a connected corporation's member binds"
            );
        }
        let employee = self.bindable(&binding).await?;
        let roles = self.directory.assigned_roles(&employee.corp_id, &employee.employee_id).await?;
        let session = self.begin(&employee, roles, LoginMethod::Bind, LoginSource::H5, device).await?;
        Ok(self.logged_in(&session))
    }

    async fn bindable(&self, binding: &Binding<'_>) -> Result<Employee, Error> {
        let corp_id = binding.corp_id.map_or_else(|| self.settings.main_corp.clone(), CorpId::new);
        if !EmployeeId::is_well_formed(binding.employee_id) || !CorpId::is_well_formed(corp_id.as_str()) {
            return Err(Forbidden::EmployeeUnknown.into());
        }
        let found = self.directory.employee(&corp_id, &EmployeeId::new(binding.employee_id)).await?;
        match found {
            Some(employee) if employee.standing == Standing::Disabled => Err(Forbidden::Disabled.into()),
            Some(employee) => Ok(employee),
            None => Err(Forbidden::EmployeeUnknown.into()),
        }
    }
}
