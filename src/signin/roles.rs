//! Changing who has which role: for administrators and for operators' commands alike. Live sessions follow.

use std::sync::Arc;

use super::session::or_default;
use crate::directory::{Directory, DirectoryError, RoleChange};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::RoleName;
use crate::store::StoreError;
use crate::store::live::Live;

/// Given or taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Given.
    Grant,
    /// Taken.
    Take,
}

impl Change {
    /// As the log spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Grant => "grant",
            Change::Take => "take",
        }
    }
}

/// Why a role was not changed.
#[derive(Debug, thiserror::Error)]
pub enum RoleFault {
    /// The directory failed.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The store failed: the directory is changed, live sessions may not have followed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Changes roles.
#[derive(Clone)]
pub struct Roles {
    live: Arc<Live>,
    directory: Arc<dyn Directory>,
    default_role: Option<RoleName>,
}

impl Roles {
    /// On these backends.
    pub fn new(live: Arc<Live>, directory: Arc<dyn Directory>, default_role: Option<RoleName>) -> Self {
        Self { live, directory, default_role }
    }

    /// Changes a role, and with it the live sessions: their number comes back beside what became of it.
    pub async fn change(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        role: &RoleName,
        change: Change,
    ) -> Result<(RoleChange, usize), RoleFault> {
        let changed = match change {
            Change::Grant => self.directory.grant(corp_id, employee_id, role).await?,
            Change::Take => self.directory.take(corp_id, employee_id, role).await?,
        };
        if changed != RoleChange::Done {
            return Ok((changed, 0));
        }
        Ok((changed, self.follow(corp_id, employee_id).await?))
    }

    /// Gives live sessions the roles of now. Returns how many there are.
    pub async fn follow(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<usize, RoleFault> {
        let roles = self.directory.roles(corp_id, employee_id).await?;
        // What a new sign-in would get: whoever loses the last role goes on as anybody does.
        let roles = or_default(roles, self.default_role.as_ref());
        Ok(self.live.change_roles(corp_id, employee_id, &roles).await?)
    }
}
