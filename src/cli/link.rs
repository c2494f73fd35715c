//! `deskgate employee link …`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::client::{ClientArgs, ConfirmArgs, EmployeeRefArgs};
use super::{Failed, print_error};
use crate::admin::AdminCommand;
use crate::admin::command::{EmployeeCommand, EmployeeRef, LinkCommand, PlatformAccountRef};
use crate::domain::link::LinkState;

#[derive(Args)]
pub(super) struct LinkArgs {
    #[command(subcommand)]
    command: LinkSubcommand,
}

#[derive(Subcommand)]
enum LinkSubcommand {
    /// List links, those that wait for approval first.
    List {
        /// Show only links in this state.
        #[arg(long)]
        state: Option<LinkStateArg>,
        /// Show only links to this employee.
        #[arg(long, value_name = "EMPLOYEE_ID")]
        employee: Option<String>,
        /// Show only links of this connected corporation's members.
        #[arg(long, value_name = "CORP_ID")]
        partner: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Link a platform account to an employee, or all accounts in a file.
    ///
    /// The file is CSV with the first line `corp_id,platform_user,employee_id`. Every line is checked before any link
    /// is added.
    Add {
        /// Platform account, as CORP_ID/USER.
        #[arg(required_unless_present = "file", value_parser = account_ref)]
        account: Option<PlatformAccountRef>,
        /// ID of the employee whom the account signs in as.
        #[arg(required_unless_present = "file")]
        employee_id: Option<String>,
        /// CSV file with links.
        #[arg(long, conflicts_with_all = ["account", "employee_id"])]
        file: Option<PathBuf>,
        /// Corporation of the employees [default: the main corporation]
        #[arg(long, value_name = "CORP_ID")]
        corp: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Approve the link that a platform account asks for.
    ///
    /// Name the employee that you have checked: the request may have changed since you saw it.
    Approve {
        /// Platform account, as CORP_ID/USER.
        #[arg(value_parser = account_ref)]
        account: PlatformAccountRef,
        #[command(flatten)]
        target: EmployeeRefArgs,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Refuse the link that a platform account asks for.
    Refuse {
        /// Platform account, as CORP_ID/USER.
        #[arg(value_parser = account_ref)]
        account: PlatformAccountRef,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Remove a link and end the sessions that came through it.
    Remove {
        /// Platform account, as CORP_ID/USER.
        #[arg(value_parser = account_ref)]
        account: PlatformAccountRef,
        #[command(flatten)]
        client: ClientArgs,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum LinkStateArg {
    Pending,
    Approved,
}

impl From<LinkStateArg> for LinkState {
    fn from(state: LinkStateArg) -> Self {
        match state {
            LinkStateArg::Pending => LinkState::Pending,
            LinkStateArg::Approved => LinkState::Approved,
        }
    }
}

/// Splits `CORP_ID/USER`; the gateway checks both parts.
fn account_ref(text: &str) -> Result<PlatformAccountRef, String> {
    match text.split_once('/') {
        Some((corp_id, user)) => Ok(PlatformAccountRef { corp_id: corp_id.to_owned(), platform_user: user.to_owned() }),
        None => Err("write it as CORP_ID/USER, for example wwpartner/p7001".to_owned()),
    }
}

pub(super) fn run(args: &LinkArgs) -> Result<(), Failed> {
    let (client, command) = match &args.command {
        LinkSubcommand::List { state, employee, partner, client } => {
            let (employee_id, corp_id) = (employee.clone(), partner.clone());
            (client, LinkCommand::List { state: state.map(LinkState::from), employee_id, corp_id })
        }
        LinkSubcommand::Add { account, employee_id, file, corp, client } => {
            let command = match (account, employee_id, file) {
                (Some(account), Some(employee_id), None) => {
                    let employee = EmployeeRef { employee_id: employee_id.clone(), corp_id: corp.clone() };
                    LinkCommand::Add { account: account.clone(), employee }
                }
                (_, _, Some(file)) => LinkCommand::Import { text: read_file(file)?, corp_id: corp.clone() },
                // clap requires one or the other.
                _ => return Err(print_error("pass a platform account and an employee ID, or --file")),
            };
            (client, command)
        }
        LinkSubcommand::Approve { account, target, client } => {
            (client, LinkCommand::Approve { account: account.clone(), employee: target.employee() })
        }
        LinkSubcommand::Refuse { account, client } => (client, LinkCommand::Refuse { account: account.clone() }),
        LinkSubcommand::Remove { account, client, confirm } => {
            let PlatformAccountRef { corp_id, platform_user } = account;
            confirm.confirm(&format!(
                "The link of {corp_id}/{platform_user} will be removed, and the sessions that came through it end"
            ))?;
            (client, LinkCommand::Remove { account: account.clone() })
        }
    };
    client.run(AdminCommand::Employee(EmployeeCommand::Link(command)))
}

fn read_file(file: &Path) -> Result<String, Failed> {
    std::fs::read_to_string(file).map_err(|error| print_error(format!("{}: {error}", file.display())))
}
