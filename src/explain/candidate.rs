//! The rules whose path matches a request, with the outcome of each of their checks.

use serde::Serialize;

use crate::domain::rate::Charged;
use crate::domain::role::RoleName;
use crate::error::Error;
use crate::pipeline::Permit;
use crate::pipeline::observe::DecisionObserver;
use crate::rules::evaluate::{Admitted, Check, Observer};
use crate::rules::rate::Rate;
use crate::rules::{Mode, Rule};

/// The outcome of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// The check passed.
    Hit,
    /// The check failed.
    Miss,
    /// The check was not evaluated.
    NotReached,
}

impl CheckOutcome {
    /// The outcome as text.
    pub fn as_str(self) -> &'static str {
        match self {
            CheckOutcome::Hit => "hit",
            CheckOutcome::Miss => "miss",
            CheckOutcome::NotReached => "not reached",
        }
    }
}

/// One check of a rule or endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedCheck {
    /// The key of the rule that requires it.
    pub check: &'static str,
    /// What it requires.
    pub wants: String,
    /// The outcome.
    pub outcome: CheckOutcome,
}

/// A rule or endpoint whose path matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The name.
    pub rule: String,
    /// File and line.
    pub place: String,
    /// Whether it decides.
    pub decides: bool,
    /// Whether it is in shadow mode.
    pub shadow: bool,
    /// The checks, in evaluation order.
    #[serde(rename = "steps")]
    pub checks: Vec<ExplainedCheck>,
}

impl Candidate {
    /// The rule that decides. `evaluated` are the checks that the pipeline has evaluated.
    pub(super) fn deciding(rule: &Rule, evaluated: Vec<ExplainedCheck>) -> Self {
        let all = rule.checks().map(explained).chain(rule.rates.iter().map(explained_rate));
        let checks = with_unreached(evaluated, all.collect());
        Self::of_rule(rule, Decides::Yes, CheckOutcome::Hit, checks)
    }

    /// The rule whose upstream answers a preflight.
    pub(super) fn preflight(rule: &Rule, evaluated: Vec<ExplainedCheck>) -> Self {
        let checks = with_unreached(evaluated, rule.preflight_checks().map(explained).collect());
        Self::of_rule(rule, Decides::Yes, CheckOutcome::Hit, checks)
    }

    /// A rule that does not decide: a more specific path does, or the rule has other methods.
    pub(super) fn passed_over(rule: &Rule, method: &str) -> Self {
        let outcome = if rule.allows_method(method) { CheckOutcome::NotReached } else { CheckOutcome::Miss };
        let checks = rule.checks().map(explained).chain(rule.rates.iter().map(explained_rate));
        Self::of_rule(rule, Decides::No, outcome, checks.collect())
    }

    /// One of the gateway's own endpoints.
    pub(super) fn endpoint<'a>(
        method: &str,
        path: &str,
        checks: impl Iterator<Item = Check<'a>>,
        rates: &[Rate],
        evaluated: Vec<ExplainedCheck>,
    ) -> Self {
        let all = checks.map(explained).chain(rates.iter().map(explained_rate));
        let mut checks = vec![hit("path", path.to_owned()), hit("methods", method.to_owned())];
        checks.extend(with_unreached(evaluated, all.collect()));
        let rule = format!("the gateway's own {path}");
        Self { rule, place: "endpoints".to_owned(), decides: true, shadow: false, checks }
    }

    fn of_rule(rule: &Rule, decides: Decides, method: CheckOutcome, rest: Vec<ExplainedCheck>) -> Self {
        let methods = if rule.methods.is_empty() { "any".to_owned() } else { rule.methods.join(", ") };
        let mut checks = vec![
            hit("path", rule.path.to_string()),
            ExplainedCheck { check: "methods", wants: methods, outcome: method },
        ];
        checks.extend(rest);
        Self {
            rule: rule.name.to_string(),
            place: rule.place.clone(),
            decides: decides == Decides::Yes,
            shadow: rule.mode == Mode::Shadow,
            checks,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Decides {
    Yes,
    No,
}

fn hit(check: &'static str, wants: String) -> ExplainedCheck {
    ExplainedCheck { check, wants, outcome: CheckOutcome::Hit }
}

/// Adds the checks that were not evaluated. A rule in shadow mode skips from a failed check to its rates, so the two
/// kinds are merged separately.
fn with_unreached(evaluated: Vec<ExplainedCheck>, all: Vec<ExplainedCheck>) -> Vec<ExplainedCheck> {
    let is_rate = |it: &ExplainedCheck| it.check == RATE;
    let (evaluated_rates, evaluated_checks): (Vec<_>, Vec<_>) = evaluated.into_iter().partition(is_rate);
    let (all_rates, all_checks): (Vec<_>, Vec<_>) = all.into_iter().partition(is_rate);
    let merge = |evaluated: Vec<ExplainedCheck>, all: Vec<ExplainedCheck>| {
        let reached = evaluated.len();
        evaluated.into_iter().chain(all.into_iter().skip(reached))
    };
    merge(evaluated_checks, all_checks).chain(merge(evaluated_rates, all_rates)).collect()
}

/// The key of rates in rule files.
const RATE: &str = "rate";

/// A check that was not evaluated.
fn explained(check: Check<'_>) -> ExplainedCheck {
    let (check, wants) = match check {
        Check::Development(_) => ("development", "development mode".to_owned()),
        Check::ThisMachine => ("this_machine", "a loopback client and host".to_owned()),
        Check::Token => ("signed_in", "a valid token".to_owned()),
        Check::Stage => ("stage", "a token that is not half-authenticated".to_owned()),
        Check::Proven => ("proven", "a session that began with more than an employee ID".to_owned()),
        Check::Networks(networks) => {
            ("networks", networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
        Check::Roles(roles) => ("roles", roles.iter().map(RoleName::as_str).collect::<Vec<_>>().join(", ")),
        Check::Matrix(access) => ("access", access.to_string()),
        Check::When(condition) if condition.ignores_case() => {
            ("when", format!("{} (paths ignoring case)", condition.text()))
        }
        Check::When(condition) => ("when", condition.text().to_owned()),
        Check::StepUp => ("step_up", "a fresh one-time password".to_owned()),
    };
    ExplainedCheck { check, wants, outcome: CheckOutcome::NotReached }
}

/// A rate that was not charged.
fn explained_rate(rate: &Rate) -> ExplainedCheck {
    let shadow = if rate.mode == Mode::Shadow { " (shadow)" } else { "" };
    ExplainedCheck { check: RATE, wants: format!("{rate}{shadow}"), outcome: CheckOutcome::NotReached }
}

/// Keeps every step of a decision.
#[derive(Default)]
pub(super) struct Steps {
    /// The checks that were evaluated and the rates that were charged.
    pub(super) checks: Vec<ExplainedCheck>,
    /// The first refusal that shadow mode lets pass.
    pub(super) shadow: Option<String>,
}

impl Steps {
    fn keep_shadow(&mut self, error: &Error) {
        let reason = || format!("shadow: would be refused with {}: {error}", error.code().number());
        self.shadow.get_or_insert_with(reason);
    }
}

impl Observer for Steps {
    fn on_check(&mut self, check: Check<'_>, outcome: &Result<(), Error>) {
        let outcome = if outcome.is_ok() { CheckOutcome::Hit } else { CheckOutcome::Miss };
        self.checks.push(ExplainedCheck { outcome, ..explained(check) });
    }
}

impl DecisionObserver for Steps {
    fn on_rule(&mut self, _: &Rule, mode: Mode, outcome: &Result<Admitted, Error>) {
        if let (Err(error), Mode::Shadow) = (outcome, mode) {
            self.keep_shadow(error);
        }
    }

    fn on_charge(&mut self, _: &Permit, rate: &Rate, charged: Charged) {
        let outcome = match charged {
            Charged::Admitted { .. } => CheckOutcome::Hit,
            Charged::Refused { retry_after } => {
                if rate.mode == Mode::Shadow {
                    self.keep_shadow(&rate.exceeded(retry_after));
                }
                CheckOutcome::Miss
            }
        };
        self.checks.push(ExplainedCheck { outcome, ..explained_rate(rate) });
    }

    fn on_limit(&mut self, permit: &Permit, outcome: &Result<(), Error>) {
        if let (Err(error), Permit::Upstream(permit)) = (outcome, permit)
            && permit.rule.mode == Mode::Shadow
        {
            self.keep_shadow(error);
        }
    }
}
