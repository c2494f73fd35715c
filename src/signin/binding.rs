//! Binding: a member of a connected corporation signs in as an existing employee.

use std::sync::Arc;

use super::attempt::Attempt;
use super::bind_proofs::{BindClaim, BindProofs};
use super::identity_provider::require_active;
use super::issuer::{IssuedToken, SessionIssuer};
use super::login_log::LoginLog;
use crate::config::BindProof;
use crate::directory::Directory;
use crate::domain::client::Client;
use crate::domain::device::ClientDevice;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::LoginMethod;
use crate::error::{Error, Forbidden};

/// The account that a client asks to bind.
#[derive(Debug, Clone, Copy)]
pub struct BindRequest<'a> {
    /// The employee id.
    pub employee_id: &'a str,
    /// The employee's corporation; the main one if absent.
    pub corp_id: Option<&'a str>,
    /// The bind proof from the client's cookie.
    pub proof: Option<&'a str>,
}

/// Binds members of connected corporations to employee accounts.
pub struct AccountBinding {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) issuer: Arc<SessionIssuer>,
    pub(super) login_log: Arc<LoginLog>,
    pub(super) proofs: Arc<BindProofs>,
    pub(super) required_proof: BindProof,
    pub(super) main_corp: CorpId,
}

impl AccountBinding {
    /// The claim of a valid bind proof.
    pub fn claim(&self, proof: &str) -> Option<BindClaim> {
        self.proofs.verify(proof)
    }

    /// Signs the client in as an existing employee.
    pub async fn bind(&self, request: BindRequest<'_>, device: &ClientDevice) -> Result<IssuedToken, Error> {
        let mut attempt = Attempt::new(LoginMethod::Bind, device).with_client(Some(Client::H5));
        let bound = self.check_and_issue(request, &mut attempt).await;
        if let Err(error) = &bound {
            self.login_log.record_refusal(&attempt, error).await;
        }
        bound
    }

    async fn check_and_issue(&self, request: BindRequest<'_>, attempt: &mut Attempt<'_>) -> Result<IssuedToken, Error> {
        let corp_id = request.corp_id.map_or_else(|| self.main_corp.clone(), CorpId::new);
        let well_formed = EmployeeId::is_well_formed(request.employee_id) && CorpId::is_well_formed(corp_id.as_str());
        let employee_id = EmployeeId::new(request.employee_id);
        if well_formed {
            attempt.set_claimed(&corp_id, &employee_id);
        }
        let claim = request.proof.and_then(|proof| self.proofs.verify(proof));
        if self.required_proof == BindProof::Platform {
            let claim = claim.as_ref().ok_or(Forbidden::BindProof)?;
            tracing::info!(
                target: "deskgate::audit",
                { linked.corp = claim.corp_id.as_str(), linked.member = claim.employee_id.as_str() },
                "bind requested by a member of a connected corporation"
            );
        }
        let found = if well_formed { self.directory.employee(&corp_id, &employee_id).await? } else { None };
        let employee = require_active(found.ok_or(Forbidden::EmployeeUnknown)?)?;
        let roles = self.directory.assigned_roles(&employee.corp_id, &employee.employee_id).await?;
        if roles.is_empty() {
            return Err(Forbidden::NoRole.into());
        }
        if let Some(claim) = &claim {
            self.proofs.use_up(claim)?;
        }
        let session = self.issuer.create(&employee, roles, attempt).await?;
        Ok(self.issuer.issue(&session))
    }
}
