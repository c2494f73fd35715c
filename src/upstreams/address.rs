//! One address of an upstream: its peer, and what the gateway has seen of it. Requests only read and write atomics.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pingora_core::upstreams::peer::HttpPeer;

use super::moment::Moment;
use crate::domain::clock::Timestamp;
use crate::metrics::AddressMetrics;

/// The least share of its requests that an address gets when it returns, in per cent.
const LEAST_SHARE: u64 = 10;

/// An address as one snapshot of its upstream has it.
pub(crate) struct Address {
    pub(crate) peer: HttpPeer,
    /// The same for addresses that can share connections.
    pub(crate) pool_key: u64,
    pub(super) weight: u32,
    pub(super) state: Arc<AddressState>,
    pub(super) metrics: AddressMetrics,
}

impl Address {
    /// The address as people write it.
    pub(crate) fn name(&self) -> &str {
        &self.state.name
    }
}

/// What the gateway has seen of an address. Outlives changes of the configuration.
#[derive(Debug)]
pub(super) struct AddressState {
    pub(super) name: Box<str>,
    /// For consistent hashing; the same on every gateway of a fleet.
    pub(super) seed: u64,
    in_flight: AtomicUsize,
    /// From when on it gets requests: 0 from the beginning, [`Moment::NEVER`] while it is unhealthy.
    available_from: AtomicU64,
    /// Whether it was ejected and has not been seen back.
    is_ejected: AtomicBool,
    consecutive_failures: AtomicU32,
    /// How many requests it was offered since it returned.
    offered: AtomicU32,
    latency_micros: AtomicU64,
    failures: AtomicU64,
    pub(super) record: Mutex<AddressRecord>,
}

/// What changes only when an address fails or is checked.
#[derive(Debug, Default)]
pub(super) struct AddressRecord {
    pub(super) last_failure: Option<LastFailure>,
    /// When the last ejection ends and how long it takes.
    pub(super) ejection: Option<(Moment, Duration)>,
    /// The end of the last ejection by the wall clock, to show it.
    pub(super) ejected_until: Option<Timestamp>,
    /// Checks in a row that contradict the state of the address.
    pub(super) contradicting_checks: u32,
}

/// The last failure of an address.
#[derive(Debug, Clone)]
pub(super) struct LastFailure {
    pub(super) at: Timestamp,
    pub(super) why: String,
}

/// Whether an address gets requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Availability {
    Available,
    /// It gets this share of its requests, in per cent.
    SlowStart(u64),
    Ejected,
    Unhealthy,
}

impl AddressState {
    pub(super) fn new(name: String) -> Self {
        Self {
            seed: hash(name.as_bytes()),
            name: name.into(),
            in_flight: AtomicUsize::new(0),
            available_from: AtomicU64::new(0),
            is_ejected: AtomicBool::new(false),
            consecutive_failures: AtomicU32::new(0),
            offered: AtomicU32::new(0),
            latency_micros: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            record: Mutex::default(),
        }
    }

    pub(super) fn record(&self) -> MutexGuard<'_, AddressRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn availability(&self, now: Moment, slow_start: Duration) -> Availability {
        match self.available_from.load(Ordering::Relaxed) {
            0 => Availability::Available,
            bits if bits == Moment::NEVER.bits() => Availability::Unhealthy,
            bits if bits > now.bits() => Availability::Ejected,
            bits => {
                let since = now.since(Moment::from_bits(bits));
                if since >= slow_start {
                    return Availability::Available;
                }
                let share = since.as_millis() * 100 / slow_start.as_millis().max(1);
                Availability::SlowStart(u64::try_from(share).unwrap_or(100).max(LEAST_SHARE))
            }
        }
    }

    /// Whether an address in slow start takes the request that it is offered: `share` of a hundred.
    pub(super) fn takes_offer(&self, share: u64) -> bool {
        let offered = u64::from(self.offered.fetch_add(1, Ordering::Relaxed));
        (offered + 1) * share / 100 > offered * share / 100
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The moving average of the time to the response header; None before the first response.
    pub(super) fn latency(&self) -> Option<Duration> {
        Some(self.latency_micros.load(Ordering::Relaxed)).filter(|micros| *micros > 0).map(Duration::from_micros)
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(super) fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures.load(Ordering::Relaxed)
    }

    /// Records a response: ends a row of failures.
    pub(super) fn succeeded(&self, latency: Duration) {
        // Most responses follow another response, so that nothing is written.
        if self.consecutive_failures.load(Ordering::Relaxed) != 0 {
            self.consecutive_failures.store(0, Ordering::Relaxed);
        }
        let sample = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1);
        let average = self.latency_micros.load(Ordering::Relaxed);
        // Two responses at the same moment may lose one sample.
        let updated = if average == 0 { sample } else { average - average / 8 + sample / 8 };
        self.latency_micros.store(updated.max(1), Ordering::Relaxed);
    }

    /// Counts a failure; returns how many there are in a row.
    pub(super) fn count_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.consecutive_failures.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Gives the address no requests before `moment`.
    pub(super) fn set_available_from(&self, moment: Moment) {
        self.offered.store(0, Ordering::Relaxed);
        self.is_ejected.store(false, Ordering::Relaxed);
        self.available_from.store(moment.bits(), Ordering::Relaxed);
    }

    /// Gives the address no requests before `moment`, because its requests failed.
    pub(super) fn eject_until(&self, moment: Moment) {
        self.set_available_from(moment);
        self.is_ejected.store(true, Ordering::Relaxed);
    }

    /// Whether an ejection has ended. True once for each.
    pub(super) fn take_return(&self, now: Moment) -> bool {
        // Nearly all requests go to an address that was not ejected, so that nothing is written.
        self.is_ejected.load(Ordering::Relaxed)
            && self.available_from.load(Ordering::Relaxed) <= now.bits()
            && self.is_ejected.swap(false, Ordering::Relaxed)
    }

    /// Keeps one failure short of the next ejection, for an address that has yet to show that it is back.
    pub(super) fn set_on_probation(&self, failures: u32) {
        self.consecutive_failures.store(failures.saturating_sub(1), Ordering::Relaxed);
    }
}

/// The address that a request has chosen. The request counts as in flight until this is released or dropped.
pub(crate) struct ChosenAddress {
    address: Arc<Address>,
    is_counted: bool,
}

impl ChosenAddress {
    pub(super) fn new(address: Arc<Address>) -> Self {
        address.state.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { address, is_counted: true }
    }

    pub(crate) fn address(&self) -> &Arc<Address> {
        &self.address
    }

    /// Counts the request no longer.
    pub(crate) fn release(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.address.state.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the request still counts.
    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted
    }
}

impl std::fmt::Debug for ChosenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address.state.name)
    }
}

impl Drop for ChosenAddress {
    fn drop(&mut self) {
        self.release();
    }
}

/// FNV-1a with a final mix, so that similar texts spread.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let fnv = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    mix(fnv)
}

/// The finalizer of SplitMix64.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
