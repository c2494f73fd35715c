//! Identity assertions: short-lived JWTs that tell one upstream who the caller is.
//!
//! There are two kinds. A session assertion is signed once per upstream and scope and reused while it is fresh. A request assertion also
//! binds the method and the path, lives a few seconds and has a `jti`: an upstream that remembers the ids of these
//! seconds accepts each one once. A retry on a new connection carries the same assertion, so an upstream that received
//! both has received one request.
//!
//! The method is `htm` (the name is RFC 9449's); `path` is the path that was matched and that is in the request
//! line. It is not that RFC's `htu`, a whole URI, because upstreams do not know which scheme and host clients use. The
//! query is not bound: no rule reads it, upstreams see it parsed and would hash another spelling, and a rule with
//! `forward_token` leaves a token in it.
//!
//! Both kinds have the same `typ`. An upstream that requires request assertions checks for `jti`, which a session
//! assertion never has.

use std::time::Duration;

use serde::Serialize;

use super::Tokens;
use super::keys::Purpose;
use crate::domain::clock::Timestamp;
use crate::domain::scope::Scope;
use crate::domain::secret::random_name;
use crate::domain::session::Session;

/// Lifetime of a session assertion.
pub const LIFETIME: Duration = Duration::from_secs(60);

/// How long a session assertion is reused; shorter than its lifetime, so that it is still valid at the upstream.
pub const FRESH: Duration = Duration::from_secs(40);

/// Lifetime of a request assertion, and how long an upstream must remember its `jti`.
pub const REQUEST_LIFETIME: Duration = Duration::from_secs(10);

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
    /// What the matrix granted; absent for rules without `access`.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
    #[serde(flatten)]
    request: Option<RequestClaims<'a>>,
}

/// The additional claims of a request assertion.
#[derive(Serialize)]
struct RequestClaims<'a> {
    jti: String,
    htm: &'a str,
    path: &'a str,
}

impl Tokens {
    /// Signs the session assertion for one upstream and scope.
    pub fn assert_identity(&self, session: &Session, upstream: &str, scope: Option<Scope>, now: Timestamp) -> String {
        self.assert(session, upstream, scope, None, LIFETIME, now)
    }

    /// Signs the assertion of one request, with a `jti` of its own.
    pub fn assert_request(
        &self,
        session: &Session,
        upstream: &str,
        scope: Option<Scope>,
        method: &str,
        path: &str,
        now: Timestamp,
    ) -> String {
        let request = RequestClaims { jti: random_name(22), htm: method, path };
        self.assert(session, upstream, scope, Some(request), REQUEST_LIFETIME, now)
    }

    fn assert(
        &self,
        session: &Session,
        upstream: &str,
        scope: Option<Scope>,
        request: Option<RequestClaims<'_>>,
        lifetime: Duration,
        now: Timestamp,
    ) -> String {
        let claims = AssertionClaims {
            iss: self.issuer(),
            aud: upstream,
            sub: session.employee_id.as_str(),
            sid: session.id.as_str(),
            iat: now.seconds(),
            nbf: now.seconds(),
            exp: now.plus(lifetime).seconds(),
            corp_id: session.corp_id.as_str(),
            name: &session.name,
            department: &session.department,
            roles: session.roles.iter().map(|role| role.as_str()).collect(),
            current_role: session.current_role.as_str(),
            login_source: session.login_source.as_str(),
            scope: scope.map(Scope::as_str),
            request,
        };
        self.keys().active(now).sign(Purpose::Assertion, &claims)
    }
}
