//! The directory of employees, roles, agents, links and second factors, with the login log and the audit log. It does not
//! touch sessions: `admin` and `signin` apply its changes to them.

use std::time::Duration;

use async_trait::async_trait;

use crate::domain::client::Client;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::link::PlatformAccount;
use crate::domain::role::RoleName;
use crate::domain::session::{LoginMethod, LoginSource};
use crate::error::{Error, Forbidden, Part};
use crate::sqlite::SqliteFileError;
use access::AccessRecords;
use audit::AuditLog;
use copy::DirectoryCopy;
use factors::Factors;
use keys::KeyRecords;
use links::Links;
use membership::MembershipRecords;
use people::People;

mod development;

pub mod access;

pub mod audit;

pub mod copy;

pub mod factors;

pub mod keys;

pub mod links;

pub mod membership;

pub mod people;

pub mod sql;

/// Why a directory operation failed.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory cannot be reached or written.
    #[error("the directory is unavailable")]
    Unavailable(#[source] crate::error::Cause),
    /// Its contents are not what was written.
    #[error("the directory is damaged")]
    Damaged(#[source] crate::error::Cause),
    /// Another program or a newer version has written it.
    #[error("{0}")]
    Incompatible(String),
    /// Employees, roles and agents are the help desk's.
    #[error(
        "employees, roles and agents are the help desk's (directory.employees = \"views\"); change them in the help desk"
    )]
    ReadOnlyEmployees,
    /// The help desk has no such employee, and we cannot add one.
    #[error("the help desk has no such employee")]
    UnknownEmployee,
}

impl From<DirectoryError> for Error {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Unavailable(cause) => Error::Unavailable { part: Part::Directory, cause: Some(cause) },
            DirectoryError::Damaged(cause) => Error::unexpected(Part::Directory, cause),
            DirectoryError::ReadOnlyEmployees => Forbidden::ReadOnlyEmployees.into(),
            DirectoryError::UnknownEmployee => Forbidden::NotAnEmployee.into(),
            DirectoryError::Incompatible(why) => Error::unexpected(Part::Directory, why),
        }
    }
}

impl From<SqliteFileError> for DirectoryError {
    fn from(error: SqliteFileError) -> Self {
        match error {
            SqliteFileError::Unavailable(cause) => DirectoryError::Unavailable(cause),
            SqliteFileError::Damaged(cause) => DirectoryError::Damaged(cause),
        }
    }
}

/// An employee's profile, as the platform or an operator gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmployeeProfile<'a> {
    /// The employee's corporation.
    pub corp_id: &'a CorpId,
    /// The employee's id there.
    pub employee_id: &'a EmployeeId,
    /// Display name; empty keeps the stored one.
    pub name: &'a str,
    /// Department name; empty keeps the stored one.
    pub department: &'a str,
    /// Picture URL; empty keeps the stored one.
    pub avatar: &'a str,
}

/// The result of a sign-in attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginResult {
    /// A token was issued.
    Success,
    /// It was refused, for this reason.
    Refused(&'static str),
}

/// A login-log record to be written.
#[derive(Debug, Clone)]
pub struct LoginRecord<'a> {
    /// The employee's corporation, if known, else empty.
    pub corp_id: &'a str,
    /// The employee, if known, else empty.
    pub employee_id: &'a str,
    /// The sign-in method.
    pub method: LoginMethod,
    /// The page that the employee signed in at, if known.
    pub source: Option<LoginSource>,
    /// The web client, if known.
    pub client: Option<Client>,
    /// The client address.
    pub address: &'a str,
    /// The `User-Agent` header.
    pub user_agent: &'a str,
    /// The account of a connected corporation that signs in as the employee.
    pub platform_account: Option<&'a PlatformAccount>,
    /// The request id; empty without a request.
    pub request_id: &'a str,
    /// The result.
    pub result: LoginResult,
}

/// Which login-log records to read.
#[derive(Debug, Clone, Default)]
pub struct LoginQuery {
    /// Only this employee's, of any corporation.
    pub employee_id: Option<String>,
    /// Only those written then or later.
    pub since: Option<Timestamp>,
    /// Only successes, or only refusals.
    pub outcome: Option<LoginOutcome>,
}

/// Whether a sign-in attempt succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginOutcome {
    /// A token was issued.
    Success,
    /// It was refused.
    Refused,
}

impl LoginOutcome {
    /// The word in the login log.
    pub fn as_str(self) -> &'static str {
        match self {
            LoginOutcome::Success => "success",
            LoginOutcome::Refused => "refused",
        }
    }
}

/// A stored login-log record.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LoginEntry {
    /// When it was written.
    pub at: Timestamp,
    /// The employee's corporation; empty if unknown.
    pub corp_id: String,
    /// The employee; empty if unknown.
    pub employee_id: String,
    /// The sign-in method.
    pub login_method: String,
    /// The page that the employee signed in at; empty if unknown.
    pub login_source: String,
    /// The web client; empty if unknown.
    pub client: String,
    /// The client address.
    pub ip_address: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// `success` or `refused`.
    pub result: String,
    /// The reason of a refusal; empty on success.
    pub reason: String,
    /// The account of a connected corporation that signed in as the employee; empty without one.
    #[serde(default)]
    pub platform_account: String,
    /// The request id; empty without a request, and in records of older versions.
    #[serde(default)]
    pub request_id: String,
}

/// A role assignment.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Assignment {
    /// The employee's corporation.
    pub corp_id: CorpId,
    /// The employee.
    pub employee_id: EmployeeId,
    /// The employee's name.
    pub name: String,
    /// The role.
    pub role: RoleName,
}

/// The roles that the directory holds for an employee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedRoles {
    /// What is left of the assigned roles, by priority, then by name. Nothing replaces an assignment that was removed.
    Assigned(Vec<RoleName>),
    /// No role was ever assigned; the role of the agent record, if there is one.
    NeverAssigned(Option<RoleName>),
}

impl RecordedRoles {
    /// The roles; `default` for an employee who has no agent record and never had an assignment.
    pub fn or_default(self, default: Option<&RoleName>) -> Vec<RoleName> {
        match self {
            RecordedRoles::Assigned(roles) => roles,
            RecordedRoles::NeverAssigned(role) => role.or_else(|| default.cloned()).into_iter().collect(),
        }
    }
}

/// The result of a change that could affect roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleChange {
    /// The change was made.
    Done,
    /// Nothing had to change.
    Unchanged,
    /// There is no such employee.
    NoEmployee,
    /// Refused: no administrator would be left.
    LastAdmin,
    /// Refused: the employee has the maximum number of roles.
    TooMany,
}

/// Filter and page of a role-assignment query.
#[derive(Debug, Clone, Copy)]
pub struct AssignmentQuery<'a> {
    /// Only employees of this corporation.
    pub corp_id: Option<&'a CorpId>,
    /// Only this role.
    pub role: Option<&'a str>,
    /// Only this employee.
    pub employee_id: Option<&'a str>,
    /// How many rows to skip.
    pub skip: usize,
    /// The maximum number of rows.
    pub limit: usize,
}

/// A page of role assignments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignments {
    /// The page, ordered by employee.
    pub items: Vec<Assignment>,
    /// The number of matching assignments.
    pub total: usize,
}

/// A setting of the database server with which it can lose changes that it has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurabilityRisk {
    /// A commit is acknowledged before it is on disk.
    AsynchronousCommit,
    /// Nothing is forced to disk.
    NoSync,
    /// A power failure can leave half-written pages.
    TornPages,
}

/// Employees, their roles and factors, the login log and the audit log.
#[async_trait]
pub trait Directory:
    AccessRecords + AuditLog + DirectoryCopy + Factors + KeyRecords + Links + MembershipRecords + People
{
    /// The employee with this corporation and id.
    async fn employee(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Option<Employee>, DirectoryError>;

    /// Creates the employee on the first sign-in and refreshes the profile on later ones. Never changes whether the
    /// employee is disabled.
    async fn upsert_employee(&self, profile: EmployeeProfile<'_>) -> Result<Employee, DirectoryError>;

    /// The roles assigned to an employee; the role of the agent record if none was ever assigned. An unknown employee has
    /// none.
    async fn roles(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<RecordedRoles, DirectoryError>;

    /// The roles from role assignments alone, which binding requires.
    async fn assigned_roles(&self, corp_id: &CorpId, employee_id: &EmployeeId)
    -> Result<Vec<RoleName>, DirectoryError>;

    /// At most `limit` role assignments, by employee.
    async fn assignments(&self, limit: usize) -> Result<Vec<Assignment>, DirectoryError>;

    /// One page of the matching role assignments.
    async fn assignments_page(&self, query: AssignmentQuery<'_>) -> Result<Assignments, DirectoryError>;

    /// Assigns a role. From then on, the role of the agent record and the default role do not apply.
    async fn grant(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
    ) -> Result<RoleChange, DirectoryError>;

    /// Removes a role assignment, except the last administrator's. The employee keeps the other assigned roles and gets
    /// none in its place.
    async fn take(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
    ) -> Result<RoleChange, DirectoryError>;

    /// At most `limit` employees, by id; only those whose id, name or department contains `text`, if given.
    async fn employees(&self, text: Option<&str>, limit: usize) -> Result<Vec<Employee>, DirectoryError>;

    /// Writes a login-log record and, on success, the employee's last address. If this write fails, so does the sign-in:
    /// it comes before the token is issued.
    async fn record_login(&self, record: LoginRecord<'_>) -> Result<(), DirectoryError>;

    /// At most `limit` of these login-log records, newest first.
    async fn logins(&self, query: &LoginQuery, limit: usize) -> Result<Vec<LoginEntry>, DirectoryError>;

    /// Deletes login-log records older than `kept`.
    async fn prune_login_log(&self, kept: Duration) -> Result<(), DirectoryError>;

    /// Checks that the directory can be read and written now.
    async fn ready(&self) -> Result<(), DirectoryError>;

    /// How the database server is set up to lose acknowledged changes; nothing for a file of our own.
    async fn durability_risks(&self) -> Result<Vec<DurabilityRisk>, DirectoryError>;

    /// Resolves when a task of the directory has died, so that it cannot be written any more.
    async fn failure(&self);

    /// Completes every write that was accepted and closes the directory. Later writes fail.
    async fn close(&self);
}
