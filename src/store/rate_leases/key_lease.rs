//! The lease of a key with the requests that wait for its ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::lease::{ChargeTurn, RateLease, Review};
use super::ledger::{LeaseAsk, LeaseGrant, LedgerName};
use crate::domain::partition::Partition;
use crate::domain::rate::{Charged, Receipt, Window};
use crate::store::rate_counters::key_table::{EvictionCost, KeyedState};

/// The lease of one key.
pub(super) struct KeyLease {
    pub(super) lease: RateLease,
    name: Arc<LedgerName>,
    record: String,
    /// Whether a task asks the ledger.
    is_asking: bool,
    /// Whether the key is in the schedule of reviews.
    is_scheduled: bool,
    /// Those that wait for the next ask.
    waiters: LeaseWaiters,
    /// Whether a request has charged it yet.
    is_new: bool,
}

/// What a request waits for.
pub(super) enum Waited {
    /// Nothing: it was charged at this time.
    Charged(Charged, Duration),
    /// The answer of the ledger.
    Until(watch::Receiver<Option<AskAnswer>>),
    /// The store is away.
    Away,
}

/// What the ledger's answer means for the requests that wait for it.
#[derive(Debug, Clone)]
pub(super) enum AskAnswer {
    /// The lease has changed.
    ChargeAgain,
    /// The ledger has counted some of them.
    Counted(Arc<CountedEntry>),
    /// There was no answer.
    Failed,
}

/// Requests that the ledger has counted one by one.
#[derive(Debug)]
pub(super) struct CountedEntry {
    left: AtomicU32,
    number: u64,
    retry_after: Duration,
}

impl CountedEntry {
    /// Admits one of the waiting requests, or refuses it.
    pub(super) fn take(&self) -> (Charged, Receipt) {
        let receipt = Receipt::Entry(self.number);
        let taken = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        match taken {
            Ok(_) => (Charged::Admitted { left: 0 }, receipt),
            Err(_) => (Charged::Refused { retry_after: self.retry_after }, receipt),
        }
    }
}

/// Requests that wait for the same answer.
#[derive(Default)]
pub(super) struct LeaseWaiters {
    count: u32,
    answer: Option<watch::Sender<Option<AskAnswer>>>,
}

impl LeaseWaiters {
    fn join(&mut self) -> watch::Receiver<Option<AskAnswer>> {
        self.count = self.count.saturating_add(1);
        self.answer.get_or_insert_with(|| watch::channel(None).0).subscribe()
    }

    fn send(self, answer: AskAnswer) {
        if let Some(sender) = self.answer {
            // Nobody waits any more if all clients have disconnected.
            let _ = sender.send(Some(answer));
        }
    }

    /// Hands on the answer to the ask that was sent for them.
    pub(super) fn answer(self, ask: &LeaseAsk, grant: Option<&LeaseGrant>) {
        self.send(match grant {
            None => AskAnswer::Failed,
            Some(grant) if ask.charge > 0 => AskAnswer::Counted(Arc::new(CountedEntry {
                left: AtomicU32::new(grant.charged),
                number: grant.entry,
                retry_after: grant.retry_after,
            })),
            Some(_) => AskAnswer::ChargeAgain,
        });
    }
}

impl KeyLease {
    pub(super) fn new(name: LedgerName, record: String, window: Window, now: u64) -> Self {
        Self {
            lease: RateLease::new(window, now),
            name: Arc::new(name),
            record,
            is_asking: false,
            is_scheduled: false,
            waiters: LeaseWaiters::default(),
            is_new: true,
        }
    }

    pub(super) fn name(&self) -> Arc<LedgerName> {
        self.name.clone()
    }

    pub(super) fn partition(&self) -> Partition {
        self.name.partition
    }

    /// Whether the request that asks was counted as demand before: not if the key was unknown then.
    pub(super) fn turn(&mut self) -> ChargeTurn {
        if std::mem::take(&mut self.is_new) { ChargeTurn::First } else { ChargeTurn::Again }
    }

    /// Lets a request wait for the next answer.
    pub(super) fn join(&mut self) -> watch::Receiver<Option<AskAnswer>> {
        self.waiters.join()
    }

    /// Whether a task must be started that asks the ledger.
    pub(super) fn start_asking(&mut self) -> bool {
        !std::mem::replace(&mut self.is_asking, true)
    }

    /// The next ask, and those that wait for its answer.
    pub(super) fn begin(&mut self, now: u64) -> (Arc<LedgerName>, LeaseAsk, LeaseWaiters) {
        let waiters = std::mem::take(&mut self.waiters);
        (self.name.clone(), self.lease.ask(self.record.clone(), waiters.count, now), waiters)
    }

    /// Applies the answer. Returns whether the ledger is to be asked again at once.
    pub(super) fn finish(&mut self, ask: &LeaseAsk, grant: Option<&LeaseGrant>, sent: u64, now: u64) -> bool {
        match grant {
            None => std::mem::take(&mut self.waiters).send(AskAnswer::Failed),
            Some(grant) => {
                self.lease.apply(ask, grant, sent, now);
                // A lease may serve those as well that came while it was asked for.
                if ask.charge == 0 {
                    std::mem::take(&mut self.waiters).send(AskAnswer::ChargeAgain);
                }
            }
        }
        let was_lowered = grant.is_some_and(|grant| grant.share < ask.held);
        self.is_asking = self.waiters.count > 0 || was_lowered;
        self.is_asking
    }

    /// Whether the key must be put into the schedule: it has a lease and is not in it.
    pub(super) fn schedule(&mut self, now: u64) -> bool {
        self.lease.share(now) > 0 && !std::mem::replace(&mut self.is_scheduled, true)
    }

    pub(super) fn is_scheduled(&self) -> bool {
        self.is_scheduled
    }

    /// Compares share and demand. Returns whether a task must be started that asks the ledger.
    pub(super) fn review(&mut self, now: u64, may_ask: impl FnOnce(Partition) -> bool) -> bool {
        if self.is_asking {
            return false;
        }
        match self.lease.review(now) {
            Review::Over => self.is_scheduled = false,
            Review::Fits => {}
            Review::Ask => return may_ask(self.name.partition) && self.start_asking(),
        }
        false
    }

    /// What to tell the ledger when the gateway stops.
    pub(super) fn give_back(&mut self, now: u64) -> (Arc<LedgerName>, LeaseAsk) {
        (self.name.clone(), self.lease.give_back(self.record.clone(), now))
    }
}

impl KeyedState for KeyLease {
    fn is_idle(&self, now: u64) -> bool {
        !self.is_asking && self.lease.is_idle(now)
    }

    fn eviction_cost(&self, now: u64) -> EvictionCost {
        let charges = u64::from(self.lease.used(now).max(self.lease.share(now)));
        EvictionCost { charges, newest: self.lease.last_arrival() }
    }
}
