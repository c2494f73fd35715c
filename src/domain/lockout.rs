//! How often an account may be tried: a pure value beside the account, for passwords and for one-time codes alike.
//!
//! Counted per account, so that many addresses do not multiply tries. Five tries are free: people mistype, and have
//! caps lock on. Then each further failure doubles the wait, from 30 seconds, which a person sits out, to 15 minutes,
//! at which a guesser has 96 tries a day: against a password that passed zxcvbn (10^8 guesses) that is hopeless, and
//! against a one-time code (three of a million fit) it is one chance in 3,500 a day, told to the owner. There is no
//! lock for good: it would let anybody shut anybody out; as it is, the platform's sign-in stays open beside it.
//!
//! Whoever can try in parallel must be charged before the try, see [`Lockout::charge`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;

/// Failures without a wait.
const FREE: u32 = 5;

/// The wait after the last free one.
const FIRST_WAIT: Duration = Duration::from_secs(30);

/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

/// Quiet after which the next failure counts as the first: longer than the longest wait by so much that waiting for
/// it gains a guesser nothing (five tries a day instead of 96). A record that was not touched for so long says no
/// more than a clean one about waiting; only an owner still wants to hear of it.
pub const QUIET: Duration = Duration::from_secs(24 * 60 * 60);

/// What is remembered of an account's failures. The default is a clean one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lockout {
    /// Failures since the last success, for the owner; quiet does not lower it.
    failures: u32,
    /// Failures without a day of quiet between: what the wait grows by.
    streak: u32,
    last_failure_at: Option<Timestamp>,
    locked_until: Option<Timestamp>,
}

/// What the owner is told at the next success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FailedAttempts {
    /// How many tries failed since the last success.
    pub failures_since_last_success: u32,
    /// When the last of them was.
    pub last_failure_at: Option<Timestamp>,
}

/// The account has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many failed tries on this account")]
pub struct Locked {
    /// For how long.
    pub retry_after: Duration,
}

impl Lockout {
    /// Whether the account may be tried now. A try that is refused here is not made and not counted.
    pub fn admit(&self, now: Timestamp) -> Result<(), Locked> {
        match self.locked_until {
            Some(until) if now < until => Err(Locked { retry_after: now.until(until) }),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes note of a failure.
    pub fn on_failure(&mut self, now: Timestamp) {
        if self.last_failure_at.is_some_and(|last| now >= last.plus(QUIET)) {
            self.streak = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.streak = self.streak.saturating_add(1);
        self.last_failure_at = Some(now);
        self.locked_until = wait_after(self.streak).map(|wait| now.plus(wait));
    }

    /// Takes note of a success: everything is forgotten, after it was told.
    pub fn on_success(&mut self) -> FailedAttempts {
        std::mem::take(self).told()
    }

    /// Admits a try and counts it as failed before it is made; a success then clears it. Kept in one step with the
    /// record (compare and set), this holds for any number of tries at once: with [`Lockout::admit`] first and
    /// [`Lockout::on_failure`] afterwards, a thousand parallel guesses would all be admitted before the first has
    /// failed. Returns what to tell the owner if it succeeds, without this try.
    pub fn charge(&mut self, now: Timestamp) -> Result<FailedAttempts, Locked> {
        self.admit(now)?;
        let told = self.told();
        self.on_failure(now);
        Ok(told)
    }

    fn told(&self) -> FailedAttempts {
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
