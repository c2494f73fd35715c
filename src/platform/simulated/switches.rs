//! What can go wrong on the platform, and what an administrator can set there: one struct.
//!
//! Everything is off by default, so that a newcomer's first sign-in works. Two maps say what holds per
//! application (`trusted_domains`, `visible_range`): while such a map is empty nothing is checked; as
//! soon as it names one application, those that it does not name trust nobody and see nobody, as on the
//! real platform.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::members::{App, Person};
use super::{path, trust};

mod about;

mod merge;

mod written;

pub use about::{ABOUT, About, Input};
pub use merge::Fault;

/// A value per path of the server API; [`ANY`] is every path that has no value of its own.
pub type PerPath<T> = BTreeMap<String, T>;

/// The key that stands for the whole server API.
pub const ANY: &str = "*";

/// All switches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Switches {
    /// How long a new application token lives.
    #[serde(rename = "token_lifetime_seconds", with = "written::seconds")]
    pub token_lifetime: Duration,
    /// Each fetch gives a new token and ends the one before.
    pub rotate_tokens: bool,
    /// What stale tokens are refused with; none: 42001 for an expired one, 40014 for a withdrawn one.
    pub stale_token_errcode: Option<StaleErrcode>,
    /// How long a new code lives; zero: it is expired when it arrives.
    #[serde(rename = "code_lifetime_seconds", with = "written::seconds")]
    pub code_lifetime: Duration,
    /// How many of the next calls are answered with -1.
    pub busy: PerPath<Times>,
    /// How many of the next calls are answered with a 502 that is not JSON. Pages can be named too.
    pub bad_gateway: PerPath<Times>,
    /// How long an answer is held back. Pages can be named too.
    #[serde(rename = "slow_milliseconds", with = "written::milliseconds_per_path")]
    pub slow: PerPath<Duration>,
    /// How often each path may be called in a minute; beyond, 45009 for a minute.
    pub frequency_limit: Option<u64>,
    /// Who is refused with 60020; tokens are still given to them.
    #[serde(with = "written::networks")]
    pub denied_addresses: Vec<IpNet>,
    /// Host, and port if it is not the scheme's, that each application (by `agentid`) returns to.
    pub trusted_domains: BTreeMap<String, Vec<String>>,
    /// Who is visible to each application, by userid.
    pub visible_range: BTreeMap<String, Vec<String>>,
    /// What members are, by userid; whoever is not named is what the development data say.
    pub members: BTreeMap<String, Kind>,
    /// The authorize page works in the platform's own clients only.
    pub client_only: bool,
    /// Whoever scans refuses.
    pub deny_at_scan: bool,
    /// The browser calls the application's callback twice.
    pub duplicate_callback: bool,
    /// `appid` comes back beside code and state.
    pub return_appid: bool,
    /// The application is from before June 2022: profiles have a picture, telephone and mail.
    pub old_application: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            token_lifetime: Duration::from_secs(7200),
            rotate_tokens: false,
            stale_token_errcode: None,
            code_lifetime: Duration::from_secs(300),
            busy: PerPath::new(),
            bad_gateway: PerPath::new(),
            slow: PerPath::new(),
            frequency_limit: None,
            denied_addresses: Vec::new(),
            trusted_domains: BTreeMap::new(),
            visible_range: BTreeMap::new(),
            members: BTreeMap::new(),
            client_only: false,
            deny_at_scan: false,
            duplicate_callback: false,
            return_appid: false,
            old_application: false,
        }
    }
}

/// How many calls something happens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The next so many.
    Next(u64),
    /// All, until it is switched off.
    All,
}

/// What a stale token can be refused with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub enum StaleErrcode {
    /// 40014, "invalid access_token".
    Invalid,
    /// 42001, "access_token expired".
    Expired,
}

/// What somebody can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A member who may work.
    Active,
    /// A member whom the corporation has disabled.
    Disabled,
    /// A member who has never opened the client.
    NotActivated,
    /// A member of the connected corporation.
    Linked,
    /// Nobody's member.
    Outsider,
    /// Nobody's member, but a customer of the corporation.
    Customer,
}

impl Switches {
    /// Whether calls from this address are refused.
    pub fn denies(&self, peer: IpAddr) -> bool {
        self.denied_addresses.iter().any(|network| network.contains(&peer.to_canonical()))
    }

    /// Whether this application trusts `domain`, which is a host and, if it is not the scheme's, a port.
    pub fn trusts(&self, app: &App, domain: &str) -> bool {
        let trusted = |domains: &Vec<String>| domains.iter().any(|known| trust::same(known, domain));
        self.trusted_domains.is_empty() || self.trusted_domains.get(app.agent_id).is_some_and(trusted)
    }

    /// Whether this application may see a person.
    pub fn sees(&self, app: &App, person: &Person) -> bool {
        let named = |ids: &Vec<String>| ids.iter().any(|id| id.eq_ignore_ascii_case(person.member.userid));
        self.visible_range.is_empty() || self.visible_range.get(app.agent_id).is_some_and(named)
    }

    /// How long the answer of this path is held back.
    pub fn delay(&self, path: &str) -> Option<Duration> {
        let any = || self.slow.get(ANY).filter(|_| path::API.contains(&path));
        self.slow.get(path).or_else(any).copied()
    }

    /// Whether this call meets a busy platform; counts down.
    pub fn meets_busy(&mut self, path: &str) -> bool {
        spend(&mut self.busy, path)
    }

    /// Whether this call meets a broken gateway; counts down.
    pub fn meets_bad_gateway(&mut self, path: &str) -> bool {
        spend(&mut self.bad_gateway, path)
    }
}

/// Takes one call off what is left for this path. What is used up is removed, so that the switches show
/// only what is still to come.
fn spend(left: &mut PerPath<Times>, path: &str) -> bool {
    let any = path::API.contains(&path).then_some(ANY);
    let Some(key) = [Some(path), any].into_iter().flatten().find(|key| left.contains_key(*key)) else {
        return false;
    };
    match left.get_mut(key) {
        Some(Times::All) => true,
        Some(Times::Next(calls)) if *calls > 1 => {
            *calls -= 1;
            true
        }
        Some(Times::Next(calls)) => {
            let met = *calls == 1;
            left.remove(key);
            met
        }
        None => false,
    }
}
