//! What operators and administrators do: a service per subject, called by the control socket, the command line and
//! the `/api/admin` endpoints alike.
//!
//! Every change writes its audit record first and applies to live sessions before it returns. Who may call is decided
//! by the callers: the permissions of the control socket, and the rules of the endpoints.

use std::sync::Arc;

use crate::directory::Directory;
use crate::domain::employee::CorpId;
use crate::domain::role::RoleName;
use crate::domain::session::Session;
use crate::sessions::SessionCache;
use crate::signin::audit::Audit;
use crate::signin::devices::Devices;
use crate::signin::password::Passwords;
use crate::signin::roles::Roles;
use crate::upstreams::Upstreams;

mod accounts;

mod actor;

pub mod agents;

mod audit;

pub mod command;

pub mod copy;

pub mod devices;

mod effect;

pub mod employees;

mod error;

pub mod fleet;

pub mod keys;

pub mod links;

pub mod roles;

pub mod sessions;

pub(crate) use accounts::AccountId;
use accounts::Accounts;
pub use actor::Actor;
use agents::AgentAdmin;
use audit::AuditTrail;
pub use command::{AdminCommand, CommandError, CommandOutput};
use devices::DeviceAdmin;
pub(crate) use effect::Effect;
use employees::EmployeeAdmin;
pub(crate) use error::{AdminError, AdminErrorKind};
use fleet::FleetAdmin;
use keys::{KeyAdmin, KeyRotation};
use links::LinkAdmin;
use roles::RoleAdmin;
use sessions::SessionAdmin;

/// The most rows that a list returns.
pub const MAX_ROWS: usize = 10_000;

/// The services of administration.
pub struct Admin {
    pub(crate) employees: EmployeeAdmin,
    pub(crate) agents: AgentAdmin,
    pub(crate) roles: RoleAdmin,
    pub(crate) sessions: SessionAdmin,
    pub(crate) devices: DeviceAdmin,
    pub(crate) keys: KeyAdmin,
    pub(crate) links: LinkAdmin,
    pub(crate) fleet: FleetAdmin,
    upstreams: Option<Arc<Upstreams>>,
    accounts: Accounts,
    audit: AuditTrail,
}

/// What [`Admin`] is built from.
pub struct AdminParts {
    /// Live sessions.
    pub sessions: Arc<SessionCache>,
    /// Employees, roles, agents and the logs.
    pub directory: Arc<dyn Directory>,
    /// The role of employees who have none.
    pub default_role: Option<RoleName>,
    /// The corporation of employees who are named without one.
    pub main_corp: CorpId,
    /// One-time-password devices.
    pub devices: Devices,
    /// Hashing of local passwords.
    pub passwords: Arc<Passwords>,
    /// Signing keys.
    pub keys: Arc<KeyRotation>,
    /// The upstreams; None while no gateway runs.
    pub upstreams: Option<Arc<Upstreams>>,
}

impl Admin {
    /// Builds the services on these backends.
    pub fn new(parts: AdminParts) -> Self {
        let AdminParts { sessions, directory, default_role, main_corp, devices, passwords, keys, upstreams } = parts;
        let accounts = Accounts::new(directory.clone(), main_corp.clone());
        let audit = AuditTrail::new(Audit::new(directory.clone()));
        let roles = Roles::new(sessions.clone(), directory.clone(), default_role);
        Self {
            employees: EmployeeAdmin {
                directory: directory.clone(),
                sessions: sessions.clone(),
                accounts: accounts.clone(),
                audit: audit.clone(),
            },
            agents: AgentAdmin {
                directory: directory.clone(),
                sessions: sessions.clone(),
                roles: roles.clone(),
                passwords,
                accounts: accounts.clone(),
                audit: audit.clone(),
            },
            links: LinkAdmin {
                directory: directory.clone(),
                sessions: sessions.clone(),
                accounts: accounts.clone(),
                audit: audit.clone(),
                main_corp,
            },
            fleet: FleetAdmin { sessions: sessions.clone() },
            roles: RoleAdmin { directory: directory.clone(), roles, accounts: accounts.clone(), audit: audit.clone() },
            sessions: SessionAdmin { sessions: sessions.clone(), accounts: accounts.clone(), audit: audit.clone() },
            devices: DeviceAdmin { directory, sessions, devices, accounts: accounts.clone(), audit: audit.clone() },
            keys: KeyAdmin { rotation: keys, audit: audit.clone() },
            upstreams,
            accounts,
            audit,
        }
    }

    /// The account that an administrator names by its employee ID. Always of the administrator's own corporation: over
    /// HTTP nobody acts on another one.
    pub(crate) fn colleague(&self, administrator: &Session, employee_id: &str) -> Result<AccountId, AdminError> {
        self.accounts.parse(employee_id, Some(administrator.corp_id.as_str()))
    }
}
