//! 1003: why an identified caller, or a caller from this network or page, is refused. `Display` is for the log and
//! `explain`; it may name more than the client's message does.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::language::Language;
use crate::domain::role::RoleName;
use crate::messages::{self, Message};

/// Why a request is forbidden (1003).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forbidden {
    /// The ID that the caller claims is no employee's.
    #[error("no such employee")]
    EmployeeUnknown,
    /// An administrator named an employee who does not exist.
    #[error("no such employee")]
    NoSuchEmployee,
    /// The platform identified someone who is not an employee.
    #[error("the platform account belongs to no employee")]
    NotAnEmployee,
    /// The employee has no role.
    #[error("the employee has no role")]
    NoRole,
    /// The employee has been disabled.
    #[error("the employee is disabled")]
    Disabled,
    /// The session does not hold the requested role.
    #[error("role `{0}` is not held")]
    RoleNotHeld(RoleName),
    /// The active role is not one of those that the rule names.
    #[error("the active role is `{active}`, the rule wants one of: {}", messages::list(Language::English, &names(.wanted)))]
    RoleRequired {
        /// The session's active role.
        active: RoleName,
        /// The roles that the rule names.
        wanted: Vec<RoleName>,
    },
    /// The matrix does not grant the active role this access.
    #[error("the matrix grants `{active}` no {access}")]
    NotGranted {
        /// The session's active role.
        active: RoleName,
        /// `resource:operation`
        access: String,
    },
    /// The client's address is outside the rule's networks.
    #[error("{0} is in none of the rule's networks")]
    Network(IpAddr),
    /// The rule's condition is false, or could not be evaluated.
    #[error("{}", condition_text(.condition, .error.as_deref()))]
    Condition {
        /// The expression in the rule.
        condition: Arc<str>,
        /// The evaluation error, if there was one.
        error: Option<String>,
    },
    /// The token is half-authenticated: it can only set up a one-time password device.
    #[error("a half-authenticated token")]
    OtpBindingOnly,
    /// The platform does not show this member to our application.
    #[error("the member is not in the application's visible range")]
    NotVisible,
    /// The employee is not an agent.
    #[error("the employee is not an agent")]
    NotAnAgent,
    /// The change would leave no administrator.
    #[error("the last administrator")]
    LastAdmin,
    /// Employees, roles and agents are the help desk's.
    #[error("the directory only reads employees, roles and agents")]
    ReadOnlyEmployees,
    /// The employee has the maximum number of roles.
    #[error("the employee has the maximum number of roles")]
    TooManyRoles,
    /// No one-time password device is set up.
    #[error("no one-time password device is bound")]
    OtpNotBound,
    /// No secret has been offered: the device setup was not started.
    #[error("no one-time password secret has been offered")]
    OtpNotOffered,
    /// A device is already set up, and this token cannot replace it.
    #[error("a one-time password device is already bound")]
    OtpBound,
    /// Binding needs a recent platform sign-in in this browser.
    #[error("no proof of a recent platform sign-in")]
    BindProof,
    /// The platform account's link to the employee waits for approval.
    #[error("the link waits for approval")]
    LinkPending,
    /// The platform account has an approved link to another employee.
    #[error("the platform account is linked to another employee")]
    LinkedToAnother,
    /// The link leads to another employee than the one for whom it was to be removed.
    #[error("the link was replaced meanwhile")]
    LinkReplaced,
    /// Too many members of the corporation wait for approval.
    #[error("too many links of the corporation wait for approval")]
    TooManyLinkRequests,
    /// The session came through a link, which must not leave factors behind.
    #[error("the session came through a link")]
    LinkedSession,
    /// The session began with nothing but an employee ID.
    #[error("the session began without proof")]
    UnprovenSession,
    /// The `Origin` of a WebSocket handshake is not allowed.
    #[error("the origin is not allowed")]
    Origin,
    /// A development route, called from another machine or under a host name that is not loopback.
    #[error("the client or the host is not loopback")]
    NotThisMachine,
    /// A preflight from an origin that is not allowed.
    #[error("the origin is not one of [clients] or cors.origins")]
    CrossOrigin,
    /// A development route outside development mode.
    #[error("development mode is off")]
    Development,
}

fn names(roles: &[RoleName]) -> Vec<&str> {
    roles.iter().map(RoleName::as_str).collect()
}

fn condition_text(condition: &str, error: Option<&str>) -> String {
    match error {
        None => format!("the condition does not hold: {condition}"),
        Some(error) => format!("the condition cannot be evaluated ({error}): {condition}"),
    }
}

impl Forbidden {
    /// The message for the client.
    pub(super) fn message(&self, language: Language) -> Cow<'static, str> {
        let message = match self {
            Forbidden::RoleNotHeld(role) => {
                return Message::ROLE_NOT_HELD.fill(language, &[("role", role.as_str())]).into();
            }
            Forbidden::RoleRequired { wanted, .. } => {
                let roles = messages::list(language, &names(wanted));
                return Message::ROLE_REQUIRED.fill(language, &[("roles", &roles)]).into();
            }
            Forbidden::NotGranted { access, .. } => {
                return Message::NOT_GRANTED.fill(language, &[("access", access)]).into();
            }
            Forbidden::EmployeeUnknown => Message::EMPLOYEE_UNKNOWN,
            Forbidden::NoSuchEmployee => Message::NO_SUCH_EMPLOYEE,
            Forbidden::NotAnEmployee => Message::NOT_AN_EMPLOYEE,
            Forbidden::NoRole => Message::NO_ROLE,
            Forbidden::Disabled => Message::DISABLED,
            Forbidden::Network(_) => Message::NETWORK,
            Forbidden::Condition { .. } => Message::CONDITION,
            Forbidden::OtpBindingOnly => Message::OTP_BINDING_ONLY,
            Forbidden::NotVisible => Message::NOT_VISIBLE,
            Forbidden::LastAdmin => Message::LAST_ADMIN,
            Forbidden::ReadOnlyEmployees => Message::READ_ONLY_EMPLOYEES,
            Forbidden::TooManyRoles => Message::TOO_MANY_ROLES,
            Forbidden::NotAnAgent => Message::NOT_AN_AGENT,
            Forbidden::OtpNotBound => Message::OTP_NOT_BOUND,
            Forbidden::OtpNotOffered => Message::OTP_NOT_OFFERED,
            Forbidden::OtpBound => Message::OTP_BOUND,
            Forbidden::BindProof => Message::BIND_PROOF,
            Forbidden::LinkPending => Message::LINK_PENDING,
            Forbidden::LinkedToAnother => Message::LINKED_TO_ANOTHER,
            Forbidden::LinkReplaced => Message::LINK_REPLACED,
            Forbidden::TooManyLinkRequests => Message::TOO_MANY_LINK_REQUESTS,
            Forbidden::LinkedSession => Message::LINKED_SESSION,
            Forbidden::UnprovenSession => Message::UNPROVEN_SESSION,
            Forbidden::Origin => Message::ORIGIN,
            Forbidden::NotThisMachine => Message::NOT_THIS_MACHINE,
            Forbidden::CrossOrigin => Message::CROSS_ORIGIN,
            Forbidden::Development => Message::DEVELOPMENT,
        };
        Cow::Borrowed(message.text(language))
    }
}
