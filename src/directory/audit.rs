//! The audit log: what was done to accounts and sessions, and by whom. Sign-ins are in the login log.

use std::time::Duration;

use async_trait::async_trait;

use super::DirectoryError;
use crate::domain::clock::Timestamp;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The owner ends the session that they act with.
    Logout,
    /// The owner ends another one of theirs.
    EndSession,
    /// A one-time password steps a session up.
    StepUp,
    /// Another of the held roles becomes the active one.
    SwitchRole,
    /// A secret for a one-time-password device is given out.
    OtpSetup,
    /// A device is bound.
    OtpBind,
    /// A device is taken away.
    OtpReset,
    /// A local password is set.
    SetPassword,
    /// A role is given.
    GrantRole,
    /// A role is taken.
    TakeRole,
    /// Every session of an employee is ended.
    EndSessions,
    /// An operator's order on the machine; the detail says which.
    OperatorCommand,
}

impl Event {
    /// For people who read the log.
    pub fn words(self) -> &'static str {
        match self {
            Event::Logout => "logged out",
            Event::EndSession => "ended another of their sessions",
            Event::StepUp => "stepped a session up",
            Event::SwitchRole => "switched the active role",
            Event::OtpSetup => "asked for a one-time-password secret",
            Event::OtpBind => "bound a one-time-password device",
            Event::OtpReset => "an administrator reset a one-time-password device",
            Event::SetPassword => "set a local password",
            Event::GrantRole => "an administrator gave a role",
            Event::TakeRole => "an administrator took a role",
            Event::EndSessions => "an administrator ended all sessions",
            Event::OperatorCommand => "an operator gave an order",
        }
    }

    /// As the table and the log spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Event::Logout => "logout",
            Event::EndSession => "end_session",
            Event::StepUp => "step_up",
            Event::SwitchRole => "switch_role",
            Event::OtpSetup => "otp_setup",
            Event::OtpBind => "otp_bind",
            Event::OtpReset => "otp_reset",
            Event::SetPassword => "set_password",
            Event::GrantRole => "grant_role",
            Event::TakeRole => "take_role",
            Event::EndSessions => "end_sessions",
            Event::OperatorCommand => "order",
        }
    }
}

/// One line of the audit log.
#[derive(Debug, Clone, Copy)]
pub struct AuditRecord<'a> {
    /// The corporation of whose account it is; empty where it is nobody's.
    pub corp_id: &'a str,
    /// Whose account it is.
    pub employee_id: &'a str,
    /// What is done.
    pub event: Event,
    /// An employee, or `uid 1000` for a user of the machine.
    pub by: &'a str,
    /// The session that acts; empty for a user of the machine.
    pub session_id: &'a str,
    /// Which role, which session, which order.
    pub detail: &'a str,
}

/// The same, read back.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// The corporation of whose account it is.
    pub corp_id: String,
    /// Whose account it is.
    pub employee_id: String,
    /// What was done.
    pub event: String,
    /// By whom.
    pub by: String,
    /// The session that acted.
    pub session_id: String,
    /// Which role, which session, which order.
    pub detail: String,
    /// Why it came to nothing; empty as long as nothing is known against it: a line stands before the record.
    pub refused: String,
}

/// Keeps it.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Puts a record down; `refused` says why it came to nothing, if that is known. Tells the line's id.
    async fn append_audit_record(&self, record: AuditRecord<'_>, refused: &str) -> Result<String, DirectoryError>;

    /// Puts down why the record of a line came to nothing.
    async fn mark_audit_record_failed(&self, id: &str, refused: &str) -> Result<(), DirectoryError>;

    /// The audit_entries, of one employee's account or of all, newest first, at most `limit`.
    async fn audit_entries(&self, employee_id: Option<&str>, limit: usize) -> Result<Vec<AuditEntry>, DirectoryError>;

    /// Removes what is older than `kept`.
    async fn prune_audit_log(&self, kept: Duration) -> Result<(), DirectoryError>;
}
