//! `[token]`, `[ticket]`, `[qr]`, `[oauth2]`, `[bind]`, `[agents]`, `[otp]`: how employees sign in and which tokens they get.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Faults, HumanDuration};

fn too_short(duration: HumanDuration, minimum: &str) -> String {
    format!("\"{duration}\" is too short; use at least \"{minimum}\"")
}

/// The signature algorithm of access tokens.
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
    /// `EdDSA` or `ES256`, for new keys.
    pub algorithm: TokenAlgorithm,
    /// Token lifetime. A working day, so that employees sign in once a day.
    pub lifetime: HumanDuration,
    /// How long a new key is published before it signs (`deskgate key rotate`). Verifiers cache our JWKS for up to 5 min.
    pub key_lead: HumanDuration,
    /// How long tokens of a replaced key stay valid. At least `lifetime`, so that a rotation signs no one out.
    pub key_grace: HumanDuration,
    /// Tolerated clock difference.
    pub leeway: HumanDuration,
    /// Size of the session cache; further sessions are read from the store.
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
            faults.add("token.lifetime", too_short(self.lifetime, "1s"));
        }
        if self.leeway > HumanDuration::seconds(300) {
            let why = format!("\"{}\" is too long; use at most \"5m\", because it accepts expired tokens", self.leeway);
            faults.add("token.leeway", why);
        }
        if self.cache == 0 {
            faults.add("token.cache", "0 would cache no session; use at least 1");
        }
    }
}

/// `[ticket]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TicketConfig {
    /// How long a QR code can be scanned. Short, because the holder of the ticket can collect the token.
    pub lifetime: HumanDuration,
    /// Longest long poll; below the 30 s at which common proxies time out.
    pub longest_wait: HumanDuration,
    /// Pause of the sign-in page between two polls.
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
            faults.add("ticket.lifetime", too_short(self.lifetime, "1s"));
        }
        if self.longest_wait > HumanDuration::seconds(25) {
            let why = format!("\"{}\" is too long; use at most \"25s\"", self.longest_wait);
            faults.add("ticket.longest_wait", why);
        }
    }
}

/// What confirms a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QrConfirm {
    /// The employee taps a button on the phone.
    Tap,
    /// The scan itself.
    Auto,
}

/// `[qr]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QrConfig {
    /// `tap` asks on the phone before it signs in; `auto` signs in at the scan, even if an attacker shows the code.
    pub confirm: QrConfirm,
}

impl Default for QrConfig {
    fn default() -> Self {
        Self { confirm: QrConfirm::Tap }
    }
}

/// Whether a callback must carry the flow cookie. In the file: `true` or `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum FlowCookie {
    /// A callback without it is refused.
    Required,
    /// A callback without it is accepted and redirects to the client of the employee's role.
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
    /// Whether a callback must come from the browser that requested the authorize URL. `false` allows links from the
    /// platform's workbench, and with them login CSRF.
    pub require_flow_cookie: FlowCookie,
    /// How long an employee may take to authorize.
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
            faults.add("oauth2.flow_lifetime", too_short(self.flow_lifetime, "1s"));
        }
    }
}

/// The proof that binding requires beside an employee ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindProof {
    /// None: anyone who knows an employee ID gets a token.
    None,
    /// The cookie of a platform sign-in that matched no employee.
    Platform,
}

/// Who lets a proven platform account in as the employee that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindApproval {
    /// An administrator or operator approves the link.
    Admin,
    /// Nobody has to, if the employee's only role is `user`.
    None,
}

/// `[bind]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BindConfig {
    /// `platform`, or `none` as the specification says, for closed networks and development only.
    pub proof: BindProof,
    /// `admin`: an administrator approves each new link. `none` lets it in at once, but only as an employee whose only
    /// role is `user`.
    pub approval: BindApproval,
}

impl Default for BindConfig {
    fn default() -> Self {
        Self { proof: BindProof::Platform, approval: BindApproval::Admin }
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
    /// How long a session stays stepped up after a one-time password.
    pub valid_for: HumanDuration,
    /// How old a platform sign-in may be when an employee sets up the first device or the first local password. `0s`
    /// leaves both to operators.
    pub enrol_within: HumanDuration,
    /// Name of this service in the authenticator app.
    pub issuer: String,
    /// File with the key, 32 bytes in base64, that encrypts secrets at rest; if empty, a key is generated in `data_dir`.
    pub key_file: PathBuf,
    /// Keys that `key_file` has replaced: at start, their secrets are encrypted again with `key_file`.
    pub old_key_files: Vec<PathBuf>,
}

impl Default for OtpConfig {
    fn default() -> Self {
        Self {
            valid_for: HumanDuration::seconds(300),
            enrol_within: HumanDuration::seconds(300),
            issuer: "IT Help Desk".to_owned(),
            key_file: PathBuf::new(),
            old_key_files: Vec::new(),
        }
    }
}

impl OtpConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if self.valid_for > HumanDuration::seconds(3600) {
            let why = format!(
                "\"{}\" is too long; use at most \"1h\", because a stolen session stays stepped up",
                self.valid_for
            );
            faults.add("otp.valid_for", why);
        }
        if self.enrol_within > HumanDuration::seconds(3600) {
            let why = format!(
                "\"{}\" is too long; use at most \"1h\", because a stolen session could set up a device of its own",
                self.enrol_within
            );
            faults.add("otp.enrol_within", why);
        }
        if self.issuer.trim().is_empty() {
            faults.add("otp.issuer", "must not be empty: authenticator apps show it beside the code");
        }
    }
}
