//! Binding: a member of a connected corporation takes up an existing employee account.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::attempt::Attempt;
use super::session::LoggedIn;
use super::{Device, SignIn};
use crate::config::BindProof;
use crate::domain::client::Client;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::LoginMethod;
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
        let mut attempt = Attempt::new(LoginMethod::Bind, device).at(Some(Client::H5));
        let bound = self.try_to_bind(binding, &mut attempt).await;
        if let Err(error) = &bound {
            self.record_refusal(&attempt, error).await;
        }
        bound
    }

    async fn try_to_bind(&self, binding: Binding<'_>, attempt: &mut Attempt<'_>) -> Result<LoggedIn, Error> {
        let corp_id = binding.corp_id.map_or_else(|| self.settings.main_corp.clone(), CorpId::new);
        let well_formed = EmployeeId::is_well_formed(binding.employee_id) && CorpId::is_well_formed(corp_id.as_str());
        let employee_id = EmployeeId::new(binding.employee_id);
        if well_formed {
            attempt.claims(&corp_id, &employee_id);
        }
        let claim = binding.proof.and_then(|proof| self.bind_claim(proof));
        if self.settings.bind_proof == BindProof::Platform {
            let claim = claim.as_ref().ok_or(Forbidden::BindProof)?;
            tracing::info!(
                target: "deskgate::audit",
                { linked.corp = claim.corp_id.as_str(), linked.member = claim.employee_id.as_str() },
                "a connected corporation's member binds"
            );
        }
        let found = if well_formed { self.directory.employee(&corp_id, &employee_id).await? } else { None };
        let employee = super::oauth2::active(found.ok_or(Forbidden::EmployeeUnknown)?)?;
        let roles = self.directory.assigned_roles(&employee.corp_id, &employee.employee_id).await?;
        if roles.is_empty() {
            return Err(Forbidden::NoRole.into());
        }
        if let Some(claim) = &claim
            && !self.spent_proofs.spend(&claim.nonce, claim.end, self.clock.now())
        {
            return Err(Forbidden::BindProof.into());
        }
        let session = self.begin(&employee, roles, attempt).await?;
        Ok(self.logged_in(&session))
    }
}

/// More proofs than people bind within the time of one.
const MOST_PROOFS: usize = 10_000;

/// Proofs that have bound somebody: none binds twice.
#[derive(Default)]
pub(super) struct SpentProofs {
    until: Mutex<HashMap<String, Timestamp>>,
}

impl SpentProofs {
    /// Whether this one had not been spent; it is now. Full of proofs that are still good, it refuses.
    fn spend(&self, nonce: &str, end: Timestamp, now: Timestamp) -> bool {
        self.sweep(now);
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.len() < MOST_PROOFS && until.insert(nonce.to_owned(), end).is_none()
    }

    /// Forgets those whose time is up.
    pub(super) fn sweep(&self, now: Timestamp) {
        self.until.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, end| now < *end);
    }
}
