//! What users do with sessions: verify a token, log out, list and end their own sessions, switch the active role.

use std::sync::Arc;

use super::audit::{Audit, own_action};
use crate::directory::audit::{AuditRecord, Event};
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::role::RoleName;
use crate::domain::session::{EndCause, Session, SessionId, Stage};
use crate::error::{Error, Forbidden, TokenFault};
use crate::sessions::{CachedSession, SessionCache, SessionUpdate};
use crate::token::Tokens;
use jsonwebtoken::jwk::Jwk;

/// A valid token's session.
pub struct VerifiedToken {
    /// The session that the token names.
    pub session: Session,
    /// Seconds until the token expires.
    pub expires_in: u64,
}

/// Users' own sessions.
pub struct UserSessions {
    pub(super) sessions: Arc<SessionCache>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) audit: Audit,
    pub(super) clock: Clock,
}

impl UserSessions {
    /// Reads the caller's session again, and refuses if it has ended since.
    pub async fn reload(&self, caller: &CachedSession) -> Result<Arc<CachedSession>, Error> {
        let current = self.sessions.session(&caller.session.id, self.clock.now()).await?;
        current.ok_or(Error::InvalidToken(TokenFault::Revoked))
    }

    /// The public keys that tokens and assertions are verified with.
    pub fn public_keys(&self) -> Vec<Jwk> {
        self.tokens.keys().jwks(self.clock.now()).into_iter().cloned().collect()
    }

    /// The session of a valid, fully authenticated token. `None` for any other token: that is not an error.
    pub async fn verify(&self, token: &str) -> Result<Option<VerifiedToken>, Error> {
        let now = self.clock.now();
        match self.sessions.of_token(&self.tokens, token, now).await {
            // The service that asks would admit the user, and a half-authenticated token is only good for this
            // gateway's own endpoints.
            Ok(cached) if cached.session.stage != Stage::Full => Ok(None),
            Ok(cached) => {
                let session = cached.session.clone();
                let expires_in = now.seconds_until(session.expires_at);
                Ok(Some(VerifiedToken { session, expires_in }))
            }
            Err(Error::InvalidToken(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Ends the caller's session. Durable when it returns.
    pub async fn logout(&self, caller: &CachedSession) -> Result<(), Error> {
        let record = own_action(&caller.session, Event::Logout, "");
        self.end_audited(record, &caller.session.id, EndCause::Logout).await
    }

    async fn end_audited(&self, record: AuditRecord<'_>, id: &SessionId, cause: EndCause) -> Result<(), Error> {
        let written = self.audit.record(record).await?;
        let ended = self.sessions.end(id, cause).await.map_err(Error::from);
        self.audit.finish(written, ended).await
    }

    /// The caller's sessions, newest first, each with the time of its last request.
    pub async fn list(&self, caller: &CachedSession) -> Result<Vec<(Session, Timestamp)>, Error> {
        Ok(self.sessions.of_employee(&caller.session.corp_id, &caller.session.employee_id).await?)
    }

    /// Ends one of the caller's sessions. Durable when it returns. An id of another user's session gives the same
    /// error as an id that does not exist.
    pub async fn end(&self, caller: &CachedSession, id: &str) -> Result<(), Error> {
        let own = self.list(caller).await?;
        let (session, _) = own.iter().find(|(session, _)| session.id.as_str() == id).ok_or(Error::NoSession)?;
        self.end_own(caller, session).await
    }

    /// Ends all of the caller's sessions except the current one. Returns how many there were.
    pub async fn end_others(&self, caller: &CachedSession) -> Result<usize, Error> {
        let own = self.list(caller).await?;
        let others = || own.iter().filter(|(session, _)| session.id != caller.session.id);
        for (session, _) in others() {
            self.end_own(caller, session).await?;
        }
        Ok(others().count())
    }

    async fn end_own(&self, caller: &CachedSession, session: &Session) -> Result<(), Error> {
        if session.id == caller.session.id {
            return self.logout(caller).await;
        }
        let record = own_action(&caller.session, Event::EndSession, session.id.as_str());
        self.end_audited(record, &session.id, EndCause::Owner).await
    }

    /// Makes another held role the active one. Durable when it returns; a concurrent logout wins.
    pub async fn switch_role(&self, caller: &CachedSession, role: &str) -> Result<RoleName, Error> {
        if !caller.session.holds(role) {
            return Err(Forbidden::RoleNotHeld(RoleName::new(truncated(role))).into());
        }
        let written = self.audit.record(own_action(&caller.session, Event::SwitchRole, role)).await?;
        let role = RoleName::new(role);
        let switched = match self.sessions.switch_role(&caller.session.id, &role).await {
            Ok(SessionUpdate::Done(_)) => Ok(role),
            Ok(SessionUpdate::NotAllowed) => Err(Forbidden::RoleNotHeld(role).into()),
            Ok(SessionUpdate::Gone) => Err(Error::InvalidToken(TokenFault::Revoked)),
            Err(error) => Err(error.into()),
        };
        self.audit.finish(written, switched).await
    }
}

/// The client's role name, short and printable enough for the error message.
fn truncated(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(RoleName::LONGEST).collect()
}
