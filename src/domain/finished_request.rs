//! Finished requests as operators see them: `deskgate tail` shows all, `deskgate explain --request-id` the refused ones. Neither
//! has a query, a header but `Host`, or any part of a token.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::clock::Timestamp;

/// A request whose response has ended, or that was refused or cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedRequest<'a> {
    /// When it ended.
    pub at: Timestamp,
    /// The request id.
    pub request_id: Cow<'a, str>,
    /// The client's address.
    pub client_address: IpAddr,
    /// The method.
    pub method: Cow<'a, str>,
    /// The path without the query.
    pub path: Cow<'a, str>,
    /// The response's status; 0 if none was sent.
    pub status: u16,
    /// The error code; 0 if the request was not refused.
    pub code: u16,
    /// What happened, in the words of the log.
    pub reason: Cow<'a, str>,
    /// The rule, or the path of the gateway's own endpoint; `None` if the request was refused before it was routed.
    pub rule: Option<Cow<'a, str>>,
    /// The employee; `None` without a valid token.
    pub employee_id: Option<Cow<'a, str>>,
    /// The employee's corporation.
    pub corp_id: Option<Cow<'a, str>>,
    /// The upstream, if the request was sent there or was to be.
    pub upstream: Option<Cow<'a, str>>,
    /// The time from the head to the end of the response.
    pub duration_ms: f64,
}

/// A request that was refused, failed or was cut, with what the decision looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedRequest<'a> {
    /// The request.
    #[serde(flatten)]
    pub request: FinishedRequest<'a>,
    /// The phase of the request lifecycle that refused it.
    pub phase: Cow<'static, str>,
    /// The check that failed, by its key in rule files where it has one.
    pub check: Option<Cow<'static, str>>,
    /// What the check requires.
    pub wants: Option<Cow<'a, str>>,
    /// File and line of the rule.
    pub rule_place: Option<Cow<'a, str>>,
    /// The address of the connection's other end.
    pub peer_address: IpAddr,
    /// The host that the request named.
    pub host: Option<Cow<'a, str>>,
    /// The caller; `None` without a valid token.
    pub caller: Option<RefusedCaller<'a>>,
    /// For an exceeded rate limit: how many requests it admits.
    pub rate_limit: Option<u32>,
    /// Whether `deskgate explain METHOD PATH` can repeat the decision.
    pub is_repeatable: bool,
    /// What to do about it.
    pub next_step: Cow<'static, str>,
}

/// What a decision knows of a caller, besides the employee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCaller<'a> {
    /// The active role.
    pub current_role: Cow<'a, str>,
    /// The held roles.
    pub roles: Vec<Cow<'a, str>>,
    /// The display name; empty unless the rule has a condition.
    pub name: Cow<'a, str>,
    /// The department; empty unless the rule has a condition.
    pub department: Cow<'a, str>,
    /// The sign-in method.
    pub login_method: Cow<'static, str>,
    /// Where the employee signed in.
    pub login_source: Cow<'static, str>,
    /// Whether the session had a recent one-time password.
    pub stepped_up: bool,
}

impl FinishedRequest<'_> {
    /// A refused request of the employee `u1001` for tests, which change what they are about.
    #[cfg(test)]
    pub fn sample() -> FinishedRequest<'static> {
        FinishedRequest {
            at: Timestamp::from_millis(1_500),
            request_id: "0123456789abcdef".into(),
            client_address: IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3)),
            method: "GET".into(),
            path: "/api/agent-desk/x".into(),
            status: 403,
            code: 1003,
            reason: "refused with 1003: forbidden".into(),
            rule: Some("agent desk".into()),
            employee_id: Some("u1001".into()),
            corp_id: Some("wwdemo".into()),
            upstream: None,
            duration_ms: 1.25,
        }
    }

    /// With its own copies of the texts.
    pub fn into_owned(self) -> FinishedRequest<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        FinishedRequest {
            at: self.at,
            request_id: owned(self.request_id),
            client_address: self.client_address,
            method: owned(self.method),
            path: owned(self.path),
            status: self.status,
            code: self.code,
            reason: owned(self.reason),
            rule: self.rule.map(owned),
            employee_id: self.employee_id.map(owned),
            corp_id: self.corp_id.map(owned),
            upstream: self.upstream.map(owned),
            duration_ms: self.duration_ms,
        }
    }
}

/// Which requests a follower wants to see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowFilter {
    /// Which outcomes.
    pub outcomes: FollowedOutcomes,
    /// Only those of this employee.
    pub employee_id: Option<String>,
    /// Only those of this rule, or of the gateway's own endpoint with this path.
    pub rule: Option<String>,
}

/// Which outcomes a follower wants to see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowedOutcomes {
    /// Every request.
    #[default]
    All,
    /// What `log.requests = "refused"` logs: requests that were refused, failed, were cut or whose client disconnected.
    Refused,
}

/// What a follower reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowEvent {
    /// The gateway publishes requests from now on.
    Started,
    /// A request has ended.
    Request(Box<FinishedRequest<'static>>),
    /// The follower was too slow for this many requests, which are not shown.
    Lost(u64),
}
