//! Checks a whole JSON document, also its unknown members: rejects what two parsers could read differently.
//!
//! Typed deserialization skips unknown members without looking into them, so it does not catch these.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Deepest nesting of arrays and objects. The endpoints' bodies have two levels; serde_json itself stops at 128, so this
/// limits its recursion, too.
const MAX_DEPTH: usize = 64;

/// Checks that no object has a member twice, however its name is escaped, that nothing is nested deeper than
/// [`MAX_DEPTH`], and that every number and string is readable.
pub(super) fn check(text: &[u8]) -> Result<(), serde_json::Error> {
    let mut document = serde_json::Deserializer::from_slice(text);
    DocumentVisitor { depth: 0 }.deserialize(&mut document)?;
    document.end()
}

/// The fault that [`check`] found in well-formed JSON.
pub(super) fn fault(error: &serde_json::Error) -> &'static str {
    if error.to_string().starts_with(DUPLICATE) { DUPLICATE } else { TOO_DEEP }
}

const DUPLICATE: &str = "duplicate member";

const TOO_DEEP: &str = "nested too deeply";

/// Visits a value at its depth.
#[derive(Clone, Copy)]
struct DocumentVisitor {
    depth: usize,
}

impl DocumentVisitor {
    /// The visitor of the values in this array or object.
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > MAX_DEPTH { Err(E::custom(TOO_DEEP)) } else { Ok(Self { depth }) }
    }
}

impl<'de> DeserializeSeed<'de> for DocumentVisitor {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DocumentVisitor {
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
        // Boxed to save memory: a hostile body may have only short names, all held while its object is read.
        let mut names: HashSet<Box<str>> = HashSet::new();
        while let Some(name) = object.next_key()? {
            if !names.insert(name) {
                return Err(A::Error::custom(DUPLICATE));
            }
            object.next_value_seed(inner)?;
        }
        Ok(())
    }
}
