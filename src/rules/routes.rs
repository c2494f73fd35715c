//! Finds the rules of a path among those of upstreams that tell upper from lower case and those that do not.
//!
//! Each kind has its own tree, so that a gateway without upstreams that ignore case pays nothing for them. A path that both
//! trees match belongs to the more specific pattern; loading refuses two patterns that would be equally specific.

use std::sync::Arc;

use super::Rule;
use super::tree::{Segment, Tree};
use crate::config::PathCase;
use crate::domain::path::fold_case;

/// The routing trees.
#[derive(Debug, Default)]
pub(super) struct Routes {
    exact: Tree,
    /// Patterns with folded literals.
    folded: Option<Tree>,
}

impl Routes {
    pub(super) fn insert(&mut self, rule: Arc<Rule>) {
        match rule.upstream.path_case {
            PathCase::Insensitive => {
                let pattern: Vec<Segment> = rule.pattern.iter().map(Segment::folded).collect();
                self.folded.get_or_insert_default().insert(&pattern, rule);
            }
            PathCase::Sensitive | PathCase::Undeclared => self.exact.insert(&rule.pattern.clone(), rule),
        }
    }

    /// The rules of the most specific pattern that matches a canonical path, given without its first slash.
    pub(super) fn find(&self, path: &str) -> Option<&[Arc<Rule>]> {
        let exact = self.exact.find(path);
        let Some(folded) = &self.folded else { return exact };
        match (exact, folded.find(&fold_case(path))) {
            (Some(exact), Some(folded)) => {
                Some(if specificity(folded).lt(specificity(exact)) { folded } else { exact })
            }
            (exact, folded) => exact.or(folded),
        }
    }

    /// Every rule whose pattern matches a path, most specific first.
    pub(super) fn all(&self, path: &str) -> Vec<&Arc<Rule>> {
        let mut found = Vec::new();
        self.exact.all(path, &mut found);
        if let Some(folded) = &self.folded {
            folded.all(&fold_case(path), &mut found);
            found.sort_by(|one, other| ranks(one).cmp(ranks(other)));
        }
        found
    }
}

/// The order of patterns that match the same path; the smallest is the most specific. The rules of one node have the same.
fn specificity(rules: &[Arc<Rule>]) -> impl Iterator<Item = u8> {
    rules.iter().take(1).flat_map(|rule| ranks(rule))
}

fn ranks(rule: &Rule) -> impl Iterator<Item = u8> {
    rule.pattern.iter().map(Segment::rank)
}

/// A rule whose literal another spelling would miss, and the rule that would match instead.
#[derive(Debug, Clone, Copy)]
pub struct CaseGap<'a> {
    /// The rule with the literal.
    pub literal: &'a Rule,
    /// The rule that matches the other spelling, with a `{name}` or `{*rest}` there.
    pub other: &'a Rule,
}

/// The gaps of upstreams that do not declare their `path_case`.
pub(super) fn case_gaps(rules: &[Arc<Rule>]) -> impl Iterator<Item = CaseGap<'_>> {
    let undeclared = rules.iter().filter(|rule| rule.upstream.path_case == PathCase::Undeclared);
    undeclared.filter_map(move |literal| {
        let beside =
            |other: &&Arc<Rule>| other.upstream == literal.upstream && is_beside(&literal.pattern, &other.pattern);
        rules.iter().find(beside).map(|other| CaseGap { literal, other })
    })
}

/// Whether a path that the first pattern decides has another spelling that misses it and matches the second one.
fn is_beside(literal: &[Segment], other: &[Segment]) -> bool {
    let mut is_missed = false;
    let mut decides = false;
    for (place, segments) in literal.iter().zip(other).enumerate() {
        match segments {
            (_, Segment::Tail) => return is_missed || literal.iter().skip(place).any(Segment::has_letters),
            (Segment::Tail, _) => return is_missed,
            (Segment::Literal(one), Segment::Literal(other)) if one == other => {}
            (Segment::Literal(one), Segment::Literal(other)) if fold_case(one) == fold_case(other) => {
                (is_missed, decides) = (true, true);
            }
            (Segment::Literal(_), Segment::Literal(_)) => return false,
            (Segment::Literal(text), Segment::Any) | (Segment::Any, Segment::Literal(text)) if text.is_empty() => {
                return false;
            }
            (one @ Segment::Literal(_), Segment::Any) => {
                is_missed |= one.has_letters();
                decides = true;
            }
            // The second pattern is the more specific one.
            (Segment::Any, Segment::Literal(_)) if !decides => return false,
            (Segment::Any, Segment::Any | Segment::Literal(_)) => {}
        }
    }
    is_missed && literal.len() == other.len()
}
