//! Switches: settings that an administrator has on the real platform, and faults to inject.
//!
//! All are off by default. `trusted_domains` and `visible_range` hold a list per application: while such a map
//! is empty, nothing is checked; once it names one application, the others trust no domain and see no member,
//! as on the real platform.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::members::{APPLICATIONS, Application, CORP_ID, EffectiveMember, Member, MemberKind, members};
use super::path;

/// A value per path of the server API; [`ANY`] covers every path without a value of its own.
pub type PerPath<T> = BTreeMap<String, T>;

/// The key that stands for the whole server API.
pub const ANY: &str = "*";

/// All switches of the simulated platform.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Switches {
    /// Lifetime of a new application token.
    #[serde(rename = "token_lifetime_seconds", with = "seconds")]
    pub token_lifetime: Duration,
    /// Each token fetch issues a new token and revokes the previous one.
    pub rotate_tokens: bool,
    /// Error code for stale tokens; unset: 42001 for an expired one, 40014 for a revoked one.
    pub stale_token_errcode: Option<StaleErrcode>,
    /// Lifetime of a new code; zero issues expired codes.
    #[serde(rename = "code_lifetime_seconds", with = "seconds")]
    pub code_lifetime: Duration,
    /// Calls that fail with -1.
    pub busy: PerPath<Times>,
    /// Calls that fail with a 502 whose body is not JSON. Accepts paths of pages too.
    pub bad_gateway: PerPath<Times>,
    /// Delay of a response. Accepts paths of pages too.
    #[serde(rename = "slow_milliseconds", with = "milliseconds_per_path")]
    pub slow: PerPath<Duration>,
    /// Calls per path and minute; the call above the limit blocks the path with 45009 for a minute.
    pub frequency_limit: Option<u64>,
    /// Client addresses that every call but the token fetch rejects with 60020.
    #[serde(with = "networks")]
    pub denied_addresses: Vec<IpNet>,
    /// Trusted domains per `agentid`: a host, with the port if it is not the scheme's default.
    pub trusted_domains: BTreeMap<String, Vec<String>>,
    /// Visible userids per `agentid`.
    pub visible_range: BTreeMap<String, Vec<String>>,
    /// Kind per userid, instead of the built-in one.
    pub members: BTreeMap<String, MemberKind>,
    /// The authorize page opens only in the platform's own clients.
    pub client_only: bool,
    /// Every scan is declined.
    pub deny_at_scan: bool,
    /// The browser calls the application's callback twice.
    pub duplicate_callback: bool,
    /// The callback carries `appid` beside `code` and `state`.
    pub return_appid: bool,
    /// The application predates June 2022: its profiles include avatar, mobile number and email.
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

impl Switches {
    /// Whether calls from this address are rejected.
    pub(super) fn denies(&self, peer: IpAddr) -> bool {
        self.denied_addresses.iter().any(|network| network.contains(&peer.to_canonical()))
    }

    /// Whether the application trusts `domain`, ignoring case. There are no wildcards and no sub-domains.
    pub(super) fn trusts(&self, application: &Application, domain: &str) -> bool {
        let trusted = |domains: &Vec<String>| domains.iter().any(|known| known.eq_ignore_ascii_case(domain));
        self.trusted_domains.is_empty() || self.trusted_domains.get(application.agent_id).is_some_and(trusted)
    }

    /// Whether at least one application of the corporation trusts `domain`.
    pub(super) fn any_application_trusts(&self, domain: &str) -> bool {
        APPLICATIONS.iter().any(|application| self.trusts(application, domain))
    }

    /// Whether the member is in the application's visible range.
    pub(super) fn sees(&self, application: &Application, member: &EffectiveMember) -> bool {
        let listed = |ids: &Vec<String>| ids.iter().any(|id| id.eq_ignore_ascii_case(member.member.userid));
        self.visible_range.is_empty() || self.visible_range.get(application.agent_id).is_some_and(listed)
    }

    /// Whether the member can share private fields: the platform offers this only to visible members of the
    /// main corporation.
    pub(super) fn can_share_private_fields(&self, application: &Application, member: &EffectiveMember) -> bool {
        member.corp_id() == Some(CORP_ID) && self.sees(application, member)
    }

    /// Applies the kind that a switch sets.
    pub(super) fn effective(&self, member: &'static Member) -> EffectiveMember {
        EffectiveMember { member, kind: self.members.get(member.userid).copied().unwrap_or(member.kind) }
    }

    pub(super) fn effective_members(&self) -> impl Iterator<Item = EffectiveMember> {
        members().iter().map(|member| self.effective(member))
    }

    /// Finds a member by userid or by identifier. The platform's userids are case-insensitive.
    pub(super) fn find_member(&self, text: &str) -> Option<EffectiveMember> {
        self.effective_members().find(|found| {
            found.member.userid.eq_ignore_ascii_case(text) || found.identifier().eq_ignore_ascii_case(text)
        })
    }

    /// The configured delay of a path.
    pub(super) fn delay(&self, path: &str) -> Option<Duration> {
        let any = || self.slow.get(ANY).filter(|_| path::API.contains(&path));
        self.slow.get(path).or_else(any).copied()
    }

    /// Uses up one injected -1 for this path; false if there is none.
    pub(super) fn take_busy(&mut self, path: &str) -> bool {
        take(&mut self.busy, path)
    }

    /// Uses up one injected 502 for this path; false if there is none.
    pub(super) fn take_bad_gateway(&mut self, path: &str) -> bool {
        take(&mut self.bad_gateway, path)
    }
}

/// Counts one call down and removes an entry that is used up, so that the switches show only what is pending.
fn take(pending: &mut PerPath<Times>, path: &str) -> bool {
    let any = path::API.contains(&path).then_some(ANY);
    let Some(key) = [Some(path), any].into_iter().flatten().find(|key| pending.contains_key(*key)) else {
        return false;
    };
    match pending.get_mut(key) {
        Some(Times::All) => true,
        Some(Times::Next(calls)) if *calls > 1 => {
            *calls -= 1;
            true
        }
        Some(Times::Next(calls)) => {
            let is_last = *calls == 1;
            pending.remove(key);
            is_last
        }
        None => false,
    }
}

/// How many calls an injected fault applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// This many of the next calls.
    Next(u64),
    /// Every call until the switch is reset.
    All,
}

const ALL: &str = "all";

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Times::Next(calls) => serializer.serialize_u64(*calls),
            Times::All => serializer.serialize_str(ALL),
        }
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a number of calls or \"all\"")]
        enum NumberOrWord {
            Number(u64),
            Word(String),
        }
        match NumberOrWord::deserialize(deserializer)? {
            NumberOrWord::Number(calls) => Ok(Times::Next(calls)),
            NumberOrWord::Word(word) if word == ALL => Ok(Times::All),
            NumberOrWord::Word(word) => Err(de::Error::custom(format!("\"{word}\" is neither a number nor \"all\""))),
        }
    }
}

/// The error code of a stale token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub enum StaleErrcode {
    /// 40014, "invalid access_token".
    Invalid,
    /// 42001, "access_token expired".
    Expired,
}

impl TryFrom<i64> for StaleErrcode {
    type Error = String;

    fn try_from(errcode: i64) -> Result<Self, String> {
        match errcode {
            40014 => Ok(StaleErrcode::Invalid),
            42001 => Ok(StaleErrcode::Expired),
            other => Err(format!("{other} is neither 40014 nor 42001")),
        }
    }
}

impl From<StaleErrcode> for i64 {
    fn from(errcode: StaleErrcode) -> i64 {
        match errcode {
            StaleErrcode::Invalid => 40014,
            StaleErrcode::Expired => 42001,
        }
    }
}

/// A duration as whole seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(duration.as_secs())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

/// Durations per path, as whole milliseconds.
mod milliseconds_per_path {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    type Durations = BTreeMap<String, Duration>;

    pub fn serialize<S: Serializer>(durations: &Durations, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(durations.iter().map(|(path, duration)| (path, duration.as_millis())))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Durations, D::Error> {
        let numbers = BTreeMap::<String, u64>::deserialize(deserializer)?;
        Ok(numbers.into_iter().map(|(path, number)| (path, Duration::from_millis(number))).collect())
    }
}

/// Networks; a single address is a network of one.
mod networks {
    use std::net::IpAddr;

    use ipnet::IpNet;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(networks: &[IpNet], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(networks)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
        let parse = |text: &String| text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        let network = |text: String| {
            parse(&text).map_err(|_| de::Error::custom(format!("\"{text}\" is not an address or network")))
        };
        Vec::<String>::deserialize(deserializer)?.into_iter().map(network).collect()
    }
}
