//! Collects the faults of a configuration with the file and line of each, and hides the secrets in the values that they quote,
//! because faults go to the log. Finding them is left to `load` and to the sections.

use std::collections::HashMap;
use std::fmt;

use super::redact::redacted_message;

/// One fault of a configuration, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The file, or `--set`.
    pub origin: String,
    /// The line, if the key is in the file.
    pub line: Option<usize>,
    /// `section.key`; empty for a fault of the whole file.
    pub key: String,
    /// The message.
    pub why: String,
}

impl ConfigFault {
    /// Whether the value of this key may not be what the operator meant: the fault is in it, or in its section.
    pub fn affects(&self, key: &str) -> bool {
        is_in(&self.key, key) || is_in(key, &self.key)
    }
}

/// Whether a key is a section or inside it.
fn is_in(key: &str, section: &str) -> bool {
    key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl fmt::Display for ConfigFault {
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

/// Where each key of a configuration was given.
#[derive(Debug, Default)]
pub struct KeyPlaces {
    origin: String,
    places: HashMap<String, KeyPlace>,
}

#[derive(Debug, Clone, Copy)]
enum KeyPlace {
    Line(usize),
    CommandLine,
}

impl KeyPlaces {
    /// Puts the place of a key before a message that begins with the key, such as `server.tls: the key does not match`.
    pub fn locate(&self, message: &str) -> String {
        match message.split_once(": ") {
            Some((key, why)) if self.place(key).is_some() => self.fault(key, why).to_string(),
            _ => message.to_owned(),
        }
    }

    fn fault(&self, key: &str, why: impl Into<String>) -> ConfigFault {
        let (origin, line) = match self.place(key) {
            Some(KeyPlace::CommandLine) => ("--set".to_owned(), None),
            Some(KeyPlace::Line(line)) => (self.origin.clone(), Some(line)),
            None => (self.origin.clone(), None),
        };
        ConfigFault { origin, line, key: key.to_owned(), why: redacted_message(&why.into()) }
    }

    /// The place of a key, or of the section of a key that is missing.
    fn place(&self, key: &str) -> Option<KeyPlace> {
        let mut prefix = key;
        loop {
            if let Some(place) = self.places.get(prefix) {
                return Some(*place);
            }
            prefix = &prefix[..prefix.rfind(['.', '['])?];
        }
    }
}

/// Collects faults and knows the place of each key.
#[derive(Debug, Default)]
pub struct Faults {
    places: KeyPlaces,
    found: Vec<ConfigFault>,
}

impl Faults {
    pub(super) fn new(origin: impl Into<String>) -> Self {
        let places = KeyPlaces { origin: origin.into(), places: HashMap::new() };
        Self { places, found: Vec::new() }
    }

    /// Records the line of a key.
    pub(super) fn set_line(&mut self, key: &str, line: usize) {
        self.places.places.insert(key.to_owned(), KeyPlace::Line(line));
    }

    /// Records that `--set` gave the key.
    pub(super) fn set_overridden(&mut self, key: &str) {
        self.places.places.insert(key.to_owned(), KeyPlace::CommandLine);
    }

    /// Adds a fault of a key. A key that is missing in the file is reported at its section.
    pub(super) fn add(&mut self, key: &str, why: impl Into<String>) {
        let fault = self.places.fault(key, why);
        self.found.push(fault);
    }

    /// Adds a fault of a line that has no key, such as a syntax error.
    pub(super) fn add_at_line(&mut self, line: usize, why: impl Into<String>) {
        let (origin, key) = (self.places.origin.clone(), String::new());
        self.found.push(ConfigFault { origin, line: Some(line), key, why: redacted_message(&why.into()) });
    }

    /// Whether a section, or a key inside it, has a fault so far.
    pub(super) fn any_in(&self, section: &str) -> bool {
        self.found.iter().any(|fault| is_in(&fault.key, section))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns all faults in the order of their lines, those without a line last, and the places of the keys.
    pub(super) fn into_sorted(mut self) -> (Vec<ConfigFault>, KeyPlaces) {
        self.found.sort_by_key(|fault| fault.line.unwrap_or(usize::MAX));
        (self.found, self.places)
    }
}
