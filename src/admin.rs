//! What operators can do to people, roles, sessions and keys, whether a gateway runs (through its socket) or not.
//! Effective on live sessions when an order returns.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::directory::audit::{AuditEntry, AuditRecord, Event};
use crate::directory::factors::Account;
use crate::directory::people::AgentEntry;
use crate::directory::{Assignment, Directory, LoginEntry, RoleChange};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::language::Language;
use crate::domain::role::{self, RoleName};
use crate::domain::session::SessionId;
use crate::domain::write::WriteOutcome;
use crate::error::{Code, Error};
use crate::sessions::SessionCache;
use crate::signin::audit::{Audit, UNCHANGED};
use crate::signin::devices::Devices;
use crate::signin::password::Passwords;
use crate::signin::roles::Roles;

pub mod agents;

pub mod employees;

pub mod keys;

pub mod roles;

pub mod sessions;

use agents::AgentCommand;
use employees::{EmployeeCommand, EmployeeRow};
use keys::{KeyCommand, KeyRotation, KeyRow};
use roles::RoleCommand;
use sessions::{SessionCommand, SessionRow};

/// More rows than anybody reads.
pub const MOST: usize = 10_000;

/// One order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// About sessions.
    Session(SessionCommand),
    /// About roles.
    Role(RoleCommand),
    /// About employees.
    Employee(EmployeeCommand),
    /// About agents.
    Agent(AgentCommand),
    /// About signing keys.
    Key(KeyCommand),
}

impl Command {
    /// What an order does, in the description of the command line; nothing for one that only looks.
    fn description(&self) -> Option<String> {
        let description = match self {
            Command::Session(order) => ("session", order.description()?),
            Command::Role(order) => ("role", order.description()?),
            Command::Employee(order) => ("employee", order.description()?),
            Command::Agent(order) => ("agent", order.description()?),
            Command::Key(order) => ("key", order.description()?),
        };
        Some(format!("{} {}", description.0, description.1))
    }

    /// Whom it is about, if it names somebody.
    fn who(&self) -> Option<&Who> {
        match self {
            Command::Session(order) => order.who(),
            Command::Role(order) => order.who(),
            Command::Employee(order) => order.who(),
            Command::Agent(order) => order.who(),
            Command::Key(_) => None,
        }
    }
}

/// Somebody, as an operator names them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Who {
    /// Which employee.
    pub employee_id: String,
    /// Of which corporation; the main one without.
    pub corp_id: Option<String>,
}

/// Something typed in that nobody else may see. It does reach the gateway: unlike a `Secret` it is written whole.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Typed(pub String);

impl std::fmt::Debug for Typed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// What came of an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// Sessions.
    Sessions(Vec<SessionRow>),
    /// Assignments.
    Assignments(Vec<Assignment>),
    /// Employees.
    Employees(Vec<EmployeeRow>),
    /// Agents.
    Agents(Vec<AgentEntry>),
    /// Keys.
    Keys(Vec<KeyRow>),
    /// Lines of the login log.
    Logins(Vec<LoginEntry>),
    /// Lines of the audit log.
    Events(Vec<AuditEntry>),
    /// It was done; so many live sessions were affected.
    Changed {
        /// How many.
        sessions: usize,
        /// What else is to be known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// It was so already.
    Unchanged,
    /// Whether somebody has a one-time-password device.
    OtpBound(bool),
    /// A one-time-password secret waits for its first code.
    Offered {
        /// To type in.
        secret: Typed,
        /// For the device's camera.
        otpauth_url: Typed,
    },
    /// A key was made; so many live sessions end earlier for it.
    KeyMade {
        /// Which.
        key: KeyRow,
        /// How many.
        sessions: usize,
    },
}

/// Why an order was not carried out.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum AdminError {
    /// The order makes no sense to this version.
    #[error("the running gateway does not know this command")]
    Unknown,
    /// What was named is not there.
    #[error("{0}")]
    NotThere(String),
    /// What was asked for may not be.
    #[error("{0}")]
    Refused(String),
    /// The store or the directory failed.
    #[error("{0}")]
    Failed(String),
}

impl Done {
    fn changed(sessions: usize) -> Self {
        Self::Changed { sessions, note: None }
    }

    /// What became of a change that no session notices.
    fn of(taken: WriteOutcome) -> Self {
        match taken {
            WriteOutcome::Applied => Self::changed(0),
            WriteOutcome::Conflict => Self::Unchanged,
        }
    }
}

impl AdminError {
    fn no_employee(who: &Who) -> Self {
        let id = &who.employee_id;
        Self::NotThere(format!(
            "there is no employee {id}; they appear with their first sign-in, or with `deskgate employee add {id}`"
        ))
    }

    fn no_agent(who: &Who) -> Self {
        let id = &who.employee_id;
        Self::NotThere(format!("{id} is no agent; `deskgate agent add {id} --role agent` makes them one"))
    }

    fn too_many_roles(who: &Who) -> Self {
        Self::Refused(format!("{} has {} roles, as many as one can have; take one first", who.employee_id, role::MOST))
    }

    /// For the audit log.
    fn word(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NotThere(_) => "not_there",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    fn last_admin(who: &Who) -> Self {
        Self::Refused(format!("{} is the last administrator; grant `admin` to somebody else first", who.employee_id))
    }
}

/// What the store, the directory and signing in can refuse, in an operator's description.
impl From<Error> for AdminError {
    fn from(error: Error) -> Self {
        match error.code() {
            Code::Unexpected | Code::Unavailable => Self::Failed(crate::error::chain(&error)),
            _ => Self::Refused(error.message(Language::English).into_owned()),
        }
    }
}

/// What an [`Operator`] works with.
pub struct Parts {
    /// Sessions.
    pub live: Arc<SessionCache>,
    /// Employees.
    pub directory: Arc<dyn Directory>,
    /// The role of whoever has none.
    pub default_role: Option<RoleName>,
    /// The corporation that is meant where none is named.
    pub main_corp: CorpId,
    /// One-time-password devices.
    pub devices: Devices,
    /// Local passwords.
    pub passwords: Arc<Passwords>,
    /// Signing keys.
    pub keys: Arc<KeyRotation>,
}

/// Carries out orders.
pub struct Operator {
    live: Arc<SessionCache>,
    directory: Arc<dyn Directory>,
    main_corp: CorpId,
    roles: Roles,
    devices: Devices,
    passwords: Arc<Passwords>,
    keys: Arc<KeyRotation>,
    audit: Audit,
}

impl Operator {
    /// On these backends.
    pub fn new(parts: Parts) -> Self {
        let Parts { live, directory, default_role, main_corp, devices, passwords, keys } = parts;
        let roles = Roles::new(live.clone(), directory.clone(), default_role);
        let audit = Audit::new(directory.clone());
        Self { live, directory, main_corp, roles, devices, passwords, keys, audit }
    }

    /// Carries out one order. It is in the audit log before it is carried out, if it changes anything.
    pub async fn run(&self, command: Command) -> Result<Done, AdminError> {
        let Some(description) = command.description() else { return self.execute(command).await };
        let (corp_id, employee_id) = self.whose(&command).await?;
        let by = operator_name();
        let record = AuditRecord {
            corp_id: &corp_id,
            employee_id: &employee_id,
            event: Event::OperatorCommand,
            by: &by,
            session_id: "",
            detail: &description,
        };
        let begun = self.audit.record(record).await.map_err(failed)?;
        let done = self.execute(command).await;
        match &done {
            Ok(Done::Unchanged) => self.audit.mark_failed(begun, UNCHANGED).await,
            Ok(_) => {}
            Err(fault) => self.audit.mark_failed(begun, fault.word()).await,
        }
        done
    }

    /// Whose account an order is about; two empty names if it is about nobody's.
    async fn whose(&self, command: &Command) -> Result<(String, String), AdminError> {
        let session = match command {
            Command::Session(SessionCommand::End { id }) => {
                self.live.store().find(&SessionId::new(id.as_str())).await.map_err(failed)?
            }
            _ => None,
        };
        Ok(match (session, command.who()) {
            (Some(session), _) => (session.corp_id.to_string(), session.employee_id.to_string()),
            (None, Some(who)) => {
                let (corp_id, employee_id) = self.named(who)?;
                (corp_id.to_string(), employee_id.to_string())
            }
            (None, None) => Default::default(),
        })
    }

    async fn execute(&self, command: Command) -> Result<Done, AdminError> {
        match command {
            Command::Session(order) => self.session(order).await,
            Command::Role(order) => self.role(order).await,
            Command::Employee(order) => self.employee(order).await,
            Command::Agent(order) => self.agent(order).await,
            Command::Key(order) => self.keys.run(order).await,
        }
    }

    /// The names that somebody is known by; refused where they cannot be names.
    fn named(&self, who: &Who) -> Result<(CorpId, EmployeeId), AdminError> {
        if !EmployeeId::is_well_formed(&who.employee_id) {
            return Err(AdminError::Refused(format!(
                "`{}` cannot be an employee id: a letter or digit, then letters, digits and _ . @ -, up to 64",
                who.employee_id
            )));
        }
        let corp_id = match &who.corp_id {
            None => self.main_corp.clone(),
            Some(corp) if CorpId::is_well_formed(corp) => CorpId::new(corp.as_str()),
            Some(corp) => return Err(AdminError::Refused(format!("`{corp}` cannot be a corporation's id"))),
        };
        Ok((corp_id, EmployeeId::new(who.employee_id.as_str())))
    }

    /// What to say of somebody who is not there: perhaps they are spelled otherwise.
    async fn nobody(&self, who: &Who) -> AdminError {
        let twin = match self.named(who) {
            Ok((corp_id, _)) => self.directory.by_name(&corp_id, &who.employee_id).await.ok().flatten(),
            Err(_) => None,
        };
        match twin {
            Some((twin, _)) if twin.employee_id.as_str() != who.employee_id => AdminError::NotThere(format!(
                "there is no employee {}; did you mean {}?",
                who.employee_id, twin.employee_id
            )),
            _ => AdminError::no_employee(who),
        }
    }

    /// What a change of the directory means for live sessions: they have the roles of now.
    async fn follow_roles(&self, whose: Account<'_>) -> Result<usize, AdminError> {
        self.roles.sync_sessions(whose.corp_id, whose.employee_id).await.map_err(failed)
    }
}

/// A role's name, if it can be one.
fn role_named(role: &str) -> Result<RoleName, AdminError> {
    if RoleName::is_well_formed(role) {
        return Ok(RoleName::new(role));
    }
    Err(AdminError::Refused(format!("`{role}` cannot be a role's name: use letters, digits, `_` and `-`")))
}

/// The refusal in what became of a change, if it is one.
fn accepted(change: RoleChange, missing: impl FnOnce() -> AdminError, who: &Who) -> Result<RoleChange, AdminError> {
    match change {
        RoleChange::NoEmployee => Err(missing()),
        RoleChange::LastAdmin => Err(AdminError::last_admin(who)),
        RoleChange::TooMany => Err(AdminError::too_many_roles(who)),
        RoleChange::Done | RoleChange::Unchanged => Ok(change),
    }
}

fn failed(error: impl std::error::Error) -> AdminError {
    AdminError::Failed(crate::error::chain(&error))
}

tokio::task_local! {
    /// The user of the machine who gives the order that runs.
    static OPERATOR_UID: u32;
}

/// Runs an order as one that this user of the machine gave.
pub async fn as_operator<T>(uid: u32, order: impl Future<Output = T>) -> T {
    OPERATOR_UID.scope(uid, order).await
}

/// What somebody typed as a name, for the audit log: people paste tokens and passwords where names belong.
fn typed_name(text: &str) -> &str {
    let plain = text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if plain { text } else { "(no name)" }
}

/// The user of the machine who gives the order that runs, as the audit log names them.
fn operator_name() -> String {
    OPERATOR_UID.try_with(|uid| format!("uid {uid}")).unwrap_or_else(|_| "operator".to_owned())
}
