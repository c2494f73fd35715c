//! The identity assertion: the gateway's signed word to one upstream about one caller.
//!
//! There are two kinds. The session's is made once and reused while it is fresh. The request's also says what is
//! asked, lives only as long as a head takes to its upstream, and has a `jti` of its own: an upstream that remembers the
//! ids of these few seconds takes none twice. A request that we must send again because an idle connection had closed
//! carries the same one: an upstream that got both has got one request.
//!
//! What is asked is `htm`, the method under RFC 9449's name, and `path`, as it was matched and as it stands in the
//! request line. It is not that document's `htu`, a whole URI: upstreams do not know by which scheme and host clients
//! call us. The query is left out: no rule looks at it, so we have nothing to say about it; upstreams see it parsed and
//! would hash another spelling than ours; and a rule with `forward_token` leaves a token in it.
//!
//! Both kinds have the same `typ`. An upstream that wants the request's asks for `jti`, which the session's never has.

use std::time::Duration;

use serde::Serialize;

use super::Tokens;
use super::keys::Purpose;
use crate::domain::clock::Timestamp;
use crate::domain::secret::random_name;
use crate::domain::session::Session;

/// How long an assertion of a session is believed.
pub const LIFETIME: Duration = Duration::from_secs(60);

/// How long one is reused: it must still be good for a while when the upstream reads it.
pub const FRESH: Duration = Duration::from_secs(40);

/// How long an assertion of a request is believed, and so how long its id must be remembered.
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
    #[serde(flatten)]
    request: Option<RequestClaims<'a>>,
}

/// What an assertion of a request says beyond that.
#[derive(Serialize)]
struct RequestClaims<'a> {
    jti: String,
    htm: &'a str,
    path: &'a str,
}

impl Tokens {
    /// The assertion of a session for one upstream.
    pub fn assert_identity(&self, session: &Session, upstream: &str, now: Timestamp) -> String {
        self.assert(session, upstream, None, LIFETIME, now)
    }

    /// The assertion of one request for its upstream. No other has its id.
    pub fn assert_request(
        &self,
        session: &Session,
        upstream: &str,
        method: &str,
        path: &str,
        now: Timestamp,
    ) -> String {
        let request = RequestClaims { jti: random_name(22), htm: method, path };
        self.assert(session, upstream, Some(request), REQUEST_LIFETIME, now)
    }

    fn assert(
        &self,
        session: &Session,
        upstream: &str,
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
            request,
        };
        self.keys().active(now).sign(Purpose::Assertion, &claims)
    }
}
