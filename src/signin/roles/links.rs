//! What links depend on roles for: an automatic approval is valid only while the employee has no role but `user`, and
//! the sessions of a link end with it.

use std::collections::BTreeSet;

use super::{RoleFault, Roles};
use crate::directory::audit::{AuditRecord, Event};
use crate::directory::factors::Account;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::link::{Approval, Link, PlatformAccount};
use crate::domain::role::RoleName;
use crate::domain::session::{EndCause, Session};
use crate::signin::audit::Audit;

/// The only role that `bind.approval = "none"` lets in.
const USER: &str = "user";

impl Roles {
    /// The approved link of a platform account. An automatic approval is withdrawn here once the employee has another
    /// role than `user`: no person has approved that the account gets it.
    pub async fn approved_link(&self, account: &PlatformAccount) -> Result<Option<Link>, RoleFault> {
        let link = self.directory.link(account).await?.filter(|link| link.approval.is_some());
        match link {
            Some(link) if link.is_automatic() && !self.is_only_user(&link.corp_id, &link.employee_id).await? => {
                self.withdraw(&link).await?;
                Ok(None)
            }
            link => Ok(link),
        }
    }

    /// Whether an employee has no role but `user`. The role of an agent record counts, also if assignments override it.
    pub async fn is_only_user(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<bool, RoleFault> {
        let mut roles = self.effective(corp_id, employee_id).await?;
        roles.extend(self.directory.agent(Account { corp_id, employee_id }).await?.map(|agent| agent.role));
        Ok(is_only_user(&roles))
    }

    /// Ends the sessions of an employee whose link is gone, pending or leads to another employee. Returns their number.
    pub async fn end_unlinked_sessions(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<usize, RoleFault> {
        let sessions = self.sessions.store().of_employee(corp_id, employee_id).await?;
        let accounts: BTreeSet<PlatformAccount> =
            sessions.into_iter().filter_map(|session| session.platform_account).collect();
        let mut ended = 0;
        for account in accounts {
            let link = self.approved_link(&account).await?;
            if !link.is_some_and(|link| link.leads_to(corp_id, employee_id)) {
                let of_account = |session: &Session| session.platform_account.as_ref() == Some(&account);
                ended += self.sessions.end_those_of(corp_id, employee_id, EndCause::Unlinked, of_account).await?;
            }
        }
        Ok(ended)
    }

    async fn withdraw(&self, link: &Link) -> Result<(), RoleFault> {
        let detail = link.account.to_string();
        let record = AuditRecord {
            corp_id: link.corp_id.as_str(),
            employee_id: link.employee_id.as_str(),
            event: Event::WithdrawLink,
            by: Approval::AUTOMATIC,
            session_id: "",
            detail: &detail,
        };
        Audit::new(self.directory.clone()).record(record).await?;
        self.directory.withdraw_automatic_approval(&link.account).await?;
        Ok(())
    }
}

/// Whether these roles are `user` and no other.
pub(super) fn is_only_user<'a>(roles: impl IntoIterator<Item = &'a RoleName>) -> bool {
    let mut roles = roles.into_iter().map(RoleName::as_str).peekable();
    roles.peek().is_some() && roles.all(|role| role == USER)
}
