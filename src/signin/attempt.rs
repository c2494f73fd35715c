//! One attempt to sign in: who, how and from where, and the reason word of a failed one.

use crate::directory::{LoginRecord, LoginResult};
use crate::domain::client::Client;
use crate::domain::clock::Timestamp;
use crate::domain::device::ClientDevice;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::link::PlatformAccount;
use crate::domain::session::{LoginMethod, LoginSource, Stage};
use crate::error::{BadRequest, Error, Forbidden, Part};

/// An attempt to sign in, filled in as more becomes known.
#[derive(Debug, Clone)]
pub(super) struct Attempt<'a> {
    pub(super) method: LoginMethod,
    /// The session's login source; `None` while no page is known.
    pub(super) source: Option<LoginSource>,
    /// The web client whose page started the attempt.
    pub(super) client: Option<Client>,
    pub(super) device: &'a ClientDevice,
    /// The stage of the token to be issued.
    pub(super) stage: Stage,
    /// When the platform identified the employee, if that was before this attempt.
    pub(super) platform_sign_in_at: Option<Timestamp>,
    /// Set if the session starts stepped up.
    pub(super) stepped_up_until: Option<Timestamp>,
    /// The id of the local password that was verified.
    pub(super) password_id: Option<String>,
    /// The account of a connected corporation that signs in as the employee.
    pub(super) platform_account: Option<PlatformAccount>,
    /// The login log's reason where the client gets a less specific error.
    pub(super) internal_reason: Option<&'static str>,
    identity: Option<(CorpId, EmployeeId)>,
    evidence: Evidence,
}

/// What supports an attempt's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    /// Only the client's own claim.
    Claimed,
    /// The platform, a password or a ticket.
    Proved,
}

impl<'a> Attempt<'a> {
    /// An attempt with no known identity and no known page.
    pub(super) fn new(method: LoginMethod, device: &'a ClientDevice) -> Self {
        Self {
            method,
            source: None,
            client: None,
            device,
            stage: Stage::Full,
            platform_sign_in_at: None,
            stepped_up_until: None,
            password_id: None,
            platform_account: None,
            internal_reason: None,
            identity: None,
            evidence: Evidence::Claimed,
        }
    }

    /// Sets the web client, and with it the login source.
    pub(super) fn with_client(self, client: Option<Client>) -> Self {
        Self { client, source: client.map(Client::login_source).or(self.source), ..self }
    }

    /// Sets a login source that is not a web client.
    pub(super) fn with_source(self, source: LoginSource) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Sets an identity that was proved.
    pub(super) fn set_proved(&mut self, corp_id: &CorpId, employee_id: &EmployeeId) {
        self.identity = Some((corp_id.clone(), employee_id.clone()));
        self.evidence = Evidence::Proved;
    }

    /// Sets the identity that the client claims, whether or not the employee exists.
    pub(super) fn set_claimed(&mut self, corp_id: &CorpId, employee_id: &EmployeeId) {
        self.identity = Some((corp_id.clone(), employee_id.clone()));
        self.evidence = Evidence::Claimed;
    }

    /// The evidence for the identity; `None` without an identity.
    pub(super) fn evidence(&self) -> Option<Evidence> {
        self.identity.as_ref().map(|_| self.evidence)
    }

    /// The label of `signin_total{client}`.
    pub(super) fn client_label(&self) -> &'static str {
        let source = self.source.map_or("none", LoginSource::as_str);
        self.client.map_or(source, Client::as_str)
    }

    /// The attempt as a row of the login log.
    pub(super) fn record(&self, result: LoginResult) -> LoginRecord<'_> {
        let (corp_id, employee_id) = self.identity.as_ref().map_or(("", ""), |(corp, id)| (corp.as_str(), id.as_str()));
        LoginRecord {
            corp_id,
            employee_id,
            method: self.method,
            source: self.source,
            client: self.client,
            address: &self.device.address,
            user_agent: &self.device.user_agent,
            platform_account: self.platform_account.as_ref(),
            request_id: &self.device.request_id,
            result,
        }
    }
}

/// The reason word of an error in the login log and the audit log.
pub(super) fn reason(error: &Error) -> &'static str {
    match error {
        Error::BadRequest(BadRequest::SignInDeclined | BadRequest::ScanDeclined) => "declined",
        Error::BadRequest(BadRequest::SignInFailed) => "platform_error",
        Error::BadRequest(BadRequest::SignInCode) => "invalid_code",
        Error::BadRequest(BadRequest::SignInFlow) => "invalid_flow",
        Error::BadRequest(BadRequest::TicketEnded) => "ticket_over",
        Error::BadRequest(_) => "bad_request",
        Error::Forbidden(Forbidden::EmployeeUnknown | Forbidden::NotAnEmployee) => "employee_unknown",
        Error::Forbidden(Forbidden::NoRole) => "no_role",
        Error::Forbidden(Forbidden::Disabled) => "disabled",
        Error::Forbidden(Forbidden::NotAnAgent) => "not_an_agent",
        Error::Forbidden(Forbidden::NotVisible) => "not_visible",
        Error::Forbidden(Forbidden::BindProof) => "no_proof",
        Error::Forbidden(Forbidden::LinkPending) => "link_pending",
        Error::Forbidden(Forbidden::LinkedToAnother) => "linked_to_another",
        Error::Forbidden(Forbidden::TooManyLinkRequests) => "too_many_link_requests",
        Error::Forbidden(Forbidden::LastAdmin) => "last_admin",
        Error::Forbidden(Forbidden::TooManyRoles) => "too_many_roles",
        Error::Forbidden(Forbidden::NoSuchEmployee) => "no_such_employee",
        Error::Forbidden(Forbidden::OtpNotOffered) => "not_offered",
        Error::Forbidden(_) => "forbidden",
        Error::PasswordWrong => "wrong_password",
        Error::PasswordNotSet => "no_password",
        Error::OldPasswordMissing => "old_password_missing",
        Error::OldPasswordWrong => "old_password_wrong",
        Error::StepUpRequired => "otp_missing",
        Error::SignInTooOld { .. } => "sign_in_too_old",
        Error::OtpWrong => "wrong_otp",
        Error::Locked { .. } => "locked",
        Error::Overloaded { .. } => "overloaded",
        Error::InvalidToken(_) => "revoked_meanwhile",
        Error::PlatformCircuitOpen { .. } => "platform_unavailable",
        Error::Unavailable { part, .. } | Error::Unexpected { part, .. } => match part {
            Part::PlatformSetup => "platform_configuration",
            Part::Platform => "platform_unavailable",
            Part::Store => "store_unavailable",
            Part::Directory => "directory_unavailable",
            Part::Gateway => "internal",
        },
        _ => "other",
    }
}
