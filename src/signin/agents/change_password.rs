//! Setting an agent's local password.

use super::AgentSignIn;
use super::password_login::{overloaded, parse_hash};
use crate::directory::audit::Event;
use crate::directory::factors::{Account, ExpectedPassword, FactorKind, LocalPassword};
use crate::domain::session::{EndCause, LoginMethod, Session};
use crate::error::{BadRequest, Error, Forbidden, TokenFault};
use crate::sessions::CachedSession;
use crate::signin::attempt::reason;
use crate::signin::audit::own_action;
use crate::signin::password::{NewPassword, PasswordHash, PasswordMatch, QueueSlot};

impl AgentSignIn {
    /// Sets the caller's local password. Replacing one requires the old one, the first one a recent platform sign-in.
    pub async fn set_password(&self, caller: &CachedSession, old: Option<&str>, new: &str) -> Result<(), Error> {
        let session = &caller.session;
        let account = Account { corp_id: &session.corp_id, employee_id: &session.employee_id };
        let agent = self.directory.agent(account).await?.ok_or(Forbidden::NotAnAgent)?;
        let record = own_action(session, Event::SetPassword, "");
        if let Some(hash) = parse_hash(agent.password.as_ref())? {
            let old = old.ok_or(Error::OldPasswordMissing)?;
            let slot = self.passwords.reserve().map_err(overloaded)?;
            if let Err(error) = self.check_old_password(slot, &hash, old, account).await {
                self.audit.refuse(record, reason(&error)).await;
                return Err(error);
            }
        } else if let Err(error) = self.enrolment.check(session, self.clock.now()) {
            self.audit.refuse(record, reason(&error)).await;
            return Err(error);
        }
        let hints = [session.employee_id.as_str(), &session.name, session.corp_id.as_str(), "deskgate"];
        let new = NewPassword::check(new, &hints).map_err(|fault| BadRequest::NewPassword(fault.message()))?;
        let hash = self.passwords.hash(&new).await.map_err(overloaded)?;
        let written = self.audit.record(record).await?;
        let replaced = self.replace_password(caller, agent.password.as_ref(), &hash).await;
        let id = self.audit.finish(written, replaced).await?;
        if session.password_id.is_some() {
            self.sessions.set_password_id(&session.id, &id).await?;
        }
        // Ends the other sessions that were opened with the old password.
        let others = |other: &Session| other.login_method == LoginMethod::Password && other.id != session.id;
        self.sessions.end_those_of(account.corp_id, account.employee_id, EndCause::Owner, others).await?;
        Ok(())
    }

    async fn check_old_password(
        &self,
        slot: QueueSlot,
        hash: &PasswordHash,
        old: &str,
        account: Account<'_>,
    ) -> Result<(), Error> {
        let charge = self.lockouts.charge(FactorKind::Password, account).await?;
        match self.check_password(slot, Some(hash), old, account, &charge).await? {
            PasswordMatch::Right { .. } => self.lockouts.clear(FactorKind::Password, account).await,
            PasswordMatch::Wrong => Err(Error::OldPasswordWrong),
        }
    }

    /// Replaces the password that was checked and returns the new one's id. Hashing waits in the queue, so the session
    /// is read again: it may have ended meanwhile, and then a first password does not stay. A concurrent change that
    /// was faster wins.
    async fn replace_password(
        &self,
        caller: &CachedSession,
        old: Option<&LocalPassword>,
        hash: &PasswordHash,
    ) -> Result<String, Error> {
        let current = self.sessions.session(&caller.session.id, self.clock.now()).await?;
        current.ok_or(Error::InvalidToken(TokenFault::Revoked))?;
        let account = Account { corp_id: &caller.session.corp_id, employee_id: &caller.session.employee_id };
        let expected = old.map(|password| password.id.as_str());
        let set = self.directory.set_password(account, &hash.phc(), ExpectedPassword::Only(expected)).await?;
        let id = set.ok_or(if expected.is_some() { Error::OldPasswordWrong } else { Error::OldPasswordMissing })?;
        if expected.is_none()
            && let Err(error) = self.sessions.check_live(&caller.session.id).await
        {
            self.directory.clear_password(account, ExpectedPassword::Only(Some(&id))).await?;
            return Err(error);
        }
        Ok(id)
    }
}
