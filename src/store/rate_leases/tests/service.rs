//! Leases of several gateways in one process, on a ledger in memory that can be away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use crate::domain::clock::Clock;
use crate::domain::rate::{
    Charged, RateKey, RateOutage, Receipt, SharedCharge, SharedCounters, SharedCountersAway, Window,
};
use crate::metrics::Metrics;
use crate::store::StoreError;
use crate::store::rate_leases::ledger::{LeaseAsk, LeaseGrant, LeaseLedger, LedgerName};
use crate::store::rate_leases::model::{ModelLedger, microseconds};
use crate::store::rate_leases::{LeasedRates, RateLeaseSettings};

const KEY: RateKey = RateKey { rate: 1, subject: 1 };
const NAME: [&str; 2] = ["rule", "subject"];
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct LedgerInMemory {
    clock: Clock,
    ledgers: Mutex<HashMap<String, ModelLedger>>,
    is_away: AtomicBool,
    asks: AtomicUsize,
}

impl LedgerInMemory {
    async fn answer(&self) -> Result<(), StoreError> {
        self.asks.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        if self.is_away.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("it is away".into()));
        }
        Ok(())
    }

    fn asks(&self) -> usize {
        self.asks.load(Ordering::Relaxed)
    }

    fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }
}

#[async_trait]
impl LeaseLedger for LedgerInMemory {
    async fn ask(&self, name: &LedgerName, ask: &LeaseAsk) -> Result<LeaseGrant, StoreError> {
        self.answer().await?;
        let mut ledgers = self.ledgers.lock().unwrap();
        Ok(ledgers.entry(name.digest.clone()).or_default().ask(ask, microseconds(self.clock.running())))
    }

    async fn take_back(&self, name: &LedgerName, entry: u64) -> Result<(), StoreError> {
        self.answer().await?;
        self.ledgers.lock().unwrap().entry(name.digest.clone()).or_default().take_back(entry);
        Ok(())
    }
}

fn gateway(ledger: &Arc<LedgerInMemory>, outage: RateOutage) -> LeasedRates {
    let settings = RateLeaseSettings { max_keys: 100, outage };
    LeasedRates::new(ledger.clone(), settings, ledger.clock.clone(), &Metrics::new().unwrap())
}

fn window(limit: u32) -> Window {
    Window { limit, per: MINUTE }
}

/// Charges a request as the pipeline does.
async fn charge(rates: &LeasedRates, limit: u32) -> Result<(Charged, Receipt), SharedCountersAway> {
    let at = rates.0.clock.running();
    match rates.charge(KEY, window(limit), at) {
        SharedCharge::Counted(charged) => Ok((charged, Receipt::Leased { at })),
        SharedCharge::MustAsk => rates.ask(KEY, &NAME, window(limit)).await,
    }
}

async fn is_admitted(rates: &LeasedRates, limit: u32) -> bool {
    matches!(charge(rates, limit).await, Ok((Charged::Admitted { .. }, _)))
}

async fn admitted(rates: &LeasedRates, limit: u32, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += usize::from(is_admitted(rates, limit).await);
    }
    admitted
}

#[tokio::test]
async fn gateways_share_a_limit() {
    for limit in [5, 100] {
        let ledger = Arc::<LedgerInMemory>::default();
        let fleet = [gateway(&ledger, RateOutage::Local), gateway(&ledger, RateOutage::Local)];
        let mut total = 0;
        for _ in 0..200 {
            for rates in &fleet {
                total += usize::from(is_admitted(rates, limit).await);
            }
            ledger.clock.advance(Duration::from_millis(20));
        }
        assert!(total <= limit as usize && total * 10 >= limit as usize * 9, "{total} of {limit}");
        assert!(ledger.asks() < 40, "asked {} times for 400 requests", ledger.asks());
        ledger.clock.advance(MINUTE * 2);
        assert!(is_admitted(&fleet[1], limit).await);
    }
}

#[tokio::test]
async fn concurrent_requests_of_a_key_ask_together() {
    for limit in [10, 1000] {
        let ledger = Arc::<LedgerInMemory>::default();
        let rates = gateway(&ledger, RateOutage::Local);
        let charges = (0..500).map(|_| is_admitted(&rates, limit));
        let total = futures::future::join_all(charges).await.into_iter().filter(|admitted| *admitted).count();
        assert_eq!(total, 500.min(limit as usize));
        assert!(ledger.asks() < 12, "asked {} times", ledger.asks());
    }
}

#[tokio::test]
async fn a_client_that_disconnects_stops_nobody() {
    let ledger = Arc::<LedgerInMemory>::default();
    let rates = gateway(&ledger, RateOutage::Local);
    for _ in 0..3 {
        let mut abandoned = Box::pin(charge(&rates, 10));
        assert!(futures::poll!(&mut abandoned).is_pending());
    }
    assert_eq!(admitted(&rates, 10, 20).await, 7, "what the others waited for was counted");
}

#[tokio::test]
async fn a_refused_request_gives_back_what_the_ledger_counted() {
    let ledger = Arc::<LedgerInMemory>::default();
    let rates = gateway(&ledger, RateOutage::Local);
    for _ in 0..50 {
        let Ok((Charged::Admitted { .. }, receipt)) = charge(&rates, 5).await else { panic!("not admitted") };
        rates.refund(KEY, receipt);
        // The refund is on its way in a task of its own.
        let before = ledger.asks();
        while ledger.asks() == before {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(admitted(&rates, 5, 10).await, 5);
}

#[tokio::test]
async fn a_refused_request_gives_its_lease_back() {
    let ledger = Arc::<LedgerInMemory>::default();
    let rates = gateway(&ledger, RateOutage::Local);
    assert_eq!(admitted(&rates, 100, 10).await, 10);
    for _ in 0..500 {
        let Ok((Charged::Admitted { .. }, receipt)) = charge(&rates, 100).await else { panic!("not admitted") };
        rates.refund(KEY, receipt);
    }
    assert_eq!(admitted(&rates, 100, 200).await, 90);
}

#[tokio::test]
async fn during_an_outage_the_lease_counts_and_then_a_part_of_the_limit() {
    let ledger = Arc::<LedgerInMemory>::default();
    let rates = gateway(&ledger, RateOutage::Local);
    rates.set_gateways(4);
    assert_eq!(admitted(&rates, 100, 20).await, 20);
    ledger.set_away(true);
    let leased = admitted(&rates, 100, 200).await;
    assert!(leased > 0, "nothing was leased");
    // The lease has expired, and everything has left the window.
    ledger.clock.advance(MINUTE * 2);
    assert_eq!(admitted(&rates, 100, 200).await, 25, "a quarter");
    let asked = ledger.asks();
    admitted(&rates, 100, 1000).await;
    assert_eq!(ledger.asks(), asked, "nothing is asked for a while");
    ledger.set_away(false);
    ledger.clock.advance(Duration::from_secs(1));
    assert_eq!(admitted(&rates, 100, 200).await, 75, "what was admitted meanwhile counts");
    let other = gateway(&ledger, RateOutage::Local);
    assert_eq!(admitted(&other, 100, 100).await, 0);
}

#[tokio::test]
async fn during_an_outage_requests_can_be_refused() {
    let ledger = Arc::<LedgerInMemory>::default();
    let rates = gateway(&ledger, RateOutage::Refuse);
    assert_eq!(admitted(&rates, 100, 20).await, 20);
    ledger.set_away(true);
    assert!(is_admitted(&rates, 100).await, "the leased share is used");
    ledger.clock.advance(MINUTE);
    assert_eq!(charge(&rates, 100).await, Err(SharedCountersAway));
    let other = gateway(&ledger, RateOutage::Refuse);
    assert_eq!(charge(&other, 100).await, Err(SharedCountersAway), "a key that it does not know");
    ledger.set_away(false);
    ledger.clock.advance(Duration::from_secs(1));
    assert!(is_admitted(&rates, 100).await && is_admitted(&other, 100).await);
}

#[tokio::test]
async fn a_gateway_that_stops_gives_its_shares_back() {
    let ledger = Arc::<LedgerInMemory>::default();
    let (stopping, other) = (gateway(&ledger, RateOutage::Local), gateway(&ledger, RateOutage::Local));
    assert_eq!(admitted(&stopping, 100, 30).await, 30);
    stopping.close().await;
    assert_eq!(admitted(&other, 100, 200).await, 70);
}

#[tokio::test]
async fn an_idle_gateway_gives_its_share_back() {
    let ledger = Arc::<LedgerInMemory>::default();
    let (idle, busy) = (gateway(&ledger, RateOutage::Local), gateway(&ledger, RateOutage::Local));
    assert_eq!(admitted(&idle, 100, 30).await, 30);
    let reviews = tokio::spawn({
        let idle = idle.clone();
        async move { idle.run().await }
    });
    ledger.clock.advance(Duration::from_secs(10));
    let give_up = tokio::time::Instant::now() + Duration::from_secs(10);
    while idle.0.keys.with(KEY, |known| known.lease.share(0)) != Some(0) {
        assert!(tokio::time::Instant::now() < give_up, "the share was not given back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::task::yield_now().await;
    reviews.abort();
    assert_eq!(admitted(&busy, 100, 200).await, 70);
    ledger.clock.advance(Duration::from_secs(55));
    assert_eq!(admitted(&busy, 100, 200).await, 30, "the requests of the idle one have left the window");
}

#[tokio::test]
async fn a_suspended_gateway_uses_no_old_lease() {
    let ledger = Arc::<LedgerInMemory>::default();
    let rates = gateway(&ledger, RateOutage::Refuse);
    assert_eq!(admitted(&rates, 100, 20).await, 20);
    rates.forget_leases();
    ledger.set_away(true);
    assert_eq!(charge(&rates, 100).await, Err(SharedCountersAway));
}

#[tokio::test]
async fn evicted_keys_count_on_in_the_ledger() {
    let ledger = Arc::<LedgerInMemory>::default();
    let settings = RateLeaseSettings { max_keys: 1, outage: RateOutage::Local };
    let rates = LeasedRates::new(ledger.clone(), settings, ledger.clock.clone(), &Metrics::new().unwrap());
    let mut total = 0;
    for turn in 0..300_u32 {
        total += usize::from(is_admitted(&rates, 100).await);
        if turn % 10 == 0 {
            let other = RateKey { rate: 2, subject: turn.into() };
            rates.ask(other, &["other", &turn.to_string()], window(100)).await.unwrap();
        }
    }
    assert!((50..=100).contains(&total), "{total}");
}
