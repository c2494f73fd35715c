//! Why a request is answered as it is: every condition of every rule that its path fits.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::case::SampleRequest;
use super::judge::{Check, Facts, Observer, StepUp};
use super::rate::{self, Rate};
use super::{Lookup, Mode, Rule, RuleSet};
use crate::domain::path;
use crate::domain::rate::{Charged, retry_after_seconds};
use crate::domain::role::RoleName;
use crate::domain::session::Session;
use crate::endpoints::{self, OwnAccess, OwnLookup, OwnRoute};
use crate::error::{Error, Forbidden};
use crate::store::counters::InMemory;

mod text;

pub use text::Paint;

/// What became of one condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is met.
    Hit,
    /// It is not met.
    Miss,
    /// It was not looked at: another one decided before.
    NotReached,
}

impl Outcome {
    /// As people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Hit => "hit",
            Outcome::Miss => "miss",
            Outcome::NotReached => "not reached",
        }
    }
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Which key of the rule says it.
    pub check: &'static str,
    /// What it wants.
    pub wants: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// A rule whose path fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Its name.
    pub rule: String,
    /// Its file and line.
    pub place: String,
    /// Whether it decides.
    pub decides: bool,
    /// Whether it is only watched.
    pub shadow: bool,
    /// Its conditions, in the order in which they are looked at.
    pub steps: Vec<Step>,
}

/// What the client gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// 0 when the request is let through.
    pub code: u16,
    /// The HTTP status of a refusal; nothing when the upstream answers.
    pub status: Option<u16>,
    /// The rule or endpoint that decides.
    pub rule: Option<String>,
    /// Where the request goes.
    pub upstream: Option<String>,
    /// What the matrix granted.
    pub scope: Option<String>,
    /// Which assertion the upstream gets; nothing when nobody is signed in.
    pub assertion: Option<&'static str>,
    /// Why it is refused, as the log says it; or what a shadow rule or rate would do.
    pub reason: Option<String>,
    /// Which key of the rule refused it.
    pub by: Option<&'static str>,
    /// Seconds, as `Retry-After` says them.
    pub retry_after: Option<u64>,
}

/// The whole explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The request in one line.
    pub request: String,
    /// Every rule whose path fits, the most specific first.
    pub candidates: Vec<Candidate>,
    /// What the client gets.
    pub answer: Answer,
}

/// Writes down what a judgement looked at.
struct Notes(Vec<Step>);

impl Observer for Notes {
    fn on_check(&mut self, check: Check<'_>, outcome: &Result<(), Error>) {
        let outcome = if outcome.is_ok() { Outcome::Hit } else { Outcome::Miss };
        self.0.push(Step { outcome, ..step(check) });
    }
}

fn step(check: Check<'_>) -> Step {
    let names = |roles: &[RoleName]| roles.iter().map(RoleName::as_str).collect::<Vec<_>>().join(", ");
    let (check, wants) = match check {
        Check::Token => ("signed_in", "a valid token".to_owned()),
        Check::Stage => ("stage", "a token that is not half-authenticated".to_owned()),
        Check::Networks(networks) => {
            ("networks", networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
        Check::Roles(roles) => ("roles", names(roles)),
        Check::Matrix(access) => ("access", access.to_string()),
        Check::When(condition) => ("when", condition.text().to_owned()),
        Check::StepUp => ("step_up", "a fresh one-time password".to_owned()),
    };
    Step { check, wants, outcome: Outcome::NotReached }
}

fn rate_step(rate: &Rate, outcome: Outcome) -> Step {
    let shadow = if rate.mode == Mode::Shadow { " (shadow)" } else { "" };
    Step { check: "rate", wants: format!("{rate}{shadow}"), outcome }
}

impl RuleSet {
    /// Explains the answer to a request that comes after `before` others like it in the same moment.
    pub fn explain(&self, asked: &SampleRequest, before: u32) -> Explanation {
        let session = asked.session();
        let facts = asked.facts(session.as_ref());
        let mut candidates = Vec::new();
        let answer = match self.judge(asked, &facts, before, &mut candidates) {
            Ok(answer) => answer,
            Err((rule, error)) => Answer {
                code: error.code().number(),
                status: Some(error.code().status().as_u16()),
                rule,
                upstream: None,
                scope: None,
                assertion: None,
                retry_after: error.retry_after().map(retry_after_seconds),
                reason: Some(error.to_string()),
                by: None,
            },
        };
        let decided = candidates.iter().find(|candidate| candidate.decides && answer.code != 0);
        let missed = decided.and_then(|candidate| candidate.steps.iter().find(|step| step.outcome == Outcome::Miss));
        let by = missed.map(|step| step.check);
        let answer = Answer { by, ..answer };
        let who = match &asked.role {
            Some(role) => format!("{} as `{role}`", asked.employee_id),
            None => "nobody signed in".to_owned(),
        };
        let request = format!("{} {} from {}, {who}", asked.method, asked.path, asked.address);
        Explanation { request, candidates, answer }
    }

    fn judge(
        &self,
        asked: &SampleRequest,
        facts: &Facts<'_>,
        before: u32,
        candidates: &mut Vec<Candidate>,
    ) -> Result<Answer, (Option<String>, Error)> {
        let nobody = |error: Error| (None, error);
        let plain = path::canonical(facts.path.as_bytes()).map_err(|fault| nobody(fault.into()))?;
        let facts = Facts { path: &plain, ..*facts };
        match endpoints::find(facts.method, facts.path) {
            OwnLookup::Endpoint(route) => return self.judge_own(route, asked, &facts, before, candidates),
            OwnLookup::OtherMethods(allow) => return Err(nobody(Error::MethodNotAllowed { allow })),
            OwnLookup::Nothing => return Err(nobody(Error::NotFound)),
            OwnLookup::NotOurs => {}
        }
        let found = self.find(facts.method, facts.path);
        for rule in self.candidates(facts.path) {
            if !matches!(found, Lookup::Rule(decides) if Arc::ptr_eq(decides, rule)) {
                candidates.push(passed_over(rule, facts.method));
            }
        }
        let rule = match found {
            Lookup::Rule(rule) => rule,
            Lookup::OtherMethods(allow) => return Err(nobody(Error::MethodNotAllowed { allow })),
            Lookup::Nothing => return Err(nobody(Error::NotFound)),
        };
        let mut notes = Notes(vec![
            Step { check: "path", wants: rule.path.to_string(), outcome: Outcome::Hit },
            Step { check: "methods", wants: methods(rule), outcome: Outcome::Hit },
        ]);
        let judged = rule.judge(&facts, &mut notes);
        let Notes(mut steps) = notes;
        // What was not looked at stands there, too.
        steps.extend(rule.checks().skip(steps.len() - 2).map(step));
        let rated = match (&judged, rule.mode) {
            (Ok(_), _) | (Err(_), Mode::Shadow) => rates(&rule.rates, &facts, before, &mut steps),
            (Err(_), Mode::Enforce) => {
                steps.extend(rule.rates.iter().map(|rate| rate_step(rate, Outcome::NotReached)));
                Ok(None)
            }
        };
        candidates.insert(
            0,
            Candidate {
                rule: rule.name.to_string(),
                place: rule.place.clone(),
                decides: true,
                shadow: rule.mode == Mode::Shadow,
                steps,
            },
        );
        let name = Some(rule.name.to_string());
        let (scope, mut reason) = match (judged, rule.mode) {
            (Ok(admitted), _) => (admitted.scope, None),
            (Err(error), Mode::Shadow) => {
                (None, Some(format!("shadow: would be refused with {}: {error}", error.code().number())))
            }
            (Err(error), Mode::Enforce) => return Err((name, error)),
        };
        match rated {
            Ok(shadow) => reason = reason.or(shadow),
            Err(error) if rule.mode == Mode::Shadow => {
                reason = reason.or(Some(format!("shadow: would be refused with 1429: {error}")));
            }
            Err(error) => return Err((name, error)),
        }
        Ok(Answer {
            code: 0,
            status: None,
            rule: name,
            upstream: Some(rule.upstream.name.to_string()),
            scope: scope.map(|scope| scope.to_string()),
            assertion: facts.session.map(|_| rule.assertion.as_str()),
            reason,
            by: None,
            retry_after: None,
        })
    }

    /// One of our own endpoints.
    fn judge_own(
        &self,
        route: &OwnRoute,
        asked: &SampleRequest,
        facts: &Facts<'_>,
        before: u32,
        candidates: &mut Vec<Candidate>,
    ) -> Result<Answer, (Option<String>, Error)> {
        let mut steps = vec![Step { check: "path", wants: route.path.to_owned(), outcome: Outcome::Hit }];
        let refused = match (route.access, &asked.role) {
            (OwnAccess::Anyone, _) => None,
            (access, role) => {
                let outcome = if role.is_some() { Outcome::Hit } else { Outcome::Miss };
                steps.push(Step { outcome, ..step(Check::Token) });
                match facts.session {
                    None => Some(Error::NoCredentials),
                    Some(session) => own_refusal(access, session, facts, &mut steps),
                }
            }
        };
        let own = self.rates_of(route.endpoint);
        let rated = match &refused {
            None => rates(own, facts, before, &mut steps),
            Some(_) => {
                steps.extend(own.iter().map(|rate| rate_step(rate, Outcome::NotReached)));
                Ok(None)
            }
        };
        let rule = format!("the gateway's own {}", route.path);
        candidates.push(Candidate {
            rule: rule.clone(),
            place: "endpoints".to_owned(),
            decides: true,
            shadow: false,
            steps,
        });
        if let Some(error) = refused {
            return Err((Some(rule), error));
        }
        let reason = rated.map_err(|error| (Some(rule.clone()), error))?;
        Ok(Answer {
            code: 0,
            status: None,
            rule: Some(rule),
            upstream: None,
            scope: None,
            assertion: None,
            reason,
            by: None,
            retry_after: None,
        })
    }
}

/// Role and step-up of an endpoint of ours, step by step.
fn own_refusal(access: OwnAccess, session: &Session, facts: &Facts<'_>, steps: &mut Vec<Step>) -> Option<Error> {
    if !matches!(access, OwnAccess::Admin | OwnAccess::SteppedUpAdmin) {
        return None;
    }
    let admin = session.current_role.as_str() == "admin";
    let outcome = |hit: bool| if hit { Outcome::Hit } else { Outcome::Miss };
    steps.push(Step { check: "roles", wants: "admin".to_owned(), outcome: outcome(admin) });
    if !admin {
        let active = session.current_role.clone();
        return Some(Forbidden::RoleRequired { active, wanted: vec![RoleName::new("admin")] }.into());
    }
    if access == OwnAccess::Admin {
        return None;
    }
    let fresh = facts.step_up == StepUp::Fresh;
    steps.push(Step { check: "step_up", wants: "a fresh one-time password".to_owned(), outcome: outcome(fresh) });
    (!fresh).then_some(Error::StepUpRequired)
}

fn methods(rule: &Rule) -> String {
    if rule.methods.is_empty() { "any".to_owned() } else { rule.methods.join(", ") }
}

/// A rule whose path fits, and which does not decide.
fn passed_over(rule: &Rule, method: &str) -> Candidate {
    let takes = if rule.takes(method) { Outcome::NotReached } else { Outcome::Miss };
    let mut steps = vec![
        Step { check: "path", wants: rule.path.to_string(), outcome: Outcome::Hit },
        Step { check: "methods", wants: methods(rule), outcome: takes },
    ];
    steps.extend(rule.checks().map(step));
    steps.extend(rule.rates.iter().map(|rate| rate_step(rate, Outcome::NotReached)));
    Candidate {
        rule: rule.name.to_string(),
        place: rule.place.clone(),
        decides: false,
        shadow: rule.mode == Mode::Shadow,
        steps,
    }
}

/// Counts `before` requests and this one, on counters of its own; says what a shadow rate would do.
fn rates(all: &[Rate], facts: &Facts<'_>, before: u32, steps: &mut Vec<Step>) -> Result<Option<String>, Error> {
    let counters = InMemory::new(all.len() + 1);
    let now = Duration::ZERO;
    for _ in 0..before {
        // From the first refusal on nothing changes any more: it is all one moment.
        if rate::charge(all, &counters, facts.session, facts.address, now, |_, _| {}).is_err() {
            break;
        }
    }
    let mut shadow = None;
    let mut asked = 0;
    let charged = rate::charge(all, &counters, facts.session, facts.address, now, |rate, charged| {
        asked += 1;
        let refused = matches!(charged, Charged::Refused { .. });
        steps.push(rate_step(rate, if refused { Outcome::Miss } else { Outcome::Hit }));
        if refused && rate.mode == Mode::Shadow {
            shadow = Some(format!("shadow: would be refused with 1429: {rate} are used up"));
        }
    });
    steps.extend(all.iter().skip(asked).map(|rate| rate_step(rate, Outcome::NotReached)));
    charged.map(|()| shadow)
}
