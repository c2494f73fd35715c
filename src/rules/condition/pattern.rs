//! The patterns of `matches`, compiled to a DFA at load: matching costs one step per byte for every pattern. A lazy DFA
//! loads faster, but its matching cost has no such bound.

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::{Input, util::syntax};

use crate::config::PathCase;

/// The largest compiled pattern, in bytes; it bounds the compile time as well.
const LARGEST: usize = 1 << 20;

/// A compiled regular expression.
pub(super) struct Regex(dense::DFA<Vec<u32>>);

impl Regex {
    pub(super) fn compile(text: &str, case: PathCase) -> Result<Self, String> {
        let flags = syntax::Config::new().case_insensitive(case == PathCase::Insensitive);
        // Parsed separately first: the builders' errors do not say what is wrong with the syntax.
        if let Err(error) = syntax::parse_with(text, &flags) {
            return Err(format!("`{text}` is not a valid pattern: {}", last_line(&error.to_string())));
        }
        let too_large = || {
            format!(
                "the pattern `{text}` is too large: {LARGEST} bytes are allowed once compiled (`(?-u:\\w)` takes less)"
            )
        };
        let states = thompson::Compiler::new()
            .configure(thompson::Config::new().nfa_size_limit(Some(LARGEST)))
            .syntax(flags)
            .build(text)
            .map_err(|_| too_large())?;
        let limits = dense::Config::new()
            .start_kind(StartKind::Unanchored)
            .dfa_size_limit(Some(LARGEST))
            .determinize_size_limit(Some(LARGEST));
        match dense::Builder::new().configure(limits).build_from_nfa(&states) {
            Ok(table) => Ok(Self(table)),
            Err(error) if error.is_size_limit_exceeded() => Err(too_large()),
            // Unicode word boundaries are the only feature that a DFA does not support.
            Err(_) => Err(format!("the pattern `{text}` has a Unicode word boundary; write `(?-u:\\b)` instead")),
        }
    }

    /// Whether the text has a match.
    pub(super) fn is_match(&self, text: &str) -> Result<bool, String> {
        match self.0.try_search_fwd(&Input::new(text).earliest(true)) {
            Ok(found) => Ok(found.is_some()),
            Err(error) => Err(format!("the pattern failed: {error}")),
        }
    }
}

/// The last line of a syntax error has the message; the lines above it point to the place.
fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or(message).trim_start_matches("error: ")
}
