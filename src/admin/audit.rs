//! Audit records of administrative actions.
//!
//! The record is written before the change. If that write fails, the change is not made.

use std::borrow::Cow;

use super::{Actor, AdminError};
use crate::directory::audit::{AuditRecord, Event};
use crate::directory::factors::Account;
use crate::signin::audit::{Audit, UNCHANGED};

/// An administrative action, as its audit record describes it.
pub(super) enum Action<'a> {
    GrantRole(&'a str),
    TakeRole(&'a str),
    EndSessions,
    ResetOtp,
    /// Links this platform account to the employee.
    AddLink(&'a str),
    ApproveLink(&'a str),
    RefuseLink(&'a str),
    RemoveLink(&'a str),
    /// An action that only the command line offers; holds the subcommand and its arguments.
    Command(Cow<'a, str>),
}

impl Action<'_> {
    /// The event and detail of an administrator's record.
    fn event(&self) -> (Event, &str) {
        match self {
            Action::GrantRole(role) => (Event::GrantRole, loggable_name(role)),
            Action::TakeRole(role) => (Event::TakeRole, loggable_name(role)),
            Action::EndSessions => (Event::EndSessions, ""),
            Action::ResetOtp => (Event::OtpReset, ""),
            Action::AddLink(account) | Action::ApproveLink(account) => (Event::ApproveLink, account),
            Action::RefuseLink(account) => (Event::RefuseLink, account),
            Action::RemoveLink(account) => (Event::RemoveLink, account),
            Action::Command(command) => (Event::OperatorCommand, command),
        }
    }

    /// The detail of an operator's record: the command line that performs the action.
    fn command(&self) -> Cow<'_, str> {
        match self {
            Action::GrantRole(role) => format!("role grant {}", loggable_name(role)).into(),
            Action::TakeRole(role) => format!("role take {}", loggable_name(role)).into(),
            Action::EndSessions => "session end --employee".into(),
            Action::ResetOtp => "employee otp-remove".into(),
            Action::AddLink(account) => format!("employee link add {account}").into(),
            Action::ApproveLink(account) => format!("employee link approve {account}").into(),
            Action::RefuseLink(account) => format!("employee link refuse {account}").into(),
            Action::RemoveLink(account) => format!("employee link remove {account}").into(),
            Action::Command(command) => command.as_ref().into(),
        }
    }
}

/// The result of an audited change.
pub(super) trait AuditedResult {
    /// Whether everything already was as requested, which the record then says.
    fn is_unchanged(&self) -> bool;
}

/// Writes audit records around administrative actions.
#[derive(Clone)]
pub(super) struct AuditTrail {
    audit: Audit,
}

impl AuditTrail {
    pub(super) fn new(audit: Audit) -> Self {
        Self { audit }
    }

    /// Writes the audit record, then runs `change`, and marks the record if the change failed or had no effect.
    ///
    /// `account` is the account that the action concerns, if it concerns one.
    pub(super) async fn run<T: AuditedResult>(
        &self,
        actor: Actor<'_>,
        account: Option<Account<'_>>,
        action: Action<'_>,
        change: impl Future<Output = Result<T, AdminError>>,
    ) -> Result<T, AdminError> {
        let fields = RecordFields::new(actor, &action);
        let pending = self.audit.record(fields.record(account)).await?;
        let result = change.await;
        match &result {
            Ok(done) if done.is_unchanged() => self.audit.mark_failed(pending, UNCHANGED).await,
            Ok(_) => {}
            Err(error) => self.audit.mark_failed(pending, error.audit_reason(actor)).await,
        }
        result
    }

    /// Records an action that was refused because its arguments are invalid.
    pub(super) async fn refuse(
        &self,
        actor: Actor<'_>,
        account: Option<Account<'_>>,
        action: Action<'_>,
        error: &AdminError,
    ) {
        let fields = RecordFields::new(actor, &action);
        self.audit.refuse(fields.record(account), error.audit_reason(actor)).await;
    }
}

/// The parts of an audit record that depend on actor and action.
struct RecordFields<'a> {
    event: Event,
    detail: Cow<'a, str>,
    by: Cow<'a, str>,
    session_id: &'a str,
}

impl<'a> RecordFields<'a> {
    fn new(actor: Actor<'a>, action: &'a Action<'_>) -> Self {
        let (event, detail) = match actor {
            Actor::Operator { .. } => (Event::OperatorCommand, action.command()),
            Actor::Administrator(_) => {
                let (event, detail) = action.event();
                (event, detail.into())
            }
        };
        Self { event, detail, by: actor.name(), session_id: actor.session_id() }
    }

    fn record<'r>(&'r self, account: Option<Account<'r>>) -> AuditRecord<'r> {
        let (corp_id, employee_id) =
            account.map_or(("", ""), |account| (account.corp_id.as_str(), account.employee_id.as_str()));
        let Self { event, detail, by, session_id } = self;
        AuditRecord { corp_id, employee_id, event: *event, by, session_id, detail }
    }
}

/// An argument that should be a name, for the audit log. Anything else is masked: operators paste tokens and passwords
/// into the wrong place.
pub(super) fn loggable_name(argument: &str) -> &str {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if argument.len() <= 64 && argument.bytes().all(is_name) { argument } else { "(no name)" }
}

#[cfg(test)]
mod tests;
