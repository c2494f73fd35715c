//! What the platform last said about employees, and the queue of those who are to be asked about again.

use async_trait::async_trait;

use super::DirectoryError;
use super::factors::Account;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId, InactiveReason};
use crate::domain::link::{Link, PlatformAccount};
use crate::domain::write::WriteOutcome;

/// The employee whom the platform was asked about the longest ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecheckEntry {
    /// The employee's corporation.
    pub corp_id: CorpId,
    /// The employee.
    pub employee_id: EmployeeId,
    /// When the platform was last asked.
    pub checked_at: Timestamp,
    /// How many employees are in the queue, as far as they were counted.
    pub queued: usize,
}

impl RecheckEntry {
    /// The account of the employee.
    pub fn account(&self) -> Account<'_> {
        Account { corp_id: &self.corp_id, employee_id: &self.employee_id }
    }
}

/// What shows that an employee is, or was, a member at the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberEvidence {
    /// They signed in through the platform before the directory recorded what it says about them.
    SignedIn,
    /// The platform has called them active.
    CalledActive,
}

/// What the platform says about employees. Does not change sessions.
#[async_trait]
pub trait MembershipRecords: Send + Sync {
    /// Records that the platform called the employee active now.
    async fn record_active(&self, whose: Account<'_>) -> Result<(), DirectoryError>;

    /// What shows that the employee is, or was, a member at the platform; `None` for one whom only an operator added.
    async fn member_evidence(&self, whose: Account<'_>) -> Result<Option<MemberEvidence>, DirectoryError>;

    /// Records that the platform called the account of a link active now.
    async fn record_link_active(&self, account: &PlatformAccount) -> Result<(), DirectoryError>;

    /// Records that the platform called the account of a link inactive now.
    async fn record_link_inactive(&self, account: &PlatformAccount) -> Result<(), DirectoryError>;

    /// Whether other accounts have an approved link to the same employee. Those that the platform last called inactive do
    /// not count.
    async fn has_other_links(&self, link: &Link) -> Result<bool, DirectoryError>;

    /// Whether the platform has ever called the account of a link active.
    async fn is_linked_member(&self, account: &PlatformAccount) -> Result<bool, DirectoryError>;

    /// Whether the employee is the only administrator who may sign in.
    async fn is_last_admin(&self, whose: Account<'_>) -> Result<bool, DirectoryError>;

    /// Disables an employee whom the platform calls inactive, even the last administrator: operators can appoint another one.
    /// Conflicts if the employee is disabled already.
    async fn disable_inactive(
        &self,
        whose: Account<'_>,
        reason: InactiveReason,
    ) -> Result<WriteOutcome, DirectoryError>;

    /// Enables an employee who was disabled because of the platform. Conflicts if an operator disabled them, or no one did.
    async fn enable_returned(&self, whose: Account<'_>) -> Result<WriteOutcome, DirectoryError>;

    /// Adds an employee to the recheck queue, at its end; unchanged if they are in it.
    async fn queue_recheck(&self, whose: Account<'_>) -> Result<(), DirectoryError>;

    /// The head of the recheck queue; `None` if it is empty. Counts at most `most` employees in the queue.
    async fn next_recheck(&self, most: usize) -> Result<Option<RecheckEntry>, DirectoryError>;

    /// Moves the entries whose `checked_at` lies in the future to now: the clock was set back since, and they would not be
    /// due for as long as it lost.
    async fn limit_rechecks(&self) -> Result<(), DirectoryError>;

    /// Moves an entry of the recheck queue as if the platform had been asked at `checked_at`; `None` removes it.
    /// Conflicts if the entry was moved meanwhile.
    async fn move_recheck(
        &self,
        entry: &RecheckEntry,
        checked_at: Option<Timestamp>,
    ) -> Result<WriteOutcome, DirectoryError>;
}
