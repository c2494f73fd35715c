//! Runs the cases of rule files: each sample request must get the decision that its case expects.

use super::{ExplainedAnswer, Explainer};
use crate::config::Config;
use crate::domain::scope::Scope;
use crate::rules::case::CaseOutcome;
use crate::rules::{RuleFault, RuleSet};

/// Runs the cases of a set of rules, under the default configuration. The faults have the explanation of each case that
/// fails.
pub fn check_cases(rules: &RuleSet) -> Result<(), Vec<RuleFault>> {
    if rules.all_cases().is_empty() {
        return Ok(());
    }
    let explainer = Explainer::new(rules, &Config::default());
    let mut faults = Vec::new();
    for case in rules.all_cases() {
        let explanation = explainer.explain(&case.request, 0);
        if let Err(difference) = case.compare(&outcome(&explanation.answer)) {
            let why = format!("the case fails: {difference}\n{}", explanation.to_text());
            faults.push(RuleFault { file: case.file.clone(), line: case.line, why });
        }
    }
    faults.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn outcome(answer: &ExplainedAnswer) -> CaseOutcome {
    CaseOutcome {
        code: answer.code,
        rule: answer.rule.clone(),
        scope: answer.scope.as_deref().and_then(Scope::parse),
        by: answer.by.map(str::to_owned),
    }
}
