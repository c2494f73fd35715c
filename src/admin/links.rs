//! Links between accounts of connected corporations and employees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::accounts::{AccountId, Accounts};
use super::audit::{Action, AuditTrail};
use super::effect::Effect;
use super::{Actor, AdminError};
use crate::directory::Directory;
use crate::directory::factors::Account;
use crate::directory::links::{LinkApproval, LinkQuery};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::link::{Link, LinkState, PlatformAccount, PlatformUserId};
use crate::domain::session::{EndCause, Session, SessionId};
use crate::domain::write::WriteOutcome;
use crate::sessions::SessionCache;
use csv::CsvLine;

mod csv;

/// A link, as lists show it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkRow {
    /// The connected corporation.
    pub corp_id: String,
    /// The member's ID there.
    pub platform_user: String,
    /// The employee's corporation.
    pub employee_corp_id: String,
    /// The employee whom the member signs in as.
    pub employee_id: String,
    /// `pending` or `approved`.
    pub state: LinkState,
    /// When it was requested or added.
    pub requested_at: String,
    /// An employee ID, `uid 1000` for an operator, or `setting bind.approval`.
    pub approved_by: Option<String>,
    /// When it was approved.
    pub approved_at: Option<String>,
    /// When the platform last said that the account is gone; `None` unless it did.
    #[serde(default)]
    pub gone_at: Option<String>,
}

impl LinkRow {
    fn of(link: Link) -> Self {
        let state = link.state();
        let (approved_by, approved_at) = link.approval.map(|approval| (approval.by, approval.at.iso8601())).unzip();
        Self {
            corp_id: link.account.corp_id.to_string(),
            platform_user: link.account.user_id.to_string(),
            employee_corp_id: link.corp_id.to_string(),
            employee_id: link.employee_id.to_string(),
            state,
            requested_at: link.requested_at.iso8601(),
            approved_by,
            approved_at,
            gone_at: link.gone_at.map(|at| at.iso8601()),
        }
    }
}

/// A page of links.
pub(crate) struct LinkRows {
    pub(crate) items: Vec<LinkRow>,
    /// The number of matching links.
    pub(crate) total: usize,
}

/// How many links of a file were added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportResult {
    pub(crate) added: usize,
    /// Links that had been approved before.
    pub(crate) unchanged: usize,
    /// What the operator may not expect.
    pub(crate) note: Option<String>,
}

/// The link that an account is to have.
#[derive(Clone, Copy)]
pub(crate) struct NewLink<'a> {
    pub(crate) account: &'a PlatformAccount,
    pub(crate) employee: Account<'a>,
}

/// Administers links.
pub(crate) struct LinkAdmin {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) accounts: Accounts,
    pub(super) audit: AuditTrail,
    pub(super) main_corp: CorpId,
}

impl LinkAdmin {
    /// Checks the form of a platform account. Members of the main corporation are employees by their own ID.
    pub(crate) fn parse(&self, corp_id: &str, platform_user: &str) -> Result<PlatformAccount, AdminError> {
        if !CorpId::is_well_formed(corp_id) {
            return Err(AdminError::InvalidConnectedCorp(corp_id.to_owned()));
        }
        if !PlatformUserId::is_well_formed(platform_user) {
            return Err(AdminError::InvalidPlatformUser(platform_user.to_owned()));
        }
        if corp_id == self.main_corp.as_str() {
            return Err(AdminError::MainCorpLink(self.main_corp.clone()));
        }
        Ok(PlatformAccount { corp_id: CorpId::new(corp_id), user_id: PlatformUserId::new(platform_user) })
    }

    /// Lists a page of links.
    pub(crate) async fn list(&self, query: LinkQuery<'_>) -> Result<LinkRows, AdminError> {
        let page = self.directory.links(query).await?;
        Ok(LinkRows { items: page.items.into_iter().map(LinkRow::of).collect(), total: page.total })
    }

    /// Links an account to an employee, whether or not the account asked for it.
    pub(crate) async fn add(&self, actor: Actor<'_>, link: NewLink<'_>) -> Result<Effect, AdminError> {
        let change = async {
            self.check_own(actor, link).await?;
            self.check_spelling(link.account).await?;
            self.approve_as(actor, link).await
        };
        self.audit.run(actor, Some(link.employee), Action::AddLink(&link.account.to_string()), change).await
    }

    /// Approves the link that an account asked for.
    pub(crate) async fn approve(&self, actor: Actor<'_>, link: NewLink<'_>) -> Result<Effect, AdminError> {
        let change = async {
            self.check_requested(link).await?;
            self.approve_as(actor, link).await
        };
        self.audit.run(actor, Some(link.employee), Action::ApproveLink(&link.account.to_string()), change).await
    }

    /// Keeps an administrator from taking an account that asks for, or is, an employee of another corporation.
    async fn check_own(&self, actor: Actor<'_>, NewLink { account, employee }: NewLink<'_>) -> Result<(), AdminError> {
        let Actor::Administrator(_) = actor else { return Ok(()) };
        let elsewhere = |corp_id: &CorpId| corp_id != employee.corp_id;
        let requested = self.directory.link(account).await?.is_some_and(|link| elsewhere(&link.corp_id));
        let user = EmployeeId::new(account.user_id.as_str());
        let registered =
            elsewhere(&account.corp_id) && self.directory.employee(&account.corp_id, &user).await?.is_some();
        if requested || registered { Err(AdminError::LinkedToAnother(account.clone())) } else { Ok(()) }
    }

    /// Refuses another spelling of a linked account: user IDs are unique whatever their case, and the platform names each
    /// in one way.
    async fn check_spelling(&self, account: &PlatformAccount) -> Result<(), AdminError> {
        match self.directory.other_spelling(account).await? {
            None => Ok(()),
            Some(existing) => Err(AdminError::SimilarAccountLinked { typed: account.clone(), existing }),
        }
    }

    /// A note about corporations that have no link yet. Only the platform knows which corporations are connected, so this
    /// is all that shows a typing error.
    pub(crate) async fn note_on_new_corps(&self, corps: BTreeSet<&CorpId>) -> Result<Option<String>, AdminError> {
        let known = self.directory.linked_corps().await?;
        let new: Vec<&str> = corps.into_iter().filter(|corp| !known.contains(corp)).map(CorpId::as_str).collect();
        if new.is_empty() {
            return Ok(None);
        }
        let known = match &known[..] {
            [] => String::new(),
            known => format!(" (linked so far: {})", known.iter().map(CorpId::as_str).collect::<Vec<_>>().join(", ")),
        };
        Ok(Some(format!(
            "no other account of {} is linked; check the corporation ID, because only WeCom knows which corporations are \
             connected{known}",
            new.join(", ")
        )))
    }

    /// Checks that an account's link leads to the employee whom the operator read in the list: the account may ask for
    /// another one meanwhile.
    async fn check_requested(&self, NewLink { account, employee }: NewLink<'_>) -> Result<(), AdminError> {
        let link = self.directory.link(account).await?.ok_or_else(|| AdminError::NoSuchLink(account.clone()))?;
        if link.leads_to(employee.corp_id, employee.employee_id) {
            return Ok(());
        }
        Err(AdminError::OtherEmployeeRequested { link: Box::new(link), named: employee.employee_id.clone() })
    }

    async fn approve_as(
        &self,
        actor: Actor<'_>,
        NewLink { account, employee }: NewLink<'_>,
    ) -> Result<Effect, AdminError> {
        match self.directory.approve_link(account, employee, &actor.name()).await? {
            LinkApproval::Done => Ok(Effect::changed(0)),
            LinkApproval::Unchanged => Ok(Effect::unchanged()),
            LinkApproval::LinkedToAnother => Err(AdminError::LinkedToAnother(account.clone())),
            LinkApproval::NoEmployee => Err(self.accounts.not_found(employee).await),
        }
    }

    /// Refuses a link that waits for approval.
    pub(crate) async fn refuse(&self, actor: Actor<'_>, account: &PlatformAccount) -> Result<Effect, AdminError> {
        let link = self.directory.link(account).await?;
        let employee = link.as_ref().map(employee_of);
        let change = async {
            let employee = employee.ok_or_else(|| AdminError::NoSuchLink(account.clone()))?;
            match self.directory.remove_link(account, employee, Some(LinkState::Pending)).await? {
                WriteOutcome::Applied => Ok(Effect::changed(0)),
                WriteOutcome::Conflict => {
                    self.check_requested(NewLink { account, employee }).await?;
                    Err(AdminError::LinkApproved(account.clone()))
                }
            }
        };
        self.audit.run(actor, employee, Action::RefuseLink(&account.to_string()), change).await
    }

    /// Removes a link and ends the sessions that came through it.
    pub(crate) async fn remove(&self, actor: Actor<'_>, account: &PlatformAccount) -> Result<Effect, AdminError> {
        let link = self.directory.link(account).await?;
        let change = async {
            let effect = self.remove_and_end(account, link.as_ref(), None).await?;
            if effect.is_unchanged() { Err(AdminError::NoSuchLink(account.clone())) } else { Ok(effect) }
        };
        let employee = link.as_ref().map(employee_of);
        self.audit.run(actor, employee, Action::RemoveLink(&account.to_string()), change).await
    }

    /// Refuses or removes the link of an account to an employee of this corporation. No link is no error.
    pub(crate) async fn delete(
        &self,
        actor: Actor<'_>,
        account: &PlatformAccount,
        employee_corp: &CorpId,
    ) -> Result<Effect, AdminError> {
        let link = self.directory.link(account).await?.filter(|link| link.corp_id == *employee_corp);
        let name = account.to_string();
        let action = match link.as_ref().map(Link::state) {
            Some(LinkState::Pending) => Action::RefuseLink(&name),
            Some(LinkState::Approved) | None => Action::RemoveLink(&name),
        };
        let change = self.remove_and_end(account, link.as_ref(), Some(employee_corp));
        self.audit.run(actor, link.as_ref().map(employee_of), action, change).await
    }

    /// Links the accounts of a CSV file. Checks every line before it writes any.
    pub(crate) async fn import(
        &self,
        actor: Actor<'_>,
        text: &str,
        employee_corp: Option<&str>,
    ) -> Result<ImportResult, AdminError> {
        let links = self.check_file(text, employee_corp).await?;
        let note = self.note_on_new_corps(links.iter().map(|(account, _)| &account.corp_id).collect()).await?;
        let mut result = ImportResult { added: 0, unchanged: 0, note };
        for (account, employee) in &links {
            let effect = self.add(actor, NewLink { account, employee: employee.as_account() }).await?;
            if effect.changed { result.added += 1 } else { result.unchanged += 1 }
        }
        Ok(result)
    }

    async fn check_file(
        &self,
        text: &str,
        employee_corp: Option<&str>,
    ) -> Result<Vec<(PlatformAccount, AccountId)>, AdminError> {
        let mut faults = Vec::new();
        let mut first_lines = BTreeMap::new();
        let mut links = Vec::new();
        for (number, line) in csv::read(text).map_err(AdminError::InvalidLinkFile)? {
            match self.check_line(line, employee_corp).await {
                Err(error @ (AdminError::Directory(_) | AdminError::Store(_))) => return Err(error),
                Err(error) => faults.push(format!("line {number}: {error}")),
                Ok((account, employee)) => {
                    match first_lines.insert((account.corp_id.clone(), account.user_id.folded()), number) {
                        Some(first) => faults.push(format!("line {number}: {account} is already on line {first}")),
                        None => links.push((account, employee)),
                    }
                }
            }
        }
        if faults.is_empty() { Ok(links) } else { Err(AdminError::InvalidLinkFile(csv::summary(&faults))) }
    }

    async fn check_line(
        &self,
        line: Result<CsvLine<'_>, String>,
        employee_corp: Option<&str>,
    ) -> Result<(PlatformAccount, AccountId), AdminError> {
        let line = line.map_err(AdminError::InvalidLinkFile)?;
        let account = self.parse(line.corp_id, line.platform_user)?;
        let employee = self.accounts.parse(line.employee_id, employee_corp)?;
        self.accounts.employee(employee.as_account()).await?;
        self.check_spelling(&account).await?;
        let link = self.directory.link(&account).await?;
        let elsewhere = |link: &Link| !link.leads_to(&employee.corp_id, &employee.employee_id);
        if link.is_some_and(|link| link.approval.is_some() && elsewhere(&link)) {
            return Err(AdminError::LinkedToAnother(account));
        }
        Ok((account, employee))
    }

    /// Removes the link that was read, and ends its sessions. A link that has replaced it meanwhile stays: it is not the
    /// one that was to be removed.
    async fn remove_and_end(
        &self,
        account: &PlatformAccount,
        link: Option<&Link>,
        employee_corp: Option<&CorpId>,
    ) -> Result<Effect, AdminError> {
        let Some(link) = link else {
            // An interrupted command may have removed the link and left the sessions.
            return Ok(Effect::unchanged().and_sessions(self.end_leftover_sessions(account, employee_corp).await?));
        };
        let removed = self.directory.remove_link(account, employee_of(link), None).await?;
        if removed == WriteOutcome::Conflict && self.directory.link(account).await?.is_some() {
            return Err(AdminError::LinkReplaced(account.clone()));
        }
        let of_link = |session: &Session| session.platform_account.as_ref() == Some(account);
        let ended = self.sessions.end_those_of(&link.corp_id, &link.employee_id, EndCause::Unlinked, of_link).await;
        Ok(Effect::from(removed).and_sessions(ended.map_err(AdminError::SessionsNotEnded)?))
    }

    async fn end_leftover_sessions(
        &self,
        account: &PlatformAccount,
        employee_corp: Option<&CorpId>,
    ) -> Result<usize, AdminError> {
        let mut sessions = self.sessions.store().of_platform_account(account).await?;
        sessions.retain(|session| employee_corp.is_none_or(|corp_id| session.corp_id == *corp_id));
        let ids: Vec<SessionId> = sessions.into_iter().map(|session| session.id).collect();
        self.sessions.end_all(&ids, EndCause::Unlinked).await.map_err(AdminError::SessionsNotEnded)?;
        Ok(ids.len())
    }
}

fn employee_of(link: &Link) -> Account<'_> {
    Account { corp_id: &link.corp_id, employee_id: &link.employee_id }
}
