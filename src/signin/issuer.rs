//! Sessions: how one begins, what its owner is told, and how it ends.

use std::sync::Arc;

use serde::Serialize;

use super::attempt::Attempt;
use super::audit::own;
use super::{Device, SignIn};
use crate::directory::audit::{AuditRecord, Event};
use crate::directory::factors::Account;
use crate::domain::clock::Timestamp;
use crate::domain::device;
use crate::domain::employee::{Employee, Standing};
use crate::domain::role::{self, RoleName};
use crate::domain::secret::{Secret, random_name};
use crate::domain::session::{EndCause, LoginMethod, LoginSource, Session, SessionId, Stage, Version};
use crate::error::{Error, Forbidden, TokenFault};
use crate::sessions::{CachedSession, SessionUpdate};

/// More different browsers than a person has in half a year.
const BROWSERS: usize = 200;

/// What somebody gets who has signed in.
#[derive(Debug, Clone, Serialize)]
pub struct LoggedIn {
    /// The session behind; the token names it.
    #[serde(skip)]
    pub session_id: SessionId,
    /// The access token.
    #[serde(serialize_with = "Secret::hand_out")]
    pub token: Secret<String>,
    /// Always `Bearer`.
    pub token_type: &'static str,
    /// Seconds until it ends.
    pub expires_in: u64,
    /// The moment at which it ends.
    pub expires_at: String,
    /// Who.
    pub employee_id: String,
    /// Their name.
    pub name: String,
    /// Roles held.
    pub roles: Vec<RoleName>,
    /// The active one.
    pub current_role: RoleName,
    /// Their corporation.
    pub corp_id: String,
    /// How they signed in.
    pub login_method: LoginMethod,
    /// Where they signed in.
    pub login_source: LoginSource,
    /// Their department.
    pub department: String,
    /// Their picture.
    pub avatar: String,
    /// What the token opens, where that is not everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// How many tries failed since the last sign-in with a password, if any did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_tries: Option<u32>,
}

/// A valid token, as `/api/auth/verify` tells.
pub struct Verified {
    /// The session behind it.
    pub session: Session,
    /// Seconds until it ends.
    pub expires_in: u64,
}

impl SignIn {
    /// The roles of somebody who signs in through the platform.
    pub(super) async fn roles_of(&self, employee: &Employee) -> Result<Vec<RoleName>, Error> {
        let roles = self.roles.now(&employee.corp_id, &employee.employee_id).await?;
        if roles.is_empty() { Err(Forbidden::NoRole.into()) } else { Ok(roles) }
    }

    /// Begins a session. It is in the login log before it exists: no success without its record.
    pub(super) async fn begin(
        &self,
        employee: &Employee,
        roles: Vec<RoleName>,
        attempt: &mut Attempt<'_>,
    ) -> Result<Session, Error> {
        attempt.is(&employee.corp_id, &employee.employee_id);
        let session = self.create(employee, roles, attempt).await?;
        let session = self.settle(session).await?;
        self.count(attempt, "success");
        Ok(session)
    }

    /// A role that was taken, or a person who was disabled, while the session was being made has not found
    /// it. The directory is changed before sessions are looked for, so looking once more sees it.
    async fn settle(&self, session: Session) -> Result<Session, Error> {
        let (corp_id, employee_id) = (&session.corp_id, &session.employee_id);
        let employee = self.directory.employee(corp_id, employee_id).await?;
        let roles = self.roles.now(corp_id, employee_id).await?;
        let disabled = employee.is_none_or(|employee| employee.standing == Standing::Disabled);
        if disabled || roles.is_empty() {
            self.live.end(&session.id, EndCause::RolesLost).await?;
            return Err(if disabled { Forbidden::Disabled } else { Forbidden::NoRole }.into());
        }
        if roles == session.roles {
            return Ok(session);
        }
        self.roles.follow(corp_id, employee_id).await?;
        let changed = self.live.session(&session.id, self.clock.now()).await?;
        changed.map(|known| known.session.clone()).ok_or(Error::InvalidToken(TokenFault::Revoked))
    }

    async fn create(&self, employee: &Employee, roles: Vec<RoleName>, attempt: &Attempt<'_>) -> Result<Session, Error> {
        let Attempt { method, device, .. } = *attempt;
        let source = attempt.source.unwrap_or(LoginSource::H5);
        if employee.standing == Standing::Disabled {
            return Err(Forbidden::Disabled.into());
        }
        let current_role = role::highest(&roles).cloned().ok_or(Forbidden::NoRole)?;
        let now = self.clock.now();
        let (key_id, key_end) = self.tokens.signing(now);
        let end = now.plus(self.settings.token_lifetime);
        let session = Session {
            id: SessionId::new(random_name(32)),
            version: Version::FIRST,
            corp_id: employee.corp_id.clone(),
            employee_id: employee.employee_id.clone(),
            name: employee.name.clone(),
            department: employee.department.clone(),
            avatar: employee.avatar.clone(),
            roles,
            current_role,
            login_method: method,
            login_source: source,
            stage: attempt.stage,
            stepped_up_until: attempt.stepped_up_until,
            issued_at: now,
            expires_at: key_end.map_or(end, |key_end| end.min(key_end)),
            key_id: Some(key_id),
            password_id: attempt.password_id.clone(),
            new_device: self.is_new_device(employee, device).await?,
            address: device.address.clone(),
            user_agent: device.user_agent.clone(),
        };
        self.record_success(attempt).await?;
        self.live.create(&session).await?;
        self.metrics.sessions_issued.with_label_values(&[method.as_str()]).inc();
        tracing::info!(
            target: "deskgate::audit",
            { employee.id = session.employee_id.as_str(), corp.id = session.corp_id.as_str(), session.id = session.id.as_str(),
              login.method = method.as_str(), login.source = source.as_str(), client.address = &*device.address },
            "signed in"
        );
        Ok(session)
    }

    /// Whether somebody has never signed in with such a device, as far as the login log remembers. Browsers change
    /// their `User-Agent` with every version; what they are and run on stays.
    async fn is_new_device(&self, employee: &Employee, device: &Device) -> Result<bool, Error> {
        let whose = Account { corp_id: &employee.corp_id, employee_id: &employee.employee_id };
        let before = self.directory.browsers_of(whose, BROWSERS).await?;
        let this = device::describe(&device.user_agent);
        Ok(!before.iter().any(|browser| device::describe(browser) == this))
    }

    /// What the owner of a new session gets.
    pub(super) fn logged_in(&self, session: &Session) -> LoggedIn {
        LoggedIn {
            session_id: session.id.clone(),
            token: Secret::new(self.tokens.mint(session, self.clock.now())),
            token_type: "Bearer",
            expires_in: self.clock.now().seconds_until(session.expires_at),
            expires_at: session.expires_at.iso8601(),
            employee_id: session.employee_id.to_string(),
            name: session.name.clone(),
            roles: session.roles.clone(),
            current_role: session.current_role.clone(),
            corp_id: session.corp_id.to_string(),
            login_method: session.login_method,
            login_source: session.login_source,
            department: session.department.clone(),
            avatar: session.avatar.clone(),
            stage: (session.stage != Stage::Full).then_some(session.stage),
            failed_tries: None,
        }
    }

    /// The caller's session as it is now; refused if it is over.
    pub async fn still(&self, known: &CachedSession) -> Result<Arc<CachedSession>, Error> {
        let now = self.live.session(&known.session.id, self.clock.now()).await?;
        now.ok_or(Error::InvalidToken(TokenFault::Revoked))
    }

    /// Whether a token is good for everything that its owner may do, and whose. An invalid one is not an error.
    pub async fn verify(&self, token: &str) -> Result<Option<Verified>, Error> {
        let now = self.clock.now();
        match self.live.of_token(&self.tokens, token, now).await {
            // Whoever asks would let its owner in: a half-authenticated one opens only what this gateway answers itself.
            Ok(known) if known.session.stage != Stage::Full => Ok(None),
            Ok(known) => {
                let session = known.session.clone();
                let left = now.seconds_until(session.expires_at);
                // The specification's rule for a lifetime that cannot be told; a live session's always can.
                Ok(Some(Verified { session, expires_in: left }))
            }
            Err(Error::InvalidToken(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Ends the caller's session. Durable when it returns.
    pub async fn logout(&self, known: &CachedSession) -> Result<(), Error> {
        self.end_audited(own(&known.session, Event::Logout, ""), &known.session.id, EndCause::Logout).await
    }

    async fn end_audited(&self, record: AuditRecord<'_>, id: &SessionId, cause: EndCause) -> Result<(), Error> {
        let begun = self.audit.record(record).await?;
        let ended = self.live.end(id, cause).await.map_err(Error::from);
        self.audited(begun, ended).await
    }

    /// The caller's sessions, newest first, each with when it was last used.
    pub async fn sessions(&self, known: &CachedSession) -> Result<Vec<(Session, Timestamp)>, Error> {
        Ok(self.live.of_employee(&known.session.corp_id, &known.session.employee_id).await?)
    }

    /// Ends one of the caller's sessions. Durable when it returns; nothing tells somebody else's from none.
    pub async fn end_session(&self, known: &CachedSession, id: &str) -> Result<(), Error> {
        let own = self.sessions(known).await?;
        let (session, _) = own.iter().find(|(session, _)| session.id.as_str() == id).ok_or(Error::NoSession)?;
        self.end_own(known, session).await
    }

    /// Ends all of the caller's sessions but the one that asks. Returns how many there were.
    pub async fn end_other_sessions(&self, known: &CachedSession) -> Result<usize, Error> {
        let own = self.sessions(known).await?;
        let others = || own.iter().filter(|(session, _)| session.id != known.session.id);
        for (session, _) in others() {
            self.end_own(known, session).await?;
        }
        Ok(others().count())
    }

    async fn end_own(&self, known: &CachedSession, session: &Session) -> Result<(), Error> {
        if session.id == known.session.id {
            return self.logout(known).await;
        }
        let record = own(&known.session, Event::EndSession, session.id.as_str());
        self.end_audited(record, &session.id, EndCause::Owner).await
    }

    /// Makes another held role the active one. Durable when it returns; a logout meanwhile wins.
    pub async fn switch_role(&self, known: &CachedSession, role: &str) -> Result<RoleName, Error> {
        if !known.session.holds(role) {
            return Err(Forbidden::RoleNotHeld(RoleName::new(cut(role))).into());
        }
        let begun = self.audit.record(own(&known.session, Event::SwitchRole, role)).await?;
        let role = RoleName::new(role);
        let switched = match self.live.switch_role(&known.session.id, &role).await {
            Ok(SessionUpdate::Done(_)) => Ok(role),
            Ok(SessionUpdate::NotHeld) => Err(Forbidden::RoleNotHeld(role).into()),
            Ok(SessionUpdate::Gone) => Err(Error::InvalidToken(TokenFault::Revoked)),
            Err(fault) => Err(fault.into()),
        };
        self.audited(begun, switched).await
    }
}

/// What somebody sent as a role's name, short enough to say back.
fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(RoleName::LONGEST).collect()
}

#[cfg(test)]
mod tests;
