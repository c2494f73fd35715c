//! The matrix: which role may perform which operation on which resource, and in which scope.

use std::collections::BTreeMap;
use std::fmt;

use crate::domain::role::RoleName;
use crate::domain::scope::Scope;
use crate::domain::words;

/// The built-in roles; `[matrix.<role>]` defines further ones.
pub const ROLES: [&str; 5] = ["user", "agent", "supervisor", "security", "admin"];

words! {
    /// What a request acts on.
    Resource {
        /// Conversations and their messages.
        Conversations = "conversations",
        /// Approvals.
        Approvals = "approvals",
        /// The knowledge base.
        Knowledge = "knowledge",
        /// Devices and diagnostics.
        System = "system",
    }
}

words! {
    /// What a request does.
    MatrixOperation {
        /// Reads.
        Read = "read",
        /// Creates.
        Create = "create",
        /// Changes.
        Update = "update",
        /// Deletes.
        Delete = "delete",
    }
}

/// The matrix of a set of rule files. What it does not grant is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matrix {
    grants: BTreeMap<(Resource, MatrixOperation), Vec<(RoleName, Scope)>>,
    roles: Vec<String>,
}

impl Matrix {
    /// Defines a role.
    pub(super) fn define(&mut self, role: &str) {
        if !self.knows(role) {
            self.roles.push(role.to_owned());
        }
    }

    /// Whether the role is defined.
    pub(super) fn knows(&self, role: &str) -> bool {
        ROLES.contains(&role) || self.roles.iter().any(|known| known == role)
    }

    /// All defined roles, for faults.
    pub(super) fn known(&self) -> String {
        let further = self.roles.iter().map(String::as_str).filter(|role| !ROLES.contains(role));
        ROLES.into_iter().chain(further).collect::<Vec<_>>().join(", ")
    }

    /// Adds a grant; fails if the role already has it.
    pub(super) fn grant(
        &mut self,
        role: &str,
        resource: Resource,
        operation: MatrixOperation,
        scope: Scope,
    ) -> Result<(), DuplicateGrant> {
        let row = self.grants.entry((resource, operation)).or_default();
        if row.iter().any(|(granted, _)| granted.as_str() == role) {
            return Err(DuplicateGrant);
        }
        row.push((RoleName::new(role), scope));
        Ok(())
    }

    /// The roles that have a grant, with their scopes.
    pub(super) fn row(&self, resource: Resource, operation: MatrixOperation) -> Box<[(RoleName, Scope)]> {
        self.grants.get(&(resource, operation)).cloned().unwrap_or_default().into()
    }
}

/// The role already has this grant.
#[derive(Debug)]
pub(super) struct DuplicateGrant;

/// `resource:operation`, with the scope of every role that the matrix grants it to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixAccess {
    /// The resource.
    pub resource: Resource,
    /// The operation.
    pub operation: MatrixOperation,
    pub(super) row: Box<[(RoleName, Scope)]>,
}

impl MatrixAccess {
    /// The scope of a role; `None` if the matrix does not grant it.
    pub fn scope(&self, role: &RoleName) -> Option<Scope> {
        self.row.iter().find(|(granted, _)| granted == role).map(|(_, scope)| *scope)
    }
}

impl fmt::Display for MatrixAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.resource, self.operation)
    }
}
