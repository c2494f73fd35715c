//! A circuit breaker: sign-ins fail at once while the platform is down, instead of waiting for a timeout each, and
//! the platform is not flooded when it recovers.
//!
//! Closed: calls are made. [`FAILURE_THRESHOLD`] consecutive failures open the circuit: calls are rejected. When the
//! open time has passed the circuit is half-open: one probe call is made. Its success closes the circuit, its failure
//! doubles the open time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::PlatformError;
use crate::domain::clock::Clock;

/// Consecutive failures that open the circuit. More than two: concurrent sign-ins fail together.
const FAILURE_THRESHOLD: u32 = 5;

/// The first open time; each failed probe doubles it.
const MIN_OPEN_TIME: Duration = Duration::from_secs(5);

/// The longest open time. The platform blocks callers that exceed its rate limit for a minute.
const MAX_OPEN_TIME: Duration = Duration::from_secs(60);

/// The result of a call, as far as the platform's health is concerned. An error response is a success: the platform
/// responded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The platform responded.
    Success,
    /// The platform did not respond, or its response was invalid.
    Failure,
    /// The platform reported too many calls: the circuit opens at once, for [`MAX_OPEN_TIME`].
    Throttled,
}

#[derive(Debug)]
struct BreakerState {
    consecutive_failures: u32,
    open_time: Duration,
    /// The circuit is open until then, and half-open afterwards. None: closed. Monotonic, as all times here.
    open_until: Option<Duration>,
    /// When the probe call of a half-open circuit was started.
    probe_started: Option<Duration>,
}

impl BreakerState {
    const CLOSED: BreakerState =
        BreakerState { consecutive_failures: 0, open_time: MIN_OPEN_TIME, open_until: None, probe_started: None };

    fn open(&mut self, now: Duration, open_time: Duration) {
        tracing::warn!({ rest_seconds = open_time.as_secs() }, "the messaging platform is failing: circuit opened");
        *self = BreakerState { open_time, open_until: Some(now + open_time), ..BreakerState::CLOSED };
    }
}

/// The breaker of one API call.
#[derive(Debug)]
pub struct CircuitBreaker {
    clock: Clock,
    /// Longer than any call takes. A probe that was started earlier was cancelled, and another may start.
    probe_timeout: Duration,
    state: Mutex<BreakerState>,
}

impl CircuitBreaker {
    /// A closed circuit. No call takes longer than `probe_timeout`.
    pub fn new(clock: Clock, probe_timeout: Duration) -> Self {
        Self { clock, probe_timeout, state: Mutex::new(BreakerState::CLOSED) }
    }

    /// Fails if no call may be made now. In a half-open circuit, the first caller gets the probe.
    pub fn admit(&self) -> Result<(), PlatformError> {
        let now = self.clock.running();
        let mut state = self.state();
        let Some(open_until) = state.open_until else { return Ok(()) };
        if now < open_until {
            return Err(PlatformError::CircuitOpen { retry_after: open_until - now });
        }
        if let Some(started) = state.probe_started
            && now < started + self.probe_timeout
        {
            return Err(PlatformError::CircuitOpen { retry_after: started + self.probe_timeout - now });
        }
        state.probe_started = Some(now);
        Ok(())
    }

    /// Records the outcome of a call.
    pub fn record(&self, outcome: CallOutcome) {
        let now = self.clock.running();
        let mut state = self.state();
        match outcome {
            CallOutcome::Success => *state = BreakerState::CLOSED,
            CallOutcome::Throttled => state.open(now, MAX_OPEN_TIME),
            // A call from before the circuit opened.
            CallOutcome::Failure if state.open_until.is_some_and(|until| now < until) => {}
            CallOutcome::Failure if state.probe_started.is_some() => {
                let doubled = (state.open_time * 2).min(MAX_OPEN_TIME);
                state.open(now, doubled);
            }
            CallOutcome::Failure => {
                state.consecutive_failures += 1;
                if state.consecutive_failures >= FAILURE_THRESHOLD {
                    let open_time = state.open_time;
                    state.open(now, open_time);
                }
            }
        }
    }

    /// The remaining time for which the circuit is open, if it is.
    pub fn circuit_open_for(&self) -> Option<Duration> {
        let now = self.clock.running();
        self.state().open_until.and_then(|until| until.checked_sub(now)).filter(|left| !left.is_zero())
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
