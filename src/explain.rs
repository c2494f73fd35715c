//! Explains how a request would be answered, and why: every check of every rule whose path matches.
//!
//! Runs the phases of `pipeline` with an observer, so that it cannot disagree with them. A sample session replaces
//! `credentials` and `verify`; `assertion` is not run.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::StatusCode;
use serde::Serialize;

use crate::config::{Config, Development, LimitsConfig};
use crate::domain::clock::Clock;
use crate::domain::host::AllowedHosts;
use crate::domain::language::Language;
use crate::domain::path;
use crate::domain::rate::retry_after_seconds;
use crate::error::Error;
use crate::pipeline::client_address::TrustedProxies;
use crate::pipeline::cors::{CorsPolicy, PreflightAnswer};
use crate::pipeline::head::{Fields, HeaderLines, HttpVersion, RequestHead, Transport};
use crate::pipeline::route::Target;
use crate::pipeline::{self, CheckedCaller, Permit, Phase, Policy, arrive, authorize, verify};
use crate::rules::RuleSet;
use crate::rules::case::SampleRequest;

mod browser;

mod candidate;

mod cases;

mod counters;

mod text;

pub use candidate::{Candidate, CheckOutcome, ExplainedCheck};
pub use cases::check_cases;
pub use text::ColorChoice;

use candidate::Steps;
use counters::FixedTimeCounters;

/// The response that the client would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedAnswer {
    /// The error code; 0 if the request is allowed.
    pub code: u16,
    /// The HTTP status of a refusal; `None` if the upstream answers.
    pub status: Option<u16>,
    /// The rule or endpoint that decides.
    pub rule: Option<String>,
    /// The upstream that answers.
    pub upstream: Option<String>,
    /// The scope that the matrix grants.
    pub scope: Option<String>,
    /// The assertion that the upstream gets; `None` for anonymous callers.
    pub assertion: Option<&'static str>,
    /// Why the request is refused, in the words of the log; or what a rule or rate in shadow mode would refuse.
    pub reason: Option<String>,
    /// The key of the rule that refuses the request.
    pub by: Option<&'static str>,
    /// The seconds of `Retry-After`.
    pub retry_after: Option<u64>,
}

/// An explanation: the request, the rules whose path matches, and the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The request in one line.
    pub request: String,
    /// Every rule whose path matches, the deciding one first, then the most specific.
    pub candidates: Vec<Candidate>,
    /// The answer.
    pub answer: ExplainedAnswer,
    /// What the browser of a page makes of it; empty without an `Origin`.
    pub notes: Vec<String>,
}

/// Explains requests under one set of rules and settings.
pub struct Explainer<'a> {
    rules: &'a RuleSet,
    limits: ArcSwap<LimitsConfig>,
    cors: CorsPolicy,
    own_origin: String,
    websocket_origins: Vec<String>,
    development: Development,
}

impl<'a> Explainer<'a> {
    /// Explains under a configuration; the default one has development mode off.
    pub fn new(rules: &'a RuleSet, config: &Config) -> Self {
        Self {
            rules,
            limits: ArcSwap::from_pointee(config.limits.clone()),
            cors: CorsPolicy::new(config),
            own_origin: config.server.public_url.origin().ascii_serialization(),
            websocket_origins: config.websocket_origins(),
            development: config.server.development_mode(),
        }
    }

    /// Explains the answer to a request that follows `before` identical requests at the same instant.
    pub fn explain(&self, sample: &SampleRequest, before: u32) -> Explanation {
        let mut steps = Steps::default();
        let (target, verdict) = self.decide(sample, before, &mut steps);
        let candidates = self.candidates(sample, target.as_ref(), steps.checks);
        let decides = candidates.iter().find(|candidate| candidate.decides);
        let notes = self.browser_notes(sample, target.as_ref(), &verdict);
        let answer = match verdict {
            Ok(Permit::Preflight(answer)) => preflight(&answer),
            Ok(permit) => ExplainedAnswer { reason: steps.shadow, ..allowed(&permit, decides) },
            Err(error) => refused(&error, decides),
        };
        let origin = sample.origin.as_ref().map(|origin| format!(", by a page of {origin}")).unwrap_or_default();
        let announced = sample.requested_method.as_ref().map(|method| format!(", preflight for {method}"));
        let announced = announced.unwrap_or_default();
        let caller = match &sample.role {
            Some(role) => format!("{} as `{role}`", sample.employee_id),
            None => "not signed in".to_owned(),
        };
        let request = format!("{} {} from {}, {caller}{origin}{announced}", sample.method, sample.path, sample.address);
        Explanation { request, candidates, answer, notes }
    }

    /// Runs the phases. Returns what answers the request, if it was found, and the verdict.
    fn decide(
        &self,
        sample: &SampleRequest,
        before: u32,
        steps: &mut Steps,
    ) -> (Option<Target>, Result<Permit, Error>) {
        let (counters, clock) = (FixedTimeCounters::default(), Clock::system());
        let policy = Policy {
            limits: &self.limits,
            hosts: &AllowedHosts::LOOPBACK,
            origins: &[],
            cors: &self.cors,
            development: self.development,
            counters: &counters,
            // Every request is charged at once.
            shared_counters: None,
            clock: &clock,
        };
        let head = RequestHead {
            method: &sample.method,
            target: sample.path.as_bytes(),
            version: HttpVersion::Http11,
            authority: None,
            lines: &SampleLines(sample),
            raw: None,
            stream_goes_on: false,
            peer: sample.address,
            transport: Transport::Plain,
        };
        let fields = Fields::of(head.lines);
        let arrival = arrive::describe(&TrustedProxies::NONE, Language::English, &self.cors, &head, &fields);
        let (request, target) = match pipeline::locate(&policy, self.rules, &head, &fields, &mut Phase::default()) {
            Ok(located) => located,
            Err(error) => return (None, Err(error)),
        };
        // A sample session replaces `credentials::read` and `verify::caller`.
        let caller = verify::caller_of_session(&target, sample.session());
        let caller = CheckedCaller { caller, arrival: &arrival, now: clock.now() };
        let mut phase = Phase::default();
        for _ in 0..before {
            let earlier = pipeline::admit(&policy, target.clone(), caller.clone(), &request, &mut phase, &mut ());
            // All requests come at the same instant: after the first refusal every further one is refused as well.
            if earlier.is_err() {
                break;
            }
        }
        let verdict = pipeline::admit(&policy, target.clone(), caller, &request, &mut phase, steps);
        (Some(target), verdict.map(|(permit, _)| permit))
    }

    fn candidates(
        &self,
        sample: &SampleRequest,
        target: Option<&Target>,
        checks: Vec<ExplainedCheck>,
    ) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let mut decides = None;
        match target {
            Some(Target::Own { route, rates }) => {
                let all = authorize::own_checks(route, self.development);
                candidates.push(Candidate::endpoint(route.method, route.path, all, rates, checks));
            }
            Some(Target::Rule(rule)) => {
                candidates.push(Candidate::deciding(rule, checks));
                decides = Some(rule);
            }
            Some(Target::UpstreamPreflight(rule)) => {
                candidates.push(Candidate::preflight(rule, checks));
                decides = Some(rule);
            }
            Some(Target::Preflight { .. }) | None => {}
        }
        if let Ok(path) = path::canonical(sample.path.as_bytes()) {
            let rules = self.rules.candidates(&path).into_iter();
            let others = rules.filter(|rule| !decides.is_some_and(|decides| Arc::ptr_eq(decides, rule)));
            candidates.extend(others.map(|rule| Candidate::passed_over(rule, &sample.method)));
        }
        candidates
    }
}

fn allowed(permit: &Permit, decides: Option<&Candidate>) -> ExplainedAnswer {
    let forwarded = match permit {
        Permit::Own(_) | Permit::Preflight(_) | Permit::Redirect(_) => None,
        Permit::Upstream(permit) => Some(permit),
    };
    ExplainedAnswer {
        code: 0,
        status: None,
        rule: decides.map(|candidate| candidate.rule.clone()),
        upstream: forwarded.map(|permit| permit.rule.upstream.name.to_string()),
        scope: forwarded.and_then(|permit| permit.scope).map(|scope| scope.to_string()),
        assertion: forwarded.filter(|permit| permit.caller.session().is_some()).map(|p| p.rule.assertion.as_str()),
        reason: None,
        by: None,
        retry_after: None,
    }
}

/// The gateway's own answer to a preflight: no rule decides, the path's methods are listed.
fn preflight(answer: &PreflightAnswer) -> ExplainedAnswer {
    ExplainedAnswer {
        code: 0,
        status: Some(StatusCode::NO_CONTENT.as_u16()),
        rule: None,
        upstream: None,
        scope: None,
        assertion: None,
        reason: Some(format!("the answer to a preflight, which allows {}", answer.methods)),
        by: None,
        retry_after: None,
    }
}

fn refused(error: &Error, decides: Option<&Candidate>) -> ExplainedAnswer {
    let failed = decides.and_then(|candidate| candidate.checks.iter().find(|it| it.outcome == CheckOutcome::Miss));
    let reason = match error {
        // The code says that it is a bad request.
        Error::BadRequest(fault) => fault.to_string(),
        error => error.to_string(),
    };
    ExplainedAnswer {
        code: error.code().number(),
        status: Some(error.status().as_u16()),
        rule: decides.map(|candidate| candidate.rule.clone()),
        upstream: None,
        scope: None,
        assertion: None,
        reason: Some(reason),
        by: failed.map(|check| check.check),
        retry_after: error.retry_after().map(retry_after_seconds),
    }
}

/// The header lines of a sample request: `Host`, which HTTP/1.1 requires, and those of a page.
struct SampleLines<'s>(&'s SampleRequest);

impl HeaderLines for SampleLines<'_> {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a [u8], &'a [u8])) {
        visit(b"host", b"localhost");
        if let Some(origin) = &self.0.origin {
            visit(b"origin", origin.as_bytes());
        }
        if let Some(method) = &self.0.requested_method {
            visit(b"access-control-request-method", method.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
