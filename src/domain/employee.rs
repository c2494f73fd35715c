//! Employees and their identifiers.

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use super::identifier;

identifier! {
    /// An employee's identifier within a corporation.
    EmployeeId
}

identifier! {
    /// A corporation's identifier on the messaging platform.
    CorpId
}

/// Whether a byte may stand in an identifier.
const LONGEST: usize = 64;

impl EmployeeId {
    /// The platform's grammar: a letter or digit, then up to 63 of letters, digits, `_.@-`.
    pub fn is_well_formed(text: &str) -> bool {
        let mut bytes = text.bytes();
        text.len() <= LONGEST
            && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.@-".contains(&byte))
    }

    /// Folds all spellings of an id into one: compatibility forms such as full-width letters are normalised, and case
    /// is ignored, because platform ids are case-insensitive. Failed attempts are counted under the folded id;
    /// otherwise each spelling would have attempts of its own.
    ///
    /// A longer text is cut, but stays too long to be an id.
    pub fn folded(typed: &str) -> String {
        typed.chars().take(LONGEST + 1).nfkc().collect::<String>().to_lowercase()
    }
}

impl CorpId {
    /// The corporation under which lockouts of unknown names are stored; no corporation can have this id.
    pub fn unknown() -> Self {
        Self::new("")
    }

    /// Letters, digits, `_` and `-`, at most 64.
    pub fn is_well_formed(text: &str) -> bool {
        !text.is_empty()
            && text.len() <= LONGEST
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    }
}

/// Whose tables hold employees, roles and agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmployeeSource {
    /// Ours: sign-ins and operators change them.
    Own,
    /// The help desk's, which we read through views and never change.
    Views,
}

/// Whether an employee may sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The employee may sign in.
    Active,
    /// The employee may not sign in.
    Disabled,
}

/// Why the messaging platform says that a member is not active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InactiveReason {
    /// The corporation disabled the account.
    Disabled,
    /// The account was never activated, or must be activated again.
    NotActivated,
    /// The member left the corporation.
    Left,
    /// The corporation has no such member any more.
    Gone,
}

impl InactiveReason {
    /// Every reason.
    pub const ALL: [InactiveReason; 4] = [Self::Disabled, Self::NotActivated, Self::Left, Self::Gone];

    /// Parses the spelling of [`InactiveReason::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// The name in the directory and in the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            InactiveReason::Disabled => "disabled",
            InactiveReason::NotActivated => "not_activated",
            InactiveReason::Left => "left",
            InactiveReason::Gone => "gone",
        }
    }
}

/// An employee of one corporation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Employee {
    /// The corporation.
    pub corp_id: CorpId,
    /// The id within the corporation.
    pub employee_id: EmployeeId,
    /// Display name.
    pub name: String,
    /// Name of the main department; empty if the platform does not disclose it.
    pub department: String,
    /// Picture URL; empty if the platform does not disclose it.
    pub avatar: String,
    /// Whether the employee may sign in.
    pub standing: Standing,
    /// Why the employee was disabled because of the platform; `None` for an active employee and for one whom an operator
    /// disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<InactiveReason>,
    /// Address of the last sign-in.
    pub last_login_ip: Option<String>,
}

#[cfg(test)]
mod tests;
