//! Sign-in with a local password. Every name takes the same path: one lookup, one charge, one hash.

use super::{AgentAccount, AgentLogin, AgentSignIn, DeviceCheck};
use crate::config::Concealment;
use crate::directory::factors::{Account, FactorKind, LocalPassword};
use crate::domain::employee::{CorpId, EmployeeId, Standing};
use crate::domain::lockout::FailedAttempts;
use crate::error::{Error, Part};
use crate::signin::attempt::Attempt;
use crate::signin::lockouts::AttemptCharge;
use crate::signin::password::{Busy, PasswordHash, PasswordMatch, QueueSlot};

/// The account behind a typed name.
struct LookedUpName {
    /// The account that attempts are charged to: the employee's own, whatever the spelling, else a keyed hash of the
    /// name.
    corp_id: CorpId,
    employee_id: EmployeeId,
    /// The employee's standing; `None` for an unknown name.
    standing: Option<Standing>,
    /// Set if the employee is active and an agent.
    agent: Option<AgentAccount>,
}

impl LookedUpName {
    fn account(&self) -> Account<'_> {
        Account { corp_id: &self.corp_id, employee_id: &self.employee_id }
    }

    /// The login log's reason why no password can be right for this name; `None` if the password itself was wrong.
    fn internal_reason(&self) -> Option<&'static str> {
        match (&self.agent, self.standing) {
            (Some(agent), _) => agent.agent.password.is_none().then_some("no_password"),
            (None, Some(Standing::Disabled)) => Some("disabled"),
            (None, Some(Standing::Active)) => Some("not_an_agent"),
            (None, None) => Some("employee_unknown"),
        }
    }

    fn hash(&self) -> Result<Option<PasswordHash>, Error> {
        parse_hash(self.agent.as_ref().and_then(|agent| agent.agent.password.as_ref()))
    }
}

impl AgentSignIn {
    /// Verifies a password, and a one-time password if a device is bound. Returns the agent and the failures since the
    /// last success.
    pub(super) async fn verify_password(
        &self,
        login: AgentLogin<'_>,
        password: &str,
        attempt: &mut Attempt<'_>,
    ) -> Result<(AgentAccount, DeviceCheck, FailedAttempts), Error> {
        let name = self.look_up(login.employee_id, attempt).await?;
        // Before anything is written: under a flood, only attempts with a slot in the queue cost directory writes.
        let slot = self.passwords.reserve().map_err(overloaded)?;
        let charge = self.lockouts.charge(FactorKind::Password, name.account()).await?;
        let hash = name.hash()?;
        let checked = self.check_password(slot, hash.as_ref(), password, name.account(), &charge).await?;
        let PasswordMatch::Right { rehashed } = checked else {
            attempt.internal_reason = name.internal_reason();
            return Err(self.wrong_password_error(&name, hash.as_ref(), login.otp).await?);
        };
        // A name without an agent has no hash, so no password was right for it.
        let agent = name.agent.ok_or(Error::PasswordWrong)?;
        attempt.set_proved(&agent.employee.corp_id, &agent.employee.employee_id);
        let second_factor = self.verify_second_factor(&agent, login.otp, attempt).await;
        if let Err(Error::StepUpRequired) = &second_factor {
            // The password was right and only the code is missing: the owner should not see it as a failed attempt.
            self.lockouts.refund(agent.account(), &charge).await?;
        }
        let device = second_factor?;
        self.lockouts.clear(FactorKind::Password, agent.account()).await?;
        if let (Some(rehashed), Some(password)) = (rehashed, &agent.agent.password) {
            self.directory.renew_password(agent.account(), password.hash.reveal(), &rehashed.phc()).await?;
        }
        attempt.password_id = agent.password_id().map(str::to_owned);
        Ok((agent, device, charge.failed_attempts))
    }

    /// Looks a typed name up, with the same single query for every name.
    async fn look_up(&self, typed: &str, attempt: &mut Attempt<'_>) -> Result<LookedUpName, Error> {
        let corp_id = self.main_corp.clone();
        let found = self.directory.by_name(&corp_id, typed).await?;
        let Some((employee, agent)) = found else {
            let folded = EmployeeId::folded(typed);
            // Users type passwords into the wrong field, so the lockout table holds a keyed hash, not the text.
            let hashed = EmployeeId::new(self.vault.keyed_hash(&folded));
            // Text that cannot be an employee id is logged without a name, and those rows have a cap of their own. The
            // cap shows in the response time, but reveals no more than the text itself.
            if EmployeeId::is_well_formed(&folded) {
                attempt.set_claimed(&corp_id, &EmployeeId::new(folded));
            }
            return Ok(LookedUpName { corp_id: CorpId::unknown(), employee_id: hashed, standing: None, agent: None });
        };
        attempt.set_claimed(&corp_id, &employee.employee_id);
        let employee_id = employee.employee_id.clone();
        let standing = employee.standing;
        let agent = agent.filter(|_| standing == Standing::Active).map(|agent| AgentAccount { employee, agent });
        Ok(LookedUpName { corp_id, employee_id, standing: Some(standing), agent })
    }

    /// Checks a password. Refunds the charge if the check could not run.
    pub(super) async fn check_password(
        &self,
        slot: QueueSlot,
        hash: Option<&PasswordHash>,
        password: &str,
        account: Account<'_>,
        charge: &AttemptCharge,
    ) -> Result<PasswordMatch, Error> {
        match self.passwords.verify(slot, hash, password).await {
            Ok(checked) => Ok(checked),
            Err(busy) => {
                self.lockouts.refund(account, charge).await?;
                Err(overloaded(busy))
            }
        }
    }

    /// The error for a wrong password: 1012 for an agent without one. With `agents.conceal` only an agent who proves
    /// themselves by a one-time password gets 1012; all others get 1011, after the same work.
    ///
    /// The attempt is already charged as a password, which limits guessing the code. It is not charged as a code, or
    /// any client could lock the owner's device.
    async fn wrong_password_error(
        &self,
        name: &LookedUpName,
        hash: Option<&PasswordHash>,
        otp: Option<&str>,
    ) -> Result<Error, Error> {
        if self.conceal == Concealment::Off && name.agent.is_some() && hash.is_none() {
            return Ok(Error::PasswordNotSet);
        }
        let Some(otp) = otp else { return Ok(Error::PasswordWrong) };
        // Read for every name, so that the time does not reveal whether a device is possible.
        let device = self.devices.state(name.account()).await?;
        let proved = match (&name.agent, hash, device.secret) {
            (Some(agent), None, Some(secret)) => self.devices.use_up(agent.account(), &secret, otp).await?,
            _ => false,
        };
        Ok(if proved { Error::PasswordNotSet } else { Error::PasswordWrong })
    }

    /// Requires a one-time password if a device is bound: a password alone would weaken the account.
    async fn verify_second_factor(
        &self,
        agent: &AgentAccount,
        otp: Option<&str>,
        attempt: &mut Attempt<'_>,
    ) -> Result<DeviceCheck, Error> {
        if self.devices.state(agent.account()).await?.secret.is_none() {
            return Ok(DeviceCheck::NoDevice);
        }
        self.verify_otp(agent, otp.ok_or(Error::StepUpRequired)?, attempt).await
    }
}

pub(super) fn parse_hash(password: Option<&LocalPassword>) -> Result<Option<PasswordHash>, Error> {
    let hash = password.map(|password| PasswordHash::parse(password.hash.reveal()));
    hash.transpose().map_err(|fault| Error::unexpected(Part::Directory, fault))
}

pub(super) fn overloaded(busy: Busy) -> Error {
    Error::Overloaded { retry_after: busy.retry_after }
}
