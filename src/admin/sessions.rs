//! Sessions, for operators.

use serde::{Deserialize, Serialize};

use super::{AdminError, Done, MOST, Operator, Who, failed, typed_name};
use crate::domain::device;
use crate::domain::session::{EndCause, Session, SessionId};

/// An order about sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionCommand {
    /// Shows live ones.
    List {
        /// Of one employee only.
        who: Option<Who>,
    },
    /// Ends one.
    End {
        /// Which.
        id: String,
    },
    /// Ends all of an employee.
    EndAll {
        /// Whose.
        who: Who,
    },
}

impl SessionCommand {
    pub(super) fn description(&self) -> Option<String> {
        match self {
            SessionCommand::List { .. } => None,
            SessionCommand::End { id } => Some(format!("end {}", typed_name(id))),
            SessionCommand::EndAll { .. } => Some("end --employee".to_owned()),
        }
    }

    pub(super) fn who(&self) -> Option<&Who> {
        match self {
            SessionCommand::List { .. } | SessionCommand::End { .. } => None,
            SessionCommand::EndAll { who } => Some(who),
        }
    }
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
    /// With what.
    pub device: String,
    /// Whether they had never signed in with such a device before.
    pub new_device: bool,
    /// From where.
    pub address: String,
    /// Since when.
    pub since: String,
    /// Until when.
    pub until: String,
}

impl SessionRow {
    fn of(session: Session) -> Self {
        Self {
            id: session.id.to_string(),
            employee_id: session.employee_id.to_string(),
            corp_id: session.corp_id.to_string(),
            current_role: session.current_role.to_string(),
            login_method: session.login_method.as_str().to_owned(),
            device: device::describe(&session.user_agent),
            new_device: session.new_device,
            address: session.address,
            since: session.issued_at.iso8601(),
            until: session.expires_at.iso8601(),
        }
    }
}

impl Operator {
    pub(super) async fn session(&self, order: SessionCommand) -> Result<Done, AdminError> {
        match order {
            SessionCommand::List { who } => {
                let sessions = match who {
                    None => self.live.store().all(MOST).await.map_err(failed)?,
                    Some(who) => {
                        let (corp_id, employee_id) = self.named(&who)?;
                        let own = self.live.store().of_employee(&corp_id, &employee_id).await.map_err(failed)?;
                        if own.is_empty() {
                            self.known(&who).await?;
                        }
                        own
                    }
                };
                Ok(Done::Sessions(sessions.into_iter().map(SessionRow::of).collect()))
            }
            SessionCommand::End { id } => {
                let id = SessionId::new(id);
                if self.live.store().find(&id).await.map_err(failed)?.is_none() {
                    return Err(AdminError::NotThere(format!("there is no live session {id}")));
                }
                self.live.end(&id, EndCause::Operator).await.map_err(failed)?;
                Ok(Done::changed(1))
            }
            SessionCommand::EndAll { who } => {
                // By name alone: somebody who was removed may have left sessions behind.
                let (corp_id, employee_id) = self.named(&who)?;
                let ended = self.live.end_all_of(&corp_id, &employee_id, EndCause::Operator).await.map_err(failed)?;
                if ended == 0 {
                    self.known(&who).await?;
                    return Ok(Done::Unchanged);
                }
                Ok(Done::changed(ended))
            }
        }
    }
}
