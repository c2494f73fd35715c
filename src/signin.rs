//! The rules of signing in. Knows no HTTP: typed requests in, typed results or [`Error`] out.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{BindProof, ClientsConfig, Development, FlowCookie, PlatformKind, QrConfirm, TicketConfig};
use crate::directory::Directory;
use crate::domain::clock::Clock;
use crate::domain::employee::CorpId;
use crate::domain::lockout;
use crate::domain::role::RoleName;
use crate::metrics::Metrics;
use crate::platform::Platform;
use crate::sessions::SessionCache;
use crate::token::Tokens;
use crate::token::cookie::CookieSigner;
use crate::token::vault::Vault;
use devices::Devices;
use password::Passwords;
use tries::Tries;

pub mod agent;

mod attempt;

pub mod audit;

pub mod bind;

pub mod devices;

pub mod development;

pub mod oauth2;

mod callback_dedup;

pub mod otp;

pub mod password;

pub mod roles;

pub mod session;

pub mod ticket;

pub mod totp;

mod tries;

/// What is set about signing in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which platform people are sent to.
    pub platform: PlatformKind,
    /// The corporation whose application we are.
    pub main_corp: CorpId,
    /// Where browsers reach us, without a last slash.
    pub public_url: String,
    /// The three clients.
    pub clients: ClientsConfig,
    /// About tickets.
    pub ticket: TicketConfig,
    /// How long a token is good.
    pub token_lifetime: Duration,
    /// The role of employees who have none.
    pub default_role: Option<RoleName>,
    /// What a scan needs to become a sign-in.
    pub confirm: QrConfirm,
    /// Whether a callback needs its flow cookie.
    pub flow_cookie: FlowCookie,
    /// How long a flow may take.
    pub flow_lifetime: Duration,
    /// How long a session stays stepped up.
    pub otp_valid_for: Duration,
    /// How long the login log is kept.
    pub login_log: Duration,
    /// What binding asks for.
    pub bind_proof: BindProof,
    /// Whether development mode is on.
    pub development: Development,
}

/// The device from which somebody acts.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its address.
    pub address: String,
    /// Its `User-Agent`, cut to a sensible length.
    pub user_agent: String,
    /// The request with which it acts, for the log.
    pub request_id: String,
}

/// Signs people in and out.
pub struct SignIn {
    settings: Settings,
    live: Arc<SessionCache>,
    directory: Arc<dyn Directory>,
    platform: Arc<dyn Platform>,
    tokens: Arc<Tokens>,
    cookies: CookieSigner,
    devices: Devices,
    tries: Tries,
    clock: Clock,
    metrics: Arc<Metrics>,
    long_polls: ticket::LongPolls,
    callbacks: callback_dedup::CallbackDedup,
    spent_proofs: bind::SpentProofs,
    unverified_log_cap: attempt::UnverifiedLogCap,
    passwords: Arc<Passwords>,
    vault: Arc<Vault>,
    roles: roles::Roles,
    audit: audit::Audit,
}

/// What [`SignIn`] works with.
pub struct Parts {
    /// Sessions.
    pub live: Arc<SessionCache>,
    /// Employees.
    pub directory: Arc<dyn Directory>,
    /// The messaging platform.
    pub platform: Arc<dyn Platform>,
    /// Tokens.
    pub tokens: Arc<Tokens>,
    /// Sealed cookies.
    pub cookies: CookieSigner,
    /// One-time-password devices.
    pub devices: Devices,
    /// Local passwords.
    pub passwords: Arc<Passwords>,
    /// What ties marks to this gateway's key.
    pub vault: Arc<Vault>,
    /// The time.
    pub clock: Clock,
    /// Counts.
    pub metrics: Arc<Metrics>,
}

impl SignIn {
    /// Puts the parts together.
    pub fn new(settings: Settings, parts: Parts) -> Self {
        let Parts { live, directory, platform, tokens, cookies, devices, passwords, vault, clock, metrics } = parts;
        let tries = Tries::new(directory.clone(), clock.clone());
        let roles = roles::Roles::new(live.clone(), directory.clone(), settings.default_role.clone());
        Self {
            settings,
            audit: audit::Audit::new(directory.clone()),
            roles,
            live,
            directory,
            platform,
            tokens,
            cookies,
            devices,
            tries,
            clock,
            metrics,
            long_polls: ticket::LongPolls::default(),
            callbacks: callback_dedup::CallbackDedup::default(),
            spent_proofs: bind::SpentProofs::default(),
            unverified_log_cap: attempt::UnverifiedLogCap::default(),
            passwords,
            vault,
        }
    }

    /// Gives back the memory of answers that nobody will ask for again, and forgets old lines of the login and audit
    /// logs and lock-outs of names that are nobody's.
    pub async fn sweep(&self) {
        self.callbacks.sweep(self.clock.now());
        self.spent_proofs.sweep(self.clock.now());
        let forgotten = match self.directory.prune_login_log(self.settings.login_log).await {
            Ok(()) => self.directory.prune_audit_log(self.settings.login_log).await,
            failed => failed,
        };
        if let Err(error) = forgotten {
            tracing::warn!(error = %crate::error::chain(&error), "old lines of the login and audit logs could not be removed");
        }
        if let Err(error) = self.directory.prune_unknown_lockouts(lockout::QUIET, agent::MAX_UNKNOWN_LOCKOUTS).await {
            tracing::warn!(error = %crate::error::chain(&error), "old lock-outs of nobody could not be removed");
        }
    }

    /// Brings those metrics up to date that change by themselves.
    pub fn measure(&self) {
        let age = self.platform.credential_age().unwrap_or_default();
        self.metrics.platform_token_age.set(age.as_secs_f64());
        let load = self.passwords.load();
        self.metrics.set_password_checks(load.running, load.waiting);
        self.metrics.password_checks_most.set(i64::try_from(load.most_running).unwrap_or(i64::MAX));
    }

    /// What is set.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The directory behind.
    pub fn directory(&self) -> &Arc<dyn Directory> {
        &self.directory
    }

    /// The sessions behind.
    pub fn live(&self) -> &Arc<SessionCache> {
        &self.live
    }

    /// The time.
    pub fn now(&self) -> crate::domain::clock::Timestamp {
        self.clock.now()
    }

    /// The public keys of our tokens and assertions.
    pub fn keys(&self) -> Arc<crate::token::ring::KeyRing> {
        self.tokens.keys()
    }
}
