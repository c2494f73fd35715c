//! Whether employees are still members at the messaging platform, and what follows when they are not.
//!
//! An employee whom the platform calls inactive is disabled, at a sign-in and at the recheck alike. If the platform does
//! not answer, nothing changes. A sign-in for which the platform says "active" enables an employee who was disabled in
//! this way; an employee whom an operator disabled stays disabled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::audit::{Audit, UNCHANGED};
use super::platform_call::measured;
use crate::directory::Directory;
use crate::directory::audit::{AuditRecord, Event};
use crate::directory::factors::Account;
use crate::directory::links::LinkQuery;
use crate::directory::membership::MemberEvidence;
use crate::domain::employee::{CorpId, Employee, EmployeeId, InactiveReason, Standing};
use crate::domain::link::{Link, LinkState, PlatformAccount};
use crate::domain::session::{EndCause, Session};
use crate::domain::write::WriteOutcome;
use crate::error::{Error, Forbidden};
use crate::metrics::Metrics;
use crate::platform::{MemberStatus, Person, Platform, PlatformError};
use crate::sessions::SessionCache;

/// The label of the call in metrics.
const STATUS: &str = "status";

/// The `by` of the audit records.
const ACTOR: &str = "platform";

/// How long a password sign-in waits for the status. Short: passwords are for the time when the platform is down.
const PASSWORD_SIGN_IN_PATIENCE: Duration = Duration::from_secs(2);

/// Most links of an employee that a password sign-in asks about, so that it stays short. The recheck asks about all.
const MAX_LINKS_AT_SIGN_IN: usize = 8;

/// What a status means for an employee of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// The platform calls the member active.
    Active,
    /// The platform calls the member inactive: the employee is disabled and has no session.
    Inactive,
    /// The application may not see the member: the last known status, the directory's, stays.
    OutOfSight,
    /// The platform has no such member and never called them active: an operator added the employee, who has not left.
    NotAMember,
}

/// A question that may have several askers; the first one's call answers all.
type StatusCell = Arc<OnceCell<Result<MemberStatus, PlatformError>>>;

/// Asks the platform about employees and applies what it says.
pub(super) struct Membership {
    pub(super) platform: Arc<dyn Platform>,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) audit: Audit,
    pub(super) metrics: Arc<Metrics>,
    pub(super) main_corp: CorpId,
    pub(super) open_questions: Mutex<HashMap<(CorpId, EmployeeId), StatusCell>>,
}

impl Membership {
    /// Asks the platform for an employee's status.
    pub(super) async fn ask(&self, employee: &Employee) -> Result<MemberStatus, PlatformError> {
        let (corp_id, employee_id) = (employee.corp_id.clone(), employee.employee_id.clone());
        if corp_id == self.main_corp {
            self.ask_about((corp_id, employee_id.clone()), Person::Member { employee_id }).await
        } else {
            self.ask_about((corp_id.clone(), employee_id.clone()), Person::Linked { corp_id, employee_id }).await
        }
    }

    /// Asks the platform for the status of a connected corporation's member.
    async fn ask_linked(&self, account: &PlatformAccount) -> Result<MemberStatus, PlatformError> {
        let (corp_id, employee_id) = (account.corp_id.clone(), EmployeeId::new(account.user_id.as_str()));
        self.ask_about((corp_id.clone(), employee_id.clone()), Person::Linked { corp_id, employee_id }).await
    }

    /// Concurrent questions about one account are one call.
    async fn ask_about(&self, key: (CorpId, EmployeeId), person: Person) -> Result<MemberStatus, PlatformError> {
        let cell = self.open_questions().entry(key.clone()).or_default().clone();
        let call = || measured(&self.metrics, STATUS, self.platform.status(&person));
        let answer = cell.get_or_init(call).await.clone();
        let mut open = self.open_questions();
        if open.get(&key).is_some_and(|current| Arc::ptr_eq(current, &cell)) {
            open.remove(&key);
        }
        answer
    }

    /// Applies what the platform says about an employee: disables one who is inactive and ends all their sessions.
    pub(super) async fn apply(&self, employee: &Employee, status: MemberStatus) -> Result<Finding, Error> {
        let account = account_of(employee);
        match status {
            MemberStatus::Active => {
                self.directory.record_active(account).await?;
                Ok(Finding::Active)
            }
            MemberStatus::OutOfSight => {
                log_undecided(employee, "the platform does not show this member to the application");
                Ok(Finding::OutOfSight)
            }
            MemberStatus::Inactive(InactiveReason::Gone) if !self.was_disclosed(employee).await? => {
                log_undecided(employee, "the platform has never known this employee");
                Ok(Finding::NotAMember)
            }
            MemberStatus::Inactive(reason) => {
                self.disable(employee, reason, None).await?;
                Ok(Finding::Inactive)
            }
        }
    }

    /// Whether the platform's contacts have shown an employee. They may never disclose a member of a connected
    /// corporation, so there a sign-in alone does not show that one who is not found is gone.
    async fn was_disclosed(&self, employee: &Employee) -> Result<bool, Error> {
        Ok(match self.directory.member_evidence(account_of(employee)).await? {
            Some(MemberEvidence::CalledActive) => true,
            Some(MemberEvidence::SignedIn) => employee.corp_id == self.main_corp,
            None => false,
        })
    }

    /// Whether an employee signs in in their own right, not only through links.
    async fn is_member(&self, employee: &Employee) -> Result<bool, Error> {
        Ok(self.directory.member_evidence(account_of(employee)).await?.is_some())
    }

    /// Refuses the platform sign-in of an employee unless the platform calls them active, or, if it does not say, the
    /// directory does. Enables an employee who has returned.
    pub(super) async fn admit(&self, employee: &Employee, status: MemberStatus) -> Result<(), Error> {
        match self.apply(employee, status).await? {
            Finding::Active if employee.inactive.is_some() => self.enable(employee, None).await,
            Finding::Active | Finding::OutOfSight => Ok(()),
            Finding::Inactive => Err(Forbidden::Disabled.into()),
            // The platform's contacts may never disclose a member of a connected corporation.
            Finding::NotAMember if employee.corp_id != self.main_corp => Ok(()),
            Finding::NotAMember => Err(Forbidden::NotAnEmployee.into()),
        }
    }

    /// Asks about every account that signs in as an employee through an approved link, one per `pace`, and applies what
    /// the platform says.
    pub(super) async fn recheck_links(&self, employee: &Employee, pace: Duration) -> Result<Option<Finding>, Error> {
        let mut found = None;
        for link in self.directory.links(approved_links(employee, usize::MAX)).await?.items {
            tokio::time::sleep(pace).await;
            let Ok(status) = self.ask_linked(&link.account).await else { continue };
            let finding = self.apply_to_link(&link, employee, status).await?;
            if found != Some(Finding::Inactive) {
                found = Some(finding);
            }
            if finding == Finding::Inactive && !self.is_active(employee).await? {
                break;
            }
        }
        Ok(found)
    }

    /// Whether the directory still calls an employee active: the last linked account to leave disables them.
    async fn is_active(&self, employee: &Employee) -> Result<bool, Error> {
        let current = self.directory.employee(&employee.corp_id, &employee.employee_id).await?;
        Ok(current.is_some_and(|employee| employee.standing == Standing::Active))
    }

    /// The accounts of approved links about which the platform answers at a password sign-in.
    async fn ask_links(&self, employee: &Employee) -> Result<Vec<(Link, MemberStatus)>, Error> {
        let mut asked = Vec::new();
        for link in self.directory.links(approved_links(employee, MAX_LINKS_AT_SIGN_IN)).await?.items {
            if let Ok(status) = self.ask_linked(&link.account).await {
                asked.push((link, status));
            }
        }
        Ok(asked)
    }

    /// Refuses the sign-in through an approved link of an account that the platform calls inactive. Enables an employee
    /// who has returned, but not one who is a member in their own right: only their own sign-in shows that.
    pub(super) async fn admit_linked(
        &self,
        link: &Link,
        employee: &Employee,
        status: MemberStatus,
    ) -> Result<(), Error> {
        match self.apply_to_link(link, employee, status).await? {
            Finding::Active if employee.inactive.is_some() && !self.is_member(employee).await? => {
                self.enable(employee, Some(&link.account)).await
            }
            Finding::Inactive => Err(Forbidden::Disabled.into()),
            Finding::Active | Finding::OutOfSight | Finding::NotAMember => Ok(()),
        }
    }

    /// Applies what the platform says about the account of a link. A member who leaves the connected corporation might
    /// know the employee's password, so the employee is disabled, unless others sign in as the employee too. The
    /// contacts may never disclose a member, so only one whom they have disclosed can be gone.
    async fn apply_to_link(&self, link: &Link, employee: &Employee, status: MemberStatus) -> Result<Finding, Error> {
        match status {
            MemberStatus::Active => {
                self.directory.record_link_active(&link.account).await?;
                Ok(Finding::Active)
            }
            MemberStatus::OutOfSight => Ok(Finding::OutOfSight),
            MemberStatus::Inactive(_) if !self.directory.is_linked_member(&link.account).await? => {
                Ok(Finding::NotAMember)
            }
            MemberStatus::Inactive(reason) => {
                self.directory.record_link_inactive(&link.account).await?;
                if self.is_shared(link, employee).await? {
                    self.end_sessions_of_link(link, reason).await?;
                } else {
                    self.disable(employee, reason, Some(&link.account)).await?;
                }
                Ok(Finding::Inactive)
            }
        }
    }

    /// Whether others than the account of a link sign in as its employee: a member in their own right, or the accounts of
    /// other links that are not gone themselves. An automatic link counts for nobody: its account chose the employee.
    async fn is_shared(&self, link: &Link, employee: &Employee) -> Result<bool, Error> {
        if link.is_automatic() || self.is_member(employee).await? {
            return Ok(true);
        }
        Ok(self.directory.has_other_links(link).await?)
    }

    /// Ends the sessions that came through a link, of an employee whom others sign in as too.
    async fn end_sessions_of_link(&self, link: &Link, reason: InactiveReason) -> Result<(), Error> {
        let Link { account, corp_id, employee_id, .. } = link;
        let of_link = |session: &Session| session.platform_account.as_ref() == Some(account);
        if self.sessions.store().of_employee(corp_id, employee_id).await?.iter().any(of_link) {
            let detail = detail(reason, Some(account));
            let record = AuditRecord {
                corp_id: corp_id.as_str(),
                employee_id: employee_id.as_str(),
                event: Event::LinkedMemberInactive,
                by: ACTOR,
                session_id: "",
                detail: &detail,
            };
            let written = self.audit.record(record).await?;
            let ended = self.sessions.end_those_of(corp_id, employee_id, EndCause::Left, of_link).await;
            self.audit.finish(written, ended.map_err(Error::from)).await?;
        }
        Ok(())
    }

    /// Refuses the password sign-in of an employee whom the platform calls inactive. A platform that does not answer
    /// soon changes nothing.
    pub(super) async fn admit_by_password(&self, employee: &Employee) -> Result<(), Error> {
        let ask = async { (self.ask(employee).await, self.ask_links(employee).await) };
        let Ok((own, linked)) = tokio::time::timeout(PASSWORD_SIGN_IN_PATIENCE, ask).await else {
            tracing::warn!(call = STATUS, "the platform does not answer: the password decides alone");
            self.metrics.platform_errors.with_label_values(&[STATUS, "unavailable"]).inc();
            return Ok(());
        };
        if let Ok(status) = own
            && self.apply(employee, status).await? == Finding::Inactive
        {
            return Err(Forbidden::Disabled.into());
        }
        for (link, status) in linked? {
            let finding = self.apply_to_link(&link, employee, status).await?;
            if finding == Finding::Inactive && !self.is_active(employee).await? {
                break;
            }
        }
        if self.is_active(employee).await? { Ok(()) } else { Err(Forbidden::Disabled.into()) }
    }

    /// Disables an employee because of their own status, or of that of the account of their link.
    async fn disable(
        &self,
        employee: &Employee,
        reason: InactiveReason,
        linked: Option<&PlatformAccount>,
    ) -> Result<(), Error> {
        let account = account_of(employee);
        if employee.standing == Standing::Active {
            let last_admin = self.directory.is_last_admin(account).await?;
            let detail = detail(reason, linked);
            let written = self.audit.record(record(employee, Event::MemberInactive, &detail)).await?;
            match self.directory.disable_inactive(account, reason).await {
                Ok(WriteOutcome::Applied) if last_admin => warn_of_no_admin(employee),
                Ok(WriteOutcome::Applied) => {}
                Ok(WriteOutcome::Conflict) => self.audit.mark_failed(written, UNCHANGED).await,
                Err(error) => return self.audit.finish(written, Err(error.into())).await,
            }
        }
        self.end_sessions(account, EndCause::Left).await
    }

    /// Enables an employee who has returned, in their own right or through a link.
    async fn enable(&self, employee: &Employee, linked: Option<&PlatformAccount>) -> Result<(), Error> {
        let detail = linked.map(PlatformAccount::to_string).unwrap_or_default();
        let written = self.audit.record(record(employee, Event::MemberReturned, &detail)).await?;
        match self.directory.enable_returned(account_of(employee)).await {
            Ok(WriteOutcome::Applied) => Ok(()),
            Ok(WriteOutcome::Conflict) => {
                self.audit.mark_failed(written, UNCHANGED).await;
                Ok(())
            }
            Err(error) => self.audit.finish(written, Err(error.into())).await,
        }
    }

    /// Ends every session of an account.
    pub(super) async fn end_sessions(&self, account: Account<'_>, cause: EndCause) -> Result<(), Error> {
        self.sessions.end_all_of(account.corp_id, account.employee_id, cause).await?;
        Ok(())
    }

    fn open_questions(&self) -> MutexGuard<'_, HashMap<(CorpId, EmployeeId), StatusCell>> {
        self.open_questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses the first sign-in of a member unless the platform calls them active: there is no earlier word to go by.
pub(super) fn admit_new(status: MemberStatus) -> Result<(), Error> {
    match status {
        MemberStatus::Active => Ok(()),
        MemberStatus::Inactive(InactiveReason::Gone) => Err(Forbidden::NotAnEmployee.into()),
        MemberStatus::Inactive(_) => Err(Forbidden::Disabled.into()),
        MemberStatus::OutOfSight => Err(Forbidden::NotVisible.into()),
    }
}

fn approved_links(employee: &Employee, limit: usize) -> LinkQuery<'_> {
    LinkQuery {
        employee_corp_id: Some(&employee.corp_id),
        employee_id: Some(employee.employee_id.as_str()),
        state: Some(LinkState::Approved),
        limit,
        ..LinkQuery::default()
    }
}

fn account_of(employee: &Employee) -> Account<'_> {
    Account { corp_id: &employee.corp_id, employee_id: &employee.employee_id }
}

fn record<'a>(employee: &'a Employee, event: Event, detail: &'a str) -> AuditRecord<'a> {
    let Account { corp_id, employee_id } = account_of(employee);
    let (corp_id, employee_id) = (corp_id.as_str(), employee_id.as_str());
    AuditRecord { corp_id, employee_id, event, by: ACTOR, session_id: "", detail }
}

/// The detail of the audit records: the reason, and the account of a link that it is about.
fn detail(reason: InactiveReason, linked: Option<&PlatformAccount>) -> String {
    linked.map_or_else(|| reason.as_str().to_owned(), |account| format!("{} {account}", reason.as_str()))
}

fn warn_of_no_admin(employee: &Employee) {
    tracing::warn!(
        { employee.id = employee.employee_id.as_str(), corp.id = employee.corp_id.as_str() },
        "no administrator is left: the platform calls the last one inactive; run `deskgate role grant ID admin`"
    );
}

fn log_undecided(employee: &Employee, why: &str) {
    let last_known = match employee.standing {
        Standing::Active => "active",
        Standing::Disabled => "disabled",
    };
    tracing::info!(
        { employee.id = employee.employee_id.as_str(), corp.id = employee.corp_id.as_str(), last_known = last_known },
        "{why}: the last known status stays"
    );
}
