//! The audit log: changes to accounts and sessions, and who made them. Sign-ins are in the login log.

use std::time::Duration;

use async_trait::async_trait;

use super::DirectoryError;
use crate::domain::clock::Timestamp;

/// The kind of an audited action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The employee ended the current session.
    Logout,
    /// The employee ended another of their sessions.
    EndSession,
    /// A one-time password stepped a session up.
    StepUp,
    /// The active role was switched.
    SwitchRole,
    /// A one-time-password secret was issued.
    OtpSetup,
    /// A one-time-password device was bound.
    OtpBind,
    /// An administrator removed a one-time-password device.
    OtpReset,
    /// A local password was set.
    SetPassword,
    /// An administrator assigned a role.
    GrantRole,
    /// An administrator removed a role.
    TakeRole,
    /// An administrator ended every session of an employee.
    EndSessions,
    /// The platform reported the member as inactive or gone, and the employee was disabled; the detail says which.
    MemberInactive,
    /// The platform reported the account of a link as gone, and the sessions that came through it ended.
    LinkedMemberInactive,
    /// The platform reported the member as active again at a sign-in, and the employee was enabled.
    MemberReturned,
    /// A member of a connected corporation asked for a link to an employee.
    RequestLink,
    /// An administrator, or `bind.approval = "none"`, approved or added a link.
    ApproveLink,
    /// An administrator refused a requested link.
    RefuseLink,
    /// An administrator removed a link.
    RemoveLink,
    /// An automatically approved link became pending, because its employee got another role than `user`.
    WithdrawLink,
    /// An operator's command; the detail names it.
    OperatorCommand,
}

impl Event {
    /// The log message.
    pub fn message(self) -> &'static str {
        match self {
            Event::Logout => "logged out",
            Event::EndSession => "ended another session",
            Event::StepUp => "stepped up",
            Event::SwitchRole => "switched the active role",
            Event::OtpSetup => "requested a one-time-password secret",
            Event::OtpBind => "bound a one-time-password device",
            Event::OtpReset => "administrator removed a one-time-password device",
            Event::SetPassword => "set a local password",
            Event::GrantRole => "administrator granted a role",
            Event::TakeRole => "administrator revoked a role",
            Event::EndSessions => "administrator ended all sessions",
            Event::MemberInactive => "the platform reports the member as inactive: employee disabled",
            Event::LinkedMemberInactive => "the platform reports a linked account as inactive: its sessions ended",
            Event::MemberReturned => "the platform reports the member as active again: employee enabled",
            Event::RequestLink => "requested a link to an employee",
            Event::ApproveLink => "approved a link",
            Event::RefuseLink => "administrator refused a link",
            Event::RemoveLink => "administrator removed a link",
            Event::WithdrawLink => "an automatically approved link needs approval now",
            Event::OperatorCommand => "operator command",
        }
    }

    /// The name in the table and in the log.
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
            Event::MemberInactive => "member_inactive",
            Event::LinkedMemberInactive => "linked_member_inactive",
            Event::MemberReturned => "member_returned",
            Event::RequestLink => "request_link",
            Event::ApproveLink => "approve_link",
            Event::RefuseLink => "refuse_link",
            Event::RemoveLink => "remove_link",
            Event::WithdrawLink => "withdraw_link",
            Event::OperatorCommand => "order",
        }
    }
}

/// An audit record to be written.
#[derive(Debug, Clone, Copy)]
pub struct AuditRecord<'a> {
    /// The corporation of the affected account; empty if no account is affected.
    pub corp_id: &'a str,
    /// The employee of the affected account.
    pub employee_id: &'a str,
    /// The action.
    pub event: Event,
    /// The actor: an employee id, `uid 1000` for an operator, `corporation/user` for a platform account, or `platform`.
    pub by: &'a str,
    /// The actor's session; empty for an operator.
    pub session_id: &'a str,
    /// The role, session or command.
    pub detail: &'a str,
}

/// A stored audit record.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AuditEntry {
    /// When it was written.
    pub at: Timestamp,
    /// The corporation of the affected account.
    pub corp_id: String,
    /// The employee of the affected account.
    pub employee_id: String,
    /// The action.
    pub event: String,
    /// The actor.
    pub by: String,
    /// The actor's session.
    pub session_id: String,
    /// The role, session or command.
    pub detail: String,
    /// Why the action failed; empty if no failure is known. The record is written before the action.
    pub refused: String,
}

/// Writes and reads the audit log.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Writes a record and returns its id; `refused` is the reason if the action already failed.
    async fn append_audit_record(&self, record: AuditRecord<'_>, refused: &str) -> Result<String, DirectoryError>;

    /// Marks a record as failed, with the reason.
    async fn mark_audit_record_failed(&self, id: &str, refused: &str) -> Result<(), DirectoryError>;

    /// At most `limit` records of one account or of all, newest first.
    async fn audit_entries(&self, employee_id: Option<&str>, limit: usize) -> Result<Vec<AuditEntry>, DirectoryError>;

    /// Deletes records older than `kept`.
    async fn prune_audit_log(&self, kept: Duration) -> Result<(), DirectoryError>;
}
