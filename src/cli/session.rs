//! `deskgate session …`

use clap::{Args, Subcommand};

use super::client::ClientArgs;
use super::{Failed, print_error};
use crate::admin::AdminCommand;
use crate::admin::command::{EmployeeRef, SessionCommand};

#[derive(Args)]
pub(super) struct SessionArgs {
    #[command(subcommand)]
    command: SessionSubcommand,
}

#[derive(Subcommand)]
enum SessionSubcommand {
    /// List live sessions.
    List {
        #[command(flatten)]
        filter: SessionFilterArgs,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// End a session, or all sessions of an employee, and close their WebSockets.
    #[command(visible_alias = "remove")]
    End {
        /// ID of the session, as shown by `deskgate session list`.
        #[arg(required_unless_present = "employee", conflicts_with = "employee")]
        id: Option<String>,
        #[command(flatten)]
        filter: SessionFilterArgs,
        #[command(flatten)]
        client: ClientArgs,
    },
}

#[derive(Args)]
struct SessionFilterArgs {
    /// All sessions of this employee.
    #[arg(long, value_name = "EMPLOYEE_ID")]
    employee: Option<String>,
    /// Corporation of the employee [default: the main corporation]
    #[arg(long, value_name = "CORP_ID", requires = "employee")]
    corp: Option<String>,
}

impl SessionFilterArgs {
    fn employee(&self) -> Option<EmployeeRef> {
        self.employee.clone().map(|employee_id| EmployeeRef { employee_id, corp_id: self.corp.clone() })
    }
}

pub(super) fn run(args: &SessionArgs) -> Result<(), Failed> {
    match &args.command {
        SessionSubcommand::List { filter, client } => {
            client.run(AdminCommand::Session(SessionCommand::List { employee: filter.employee() }))
        }
        SessionSubcommand::End { id, filter, client } => {
            let command = match (id, filter.employee()) {
                (_, Some(employee)) => SessionCommand::EndAll { employee },
                (Some(id), None) => SessionCommand::End { id: id.clone() },
                (None, None) => return Err(print_error("pass a session ID or --employee")),
            };
            client.run(AdminCommand::Session(command))
        }
    }
}
