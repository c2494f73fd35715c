//! Links between accounts of connected corporations and employees.

use std::time::Duration;

use async_trait::async_trait;

use super::DirectoryError;
use super::factors::Account;
use crate::domain::employee::CorpId;
use crate::domain::link::{Link, LinkState, PlatformAccount};
use crate::domain::write::WriteOutcome;

/// The result of a request for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkRequestOutcome {
    /// The link waits for approval.
    Requested,
    /// Refused: the account has an approved link.
    AlreadyLinked,
    /// Refused: there is no such employee.
    NoEmployee,
    /// Refused: too many requests of the corporation wait for approval.
    TooMany,
}

/// The result of approving a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkApproval {
    /// The link is approved now.
    Done,
    /// It was approved before.
    Unchanged,
    /// Refused: the account has an approved link to another employee.
    LinkedToAnother,
    /// Refused: there is no such employee.
    NoEmployee,
}

/// Filter and page of a query for links.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkQuery<'a> {
    /// Only links to employees of this corporation.
    pub employee_corp_id: Option<&'a CorpId>,
    /// Only links to this employee.
    pub employee_id: Option<&'a str>,
    /// Only links of this connected corporation's members.
    pub corp_id: Option<&'a str>,
    /// Only links in this state.
    pub state: Option<LinkState>,
    /// How many rows to skip.
    pub skip: usize,
    /// The maximum number of rows.
    pub limit: usize,
}

/// A page of links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPage {
    /// The page: pending links first, then by account.
    pub items: Vec<Link>,
    /// The number of matching links.
    pub total: usize,
}

/// Reads and changes links. Sessions are not touched.
#[async_trait]
pub trait Links: Send + Sync {
    /// The link of a platform account.
    async fn link(&self, account: &PlatformAccount) -> Result<Option<Link>, DirectoryError>;

    /// An account with a link whose id is another spelling of this account's.
    async fn other_spelling(&self, account: &PlatformAccount) -> Result<Option<PlatformAccount>, DirectoryError>;

    /// The connected corporations that have links, in order.
    async fn linked_corps(&self) -> Result<Vec<CorpId>, DirectoryError>;

    /// One page of the matching links.
    async fn links(&self, query: LinkQuery<'_>) -> Result<LinkPage, DirectoryError>;

    /// Makes a pending link, or points the account's pending link at this employee. Refused if `max_pending` links of
    /// other members of the account's corporation are pending.
    async fn request_link(
        &self,
        account: &PlatformAccount,
        employee: Account<'_>,
        max_pending: usize,
    ) -> Result<LinkRequestOutcome, DirectoryError>;

    /// Approves the link from this account to this employee, and makes it if there is none. Replaces a pending link to
    /// another employee, and an automatic approval by a person's.
    async fn approve_link(
        &self,
        account: &PlatformAccount,
        employee: Account<'_>,
        by: &str,
    ) -> Result<LinkApproval, DirectoryError>;

    /// Makes an automatically approved link pending. Conflicts if it is none.
    async fn withdraw_automatic_approval(&self, account: &PlatformAccount) -> Result<WriteOutcome, DirectoryError>;

    /// Removes the link from this account to this employee, only one in `state` if given. Conflicts if there is none.
    async fn remove_link(
        &self,
        account: &PlatformAccount,
        employee: Account<'_>,
        state: Option<LinkState>,
    ) -> Result<WriteOutcome, DirectoryError>;

    /// Deletes requests that have been pending for longer than `kept`.
    async fn prune_link_requests(&self, kept: Duration) -> Result<(), DirectoryError>;
}
