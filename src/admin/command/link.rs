//! `deskgate employee link …`

use serde::{Deserialize, Serialize};

use super::{CommandOutput, EmployeeRef};
use crate::admin::links::{ImportResult, NewLink};
use crate::admin::{Actor, Admin, AdminError, MAX_ROWS};
use crate::directory::links::LinkQuery;
use crate::domain::link::{LinkState, PlatformAccount};

/// A member of a connected corporation, as the operator named them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlatformAccountRef {
    /// The connected corporation.
    pub corp_id: String,
    /// The member's ID there.
    pub platform_user: String,
}

/// A command about links.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkCommand {
    /// Lists links.
    List {
        /// Only links in this state.
        state: Option<LinkState>,
        /// Only links to this employee.
        employee_id: Option<String>,
        /// Only links of this connected corporation.
        corp_id: Option<String>,
    },
    /// Adds an approved link.
    Add {
        /// The platform account.
        account: PlatformAccountRef,
        /// The employee.
        employee: EmployeeRef,
    },
    /// Adds the links of a CSV file.
    Import {
        /// The file's content.
        text: String,
        /// The corporation of the employees; the main one if omitted.
        corp_id: Option<String>,
    },
    /// Approves a pending link.
    Approve {
        /// The platform account.
        account: PlatformAccountRef,
        /// The employee that the account asks for.
        employee: EmployeeRef,
    },
    /// Refuses a pending link.
    Refuse {
        /// The platform account.
        account: PlatformAccountRef,
    },
    /// Removes a link and ends its sessions.
    Remove {
        /// The platform account.
        account: PlatformAccountRef,
    },
}

impl Admin {
    pub(super) async fn execute_link(
        &self,
        actor: Actor<'_>,
        command: LinkCommand,
    ) -> Result<CommandOutput, AdminError> {
        let effect = match command {
            LinkCommand::List { state, employee_id, corp_id } => {
                let (employee_id, corp_id) = (employee_id.as_deref(), corp_id.as_deref());
                let query = LinkQuery { state, employee_id, corp_id, limit: MAX_ROWS, ..LinkQuery::default() };
                return Ok(CommandOutput::Links(self.links.list(query).await?.items));
            }
            LinkCommand::Import { text, corp_id } => {
                let ImportResult { added, unchanged, note } =
                    self.links.import(actor, &text, corp_id.as_deref()).await?;
                return Ok(CommandOutput::LinksAdded { added, unchanged, note });
            }
            LinkCommand::Add { account, employee } => {
                let (account, employee) = (self.platform_account(&account)?, self.account_named(&employee)?);
                let note = self.links.note_on_new_corps([&account.corp_id].into()).await?;
                let link = NewLink { account: &account, employee: employee.as_account() };
                let effect = self.links.add(actor, link).await?;
                return Ok(CommandOutput::from(effect).with_note(note));
            }
            LinkCommand::Approve { account, employee } => {
                let (account, employee) = (self.platform_account(&account)?, self.account_named(&employee)?);
                self.links.approve(actor, NewLink { account: &account, employee: employee.as_account() }).await?
            }
            LinkCommand::Refuse { account } => self.links.refuse(actor, &self.platform_account(&account)?).await?,
            LinkCommand::Remove { account } => self.links.remove(actor, &self.platform_account(&account)?).await?,
        };
        Ok(effect.into())
    }

    fn platform_account(&self, account: &PlatformAccountRef) -> Result<PlatformAccount, AdminError> {
        self.links.parse(&account.corp_id, &account.platform_user)
    }
}
