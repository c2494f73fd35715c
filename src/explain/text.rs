//! Renders an explanation as text.

use std::fmt::Write;

use super::{CheckOutcome, Explanation};
use crate::rules::AssertionKind;

/// The least width of the column of keys.
const NARROWEST: usize = "signed_in".len();

impl Explanation {
    /// Renders without colors.
    pub fn to_text(&self) -> String {
        self.render(ColorChoice::Never)
    }

    /// Renders for a terminal or a file.
    pub fn render(&self, color: ColorChoice) -> String {
        let mut text = format!("{}\n", self.request);
        for candidate in &self.candidates {
            let decides = if candidate.decides { "decides" } else { "does not decide" };
            let shadow = if candidate.shadow { ", in shadow mode" } else { "" };
            let _ = writeln!(text, "\nrule `{}` ({}) {decides}{shadow}", candidate.rule, candidate.place);
            let width = candidate.checks.iter().map(|check| check.check.len()).fold(NARROWEST, usize::max);
            for check in &candidate.checks {
                let outcome = color.outcome(check.outcome);
                let _ = writeln!(text, "  {outcome}  {:<width$}  {}", check.check, check.wants);
            }
        }
        if self.candidates.is_empty() {
            text.push_str("\nno rule matches the path\n");
        }
        let answer = &self.answer;
        let _ = match (answer.code, &answer.upstream) {
            (0, Some(upstream)) => {
                let scope = answer.scope.as_ref().map(|scope| format!(", scope {scope}")).unwrap_or_default();
                // The default is not mentioned.
                let other = answer.assertion.filter(|kind| *kind != AssertionKind::default().as_str());
                let assertion = other.map(|kind| format!(", assertion {kind}")).unwrap_or_default();
                write!(text, "\nanswer: forwarded to `{upstream}`{scope}{assertion}")
            }
            (0, None) => match answer.status {
                Some(status) => write!(text, "\nanswer: {status} by the gateway itself"),
                None => write!(text, "\nanswer: by the gateway itself"),
            },
            (code, _) => write!(text, "\nanswer: {} with code {code}", answer.status.unwrap_or_default()),
        };
        if let Some(wait) = answer.retry_after {
            let _ = write!(text, ", Retry-After {wait}");
        }
        text.push('\n');
        if let Some(reason) = &answer.reason {
            let _ = writeln!(text, "reason: {reason}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

/// Whether outcomes have colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorChoice {
    /// For a terminal.
    Always,
    /// For files and pipes.
    Never,
}

impl ColorChoice {
    fn outcome(self, outcome: CheckOutcome) -> String {
        let text = format!("{:<11}", outcome.as_str());
        match (self, outcome) {
            (ColorChoice::Never, _) => text,
            (ColorChoice::Always, CheckOutcome::Hit) => format!("\u{1b}[32m{text}\u{1b}[0m"),
            (ColorChoice::Always, CheckOutcome::Miss) => format!("\u{1b}[31m{text}\u{1b}[0m"),
            (ColorChoice::Always, CheckOutcome::NotReached) => format!("\u{1b}[2m{text}\u{1b}[0m"),
        }
    }
}
