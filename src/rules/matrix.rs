//! The matrix: which role may do what with which resource, and on whose.

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderValue;

use crate::domain::role::RoleName;

/// The roles that are always known; a `[matrix.<role>]` of another name makes that one known, too.
pub const ROLES: [&str; 5] = ["user", "agent", "supervisor", "security", "admin"];

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$of])* $variant),+ }

        impl $name {
            /// Every word.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The value of a word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }

            /// As files and headers spell it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What is acted on.
    Resource {
        /// Conversations and their messages.
        Conversations = "conversations",
        /// Approvals.
        Approvals = "approvals",
        /// The knowledge base.
        Knowledge = "knowledge",
        /// Everything that keeps the service running.
        System = "system",
    }
}

words! {
    /// What is done.
    Operation {
        /// Look.
        Read = "read",
        /// Make.
        Create = "create",
        /// Change.
        Update = "update",
        /// Remove.
        Delete = "delete",
    }
}

words! {
    /// On whose.
    Scope {
        /// The caller's own.
        Own = "own",
        /// The caller's department's.
        Department = "department",
        /// Everybody's.
        All = "all",
    }
}

impl Scope {
    /// For `X-Deskgate-Scope`.
    pub fn to_value(self) -> HeaderValue {
        HeaderValue::from_static(self.as_str())
    }
}

/// The matrix of a set of rule files. What is not written is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matrix {
    grants: BTreeMap<(Resource, Operation), Vec<(RoleName, Scope)>>,
    roles: Vec<String>,
}

impl Matrix {
    /// Makes a role known.
    pub(super) fn know(&mut self, role: &str) {
        if !self.knows(role) {
            self.roles.push(role.to_owned());
        }
    }

    /// Whether rules may name this role.
    pub(super) fn knows(&self, role: &str) -> bool {
        ROLES.contains(&role) || self.roles.iter().any(|known| known == role)
    }

    /// All roles that rules may name.
    pub(super) fn known(&self) -> String {
        let further = self.roles.iter().map(String::as_str).filter(|role| !ROLES.contains(role));
        ROLES.into_iter().chain(further).collect::<Vec<_>>().join(", ")
    }

    /// Grants something to a role; tells whether it had it already.
    pub(super) fn grant(
        &mut self,
        role: &str,
        resource: Resource,
        operation: Operation,
        scope: Scope,
    ) -> Result<(), Twice> {
        let row = self.grants.entry((resource, operation)).or_default();
        if row.iter().any(|(granted, _)| granted.as_str() == role) {
            return Err(Twice);
        }
        row.push((RoleName::new(role), scope));
        Ok(())
    }

    /// Who may, and on whose.
    pub(super) fn row(&self, resource: Resource, operation: Operation) -> Box<[(RoleName, Scope)]> {
        self.grants.get(&(resource, operation)).cloned().unwrap_or_default().into()
    }
}

/// A grant that was given before.
#[derive(Debug)]
pub(super) struct Twice;

/// `resource:operation`, with the matrix's answer for every role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixAccess {
    /// What is acted on.
    pub resource: Resource,
    /// What is done.
    pub operation: Operation,
    pub(super) row: Box<[(RoleName, Scope)]>,
}

impl MatrixAccess {
    /// The scope that a role has; nothing when it may not.
    pub fn scope(&self, role: &RoleName) -> Option<Scope> {
        self.row.iter().find(|(granted, _)| granted == role).map(|(_, scope)| *scope)
    }
}

impl fmt::Display for MatrixAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.resource, self.operation)
    }
}
