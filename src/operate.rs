//! What operators can do to people, roles, sessions and keys, whether a gateway runs (through its socket) or not.
//! Effective on live sessions when an order returns.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::directory::audit::{AuditEntry, Deed, Event};
use crate::directory::factors::{Account, Taken};
use crate::directory::people::AgentEntry;
use crate::directory::{Assignment, Directory, LoginEntry, RoleChange};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::language::Language;
use crate::domain::role::{self, RoleName};
use crate::domain::session::SessionId;
use crate::error::{Code, Error};
use crate::signin::audit::{Audit, UNCHANGED};
use crate::signin::devices::Devices;
use crate::signin::password::Passwords;
use crate::signin::roles::Roles;
use crate::store::live::Live;

pub mod agents;

pub mod employees;

pub mod keys;

pub mod roles;

pub mod sessions;

use agents::AgentOrder;
use employees::{EmployeeOrder, EmployeeRow};
use keys::{KeyDesk, KeyOrder, KeyRow};
use roles::RoleOrder;
use sessions::{SessionOrder, SessionRow};

/// More rows than anybody reads.
pub const MOST: usize = 10_000;

/// One order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// About sessions.
    Session(SessionOrder),
    /// About roles.
    Role(RoleOrder),
    /// About employees.
    Employee(EmployeeOrder),
    /// About agents.
    Agent(AgentOrder),
    /// About signing keys.
    Key(KeyOrder),
}

impl Command {
    /// What an order does, in the words of the command line; nothing for one that only looks.
    fn words(&self) -> Option<String> {
        let words = match self {
            Command::Session(order) => ("session", order.words()?),
            Command::Role(order) => ("role", order.words()?),
            Command::Employee(order) => ("employee", order.words()?),
            Command::Agent(order) => ("agent", order.words()?),
            Command::Key(order) => ("key", order.words()?),
        };
        Some(format!("{} {}", words.0, words.1))
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
pub enum OperateFault {
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
    fn of(taken: Taken) -> Self {
        match taken {
            Taken::Yes => Self::changed(0),
            Taken::No => Self::Unchanged,
        }
    }
}

impl OperateFault {
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

/// What the store, the directory and signing in can refuse, in an operator's words.
impl From<Error> for OperateFault {
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
    pub live: Arc<Live>,
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
    pub keys: Arc<KeyDesk>,
}

/// Carries out orders.
pub struct Operator {
    live: Arc<Live>,
    directory: Arc<dyn Directory>,
    main_corp: CorpId,
    roles: Roles,
    devices: Devices,
    passwords: Arc<Passwords>,
    keys: Arc<KeyDesk>,
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
    pub async fn run(&self, command: Command) -> Result<Done, OperateFault> {
        let Some(words) = command.words() else { return self.obey(command).await };
        let (corp_id, employee_id) = self.whose(&command).await?;
        let by = giver();
        let deed = Deed {
            corp_id: &corp_id,
            employee_id: &employee_id,
            event: Event::Order,
            by: &by,
            session_id: "",
            detail: &words,
        };
        let begun = self.audit.record(deed).await.map_err(failed)?;
        let done = self.obey(command).await;
        match &done {
            Ok(Done::Unchanged) => self.audit.came_to_nothing(begun, UNCHANGED).await,
            Ok(_) => {}
            Err(fault) => self.audit.came_to_nothing(begun, fault.word()).await,
        }
        done
    }

    /// Whose account an order is about; two empty names if it is about nobody's.
    async fn whose(&self, command: &Command) -> Result<(String, String), OperateFault> {
        let session = match command {
            Command::Session(SessionOrder::End { id }) => {
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

    async fn obey(&self, command: Command) -> Result<Done, OperateFault> {
        match command {
            Command::Session(order) => self.session(order).await,
            Command::Role(order) => self.role(order).await,
            Command::Employee(order) => self.employee(order).await,
            Command::Agent(order) => self.agent(order).await,
            Command::Key(order) => self.keys.run(order).await,
        }
    }

    /// The names that somebody is known by; refused where they cannot be names.
    fn named(&self, who: &Who) -> Result<(CorpId, EmployeeId), OperateFault> {
        if !EmployeeId::is_well_formed(&who.employee_id) {
            return Err(OperateFault::Refused(format!(
                "`{}` cannot be an employee id: a letter or digit, then letters, digits and _ . @ -, up to 64",
                who.employee_id
            )));
        }
        let corp_id = match &who.corp_id {
            None => self.main_corp.clone(),
            Some(corp) if CorpId::is_well_formed(corp) => CorpId::new(corp.as_str()),
            Some(corp) => return Err(OperateFault::Refused(format!("`{corp}` cannot be a corporation's id"))),
        };
        Ok((corp_id, EmployeeId::new(who.employee_id.as_str())))
    }

    /// What to say of somebody who is not there: perhaps they are spelled otherwise.
    async fn nobody(&self, who: &Who) -> OperateFault {
        let twin = match self.named(who) {
            Ok((corp_id, _)) => self.directory.by_name(&corp_id, &who.employee_id).await.ok().flatten(),
            Err(_) => None,
        };
        match twin {
            Some((twin, _)) if twin.employee_id.as_str() != who.employee_id => OperateFault::NotThere(format!(
                "there is no employee {}; did you mean {}?",
                who.employee_id, twin.employee_id
            )),
            _ => OperateFault::no_employee(who),
        }
    }

    /// What a change of the directory means for live sessions: they have the roles of now.
    async fn follow_roles(&self, whose: Account<'_>) -> Result<usize, OperateFault> {
        self.roles.follow(whose.corp_id, whose.employee_id).await.map_err(failed)
    }
}

/// A role's name, if it can be one.
fn role_named(role: &str) -> Result<RoleName, OperateFault> {
    if RoleName::is_well_formed(role) {
        return Ok(RoleName::new(role));
    }
    Err(OperateFault::Refused(format!("`{role}` cannot be a role's name: use letters, digits, `_` and `-`")))
}

/// The refusal in what became of a change, if it is one.
fn accepted(change: RoleChange, missing: impl FnOnce() -> OperateFault, who: &Who) -> Result<RoleChange, OperateFault> {
    match change {
        RoleChange::NoEmployee => Err(missing()),
        RoleChange::LastAdmin => Err(OperateFault::last_admin(who)),
        RoleChange::TooMany => Err(OperateFault::too_many_roles(who)),
        RoleChange::Done | RoleChange::Unchanged => Ok(change),
    }
}

fn failed(error: impl std::error::Error) -> OperateFault {
    OperateFault::Failed(crate::error::chain(&error))
}

tokio::task_local! {
    /// The user of the machine who gives the order that runs.
    static GIVEN_BY: u32;
}

/// Runs an order as one that this user of the machine gave.
pub async fn given_by<T>(uid: u32, order: impl Future<Output = T>) -> T {
    GIVEN_BY.scope(uid, order).await
}

/// What somebody typed as a name, for the audit log: people paste tokens and passwords where names belong.
fn typed_name(text: &str) -> &str {
    let plain = text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if plain { text } else { "(no name)" }
}

/// The user of the machine who gives the order that runs, as the audit log names them.
fn giver() -> String {
    GIVEN_BY.try_with(|uid| format!("uid {uid}")).unwrap_or_else(|_| "operator".to_owned())
}
