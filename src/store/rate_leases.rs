//! Rate limits over all gateways on a shared store. A gateway leases a *share* of a limit and counts its own requests
//! against it, so that a request with a lease in hand costs what a local counter costs and the store is asked a few times
//! per window. Which keys a request is charged to is left to `rules::rate`, the atomic step in Redis to a [`LeaseLedger`].
//!
//! # Why no window admits more than the limit
//!
//! The ledger of a key has a record for each gateway: its share, until when it is valid, and the admissions that the
//! gateway reported. It counts for each gateway the larger of
//!
//! - the share, until one window after it was valid, and
//! - the reported admissions that are still in the window,
//!
//! and beside them requests that were counted one by one in the ledger. It grants only what keeps the sum within the
//! limit. It is therefore enough that no gateway ever has more admissions in a window than its record counts:
//!
//! 1. A gateway admits a request only while fewer than its share are in its own sliding window, and only while the share is
//!    valid. It measures validity from *before* it asked, less a margin, so that the share ends at the gateway before it
//!    ends in the ledger. Its window is longer than the ledger's by the most that clocks may differ in speed.
//! 2. It uses a larger share only after the ledger has recorded it, and it stops to use what it gives back *before* it says
//!    so. With the smaller share it reports what it has admitted beyond it, with the time left of each.
//! 3. Each ask states everything: share and admissions. If an ask or its answer was lost, the next one sets it right: the
//!    record counts too much meanwhile and never too little. An ask that a later one has overtaken is ignored, and so is an
//!    answer that arrives after its timeout.
//! 4. A gateway that crashes, or that has evicted the key, comes back with a new record; the old one counts to its end.
//!
//! A request that is counted in the ledger itself is admitted at the time of that step: small limits are exact.
//!
//! The ledger has one clock, that of its server. What remains: a server that loses its data, or whose clock jumps, forgets
//! charges early, and during an outage with `rates.outage = "local"` gateways count apart.
//!
//! Rejected: one atomic step per request (a round trip for each), fixed windows (twice the limit around their
//! edges), and leasing single permits that are spent once: near the limit they are handed out one by one, while a share
//! serves itself again as its requests leave the window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;

use crate::domain::clock::Clock;
use crate::domain::rate::{
    Charged, RateKey, RateOutage, Receipt, SharedCharge, SharedCounters, SharedCountersAway, Window,
};
use crate::domain::secret::random_name;
use crate::metrics::{LeaseMetrics, LeaseResult, Metrics};
use crate::store::rate_counters::key_table::KeyTable;
use crate::store::rate_counters::sliding_window::nanoseconds;

pub mod ledger;

mod demand;

mod key_lease;

mod lease;

mod outages;

mod schedule;

#[cfg(test)]
mod model;

use key_lease::{AskAnswer, KeyLease, Waited};
use lease::{ChargeTurn, LeasedCharge};
use ledger::{LeaseAsk, LeaseGrant, LeaseLedger, LedgerName};
use outages::Outages;
use schedule::ReviewSchedule;

/// How often a request asks again when others have used up what was granted meanwhile.
const MAX_ASKS: usize = 4;

/// How many ledgers are told at once when the gateway stops, and how long that may take.
const CONCURRENT_RETURNS: usize = 64;
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);

/// How the rates of a fleet are counted.
pub struct RateLeaseSettings {
    /// The most keys that are remembered.
    pub max_keys: usize,
    /// What happens while the store cannot be asked.
    pub outage: RateOutage,
}

/// The leases of this gateway.
#[derive(Clone)]
pub struct LeasedRates(Arc<LeaseService>);

struct LeaseService {
    keys: KeyTable<KeyLease>,
    ledger: Arc<dyn LeaseLedger>,
    settings: RateLeaseSettings,
    clock: Clock,
    /// This process.
    gateway: String,
    /// Numbers the records of this process.
    records: AtomicU64,
    /// How many gateways there are.
    gateways: AtomicU32,
    schedule: ReviewSchedule,
    outages: Outages,
    metrics: LeaseMetrics,
}

impl LeasedRates {
    /// Leases of these ledgers.
    pub fn new(ledger: Arc<dyn LeaseLedger>, settings: RateLeaseSettings, clock: Clock, metrics: &Metrics) -> Self {
        Self(Arc::new(LeaseService {
            keys: KeyTable::new(settings.max_keys),
            ledger,
            settings,
            clock,
            gateway: random_name(12),
            records: AtomicU64::new(0),
            gateways: AtomicU32::new(1),
            schedule: ReviewSchedule::default(),
            outages: Outages::default(),
            metrics: metrics.leases(),
        }))
    }

    /// Sets how many gateways there are: during an outage each admits an equal part of a limit.
    pub fn set_gateways(&self, count: usize) {
        self.0.gateways.store(u32::try_from(count).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    }

    /// How often the store was asked.
    pub fn asked(&self) -> u64 {
        self.0.metrics.total()
    }

    /// Renews and gives back leases, until the task is cancelled.
    pub async fn run(&self) {
        loop {
            let now = self.0.now();
            for key in self.0.schedule.due(now) {
                self.0.review(key, now);
            }
            self.0.schedule.next_due(self.0.now()).await;
        }
    }

    /// Forgets all leases, because the machine may have been suspended: the clock that measures them stood still.
    pub fn forget_leases(&self) {
        for key in self.0.schedule.keys() {
            self.0.keys.with(key, |known| known.lease.forget_share());
        }
    }

    /// Frees keys without requests in their window.
    pub fn sweep(&self, now: Duration) {
        self.0.keys.sweep(nanoseconds(now));
    }

    /// Gives all leases back, so that the other gateways need not wait for them to expire.
    pub async fn close(&self) {
        let service = &self.0;
        let give_back = |key| async move {
            let told = service.keys.with(key, |known| known.give_back(service.now()));
            if let Some((name, ask)) = told {
                let answer = service.ledger.ask(&name, &ask).await;
                service.metrics.count(result_of(&ask, answer.as_ref().ok()));
            }
        };
        let all = futures::stream::iter(service.schedule.keys()).for_each_concurrent(CONCURRENT_RETURNS, give_back);
        if tokio::time::timeout(RETURN_TIMEOUT, all).await.is_err() {
            tracing::warn!("could not give all rate leases back; they expire by themselves");
        }
    }
}

#[async_trait]
impl SharedCounters for LeasedRates {
    fn charge(&self, key: RateKey, window: Window, now: Duration) -> SharedCharge {
        let service = &self.0;
        let now = nanoseconds(now);
        let charged = service.keys.with(key, |known| {
            let charged = known.lease.charge(window, now, ChargeTurn::First);
            match charged {
                LeasedCharge::CountedAskSoon(_) if service.outages.may_ask(known.partition(), now) => {
                    (charged, known.start_asking())
                }
                LeasedCharge::MustAsk if service.counts_alone(known, now) => {
                    (LeasedCharge::Counted(service.charge_alone(known, window, now)), false)
                }
                LeasedCharge::Counted(_) | LeasedCharge::CountedAskSoon(_) | LeasedCharge::MustAsk => (charged, false),
            }
        });
        let Some((charged, starts)) = charged else { return SharedCharge::MustAsk };
        if starts {
            LeaseService::spawn_asks(service, key);
        }
        match charged {
            LeasedCharge::Counted(charged) | LeasedCharge::CountedAskSoon(charged) => SharedCharge::Counted(charged),
            LeasedCharge::MustAsk => SharedCharge::MustAsk,
        }
    }

    async fn ask(&self, key: RateKey, name: &[&str], window: Window) -> Result<(Charged, Receipt), SharedCountersAway> {
        let service = &self.0;
        for _ in 0..MAX_ASKS {
            let answer = match service.charge_or_join(key, name, window) {
                Waited::Charged(charged, at) => return Ok((charged, Receipt::Leased { at })),
                Waited::Away => None,
                Waited::Until(mut answer) => match answer.wait_for(Option::is_some).await {
                    Ok(answer) => answer.clone(),
                    // The key was evicted meanwhile.
                    Err(_) => continue,
                },
            };
            match answer {
                Some(AskAnswer::ChargeAgain) => {}
                Some(AskAnswer::Counted(entry)) => return Ok(entry.take()),
                Some(AskAnswer::Failed) | None => return service.charge_during_outage(key, name, window),
            }
        }
        let retry_after = Duration::from_nanos(lease::LeaseTimes::of(window).review);
        Ok((Charged::Refused { retry_after }, Receipt::Leased { at: service.clock.running() }))
    }

    fn refund(&self, key: RateKey, receipt: Receipt) {
        let service = &self.0;
        match receipt {
            Receipt::Leased { at } => {
                service.keys.with(key, |known| known.lease.refund(nanoseconds(at)));
            }
            Receipt::Entry(entry) => {
                let Some(name) = service.keys.with(key, |known| known.name()) else { return };
                let ledger = service.ledger.clone();
                tokio::spawn(async move {
                    // If it fails, the request counts until it leaves the window.
                    let _ = ledger.take_back(&name, entry).await;
                });
            }
        }
    }
}

impl LeaseService {
    fn now(&self) -> u64 {
        nanoseconds(self.clock.running())
    }

    fn new_key(&self, name: &[&str], window: Window, now: u64) -> KeyLease {
        let record = self.records.fetch_add(1, Ordering::Relaxed);
        KeyLease::new(LedgerName::of(name), format!("{}{record:x}", self.gateway), window, now)
    }

    /// Charges a request that could not be charged a moment ago, or lets it wait for the ledger.
    fn charge_or_join(self: &Arc<Self>, key: RateKey, name: &[&str], window: Window) -> Waited {
        let at = self.clock.running();
        let now = nanoseconds(at);
        let new = || self.new_key(name, window, now);
        let (waited, starts) = self.keys.with_or_new(key, now, new, |known| {
            let turn = known.turn();
            match known.lease.charge(window, now, turn) {
                LeasedCharge::Counted(charged) | LeasedCharge::CountedAskSoon(charged) => {
                    (Waited::Charged(charged, at), false)
                }
                LeasedCharge::MustAsk if self.outages.may_ask(known.partition(), now) => {
                    (Waited::Until(known.join()), known.start_asking())
                }
                LeasedCharge::MustAsk => (Waited::Away, false),
            }
        });
        if starts {
            Self::spawn_asks(self, key);
        }
        waited
    }

    /// Whether a key without a lease is counted by this gateway alone, because the store is away.
    fn counts_alone(&self, known: &KeyLease, now: u64) -> bool {
        self.settings.outage == RateOutage::Local && self.outages.is_away(known.partition(), now)
    }

    fn charge_alone(&self, known: &mut KeyLease, window: Window, now: u64) -> Charged {
        let part = (window.limit / self.gateways.load(Ordering::Relaxed)).max(1);
        known.lease.charge_alone(window, part, now)
    }

    fn charge_during_outage(
        &self,
        key: RateKey,
        name: &[&str],
        window: Window,
    ) -> Result<(Charged, Receipt), SharedCountersAway> {
        if self.settings.outage == RateOutage::Refuse {
            return Err(SharedCountersAway);
        }
        let at = self.clock.running();
        let now = nanoseconds(at);
        let new = || self.new_key(name, window, now);
        let charged = self.keys.with_or_new(key, now, new, |known| self.charge_alone(known, window, now));
        Ok((charged, Receipt::Leased { at }))
    }

    fn review(self: &Arc<Self>, key: RateKey, now: u64) {
        let starts = self.keys.with(key, |known| {
            let starts = known.review(now, |partition| self.outages.may_ask(partition, now));
            if known.is_scheduled() {
                self.schedule.insert(now.saturating_add(known.lease.review_interval()), key);
            }
            starts
        });
        if starts == Some(true) {
            Self::spawn_asks(self, key);
        }
    }

    /// Asks the ledger of a key in a task of its own: a client that disconnects does not stop it.
    fn spawn_asks(service: &Arc<Self>, key: RateKey) {
        tokio::spawn(service.clone().ask_ledger(key));
    }

    /// Asks the ledger of a key until no request waits for it. One task per key does so at a time.
    async fn ask_ledger(self: Arc<Self>, key: RateKey) {
        loop {
            let sent = self.now();
            let Some((name, ask, waiters)) = self.keys.with(key, |known| known.begin(sent)) else { return };
            let answer = self.ledger.ask(&name, &ask).await;
            let now = self.now();
            self.outages.note(name.partition, answer.is_ok(), now);
            let grant = answer.ok();
            self.metrics.count(result_of(&ask, grant.as_ref()));
            let finished = self.keys.with(key, |known| {
                let goes_on = known.finish(&ask, grant.as_ref(), sent, now);
                if known.schedule(now) {
                    self.schedule.insert(now.saturating_add(known.lease.review_interval()), key);
                }
                goes_on
            });
            waiters.answer(&ask, grant.as_ref());
            if finished != Some(true) {
                return;
            }
        }
    }
}

/// The result of an ask, for the metrics.
fn result_of(ask: &LeaseAsk, grant: Option<&LeaseGrant>) -> LeaseResult {
    match grant {
        None => LeaseResult::Failed,
        Some(_) if ask.want == 0 && ask.charge == 0 => LeaseResult::Returned,
        Some(grant) if grant.share > ask.held || grant.charged > 0 => LeaseResult::Granted,
        Some(grant) if grant.charged < ask.charge || grant.share < ask.need => LeaseResult::Refused,
        Some(_) => LeaseResult::Renewed,
    }
}

#[cfg(test)]
mod tests;
