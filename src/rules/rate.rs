//! Rate limits of rules and endpoints. The counters are the store's.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::Mode;
use crate::config::HumanDuration;
use crate::domain::network::Network;
use crate::domain::rate::{
    Charged, Counters, Exceeded, RateKey, Receipt, SharedCharge, SharedCounters, Window, charge_network, refund_network,
};
use crate::domain::session::Session;
use crate::error::{Error, Part};

/// By what requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateBy {
    /// By employee; by address without a session.
    Employee,
    /// By active role; by address without a session.
    Role,
    /// By address; IPv6 by /64, which one client controls entirely, and by the /56 and /48 around it.
    Address,
    /// By session; by address without one.
    Session,
    /// All requests of the rule together.
    Rule,
}

impl RateBy {
    /// Every value, as rule files spell it.
    pub const WORDS: [&'static str; 5] = ["employee", "role", "address", "session", "rule"];

    /// Parses the value of a rule file.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "employee" => RateBy::Employee,
            "role" => RateBy::Role,
            "address" => RateBy::Address,
            "session" => RateBy::Session,
            "rule" => RateBy::Rule,
            _ => return None,
        })
    }

    /// Where a rate is counted whose `shared` is not set. Addresses are counted by each gateway: most of them protect the
    /// gateway itself, and an attacker with many addresses would make it ask the store about each.
    pub fn usual_scope(self) -> RateScope {
        match self {
            RateBy::Address => RateScope::Local,
            RateBy::Employee | RateBy::Role | RateBy::Session | RateBy::Rule => RateScope::Shared,
        }
    }

    /// The value as rule files spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            RateBy::Employee => "employee",
            RateBy::Role => "role",
            RateBy::Address => "address",
            RateBy::Session => "session",
            RateBy::Rule => "rule",
        }
    }
}

/// What counts requests.
#[derive(Clone, Copy)]
pub struct RateCounters<'a> {
    /// The counters of this gateway.
    pub local: &'a dyn Counters,
    /// Those of all gateways; `None` if the store serves one gateway, whose counters are exact.
    pub shared: Option<&'a dyn SharedCounters>,
}

/// Where a rate is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateScope {
    /// Over all gateways on the store.
    Shared,
    /// In each gateway separately.
    Local,
}

/// A rate limit over a sliding window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// By what requests are counted.
    pub by: RateBy,
    /// Limit and window.
    pub window: Window,
    /// Whether it is enforced.
    pub mode: Mode,
    /// Where it is counted.
    pub counted: RateScope,
    /// Identifies the rate in this process; the same after a reload.
    id: u64,
    /// Identifies the rate on all gateways: its rule or endpoint, and its number among those of the same `by`.
    name: [Arc<str>; 2],
}

/// Random keys of this process, so that no client can construct two names with the same fingerprint.
static FINGERPRINT: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);

fn fingerprint(of: impl std::hash::Hash + Copy) -> u128 {
    let [high, low] = &*FINGERPRINT;
    u128::from(high.hash_one(of)) << 64 | u128::from(low.hash_one(of))
}

impl Rate {
    /// A rate of the rule or endpoint named `of`. `nth` numbers its rates of the same `by`; limit and window are not
    /// part of the id, so that a reload that changes them keeps the counts.
    pub(super) fn new(of: &str, by: RateBy, nth: usize, window: Window, mode: Mode, counted: RateScope) -> Self {
        let id = FINGERPRINT[0].hash_one((of, by, nth));
        Self { by, window, mode, counted, id, name: [of.into(), nth.to_string().into()] }
    }

    /// The error of a request over the limit.
    pub fn exceeded(&self, retry_after: Duration) -> Error {
        Error::RateLimited { retry_after, exceeded: Exceeded { by: self.by.as_str(), window: self.window } }
    }

    /// The rate of requests with an invalid token, by address; None if there is no limit.
    pub fn of_invalid_tokens(per_minute: u32) -> Option<Self> {
        let window = Window { limit: per_minute, per: Duration::from_secs(60) };
        // No rule has so many rates, so no other rate has this id.
        let rate = Self::new("invalid tokens", RateBy::Address, usize::MAX, window, Mode::Enforce, RateScope::Local);
        (per_minute > 0).then_some(rate)
    }

    /// Counts a request in this gateway unless that exceeds the limit.
    pub fn charge_locally(
        &self,
        counters: &dyn Counters,
        session: Option<&Session>,
        address: IpAddr,
        now: Duration,
    ) -> Charged {
        match self.subject(session, address) {
            RateSubject::Network(network) => charge_network(counters, self.id, network, self.window, now),
            RateSubject::Name(subject) => counters.charge(RateKey { rate: self.id, subject }, self.window, now),
        }
    }

    /// The counters of all gateways, if the rate is counted there.
    fn shared_counters<'a>(&self, counters: RateCounters<'a>) -> Option<&'a dyn SharedCounters> {
        counters.shared.filter(|_| self.counted == RateScope::Shared)
    }

    /// Counts a request unless that exceeds the limit or takes a question to the store.
    fn charge(
        &self,
        counters: RateCounters<'_>,
        session: Option<&Session>,
        address: IpAddr,
        now: Duration,
    ) -> SharedCharge {
        let Some(shared) = self.shared_counters(counters) else {
            return SharedCharge::Counted(self.charge_locally(counters.local, session, address, now));
        };
        let mut fewest = u32::MAX;
        for (place, (key, window)) in self.levels(session, address).enumerate() {
            match shared.charge(key, window, now) {
                SharedCharge::Counted(Charged::Admitted { left }) => fewest = fewest.min(left),
                other @ (SharedCharge::Counted(Charged::Refused { .. }) | SharedCharge::MustAsk) => {
                    for (key, _) in self.levels(session, address).take(place) {
                        shared.refund(key, Receipt::Leased { at: now });
                    }
                    return other;
                }
            }
        }
        SharedCharge::Counted(Charged::Admitted { left: fewest })
    }

    /// Takes back a request that was admitted at `at` without a question to the store.
    fn refund(&self, counters: RateCounters<'_>, session: Option<&Session>, address: IpAddr, at: Duration) {
        if let Some(shared) = self.shared_counters(counters) {
            for (key, _) in self.levels(session, address) {
                shared.refund(key, Receipt::Leased { at });
            }
            return;
        }
        match self.subject(session, address) {
            RateSubject::Network(network) => refund_network(counters.local, self.id, network, self.window, at),
            RateSubject::Name(subject) => counters.local.refund(RateKey { rate: self.id, subject }, self.window, at),
        }
    }

    /// Counts a request with a question to the store. Returns how to take it back.
    async fn ask(
        &self,
        shared: &dyn SharedCounters,
        session: Option<&Session>,
        address: IpAddr,
    ) -> Result<(Charged, Receipts), Error> {
        let mut receipts = Receipts::default();
        let mut fewest = u32::MAX;
        for (key, window) in self.levels(session, address) {
            let network = key.subject.to_string();
            let subject = self.subject_name(session, &network);
            let name = [&*self.name[0], self.by.as_str(), &*self.name[1], subject[0], subject[1], subject[2]];
            match shared.ask(key, &name, window).await {
                Ok((Charged::Admitted { left }, receipt)) => {
                    receipts.0.push((key, receipt));
                    fewest = fewest.min(left);
                }
                Ok((refused @ Charged::Refused { .. }, _)) => {
                    receipts.refund(shared);
                    return Ok((refused, Receipts::default()));
                }
                Err(_) => {
                    receipts.refund(shared);
                    return Err(Error::Unavailable { part: Part::Store, cause: None });
                }
            }
        }
        Ok((Charged::Admitted { left: fewest }, receipts))
    }

    /// The keys of a request with their windows: one, or those of a network and of the ones around it.
    fn levels(&self, session: Option<&Session>, address: IpAddr) -> impl Iterator<Item = (RateKey, Window)> {
        let mut levels = [None; 3];
        match self.subject(session, address) {
            RateSubject::Name(subject) => levels[0] = Some((subject, 1)),
            RateSubject::Network(network) => {
                for (level, (wider, times)) in levels.iter_mut().zip(network.levels()) {
                    *level = Some((wider.number(), times));
                }
            }
        }
        let (rate, window) = (self.id, self.window);
        levels.into_iter().flatten().map(move |(subject, times)| (RateKey { rate, subject }, window.times(times)))
    }

    /// What identifies the subject of a request on all gateways.
    fn subject_name<'a>(&self, session: Option<&'a Session>, network: &'a str) -> [&'a str; 3] {
        match (self.by, session) {
            (RateBy::Rule, _) => ["rule", "", ""],
            (RateBy::Employee, Some(session)) => ["employee", session.corp_id.as_str(), session.employee_id.as_str()],
            (RateBy::Role, Some(session)) => ["role", session.current_role.as_str(), ""],
            (RateBy::Session, Some(session)) => ["session", session.id.as_str(), ""],
            (RateBy::Address, _) | (_, None) => ["network", network, ""],
        }
    }

    fn subject(&self, session: Option<&Session>, address: IpAddr) -> RateSubject {
        match (self.by, session) {
            (RateBy::Rule, _) => RateSubject::Name(0),
            (RateBy::Employee, Some(session)) => {
                RateSubject::Name(fingerprint(("employee", session.corp_id.as_str(), session.employee_id.as_str())))
            }
            (RateBy::Role, Some(session)) => RateSubject::Name(fingerprint(("role", session.current_role.as_str()))),
            (RateBy::Session, Some(session)) => RateSubject::Name(fingerprint(("session", session.id.as_str()))),
            (RateBy::Address, _) | (_, None) => RateSubject::Network(Network::of(address)),
        }
    }
}

/// What a request is counted by.
enum RateSubject {
    Network(Network),
    /// The fingerprint of a name.
    Name(u128),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {} by {}", self.window.limit, HumanDuration::from(self.window.per), self.by.as_str())
    }
}

/// Requests that the store or a lease has counted.
#[derive(Debug, Default)]
struct Receipts(Vec<(RateKey, Receipt)>);

impl Receipts {
    fn refund(&self, shared: &dyn SharedCounters) {
        for (key, receipt) in &self.0 {
            shared.refund(*key, *receipt);
        }
    }
}

/// Who sends a request, as far as rates are concerned.
#[derive(Debug, Clone, Copy)]
pub struct RatedCaller<'a> {
    /// The session, if there is one.
    pub session: Option<&'a Session>,
    /// The client's address.
    pub address: IpAddr,
}

/// The rates of a request that take a question to the store, and those that have admitted it.
#[derive(Debug, Clone, Copy)]
#[must_use = "the request is admitted only once the store was asked"]
pub struct UnaskedRates {
    /// One bit per rate; a rule has at most eight.
    unasked: u32,
    admitted: u32,
    at: Duration,
}

impl UnaskedRates {
    /// No rate was charged yet.
    pub fn none(at: Duration) -> Self {
        Self { unasked: 0, admitted: 0, at }
    }

    /// Whether every rate was charged.
    pub fn is_empty(self) -> bool {
        self.unasked == 0
    }

    fn refund(self, rates: &[Rate], counters: RateCounters<'_>, caller: RatedCaller<'_>) {
        for (_, rate) in rates.iter().enumerate().filter(|(place, _)| self.admitted >> place & 1 == 1) {
            rate.refund(counters, caller.session, caller.address, self.at);
        }
    }
}

/// Charges the rates of a request, or none if one refuses. Calls `on_charge` for each rate that was charged. A request that a
/// rate of this gateway or a lease refuses costs no question to the store.
pub fn charge(
    rates: &[Rate],
    counters: RateCounters<'_>,
    caller: RatedCaller<'_>,
    now: Duration,
    mut on_charge: impl FnMut(&Rate, Charged),
) -> Result<UnaskedRates, Error> {
    let mut charges = UnaskedRates::none(now);
    for (place, rate) in rates.iter().enumerate() {
        let charged = match rate.charge(counters, caller.session, caller.address, now) {
            SharedCharge::Counted(charged) => charged,
            SharedCharge::MustAsk => {
                charges.unasked |= 1 << place;
                continue;
            }
        };
        on_charge(rate, charged);
        match (charged, rate.mode) {
            (Charged::Admitted { .. }, _) => charges.admitted |= 1 << place,
            (Charged::Refused { .. }, Mode::Shadow) => {}
            (Charged::Refused { retry_after }, Mode::Enforce) => {
                charges.refund(rates, counters, caller);
                return Err(rate.exceeded(retry_after));
            }
        }
    }
    Ok(charges)
}

/// Asks the store about the rates that [`charge`] could not charge. If one refuses, none is charged.
pub async fn ask(
    rates: &[Rate],
    counters: RateCounters<'_>,
    caller: RatedCaller<'_>,
    charges: UnaskedRates,
    mut on_charge: impl FnMut(&Rate, Charged) + Send,
) -> Result<(), Error> {
    let Some(shared) = counters.shared else { return Ok(()) };
    let mut receipts = Vec::new();
    for (_, rate) in rates.iter().enumerate().filter(|(place, _)| charges.unasked >> place & 1 == 1) {
        let refusal = match (rate.ask(shared, caller.session, caller.address).await, rate.mode) {
            (Ok((charged, receipt)), mode) => {
                on_charge(rate, charged);
                receipts.push(receipt);
                match (charged, mode) {
                    (Charged::Admitted { .. }, _) | (Charged::Refused { .. }, Mode::Shadow) => continue,
                    (Charged::Refused { retry_after }, Mode::Enforce) => rate.exceeded(retry_after),
                }
            }
            // Nobody can tell whether it would be refused.
            (Err(_), Mode::Shadow) => continue,
            (Err(error), Mode::Enforce) => error,
        };
        charges.refund(rates, counters, caller);
        receipts.iter().for_each(|receipts| receipts.refund(shared));
        return Err(refusal);
    }
    Ok(())
}
