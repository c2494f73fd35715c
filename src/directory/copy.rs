//! Copies of a directory: the rows of its tables, out of one directory and into another, whatever their engines are.

use async_trait::async_trait;

use super::DirectoryError;
use crate::domain::write::WriteOutcome;

/// A table that is copied. Signing keys are not: they are encrypted, or files, and `admin::keys` copies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedTable {
    /// Employees.
    Employees,
    /// Names of roles.
    Roles,
    /// Role assignments.
    Assignments,
    /// Agents with their password hashes.
    Agents,
    /// One-time-password devices, with encrypted secrets.
    OtpDevices,
    /// Lockouts.
    Lockouts,
    /// Links of connected corporations' members.
    Links,
    /// The login log.
    LoginLog,
    /// The audit log.
    AuditLog,
}

impl CopiedTable {
    /// Every table, in an order in which no row comes before one that it refers to.
    pub const ALL: [CopiedTable; 9] = [
        Self::Employees,
        Self::Roles,
        Self::Assignments,
        Self::Agents,
        Self::OtpDevices,
        Self::Lockouts,
        Self::Links,
        Self::LoginLog,
        Self::AuditLog,
    ];

    /// What its rows are called.
    pub fn label(self) -> &'static str {
        match self {
            Self::Employees => "employees",
            Self::Roles => "roles",
            Self::Assignments => "role assignments",
            Self::Agents => "agents",
            Self::OtpDevices => "one-time-password devices",
            Self::Lockouts => "lockouts",
            Self::Links => "links",
            Self::LoginLog => "login-log records",
            Self::AuditLog => "audit-log records",
        }
    }

    /// The columns that are copied, in the order of a row's values. Ids that the database generates are not among them: a
    /// role assignment names its role.
    pub fn columns(self) -> &'static [CopiedColumn] {
        use CopiedColumn::{Integer, Text};
        match self {
            Self::Employees => &[
                Text("corp_id"),
                Text("employee_id"),
                Text("name"),
                Text("department"),
                Text("avatar"),
                Integer("disabled"),
                Text("last_login_ip"),
                Integer("created_at"),
                Text("inactive"),
                Integer("platform_active_at"),
                Integer("platform_checked_at"),
                Integer("ever_assigned"),
            ],
            Self::Roles => &[Text("name")],
            Self::Assignments => &[Text("corp_id"), Text("employee_id"), Text("role")],
            Self::Agents => &[
                Text("corp_id"),
                Text("employee_id"),
                Text("role"),
                Text("password_hash"),
                Text("password_id"),
                Integer("otp_required"),
            ],
            Self::OtpDevices => &[
                Text("corp_id"),
                Text("employee_id"),
                Text("secret"),
                Text("pending"),
                Integer("bound_at"),
                Integer("last_verified_at"),
                Integer("last_step"),
            ],
            Self::Lockouts => &[
                Text("corp_id"),
                Text("employee_id"),
                Text("tried"),
                Text("state"),
                Integer("version"),
                Integer("changed_at"),
            ],
            Self::Links => &[
                Text("corp_id"),
                Text("user_id"),
                Text("employee_corp_id"),
                Text("employee_id"),
                Integer("requested_at"),
                Text("approved_by"),
                Integer("approved_at"),
                Integer("platform_active_at"),
                Integer("platform_inactive_at"),
            ],
            Self::LoginLog => &[
                Integer("at"),
                Text("corp_id"),
                Text("employee_id"),
                Text("login_method"),
                Text("login_source"),
                Text("client"),
                Text("ip_address"),
                Text("user_agent"),
                Text("result"),
                Text("reason"),
                Text("platform_account"),
                Integer("sequence"),
                Text("request_id"),
            ],
            Self::AuditLog => &[
                Text("id"),
                Integer("at"),
                Text("corp_id"),
                Text("employee_id"),
                Text("event"),
                Text("by_whom"),
                Text("session_id"),
                Text("detail"),
                Text("refused"),
                Integer("sequence"),
            ],
        }
    }
}

/// A column by its name, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedColumn {
    /// Text.
    Text(&'static str),
    /// A 64-bit integer.
    Integer(&'static str),
}

impl CopiedColumn {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text(name) | Self::Integer(name) => name,
        }
    }
}

/// A value of a column; `None` is NULL.
#[derive(Clone, PartialEq, Eq)]
pub enum CopiedValue {
    /// Text.
    Text(Option<String>),
    /// A 64-bit integer.
    Integer(Option<i64>),
}

/// A row. It has no `Debug`: it may hold password hashes and encrypted secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct CopiedRow {
    /// The values, in the order of [`CopiedTable::columns`].
    pub values: Vec<CopiedValue>,
}

impl CopiedRow {
    /// The text in a column; `None` if it is NULL, no text, or not there.
    pub fn text(&self, column: usize) -> Option<&str> {
        match self.values.get(column) {
            Some(CopiedValue::Text(text)) => text.as_deref(),
            _ => None,
        }
    }
}

/// Where the next page begins, in words of the directory that made it.
#[derive(Clone)]
pub struct RowCursor(pub(super) Vec<CopiedValue>);

/// A page of rows.
pub struct RowPage {
    /// The rows.
    pub rows: Vec<CopiedRow>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<RowCursor>,
}

/// Whether a directory is the copy of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// It is not, or a gateway has used it since.
    Own,
    /// A copy to this directory was begun and is not complete.
    Unfinished,
    /// A complete copy, which no gateway has used yet.
    Complete,
}

/// Names one run of a copy: a run that another one has replaced writes nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRun(String);

impl CopyRun {
    /// A new name.
    pub fn new() -> Self {
        Self(crate::domain::secret::random_name(16))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for CopyRun {
    fn default() -> Self {
        Self::new()
    }
}

/// The rows of a directory, for a copy.
#[async_trait]
pub trait DirectoryCopy: Send + Sync {
    /// Whether this directory is a copy.
    async fn copy_state(&self) -> Result<CopyState, DirectoryError>;

    /// Begins a copy to this directory: removes what an earlier run has copied, and has later runs of other names write
    /// nothing. Conflicts if the directory holds anything that no copy has brought, or that a gateway has used.
    async fn begin_copy(&self, run: &CopyRun) -> Result<WriteOutcome, DirectoryError>;

    /// Inserts rows of a table. Conflicts if another run has begun.
    async fn insert_rows(
        &self,
        run: &CopyRun,
        table: CopiedTable,
        rows: &[CopiedRow],
    ) -> Result<WriteOutcome, DirectoryError>;

    /// Marks the copy complete: gateways may use the directory. Conflicts if another run has begun.
    async fn finish_copy(&self, run: &CopyRun) -> Result<WriteOutcome, DirectoryError>;

    /// Makes a complete copy an ordinary directory, before it is used.
    async fn adopt_copy(&self) -> Result<(), DirectoryError>;

    /// At most `limit` rows of a table.
    async fn rows(
        &self,
        table: CopiedTable,
        after: Option<&RowCursor>,
        limit: usize,
    ) -> Result<RowPage, DirectoryError>;

    /// The number of rows of a table.
    async fn count_rows(&self, table: CopiedTable) -> Result<usize, DirectoryError>;
}
