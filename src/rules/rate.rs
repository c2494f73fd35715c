//! Rate limits of rules and endpoints. The counters are the store's.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use super::Mode;
use crate::config::HumanDuration;
use crate::domain::network::Network;
use crate::domain::rate::{Charged, Counters, Exceeded, RateKey, Window, charge_network, refund_network};
use crate::domain::session::Session;
use crate::error::Error;

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
    /// Identifies the rate; the same after a reload.
    id: u64,
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
        Self { by, window, mode, counted, id }
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

    /// Counts a request unless that exceeds the limit.
    pub fn charge(
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

    /// Takes back a request that was admitted at `at`.
    fn refund(&self, counters: &dyn Counters, session: Option<&Session>, address: IpAddr, at: Duration) {
        match self.subject(session, address) {
            RateSubject::Network(network) => refund_network(counters, self.id, network, self.window, at),
            RateSubject::Name(subject) => counters.refund(RateKey { rate: self.id, subject }, self.window, at),
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

/// Charges every rate of a request, or none if one refuses. Calls `on_charge` for each rate that was charged.
pub fn charge(
    rates: &[Rate],
    counters: &dyn Counters,
    session: Option<&Session>,
    address: IpAddr,
    now: Duration,
    mut on_charge: impl FnMut(&Rate, Charged),
) -> Result<(), Error> {
    // One bit per admitted rate; a rule has at most eight.
    let mut admitted_bits = 0_u32;
    for (place, rate) in rates.iter().enumerate() {
        let charged = rate.charge(counters, session, address, now);
        on_charge(rate, charged);
        match (charged, rate.mode) {
            (Charged::Admitted { .. }, _) => admitted_bits |= 1 << place,
            (Charged::Refused { .. }, Mode::Shadow) => {}
            (Charged::Refused { retry_after }, Mode::Enforce) => {
                let admitted = rates.iter().enumerate().filter(|(place, _)| admitted_bits >> place & 1 == 1);
                for (_, earlier) in admitted {
                    earlier.refund(counters, session, address, now);
                }
                return Err(rate.exceeded(retry_after));
            }
        }
    }
    Ok(())
}
