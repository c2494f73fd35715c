//! Employees as the directory keeps them.

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

/// Letters of an identifier.
const LONGEST: usize = 64;

impl EmployeeId {
    /// The platform's grammar: a letter or digit, then up to 63 of letters, digits, `_.@-`.
    pub fn is_well_formed(text: &str) -> bool {
        let mut bytes = text.bytes();
        text.len() <= LONGEST
            && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.@-".contains(&byte))
    }

    /// The one spelling that stands for all spellings of a name that somebody typed: full-width and other
    /// compatibility forms made plain, and lower case, because the platform's identifiers know no case. Whoever
    /// counts tries counts them under this, or each spelling would have tries of its own.
    ///
    /// Of a longer text only so much is taken that it still is too long for an identifier.
    pub fn folded(typed: &str) -> String {
        typed.chars().take(LONGEST + 1).nfkc().collect::<String>().to_lowercase()
    }
}

impl CorpId {
    /// Where names are kept that are nobody's: under an identifier that no corporation can have.
    pub fn of_nobody() -> Self {
        Self::new("")
    }

    /// Letters, digits, `_` and `-`, at most 64.
    pub fn is_well_formed(text: &str) -> bool {
        !text.is_empty()
            && text.len() <= LONGEST
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    }
}

/// Whether an employee may sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// May sign in.
    Active,
    /// May not.
    Disabled,
}

/// One person of one corporation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Employee {
    /// Whose employee.
    pub corp_id: CorpId,
    /// Which one.
    pub employee_id: EmployeeId,
    /// Display name.
    pub name: String,
    /// Name of the main department; empty when the platform does not tell.
    pub department: String,
    /// Address of a picture; empty when the platform does not tell.
    pub avatar: String,
    /// Whether they may sign in.
    pub standing: Standing,
    /// Address of the last sign-in.
    pub last_login_ip: Option<String>,
}

#[cfg(test)]
mod tests;
