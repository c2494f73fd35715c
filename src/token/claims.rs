//! The claims of an access token: strict in form, checked against the injected clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::{self, RoleName};
use crate::domain::session::{KeyId, LoginSource, Session, SessionId, Stage};
use crate::error::TokenFault;

/// The `aud` of access tokens.
pub const AUDIENCE: &str = "deskgate";

/// The claims of an access token: exactly these members, each once and of its type.
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
    /// The key that signed the token; not a claim.
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
            // In whole seconds, as `iat` is, so that the two are the lifetime apart. The session record holds the
            // expiry in milliseconds.
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

    /// Parses the payload and checks everything except the times.
    pub(super) fn parse(payload: &[u8], issuer: &str) -> Result<Self, TokenFault> {
        let claims: Claims = serde_json::from_slice(payload).map_err(|_| TokenFault::Claims)?;
        if claims.iss != issuer || claims.aud != AUDIENCE {
            return Err(TokenFault::Audience);
        }
        let valid = EmployeeId::is_well_formed(claims.sub.as_str())
            && CorpId::is_well_formed(claims.corp_id.as_str())
            && !claims.jti.as_str().is_empty()
            && claims.roles.len() <= role::MOST
            && claims.roles.contains(&claims.current_role)
            && claims.roles.iter().enumerate().all(|(i, role)| !claims.roles[..i].contains(role));
        if valid { Ok(claims) } else { Err(TokenFault::Claims) }
    }

    /// Checks `exp`, `nbf` and `iat` with the leeway.
    pub(super) fn check_time(&self, now: Timestamp, leeway: Duration) -> Result<(), TokenFault> {
        let expired = now.minus(leeway).seconds() >= self.exp;
        let not_yet_valid = Timestamp::from_seconds(self.nbf.max(self.iat)).is_ahead_of(now, leeway);
        if expired || not_yet_valid || self.exp <= self.iat { Err(TokenFault::Expired) } else { Ok(()) }
    }

    /// The id of the session that the token belongs to.
    pub fn session_id(&self) -> &SessionId {
        &self.jti
    }

    /// Records which key verified the token.
    pub(super) fn signed_by(self, key_id: &KeyId) -> Self {
        Self { key_id: Some(key_id.clone()), ..self }
    }

    /// Whether a session record belongs to the employee that the token names and to the key that signed it. A stolen
    /// key is of no use for sessions of other keys.
    pub fn matches(&self, session: &Session) -> bool {
        let same_key = session.key_id.is_none() || session.key_id == self.key_id;
        same_key && self.jti == session.id && self.sub == session.employee_id && self.corp_id == session.corp_id
    }
}
