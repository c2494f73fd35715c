//! Rate limits: windows, keys and the counter trait. The rules define the limits; a store backend counts.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::network::Network;

/// At most `limit` requests in any window of length `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// The number of requests.
    pub limit: u32,
    /// The length of the window.
    pub per: Duration,
}

impl Window {
    /// The window with a multiple of the limit.
    pub fn times(self, factor: u32) -> Self {
        Self { limit: self.limit.saturating_mul(factor), ..self }
    }
}

/// The key of a counter: `rate` identifies the rate limit, `subject` is a network or the hash of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateKey {
    /// The rate limit.
    pub rate: u64,
    /// The subject.
    pub subject: u128,
}

/// The exceeded rate limit, for the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// The rule's `by`: what requests are counted by.
    pub by: &'static str,
    /// The limit and its window.
    pub window: Window,
}

/// Converts a wait to the whole seconds of `Retry-After`, rounded up so that a client that waits this long is admitted.
pub fn retry_after_seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

/// The result of counting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charged {
    /// The request is within the limit and was counted.
    Admitted {
        /// How many more requests are allowed now.
        left: u32,
    },
    /// The request exceeds the limit and was not counted.
    Refused {
        /// When a request would be admitted if no other came before it.
        retry_after: Duration,
    },
}

/// Counts requests. `now` is monotonic time.
pub trait Counters: Send + Sync {
    /// Counts a request unless that exceeds the limit. Requests may arrive out of order.
    ///
    /// The window of a key may change: earlier requests still count, under the new limit and length.
    fn charge(&self, key: RateKey, window: Window, now: Duration) -> Charged;

    /// Takes back a request that was admitted at `at`, because another rate limit refused it.
    fn refund(&self, key: RateKey, window: Window, at: Duration);

    /// Frees keys without requests in their window.
    fn sweep(&self, now: Duration);

    /// The number of keys.
    fn len(&self) -> usize;

    /// Whether there is no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Counts requests over all gateways on a shared store. `now` is monotonic time.
#[async_trait]
pub trait SharedCounters: Send + Sync {
    /// Counts a request within what this gateway has leased, unless that exceeds the limit. Never waits for the store.
    fn charge(&self, key: RateKey, window: Window, now: Duration) -> SharedCharge;

    /// Counts a request that could not be counted without the store. `name` identifies rate and subject on all gateways.
    async fn ask(&self, key: RateKey, name: &[&str], window: Window) -> Result<(Charged, Receipt), SharedCountersAway>;

    /// Takes back a request that was admitted, because another rate limit refused it.
    fn refund(&self, key: RateKey, receipt: Receipt);
}

/// The result of counting a request without asking the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedCharge {
    /// It was counted, or exceeds the limit.
    Counted(Charged),
    /// Only the store can tell.
    MustAsk,
}

/// How an admitted request was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// By this gateway, at this time.
    Leased {
        /// The time of the charge.
        at: Duration,
    },
    /// By the store, in the entry with this number.
    Entry(u64),
}

/// The store cannot be asked, and `rates.outage` is `refuse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedCountersAway;

/// What happens to requests with a shared rate while the store cannot be asked and nothing is leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateOutage {
    /// Each gateway admits an equal part of the limit.
    Local,
    /// They are refused with 1503.
    Refuse,
}

/// Counts a request of a network at each of its [levels](Network::levels), or at none if one of them refuses it.
pub fn charge_network(counters: &dyn Counters, rate: u64, network: Network, window: Window, now: Duration) -> Charged {
    let mut fewest = u32::MAX;
    for (level, (wider, times)) in network.levels().enumerate() {
        let key = RateKey { rate, subject: wider.number() };
        match counters.charge(key, window.times(times), now) {
            Charged::Admitted { left } => fewest = fewest.min(left),
            refused @ Charged::Refused { .. } => {
                refund_levels(counters, rate, network.levels().take(level), window, now);
                return refused;
            }
        }
    }
    Charged::Admitted { left: fewest }
}

/// Takes back what [`charge_network`] has admitted at `at`.
pub fn refund_network(counters: &dyn Counters, rate: u64, network: Network, window: Window, at: Duration) {
    refund_levels(counters, rate, network.levels(), window, at);
}

fn refund_levels(
    counters: &dyn Counters,
    rate: u64,
    levels: impl Iterator<Item = (Network, u32)>,
    window: Window,
    at: Duration,
) {
    for (network, times) in levels {
        counters.refund(RateKey { rate, subject: network.number() }, window.times(times), at);
    }
}
