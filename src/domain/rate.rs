//! Rates: how many in how long, and whose.

use std::time::Duration;

/// At most `limit` in any stretch of `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// How many.
    pub limit: u32,
    /// In how long.
    pub per: Duration,
}

/// Whose requests are counted, under which rate: `rate` tells the rates of rules apart, `subject` is a network
/// or the fingerprint of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RateKey {
    /// Which rate.
    pub rate: u64,
    /// Whose.
    pub subject: u128,
}

/// What a refused caller is told about the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Whose requests count together, as a rule says it.
    pub by: &'static str,
    /// How many in how long.
    pub window: Window,
}

/// Converts a wait to the whole seconds of `Retry-After`, rounded up so that a client that waits this long is admitted.
pub fn retry_after_seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

/// What became of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charged {
    /// It was counted.
    Admitted {
        /// How many more there may be for the moment.
        left: u32,
    },
    /// It would have been one too many, and was not counted.
    Refused {
        /// After this long, with nobody else in between, one is admitted.
        retry_after: Duration,
    },
}

/// What a store promises about counting. `now` is time since some fixed moment, by a clock that never goes back.
pub trait Counters: Send + Sync {
    /// Counts one more, unless it would be one too many. Requests may come in another order than their times.
    ///
    /// The window of a key may change: what is remembered counts on, under the new limit and length.
    fn charge(&self, key: RateKey, window: Window, now: Duration) -> Charged;

    /// Takes back what was admitted at `at`: another rate of the same request refused it.
    fn refund(&self, key: RateKey, window: Window, at: Duration);

    /// Gives back the memory of keys of which nothing counts any more.
    fn sweep(&self, now: Duration);

    /// How many keys are held.
    fn len(&self) -> usize;

    /// Whether none is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
