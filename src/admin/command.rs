//! Operator commands: the messages of the control socket, and their dispatch to the services.

use serde::{Deserialize, Serialize};

use super::audit::Action;
use super::employees::EmployeeRow;
use super::fleet::GatewayRow;
use super::keys::KeyRow;
use super::links::LinkRow;
use super::sessions::SessionRow;
use super::{AccountId, Actor, Admin, AdminError, AdminErrorKind, Effect};
use crate::directory::audit::AuditEntry;
use crate::directory::people::AgentEntry;
use crate::directory::{Assignment, LoginEntry};
use crate::domain::language::Language;
use crate::domain::role::RoleName;
use crate::upstreams::UpstreamRow;

mod agent;

mod employee;

mod key;

mod link;

mod role;

mod secret;

mod session;

pub use agent::AgentCommand;
pub use employee::EmployeeCommand;
pub use key::KeyCommand;
pub use link::{LinkCommand, PlatformAccountRef};
pub use role::RoleCommand;
pub use secret::{PreviousSecretUse, SecretCommand};
pub use session::SessionCommand;

/// A command of the operator.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminCommand {
    /// `deskgate session …`
    Session(SessionCommand),
    /// `deskgate role …`
    Role(RoleCommand),
    /// `deskgate employee …`
    Employee(EmployeeCommand),
    /// `deskgate agent …`
    Agent(AgentCommand),
    /// `deskgate key …`
    Key(KeyCommand),
    /// `deskgate secret …`
    Secret(SecretCommand),
    /// `deskgate fleet`
    Fleet,
    /// `deskgate upstream list`
    Upstreams,
}

/// An employee, as the operator named them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EmployeeRef {
    /// The employee's ID.
    pub employee_id: String,
    /// The employee's corporation; the main one if omitted.
    pub corp_id: Option<String>,
}

/// A secret that the control socket carries in plain text; `Debug` hides it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlaintextSecret(pub String);

impl std::fmt::Debug for PlaintextSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The result of a command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutput {
    /// Live sessions.
    Sessions(Vec<SessionRow>),
    /// Role assignments.
    Assignments(Vec<Assignment>),
    /// Employees.
    Employees(Vec<EmployeeRow>),
    /// Agents.
    Agents(Vec<AgentEntry>),
    /// Signing keys.
    Keys(Vec<KeyRow>),
    /// Links.
    Links(Vec<LinkRow>),
    /// Running gateways.
    Gateways(Vec<GatewayRow>),
    /// Addresses of upstreams.
    Upstreams(Vec<UpstreamRow>),
    /// The links of a file were added.
    LinksAdded {
        /// How many were added or approved.
        added: usize,
        /// How many had been approved before.
        unchanged: usize,
        /// What the operator may not expect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Entries of the login log.
    Logins(Vec<LoginEntry>),
    /// Entries of the audit log.
    AuditEntries(Vec<AuditEntry>),
    /// What previous secrets encrypt.
    PreviousSecrets(PreviousSecretUse),
    /// The change was made.
    Changed {
        /// How many live sessions were updated or ended.
        sessions: usize,
        /// What the operator may not expect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Everything already was as requested.
    Unchanged,
    /// Whether the employee has a one-time-password device.
    OtpBound(bool),
    /// A secret for a new one-time-password device, which is bound with its first code.
    OtpOffered {
        /// For typing in, in base32.
        secret: PlaintextSecret,
        /// For a QR code.
        otpauth_url: PlaintextSecret,
    },
    /// A signing key was created.
    KeyCreated {
        /// The new key.
        key: KeyRow,
        /// How many live sessions end earlier because of it.
        sessions: usize,
        /// What the operator may not expect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
}

impl From<Effect> for CommandOutput {
    fn from(effect: Effect) -> Self {
        if effect.is_unchanged() {
            return Self::Unchanged;
        }
        Self::Changed { sessions: effect.sessions, note: None }
    }
}

impl CommandOutput {
    /// Adds a note to a change that was made.
    fn with_note(self, note: Option<String>) -> Self {
        match self {
            Self::Changed { sessions, .. } => Self::Changed { sessions, note },
            other => other,
        }
    }
}

/// Why a command failed, with the message for the operator.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CommandError {
    /// The message cannot be parsed: the command line is of another version.
    #[error("the running gateway does not support this command")]
    Unsupported,
    /// The command names something that does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The command is not allowed or not valid.
    #[error("{0}")]
    Refused(String),
    /// A backend failed.
    #[error("{0}")]
    Failed(String),
}

impl From<AdminError> for CommandError {
    fn from(error: AdminError) -> Self {
        match (error.kind(), &error) {
            (AdminErrorKind::Failed, error) => Self::Failed(crate::error::chain(error)),
            (AdminErrorKind::NotFound, error) => Self::NotFound(error.to_string()),
            (AdminErrorKind::Refused, AdminError::SignIn(error)) => {
                Self::Refused(error.message(Language::English).into_owned())
            }
            (AdminErrorKind::Refused, error) => Self::Refused(error.to_string()),
        }
    }
}

impl Admin {
    /// Executes an operator's command.
    pub async fn execute(&self, actor: Actor<'_>, command: AdminCommand) -> Result<CommandOutput, CommandError> {
        let result = match command {
            AdminCommand::Session(command) => self.execute_session(actor, command).await,
            AdminCommand::Role(command) => self.execute_role(actor, command).await,
            AdminCommand::Employee(command) => self.execute_employee(actor, command).await,
            AdminCommand::Agent(command) => self.execute_agent(actor, command).await,
            AdminCommand::Key(command) => self.execute_key(actor, command).await,
            AdminCommand::Secret(command) => self.execute_secret(&command).await,
            AdminCommand::Upstreams => {
                return match &self.upstreams {
                    Some(upstreams) => Ok(CommandOutput::Upstreams(upstreams.rows())),
                    None => Err(CommandError::Failed(
                        "no gateway is running; only a running one knows its upstreams".into(),
                    )),
                };
            }
            AdminCommand::Fleet => self.fleet.list().await.map(CommandOutput::Gateways),
        };
        result.map_err(CommandError::from)
    }

    fn account_named(&self, employee: &EmployeeRef) -> Result<AccountId, AdminError> {
        self.accounts.parse(&employee.employee_id, employee.corp_id.as_deref())
    }

    /// Parses the role that a command names. The audit log records a command that is refused for its role name.
    async fn role_named(
        &self,
        actor: Actor<'_>,
        account: &AccountId,
        role: &str,
        action: Action<'_>,
    ) -> Result<RoleName, AdminError> {
        if RoleName::is_well_formed(role) {
            return Ok(RoleName::new(role));
        }
        let error = AdminError::InvalidRoleName(role.to_owned());
        self.audit.refuse(actor, Some(account.as_account()), action, &error).await;
        Err(error)
    }
}
