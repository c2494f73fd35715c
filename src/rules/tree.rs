//! Finds the rules of a path, segment by segment: a literal before `{name}`, `{name}` before `{*rest}`.
//!
//! Written by hand because the routers of the field refuse `/a/{id}` beside `/a/{*rest}`, which rule
//! files need. A search visits each node at most once, so its cost is bounded by the rules that share
//! the path's beginning, and it allocates nothing.

use std::sync::Arc;

use super::Rule;

/// One segment of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Segment {
    /// This text.
    Literal(Box<str>),
    /// Any one segment that is not empty.
    Any,
    /// The rest of the path, which may be empty.
    Tail,
}

/// The rules below one point of the path.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// In the order of their texts.
    literals: Vec<(Box<str>, Tree)>,
    any: Option<Box<Tree>>,
    tail: Vec<Arc<Rule>>,
    here: Vec<Arc<Rule>>,
}

impl Tree {
    /// Adds a rule at the end of a pattern.
    pub(super) fn insert(&mut self, pattern: &[Segment], rule: Arc<Rule>) {
        match pattern.split_first() {
            None => self.here.push(rule),
            Some((Segment::Tail, _)) => self.tail.push(rule),
            Some((Segment::Literal(text), rest)) => {
                let place = self.place(text).unwrap_or_else(|place| {
                    self.literals.insert(place, (text.clone(), Tree::default()));
                    place
                });
                // It was found or put there.
                self.literals[place].1.insert(rest, rule);
            }
            Some((Segment::Any, rest)) => self.any.get_or_insert_default().insert(rest, rule),
        }
    }

    /// The rules of the most specific pattern that fits a path. `path` is what follows the last slash.
    pub(super) fn find(&self, path: &str) -> Option<&[Arc<Rule>]> {
        let (segment, rest) = match memchr::memchr(b'/', path.as_bytes()) {
            Some(slash) => (&path[..slash], Some(&path[slash + 1..])),
            None => (path, None),
        };
        if let Ok(place) = self.place(segment)
            && let Some(found) = self.literals[place].1.after(rest)
        {
            return Some(found);
        }
        if !segment.is_empty()
            && let Some(found) = self.any.as_ref().and_then(|tree| tree.after(rest))
        {
            return Some(found);
        }
        (!self.tail.is_empty()).then_some(&self.tail)
    }

    /// Every rule whose pattern fits a path, the most specific first.
    pub(super) fn all<'a>(&'a self, path: &str, found: &mut Vec<&'a Arc<Rule>>) {
        let (segment, rest) = match path.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (path, None),
        };
        let literal = self.place(segment).ok().map(|place| &self.literals[place].1);
        let any = self.any.as_deref().filter(|_| !segment.is_empty());
        for tree in [literal, any].into_iter().flatten() {
            match rest {
                Some(rest) => tree.all(rest, found),
                None => found.extend(&tree.here),
            }
        }
        found.extend(&self.tail);
    }

    /// Where a text stands, or would stand. A handful of comparisons cost less than one hash.
    fn place(&self, text: &str) -> Result<usize, usize> {
        self.literals.binary_search_by(|(own, _)| (**own).cmp(text))
    }

    fn after(&self, rest: Option<&str>) -> Option<&[Arc<Rule>]> {
        match rest {
            Some(rest) => self.find(rest),
            None => (!self.here.is_empty()).then_some(&self.here),
        }
    }
}
