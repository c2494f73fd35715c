//! Binding: a member of a connected corporation asks for a link to an existing employee, and signs in once it is
//! approved.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::audit::Audit;
use super::bind_proofs::{BindClaim, BindProofs};
use super::identity_provider::require_active;
use super::issuer::{SessionIssuer, SignInGrant};
use super::login_log::LoginLog;
use super::roles::Roles;
use crate::config::{BindApproval, BindProof};
use crate::directory::Directory;
use crate::directory::audit::{AuditRecord, Event};
use crate::directory::factors::Account;
use crate::directory::links::{LinkApproval, LinkRequestOutcome};
use crate::domain::client::Client;
use crate::domain::device::ClientDevice;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::link::{Approval, Link, PlatformAccount};
use crate::domain::role::RoleName;
use crate::domain::session::LoginMethod;
use crate::error::{Error, Forbidden, chain};

/// Most pending links of one connected corporation. Counted per corporation, so that the members of one cannot keep
/// those of another from asking.
const MAX_PENDING_LINKS: usize = 1_000;

/// How long a request waits for approval before it is deleted.
const REQUEST_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

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
    pub(super) roles: Roles,
    pub(super) issuer: Arc<SessionIssuer>,
    pub(super) login_log: Arc<LoginLog>,
    pub(super) audit: Audit,
    pub(super) proofs: Arc<BindProofs>,
    pub(super) required_proof: BindProof,
    pub(super) approval: BindApproval,
    pub(super) main_corp: CorpId,
}

impl AccountBinding {
    /// The claim of a valid bind proof, and the link of its account.
    pub async fn claim(&self, proof: Option<&str>) -> Result<(BindClaim, Option<Link>), Error> {
        let claim = proof.and_then(|proof| self.proofs.verify(proof)).ok_or(Forbidden::BindProof)?;
        let approved = self.roles.approved_link(&claim.account).await?;
        let link = match approved {
            Some(link) => Some(link),
            None => self.directory.link(&claim.account).await?,
        };
        Ok((claim, link))
    }

    /// Signs the client in as an existing employee, or refuses until the link to that employee is approved.
    pub async fn bind(&self, request: BindRequest<'_>, device: &ClientDevice) -> Result<SignInGrant, Error> {
        let mut attempt = Attempt::new(LoginMethod::Bind, device).with_client(Some(Client::H5));
        let bound = self.check_and_issue(request, &mut attempt).await;
        if let Err(error) = &bound {
            self.login_log.record_refusal(&attempt, error).await;
        }
        bound
    }

    async fn check_and_issue(&self, request: BindRequest<'_>, attempt: &mut Attempt<'_>) -> Result<SignInGrant, Error> {
        let corp_id = request.corp_id.map_or_else(|| self.main_corp.clone(), CorpId::new);
        let well_formed = EmployeeId::is_well_formed(request.employee_id) && CorpId::is_well_formed(corp_id.as_str());
        let employee_id = EmployeeId::new(request.employee_id);
        if well_formed {
            attempt.set_claimed(&corp_id, &employee_id);
        }
        let claim = match self.required_proof {
            BindProof::None => None,
            BindProof::Platform => Some(self.claim(request.proof).await?),
        };
        attempt.platform_account = claim.as_ref().map(|(claim, _)| claim.account.clone());
        let found = if well_formed { self.directory.employee(&corp_id, &employee_id).await? } else { None };
        let employee = require_active(found.ok_or(Forbidden::EmployeeUnknown)?)?;
        let roles = self.directory.assigned_roles(&employee.corp_id, &employee.employee_id).await?;
        if roles.is_empty() {
            return Err(Forbidden::NoRole.into());
        }
        if let Some((claim, link)) = &claim {
            self.require_link(&claim.account, link.as_ref(), &employee).await?;
            self.proofs.use_up(claim, attempt.device).await?;
        }
        self.issue(&employee, roles, attempt).await
    }

    async fn issue(
        &self,
        employee: &Employee,
        roles: Vec<RoleName>,
        attempt: &mut Attempt<'_>,
    ) -> Result<SignInGrant, Error> {
        let session = self.issuer.create(employee, roles, attempt).await?;
        Ok(self.issuer.issue(&session))
    }

    /// Succeeds if the account's link to the employee is approved, or is now. Otherwise the account asks for the link.
    async fn require_link(
        &self,
        account: &PlatformAccount,
        link: Option<&Link>,
        employee: &Employee,
    ) -> Result<(), Error> {
        let Employee { corp_id, employee_id, .. } = employee;
        let same = link.is_some_and(|link| link.leads_to(corp_id, employee_id));
        match link.map(|link| link.approval.is_some()) {
            Some(true) if same => return Ok(()),
            Some(true) => return Err(Forbidden::LinkedToAnother.into()),
            _ => {}
        }
        if self.approval == BindApproval::None && self.roles.is_only_user(corp_id, employee_id).await? {
            return self.approve(account, employee).await;
        }
        if !same {
            self.request(account, employee).await?;
        }
        Err(Forbidden::LinkPending.into())
    }

    async fn approve(&self, account: &PlatformAccount, employee: &Employee) -> Result<(), Error> {
        let (by, detail) = (Approval::AUTOMATIC, account.to_string());
        let written = self.audit.record(record(employee, Event::ApproveLink, by, &detail)).await?;
        let approved = async {
            match self.directory.approve_link(account, account_of(employee), by).await? {
                LinkApproval::Done | LinkApproval::Unchanged => Ok(()),
                LinkApproval::LinkedToAnother => Err(Forbidden::LinkedToAnother.into()),
                LinkApproval::NoEmployee => Err(Forbidden::EmployeeUnknown.into()),
            }
        };
        self.audit.finish(written, approved.await).await
    }

    async fn request(&self, account: &PlatformAccount, employee: &Employee) -> Result<(), Error> {
        let by = account.to_string();
        let written = self.audit.record(record(employee, Event::RequestLink, &by, &by)).await?;
        let requested = async {
            match self.directory.request_link(account, account_of(employee), MAX_PENDING_LINKS).await? {
                LinkRequestOutcome::Requested => Ok(()),
                LinkRequestOutcome::AlreadyLinked => Err(Forbidden::LinkedToAnother.into()),
                LinkRequestOutcome::NoEmployee => Err(Forbidden::EmployeeUnknown.into()),
                LinkRequestOutcome::TooMany => Err(Forbidden::TooManyLinkRequests.into()),
            }
        };
        self.audit.finish(written, requested.await).await
    }

    /// Deletes requests that nobody has approved for long.
    pub(super) async fn prune(&self) {
        if let Err(error) = self.directory.prune_link_requests(REQUEST_LIFETIME).await {
            tracing::warn!(error = %chain(&error), "cannot prune the requests for links");
        }
    }
}

fn account_of(employee: &Employee) -> Account<'_> {
    Account { corp_id: &employee.corp_id, employee_id: &employee.employee_id }
}

fn record<'a>(employee: &'a Employee, event: Event, by: &'a str, detail: &'a str) -> AuditRecord<'a> {
    let (corp_id, employee_id) = (employee.corp_id.as_str(), employee.employee_id.as_str());
    AuditRecord { corp_id, employee_id, event, by, session_id: "", detail }
}
