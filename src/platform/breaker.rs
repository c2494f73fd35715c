//! A circuit breaker: a platform that has stopped answering is left alone for a while, so that nobody waits
//! for an answer that does not come, and it is not flooded the moment it is back.
//!
//! Closed: calls pass. After [`TRIES`] failures in a row it opens: calls are refused without being made. When
//! the rest is over one call may try; its success closes the breaker, its failure doubles the rest.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::PlatformError;
use crate::domain::clock::{Clock, Timestamp};

/// Failures in a row that open it. One may be chance, and two sign-ins at once make two.
const TRIES: u32 = 5;

/// The first rest; doubled by each failed try.
const FIRST_REST: Duration = Duration::from_secs(5);

/// The longest rest. The platform blocks for a minute whoever asks too often.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// How a call went, as far as the platform's health is concerned. A refusal is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The platform answered.
    Success,
    /// The platform did not answer, or its answer could not be read.
    Failure,
    /// The platform reported too many calls: the circuit opens at once for the longest time.
    Throttled,
}

#[derive(Debug)]
struct Record {
    failures: u32,
    rest: Duration,
    /// Until when nobody asks.
    rests_until: Option<Timestamp>,
    /// Whether the one call that may try after a rest is under way, and since when.
    trying: Option<Timestamp>,
}

/// The breaker.
#[derive(Debug)]
pub struct Breaker {
    clock: Clock,
    /// A try that was dropped half-way is forgotten after this long.
    patience: Duration,
    record: Mutex<Record>,
}

impl Breaker {
    /// Closed. No call takes longer than `patience`.
    pub fn new(clock: Clock, patience: Duration) -> Self {
        let record = Record { failures: 0, rest: FIRST_REST, rests_until: None, trying: None };
        Self { clock, patience, record: Mutex::new(record) }
    }

    /// Whether a call may be made now.
    pub fn admit(&self) -> Result<(), PlatformError> {
        let now = self.clock.now();
        let mut record = self.record();
        let Some(until) = record.rests_until else { return Ok(()) };
        if now < until {
            return Err(PlatformError::CircuitOpen { retry_after: now.until(until) });
        }
        if let Some(since) = record.trying
            && now < since.plus(self.patience)
        {
            return Err(PlatformError::CircuitOpen { retry_after: now.until(since.plus(self.patience)) });
        }
        record.trying = Some(now);
        Ok(())
    }

    /// Takes note of how a call went.
    pub fn note(&self, health: CallOutcome) {
        let now = self.clock.now();
        let mut record = self.record();
        match health {
            CallOutcome::Success => *record = Record { failures: 0, rest: FIRST_REST, rests_until: None, trying: None },
            CallOutcome::Throttled => record.begin_rest(now, LONGEST_REST),
            // A call that began before the rest did says nothing new.
            CallOutcome::Failure if record.rests_until.is_some_and(|until| now < until) => {}
            CallOutcome::Failure if record.trying.is_some() => {
                let rest = (record.rest * 2).min(LONGEST_REST);
                record.begin_rest(now, rest);
            }
            CallOutcome::Failure => {
                record.failures += 1;
                if record.failures >= TRIES {
                    let rest = record.rest;
                    record.begin_rest(now, rest);
                }
            }
        }
    }

    /// How long nobody asks from now on, if so.
    pub fn circuit_open_for(&self) -> Option<Duration> {
        let now = self.clock.now();
        self.record().rests_until.filter(|until| now < *until).map(|until| now.until(until))
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn begin_rest(&mut self, now: Timestamp, rest: Duration) {
        tracing::warn!({ rest_seconds = rest.as_secs() }, "the messaging platform fails; it is left alone for a while");
        *self = Record { failures: 0, rest, rests_until: Some(now.plus(rest)), trying: None };
    }
}

#[cfg(test)]
mod tests;
