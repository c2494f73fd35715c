//! The identity assertion: the gateway's signed word to one upstream about one caller.

use std::time::Duration;

use serde::Serialize;

use super::Tokens;
use super::keys::Purpose;
use crate::domain::clock::Timestamp;
use crate::domain::session::Session;

/// How long an assertion is believed.
pub const LIFETIME: Duration = Duration::from_secs(60);

/// How long one is reused: it must still be good for a while when the upstream reads it.
pub const FRESH: Duration = Duration::from_secs(40);

#[derive(Serialize)]
struct AssertionClaims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    sid: &'a str,
    iat: i64,
    nbf: i64,
    exp: i64,
    corp_id: &'a str,
    name: &'a str,
    department: &'a str,
    roles: Vec<&'a str>,
    current_role: &'a str,
    login_source: &'a str,
}

impl Tokens {
    /// The assertion of a session for one upstream.
    pub fn assert_identity(&self, session: &Session, upstream: &str, now: Timestamp) -> String {
        let claims = AssertionClaims {
            iss: self.issuer(),
            aud: upstream,
            sub: session.employee_id.as_str(),
            sid: session.id.as_str(),
            iat: now.seconds(),
            nbf: now.seconds(),
            exp: now.plus(LIFETIME).seconds(),
            corp_id: session.corp_id.as_str(),
            name: &session.name,
            department: &session.department,
            roles: session.roles.iter().map(|role| role.as_str()).collect(),
            current_role: session.current_role.as_str(),
            login_source: session.login_source.as_str(),
        };
        self.keys().active(now).sign(Purpose::Assertion, &claims)
    }
}
