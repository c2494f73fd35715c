//! Employees, their devices and their tries, for operators.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{AdminError, Done, MOST, Operator, Typed, Who, accepted, failed};
use crate::directory::factors::Account;
use crate::directory::people::EmployeeEdit;
use crate::directory::{EmployeeProfile, RoleChange};
use crate::domain::employee::{Employee, Standing};
use crate::domain::session::EndCause;
use crate::domain::write::WriteOutcome;

/// An order about employees.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmployeeCommand {
    /// Shows them.
    List {
        /// Only those whose id, name or department has this in it.
        text: Option<String>,
    },
    /// Puts one down before their first sign-in.
    Add {
        /// Whom.
        who: Who,
        /// Display name.
        name: String,
        /// Department's name.
        department: String,
    },
    /// Changes what is known of one.
    Change {
        /// Whom.
        who: Who,
        /// Display name.
        name: Option<String>,
        /// Department's name.
        department: Option<String>,
    },
    /// Lets one sign in no more, or again.
    Stand {
        /// Whom.
        who: Who,
        /// From now on.
        standing: Standing,
    },
    /// Removes one.
    Remove {
        /// Whom.
        who: Who,
    },
    /// Lets an account be tried again.
    Unlock {
        /// Whose.
        who: Who,
    },
    /// Whether there is a one-time-password device.
    OtpLook {
        /// Whose.
        who: Who,
    },
    /// A new one-time-password secret.
    OtpOffer {
        /// For whom.
        who: Who,
    },
    /// The offered secret's first code.
    OtpBind {
        /// Whose.
        who: Who,
        /// What the device shows.
        code: Typed,
    },
    /// Removes a one-time-password device.
    OtpRemove {
        /// Whose.
        who: Who,
    },
    /// Shows the audit log.
    Events {
        /// Of one employee's account only.
        employee_id: Option<String>,
        /// So many lines at most.
        limit: usize,
    },
    /// Shows the login log.
    Logins {
        /// Of one employee only.
        employee_id: Option<String>,
        /// So many lines at most.
        limit: usize,
    },
}

impl EmployeeCommand {
    pub(super) fn description(&self) -> Option<String> {
        let description = match self {
            EmployeeCommand::List { .. }
            | EmployeeCommand::Logins { .. }
            | EmployeeCommand::Events { .. }
            | EmployeeCommand::OtpLook { .. } => return None,
            EmployeeCommand::Add { .. } => "add",
            EmployeeCommand::Change { .. } => "change",
            EmployeeCommand::Stand { standing: Standing::Active, .. } => "enable",
            EmployeeCommand::Stand { standing: Standing::Disabled, .. } => "disable",
            EmployeeCommand::Remove { .. } => "remove",
            EmployeeCommand::Unlock { .. } => "unlock",
            EmployeeCommand::OtpOffer { .. } => "otp-bind (a secret is shown)",
            EmployeeCommand::OtpBind { .. } => "otp-bind",
            EmployeeCommand::OtpRemove { .. } => "otp-remove",
        };
        Some(description.to_owned())
    }

    pub(super) fn who(&self) -> Option<&Who> {
        match self {
            EmployeeCommand::List { .. } | EmployeeCommand::Logins { .. } | EmployeeCommand::Events { .. } => None,
            EmployeeCommand::Add { who, .. }
            | EmployeeCommand::Change { who, .. }
            | EmployeeCommand::Stand { who, .. }
            | EmployeeCommand::Remove { who }
            | EmployeeCommand::Unlock { who }
            | EmployeeCommand::OtpLook { who }
            | EmployeeCommand::OtpOffer { who }
            | EmployeeCommand::OtpBind { who, .. }
            | EmployeeCommand::OtpRemove { who } => Some(who),
        }
    }
}

/// An employee as operators see them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EmployeeRow {
    /// Who, and whether they may sign in.
    #[serde(flatten)]
    pub employee: Employee,
    /// Roles held, by assignment or by their agent's record.
    pub roles: Vec<String>,
    /// Whether they are an agent.
    pub agent: bool,
    /// Whether they have a one-time-password device.
    pub otp_bound: bool,
    /// Until when wrong passwords or codes keep the account locked, if they do.
    pub locked_until: Option<String>,
}

impl Operator {
    pub(super) async fn employee(&self, order: EmployeeCommand) -> Result<Done, AdminError> {
        match order {
            EmployeeCommand::List { text } => self.employees(text.as_deref()).await,
            EmployeeCommand::Add { who, name, department } => self.add_employee(&who, &name, &department).await,
            EmployeeCommand::Change { who, name, department } => {
                let edit = EmployeeEdit {
                    name: name.as_deref(),
                    department: department.as_deref(),
                    ..EmployeeEdit::default()
                };
                self.change_employee(&who, edit).await
            }
            EmployeeCommand::Stand { who, standing } => {
                let edit = EmployeeEdit { standing: Some(standing), ..EmployeeEdit::default() };
                self.change_employee(&who, edit).await
            }
            EmployeeCommand::Remove { who } => self.remove_employee(&who).await,
            EmployeeCommand::Unlock { who } => {
                let employee = self.known(&who).await?;
                let unlocked = self.directory.unlock(account(&employee), None).await.map_err(failed)?;
                Ok(Done::of(unlocked))
            }
            EmployeeCommand::OtpLook { who } => {
                let employee = self.known(&who).await?;
                Ok(Done::OtpBound(self.devices.state(account(&employee)).await?.secret.is_some()))
            }
            EmployeeCommand::OtpOffer { who } => {
                let employee = self.known(&who).await?;
                let offer = self.devices.offer(account(&employee), &employee.name).await?;
                let typed = |secret: &crate::domain::secret::Secret<String>| Typed(secret.reveal().clone());
                Ok(Done::Offered { secret: typed(&offer.secret), otpauth_url: typed(&offer.otpauth_url) })
            }
            EmployeeCommand::OtpBind { who, code } => {
                let employee = self.known(&who).await?;
                let in_use = self.devices.state(account(&employee)).await?.secret;
                self.devices.bind(account(&employee), in_use.as_deref(), &code.0).await?;
                if in_use.is_some() {
                    // What the device before it has stepped up goes with it.
                    self.live.step_down(&employee.corp_id, &employee.employee_id).await.map_err(failed)?;
                }
                Ok(Done::changed(0))
            }
            EmployeeCommand::OtpRemove { who } => {
                let employee = self.known(&who).await?;
                let bound = self.devices.state(account(&employee)).await?.secret.is_some();
                self.directory.remove_otp(account(&employee)).await.map_err(failed)?;
                let down = self.live.step_down(&employee.corp_id, &employee.employee_id).await.map_err(failed)?;
                if !bound {
                    return Ok(Done::Unchanged);
                }
                Ok(Done::changed(down))
            }
            EmployeeCommand::Logins { employee_id, limit } => {
                let lines = self.directory.logins(employee_id.as_deref(), limit.min(MOST)).await.map_err(failed)?;
                if lines.is_empty() {
                    self.must_be_there(employee_id).await?;
                }
                Ok(Done::Logins(lines))
            }
            EmployeeCommand::Events { employee_id, limit } => {
                let lines =
                    self.directory.audit_entries(employee_id.as_deref(), limit.min(MOST)).await.map_err(failed)?;
                if lines.is_empty() {
                    self.must_be_there(employee_id).await?;
                }
                Ok(Done::Events(lines))
            }
        }
    }

    async fn employees(&self, text: Option<&str>) -> Result<Done, AdminError> {
        let employees = self.directory.employees(text, MOST).await.map_err(failed)?;
        let mut roles: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for one in self.directory.assignments(usize::MAX).await.map_err(failed)? {
            roles.entry((one.corp_id, one.employee_id)).or_default().push(one.role.to_string());
        }
        let agents = self.directory.agents(usize::MAX).await.map_err(failed)?;
        let agents: BTreeMap<_, _> =
            agents.into_iter().map(|agent| ((agent.corp_id, agent.employee_id), agent.role)).collect();
        let devices: BTreeSet<_> = self.directory.otp_owners(usize::MAX).await.map_err(failed)?.into_iter().collect();
        let locked = self.directory.locked(usize::MAX).await.map_err(failed)?;
        let locked: BTreeMap<_, _> = locked.into_iter().map(|(corp, id, until)| ((corp, id), until)).collect();
        let rows = employees.into_iter().map(|employee| {
            let key = (employee.corp_id.clone(), employee.employee_id.clone());
            let agent = agents.get(&key);
            let roles = roles.remove(&key).or_else(|| agent.map(|role| vec![role.to_string()]));
            EmployeeRow {
                employee,
                roles: roles.unwrap_or_default(),
                agent: agent.is_some(),
                otp_bound: devices.contains(&key),
                locked_until: locked.get(&key).map(|until| until.iso8601()),
            }
        });
        Ok(Done::Employees(rows.collect()))
    }

    async fn add_employee(&self, who: &Who, name: &str, department: &str) -> Result<Done, AdminError> {
        let (corp_id, employee_id) = self.named(who)?;
        for (what, text) in [("name", name), ("department", department)] {
            plain(what, text)?;
        }
        let twin = self.directory.by_name(&corp_id, &who.employee_id).await.map_err(failed)?;
        if let Some((twin, _)) = twin.filter(|(twin, _)| twin.employee_id != employee_id) {
            return Err(AdminError::Refused(format!(
                "{employee_id} is another spelling of {}, who is there already",
                twin.employee_id
            )));
        }
        let arriving = EmployeeProfile { corp_id: &corp_id, employee_id: &employee_id, name, department, avatar: "" };
        match self.directory.add_employee(arriving).await.map_err(failed)? {
            WriteOutcome::Applied => Ok(Done::changed(0)),
            WriteOutcome::Conflict => Err(AdminError::Refused(format!(
                "there is an employee {employee_id} already; `deskgate employee change {employee_id}` changes them"
            ))),
        }
    }

    async fn change_employee(&self, who: &Who, edit: EmployeeEdit<'_>) -> Result<Done, AdminError> {
        for (what, text) in [("name", edit.name), ("department", edit.department)] {
            text.map_or(Ok(()), |text| plain(what, text))?;
        }
        let before = self.known(who).await?;
        let changed = self.directory.change_employee(account(&before), edit).await.map_err(failed)?;
        accepted(changed, || AdminError::no_employee(who), who)?;
        let mut employee = self.known(who).await?;
        let mut sessions = 0;
        loop {
            sessions += match employee.standing {
                Standing::Active => self.live.change_profile(&employee).await.map_err(failed)?,
                Standing::Disabled => self.end_sessions_of(account(&employee)).await?,
            };
            // Two changes at once: the slower must not leave what it has read before the other.
            let newer = self.known(who).await?;
            if newer == employee {
                break;
            }
            employee = newer;
        }
        if employee == before && sessions == 0 {
            return Ok(Done::Unchanged);
        }
        Ok(Done::changed(sessions))
    }

    async fn remove_employee(&self, who: &Who) -> Result<Done, AdminError> {
        let (corp_id, employee_id) = self.named(who)?;
        let whose = Account { corp_id: &corp_id, employee_id: &employee_id };
        let removed = self.directory.remove_employee(whose).await.map_err(failed)?;
        if removed == RoleChange::LastAdmin {
            return Err(AdminError::last_admin(who));
        }
        // Also of somebody who is not there: an order before this one may have got as far as the directory only.
        let sessions = self.end_sessions_of(whose).await?;
        if removed == RoleChange::NoEmployee && sessions == 0 {
            return Err(self.nobody(who).await);
        }
        Ok(Done::changed(sessions))
    }

    async fn end_sessions_of(&self, whose: Account<'_>) -> Result<usize, AdminError> {
        let ended = self.live.end_all_of(whose.corp_id, whose.employee_id, EndCause::RolesLost).await;
        ended.map_err(|error| {
            AdminError::Failed(format!(
                "the employee is changed, but sessions may not have ended; do it once more: {}",
                crate::error::chain(&error)
            ))
        })
    }

    /// Of whom nothing was found must at least be there, if somebody is asked for.
    async fn must_be_there(&self, employee_id: Option<String>) -> Result<(), AdminError> {
        match employee_id {
            Some(employee_id) => self.known(&Who { employee_id, corp_id: None }).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// The employee who is named.
    pub(super) async fn known(&self, who: &Who) -> Result<Employee, AdminError> {
        let (corp_id, employee_id) = self.named(who)?;
        let employee = self.directory.employee(&corp_id, &employee_id).await.map_err(failed)?;
        match employee {
            Some(employee) => Ok(employee),
            None => Err(self.nobody(who).await),
        }
    }
}

/// The longest name or department. The platform's own are shorter; tokens and headers carry them.
const LONGEST: usize = 128;

/// Whether a text can be a name: something, not too long, and nothing that a terminal or a header would execute.
fn plain(what: &str, text: &str) -> Result<(), AdminError> {
    if what == "name" && text.trim().is_empty() {
        return Err(AdminError::Refused("a name cannot be empty".to_owned()));
    }
    if text.chars().count() > LONGEST || text.chars().any(char::is_control) {
        return Err(AdminError::Refused(format!(
            "a {what} has at most {LONGEST} characters, and no line ends or other control characters"
        )));
    }
    Ok(())
}

pub(super) fn account(employee: &Employee) -> Account<'_> {
    Account { corp_id: &employee.corp_id, employee_id: &employee.employee_id }
}
