//! A whole JSON document, also what nobody asks for: what could be read in two ways is refused everywhere in it.
//!
//! The typed reading skips unknown members without looking into them, so it is no guard against these.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// How deep lists and objects may lie in each other. Bodies of ours have two levels; the parser itself stops at 128,
/// so this bounds its recursion, too.
const DEEPEST: usize = 64;

/// Looks at all of a document: no member stands twice in one object, however it is spelled, nothing lies deeper than
/// [`DEEPEST`], and every number and text can be read.
pub(super) fn check(text: &[u8]) -> Result<(), serde_json::Error> {
    let mut document = serde_json::Deserializer::from_slice(text);
    Part { depth: 0 }.deserialize(&mut document)?;
    document.end()
}

/// Which of the two it was that [`check`] found in sound JSON.
pub(super) fn why(error: &serde_json::Error) -> &'static str {
    if error.to_string().starts_with(TWICE) { TWICE } else { TOO_DEEP }
}

const TWICE: &str = "a member stands twice";

const TOO_DEEP: &str = "it is nested too deeply";

/// One value at its depth.
#[derive(Clone, Copy)]
struct Part {
    depth: usize,
}

impl Part {
    /// What lies in this list or object.
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > DEEPEST { Err(E::custom(TOO_DEEP)) } else { Ok(Self { depth }) }
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while list.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        // Boxed: a hostile body may be nothing but short names, and each is kept while its object is read.
        let mut names: HashSet<Box<str>> = HashSet::new();
        while let Some(name) = object.next_key()? {
            if !names.insert(name) {
                return Err(A::Error::custom(TWICE));
            }
            object.next_value_seed(inner)?;
        }
        Ok(())
    }
}
