//! Role names and their priority.

use super::identifier;

identifier! {
    /// The name of a role: `admin`, `agent`, `user`, or another that the directory holds.
    RoleName
}

/// The maximum number of roles per employee; tokens and headers carry all of them.
pub const MOST: usize = 64;

impl RoleName {
    /// The longest role name.
    pub const LONGEST: usize = 64;

    /// The specification's priority: admin, agent, user, then any other.
    pub fn priority(&self) -> u8 {
        match self.as_str() {
            "admin" => 3,
            "agent" => 2,
            "user" => 1,
            _ => 0,
        }
    }

    /// Letters, digits, `_` and `-`, which are safe in a comma-separated header.
    pub fn is_well_formed(text: &str) -> bool {
        !text.is_empty()
            && text.len() <= Self::LONGEST
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    }
}

/// The role in which a session continues after it lost its active role `lost`: the highest of the remaining ones that is
/// not above it. `None` if only higher ones remain: losing a role must not activate `admin` or `agent`.
pub fn highest_after_losing<'a>(lost: &RoleName, remaining: &'a [RoleName]) -> Option<&'a RoleName> {
    // Roles of the operator's own rules have priority 0, but `user` is not above them.
    let ceiling = lost.priority().max(RoleName::new("user").priority());
    highest(remaining.iter().filter(|role| role.priority() <= ceiling))
}

/// The role in which a new token starts: the one of highest priority, the first of equals.
pub fn highest<'a>(roles: impl IntoIterator<Item = &'a RoleName>) -> Option<&'a RoleName> {
    let mut best: Option<&RoleName> = None;
    for role in roles {
        if best.is_none_or(|found| role.priority() > found.priority()) {
            best = Some(role);
        }
    }
    best
}
