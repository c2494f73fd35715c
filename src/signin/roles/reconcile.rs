//! Compares the stored sessions with the directory after a start: a crash may have come between the two writes of a change.
//!
//! All sessions are compared in the background, page by page and at a share of one core. A session that is used before its
//! turn is compared when it is read into the cache, so that nothing the directory forbids is let in meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{RoleFault, Roles, links};
use crate::directory::access::EmployeeAccess;
use crate::directory::factors::Account;
use crate::domain::employee::{CorpId, EmployeeId, Standing};
use crate::domain::link::{Link, PlatformAccount};
use crate::domain::role::RoleName;
use crate::domain::session::{EndCause, Session, SessionId};
use crate::error::{Error, chain};
use crate::sessions::Reconcile;
use crate::store::SessionCursor;
use crate::store::work_leases::{LeaseOutcome, Work, WorkLeases};

/// How many sessions are read and compared at once: about a megabyte, and some milliseconds.
const PAGE: usize = 500;

/// The pause after a page, as a multiple of the time that it took: the comparison takes at most a fifth of a core, and
/// less while requests compete with it.
const REST: u32 = 4;

/// The longest pause: a page with many corrections takes long because of the disk.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Pause after a page that could not be compared.
const RETRY: Duration = Duration::from_secs(5);

/// How long the lease of the comparison lasts without being renewed: much longer than a page takes.
const LEASE: Duration = Duration::from_secs(30);

/// An employee.
type Owner<'a> = (&'a CorpId, &'a EmployeeId);

/// What the directory says about the sessions of a page.
struct Records<'a> {
    access: BTreeMap<Owner<'a>, Option<EmployeeAccess>>,
    links: HashMap<PlatformAccount, Link>,
}

impl Records<'_> {
    /// Whether a session is as the directory wants it.
    fn admit(&self, session: &Session, default_role: Option<&RoleName>) -> bool {
        let Some(Some(access)) = self.access.get(&owner(session)) else { return false };
        let roles = access.roles.clone().or_default(default_role);
        access.standing == Standing::Active
            && session.roles == roles
            && (session.password_id.is_none() || session.password_id == access.password_id)
            && (session.stepped_up_until.is_none() || access.otp_bound)
            && session.platform_account.as_ref().is_none_or(|account| self.admit_link(account, session, access, &roles))
    }

    fn admit_link(
        &self,
        account: &PlatformAccount,
        session: &Session,
        access: &EmployeeAccess,
        roles: &[RoleName],
    ) -> bool {
        let Some(link) = self.links.get(account) else { return false };
        link.leads_to(&session.corp_id, &session.employee_id)
            && (!link.is_automatic() || links::is_only_user(roles.iter().chain(&access.agent_role)))
    }
}

/// Waits until no other gateway compares.
async fn until_granted(leases: &dyn WorkLeases) {
    loop {
        match leases.acquire(Work::Reconciliation, LEASE).await {
            Ok(LeaseOutcome::Granted) => return,
            Ok(LeaseOutcome::HeldElsewhere) => {}
            Err(error) => tracing::warn!(%error, "could not compare sessions with the directory; retrying"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn owner(session: &Session) -> Owner<'_> {
    (&session.corp_id, &session.employee_id)
}

impl Roles {
    /// Has the session cache compare each session that it reads, until [`Roles::reconcile_all`] has compared all of them.
    pub fn distrust_store(&self) {
        self.sessions.distrust_store(self.clone());
    }

    /// Compares every stored session with the directory and corrects what differs, then has the session cache trust the
    /// store, unless it was distrusted again meanwhile. Returns when that is done. Waits while another gateway compares.
    pub async fn reconcile_all(&self, leases: &dyn WorkLeases) {
        until_granted(leases).await;
        let distrust = self.sessions.store_distrust();
        let (started, mut after, mut corrected) = (Instant::now(), None, 0);
        loop {
            let page_started = Instant::now();
            match self.reconcile_page(after.as_ref(), leases).await {
                Ok((next, changed)) => {
                    corrected += changed;
                    after = next;
                    if after.is_none() {
                        break;
                    }
                    tokio::time::sleep((page_started.elapsed() * REST).min(LONGEST_REST)).await;
                }
                Err(fault) => {
                    let error = chain(&fault);
                    tracing::warn!(%error, "could not compare sessions with the directory; retrying");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        self.sessions.trust_store(&distrust);
        if let Err(error) = leases.end(Work::Reconciliation).await {
            tracing::debug!(%error, "the lease of the comparison ends by itself");
        }
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(corrected, seconds, "all sessions agree with the directory");
    }

    /// Compares one page. Returns where the next one begins, and how many employees' sessions were corrected.
    async fn reconcile_page(
        &self,
        after: Option<&SessionCursor>,
        leases: &dyn WorkLeases,
    ) -> Result<(Option<SessionCursor>, usize), RoleFault> {
        // Renewed with each page. If another gateway has taken over meanwhile, both compare, which does no harm.
        leases.acquire(Work::Reconciliation, LEASE).await?;
        let page = self.sessions.store().page(after, PAGE).await?;
        let differing = self.correct(&page.sessions).await?;
        let owners: BTreeSet<Owner<'_>> = differing.into_iter().map(owner).collect();
        Ok((page.next, owners.len()))
    }

    /// Compares sessions and corrects all of an employee whose session differs. Returns those that differed.
    async fn correct<'a>(&self, sessions: &'a [Session]) -> Result<Vec<&'a Session>, RoleFault> {
        let records = self.records_of(sessions).await?;
        let default_role = self.default_role.as_ref();
        let differing: Vec<&Session> =
            sessions.iter().filter(|session| !records.admit(session, default_role)).collect();
        let owners: BTreeSet<Owner<'_>> = differing.iter().copied().map(owner).collect();
        for (corp_id, employee_id) in owners {
            self.correct_sessions(Account { corp_id, employee_id }).await?;
        }
        Ok(differing)
    }

    /// Reads what the sessions depend on: one read for all sessions of an employee, and one query for all employees.
    async fn records_of<'a>(&self, sessions: &'a [Session]) -> Result<Records<'a>, RoleFault> {
        let owners: BTreeSet<Owner<'a>> = sessions.iter().map(owner).collect();
        let accounts: Vec<Account<'_>> =
            owners.iter().map(|(corp_id, employee_id)| Account { corp_id, employee_id }).collect();
        let access = self.directory.access(&accounts).await?;
        let linked: BTreeSet<&PlatformAccount> =
            sessions.iter().filter_map(|session| session.platform_account.as_ref()).collect();
        let links = self.directory.approved_links(&linked.into_iter().collect::<Vec<_>>()).await?;
        Ok(Records {
            access: owners.into_iter().zip(access).collect(),
            links: links.into_iter().map(|link| (link.account.clone(), link)).collect(),
        })
    }

    /// Brings the sessions of an employee in line with the directory.
    async fn correct_sessions(&self, account: Account<'_>) -> Result<(), RoleFault> {
        let Account { corp_id, employee_id } = account;
        let employee = self.directory.employee(corp_id, employee_id).await?;
        if !employee.as_ref().is_some_and(|employee| employee.standing == Standing::Active) {
            self.sessions.end_all_of(corp_id, employee_id, EndCause::of_barred(employee.as_ref())).await?;
            return Ok(());
        }
        self.sync_sessions(corp_id, employee_id).await?;
        let password = self.directory.agent(account).await?.and_then(|agent| agent.password);
        let id = password.map(|password| password.id);
        let of_old_password = |session: &Session| session.password_id.is_some() && session.password_id != id;
        self.sessions.end_those_of(corp_id, employee_id, EndCause::Operator, of_old_password).await?;
        if self.directory.otp_device(account).await?.secret.is_none() {
            self.sessions.step_down(corp_id, employee_id).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Reconcile for Roles {
    async fn reconcile(&self, sessions: &[Session]) -> Result<Vec<SessionId>, Error> {
        Ok(self.correct(sessions).await?.into_iter().map(|session| session.id.clone()).collect())
    }
}

#[cfg(test)]
mod tests;
