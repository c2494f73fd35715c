//! Shared rate limits on real Redis servers: several gateways in this process, each with leases and connections of its own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deskgate::config::StoreConfig;
use deskgate::domain::clock::Clock;
use deskgate::domain::rate::{
    Charged, RateKey, RateOutage, Receipt, SharedCharge, SharedCounters, SharedCountersAway, Window,
};
use deskgate::metrics::Metrics;
use deskgate::store::rate_leases::ledger::{self, LeaseAsk, LeaseLedger, LedgerName};
use deskgate::store::rate_leases::{LeasedRates, RateLeaseSettings};
use deskgate::store::redis::{RedisRateLedger, RedisServers};

use crate::redis_servers::config;
use crate::servers::redis::{self, RedisServer};

/// What the script is compared with.
#[path = "../../src/store/rate_leases/model.rs"]
mod model;

const KEY: RateKey = RateKey { rate: 1, subject: 1 };
const NAME: [&str; 2] = ["rule", "subject"];

async fn ledger(config: &StoreConfig) -> Arc<RedisRateLedger> {
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    Arc::new(RedisRateLedger::new(Arc::new(RedisServers::open(config, metrics).await.expect("servers"))))
}

/// A gateway, as far as rates are concerned. Its reviews end with it.
struct RateGateway {
    rates: LeasedRates,
    clock: Clock,
    reviews: tokio::task::JoinHandle<()>,
}

impl Drop for RateGateway {
    fn drop(&mut self) {
        self.reviews.abort();
    }
}

impl RateGateway {
    async fn start(config: &StoreConfig, outage: RateOutage) -> Self {
        let (clock, settings) = (Clock::system(), RateLeaseSettings { max_keys: 1000, outage });
        let metrics = Metrics::new().expect("metrics");
        let rates = LeasedRates::new(ledger(config).await, settings, clock.clone(), &metrics);
        let reviewed = rates.clone();
        Self { rates, clock, reviews: tokio::spawn(async move { reviewed.run().await }) }
    }

    /// Charges a request as the pipeline does.
    async fn charge(&self, window: Window) -> Result<(Charged, Receipt), SharedCountersAway> {
        let at = self.clock.running();
        match self.rates.charge(KEY, window, at) {
            SharedCharge::Counted(charged) => Ok((charged, Receipt::Leased { at })),
            SharedCharge::MustAsk => self.rates.ask(KEY, &NAME, window).await,
        }
    }

    async fn is_admitted(&self, window: Window) -> bool {
        matches!(self.charge(window).await, Ok((Charged::Admitted { .. }, _)))
    }

    async fn admitted(&self, window: Window, requests: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += usize::from(self.is_admitted(window).await);
        }
        admitted
    }

    /// Sends requests at this pace. Returns when each admitted one was charged at the earliest and at the latest, and the
    /// number of all.
    async fn load(&self, window: Window, pace: Duration, end: Instant) -> (Vec<(Instant, Instant)>, usize) {
        let (mut admitted, mut sent) = (Vec::new(), 0);
        let mut tick = tokio::time::interval(pace.max(Duration::from_millis(1)));
        let per_tick = Duration::from_millis(1).as_nanos().div_ceil(pace.as_nanos()).max(1);
        while Instant::now() < end {
            tick.tick().await;
            for _ in 0..per_tick {
                let begun = Instant::now();
                sent += 1;
                if self.is_admitted(window).await {
                    admitted.push((begun, Instant::now()));
                }
            }
        }
        (admitted, sent)
    }
}

/// The most admissions that are certain to be in one window.
fn most_in_a_window(admitted: &[(Instant, Instant)], per: Duration) -> usize {
    let mut sorted = admitted.to_vec();
    sorted.sort_unstable();
    let within = |start: usize| {
        let end = sorted[start].0 + per;
        sorted[start..].iter().take_while(|(begun, _)| *begun < end).filter(|(_, done)| *done < end).count()
    };
    (0..sorted.len()).map(within).max().unwrap_or(0)
}

/// A pseudo-random number below `end`; the sequence depends on the seed only.
fn scattered(seed: &mut u64, end: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % end
}

#[tokio::test]
async fn the_script_agrees_with_the_model() {
    let redis = ledger(&config(&redis::standalone())).await;
    for round in 0..12_u64 {
        let name = LedgerName::of(&["model", &round.to_string()]);
        let mut model = model::ModelLedger::default();
        let mut seed = round;
        let mut random = move |end| scattered(&mut seed, end);
        let limit = [3, 15, 16, 50, 1000, 100_000][random(6) as usize];
        // In the shortest window records end before their gateway asks again.
        let per = Duration::from_micros([1_000, 7_000, 30_001, 100_000][random(4) as usize]);
        let (mut sequence, mut entries) = (0, Vec::new());
        for _ in 0..150 {
            sequence += 1;
            let number = |random: &mut dyn FnMut(u64) -> u64, end: u64| u32::try_from(random(end)).unwrap();
            let counted = random(4);
            let admitted: Vec<(u32, Duration)> =
                (0..counted).map(|_| (number(&mut random, limit / 2 + 1), per * 9 / 10)).collect();
            let ask = LeaseAsk {
                record: format!("g{}", random(4)),
                // Some are overtaken.
                sequence: if random(10) == 0 { sequence - 1 } else { sequence },
                window: Window { limit: u32::try_from(limit).unwrap(), per },
                validity: per / 2,
                held: 0,
                need: 0,
                want: 0,
                admitted: Vec::new(),
                charge: 0,
            };
            let ask = match random(4) {
                0 => LeaseAsk { charge: number(&mut random, 4), ..ask },
                1 => LeaseAsk { admitted, ..ask },
                _ => {
                    let need = number(&mut random, limit + 1);
                    LeaseAsk { held: number(&mut random, limit / 3 + 1), need, want: need + need / 4, admitted, ..ask }
                }
            };
            let granted = redis.ask(&name, &ask).await.expect("a grant");
            assert_eq!(granted, model.ask(&ask, granted.at), "{ask:?}");
            if granted.charged > 0 {
                entries.push(granted.entry);
            }
            if random(5) == 0
                && let Some(entry) = entries.pop()
            {
                redis.take_back(&name, entry).await.expect("an answer");
                model.take_back(entry);
            }
        }
    }
}

#[tokio::test]
async fn a_share_that_is_leased_after_the_last_one_ended_counts() {
    let redis = ledger(&config(&redis::standalone())).await;
    let name = LedgerName::of(&["ended"]);
    let ask = |record: &str, sequence, need, per| LeaseAsk {
        record: record.to_owned(),
        sequence,
        window: Window { limit: 100, per },
        validity: per / 2,
        held: 0,
        need,
        want: need,
        admitted: Vec::new(),
        charge: 0,
    };
    let (short, long) = (Duration::from_millis(2), Duration::from_secs(60));
    // The other gateway's record keeps the ledger, and it asks nothing until the first one has asked again.
    redis.ask(&name, &ask("busy", 1, 1, long)).await.expect("a grant");
    let first = redis.ask(&name, &ask("idle", 1, 80, short)).await.expect("a grant");
    let another = LedgerName::of(&["the time of the server"]);
    while redis.ask(&another, &ask("idle", 1, 1, short)).await.expect("a grant").at < first.at + 4_000 {}
    let leased = redis.ask(&name, &ask("idle", 2, 80, long)).await.expect("a grant").share;
    assert_eq!(leased, 80);
    let rest = redis.ask(&name, &ask("busy", 2, 100, long)).await.expect("a grant").share;
    assert!(leased + rest <= 100, "{leased} and {rest} were leased");
}

#[tokio::test]
async fn keys_of_ledgers_name_nobody_and_expire() {
    let server = RedisServer::start(&[]);
    let gateway = RateGateway::start(&config(&server.url()), RateOutage::Local).await;
    let window = Window { limit: 100, per: Duration::from_secs(1) };
    for name in [["desk rule", "employee u1001"], ["desk rule", "employee a2001"]] {
        gateway.rates.ask(RateKey { rate: 1, subject: name[1].len() as u128 }, &name, window).await.expect("charged");
    }
    let keys = server.ask("KEYS *:r:*\r\n").expect("keys");
    assert!(keys.contains(":{p") && !keys.contains("1001") && !keys.contains("desk rule"), "{keys}");
    let gone_by = Instant::now() + Duration::from_secs(20);
    while server.ask("KEYS *:r:*\r\n").expect("keys").contains(":r:") {
        assert!(Instant::now() < gone_by, "the keys do not expire");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Three gateways under full load admit no more than the limit in any window, and most of it.
async fn limit_holds_over_three_gateways(config: StoreConfig) {
    let window = Window { limit: 300, per: Duration::from_secs(1) };
    let fleet = [
        RateGateway::start(&config, RateOutage::Refuse).await,
        RateGateway::start(&config, RateOutage::Refuse).await,
        RateGateway::start(&config, RateOutage::Refuse).await,
    ];
    let (start, end) = (Instant::now(), Instant::now() + Duration::from_secs(5));
    let loads = fleet.iter().map(|gateway| gateway.load(window, Duration::from_millis(2), end));
    let loads = futures::future::join_all(loads).await;
    let admitted: Vec<(Instant, Instant)> = loads.iter().flat_map(|(admitted, _)| admitted.clone()).collect();
    let most = most_in_a_window(&admitted, window.per);
    assert!(most <= 300, "{most} in a window");
    // The first second fills the window at once, and shares are found in it.
    let late = admitted.iter().filter(|(_, done)| *done > start + Duration::from_secs(1)).count();
    assert!(late >= 4 * 300 * 7 / 10, "{late} in four windows");
}

#[tokio::test]
async fn limit_holds_on_one_server() {
    limit_holds_over_three_gateways(config(&redis::standalone())).await;
}

#[tokio::test]
async fn limit_holds_behind_sentinels() {
    limit_holds_over_three_gateways(config(&redis::sentinel())).await;
}

#[tokio::test]
async fn limit_holds_on_a_cluster() {
    limit_holds_over_three_gateways(config(&redis::cluster())).await;
}

#[tokio::test]
async fn a_small_limit_is_exact_over_gateways() {
    let config = config(&redis::standalone());
    let window = Window { limit: 5, per: Duration::from_secs(3600) };
    let fleet = Arc::new([
        RateGateway::start(&config, RateOutage::Refuse).await,
        RateGateway::start(&config, RateOutage::Refuse).await,
    ]);
    let admitted = Arc::new(Mutex::new(0));
    let charges = (0..40).map(|number| {
        let (fleet, admitted) = (fleet.clone(), admitted.clone());
        tokio::spawn(async move {
            if fleet[number % 2].is_admitted(window).await {
                *admitted.lock().unwrap() += 1;
            }
        })
    });
    futures::future::join_all(charges).await;
    assert_eq!(*admitted.lock().unwrap(), 5);
    let Ok((Charged::Refused { retry_after }, _)) = fleet[0].charge(window).await else { panic!("admitted") };
    assert!(retry_after > Duration::from_secs(3500) && retry_after <= window.per, "{retry_after:?}");
}

#[tokio::test]
async fn a_busy_gateway_uses_what_the_others_give_back() {
    let config = config(&redis::standalone());
    let window = Window { limit: 400, per: Duration::from_secs(1) };
    let idle = RateGateway::start(&config, RateOutage::Refuse).await;
    let busy = RateGateway::start(&config, RateOutage::Refuse).await;
    let pace = Duration::from_millis(1);
    let both = Instant::now() + Duration::from_secs(2);
    tokio::join!(idle.load(window, pace, both), busy.load(window, pace, both));
    busy.load(window, pace, Instant::now() + Duration::from_secs(1)).await;
    let seconds = 4;
    let (admitted, _) = busy.load(window, pace, Instant::now() + Duration::from_secs(seconds)).await;
    let most = seconds as usize * 400;
    assert!(admitted.len() * 10 >= most * 9, "{} of {most}", admitted.len());
}

#[tokio::test]
async fn redis_is_asked_far_less_than_once_per_request() {
    let config = config(&redis::standalone());
    let window = Window { limit: 100_000, per: Duration::from_secs(60) };
    let fleet =
        [RateGateway::start(&config, RateOutage::Refuse).await, RateGateway::start(&config, RateOutage::Refuse).await];
    let end = Instant::now() + Duration::from_secs(4);
    let loads = fleet.iter().map(|gateway| gateway.load(window, Duration::from_millis(2), end));
    let loads = futures::future::join_all(loads).await;
    let sent: usize = loads.iter().map(|(_, sent)| *sent).sum();
    let admitted: usize = loads.iter().map(|(admitted, _)| admitted.len()).sum();
    let asked: u64 = fleet.iter().map(|gateway| gateway.rates.asked()).sum();
    assert_eq!(admitted, sent, "the limit is far away");
    assert!(asked * 20 < sent as u64, "{asked} questions for {sent} requests");
}

#[tokio::test]
async fn leased_shares_outlive_redis_and_then_a_part_of_the_limit_is_admitted() {
    let mut server = RedisServer::start(&[]);
    let config = config(&server.url());
    let window = Window { limit: 100, per: Duration::from_secs(60) };
    let (local, refusing) =
        (RateGateway::start(&config, RateOutage::Local).await, RateGateway::start(&config, RateOutage::Refuse).await);
    local.rates.set_gateways(2);
    assert_eq!(local.admitted(window, 20).await, 20);
    assert_eq!(refusing.admitted(window, 5).await, 5);
    server.kill();
    assert!(local.is_admitted(window).await, "the leased share");
    assert!(refusing.is_admitted(window).await, "the leased share");
    // Shares expire after half a minute; what was admitted still counts.
    for gateway in [&local, &refusing] {
        gateway.clock.advance(Duration::from_secs(31));
    }
    // The first request of a key is counted in Redis alone.
    assert_eq!(local.admitted(window, 100).await, 50 - 20, "half of the limit, less what it has admitted itself");
    assert_eq!(refusing.charge(window).await, Err(SharedCountersAway));
    server.restart();
    let back_by = Instant::now() + Duration::from_secs(20);
    while !refusing.is_admitted(window).await {
        assert!(Instant::now() < back_by, "it does not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
