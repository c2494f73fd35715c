//! Finished requests as operators see them: `deskgate tail` shows all, `deskgate explain --request-id` the refused ones. Neither
//! has a query, a header but `Host`, or any part of a token.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::clock::Timestamp;

/// A request whose response has ended, or that was refused or cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedRequest {
    /// When it ended.
    pub at: Timestamp,
    /// The request id.
    pub request_id: String,
    /// The client's address.
    pub client_address: IpAddr,
    /// The method.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The response's status; 0 if none was sent.
    pub status: u16,
    /// The error code; 0 if the request was not refused.
    pub code: u16,
    /// What happened, in the words of the log.
    pub reason: String,
    /// The rule, or the path of the gateway's own endpoint; `None` if the request was refused before it was routed.
    pub rule: Option<String>,
    /// The employee; `None` without a valid token.
    pub employee_id: Option<String>,
    /// The employee's corporation.
    pub corp_id: Option<String>,
    /// The upstream, if the request was sent there or was to be.
    pub upstream: Option<String>,
    /// The time from the head to the end of the response.
    pub duration_ms: f64,
}

/// A request that was refused, failed or was cut, with what the decision looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedRequest {
    /// The request.
    #[serde(flatten)]
    pub request: FinishedRequest,
    /// The phase of the request lifecycle that refused it.
    pub phase: Cow<'static, str>,
    /// The check that failed, by its key in rule files where it has one.
    pub check: Option<Cow<'static, str>>,
    /// What the check requires.
    pub wants: Option<String>,
    /// File and line of the rule.
    pub rule_place: Option<String>,
    /// The address of the connection's other end.
    pub peer_address: IpAddr,
    /// The host that the request named.
    pub host: Option<String>,
    /// The caller; `None` without a valid token.
    pub caller: Option<RefusedCaller>,
    /// For an exceeded rate limit: how many requests it admits.
    pub rate_limit: Option<u32>,
    /// Whether `deskgate explain METHOD PATH` can repeat the decision.
    pub is_repeatable: bool,
    /// What to do about it.
    pub next_step: Cow<'static, str>,
}

/// What a decision knows of a caller, besides the employee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCaller {
    /// The active role.
    pub current_role: String,
    /// The held roles.
    pub roles: Vec<String>,
    /// The display name; empty unless the rule has a condition.
    pub name: String,
    /// The department; empty unless the rule has a condition.
    pub department: String,
    /// The sign-in method.
    pub login_method: Cow<'static, str>,
    /// Where the employee signed in.
    pub login_source: Cow<'static, str>,
    /// Whether the session had a recent one-time password.
    pub stepped_up: bool,
}

impl FinishedRequest {
    /// The memory of the texts.
    fn text_bytes(&self) -> usize {
        let optional = [&self.rule, &self.employee_id, &self.corp_id, &self.upstream];
        let texts = [&self.request_id, &self.method, &self.path, &self.reason].into_iter();
        texts.chain(optional.into_iter().flatten()).map(String::len).sum()
    }
}

impl RefusedRequest {
    /// The memory that the record takes, without what the allocator adds.
    pub fn memory_bytes(&self) -> usize {
        let optional = [&self.wants, &self.rule_place, &self.host].into_iter().flatten().map(String::len);
        let of_caller = self.caller.as_ref().map_or(0, |caller| {
            let texts = [&caller.current_role, &caller.name, &caller.department].into_iter().map(String::len);
            texts.chain(caller.roles.iter().map(|role| role.len() + size_of::<String>())).sum()
        });
        size_of::<Self>() + self.request.text_bytes() + optional.sum::<usize>() + of_caller
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
    Request(Box<FinishedRequest>),
    /// The follower was too slow for this many requests, which are not shown.
    Lost(u64),
}
