//! `deskgate employee …`

use serde::{Deserialize, Serialize};

use super::{CommandOutput, EmployeeRef, LinkCommand, PlaintextSecret};
use crate::admin::{Actor, Admin, AdminError};
use crate::directory::{LoginOutcome, LoginQuery};
use crate::domain::clock::Timestamp;
use crate::domain::employee::Standing;

/// A command about employees, their devices or the logs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmployeeCommand {
    /// Lists employees.
    List {
        /// Only those whose ID, name or department contains this.
        text: Option<String>,
    },
    /// Adds an employee before their first sign-in.
    Add {
        /// The employee.
        employee: EmployeeRef,
        /// Display name.
        name: String,
        /// Department name.
        department: String,
    },
    /// Changes name or department.
    Change {
        /// The employee.
        employee: EmployeeRef,
        /// New display name.
        name: Option<String>,
        /// New department name.
        department: Option<String>,
    },
    /// Blocks an employee from signing in, or lets them sign in again.
    SetStanding {
        /// The employee.
        employee: EmployeeRef,
        /// Whether they may sign in.
        standing: Standing,
    },
    /// Removes an employee.
    Remove {
        /// The employee.
        employee: EmployeeRef,
    },
    /// Ends a lockout after wrong passwords or codes.
    Unlock {
        /// The employee.
        employee: EmployeeRef,
    },
    /// Tells whether the employee has a one-time-password device.
    OtpStatus {
        /// The employee.
        employee: EmployeeRef,
    },
    /// Creates a secret for a new one-time-password device.
    OtpOffer {
        /// The employee.
        employee: EmployeeRef,
    },
    /// Binds the new device with its first code.
    OtpBind {
        /// The employee.
        employee: EmployeeRef,
        /// The code that the device shows.
        code: PlaintextSecret,
    },
    /// Removes the one-time-password device.
    OtpRemove {
        /// The employee.
        employee: EmployeeRef,
    },
    /// `deskgate employee link …`
    Link(LinkCommand),
    /// Reads the audit log.
    Events {
        /// Only this employee's entries.
        employee_id: Option<String>,
        /// The most entries to return.
        limit: usize,
    },
    /// Reads the login log.
    Logins {
        /// Only this employee's entries.
        employee_id: Option<String>,
        /// Only entries of then or later.
        #[serde(default)]
        since: Option<Timestamp>,
        /// Only successes, or only refusals.
        #[serde(default)]
        outcome: Option<LoginOutcome>,
        /// The most entries to return.
        limit: usize,
    },
}

impl Admin {
    pub(super) async fn execute_employee(
        &self,
        actor: Actor<'_>,
        command: EmployeeCommand,
    ) -> Result<CommandOutput, AdminError> {
        let effect = match command {
            EmployeeCommand::List { text } => {
                return Ok(CommandOutput::Employees(self.employees.list(text.as_deref()).await?));
            }
            EmployeeCommand::Logins { employee_id, since, outcome, limit } => {
                let query = LoginQuery { employee_id, since, outcome };
                return Ok(CommandOutput::Logins(self.employees.logins(&query, limit).await?));
            }
            EmployeeCommand::Events { employee_id, limit } => {
                return Ok(CommandOutput::AuditEntries(self.employees.audit_log(employee_id.as_deref(), limit).await?));
            }
            EmployeeCommand::Link(command) => return self.execute_link(actor, command).await,
            EmployeeCommand::OtpStatus { employee } => {
                let account = self.account_named(&employee)?;
                return Ok(CommandOutput::OtpBound(self.devices.is_bound(account.as_account()).await?));
            }
            EmployeeCommand::OtpOffer { employee } => {
                let account = self.account_named(&employee)?;
                let offer = self.devices.offer(actor, account.as_account()).await?;
                return Ok(CommandOutput::OtpOffered {
                    secret: PlaintextSecret(offer.secret.reveal().clone()),
                    otpauth_url: PlaintextSecret(offer.otpauth_url.reveal().clone()),
                });
            }
            EmployeeCommand::Add { employee, name, department } => {
                let account = self.account_named(&employee)?;
                self.employees.add(actor, account.as_account(), &name, &department).await?
            }
            EmployeeCommand::Change { employee, name, department } => {
                let account = self.account_named(&employee)?;
                self.employees.change(actor, account.as_account(), name.as_deref(), department.as_deref()).await?
            }
            EmployeeCommand::SetStanding { employee, standing } => {
                let account = self.account_named(&employee)?;
                let note = match standing {
                    Standing::Active => self.employees.note_on_enabling(account.as_account()).await?,
                    Standing::Disabled => None,
                };
                let effect = self.employees.set_standing(actor, account.as_account(), standing).await?;
                return Ok(CommandOutput::from(effect).with_note(note));
            }
            EmployeeCommand::Remove { employee } => {
                let account = self.account_named(&employee)?;
                self.employees.remove(actor, account.as_account()).await?
            }
            EmployeeCommand::Unlock { employee } => {
                let account = self.account_named(&employee)?;
                self.employees.unlock(actor, account.as_account()).await?
            }
            EmployeeCommand::OtpBind { employee, code } => {
                let account = self.account_named(&employee)?;
                self.devices.bind(actor, account.as_account(), &code.0).await?
            }
            EmployeeCommand::OtpRemove { employee } => {
                let account = self.account_named(&employee)?;
                self.devices.reset(actor, account.as_account()).await?
            }
        };
        Ok(effect.into())
    }
}
