//! Chooses an address: in turn, by requests in flight or by session. Without locks and allocations: a choice reads atomics
//! and advances one counter.
//!
//! An address that is ejected or unhealthy is skipped, and its share is spread over the others rather than left to its
//! neighbour. If no address is available, all count as available: a request that may fail is better than one that must.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::address::{Address, Availability, hash, mix};
use super::moment::Moment;
use crate::config::{Balance, UpstreamConfig};

/// What keeps the requests of one session on one address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Affinity(u64);

impl Affinity {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(hash(key))
    }
}

/// The addresses that a request has tried, by their index.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TriedAddresses {
    indexes: [u16; Self::MOST],
    count: usize,
}

impl TriedAddresses {
    /// The first attempt and all retries.
    const MOST: usize = UpstreamConfig::MOST_RETRIES + 1;

    pub(super) fn contains(&self, index: usize) -> bool {
        self.indexes[..self.count].iter().any(|tried| usize::from(*tried) == index)
    }

    /// The address that was tried last.
    pub(crate) fn last(&self) -> Option<usize> {
        self.indexes[..self.count].last().map(|index| usize::from(*index))
    }

    pub(super) fn add(&mut self, index: usize) {
        if let (Some(place), Ok(index)) = (self.indexes.get_mut(self.count), u16::try_from(index)) {
            *place = index;
            self.count += 1;
        }
    }
}

/// How one snapshot of an upstream distributes its requests.
#[derive(Debug)]
pub(super) struct Balancer {
    balance: Balance,
    slow_start: Duration,
    /// For round robin: every address as often as its weight says, evenly spread.
    schedule: Box<[u16]>,
}

/// The counters of round robin, which outlive a snapshot.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Requests so far.
    next: AtomicU64,
    /// Requests whose turn fell on an address that did not take them.
    spread: AtomicU64,
}

impl Turns {
    /// How many requests have begun.
    pub(super) fn count(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

impl Balancer {
    pub(super) fn new(config: &UpstreamConfig, addresses: &[Arc<Address>]) -> Self {
        let schedule = match config.balance {
            Balance::RoundRobin => schedule(addresses),
            Balance::LeastConnections | Balance::Session => Box::default(),
        };
        Self { balance: config.balance, slow_start: config.slow_start.get(), schedule }
    }

    pub(super) fn needs_affinity(&self) -> bool {
        self.balance == Balance::Session
    }

    /// The index of the next address; None only if there is none at all.
    pub(super) fn choose(
        &self,
        addresses: &[Arc<Address>],
        turns: &Turns,
        affinity: Affinity,
        tried: &TriedAddresses,
        now: Moment,
    ) -> Option<usize> {
        let turn = turns.next.fetch_add(1, Ordering::Relaxed);
        let pool = Pool { addresses, slow_start: self.slow_start, now };
        let usable = |index: usize| pool.is_available(index) && !tried.contains(index);
        let chosen = match self.balance {
            Balance::RoundRobin => self.in_turn(&pool, turn, turns, usable),
            Balance::LeastConnections => pool.least_loaded(turn, usable),
            Balance::Session => pool.of_session(affinity, usable),
        };
        chosen.or_else(|| {
            // A second attempt at an address that is available, then any other, then any.
            pool.weighted(turn, |index| pool.is_available(index))
                .or_else(|| pool.weighted(turn, |index| !tried.contains(index)))
                .or_else(|| pool.weighted(turn, |_| true))
        })
    }

    fn in_turn(&self, pool: &Pool<'_>, turn: u64, turns: &Turns, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let length = u64::try_from(self.schedule.len()).ok().filter(|length| *length > 0)?;
        let index = usize::from(self.schedule[usize::try_from(turn % length).ok()?]);
        if usable(index) && pool.takes_offer(index) {
            return Some(index);
        }
        let spread = turns.spread.fetch_add(1, Ordering::Relaxed);
        pool.weighted(spread, |index| usable(index) && pool.share(index) == 100)
            .or_else(|| pool.weighted(spread, usable))
    }

    /// Whether another address than those tried is available.
    pub(super) fn has_other(&self, addresses: &[Arc<Address>], tried: &TriedAddresses, now: Moment) -> bool {
        let pool = Pool { addresses, slow_start: self.slow_start, now };
        (0..addresses.len()).any(|index| pool.is_available(index) && !tried.contains(index))
    }
}

/// The addresses at one moment.
struct Pool<'a> {
    addresses: &'a [Arc<Address>],
    slow_start: Duration,
    now: Moment,
}

impl Pool<'_> {
    fn availability(&self, index: usize) -> Availability {
        self.addresses[index].state.availability(self.now, self.slow_start)
    }

    fn is_available(&self, index: usize) -> bool {
        matches!(self.availability(index), Availability::Available | Availability::SlowStart(_))
    }

    /// The share of its requests that an address gets, in per cent.
    fn share(&self, index: usize) -> u64 {
        match self.availability(index) {
            Availability::SlowStart(share) => share,
            Availability::Available | Availability::Ejected | Availability::Unhealthy => 100,
        }
    }

    fn takes_offer(&self, index: usize) -> bool {
        match self.share(index) {
            100 => true,
            share => self.addresses[index].state.takes_offer(share),
        }
    }

    fn weight(&self, index: usize) -> u64 {
        u64::from(self.addresses[index].weight)
    }

    /// The address on which a turn falls if only those that fit take part.
    fn weighted(&self, turn: u64, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let all = || (0..self.addresses.len()).filter(|index| fits(*index));
        let total: u64 = all().map(|index| self.weight(index)).sum();
        let mut left = turn.checked_rem(total)?;
        for index in all() {
            match left.checked_sub(self.weight(index)) {
                Some(rest) => left = rest,
                None => return Some(index),
            }
        }
        // An address has become unavailable meanwhile.
        all().next()
    }

    /// The address with the fewest requests in flight for its weight; of equal ones, the next in turn.
    fn least_loaded(&self, turn: u64, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.addresses.len();
        let first = usize::try_from(turn % u64::try_from(count).ok().filter(|count| *count > 0)?).ok()?;
        let in_order = (first..count).chain(0..first).filter(|index| fits(*index));
        in_order.min_by_key(|index| {
            let in_flight = u64::try_from(self.addresses[*index].state.in_flight()).unwrap_or(u64::MAX / 20_000);
            (in_flight + 1) * 10_000 / (self.weight(*index) * self.share(*index))
        })
    }

    /// The address of a session by rendezvous hashing: if an address goes, only its own sessions move.
    fn of_session(&self, affinity: Affinity, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let score = |index: usize| {
            let bits = mix(affinity.0 ^ self.addresses[index].state.seed);
            // Evenly distributed between 0 and 1, without either.
            #[allow(clippy::cast_precision_loss)] // 53 bits are exact in a double
            let even = ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            f64::from(self.addresses[index].weight) / -even.ln()
        };
        let scored = (0..self.addresses.len()).filter(|index| fits(*index)).map(|index| (index, score(index)));
        scored.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(index, _)| index)
    }
}

/// A round in which every address occurs as often as its weight says, as evenly spread as possible.
fn schedule(addresses: &[Arc<Address>]) -> Box<[u16]> {
    let divisor = addresses.iter().map(|address| address.weight).fold(0, greatest_common_divisor).max(1);
    let weights: Vec<i64> = addresses.iter().map(|address| i64::from(address.weight / divisor)).collect();
    let total: i64 = weights.iter().sum();
    let mut credits = vec![0_i64; weights.len()];
    let round = (0..total).filter_map(|_| {
        credits.iter_mut().zip(&weights).for_each(|(credit, weight)| *credit += weight);
        let (index, credit) = credits.iter_mut().enumerate().rev().max_by_key(|(_, credit)| **credit)?;
        *credit -= total;
        u16::try_from(index).ok()
    });
    round.collect()
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests;
