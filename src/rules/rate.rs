//! Rates as rules say them. Counting is the store's.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use super::Mode;
use crate::config::HumanDuration;
use crate::domain::rate::{Charged, Counters, Exceeded, RateKey, Window};
use crate::domain::session::Session;
use crate::error::Error;

/// Whose requests count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateBy {
    /// One person's; without one, one address's.
    Employee,
    /// All in one active role; without one, one address's.
    Role,
    /// One address's; of IPv6 the /64, which one caller has for itself.
    Address,
    /// One session's; without one, one address's.
    Session,
    /// Everybody's.
    Rule,
}

impl RateBy {
    /// Every word.
    pub const WORDS: [&'static str; 5] = ["employee", "role", "address", "session", "rule"];

    /// The value of a word.
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

    /// As files spell it.
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
    /// Counted over all gateways on the store.
    Shared,
    /// Counted by each gateway for itself.
    Local,
}

/// At most so many in any stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Whose requests count together.
    pub by: RateBy,
    /// How many in how long.
    pub window: Window,
    /// Whether it is enforced.
    pub mode: Mode,
    /// Where it is counted.
    pub counted: RateScope,
    /// Tells it from all others, and is the same after a reload that did not change it.
    id: u64,
}

/// A secret of this process: nobody outside can find two names of one fingerprint.
static FINGERPRINT: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);

fn fingerprint(of: impl std::hash::Hash + Copy) -> u128 {
    let [high, low] = &*FINGERPRINT;
    u128::from(high.hash_one(of)) << 64 | u128::from(low.hash_one(of))
}

impl Rate {
    /// A rate of the rule or endpoint called `of`.
    /// `nth` counts those that go by the same: when a reload changes limit or length, what was counted stays.
    pub(super) fn new(of: &str, by: RateBy, nth: usize, window: Window, mode: Mode, counted: RateScope) -> Self {
        let id = FINGERPRINT[0].hash_one((of, by, nth));
        Self { by, window, mode, counted, id }
    }

    /// The refusal when it is used up.
    pub fn exceeded(&self, retry_after: Duration) -> Error {
        Error::RateLimited { retry_after, exceeded: Exceeded { by: self.by.as_str(), window: self.window } }
    }

    /// Under which key a request counts.
    pub fn key(&self, session: Option<&Session>, address: IpAddr) -> RateKey {
        let subject = match (self.by, session) {
            (RateBy::Rule, _) => 0,
            (RateBy::Employee, Some(session)) => {
                fingerprint(("employee", session.corp_id.as_str(), session.employee_id.as_str()))
            }
            (RateBy::Role, Some(session)) => fingerprint(("role", session.current_role.as_str())),
            (RateBy::Session, Some(session)) => fingerprint(("session", session.id.as_str())),
            (RateBy::Address, _) | (_, None) => network(address),
        };
        RateKey { rate: self.id, subject }
    }
}

/// An address, or the part of it that its owner cannot change at will.
fn network(address: IpAddr) -> u128 {
    match address.to_canonical() {
        // Beside every IPv6 network: no /64 begins like this.
        IpAddr::V4(address) => 1 << 127 | 1 << 64 | u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address) >> 64,
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {} by {}", self.window.limit, HumanDuration::from(self.window.per), self.by.as_str())
    }
}

/// Charges every rate of a request, or none. `seen` hears of each that was asked.
pub fn charge(
    rates: &[Rate],
    counters: &dyn Counters,
    session: Option<&Session>,
    address: IpAddr,
    now: Duration,
    mut seen: impl FnMut(&Rate, Charged),
) -> Result<(), Error> {
    // One bit for each that was charged: there are at most eight.
    let mut charged_ones = 0_u32;
    for (place, rate) in rates.iter().enumerate() {
        let charged = counters.charge(rate.key(session, address), rate.window, now);
        seen(rate, charged);
        match (charged, rate.mode) {
            (Charged::Admitted { .. }, _) => charged_ones |= 1 << place,
            (Charged::Refused { .. }, Mode::Shadow) => {}
            (Charged::Refused { retry_after }, Mode::Enforce) => {
                let admitted = rates.iter().enumerate().filter(|(place, _)| charged_ones >> place & 1 == 1);
                for (_, earlier) in admitted {
                    counters.refund(earlier.key(session, address), earlier.window, now);
                }
                return Err(rate.exceeded(retry_after));
            }
        }
    }
    Ok(())
}
