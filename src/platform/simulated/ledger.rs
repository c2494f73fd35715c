//! What the simulated platform remembers: the tokens and codes that it gave, who agreed to what, which
//! codes are being scanned, who called, and how it is switched.

use crate::domain::clock::{Clock, Timestamp};

use super::members::{App, Person};
use super::switches::Switches;

pub mod calls;

pub mod codes;

pub mod scans;

pub mod tokens;

/// Everything that changes.
pub struct Ledger {
    clock: Clock,
    /// Scheme, host and port of this server.
    pub origin: String,
    /// How the platform behaves.
    pub switches: Switches,
    /// Application tokens.
    pub tokens: tokens::Tokens,
    /// Codes, and what came of them.
    pub codes: codes::Codes,
    /// QR codes of the hosted sign-in page.
    pub scans: scans::Scans,
    /// Who called what how often.
    pub calls: calls::Calls,
}

impl Ledger {
    /// Nothing yet.
    pub fn new(clock: Clock, origin: String) -> Self {
        Self {
            clock,
            origin,
            switches: Switches::default(),
            tokens: tokens::Tokens::default(),
            codes: codes::Codes::default(),
            scans: scans::Scans::default(),
            calls: calls::Calls::default(),
        }
    }

    /// The time, for what is stamped and for what ages.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The clock that everything here ages by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads or sets switches. A new limit counts from now.
    pub fn switch<T>(&mut self, change: impl FnOnce(&mut Switches) -> T) -> T {
        let limit = self.switches.frequency_limit;
        let result = change(&mut self.switches);
        if self.switches.frequency_limit != limit {
            self.calls.forget_limits();
        }
        result
    }

    /// Who is meant by a userid or by the platform's own name for them.
    pub fn person(&self, text: &str) -> Option<Person> {
        Person::find(text, &self.switches)
    }

    /// Whether a domain is one that some application of the corporation returns to.
    pub fn anybody_trusts(&self, domain: &str) -> bool {
        super::members::APPS.iter().any(|app: &App| self.switches.trusts(app, domain))
    }
}
