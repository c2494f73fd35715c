//! Agent sign-in: the platform first, a local password as fallback.
//!
//! An unauthenticated client must not learn whether an agent exists or is disabled: the errors are the same, and so is the
//! work behind them, down to what is read from the directory and written to it. Differences only show after the right
//! password. Whether an agent has a password at all is revealed by 1012, unless `agents.conceal` is set.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::audit::Audit;
use super::devices::Devices;
use super::enrolment::Enrolment;
use super::identity_provider::IdentityProvider;
use super::issuer::{SessionIssuer, SignInGrant};
use super::lockouts::Lockouts;
use super::login_log::LoginLog;
use super::membership::Membership;
use super::password::{self, Passwords};
use super::roles::Roles;
use crate::config::Concealment;
use crate::directory::Directory;
use crate::directory::factors::{Account, Agent};
use crate::domain::clock::Clock;
use crate::domain::device::ClientDevice;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::lockout::FailedAttempts;
use crate::domain::session::{EndCause, LoginMethod, LoginSource, Stage};
use crate::error::{BadRequest, Error, Forbidden};
use crate::metrics::Metrics;
use crate::sessions::SessionCache;
use crate::token::vault::Vault;

mod change_password;

mod password_login;

/// An agent's credentials.
#[derive(Clone, Copy)]
pub struct AgentLogin<'a> {
    /// The name that the agent typed.
    pub employee_id: &'a str,
    /// A platform code.
    pub code: Option<&'a str>,
    /// The local password.
    pub password: Option<&'a str>,
    /// A one-time password.
    pub otp: Option<&'a str>,
}

/// An active employee with an agent record.
struct AgentAccount {
    employee: Employee,
    agent: Agent,
}

impl AgentAccount {
    fn account(&self) -> Account<'_> {
        Account { corp_id: &self.employee.corp_id, employee_id: &self.employee.employee_id }
    }

    fn password_id(&self) -> Option<&str> {
        self.agent.password.as_ref().map(|password| password.id.as_str())
    }
}

/// What was known of an agent's one-time-password device when the session was issued.
enum DeviceCheck {
    /// No device was bound.
    NoDevice,
    /// A device was bound, and the platform's word was enough.
    NotAsked,
    /// A code of the device with this encrypted secret was right.
    Passed(String),
}

/// Agent sign-in and agents' local passwords.
pub struct AgentSignIn {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) provider: Arc<IdentityProvider>,
    pub(super) membership: Arc<Membership>,
    pub(super) passwords: Arc<Passwords>,
    pub(super) devices: Devices,
    pub(super) lockouts: Lockouts,
    pub(super) roles: Roles,
    pub(super) issuer: Arc<SessionIssuer>,
    pub(super) login_log: Arc<LoginLog>,
    pub(super) audit: Audit,
    pub(super) vault: Arc<Vault>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) main_corp: CorpId,
    pub(super) conceal: Concealment,
    /// How long a session stays stepped up after a one-time password.
    pub(super) step_up_lifetime: Duration,
    pub(super) enrolment: Enrolment,
}

impl AgentSignIn {
    /// Signs an agent in.
    pub async fn login(&self, login: AgentLogin<'_>, device: &ClientDevice) -> Result<SignInGrant, Error> {
        let mut attempt = Attempt::new(LoginMethod::Password, device).with_source(LoginSource::Agent);
        let issued = self.authenticate(login, &mut attempt).await;
        if let Err(error) = &issued {
            self.login_log.record_refusal(&attempt, error).await;
        }
        issued
    }

    async fn authenticate(&self, login: AgentLogin<'_>, attempt: &mut Attempt<'_>) -> Result<SignInGrant, Error> {
        if let Some(code) = login.code {
            match self.identify_agent(login.employee_id, code, attempt).await {
                Ok(agent) => {
                    attempt.method = LoginMethod::Oauth2;
                    let device = match (self.devices.state(agent.account()).await?.secret, login.otp) {
                        (None, _) => DeviceCheck::NoDevice,
                        (Some(_), None) => DeviceCheck::NotAsked,
                        (Some(_), Some(otp)) => self.verify_otp(&agent, otp, attempt).await?,
                    };
                    return self.issue(&agent, &device, None, attempt).await;
                }
                Err(error) if login.password.is_none() || is_final(&error) => return Err(error),
                // The platform could not identify the agent, so the password is checked.
                Err(_) => attempt.platform_account = None,
            }
        }
        let password = login.password.ok_or(BadRequest::Missing("password"))?;
        password::check_length(password).map_err(|fault| BadRequest::NewPassword(fault.message()))?;
        let (agent, device, failed_attempts) = self.verify_password(login, password, attempt).await?;
        // Only now: a question before the right password would show in the response time which agents exist.
        self.membership.admit_by_password(&agent.employee).await?;
        self.issue(&agent, &device, Some(failed_attempts), attempt).await
    }

    /// Reads password and device again after the session is stored. A password that was removed during the check did
    /// not end the new session, a device that was bound meanwhile was not asked for a code, and a device that was
    /// replaced or removed did not end the step-up by its code.
    async fn recheck_factors(
        &self,
        agent: &AgentAccount,
        device: &DeviceCheck,
        attempt: &Attempt<'_>,
    ) -> Result<(), Error> {
        if attempt.password_id.is_some() {
            let password = self.directory.agent(agent.account()).await?.and_then(|agent| agent.password);
            if password.map(|password| password.id) != attempt.password_id {
                return Err(Error::PasswordWrong);
            }
        }
        let in_use = self.devices.state(agent.account()).await?.secret;
        match device {
            DeviceCheck::NoDevice if attempt.password_id.is_some() && in_use.is_some() => Err(Error::StepUpRequired),
            DeviceCheck::Passed(secret) if in_use.as_ref() != Some(secret) => Err(Error::OtpWrong),
            DeviceCheck::NoDevice | DeviceCheck::NotAsked | DeviceCheck::Passed(_) => Ok(()),
        }
    }

    /// The agent whom the platform identifies, if it is the one who wants to sign in.
    async fn identify_agent(
        &self,
        employee_id: &str,
        code: &str,
        attempt: &mut Attempt<'_>,
    ) -> Result<AgentAccount, Error> {
        let employee = self.provider.identify_employee(code, attempt).await?;
        if EmployeeId::folded(employee.employee_id.as_str()) != EmployeeId::folded(employee_id) {
            return Err(Forbidden::EmployeeUnknown.into());
        }
        let account = Account { corp_id: &employee.corp_id, employee_id: &employee.employee_id };
        let agent = self.directory.agent(account).await?.ok_or(Forbidden::NotAnAgent)?;
        Ok(AgentAccount { employee, agent })
    }

    /// Verifies a one-time password and starts the session stepped up. A code works once, so the agent would otherwise
    /// have to wait for the next one to reach a step-up rule.
    async fn verify_otp(
        &self,
        agent: &AgentAccount,
        otp: &str,
        attempt: &mut Attempt<'_>,
    ) -> Result<DeviceCheck, Error> {
        let secret = self.devices.verify(agent.account(), otp).await?;
        attempt.stepped_up_until = Some(self.clock.now().plus(self.step_up_lifetime));
        Ok(DeviceCheck::Passed(secret))
    }

    /// Issues the token; a half-authenticated one if a device is required and none is bound. Only after a platform
    /// sign-in can it bind one: a password alone enrols no factor. Ends the session if a factor changed meanwhile.
    async fn issue(
        &self,
        agent: &AgentAccount,
        device: &DeviceCheck,
        failed_attempts: Option<FailedAttempts>,
        attempt: &mut Attempt<'_>,
    ) -> Result<SignInGrant, Error> {
        if agent.agent.otp_required && matches!(device, DeviceCheck::NoDevice) {
            attempt.stage = Stage::OtpBinding;
        }
        let roles = self.roles.for_sign_in(&agent.employee).await?;
        let session = self.issuer.create(&agent.employee, roles, attempt).await?;
        if let Err(error) = self.recheck_factors(agent, device, attempt).await {
            self.sessions.end(&session.id, EndCause::Operator).await?;
            return Err(error);
        }
        let mut issued = self.issuer.issue(&session);
        issued.failed_tries =
            failed_attempts.map(|failed| failed.failures_since_last_success).filter(|count| *count > 0);
        Ok(issued)
    }

    /// Updates the metrics of the password queue.
    pub(super) fn measure(&self) {
        let load = self.passwords.load();
        self.metrics.set_password_checks(load.running, load.waiting);
        self.metrics.password_checks_most.set(i64::try_from(load.most_running).unwrap_or(i64::MAX));
    }
}

/// Whether the platform identified the user and the result is a refusal: a password must not override it.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Forbidden(reason) if !matches!(reason, Forbidden::NotVisible))
}
