//! Agents: sign-in with the platform first and a local password as fallback, and the passwords themselves.
//!
//! Whether an agent exists, has a password or is locked shows to nobody who has not proved to be them: the answers
//! are the same, and so is the work behind them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::attempt::Attempt;
use super::password::{Busy, NewPassword, PasswordHash, Verdict};
use super::session::LoggedIn;
use super::{Device, SignIn};
use crate::directory::factors::{Account, Agent, Taken, Tried};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{Employee, EmployeeId, Standing};
use crate::domain::lockout::{Locked, Lockout, Told};
use crate::domain::session::{LoginMethod, LoginSource, Stage, Version};
use crate::error::{BadRequest, Error, Forbidden, Part};
use crate::store::live::Known;

/// What an agent signs in with.
#[derive(Clone, Copy)]
pub struct AgentLogin<'a> {
    /// Who they say they are.
    pub employee_id: &'a str,
    /// A code of the platform.
    pub code: Option<&'a str>,
    /// The local password.
    pub password: Option<&'a str>,
    /// A one-time password.
    pub otp: Option<&'a str>,
}

/// Names that are nobody's, and how often they were tried: they are locked like everybody's.
#[derive(Default)]
pub(super) struct Strangers {
    tried: Mutex<HashMap<String, Lockout>>,
}

/// More names than people mistype.
const MOST_STRANGERS: usize = 10_000;

impl Strangers {
    fn charge(&self, name: &str, now: Timestamp) -> Result<(), Locked> {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.len() >= MOST_STRANGERS && !tried.contains_key(name) {
            tried.retain(|_, lockout| lockout.admit(now).is_err());
            if tried.len() >= MOST_STRANGERS {
                // A flood of invented names; the rate by address is what stops it.
                return Ok(());
            }
        }
        tried.entry(name.to_owned()).or_default().charge(now).map(|_| ())
    }

    /// Forgets those whose time is up.
    pub(super) fn sweep(&self, now: Timestamp) {
        let over = |lockout: &Lockout| lockout.forgotten_at().is_none_or(|at| now >= at);
        self.tried.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, lockout| !over(lockout));
    }
}

/// A try that was charged: what stood there before, and what was told.
struct Charged {
    before: Lockout,
    seen: Version,
    told: Told,
}

/// Whom the directory knows by the name that was given.
struct Found {
    employee: Employee,
    agent: Agent,
}

impl Found {
    fn account(&self) -> Account<'_> {
        Account { corp_id: &self.employee.corp_id, employee_id: &self.employee.employee_id }
    }
}

impl SignIn {
    /// Signs an agent in.
    pub async fn agent_login(&self, ask: AgentLogin<'_>, device: &Device) -> Result<LoggedIn, Error> {
        let mut attempt = Attempt::new(LoginMethod::Password, device).from(LoginSource::Agent);
        let logged_in = self.try_agent(ask, &mut attempt).await;
        if let Err(error) = &logged_in {
            self.record_refusal(&attempt, error).await;
        }
        logged_in
    }

    async fn try_agent(&self, ask: AgentLogin<'_>, attempt: &mut Attempt<'_>) -> Result<LoggedIn, Error> {
        if let Some(code) = ask.code {
            match self.agent_by_platform(ask.employee_id, code, attempt).await {
                Ok(found) => {
                    attempt.method = LoginMethod::Oauth2;
                    return self.begin_agent(&found, None, attempt).await;
                }
                Err(error) if ask.password.is_none() => return Err(error),
                // The platform cannot say, or not for this person: the password may.
                Err(_) => {}
            }
        }
        let password = ask.password.ok_or(BadRequest::Missing("password"))?;
        let (found, told) = self.agent_by_password(ask, password, attempt).await?;
        self.begin_agent(&found, Some(told), attempt).await
    }

    /// Whom the platform names, if it is the one who is asked for and an agent.
    async fn agent_by_platform(
        &self,
        employee_id: &str,
        code: &str,
        attempt: &mut Attempt<'_>,
    ) -> Result<Found, Error> {
        let employee = self.identify_employee(code, attempt).await?;
        if !employee.employee_id.as_str().eq_ignore_ascii_case(employee_id) {
            return Err(Forbidden::EmployeeUnknown.into());
        }
        let whose = Account { corp_id: &employee.corp_id, employee_id: &employee.employee_id };
        let agent = self.directory.agent(whose).await?.ok_or(Forbidden::NotAnAgent)?;
        Ok(Found { employee, agent })
    }

    async fn agent_by_password(
        &self,
        ask: AgentLogin<'_>,
        password: &str,
        attempt: &mut Attempt<'_>,
    ) -> Result<(Found, Told), Error> {
        let Some(found) = self.find_agent(ask.employee_id, attempt).await? else {
            let name = ask.employee_id.chars().take(64).collect::<String>().to_lowercase();
            self.strangers.charge(&name, self.clock.now()).map_err(locked)?;
            self.passwords.verify(None, password).await.map_err(busy)?;
            return Err(Error::PasswordWrong);
        };
        let charged = self.charge_password(found.account()).await?;
        let hash = match found.agent.password_hash.as_deref().map(PasswordHash::parse).transpose() {
            Ok(hash) => hash,
            Err(fault) => return Err(Error::unexpected(Part::Directory, fault)),
        };
        let verdict = match self.passwords.verify(hash.as_ref(), password).await {
            Ok(verdict) => verdict,
            Err(fault) => {
                // Nobody has looked at the password: the try does not count.
                self.take_back(found.account(), &charged).await?;
                return Err(busy(fault));
            }
        };
        let Verdict::Right { renewed } = verdict else {
            // Who has proved to be the owner by other means is told what is missing; nobody else is.
            let none_set = hash.is_none() && self.otp_proves(&found, ask.otp).await?;
            return Err(if none_set { Error::PasswordNotSet } else { Error::PasswordWrong });
        };
        let second = self.second_factor(&found, ask.otp).await;
        if let Err(Error::StepUpRequired) = &second {
            // The right password and the question for the device: no failed try that the owner should hear of.
            self.take_back(found.account(), &charged).await?;
        }
        second?;
        self.forgive_password(found.account()).await?;
        if let Some(renewed) = renewed {
            self.directory.set_password(found.account(), &renewed.phc()).await?;
        }
        Ok((found, charged.told))
    }

    async fn find_agent(&self, employee_id: &str, attempt: &mut Attempt<'_>) -> Result<Option<Found>, Error> {
        if !EmployeeId::is_well_formed(employee_id) {
            return Ok(None);
        }
        let (corp_id, employee_id) = (&self.settings.main_corp, EmployeeId::new(employee_id));
        attempt.is(corp_id, &employee_id);
        let employee = self.directory.employee(corp_id, &employee_id).await?;
        let agent = self.directory.agent(Account { corp_id, employee_id: &employee_id }).await?;
        let (Some(employee), Some(agent)) = (employee, agent) else { return Ok(None) };
        Ok((employee.standing == Standing::Active).then_some(Found { employee, agent }))
    }

    /// A bound device must speak as well: a password alone would be the weaker way in.
    async fn second_factor(&self, found: &Found, otp: Option<&str>) -> Result<(), Error> {
        let device = self.devices.state(found.account()).await?;
        match (device.secret, otp) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(Error::StepUpRequired),
            (Some(_), Some(_)) if self.otp_proves(found, otp).await? => Ok(()),
            (Some(_), Some(_)) => Err(Error::OtpWrong),
        }
    }

    /// Whether a one-time password is the account's; it is used up then.
    async fn otp_proves(&self, found: &Found, otp: Option<&str>) -> Result<bool, Error> {
        let Some(otp) = otp else { return Ok(false) };
        match self.devices.verify(found.account(), otp).await {
            Ok(()) => Ok(true),
            Err(Error::OtpWrong | Error::Forbidden(Forbidden::OtpNotBound)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Begins the session; a half-authenticated one where a device is demanded and there is none.
    async fn begin_agent(
        &self,
        found: &Found,
        told: Option<Told>,
        attempt: &mut Attempt<'_>,
    ) -> Result<LoggedIn, Error> {
        let bound = self.devices.state(found.account()).await?.secret.is_some();
        if found.agent.otp_required && !bound {
            attempt.stage = Stage::OtpBinding;
        }
        let roles = self.roles_of(&found.employee).await?;
        let session = self.begin(&found.employee, roles, attempt).await?;
        let mut logged_in = self.logged_in(&session);
        logged_in.failed_tries = told.map(|told| told.failures_since_last_success).filter(|count| *count > 0);
        Ok(logged_in)
    }

    /// Sets the caller's local password: the first one, or another one for whoever knows the old one.
    pub async fn set_password(&self, known: &Known, old: Option<&str>, new: &str) -> Result<(), Error> {
        let session = &known.session;
        let whose = Account { corp_id: &session.corp_id, employee_id: &session.employee_id };
        let agent = self.directory.agent(whose).await?.ok_or(Forbidden::NotAnAgent)?;
        let hash = agent.password_hash.as_deref().map(PasswordHash::parse).transpose();
        if let Some(hash) = hash.map_err(|fault| Error::unexpected(Part::Directory, fault))? {
            let old = old.ok_or(Error::OldPasswordMissing)?;
            let charged = self.charge_password(whose).await?;
            match self.passwords.verify(Some(&hash), old).await {
                Ok(Verdict::Right { .. }) => self.forgive_password(whose).await?,
                Ok(Verdict::Wrong) => return Err(Error::OldPasswordWrong),
                Err(fault) => {
                    self.take_back(whose, &charged).await?;
                    return Err(busy(fault));
                }
            }
        }
        let hints = [session.employee_id.as_str(), &session.name, session.corp_id.as_str(), "deskgate"];
        let new = NewPassword::check(new, &hints).map_err(|fault| {
            use crate::domain::language::Language;
            let (english, chinese) = (fault.message(Language::English), fault.message(Language::Chinese));
            BadRequest::NewPassword { english, chinese }
        })?;
        let hash = self.passwords.hash(&new).await.map_err(busy)?;
        if self.directory.set_password(whose, &hash.phc()).await? == Taken::No {
            return Err(Forbidden::NotAnAgent.into());
        }
        tracing::info!(
            target: "deskgate::audit",
            { employee.id = session.employee_id.as_str(), session.id = session.id.as_str() },
            "a local password was set"
        );
        Ok(())
    }

    async fn charge_password(&self, whose: Account<'_>) -> Result<Charged, Error> {
        loop {
            let (before, seen) = self.directory.lockout(Tried::Password, whose).await?;
            let mut lockout = before.clone();
            let told = lockout.charge(self.clock.now()).map_err(locked)?;
            if self.directory.put_lockout(Tried::Password, whose, &lockout, seen).await? == Taken::Yes {
                return Ok(Charged { before, seen, told });
            }
        }
    }

    /// Takes a charge back, unless somebody has tried since: theirs counts then, and this one with it.
    async fn take_back(&self, whose: Account<'_>, charged: &Charged) -> Result<(), Error> {
        self.directory.put_lockout(Tried::Password, whose, &charged.before, charged.seen.next()).await?;
        Ok(())
    }

    async fn forgive_password(&self, whose: Account<'_>) -> Result<(), Error> {
        self.devices.forgive(Tried::Password, whose).await
    }
}

fn locked(locked: Locked) -> Error {
    Error::Locked { retry_after: locked.retry_after }
}

fn busy(busy: Busy) -> Error {
    Error::Overloaded { retry_after: busy.retry_after }
}
