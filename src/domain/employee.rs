//! Employees as the directory keeps them.

use serde::{Deserialize, Serialize};

use super::identifier;

identifier! {
    /// An employee's identifier within a corporation.
    EmployeeId
}

identifier! {
    /// A corporation's identifier on the messaging platform.
    CorpId
}

impl EmployeeId {
    /// The platform's grammar: a letter or digit, then up to 63 of letters, digits, `_.@-`.
    pub fn is_well_formed(text: &str) -> bool {
        let mut bytes = text.bytes();
        text.len() <= 64
            && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.@-".contains(&byte))
    }
}

impl CorpId {
    /// Letters, digits, `_` and `-`, at most 64.
    pub fn is_well_formed(text: &str) -> bool {
        !text.is_empty()
            && text.len() <= 64
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
