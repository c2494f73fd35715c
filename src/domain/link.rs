//! Links: which account of a connected corporation signs in as which employee.

use serde::{Deserialize, Serialize};

use super::clock::Timestamp;
use super::employee::{CorpId, EmployeeId};
use super::identifier;

identifier! {
    /// A member's identifier on the messaging platform, within a connected corporation.
    PlatformUserId
}

impl PlatformUserId {
    /// The platform's grammar, which employee ids share.
    pub fn is_well_formed(text: &str) -> bool {
        EmployeeId::is_well_formed(text)
    }

    /// Folds all spellings into one: the platform's ids are unique whatever their case.
    pub fn folded(&self) -> String {
        EmployeeId::folded(self.as_str())
    }
}

/// A member of a connected corporation, as the messaging platform identifies them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlatformAccount {
    /// The connected corporation.
    pub corp_id: CorpId,
    /// The member's id there.
    pub user_id: PlatformUserId,
}

impl PlatformAccount {
    /// Reads the platform's own spelling, `corporation/user`.
    pub fn parse(text: &str) -> Option<Self> {
        let (corp_id, user_id) = text.split_once('/')?;
        let well_formed = CorpId::is_well_formed(corp_id) && PlatformUserId::is_well_formed(user_id);
        well_formed.then(|| Self { corp_id: CorpId::new(corp_id), user_id: PlatformUserId::new(user_id) })
    }
}

impl std::fmt::Display for PlatformAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.corp_id, self.user_id)
    }
}

/// Whether a link signs its account in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// The account's owner asked for it; nobody has approved it.
    Pending,
    /// The account signs in as the employee.
    Approved,
}

impl LinkState {
    /// Parses the spelling of [`LinkState::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Pending, Self::Approved].into_iter().find(|state| state.as_str() == word)
    }

    /// The name in lists.
    pub fn as_str(self) -> &'static str {
        match self {
            LinkState::Pending => "pending",
            LinkState::Approved => "approved",
        }
    }
}

/// Who approved a link, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// An employee id, `uid 1000` for an operator, or [`Approval::AUTOMATIC`].
    pub by: String,
    /// When it was approved.
    pub at: Timestamp,
}

impl Approval {
    /// The approver of a link that `bind.approval = "none"` let in. No person has looked at it, so it is valid only as
    /// long as the employee has no role but `user`. No employee id has a space.
    pub const AUTOMATIC: &'static str = "setting bind.approval";
}

/// A platform account and the employee that it signs in as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The platform account.
    pub account: PlatformAccount,
    /// The employee's corporation.
    pub corp_id: CorpId,
    /// The employee.
    pub employee_id: EmployeeId,
    /// When it was requested or, without a request, added.
    pub requested_at: Timestamp,
    /// The approval; `None` while the link is pending.
    pub approval: Option<Approval>,
    /// When the platform called the account inactive; `None` if it has not, or has called it active since.
    pub gone_at: Option<Timestamp>,
}

impl Link {
    /// Whether the link signs in.
    pub fn state(&self) -> LinkState {
        if self.approval.is_some() { LinkState::Approved } else { LinkState::Pending }
    }

    /// Whether the link leads to this employee.
    pub fn leads_to(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> bool {
        (&self.corp_id, &self.employee_id) == (corp_id, employee_id)
    }

    /// Whether no person approved the link: `bind.approval = "none"` did.
    pub fn is_automatic(&self) -> bool {
        self.approval.as_ref().is_some_and(|approval| approval.by == Approval::AUTOMATIC)
    }
}
