//! Audit records of changes to accounts and sessions: written to the directory's audit log and as a log line.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::reason;
use crate::directory::audit::{AuditRecord, Event};
use crate::directory::{Directory, DirectoryError};
use crate::domain::session::Session;
use crate::error::{Error, chain};

/// The failure reason of a change that had nothing to change.
pub const UNCHANGED: &str = "unchanged";

/// Writes the audit log, for users' actions and operators' commands alike.
#[derive(Clone)]
pub struct Audit {
    directory: Arc<dyn Directory>,
}

impl Audit {
    /// Writes to this directory.
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        Self { directory }
    }

    /// Writes the record before the action. If the write fails, the caller must not act.
    pub async fn record<'a>(&self, record: AuditRecord<'a>) -> Result<WrittenAudit<'a>, DirectoryError> {
        let id = self.directory.append_audit_record(record, "").await?;
        log(record, None);
        Ok(WrittenAudit { id, record })
    }

    /// Writes that an action was refused before it began. The refusal stands even if this write fails.
    pub async fn refuse(&self, record: AuditRecord<'_>, reason: &str) {
        log(record, Some(reason));
        log_failed_write(self.directory.append_audit_record(record, reason).await);
    }

    /// Adds to a written record why its action failed.
    pub async fn mark_failed(&self, written: WrittenAudit<'_>, reason: &str) {
        log(written.record, Some(reason));
        log_failed_write(self.directory.mark_audit_record_failed(&written.id, reason).await);
    }

    /// Marks the record as failed if its action failed, and returns the action's result.
    pub(crate) async fn finish<T>(&self, written: WrittenAudit<'_>, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            self.mark_failed(written, reason(error)).await;
        }
        result
    }

    /// Removes records older than `retention`.
    pub(super) async fn prune(&self, retention: Duration) {
        if let Err(error) = self.directory.prune_audit_log(retention).await {
            tracing::warn!(error = %chain(&error), "cannot prune the audit log");
        }
    }
}

/// A record that is in the audit log; its action may begin.
pub struct WrittenAudit<'a> {
    id: String,
    record: AuditRecord<'a>,
}

fn log(record: AuditRecord<'_>, refused: Option<&str>) {
    let AuditRecord { corp_id, employee_id, event, by, session_id, detail } = record;
    tracing::info!(
        target: "deskgate::audit",
        { event = event.as_str(), employee.id = employee_id, corp.id = corp_id, by = by, session.id = session_id,
          detail = detail, refused = refused },
        "{}{}", if refused.is_some() { "failed: " } else { "" }, event.message()
    );
}

fn log_failed_write<T>(written: Result<T, DirectoryError>) {
    if let Err(error) = written {
        tracing::error!(error = %chain(&error), "cannot write a refusal to the audit log");
    }
}

/// The record of what the owner of a session does to their own account.
pub(crate) fn own_action<'a>(session: &'a Session, event: Event, detail: &'a str) -> AuditRecord<'a> {
    AuditRecord {
        corp_id: session.corp_id.as_str(),
        employee_id: session.employee_id.as_str(),
        event,
        by: session.employee_id.as_str(),
        session_id: session.id.as_str(),
        detail,
    }
}
