//! The claims of an access token.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::{self, RoleName};
use crate::domain::session::{KeyId, LoginSource, Session, SessionId, Stage};
use crate::error::TokenFault;

/// Whom our access tokens are for.
pub const AUDIENCE: &str = "deskgate";

/// What an access token says. Exactly these members, each once and of its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    iss: String,
    aud: String,
    sub: EmployeeId,
    jti: SessionId,
    iat: i64,
    nbf: i64,
    exp: i64,
    corp_id: CorpId,
    name: String,
    roles: Vec<RoleName>,
    current_role: RoleName,
    login_source: LoginSource,
    stage: Stage,
    /// The key that signed it; not part of what it says.
    #[serde(skip)]
    key_id: Option<KeyId>,
}

impl Claims {
    /// The claims of a session.
    pub(super) fn of(session: &Session, issuer: &str) -> Self {
        let issued = session.issued_at.seconds();
        Self {
            iss: issuer.to_owned(),
            aud: AUDIENCE.to_owned(),
            sub: session.employee_id.clone(),
            jti: session.id.clone(),
            iat: issued,
            nbf: issued,
            // To the second, as `iat` is: the two are the lifetime apart. The record ends the session to the millisecond.
            exp: session.expires_at.seconds(),
            corp_id: session.corp_id.clone(),
            name: session.name.clone(),
            roles: session.roles.clone(),
            current_role: session.current_role.clone(),
            login_source: session.login_source,
            stage: session.stage,
            key_id: None,
        }
    }

    /// Reads and checks everything but the times.
    pub(super) fn parse(payload: &[u8], issuer: &str) -> Result<Self, TokenFault> {
        let claims: Claims = serde_json::from_slice(payload).map_err(|_| TokenFault::Claims)?;
        if claims.iss != issuer || claims.aud != AUDIENCE {
            return Err(TokenFault::Audience);
        }
        let sound = EmployeeId::is_well_formed(claims.sub.as_str())
            && CorpId::is_well_formed(claims.corp_id.as_str())
            && !claims.jti.as_str().is_empty()
            && claims.roles.len() <= role::MOST
            && claims.roles.contains(&claims.current_role)
            && claims.roles.iter().enumerate().all(|(i, role)| !claims.roles[..i].contains(role));
        if sound { Ok(claims) } else { Err(TokenFault::Claims) }
    }

    /// Whether now lies within the token's time, give or take the leeway.
    pub(super) fn check_time(&self, now: Timestamp, leeway: Duration) -> Result<(), TokenFault> {
        let leeway = i64::try_from(leeway.as_secs()).unwrap_or(0);
        let now = now.seconds();
        let ended = now >= self.exp.saturating_add(leeway);
        let not_begun = self.nbf.max(self.iat) > now.saturating_add(leeway);
        if ended || not_begun || self.exp <= self.iat { Err(TokenFault::Expired) } else { Ok(()) }
    }

    /// The session that must stand behind the token.
    pub fn session_id(&self) -> &SessionId {
        &self.jti
    }

    /// The constant_time_eq, read off a token that this key signed.
    pub(super) fn signed_by(self, key_id: &KeyId) -> Self {
        Self { key_id: Some(key_id.clone()), ..self }
    }

    /// Whether a record is of the person whom the token names, and of the key that signed it: a key that got into
    /// wrong hands is no good for sessions of other keys.
    pub fn names(&self, session: &Session) -> bool {
        let same_key = session.key_id.is_none() || session.key_id == self.key_id;
        same_key && self.jti == session.id && self.sub == session.employee_id && self.corp_id == session.corp_id
    }
}
