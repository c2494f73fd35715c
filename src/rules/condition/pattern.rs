//! The patterns of `matches`, as tables made at load: matching is one step per byte, whatever the
//! pattern. An engine that builds its tables while it matches is faster to load, but how long it
//! takes depends on pattern and text together, and no bound could be stated.

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::{Input, util::syntax};

/// The largest table of a pattern, in bytes; the work to make it is bounded by as much.
const LARGEST: usize = 1 << 20;

/// A compiled pattern.
pub(super) struct Pattern(dense::DFA<Vec<u32>>);

impl Pattern {
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        // Read on its own first: the builders' errors do not say what is wrong with a text.
        if let Err(error) = syntax::parse(text) {
            return Err(format!("`{text}` is no valid pattern: {}", last_line(&error.to_string())));
        }
        let too_large = || {
            format!(
                "the pattern `{text}` is too large: {LARGEST} bytes are allowed once compiled (`(?-u:\\w)` takes less)"
            )
        };
        let states = thompson::Compiler::new()
            .configure(thompson::Config::new().nfa_size_limit(Some(LARGEST)))
            .build(text)
            .map_err(|_| too_large())?;
        let limits = dense::Config::new()
            .start_kind(StartKind::Unanchored)
            .dfa_size_limit(Some(LARGEST))
            .determinize_size_limit(Some(LARGEST));
        match dense::Builder::new().configure(limits).build_from_nfa(&states) {
            Ok(table) => Ok(Self(table)),
            Err(error) if error.is_size_limit_exceeded() => Err(too_large()),
            // All that a table cannot do is to tell the words of every language apart.
            Err(_) => {
                Err(format!("the pattern `{text}` has a word boundary for all of Unicode; `(?-u:\\b)` is allowed"))
            }
        }
    }

    /// Whether it is found anywhere in the text.
    pub(super) fn is_in(&self, text: &str) -> Result<bool, String> {
        match self.0.try_search_fwd(&Input::new(text).earliest(true)) {
            Ok(found) => Ok(found.is_some()),
            Err(error) => Err(format!("a pattern gave up: {error}")),
        }
    }
}

/// Where the errors of patterns say what is wrong; the lines above draw the place.
fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or(message).trim_start_matches("error: ")
}
