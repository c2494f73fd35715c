//! `[token]`, `[ticket]`, `[qr]`, `[oauth2]`, `[bind]`, `[agents]`, `[otp]`: how people sign in and what they get.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Faults, HumanDuration};

/// How access tokens are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenAlgorithm {
    /// Ed25519.
    EdDSA,
    /// ECDSA on P-256.
    ES256,
}

/// `[token]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenConfig {
    /// `EdDSA` or `ES256`.
    pub algorithm: TokenAlgorithm,
    /// How long a token is good. A working day: people sign in once.
    pub lifetime: HumanDuration,
    /// How long a new key is published before it signs (`deskgate key rotate`): others keep our public keys for up
    /// to 5 min.
    pub key_lead: HumanDuration,
    /// How long a replaced key's tokens are still good. As long as `lifetime`, nobody is signed out by a rotation.
    pub key_grace: HumanDuration,
    /// By how much clocks may differ.
    pub leeway: HumanDuration,
    /// Most sessions kept in memory; the store has the rest.
    pub cache: usize,
}

impl Default for TokenConfig {
    fn default() -> Self {
        Self {
            algorithm: TokenAlgorithm::EdDSA,
            lifetime: HumanDuration::seconds(8 * 3600),
            key_lead: HumanDuration::seconds(600),
            key_grace: HumanDuration::seconds(8 * 3600),
            leeway: HumanDuration::seconds(30),
            cache: 200_000,
        }
    }
}

impl TokenConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if self.lifetime < HumanDuration::seconds(1) {
            faults.add("token.lifetime", "must be at least 1s");
        }
        if self.leeway > HumanDuration::seconds(300) {
            faults.add("token.leeway", "must be at most 5m: it lets expired tokens in");
        }
        if self.cache == 0 {
            faults.add("token.cache", "must be at least 1");
        }
    }
}

/// `[ticket]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TicketConfig {
    /// How long a code can be scanned. Short: whoever holds the ticket can collect the token.
    pub lifetime: HumanDuration,
    /// Longest `wait` of a poll; below the 30 s at which common proxies give up.
    pub longest_wait: HumanDuration,
    /// What the sign-in page waits between two polls.
    pub poll_interval: HumanDuration,
}

impl Default for TicketConfig {
    fn default() -> Self {
        Self {
            lifetime: HumanDuration::seconds(180),
            longest_wait: HumanDuration::seconds(25),
            poll_interval: HumanDuration::seconds(2),
        }
    }
}

impl TicketConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if self.lifetime < HumanDuration::seconds(1) {
            faults.add("ticket.lifetime", "must be at least 1s");
        }
        if self.longest_wait > HumanDuration::seconds(25) {
            faults.add("ticket.longest_wait", "must be at most 25s");
        }
    }
}

/// What a scan needs to become a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QrConfirm {
    /// A tap on the phone.
    Tap,
    /// Nothing more.
    Auto,
}

/// `[qr]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QrConfig {
    /// `tap` shows the phone who is asking; `auto` signs in at the scan, also when somebody else shows the code.
    pub confirm: QrConfirm,
}

impl Default for QrConfig {
    fn default() -> Self {
        Self { confirm: QrConfirm::Tap }
    }
}

/// Whether the callback wants the cookie that the flow began with. In the file: `true` or `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum FlowCookie {
    /// Refuse a callback without it.
    Required,
    /// Let it through, to the page of the user's role.
    Optional,
}

impl From<bool> for FlowCookie {
    fn from(required: bool) -> Self {
        if required { Self::Required } else { Self::Optional }
    }
}

impl From<FlowCookie> for bool {
    fn from(cookie: FlowCookie) -> Self {
        cookie == FlowCookie::Required
    }
}

/// `[oauth2]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Oauth2Config {
    /// Whether a callback must come from the browser that asked for the authorize URL. `false` lets
    /// in links from the platform's workbench, and with them a sign-in that somebody else began.
    pub require_flow_cookie: FlowCookie,
    /// How long a person may take at the platform.
    pub flow_lifetime: HumanDuration,
}

impl Default for Oauth2Config {
    fn default() -> Self {
        Self { require_flow_cookie: FlowCookie::Required, flow_lifetime: HumanDuration::seconds(600) }
    }
}

impl Oauth2Config {
    pub(super) fn check(&self, faults: &mut Faults) {
        if self.flow_lifetime < HumanDuration::seconds(1) {
            faults.add("oauth2.flow_lifetime", "must be at least 1s");
        }
    }
}

/// What binding asks for beyond an employee id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindProof {
    /// Nothing: whoever knows an employee id gets a token.
    None,
    /// The cookie of a platform sign-in that matched no employee.
    Platform,
}

/// `[bind]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BindConfig {
    /// `platform`, or `none`: the specification to the letter, for closed networks and development only.
    pub proof: BindProof,
}

impl Default for BindConfig {
    fn default() -> Self {
        Self { proof: BindProof::Platform }
    }
}

/// Whether agent sign-in conceals that an agent has no local password. In the file: `true` or `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Concealment {
    /// Answers 1011, as for a wrong password.
    On,
    /// Answers 1012.
    #[default]
    Off,
}

impl From<bool> for Concealment {
    fn from(conceal: bool) -> Self {
        if conceal { Self::On } else { Self::Off }
    }
}

impl From<Concealment> for bool {
    fn from(concealment: Concealment) -> Self {
        concealment == Concealment::On
    }
}

/// `[agents]`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentsConfig {
    /// `true` answers 1011 instead of 1012 for an agent without a local password, so that a client without credentials
    /// cannot find out who is an agent.
    pub conceal: Concealment,
}

/// `[otp]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OtpConfig {
    /// How long a session stays stepped up after a code.
    pub valid_for: HumanDuration,
    /// What people see beside the code on their device.
    pub issuer: String,
    /// File with the 32 bytes, in base64, that close secrets at rest; without one a key is made in `data_dir`.
    pub key_file: PathBuf,
    /// Files of keys that were used before: a start closes anew, with `key_file`, what these have closed.
    pub old_key_files: Vec<PathBuf>,
}

impl Default for OtpConfig {
    fn default() -> Self {
        Self {
            valid_for: HumanDuration::seconds(300),
            issuer: "IT Help Desk".to_owned(),
            key_file: PathBuf::new(),
            old_key_files: Vec::new(),
        }
    }
}

impl OtpConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if self.valid_for > HumanDuration::seconds(3600) {
            faults
                .add("otp.valid_for", "must be at most 1h: it is how long a stolen session may do the most dangerous");
        }
        if self.issuer.trim().is_empty() {
            faults.add("otp.issuer", "must not be empty: people could not tell the entry on their device");
        }
    }
}
