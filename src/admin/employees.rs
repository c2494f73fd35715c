//! Employee records, lockouts and the two logs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::accounts::{Accounts, account_of};
use super::audit::{Action, AuditTrail};
use super::effect::{Effect, accepted};
use super::{Actor, AdminError, MAX_ROWS};
use crate::directory::audit::AuditEntry;
use crate::directory::factors::Account;
use crate::directory::people::EmployeeEdit;
use crate::directory::{Directory, EmployeeProfile, LoginEntry, LoginQuery, RoleChange};
use crate::domain::employee::{Employee, Standing};
use crate::domain::session::EndCause;
use crate::domain::write::WriteOutcome;
use crate::sessions::SessionCache;

/// The longest name or department, in characters. The platform's own are shorter; tokens and headers carry them.
const MAX_TEXT: usize = 128;

/// An employee as `deskgate employee list` shows them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EmployeeRow {
    /// The directory's record.
    #[serde(flatten)]
    pub employee: Employee,
    /// Assigned roles; the role of the agent record if none was ever assigned.
    pub roles: Vec<String>,
    /// Whether they have an agent record.
    pub agent: bool,
    /// Whether they have a one-time-password device.
    pub otp_bound: bool,
    /// When the lockout after wrong passwords or codes ends, if there is one.
    pub locked_until: Option<String>,
}

/// Administers employee records.
pub(crate) struct EmployeeAdmin {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) accounts: Accounts,
    pub(super) audit: AuditTrail,
}

impl EmployeeAdmin {
    /// Lists employees whose ID, name or department contains `text`.
    pub(crate) async fn list(&self, text: Option<&str>) -> Result<Vec<EmployeeRow>, AdminError> {
        let employees = self.directory.employees(text, MAX_ROWS).await?;
        let mut roles: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for assignment in self.directory.assignments(usize::MAX).await? {
            let key = (assignment.corp_id, assignment.employee_id);
            roles.entry(key).or_default().push(assignment.role.to_string());
        }
        let agents = self.directory.agents(usize::MAX).await?;
        let agents: BTreeMap<_, _> =
            agents.into_iter().map(|agent| ((agent.corp_id.clone(), agent.employee_id.clone()), agent)).collect();
        let devices: BTreeSet<_> = self.directory.otp_owners(usize::MAX).await?.into_iter().collect();
        let locked = self.directory.locked(usize::MAX).await?;
        let locked: BTreeMap<_, _> = locked.into_iter().map(|(corp, id, until)| ((corp, id), until)).collect();
        let rows = employees.into_iter().map(|employee| {
            let key = (employee.corp_id.clone(), employee.employee_id.clone());
            let agent = agents.get(&key);
            let fallback = || agent.filter(|agent| agent.role_applies).map(|agent| vec![agent.role.to_string()]);
            let roles = roles.remove(&key).or_else(fallback);
            EmployeeRow {
                employee,
                roles: roles.unwrap_or_default(),
                agent: agent.is_some(),
                otp_bound: devices.contains(&key),
                locked_until: locked.get(&key).map(|until| until.iso8601()),
            }
        });
        Ok(rows.collect())
    }

    /// Adds an employee before their first sign-in.
    pub(crate) async fn add(
        &self,
        actor: Actor<'_>,
        account: Account<'_>,
        name: &str,
        department: &str,
    ) -> Result<Effect, AdminError> {
        let change = async {
            check_text("name", name)?;
            check_text("department", department)?;
            let Account { corp_id, employee_id } = account;
            if let Some(existing) = self.accounts.similar(account).await? {
                return Err(AdminError::SimilarEmployeeExists { typed: employee_id.clone(), existing });
            }
            let profile = EmployeeProfile { corp_id, employee_id, name, department, avatar: "" };
            match self.directory.add_employee(profile).await? {
                WriteOutcome::Applied => Ok(Effect::changed(0)),
                WriteOutcome::Conflict => Err(AdminError::EmployeeExists(employee_id.clone())),
            }
        };
        self.audit.run(actor, Some(account), Action::Command("employee add".into()), change).await
    }

    /// Changes name or department, also in live sessions.
    pub(crate) async fn change(
        &self,
        actor: Actor<'_>,
        account: Account<'_>,
        name: Option<&str>,
        department: Option<&str>,
    ) -> Result<Effect, AdminError> {
        let change = async {
            for (field, text) in [("name", name), ("department", department)] {
                text.map_or(Ok(()), |text| check_text(field, text))?;
            }
            self.apply(account, EmployeeEdit { name, department, ..EmployeeEdit::default() }).await
        };
        self.audit.run(actor, Some(account), Action::Command("employee change".into()), change).await
    }

    /// Blocks an employee from signing in and ends their sessions, or lets them sign in again.
    pub(crate) async fn set_standing(
        &self,
        actor: Actor<'_>,
        account: Account<'_>,
        standing: Standing,
    ) -> Result<Effect, AdminError> {
        let command = match standing {
            Standing::Active => "employee enable",
            Standing::Disabled => "employee disable",
        };
        let change = self.apply(account, EmployeeEdit { standing: Some(standing), ..EmployeeEdit::default() });
        self.audit.run(actor, Some(account), Action::Command(command.into()), change).await
    }

    /// A note about enabling an employee whom the platform calls inactive: it decides again when it is next asked.
    pub(crate) async fn note_on_enabling(&self, account: Account<'_>) -> Result<Option<String>, AdminError> {
        let Account { corp_id, employee_id } = account;
        let employee = self.directory.employee(corp_id, employee_id).await?;
        Ok(employee.and_then(|employee| employee.inactive).map(|reason| {
            format!(
                "WeCom last called {employee_id} {}; if it still does when it is next asked, at the latest at their next \
                 sign-in, they are disabled again",
                reason.as_str()
            )
        }))
    }

    /// Removes an employee with all their records but the logs, and ends their sessions.
    pub(crate) async fn remove(&self, actor: Actor<'_>, account: Account<'_>) -> Result<Effect, AdminError> {
        let change = async {
            let removed = self.directory.remove_employee(account).await?;
            if removed == RoleChange::LastAdmin {
                return Err(AdminError::LastAdmin(account.employee_id.clone()));
            }
            // Even if the record was gone: an interrupted command may have removed it and left the sessions.
            let sessions = self.end_sessions(account, EndCause::Removed).await?;
            if removed == RoleChange::NoEmployee && sessions == 0 {
                return Err(self.accounts.not_found(account).await);
            }
            Ok(Effect::changed(sessions))
        };
        self.audit.run(actor, Some(account), Action::Command("employee remove".into()), change).await
    }

    /// Ends the lockouts of an account.
    pub(crate) async fn unlock(&self, actor: Actor<'_>, account: Account<'_>) -> Result<Effect, AdminError> {
        let change = async {
            self.accounts.employee(account).await?;
            Ok(self.directory.unlock(account, None).await?.into())
        };
        self.audit.run(actor, Some(account), Action::Command("employee unlock".into()), change).await
    }

    /// Reads the login log, newest entries first.
    pub(crate) async fn logins(&self, query: &LoginQuery, limit: usize) -> Result<Vec<LoginEntry>, AdminError> {
        let entries = self.directory.logins(query, limit.min(MAX_ROWS)).await?;
        if entries.is_empty() {
            self.check_exists(query.employee_id.as_deref()).await?;
        }
        Ok(entries)
    }

    /// Reads the audit log, newest entries first.
    pub(crate) async fn audit_log(
        &self,
        employee_id: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AuditEntry>, AdminError> {
        let entries = self.directory.audit_entries(employee_id, limit.min(MAX_ROWS)).await?;
        if entries.is_empty() {
            self.check_exists(employee_id).await?;
        }
        Ok(entries)
    }

    /// Fails if an employee of the main corporation is named who does not exist. An empty list would hide a typing
    /// error.
    pub(crate) async fn check_exists(&self, employee_id: Option<&str>) -> Result<(), AdminError> {
        if let Some(employee_id) = employee_id {
            let account = self.accounts.parse(employee_id, None)?;
            self.accounts.employee(account.as_account()).await?;
        }
        Ok(())
    }

    /// Applies an edit to the directory, then to live sessions.
    async fn apply(&self, account: Account<'_>, edit: EmployeeEdit<'_>) -> Result<Effect, AdminError> {
        let before = self.accounts.employee(account).await?;
        let changed = self.directory.change_employee(account_of(&before), edit).await?;
        accepted(changed, account, AdminError::no_such_employee(account.employee_id))?;
        let mut employee = self.accounts.employee(account).await?;
        let mut sessions = 0;
        loop {
            sessions += match employee.standing {
                Standing::Active => self.sessions.change_profile(&employee).await?,
                Standing::Disabled => self.end_sessions(account, EndCause::of_barred(Some(&employee))).await?,
            };
            // Reads again: of two concurrent changes, the slower must not write an outdated record to sessions.
            let newer = self.accounts.employee(account).await?;
            if newer == employee {
                break;
            }
            employee = newer;
        }
        Ok(Effect { changed: employee != before, sessions })
    }

    async fn end_sessions(&self, account: Account<'_>, cause: EndCause) -> Result<usize, AdminError> {
        let ended = self.sessions.end_all_of(account.corp_id, account.employee_id, cause).await;
        ended.map_err(AdminError::SessionsNotEnded)
    }
}

/// Checks a display name or department: not too long, and no control characters, which a terminal would interpret.
fn check_text(field: &'static str, text: &str) -> Result<(), AdminError> {
    if field == "name" && text.trim().is_empty() {
        return Err(AdminError::EmptyName);
    }
    if text.chars().count() > MAX_TEXT || text.chars().any(char::is_control) {
        return Err(AdminError::InvalidText { field, max: MAX_TEXT });
    }
    Ok(())
}
