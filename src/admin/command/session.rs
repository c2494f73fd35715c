//! `deskgate session …`

use serde::{Deserialize, Serialize};

use super::{CommandOutput, EmployeeRef};
use crate::admin::{AccountId, Actor, Admin, AdminError};
use crate::domain::session::SessionId;

/// A command about live sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionCommand {
    /// Lists sessions.
    List {
        /// Only this employee's.
        employee: Option<EmployeeRef>,
    },
    /// Ends one session.
    End {
        /// The session's ID.
        id: String,
    },
    /// Ends all sessions of an employee.
    EndAll {
        /// The employee.
        employee: EmployeeRef,
    },
}

impl Admin {
    pub(super) async fn execute_session(
        &self,
        actor: Actor<'_>,
        command: SessionCommand,
    ) -> Result<CommandOutput, AdminError> {
        match command {
            SessionCommand::List { employee } => {
                let account = employee.map(|employee| self.account_named(&employee)).transpose()?;
                let sessions = self.sessions.list(account.as_ref().map(AccountId::as_account)).await?;
                Ok(CommandOutput::Sessions(sessions))
            }
            SessionCommand::End { id } => Ok(self.sessions.end(actor, &SessionId::new(id)).await?.into()),
            SessionCommand::EndAll { employee } => {
                let account = self.account_named(&employee)?;
                Ok(self.sessions.end_all(actor, account.as_account()).await?.into())
            }
        }
    }
}
