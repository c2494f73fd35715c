//! Puts down what is done to accounts and sessions: in the directory's audit log, and as a line of the log.

use std::sync::Arc;

use super::SignIn;
use super::attempt::reason;
use crate::directory::audit::{AuditRecord, Event};
use crate::directory::{Directory, DirectoryError};
use crate::domain::session::Session;
use crate::error::{Error, chain};

/// Why a record came to nothing that found everything so already.
pub const UNCHANGED: &str = "unchanged";

/// The audit log, for people's audit_entries and operators' orders alike.
#[derive(Clone)]
pub struct Audit {
    directory: Arc<dyn Directory>,
}

impl Audit {
    /// In this directory.
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        Self { directory }
    }

    /// Puts a record down before it is done: what cannot be put down is not done.
    pub async fn record<'a>(&self, record: AuditRecord<'a>) -> Result<Begun<'a>, DirectoryError> {
        let id = self.directory.append_audit_record(record, "").await?;
        tell(record, None);
        Ok(Begun { id, record })
    }

    /// Puts down that a record was refused before it could begin. It is refused whether that can be put down or not.
    pub async fn refuse(&self, record: AuditRecord<'_>, why: &str) {
        tell(record, Some(why));
        missing(self.directory.append_audit_record(record, why).await);
    }

    /// Puts down why a record came to nothing.
    pub async fn mark_failed(&self, begun: Begun<'_>, why: &str) {
        tell(begun.record, Some(why));
        missing(self.directory.mark_audit_record_failed(&begun.id, why).await);
    }
}

/// A record that was put down, and may be done.
pub struct Begun<'a> {
    id: String,
    record: AuditRecord<'a>,
}

fn tell(record: AuditRecord<'_>, refused: Option<&str>) {
    let AuditRecord { corp_id, employee_id, event, by, session_id, detail } = record;
    tracing::info!(
        target: "deskgate::audit",
        { event = event.as_str(), employee.id = employee_id, corp.id = corp_id, by = by, session.id = session_id,
          detail = detail, refused = refused },
        "{}{}", if refused.is_some() { "failed: " } else { "" }, event.message()
    );
}

fn missing<T>(put_down: Result<T, DirectoryError>) {
    if let Err(fault) = put_down {
        tracing::error!(error = %chain(&fault), "a refusal is missing in the audit log");
    }
}

/// What the owner of a session does to their own account.
pub(super) fn own<'a>(session: &'a Session, event: Event, detail: &'a str) -> AuditRecord<'a> {
    AuditRecord {
        corp_id: session.corp_id.as_str(),
        employee_id: session.employee_id.as_str(),
        event,
        by: session.employee_id.as_str(),
        session_id: session.id.as_str(),
        detail,
    }
}

impl SignIn {
    /// Puts down why a record came to nothing, if it did.
    pub(super) async fn audited<T>(&self, begun: Begun<'_>, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &outcome {
            self.audit.mark_failed(begun, reason(error)).await;
        }
        outcome
    }
}
