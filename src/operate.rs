//! What operators can do to sessions and roles, whether a gateway runs (through its socket) or not.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::directory::{Assignment, Directory, RoleChange};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::RoleName;
use crate::domain::session::{EndCause, SessionId};
use crate::signin::roles::{Change, Roles};
use crate::store::live::Live;

/// More rows than anybody reads.
const MOST: usize = 10_000;

/// One order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Shows live sessions.
    SessionList,
    /// Ends one.
    SessionEnd {
        /// Which.
        id: String,
    },
    /// Shows role assignments.
    RoleList,
    /// Gives a role.
    RoleGrant {
        /// To whom.
        employee_id: String,
        /// Which.
        role: String,
    },
    /// Takes a role.
    RoleTake {
        /// From whom.
        employee_id: String,
        /// Which.
        role: String,
    },
}

/// A session as operators see it. No token: that exists only in its owner's hands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionRow {
    /// Its id.
    pub id: String,
    /// Whose.
    pub employee_id: String,
    /// Their corporation.
    pub corp_id: String,
    /// Their active role.
    pub current_role: String,
    /// How they signed in.
    pub login_method: String,
    /// From where.
    pub address: String,
    /// Since when.
    pub since: String,
    /// Until when.
    pub until: String,
}

/// What came of an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// Sessions.
    Sessions(Vec<SessionRow>),
    /// Assignments.
    Assignments(Vec<Assignment>),
    /// It was done; so many live sessions followed.
    Changed {
        /// How many.
        sessions: usize,
    },
    /// It was so already.
    Unchanged,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum OperateFault {
    /// The order makes no sense to this version.
    #[error("the running gateway does not know this command")]
    Unknown,
    /// There is no such session.
    #[error("there is no live session {0}")]
    NoSession(String),
    /// There is no such employee.
    #[error("there is no employee {0}; they appear with their first sign-in")]
    NoEmployee(String),
    /// Somebody must be an administrator.
    #[error("{0} is the last administrator; grant `admin` to somebody else first")]
    LastAdmin(String),
    /// A role's name has letters, digits, `_` and `-`.
    #[error("`{0}` cannot be a role's name: use letters, digits, `_` and `-`")]
    NoRole(String),
    /// The store or the directory failed.
    #[error("{0}")]
    Failed(String),
}

/// Carries out orders.
pub struct Operator {
    live: Arc<Live>,
    directory: Arc<dyn Directory>,
    main_corp: CorpId,
    roles: Roles,
}

impl Operator {
    /// On these backends.
    pub fn new(
        live: Arc<Live>,
        directory: Arc<dyn Directory>,
        main_corp: CorpId,
        default_role: Option<RoleName>,
    ) -> Self {
        let roles = Roles::new(live.clone(), directory.clone(), default_role);
        Self { live, directory, main_corp, roles }
    }

    /// Carries out one order. Effective on live sessions when it returns.
    pub async fn run(&self, command: Command) -> Result<Done, OperateFault> {
        match command {
            Command::SessionList => self.sessions().await,
            Command::SessionEnd { id } => self.end(&SessionId::new(id)).await,
            Command::RoleList => self.directory.assignments(MOST).await.map(Done::Assignments).map_err(failed),
            Command::RoleGrant { employee_id, role } => self.change(&employee_id, &role, Change::Grant).await,
            Command::RoleTake { employee_id, role } => self.change(&employee_id, &role, Change::Take).await,
        }
    }

    async fn sessions(&self) -> Result<Done, OperateFault> {
        let sessions = self.live.store().all(MOST).await.map_err(failed)?;
        let rows = sessions.into_iter().map(|session| SessionRow {
            id: session.id.to_string(),
            employee_id: session.employee_id.to_string(),
            corp_id: session.corp_id.to_string(),
            current_role: session.current_role.to_string(),
            login_method: session.login_method.as_str().to_owned(),
            address: session.address,
            since: session.issued_at.iso8601(),
            until: session.expires_at.iso8601(),
        });
        Ok(Done::Sessions(rows.collect()))
    }

    async fn end(&self, id: &SessionId) -> Result<Done, OperateFault> {
        if self.live.store().find(id).await.map_err(failed)?.is_none() {
            return Err(OperateFault::NoSession(id.to_string()));
        }
        self.live.end(id, EndCause::Operator).await.map_err(failed)?;
        tracing::info!(target: "deskgate::audit", { session.id = id.as_str() }, "an operator ended a session");
        Ok(Done::Changed { sessions: 1 })
    }

    async fn change(&self, employee_id: &str, role: &str, change: Change) -> Result<Done, OperateFault> {
        if !RoleName::is_well_formed(role) {
            return Err(OperateFault::NoRole(role.to_owned()));
        }
        let (employee, role) = (EmployeeId::new(employee_id), RoleName::new(role));
        let (changed, sessions) = self.roles.change(&self.main_corp, &employee, &role, change).await.map_err(failed)?;
        match changed {
            RoleChange::NoEmployee => return Err(OperateFault::NoEmployee(employee_id.to_owned())),
            RoleChange::LastAdmin => return Err(OperateFault::LastAdmin(employee_id.to_owned())),
            RoleChange::Unchanged => return Ok(Done::Unchanged),
            RoleChange::Done => {}
        }
        tracing::info!(
            target: "deskgate::audit",
            { employee.id = employee_id, role = role.as_str(), change = change.as_str() },
            "an operator changed a role"
        );
        Ok(Done::Changed { sessions })
    }
}

fn failed(error: impl std::error::Error) -> OperateFault {
    OperateFault::Failed(error.to_string())
}
