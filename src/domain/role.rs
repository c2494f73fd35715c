//! Roles and their order.

use super::identifier;

identifier! {
    /// The name of a role: `admin`, `agent`, `user`, or another that the directory holds.
    RoleName
}

/// Most roles that one person holds: tokens and headers carry them all.
pub const MOST: usize = 64;

impl RoleName {
    /// The longest name that is looked at; a longer one is nobody's.
    pub const LONGEST: usize = 64;

    /// The specification's order: admin, agent, user, then any other.
    pub fn priority(&self) -> u8 {
        match self.as_str() {
            "admin" => 3,
            "agent" => 2,
            "user" => 1,
            _ => 0,
        }
    }

    /// Letters, digits, `_` and `-`, as they are safe in a header's comma list.
    pub fn is_well_formed(text: &str) -> bool {
        !text.is_empty()
            && text.len() <= Self::LONGEST
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    }
}

/// The role in which a new token starts: the one of highest priority, the first of equals.
pub fn highest(roles: &[RoleName]) -> Option<&RoleName> {
    let mut best: Option<&RoleName> = None;
    for role in roles {
        if best.is_none_or(|found| role.priority() > found.priority()) {
            best = Some(role);
        }
    }
    best
}
