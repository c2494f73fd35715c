//! What is wrong with a configuration, all of it at once.

use std::collections::HashMap;
use std::fmt;

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file, or `--set`.
    pub origin: String,
    /// The line in it, when it is a file that names the key.
    pub line: Option<usize>,
    /// The key, `section.key`.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.why)
    }
}

/// Collects faults and knows in which line each key stands.
#[derive(Debug, Default)]
pub struct Faults {
    origin: String,
    places: HashMap<String, Place>,
    found: Vec<Fault>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Line(usize),
    CommandLine,
}

impl Faults {
    /// For a file of this name.
    pub fn of(origin: impl Into<String>) -> Self {
        Self { origin: origin.into(), ..Self::default() }
    }

    /// Remembers in which line a key stands.
    pub fn stands(&mut self, key: &str, line: usize) {
        self.places.insert(key.to_owned(), Place::Line(line));
    }

    /// Remembers that a key was given with `--set`.
    pub fn was_set(&mut self, key: &str) {
        self.places.insert(key.to_owned(), Place::CommandLine);
    }

    /// Adds a fault of a key.
    pub fn add(&mut self, key: &str, why: impl Into<String>) {
        // A key that is not in the file is reported at its section.
        let mut prefix = key;
        let place = loop {
            if let Some(place) = self.places.get(prefix) {
                break Some(*place);
            }
            match prefix.rsplit_once('.') {
                Some((shorter, _)) => prefix = shorter,
                None => break None,
            }
        };
        let (origin, line) = match place {
            Some(Place::CommandLine) => ("--set".to_owned(), None),
            Some(Place::Line(line)) => (self.origin.clone(), Some(line)),
            None => (self.origin.clone(), None),
        };
        self.found.push(Fault { origin, line, key: key.to_owned(), why: why.into() });
    }

    /// Adds a fault of a line that has no key yet, such as a syntax error.
    pub fn add_at(&mut self, line: usize, why: impl Into<String>) {
        self.found.push(Fault { origin: self.origin.clone(), line: Some(line), key: String::new(), why: why.into() });
    }

    /// All faults, in the order of the file.
    pub fn into_found(mut self) -> Vec<Fault> {
        self.found.sort_by_key(|fault| fault.line.unwrap_or(usize::MAX));
        self.found
    }

    /// Whether nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}
