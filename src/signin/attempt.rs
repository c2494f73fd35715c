//! One try to sign in: who, how and from where, and the record that it leaves. Every try is in an audit line and in
//! `signin_total`, whether it succeeds or not; and in the login log, but for refused ones that prove nothing when there
//! are too many of them.

use std::sync::{Mutex, PoisonError};

use super::{Device, SignIn};
use crate::directory::{LoginRecord, LoginResult};
use crate::domain::client::Client;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{LoginMethod, LoginSource, Stage};
use crate::error::{BadRequest, Error, Forbidden, Part, chain};

/// A try to sign in, as far as it has got.
#[derive(Debug, Clone)]
pub(super) struct Attempt<'a> {
    pub(super) method: LoginMethod,
    /// What the session will say of itself; nothing where no page is known yet.
    pub(super) source: Option<LoginSource>,
    /// The web client that asked.
    pub(super) client: Option<Client>,
    pub(super) device: &'a Device,
    /// What the token will open.
    pub(super) stage: Stage,
    /// Until when the session is stepped up from its start.
    pub(super) stepped_up_until: Option<Timestamp>,
    /// The local password that was right.
    pub(super) password_id: Option<String>,
    /// What the login log says where the caller must not be told.
    pub(super) internal_reason: Option<&'static str>,
    /// Who it is, once that is known.
    who: Option<(CorpId, EmployeeId)>,
    /// Why it is them.
    by: Evidence,
}

/// What stands behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// The word of whoever tries.
    Claimed,
    /// More than that: the platform, a password, a ticket.
    Proved,
}

impl<'a> Attempt<'a> {
    /// A try by nobody known, at no page known.
    pub(super) fn new(method: LoginMethod, device: &'a Device) -> Self {
        Self {
            method,
            source: None,
            client: None,
            device,
            stage: Stage::Full,
            stepped_up_until: None,
            password_id: None,
            internal_reason: None,
            who: None,
            by: Evidence::Claimed,
        }
    }

    /// The same at a page of this client.
    pub(super) fn at(self, client: Option<Client>) -> Self {
        Self { client, source: client.map(Client::login_source).or(self.source), ..self }
    }

    /// The same with a source that is not a client.
    pub(super) fn from(self, source: LoginSource) -> Self {
        Self { source: Some(source), ..self }
    }

    /// It has turned out who tries.
    pub(super) fn is(&mut self, corp_id: &CorpId, employee_id: &EmployeeId) {
        self.who = Some((corp_id.clone(), employee_id.clone()));
        self.by = Evidence::Proved;
    }

    /// Whoever tries says that it is them, whether there is such an employee or not.
    pub(super) fn claims(&mut self, corp_id: &CorpId, employee_id: &EmployeeId) {
        self.who = Some((corp_id.clone(), employee_id.clone()));
        self.by = Evidence::Claimed;
    }

    /// The label of `signin_total{client}`.
    fn client_label(&self) -> &'static str {
        let source = self.source.map_or("none", LoginSource::as_str);
        self.client.map_or(source, Client::as_str)
    }

    fn record(&self, result: LoginResult) -> LoginRecord<'_> {
        let (corp_id, employee_id) = self.who.as_ref().map_or(("", ""), |(corp, id)| (corp.as_str(), id.as_str()));
        LoginRecord {
            corp_id,
            employee_id,
            method: self.method,
            source: self.source,
            client: self.client,
            address: &self.device.address,
            user_agent: &self.device.user_agent,
            result,
        }
    }
}

/// How many refused tries of a kind that anybody can make go into the login log in a minute. People who refuse at the
/// platform are few, and so are agents who mistype.
const UNPROVED: u32 = 60;

/// Counts those tries. The two kinds have a count each, so that neither crowds out the other.
#[derive(Debug, Default)]
pub(super) struct UnverifiedLogCap {
    nameless: Mutex<Minute>,
    /// CachedSession names and unknown ones together: were only the unknown ones capped, then beyond the cap a refusal that
    /// writes a row would take longer than one that writes none, and would tell whose name is known. What shows so is
    /// that the cap is reached, whoever is named.
    claimed: Mutex<Minute>,
}

/// A minute, and how many there were in it.
#[derive(Debug, Default)]
struct Minute {
    number: i64,
    count: u32,
}

impl UnverifiedLogCap {
    /// Whether one more goes into the login log.
    fn admit(&self, attempt: &Attempt<'_>, now: Timestamp) -> bool {
        let counted = match (&attempt.who, attempt.by) {
            (Some(_), Evidence::Proved) => return true,
            (Some(_), Evidence::Claimed) => &self.claimed,
            (None, _) => &self.nameless,
        };
        let mut minute = counted.lock().unwrap_or_else(PoisonError::into_inner);
        let number = now.seconds().div_euclid(60);
        if minute.number != number {
            *minute = Minute { number, count: 0 };
        }
        minute.count = minute.count.saturating_add(1);
        minute.count <= UNPROVED
    }
}

impl SignIn {
    /// Puts a success down. It comes before the session exists, and one that cannot be put down is none.
    pub(super) async fn record_success(&self, attempt: &Attempt<'_>) -> Result<(), Error> {
        Ok(self.directory.record_login(attempt.record(LoginResult::Success)).await?)
    }

    /// Puts a failure down. One that cannot be put down is refused all the same.
    pub(super) async fn record_refusal(&self, attempt: &Attempt<'_>, error: &Error) {
        self.record_end(attempt, attempt.internal_reason.unwrap_or_else(|| reason(error)), &chain(error)).await;
    }

    /// Puts down that somebody must bind first.
    pub(super) async fn record_unbound(&self, attempt: &Attempt<'_>) {
        self.record_end(attempt, "unbound", "a connected corporation's member, of no employee yet").await;
    }

    async fn record_end(&self, attempt: &Attempt<'_>, reason: &'static str, told: &str) {
        let record = attempt.record(LoginResult::Refused(reason));
        tracing::info!(
            target: "deskgate::audit",
            { request.id = &*attempt.device.request_id, employee.id = record.employee_id, corp.id = record.corp_id, login.method = record.method.as_str(),
              login.client = attempt.client_label(), client.address = record.address, reason = told },
            "sign-in refused: {reason}"
        );
        self.count(attempt, "refused");
        // Whoever proves nothing could fill the table: so many in a minute are kept, the others are told above.
        if !self.unverified_log_cap.admit(attempt, self.clock.now()) {
            return;
        }
        if let Err(fault) = self.directory.record_login(record).await {
            tracing::error!(error = %chain(&fault), "a refused sign-in is missing in the login log");
        }
    }

    /// Counts how a try ended.
    pub(super) fn count(&self, attempt: &Attempt<'_>, result: &'static str) {
        self.metrics.signin.with_label_values(&[attempt.method.as_str(), attempt.client_label(), result]).inc();
    }
}

/// The word for the login log.
pub(super) fn reason(error: &Error) -> &'static str {
    match error {
        Error::BadRequest(BadRequest::SignInDeclined) => "declined",
        Error::BadRequest(BadRequest::SignInFailed) => "platform_error",
        Error::BadRequest(BadRequest::SignInCode) => "invalid_code",
        Error::BadRequest(BadRequest::SignInFlow) => "invalid_flow",
        Error::BadRequest(BadRequest::TicketOver) => "ticket_over",
        Error::BadRequest(_) => "bad_request",
        Error::Forbidden(Forbidden::EmployeeUnknown | Forbidden::NotAnEmployee) => "employee_unknown",
        Error::Forbidden(Forbidden::NoRole) => "no_role",
        Error::Forbidden(Forbidden::Disabled) => "disabled",
        Error::Forbidden(Forbidden::NotAnAgent) => "no_agent",
        Error::Forbidden(Forbidden::NotVisible) => "not_visible",
        Error::Forbidden(Forbidden::BindProof) => "no_proof",
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
