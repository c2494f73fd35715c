//! The routing tree: finds the rules of a path segment by segment, a literal before `{name}` before `{*rest}`.
//!
//! Hand-written because router crates reject `/a/{id}` beside `/a/{*rest}`, which rule files need. A search visits
//! each node at most once and allocates nothing.

use std::collections::HashMap;
use std::sync::Arc;

use super::Rule;
use crate::domain::path::fold_case;

/// One segment of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Segment {
    /// Exactly this text.
    Literal(Box<str>),
    /// Any non-empty segment.
    Any,
    /// The rest of the path, which may be empty.
    Tail,
}

impl Segment {
    /// The segment for paths whose case is folded.
    pub(super) fn folded(&self) -> Self {
        match self {
            Segment::Literal(text) => Segment::Literal(fold_case(text).into()),
            Segment::Any | Segment::Tail => self.clone(),
        }
    }

    /// How specific the segment is; a smaller number is tried first.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Segment::Literal(_) => 0,
            Segment::Any => 1,
            Segment::Tail => 2,
        }
    }

    /// Whether it is a literal that has another spelling in upper or lower case.
    pub(super) fn has_letters(&self) -> bool {
        matches!(self, Segment::Literal(text) if text.bytes().any(|byte| byte.is_ascii_alphabetic() || byte == b'%'))
    }
}

/// A node of the tree.
#[derive(Debug, Default)]
pub(super) struct Tree {
    literals: Literals,
    any: Option<Box<Tree>>,
    tail: Vec<Arc<Rule>>,
    here: Vec<Arc<Rule>>,
}

impl Tree {
    /// Inserts a rule.
    pub(super) fn insert(&mut self, pattern: &[Segment], rule: Arc<Rule>) {
        match pattern.split_first() {
            None => self.here.push(rule),
            Some((Segment::Tail, _)) => self.tail.push(rule),
            Some((Segment::Literal(text), rest)) => self.literals.entry(text).insert(rest, rule),
            Some((Segment::Any, rest)) => self.any.get_or_insert_default().insert(rest, rule),
        }
    }

    /// The rules of the most specific pattern that matches a path, given without its first slash.
    pub(super) fn find(&self, path: &str) -> Option<&[Arc<Rule>]> {
        let (segment, rest) = match memchr::memchr(b'/', path.as_bytes()) {
            Some(slash) => (&path[..slash], Some(&path[slash + 1..])),
            None => (path, None),
        };
        if let Some(found) = self.literals.find(segment).and_then(|tree| tree.after(rest)) {
            return Some(found);
        }
        if !segment.is_empty()
            && let Some(found) = self.any.as_ref().and_then(|tree| tree.after(rest))
        {
            return Some(found);
        }
        (!self.tail.is_empty()).then_some(&self.tail)
    }

    /// Every rule whose pattern matches a path, most specific first.
    pub(super) fn all<'a>(&'a self, path: &str, found: &mut Vec<&'a Arc<Rule>>) {
        let (segment, rest) = match path.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (path, None),
        };
        let literal = self.literals.find(segment);
        let any = self.any.as_deref().filter(|_| !segment.is_empty());
        for tree in [literal, any].into_iter().flatten() {
            match rest {
                Some(rest) => tree.all(rest, found),
                None => found.extend(&tree.here),
            }
        }
        found.extend(&self.tail);
    }

    fn after(&self, rest: Option<&str>) -> Option<&[Arc<Rule>]> {
        match rest {
            Some(rest) => self.find(rest),
            None => (!self.here.is_empty()).then_some(&self.here),
        }
    }
}

/// The children with literal segments. A few comparisons cost less than a hash; many cost more.
#[derive(Debug)]
enum Literals {
    Few(Vec<(Box<str>, Tree)>),
    Many(HashMap<Box<str>, Tree>),
}

impl Default for Literals {
    fn default() -> Self {
        Literals::Few(Vec::new())
    }
}

impl Literals {
    const FEW: usize = 8;

    fn find(&self, text: &str) -> Option<&Tree> {
        match self {
            Literals::Few(few) => few.iter().find(|(own, _)| **own == *text).map(|(_, tree)| tree),
            Literals::Many(many) => many.get(text),
        }
    }

    fn entry(&mut self, text: &str) -> &mut Tree {
        if let Literals::Few(few) = self
            && few.len() == Self::FEW
            && !few.iter().any(|(own, _)| **own == *text)
        {
            *self = Literals::Many(std::mem::take(few).into_iter().collect());
        }
        match self {
            Literals::Few(few) => {
                let place = few.iter().position(|(own, _)| **own == *text).unwrap_or_else(|| {
                    few.push((text.into(), Tree::default()));
                    few.len() - 1
                });
                // `place` was found or has just been pushed.
                &mut few[place].1
            }
            Literals::Many(many) => many.entry(text.into()).or_default(),
        }
    }
}
