//! Employees, roles, agents and the login log.

use std::time::Duration;

use async_trait::async_trait;

use crate::domain::client::Client;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::role::RoleName;
use crate::domain::session::{LoginMethod, LoginSource};
use crate::error::{Error, Part};
use audit::AuditLog;
use factors::Factors;
use people::People;

mod development;

pub mod audit;

pub mod factors;

pub mod people;

pub mod sql;

/// Why the directory could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It cannot be reached or written.
    #[error("the directory is unavailable")]
    Unavailable(#[source] crate::error::Cause),
}

impl From<DirectoryError> for Error {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Unavailable(cause) => Error::Unavailable { part: Part::Directory, cause: Some(cause) },
        }
    }
}

/// What the platform told about somebody who signs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmployeeProfile<'a> {
    /// Their corporation.
    pub corp_id: &'a CorpId,
    /// Who they are.
    pub employee_id: &'a EmployeeId,
    /// Display name; empty keeps the one on record.
    pub name: &'a str,
    /// Department's name; empty keeps the one on record.
    pub department: &'a str,
    /// Picture's address; empty keeps the one on record.
    pub avatar: &'a str,
}

/// How a sign-in ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginResult {
    /// A token was issued.
    Success,
    /// It was refused; the word says why.
    Refused(&'static str),
}

/// One line of the login log.
#[derive(Debug, Clone)]
pub struct LoginRecord<'a> {
    /// The person's corporation, as far as known.
    pub corp_id: &'a str,
    /// The person, as far as known.
    pub employee_id: &'a str,
    /// How they signed in.
    pub method: LoginMethod,
    /// Where; nothing if no page is known.
    pub source: Option<LoginSource>,
    /// The web client that asked; nothing if none did, or if it is not known which.
    pub client: Option<Client>,
    /// From which address.
    pub address: &'a str,
    /// With which `User-Agent`.
    pub user_agent: &'a str,
    /// How it ended.
    pub result: LoginResult,
}

/// One line of the login log, as operators read it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LoginEntry {
    /// When.
    pub at: Timestamp,
    /// The person's corporation; empty if it was not known.
    pub corp_id: String,
    /// The person; empty if it was not known.
    pub employee_id: String,
    /// How they signed in.
    pub login_method: String,
    /// Where; empty if no page was known.
    pub login_source: String,
    /// The web client that asked; empty if none was known.
    pub client: String,
    /// From which address.
    pub ip_address: String,
    /// With which `User-Agent`.
    pub user_agent: String,
    /// `success` or `refused`.
    pub result: String,
    /// Why it was refused; empty on success.
    pub reason: String,
}

/// One role of one employee, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Assignment {
    /// The employee's corporation.
    pub corp_id: CorpId,
    /// The employee.
    pub employee_id: EmployeeId,
    /// Their name.
    pub name: String,
    /// The role.
    pub role: RoleName,
}

/// What became of a change of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleChange {
    /// It was made.
    Done,
    /// It was so already.
    Unchanged,
    /// There is no such employee.
    NoEmployee,
    /// Nobody else is an administrator: somebody must be.
    LastAdmin,
    /// The employee has as many roles as one can have.
    TooMany,
}

/// Which assignments are asked for.
#[derive(Debug, Clone, Copy)]
pub struct AssignmentQuery<'a> {
    /// Of this role only.
    pub role: Option<&'a str>,
    /// Of this employee only.
    pub employee_id: Option<&'a str>,
    /// How many come before.
    pub skip: usize,
    /// How many at most.
    pub limit: usize,
}

/// Some of the assignments, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignments {
    /// Those asked for, by employee.
    pub items: Vec<Assignment>,
    /// All that fit.
    pub total: usize,
}

/// Employees, their roles and factors, and the two logs.
#[async_trait]
pub trait Directory: AuditLog + Factors + People {
    /// The employee of this corporation and id.
    async fn employee(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Option<Employee>, DirectoryError>;

    /// Creates the employee on their first sign-in, refreshes what the platform told on later ones.
    /// Never changes their standing.
    async fn upsert_employee(&self, profile: EmployeeProfile<'_>) -> Result<Employee, DirectoryError>;

    /// The roles assigned to an employee, else the one of their agent record, else none. In order of
    /// priority, then of name.
    async fn roles(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Vec<RoleName>, DirectoryError>;

    /// The roles assigned through role assignments alone, as binding wants them.
    async fn assigned_roles(&self, corp_id: &CorpId, employee_id: &EmployeeId)
    -> Result<Vec<RoleName>, DirectoryError>;

    /// All assignments, at most `limit`, by employee.
    async fn assignments(&self, limit: usize) -> Result<Vec<Assignment>, DirectoryError>;

    /// Those that fit, some of them.
    async fn assignments_page(&self, asked: AssignmentQuery<'_>) -> Result<Assignments, DirectoryError>;

    /// Gives a role.
    async fn grant(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
    ) -> Result<RoleChange, DirectoryError>;

    /// Takes a role. The last administrator keeps theirs.
    async fn take(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
    ) -> Result<RoleChange, DirectoryError>;

    /// Everybody, or those whose id, name or department has this text in it, at most `limit`, by id.
    async fn employees(&self, text: Option<&str>, limit: usize) -> Result<Vec<Employee>, DirectoryError>;

    /// Writes the login log, and the employee's last address on success. A sign-in that cannot be
    /// recorded does not succeed, so this comes before the token is handed out.
    async fn record_login(&self, record: LoginRecord<'_>) -> Result<(), DirectoryError>;

    /// The login log, of one employee or of all, newest first, at most `limit` lines.
    async fn logins(&self, employee_id: Option<&str>, limit: usize) -> Result<Vec<LoginEntry>, DirectoryError>;

    /// Removes what is older than `kept` from the login log.
    async fn prune_login_log(&self, kept: Duration) -> Result<(), DirectoryError>;

    /// Whether it can be read now.
    async fn ready(&self) -> Result<(), DirectoryError>;
}
