//! The sign-in services. They do not depend on HTTP: typed requests in, typed results or [`Error`](crate::error::Error)
//! out.
//!
//! Each service is a struct with the dependencies that it needs; [`SignInServices::new`] builds them all.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{
    BindApproval, BindProof, ClientsConfig, Concealment, Development, FlowCookie, QrConfirm, TicketConfig,
};
use crate::directory::Directory;
use crate::domain::clock::Clock;
use crate::domain::employee::CorpId;
use crate::domain::role::RoleName;
use crate::metrics::Metrics;
use crate::platform::Platform;
use crate::sessions::SessionCache;
use crate::store::Change;
use crate::store::work_leases::{LeaseOutcome, Work, WorkLeases};
use crate::token::Tokens;
use crate::token::cookie::CookieSigner;
use crate::token::vault::Vault;
use agents::AgentSignIn;
use audit::Audit;
use backends::Backends;
use bind_proofs::BindProofs;
use binding::AccountBinding;
use codes::AuthorizationCodes;
use development::DevelopmentSignIn;
use devices::Devices;
use enrolment::Enrolment;
use identity_provider::IdentityProvider;
use issuer::SessionIssuer;
use lockouts::Lockouts;
use login_log::LoginLog;
use membership::Membership;
use oauth2::flow::FlowCookies;
use oauth2::{CallbackDedup, Oauth2Flow};
use otp::OneTimePasswords;
use password::Passwords;
use recheck::Recheck;
use roles::Roles;
use sessions::UserSessions;
use tickets::Tickets;

// The services, in the order of the specification.

pub mod tickets;

pub mod oauth2;

pub mod sessions;

pub mod binding;

pub mod agents;

pub mod otp;

pub mod development;

pub mod backends;

// What the services share.

mod attempt;

mod bind_proofs;

mod codes;

mod enrolment;

mod identity_provider;

pub mod issuer;

mod lockouts;

mod login_log;

mod membership;

mod platform_call;

pub mod recheck;

pub mod audit;

pub mod devices;

pub mod password;

pub mod roles;

pub mod totp;

/// How long one gateway prunes before another may: longer than the minute between two runs.
const PRUNING_LEASE: Duration = Duration::from_secs(150);

/// The settings of all services.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The corporation whose platform application this is.
    pub main_corp: CorpId,
    /// The URL under which browsers reach the gateway, without a trailing slash.
    pub public_url: String,
    /// The URLs of the web clients.
    pub clients: ClientsConfig,
    /// `[ticket]`
    pub ticket: TicketConfig,
    /// `token.lifetime`
    pub token_lifetime: Duration,
    /// The role of employees who have none.
    pub default_role: Option<RoleName>,
    /// `qr.confirm`
    pub confirm: QrConfirm,
    /// `oauth2.require_flow_cookie`
    pub flow_cookie: FlowCookie,
    /// `oauth2.flow_lifetime`
    pub flow_lifetime: Duration,
    /// `otp.valid_for`
    pub step_up_lifetime: Duration,
    /// `platform.recheck`
    pub recheck: Duration,
    /// `otp.enrol_within`
    pub enrol_within: Duration,
    /// How long the login log and the audit log are kept.
    pub log_retention: Duration,
    /// `bind.proof`
    pub bind_proof: BindProof,
    /// `bind.approval`
    pub bind_approval: BindApproval,
    /// `agents.conceal`
    pub conceal: Concealment,
    /// `server.development`
    pub development: Development,
}

/// What the services are built on.
pub struct Dependencies {
    /// The session cache, and the store behind it.
    pub sessions: Arc<SessionCache>,
    /// Employees, roles, agents and logs.
    pub directory: Arc<dyn Directory>,
    /// The messaging platform.
    pub platform: Arc<dyn Platform>,
    /// Mints and reads tokens.
    pub tokens: Arc<Tokens>,
    /// Signs flow cookies and bind proofs.
    pub cookies: CookieSigner,
    /// One-time-password devices.
    pub devices: Devices,
    /// The password queue.
    pub passwords: Arc<Passwords>,
    /// Hashes unknown names for the lockout table.
    pub vault: Arc<Vault>,
    /// Encrypts the results of callbacks.
    pub callback_vault: Vault,
    /// The clock.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

/// All sign-in services.
pub struct SignInServices {
    /// QR-code sign-in.
    pub tickets: Arc<Tickets>,
    /// Sign-in by redirect.
    pub oauth2: Oauth2Flow,
    /// Verify, logout, own sessions, switch-role.
    pub sessions: UserSessions,
    /// Binding an employee account.
    pub binding: AccountBinding,
    /// Agent sign-in and local passwords.
    pub agents: AgentSignIn,
    /// One-time passwords.
    pub otp: OneTimePasswords,
    /// Development sign-in.
    pub development: DevelopmentSignIn,
    /// The recheck of employees at the platform.
    pub recheck: Recheck,
    /// The health of the backends.
    pub backends: Backends,
    provider: Arc<IdentityProvider>,
    codes: Arc<AuthorizationCodes>,
    login_log: Arc<LoginLog>,
    audit: Audit,
    lockouts: Lockouts,
    leases: Arc<dyn WorkLeases>,
    log_retention: Duration,
}

impl SignInServices {
    /// Builds the services and what they share.
    pub fn new(settings: Settings, dependencies: Dependencies) -> Self {
        let Dependencies { sessions, directory, platform, tokens, cookies, devices, passwords, .. } = dependencies;
        let Dependencies { vault, callback_vault, clock, metrics, .. } = dependencies;
        let cookies = Arc::new(cookies);
        let audit = Audit::new(directory.clone());
        let roles = Roles::new(sessions.clone(), directory.clone(), settings.default_role.clone());
        let lockouts = Lockouts::new(directory.clone(), clock.clone());
        let enrolment = Enrolment { within: settings.enrol_within };
        let login_log = Arc::new(LoginLog::new(directory.clone(), clock.clone(), metrics.clone()));
        let (claims, leases) = (sessions.store().claims(), sessions.store().leases());
        let codes = Arc::new(AuthorizationCodes::new(claims.clone(), clock.clone(), metrics.clone()));
        let membership = Arc::new(Membership {
            platform: platform.clone(),
            directory: directory.clone(),
            sessions: sessions.clone(),
            audit: audit.clone(),
            metrics: metrics.clone(),
            main_corp: settings.main_corp.clone(),
            open_questions: Default::default(),
        });
        let provider = Arc::new(IdentityProvider {
            platform,
            codes: codes.clone(),
            directory: directory.clone(),
            membership: membership.clone(),
            roles: roles.clone(),
            metrics: metrics.clone(),
            main_corp: settings.main_corp.clone(),
        });
        let issuer = Arc::new(SessionIssuer {
            sessions: sessions.clone(),
            directory: directory.clone(),
            roles: roles.clone(),
            tokens: tokens.clone(),
            login_log: login_log.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            token_lifetime: settings.token_lifetime,
        });
        let bind_proofs = Arc::new(BindProofs {
            cookies: cookies.clone(),
            clock: clock.clone(),
            lifetime: settings.flow_lifetime,
            claims: claims.clone(),
        });
        let tickets = Arc::new(Tickets {
            store: sessions.store().clone(),
            sessions: sessions.clone(),
            directory: directory.clone(),
            provider: provider.clone(),
            roles: roles.clone(),
            issuer: issuer.clone(),
            login_log: login_log.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            long_polls: Default::default(),
            config: settings.ticket,
            confirm: settings.confirm,
            callback_url: format!("{}/api/auth/oauth2/callback", settings.public_url),
        });
        Self {
            oauth2: Oauth2Flow {
                provider: provider.clone(),
                codes: codes.clone(),
                tickets: tickets.clone(),
                roles: roles.clone(),
                issuer: issuer.clone(),
                login_log: login_log.clone(),
                bind_proofs: bind_proofs.clone(),
                flow_cookies: FlowCookies { cookies, clock: clock.clone(), lifetime: settings.flow_lifetime },
                dedup: CallbackDedup { claims, vault: Arc::new(callback_vault), flow_lifetime: settings.flow_lifetime },
                clients: settings.clients,
                public_url: settings.public_url,
                flow_cookie: settings.flow_cookie,
            },
            sessions: UserSessions { sessions: sessions.clone(), tokens, audit: audit.clone(), clock: clock.clone() },
            binding: AccountBinding {
                directory: directory.clone(),
                roles: roles.clone(),
                issuer: issuer.clone(),
                login_log: login_log.clone(),
                audit: audit.clone(),
                proofs: bind_proofs,
                required_proof: settings.bind_proof,
                approval: settings.bind_approval,
                main_corp: settings.main_corp.clone(),
            },
            agents: AgentSignIn {
                directory: directory.clone(),
                sessions: sessions.clone(),
                provider: provider.clone(),
                membership: membership.clone(),
                passwords,
                devices: devices.clone(),
                lockouts: lockouts.clone(),
                roles: roles.clone(),
                issuer: issuer.clone(),
                login_log: login_log.clone(),
                audit: audit.clone(),
                vault,
                clock: clock.clone(),
                metrics: metrics.clone(),
                main_corp: settings.main_corp.clone(),
                conceal: settings.conceal,
                step_up_lifetime: settings.step_up_lifetime,
                enrolment,
            },
            otp: OneTimePasswords {
                devices,
                sessions: sessions.clone(),
                directory: directory.clone(),
                roles: roles.clone(),
                issuer: issuer.clone(),
                audit: audit.clone(),
                clock: clock.clone(),
                step_up_lifetime: settings.step_up_lifetime,
                enrolment,
            },
            recheck: Recheck {
                membership,
                directory: directory.clone(),
                sessions: sessions.clone(),
                leases: leases.clone(),
                clock,
                metrics,
                interval: settings.recheck,
            },
            development: DevelopmentSignIn {
                directory: directory.clone(),
                issuer,
                login_log: login_log.clone(),
                main_corp: settings.main_corp.clone(),
                mode: settings.development,
            },
            backends: Backends { sessions, directory },
            tickets,
            provider,
            codes,
            login_log,
            audit,
            lockouts,
            leases,
            log_retention: settings.log_retention,
        }
    }

    /// Removes expired counts from memory, and corrects rechecks after the clock was set back. Runs periodically.
    pub async fn sweep(&self) {
        self.codes.sweep();
        self.recheck.limit().await;
    }

    /// Prunes the login log, the audit log, the lockouts of unknown names and old requests for links. Runs periodically,
    /// on one gateway at a time.
    pub async fn prune(&self) {
        match self.leases.acquire(Work::Pruning, PRUNING_LEASE).await {
            Ok(LeaseOutcome::Granted) => {}
            Ok(LeaseOutcome::HeldElsewhere) => return,
            Err(error) => return tracing::warn!(%error, "cannot prune the directory; retrying in a minute"),
        }
        self.login_log.prune(self.log_retention).await;
        self.audit.prune(self.log_retention).await;
        self.lockouts.prune().await;
        self.binding.prune().await;
    }

    /// Updates the gauges that change without a request.
    pub fn measure(&self) {
        self.provider.measure();
        self.agents.measure();
    }

    /// The remaining time for which the circuit to the messaging platform is open, if it is.
    pub fn circuit_open_for(&self) -> Option<Duration> {
        self.provider.circuit_open_for()
    }

    /// Applies a change from the change feed: wakes the polls of a ticket.
    pub fn apply_change(&self, change: &Change) {
        self.tickets.apply_change(change);
    }

    /// Wakes all long polls, after changes may have been missed.
    pub fn wake_all_polls(&self) {
        self.tickets.wake_all_polls();
    }

    /// Answers all long polls at once from now on, with the status that their ticket has: the gateway drains.
    pub fn end_polls(&self) {
        self.tickets.end_polls();
    }
}
