//! An explanation as people read it.

use std::fmt::Write;

use super::{Explanation, Outcome};
use crate::rules::AssertionKind;

impl Explanation {
    /// For people; plain text.
    pub fn to_text(&self) -> String {
        self.render(Paint::None)
    }

    /// For people; the outcome in colour if wanted.
    pub fn render(&self, paint: Paint) -> String {
        let mut text = format!("{}\n", self.request);
        for candidate in &self.candidates {
            let decides = if candidate.decides { "decides" } else { "does not decide" };
            let shadow = if candidate.shadow { ", in shadow mode" } else { "" };
            let _ = writeln!(text, "\nrule `{}` ({}) {decides}{shadow}", candidate.rule, candidate.place);
            for step in &candidate.steps {
                let outcome = paint.outcome(step.outcome);
                let _ = writeln!(text, "  {outcome}  {:<9}  {}", step.check, step.wants);
            }
        }
        if self.candidates.is_empty() {
            text.push_str("\nno rule has a path that fits\n");
        }
        let answer = &self.answer;
        let _ = match (answer.code, &answer.upstream) {
            (0, Some(upstream)) => {
                let scope = answer.scope.as_ref().map(|scope| format!(", scope {scope}")).unwrap_or_default();
                // What most rules do goes without saying.
                let other = answer.assertion.filter(|kind| *kind != AssertionKind::default().as_str());
                let assertion = other.map(|kind| format!(", assertion {kind}")).unwrap_or_default();
                write!(text, "\nanswer: forwarded to `{upstream}`{scope}{assertion}")
            }
            (0, None) => write!(text, "\nanswer: by the gateway itself"),
            (code, _) => write!(text, "\nanswer: {} with code {code}", answer.status.unwrap_or_default()),
        };
        if let Some(wait) = answer.retry_after {
            let _ = write!(text, ", Retry-After {wait}");
        }
        text.push('\n');
        if let Some(reason) = &answer.reason {
            let _ = writeln!(text, "reason: {reason}");
        }
        text
    }
}

/// Whether outcomes are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// For a terminal.
    Colours,
    /// For everything else.
    None,
}

impl Paint {
    fn outcome(self, outcome: Outcome) -> String {
        let text = format!("{:<11}", outcome.as_str());
        match (self, outcome) {
            (Paint::None, _) => text,
            (Paint::Colours, Outcome::Hit) => format!("\u{1b}[32m{text}\u{1b}[0m"),
            (Paint::Colours, Outcome::Miss) => format!("\u{1b}[31m{text}\u{1b}[0m"),
            (Paint::Colours, Outcome::NotReached) => format!("\u{1b}[2m{text}\u{1b}[0m"),
        }
    }
}
