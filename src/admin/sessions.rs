//! Live sessions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::accounts::Accounts;
use super::audit::{Action, AuditTrail, loggable_name};
use super::effect::Effect;
use super::{Actor, AdminError, MAX_ROWS};
use crate::directory::factors::Account;
use crate::domain::device;
use crate::domain::session::{EndCause, Session, SessionId};
use crate::sessions::SessionCache;

/// A session as `deskgate session list` shows it, without its token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionRow {
    /// The session's ID, the `jti` of its token.
    pub id: String,
    /// The employee who signed in.
    pub employee_id: String,
    /// The employee's corporation.
    pub corp_id: String,
    /// The active role.
    pub current_role: String,
    /// How the employee signed in.
    pub login_method: String,
    /// `full`, or `otp_binding` or `spent` of a half-authenticated session.
    #[serde(default)]
    pub stage: String,
    /// The account of a connected corporation that signed in as the employee.
    #[serde(default)]
    pub platform_account: Option<String>,
    /// The browser or program, from its `User-Agent`.
    pub device: String,
    /// Whether the employee had never signed in from such a device before.
    pub new_device: bool,
    /// The client address at sign-in.
    pub address: String,
    /// When the session began.
    pub since: String,
    /// When the session expires.
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
            stage: session.stage.as_str().to_owned(),
            platform_account: session.platform_account.map(|account| account.to_string()),
            device: device::describe(&session.user_agent),
            new_device: session.new_device,
            address: session.address.into(),
            since: session.issued_at.iso8601(),
            until: session.expires_at.iso8601(),
        }
    }
}

/// Administers live sessions.
pub(crate) struct SessionAdmin {
    pub(super) sessions: Arc<SessionCache>,
    pub(super) accounts: Accounts,
    pub(super) audit: AuditTrail,
}

impl SessionAdmin {
    /// Lists the sessions of one account, or of all.
    pub(crate) async fn list(&self, account: Option<Account<'_>>) -> Result<Vec<SessionRow>, AdminError> {
        let sessions = match account {
            None => self.sessions.store().newest(MAX_ROWS).await?,
            Some(account) => {
                let own = self.sessions.store().of_employee(account.corp_id, account.employee_id).await?;
                if own.is_empty() {
                    self.accounts.employee(account).await?;
                }
                own
            }
        };
        Ok(sessions.into_iter().map(SessionRow::of).collect())
    }

    /// Ends one session and closes its sockets.
    pub(crate) async fn end(&self, actor: Actor<'_>, id: &SessionId) -> Result<Effect, AdminError> {
        let session = self.sessions.store().find(id).await?;
        let account =
            session.as_ref().map(|session| Account { corp_id: &session.corp_id, employee_id: &session.employee_id });
        let change = async {
            if session.is_none() {
                return Err(AdminError::NoSuchSession(id.clone()));
            }
            self.sessions.end(id, EndCause::Operator).await?;
            Ok(Effect::changed(1))
        };
        let action = Action::Command(format!("session end {}", loggable_name(id.as_str())).into());
        self.audit.run(actor, account, action, change).await
    }

    /// Ends all sessions of an account. The employee may be gone: their removal may have left sessions behind.
    pub(crate) async fn end_all(&self, actor: Actor<'_>, account: Account<'_>) -> Result<Effect, AdminError> {
        let change = async {
            let Account { corp_id, employee_id } = account;
            let ended = self.sessions.end_all_of(corp_id, employee_id, EndCause::Operator).await?;
            if ended == 0 {
                self.accounts.employee(account).await?;
                return Ok(Effect::unchanged());
            }
            Ok(Effect::changed(ended))
        };
        self.audit.run(actor, Some(account), Action::EndSessions, change).await
    }
}
