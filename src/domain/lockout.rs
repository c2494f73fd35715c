//! Lockout of an account after failed attempts, for passwords and one-time passwords. A pure value; the directory stores
//! it.
//!
//! Attempts are counted per account, so that many addresses do not multiply them. Five attempts are free, because people
//! mistype. Each further failure doubles the wait, from 30 seconds to 15 minutes. That leaves an attacker 96 attempts a
//! day: hopeless against a password that zxcvbn accepts (10^8 guesses), and a chance of 1 in 3,500 a day against a
//! one-time password (three of a million codes are valid), which the owner is told about. There is no permanent lock: it
//! would let anybody lock anybody out. Sign-in through the platform stays possible meanwhile.
//!
//! Parallel attempts must be charged before they are made; see [`Lockout::charge`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;

/// Attempts without a wait.
const FREE: u32 = 5;

/// The wait after the last free attempt.
const FIRST_WAIT: Duration = Duration::from_secs(30);

/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

/// Time without a failure after which the next one counts as the first. So much longer than the longest wait that
/// waiting for it gains an attacker nothing (five attempts a day instead of 96).
pub const QUIET: Duration = Duration::from_secs(24 * 60 * 60);

/// The failed attempts of an account; none by default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lockout {
    /// Failures since the last success, reported to the owner.
    failures: u32,
    /// Failures without a quiet day between them; determines the wait.
    streak: u32,
    last_failure_at: Option<Timestamp>,
    locked_until: Option<Timestamp>,
}

/// The failed attempts that the owner is told about after the next success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FailedAttempts {
    /// The number of failures since the last success.
    pub failures_since_last_success: u32,
    /// When the last failure was.
    pub last_failure_at: Option<Timestamp>,
}

/// The account is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many failed attempts on this account")]
pub struct Locked {
    /// When the next attempt is allowed.
    pub retry_after: Duration,
}

impl Lockout {
    /// Checks whether an attempt is allowed now. A refused attempt is not counted.
    pub fn admit(&self, now: Timestamp) -> Result<(), Locked> {
        match self.locked_until {
            Some(until) if now < until => Err(Locked { retry_after: now.until(until) }),
            Some(_) | None => Ok(()),
        }
    }

    /// Moves a lockout whose last failure lies in the future to `now`, because the clock was set back since: it lasts for
    /// its own wait from here on, and is not longer by the time that the clock lost.
    pub fn limit_to(&mut self, now: Timestamp) {
        if self.last_failure_at.is_some_and(|last| now < last) {
            self.last_failure_at = Some(now);
            self.locked_until = wait_after(self.streak).map(|wait| now.plus(wait));
        }
    }

    /// Counts a failure.
    pub fn on_failure(&mut self, now: Timestamp) {
        if self.last_failure_at.is_some_and(|last| now >= last.plus(QUIET)) {
            self.streak = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.streak = self.streak.saturating_add(1);
        self.last_failure_at = Some(now);
        self.locked_until = wait_after(self.streak).map(|wait| now.plus(wait));
    }

    /// Clears the failures after a success and returns them for the owner.
    pub fn on_success(&mut self) -> FailedAttempts {
        std::mem::take(self).failed_attempts()
    }

    /// Admits an attempt and counts it as failed before it is made; a success clears it. Stored by compare-and-set, this
    /// holds for any number of parallel attempts: if failures were counted afterwards, a thousand parallel guesses would
    /// all be admitted before the first has failed. Returns the earlier failures for the owner.
    pub fn charge(&mut self, now: Timestamp) -> Result<FailedAttempts, Locked> {
        self.admit(now)?;
        let earlier = self.failed_attempts();
        self.on_failure(now);
        Ok(earlier)
    }

    fn failed_attempts(&self) -> FailedAttempts {
        FailedAttempts { failures_since_last_success: self.failures, last_failure_at: self.last_failure_at }
    }
}

fn wait_after(streak: u32) -> Option<Duration> {
    let doublings = streak.checked_sub(FREE)?;
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    Some(FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests;
