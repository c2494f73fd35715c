//! Errors of administrative actions, for the command line and for HTTP.

use super::Actor;
use super::keys::KeyError;
use crate::directory::DirectoryError;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::link::{Link, PlatformAccount};
use crate::domain::role::{self, RoleName};
use crate::domain::session::{KeyId, SessionId};
use crate::error::{BadRequest, Code, Error, Forbidden, Part};
use crate::signin::roles::RoleFault;
use crate::store::StoreError;

/// Why an administrative action failed. `Display` is the message for operators.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    #[error(
        "invalid employee ID `{0}`: use a letter or digit, then letters, digits, `_`, `.`, `@` or `-`; 64 characters at most"
    )]
    InvalidEmployeeId(String),
    #[error("invalid corporation ID `{0}`: use letters, digits, `_` and `-`; 64 characters at most")]
    InvalidCorpId(String),
    #[error("invalid role name `{0}`: use letters, digits, `_` and `-`; 64 characters at most")]
    InvalidRoleName(String),
    #[error("invalid corporation ID `{0}`: use letters, digits, `_` and `-`; 64 characters at most")]
    InvalidConnectedCorp(String),
    #[error(
        "invalid platform user `{0}`: use a letter or digit, then letters, digits, `_`, `.`, `@` or `-`; 64 characters at most"
    )]
    InvalidPlatformUser(String),
    #[error(
        "{0} is the main corporation, whose members sign in by their own ID; link members of connected corporations only"
    )]
    MainCorpLink(CorpId),
    #[error("{0} has no link; `deskgate employee link list` shows all links")]
    NoSuchLink(PlatformAccount),
    #[error("{0} is linked to another employee; to remove that link, run `deskgate employee link remove {0}`")]
    LinkedToAnother(PlatformAccount),
    #[error(
        "{0} is linked to another employee by now, so nothing was removed; `deskgate employee link list` shows the link"
    )]
    LinkReplaced(PlatformAccount),
    #[error(
        "{typed} is another spelling of {existing}, which is linked; write it as WeCom does, and remove the wrong one"
    )]
    SimilarAccountLinked { typed: PlatformAccount, existing: PlatformAccount },
    #[error("the link of {0} is approved; to remove it, run `deskgate employee link remove {0}`")]
    LinkApproved(PlatformAccount),
    #[error("{} asks for employee {} of {}, not for {named}", link.account, link.employee_id, link.corp_id)]
    OtherEmployeeRequested { link: Box<Link>, named: EmployeeId },
    /// The faults of a link file, a line each.
    #[error("{0}")]
    InvalidLinkFile(String),
    #[error("the name must not be empty")]
    EmptyName,
    #[error("the {field} must have at most {max} characters and no control characters")]
    InvalidText { field: &'static str, max: usize },
    #[error("{}", no_such_employee(employee_id, similar.as_ref()))]
    NoSuchEmployee {
        employee_id: EmployeeId,
        /// An employee whose ID is another spelling of this one.
        similar: Option<EmployeeId>,
    },
    #[error("employee {0} already exists; to change them, run `deskgate employee change {0}`")]
    EmployeeExists(EmployeeId),
    #[error("{typed} is another spelling of {existing}, who already exists")]
    SimilarEmployeeExists { typed: EmployeeId, existing: EmployeeId },
    #[error("{0} is not an agent; to make them one, run `deskgate agent add {0}`")]
    NotAnAgent(EmployeeId),
    #[error("{0} is already an agent; to change their record, run `deskgate agent change {0}`")]
    AgentExists(EmployeeId),
    #[error("{0} is the last administrator; grant `admin` to another employee first")]
    LastAdmin(EmployeeId),
    #[error("{0} already has {max} roles, the maximum; take one away first", max = role::MOST)]
    TooManyRoles(EmployeeId),
    #[error("{0} still has `{1}` from their agent record; to change it, run `deskgate agent change {0}`")]
    RoleFromAgentRecord(EmployeeId, RoleName),
    #[error("session {0} not found")]
    NoSuchSession(SessionId),
    #[error("key {0} not found; `deskgate key list` shows all keys")]
    NoSuchKey(KeyId),
    #[error("key {0} signs new tokens and cannot be removed; replace it first with `deskgate key rotate --now`")]
    KeySigning(KeyId),
    #[error(
        "key {id} is already pending and signs from {start}; pass `--now` to create another key that signs immediately"
    )]
    KeyPending { id: KeyId, start: String },
    #[error("{0}")]
    WeakPassword(String),
    #[error("the gateway is busy hashing passwords; try again")]
    PasswordsBusy,
    #[error("key {0} was created, but it is gone")]
    KeyMissing(KeyId),
    #[error("the change was made, but some sessions may still be open; run the command again")]
    SessionsNotEnded(#[source] StoreError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Roles(#[from] RoleFault),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of a sign-in service, such as a wrong one-time code.
    #[error(transparent)]
    SignIn(#[from] Error),
}

fn no_such_employee(employee_id: &EmployeeId, similar: Option<&EmployeeId>) -> String {
    match similar {
        Some(similar) => format!("employee {employee_id} not found; did you mean {similar}?"),
        None => format!(
            "employee {employee_id} not found; employees are added by their first sign-in or by \
             `deskgate employee add {employee_id}`"
        ),
    }
}

/// What an operator can do about an [`AdminError`]; the exit code depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdminErrorKind {
    /// The command names something that does not exist.
    NotFound,
    /// The command is not allowed or not valid.
    Refused,
    /// A backend failed.
    Failed,
}

impl AdminError {
    pub(super) fn kind(&self) -> AdminErrorKind {
        match self {
            AdminError::NoSuchEmployee { .. }
            | AdminError::NotAnAgent(_)
            | AdminError::NoSuchSession(_)
            | AdminError::NoSuchLink(_)
            | AdminError::NoSuchKey(_) => AdminErrorKind::NotFound,
            AdminError::InvalidEmployeeId(_)
            | AdminError::InvalidCorpId(_)
            | AdminError::InvalidRoleName(_)
            | AdminError::InvalidConnectedCorp(_)
            | AdminError::InvalidPlatformUser(_)
            | AdminError::MainCorpLink(_)
            | AdminError::LinkedToAnother(_)
            | AdminError::LinkReplaced(_)
            | AdminError::SimilarAccountLinked { .. }
            | AdminError::LinkApproved(_)
            | AdminError::OtherEmployeeRequested { .. }
            | AdminError::InvalidLinkFile(_)
            | AdminError::EmptyName
            | AdminError::InvalidText { .. }
            | AdminError::EmployeeExists(_)
            | AdminError::SimilarEmployeeExists { .. }
            | AdminError::AgentExists(_)
            | AdminError::LastAdmin(_)
            | AdminError::TooManyRoles(_)
            | AdminError::RoleFromAgentRecord(..)
            | AdminError::KeySigning(_)
            | AdminError::KeyPending { .. }
            | AdminError::WeakPassword(_) => AdminErrorKind::Refused,
            AdminError::Directory(DirectoryError::ReadOnlyEmployees)
            | AdminError::Roles(RoleFault::Directory(DirectoryError::ReadOnlyEmployees)) => AdminErrorKind::Refused,
            AdminError::PasswordsBusy
            | AdminError::KeyMissing(_)
            | AdminError::SessionsNotEnded(_)
            | AdminError::Keys(_)
            | AdminError::Roles(_)
            | AdminError::Directory(_)
            | AdminError::Store(_) => AdminErrorKind::Failed,
            AdminError::SignIn(error) => match error.code() {
                Code::Unexpected | Code::Unavailable => AdminErrorKind::Failed,
                _ => AdminErrorKind::Refused,
            },
        }
    }

    /// The `refused` column of the audit log: the error itself for administrators, its kind for operators.
    pub(super) fn audit_reason(&self, actor: Actor<'_>) -> &'static str {
        match (actor, self) {
            (Actor::Administrator(_), AdminError::NoSuchEmployee { .. }) => "no_such_employee",
            (Actor::Administrator(_), AdminError::LastAdmin(_)) => "last_admin",
            (Actor::Administrator(_), AdminError::TooManyRoles(_)) => "too_many_roles",
            (Actor::Administrator(_), AdminError::LinkedToAnother(_)) => "linked_to_another",
            (Actor::Administrator(_), AdminError::LinkReplaced(_)) => "link_replaced",
            (
                Actor::Administrator(_),
                AdminError::Directory(DirectoryError::ReadOnlyEmployees)
                | AdminError::Roles(RoleFault::Directory(DirectoryError::ReadOnlyEmployees)),
            ) => "read_only_employees",
            (Actor::Administrator(_), AdminError::Directory(_) | AdminError::Roles(RoleFault::Directory(_))) => {
                "directory_unavailable"
            }
            (Actor::Administrator(_), AdminError::Store(_) | AdminError::Roles(RoleFault::Store(_))) => {
                "store_unavailable"
            }
            _ => match self.kind() {
                AdminErrorKind::NotFound => "not_there",
                AdminErrorKind::Refused => "refused",
                AdminErrorKind::Failed => "failed",
            },
        }
    }

    pub(super) fn no_such_employee(employee_id: &EmployeeId) -> Self {
        AdminError::NoSuchEmployee { employee_id: employee_id.clone(), similar: None }
    }
}

/// What an administrator's client sees. An ID that no employee can have is answered like an unknown employee.
impl From<AdminError> for Error {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::InvalidEmployeeId(_) | AdminError::InvalidCorpId(_) | AdminError::NoSuchEmployee { .. } => {
                Forbidden::NoSuchEmployee.into()
            }
            AdminError::InvalidRoleName(_) => BadRequest::Parameter("role").into(),
            AdminError::InvalidConnectedCorp(_) | AdminError::MainCorpLink(_) => {
                BadRequest::Parameter("corp_id").into()
            }
            AdminError::InvalidPlatformUser(_) | AdminError::SimilarAccountLinked { .. } => {
                BadRequest::Parameter("platform_user").into()
            }
            AdminError::LinkedToAnother(_) => Forbidden::LinkedToAnother.into(),
            AdminError::LinkReplaced(_) => Forbidden::LinkReplaced.into(),
            AdminError::LastAdmin(_) => Forbidden::LastAdmin.into(),
            AdminError::TooManyRoles(_) => Forbidden::TooManyRoles.into(),
            AdminError::NotAnAgent(_) => Forbidden::NotAnAgent.into(),
            AdminError::Roles(fault) => fault.into(),
            AdminError::Directory(error) => error.into(),
            AdminError::Store(error) | AdminError::SessionsNotEnded(error) => error.into(),
            AdminError::SignIn(error) => error,
            // Raised by commands that have no endpoint.
            error @ (AdminError::EmptyName
            | AdminError::InvalidText { .. }
            | AdminError::EmployeeExists(_)
            | AdminError::SimilarEmployeeExists { .. }
            | AdminError::AgentExists(_)
            | AdminError::RoleFromAgentRecord(..)
            | AdminError::NoSuchSession(_)
            | AdminError::NoSuchLink(_)
            | AdminError::LinkApproved(_)
            | AdminError::OtherEmployeeRequested { .. }
            | AdminError::InvalidLinkFile(_)
            | AdminError::NoSuchKey(_)
            | AdminError::KeySigning(_)
            | AdminError::KeyPending { .. }
            | AdminError::WeakPassword(_)
            | AdminError::PasswordsBusy
            | AdminError::KeyMissing(_)
            | AdminError::Keys(_)) => Error::unexpected(Part::Gateway, error),
        }
    }
}
