//! Puts down what is done to accounts and sessions: in the directory's audit log, and as a line of the log.

use std::sync::Arc;

use super::SignIn;
use super::attempt::reason;
use crate::directory::audit::{Deed, Event};
use crate::directory::{Directory, DirectoryError};
use crate::domain::session::Session;
use crate::error::{Error, chain};

/// The audit log, for people's deeds and operators' orders alike.
#[derive(Clone)]
pub struct Audit {
    directory: Arc<dyn Directory>,
}

impl Audit {
    /// In this directory.
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        Self { directory }
    }

    /// Puts a deed down before it is done: what cannot be put down is not done.
    pub async fn record(&self, deed: Deed<'_>) -> Result<(), DirectoryError> {
        self.directory.record_deed(deed, "").await?;
        let Deed { corp_id, employee_id, event, by, session_id, detail } = deed;
        tracing::info!(
            target: "deskgate::audit",
            { employee.id = employee_id, corp.id = corp_id, by = by, session.id = session_id, detail = detail },
            "{}", event.as_str()
        );
        Ok(())
    }

    /// Puts down that a deed was refused. It is refused whether that can be put down or not.
    pub async fn refuse(&self, deed: Deed<'_>, why: &str) {
        let Deed { corp_id, employee_id, event, by, session_id, detail } = deed;
        tracing::info!(
            target: "deskgate::audit",
            { employee.id = employee_id, corp.id = corp_id, by = by, session.id = session_id, detail = detail },
            "{} refused: {why}", event.as_str()
        );
        if let Err(fault) = self.directory.record_deed(deed, why).await {
            tracing::error!(error = %chain(&fault), "a refusal is missing in the audit log");
        }
    }
}

/// What the owner of a session does to their own account.
pub(super) fn own<'a>(session: &'a Session, event: Event, detail: &'a str) -> Deed<'a> {
    Deed {
        corp_id: session.corp_id.as_str(),
        employee_id: session.employee_id.as_str(),
        event,
        by: session.employee_id.as_str(),
        session_id: session.id.as_str(),
        detail,
    }
}

impl SignIn {
    /// Puts down why something came to nothing, if it did.
    pub(super) async fn audited<T>(&self, deed: Deed<'_>, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &outcome {
            self.audit.refuse(deed, reason(error)).await;
        }
        outcome
    }
}
