//! Changing who has which role: for administrators and for operators' commands alike. SessionCache sessions follow.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::directory::factors::Account;
use crate::directory::{Directory, DirectoryError, RoleChange};
use crate::domain::employee::{CorpId, EmployeeId, Standing};
use crate::domain::role::RoleName;
use crate::domain::session::{EndCause, Session};
use crate::error::Error;
use crate::sessions::SessionCache;
use crate::store::StoreError;

/// Given or taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Given.
    Grant,
    /// WriteOutcome.
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
    #[error("the change is made, but live sessions may not have followed; do it once more")]
    Store(#[source] StoreError),
}

impl From<StoreError> for RoleFault {
    fn from(error: StoreError) -> Self {
        RoleFault::Store(error)
    }
}

impl From<RoleFault> for Error {
    fn from(fault: RoleFault) -> Self {
        match fault {
            RoleFault::Directory(error) => error.into(),
            RoleFault::Store(error) => error.into(),
        }
    }
}

/// Changes roles.
#[derive(Clone)]
pub struct Roles {
    live: Arc<SessionCache>,
    directory: Arc<dyn Directory>,
    default_role: Option<RoleName>,
}

impl Roles {
    /// On these backends.
    pub fn new(live: Arc<SessionCache>, directory: Arc<dyn Directory>, default_role: Option<RoleName>) -> Self {
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
        match changed {
            RoleChange::NoEmployee | RoleChange::LastAdmin | RoleChange::TooMany => Ok((changed, 0)),
            // Also where nothing was to change: an order before this one may have got as far as the directory only.
            RoleChange::Done | RoleChange::Unchanged => Ok((changed, self.follow(corp_id, employee_id).await?)),
        }
    }

    /// Gives live sessions the roles of now. Returns how many had others.
    pub async fn follow(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<usize, RoleFault> {
        let mut changed = 0;
        let mut roles = self.now(corp_id, employee_id).await?;
        loop {
            changed += self.live.change_roles(corp_id, employee_id, &roles).await?;
            // Two changes at once: the slower must not leave what it has read before the other.
            let newer = self.now(corp_id, employee_id).await?;
            if newer == roles {
                return Ok(changed);
            }
            roles = newer;
        }
    }

    /// The roles that count, as a new sign-in would get them: those of the directory, else the configured one, else none.
    /// Whoever has lost the last role goes on as anybody does.
    pub async fn now(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Vec<RoleName>, RoleFault> {
        let roles = self.directory.roles(corp_id, employee_id).await?;
        Ok(if roles.is_empty() { self.default_role.clone().into_iter().collect() } else { roles })
    }

    /// Lets every live session follow the directory. For a start: a change may have been cut off between the two.
    /// Goes on after a failure, and tells of the last one.
    pub async fn follow_all(&self) -> Result<(), RoleFault> {
        let sessions = self.live.store().all(usize::MAX).await?;
        let mut people: BTreeMap<_, Vec<Session>> = BTreeMap::new();
        for session in sessions {
            people.entry((session.corp_id.clone(), session.employee_id.clone())).or_default().push(session);
        }
        let mut outcome = Ok(());
        for ((corp_id, employee_id), sessions) in people {
            let whose = Account { corp_id: &corp_id, employee_id: &employee_id };
            if let Err(fault) = self.follow_one(whose, &sessions).await {
                outcome = Err(fault);
            }
        }
        outcome
    }

    async fn follow_one(&self, whose: Account<'_>, sessions: &[Session]) -> Result<(), RoleFault> {
        let Account { corp_id, employee_id } = whose;
        let employee = self.directory.employee(corp_id, employee_id).await?;
        if !employee.is_some_and(|employee| employee.standing == Standing::Active) {
            self.live.end_all_of(corp_id, employee_id, EndCause::RolesLost).await?;
            return Ok(());
        }
        self.follow(corp_id, employee_id).await?;
        if sessions.iter().any(|session| session.password_id.is_some()) {
            let password = self.directory.agent(whose).await?.and_then(|agent| agent.password);
            let id = password.map(|password| password.id);
            let of_another = |session: &Session| session.password_id.is_some() && session.password_id != id;
            self.live.end_those_of(corp_id, employee_id, EndCause::Operator, of_another).await?;
        }
        Ok(())
    }
}
