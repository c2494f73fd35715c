//! Agents: sign-in with the platform first and a local password as fallback, and the passwords themselves.
//!
//! Whether an agent exists, has a password or is locked shows to nobody who has not proved to be them: the answers
//! are the constant_time_eq, and so is the work behind them, down to what is read from the directory and written to it. What
//! differs comes after the right password.

use super::attempt::{Attempt, reason};
use super::audit::own;
use super::password::{self, Busy, NewPassword, PasswordHash, Place, Verdict};
use super::session::LoggedIn;
use super::tries::Charged;
use super::{Device, SignIn};
use crate::directory::audit::Event;
use crate::directory::factors::{Account, Agent, ExpectedPassword, FactorKind, LocalPassword, OtpDevice};
use crate::domain::employee::{CorpId, Employee, EmployeeId, Standing};
use crate::domain::lockout::FailedAttempts;
use crate::domain::session::{EndCause, LoginMethod, LoginSource, Session, Stage};
use crate::error::{BadRequest, Error, Forbidden, Part};
use crate::sessions::CachedSession;

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

/// How many names that are nobody's are remembered. A guesser who wants one forgotten before its lock is over must
/// invent so many others meanwhile, and each costs a place at the gate.
pub(super) const MAX_UNKNOWN_LOCKOUTS: usize = 100_000;

/// An agent who may sign in.
struct Found {
    employee: Employee,
    agent: Agent,
}

impl Found {
    fn account(&self) -> Account<'_> {
        Account { corp_id: &self.employee.corp_id, employee_id: &self.employee.employee_id }
    }
}

/// Whether an agent had a one-time-password device when it was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceBound {
    Yes,
    No,
}

impl DeviceBound {
    fn of(device: &OtpDevice) -> Self {
        if device.secret.is_some() { Self::Yes } else { Self::No }
    }
}

/// What a name stands for.
struct Named {
    /// Under which tries are counted: an employee's own account, whatever the spelling; else the name's mark.
    corp_id: CorpId,
    employee_id: EmployeeId,
    /// Of the employee who is meant, if there is one.
    standing: Option<Standing>,
    /// Who may sign in by it.
    found: Option<Found>,
}

impl Named {
    fn account(&self) -> Account<'_> {
        Account { corp_id: &self.corp_id, employee_id: &self.employee_id }
    }

    /// Why nobody gets in by this name with any password, for the login log; nothing if the password itself is wrong.
    fn why_not(&self) -> Option<&'static str> {
        match (&self.found, self.standing) {
            (Some(found), _) => found.agent.password.is_none().then_some("no_password"),
            (None, Some(Standing::Disabled)) => Some("disabled"),
            (None, Some(Standing::Active)) => Some("not_an_agent"),
            (None, None) => Some("unknown_employee"),
        }
    }

    fn hash(&self) -> Result<Option<PasswordHash>, Error> {
        parse(self.found.as_ref().and_then(|found| found.agent.password.as_ref()))
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
                    let bound = DeviceBound::of(&self.devices.state(found.account()).await?);
                    if let (Some(otp), DeviceBound::Yes) = (ask.otp, bound) {
                        self.step_up_by(&found, otp, attempt).await?;
                    }
                    return self.begin_agent(&found, bound, None, attempt).await;
                }
                Err(error) if ask.password.is_none() || is_answer(&error) => return Err(error),
                // The platform cannot say who it is: the password may.
                Err(_) => {}
            }
        }
        let password = ask.password.ok_or(BadRequest::Missing("password"))?;
        password::check_length(password).map_err(|fault| BadRequest::NewPassword(fault.message()))?;
        let (found, bound, told) = self.agent_by_password(ask, password, attempt).await?;
        let logged_in = self.begin_agent(&found, bound, Some(told), attempt).await?;
        if let Err(error) = self.still_proved(&found, bound).await {
            self.live.end(&logged_in.session_id, EndCause::Operator).await?;
            return Err(error);
        }
        Ok(logged_in)
    }

    /// A password that was taken away while it was being checked has not found the new session, nor has a device that
    /// was bound meanwhile been asked.
    async fn still_proved(&self, found: &Found, bound: DeviceBound) -> Result<(), Error> {
        let now = self.directory.agent(found.account()).await?.and_then(|agent| agent.password);
        if now.map(|password| password.id) != found.agent.password.as_ref().map(|password| password.id.clone()) {
            return Err(Error::PasswordWrong);
        }
        match (bound, DeviceBound::of(&self.devices.state(found.account()).await?)) {
            (DeviceBound::No, DeviceBound::Yes) => Err(Error::StepUpRequired),
            (DeviceBound::Yes, _) | (_, DeviceBound::No) => Ok(()),
        }
    }

    /// Whom the platform names, if it is the one who is asked for and an agent.
    async fn agent_by_platform(
        &self,
        employee_id: &str,
        code: &str,
        attempt: &mut Attempt<'_>,
    ) -> Result<Found, Error> {
        let employee = self.identify_employee(code, attempt).await?;
        if EmployeeId::folded(employee.employee_id.as_str()) != EmployeeId::folded(employee_id) {
            return Err(Forbidden::EmployeeUnknown.into());
        }
        let whose = Account { corp_id: &employee.corp_id, employee_id: &employee.employee_id };
        let agent = self.directory.agent(whose).await?.ok_or(Forbidden::NotAnAgent)?;
        Ok(Found { employee, agent })
    }

    /// Who has proved to be an agent by password, whether a device had to speak as well, and what to tell of failures.
    async fn agent_by_password(
        &self,
        ask: AgentLogin<'_>,
        password: &str,
        attempt: &mut Attempt<'_>,
    ) -> Result<(Found, DeviceBound, FailedAttempts), Error> {
        let named = self.name(ask.employee_id, attempt).await?;
        // Before anything is written: of a storm only those who will have a turn cost the directory something.
        let place = self.passwords.place().map_err(busy)?;
        let charged = self.tries.charge(FactorKind::Password, named.account()).await?;
        let hash = named.hash()?;
        let verdict = self.check_password(place, hash.as_ref(), password, named.account(), &charged).await?;
        let Verdict::Right { renewed } = verdict else {
            attempt.internal_reason = named.why_not();
            return Err(self.what_is_missing(&named, hash.as_ref(), ask.otp).await?);
        };
        // Where there is nobody no password is right.
        let found = named.found.ok_or(Error::PasswordWrong)?;
        attempt.is(&found.employee.corp_id, &found.employee.employee_id);
        let second = self.second_factor(&found, ask.otp, attempt).await;
        if let Err(Error::StepUpRequired) = &second {
            // The right password and the question for the device: no failed try that the owner should hear of.
            self.tries.take_back(found.account(), &charged).await?;
        }
        let bound = second?;
        self.tries.forgive(FactorKind::Password, found.account()).await?;
        if let (Some(renewed), Some(password)) = (renewed, &found.agent.password) {
            self.directory.renew_password(found.account(), password.hash.reveal(), &renewed.phc()).await?;
        }
        attempt.password_id = found.agent.password.as_ref().map(|password| password.id.clone());
        Ok((found, bound, charged.told))
    }

    /// What a name stands for. One look for everybody, whoever it is.
    async fn name(&self, typed: &str, attempt: &mut Attempt<'_>) -> Result<Named, Error> {
        let corp_id = self.settings.main_corp.clone();
        let known = self.directory.by_name(&corp_id, typed).await?;
        let Some((employee, agent)) = known else {
            let folded = EmployeeId::folded(typed);
            // People type their passwords into the wrong field: the table of lock-outs must not hold what was typed.
            let mark = EmployeeId::new(self.vault.keyed_hash(&folded));
            // What cannot be an identifier goes into the login log without a name, and only so many of those do: that
            // shows in the time, and says no more than the look of it.
            if EmployeeId::is_well_formed(&folded) {
                attempt.claims(&corp_id, &EmployeeId::new(folded));
            }
            return Ok(Named { corp_id: CorpId::of_nobody(), employee_id: mark, standing: None, found: None });
        };
        attempt.claims(&corp_id, &employee.employee_id);
        let employee_id = employee.employee_id.clone();
        let standing = employee.standing;
        let found = agent.filter(|_| standing == Standing::Active).map(|agent| Found { employee, agent });
        Ok(Named { corp_id, employee_id, standing: Some(standing), found })
    }

    /// Whether the password is right. Where nobody has looked at it, the try does not count.
    async fn check_password(
        &self,
        place: Place,
        hash: Option<&PasswordHash>,
        password: &str,
        whose: Account<'_>,
        charged: &Charged,
    ) -> Result<Verdict, Error> {
        match self.passwords.verify(place, hash, password).await {
            Ok(verdict) => Ok(verdict),
            Err(fault) => {
                self.tries.take_back(whose, charged).await?;
                Err(busy(fault))
            }
        }
    }

    /// Who has proved to be the owner by a one-time password is told that there is no password yet; nobody else is.
    ///
    /// Such a code is guessed at the price of a password, which is charged already. It is not charged as a code: else
    /// anybody could lock the owner's device.
    async fn what_is_missing(
        &self,
        named: &Named,
        hash: Option<&PasswordHash>,
        otp: Option<&str>,
    ) -> Result<Error, Error> {
        let Some(otp) = otp else { return Ok(Error::PasswordWrong) };
        // Read for everybody, whether there can be a device or not.
        let device = self.devices.state(named.account()).await?;
        let proves = match (&named.found, hash, device.secret) {
            (Some(found), None, Some(closed)) => self.devices.use_up(found.account(), &closed, otp).await?,
            _ => false,
        };
        Ok(if proves { Error::PasswordNotSet } else { Error::PasswordWrong })
    }

    /// A bound device must speak as well: a password alone would be the weaker way in. Tells whether there was one.
    async fn second_factor(
        &self,
        found: &Found,
        otp: Option<&str>,
        attempt: &mut Attempt<'_>,
    ) -> Result<DeviceBound, Error> {
        if DeviceBound::of(&self.devices.state(found.account()).await?) == DeviceBound::No {
            return Ok(DeviceBound::No);
        }
        self.step_up_by(found, otp.ok_or(Error::StepUpRequired)?, attempt).await?;
        Ok(DeviceBound::Yes)
    }

    /// A code works once: nobody should have to wait for the next one to do what needs one.
    async fn step_up_by(&self, found: &Found, otp: &str, attempt: &mut Attempt<'_>) -> Result<(), Error> {
        self.devices.verify(found.account(), otp).await?;
        attempt.stepped_up_until = Some(self.clock.now().plus(self.settings.otp_valid_for));
        Ok(())
    }

    /// Begins the session; a half-authenticated one where a device is demanded and there is none.
    async fn begin_agent(
        &self,
        found: &Found,
        bound: DeviceBound,
        told: Option<FailedAttempts>,
        attempt: &mut Attempt<'_>,
    ) -> Result<LoggedIn, Error> {
        if found.agent.otp_required && bound == DeviceBound::No {
            attempt.stage = Stage::OtpBinding;
        }
        let roles = self.roles_of(&found.employee).await?;
        let session = self.begin(&found.employee, roles, attempt).await?;
        let mut logged_in = self.logged_in(&session);
        logged_in.failed_tries = told.map(|told| told.failures_since_last_success).filter(|count| *count > 0);
        Ok(logged_in)
    }

    async fn check_old(&self, place: Place, hash: &PasswordHash, old: &str, whose: Account<'_>) -> Result<(), Error> {
        let charged = self.tries.charge(FactorKind::Password, whose).await?;
        match self.check_password(place, Some(hash), old, whose, &charged).await? {
            Verdict::Right { .. } => self.tries.forgive(FactorKind::Password, whose).await,
            Verdict::Wrong => Err(Error::OldPasswordWrong),
        }
    }

    /// Puts a password in the place of the one that was asked for, and tells its id. Hashing has waited for its turn:
    /// whoever was thrown out meanwhile sets nothing, nor does anybody who was slower than another.
    async fn replace_password(
        &self,
        known: &CachedSession,
        old: Option<&LocalPassword>,
        hash: &PasswordHash,
    ) -> Result<String, Error> {
        self.still(known).await?;
        let whose = Account { corp_id: &known.session.corp_id, employee_id: &known.session.employee_id };
        let seen = old.map(|password| password.id.as_str());
        let set = self.directory.set_password(whose, &hash.phc(), ExpectedPassword::Only(seen)).await?;
        set.ok_or(if seen.is_some() { Error::OldPasswordWrong } else { Error::OldPasswordMissing })
    }

    /// Sets the caller's local password: the first one, or another one for whoever knows the old one.
    pub async fn set_password(&self, known: &CachedSession, old: Option<&str>, new: &str) -> Result<(), Error> {
        let session = &known.session;
        let whose = Account { corp_id: &session.corp_id, employee_id: &session.employee_id };
        let agent = self.directory.agent(whose).await?.ok_or(Forbidden::NotAnAgent)?;
        let record = own(session, Event::SetPassword, "");
        if let Some(hash) = parse(agent.password.as_ref())? {
            let old = old.ok_or(Error::OldPasswordMissing)?;
            let place = self.passwords.place().map_err(busy)?;
            if let Err(error) = self.check_old(place, &hash, old, whose).await {
                self.audit.refuse(record, reason(&error)).await;
                return Err(error);
            }
        }
        let hints = [session.employee_id.as_str(), &session.name, session.corp_id.as_str(), "deskgate"];
        let new = NewPassword::check(new, &hints).map_err(|fault| BadRequest::NewPassword(fault.message()))?;
        let hash = self.passwords.hash(&new).await.map_err(busy)?;
        let begun = self.audit.record(record).await?;
        let set = self.replace_password(known, agent.password.as_ref(), &hash).await;
        let id = self.audited(begun, set).await?;
        if session.password_id.is_some() {
            self.live.set_password_id(&session.id, &id).await?;
        }
        // Whoever has got in with the old one is out.
        let others = |other: &Session| other.login_method == LoginMethod::Password && other.id != session.id;
        self.live.end_those_of(whose.corp_id, whose.employee_id, EndCause::Owner, others).await?;
        Ok(())
    }
}

/// Whether the platform has said who it is, and that was not whom the caller wants to be, or nobody who may: no password
/// makes up for it.
fn is_answer(error: &Error) -> bool {
    matches!(error, Error::Forbidden(why) if !matches!(why, Forbidden::NotVisible))
}

fn parse(password: Option<&LocalPassword>) -> Result<Option<PasswordHash>, Error> {
    let hash = password.map(|password| PasswordHash::parse(password.hash.reveal()));
    hash.transpose().map_err(|fault| Error::unexpected(Part::Directory, fault))
}

fn busy(busy: Busy) -> Error {
    Error::Overloaded { retry_after: busy.retry_after }
}
