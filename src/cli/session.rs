//! `deskgate session …`

use clap::{Args, Subcommand};

use super::operate::OrderArgs;
use super::{Failed, print_error};
use crate::admin::sessions::SessionCommand;
use crate::admin::{Command, Who};

/// `deskgate session …`
#[derive(Args)]
pub(super) struct SessionArgs {
    #[command(subcommand)]
    order: SessionSubcommand,
}

#[derive(Subcommand)]
enum SessionSubcommand {
    /// Show live sessions.
    List {
        #[command(flatten)]
        of: OfArgs,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// End a session, or all of an employee, with their sockets.
    #[command(visible_alias = "remove")]
    End {
        /// Its id, as `list` shows it.
        #[arg(required_unless_present = "employee", conflicts_with = "employee")]
        id: Option<String>,
        #[command(flatten)]
        of: OfArgs,
        #[command(flatten)]
        args: OrderArgs,
    },
}

/// One employee's sessions.
#[derive(Args)]
struct OfArgs {
    /// All sessions of this employee.
    #[arg(long, value_name = "EMPLOYEE_ID")]
    employee: Option<String>,
    /// Their corporation; without it the main one.
    #[arg(long, value_name = "CORP_ID", requires = "employee")]
    corp: Option<String>,
}

impl OfArgs {
    fn who(&self) -> Option<Who> {
        self.employee.clone().map(|employee_id| Who { employee_id, corp_id: self.corp.clone() })
    }
}

pub(super) fn run(args: &SessionArgs) -> Result<(), Failed> {
    match &args.order {
        SessionSubcommand::List { of, args } => args.order(Command::Session(SessionCommand::List { who: of.who() })),
        SessionSubcommand::End { id, of, args } => {
            let order = match (id, of.who()) {
                (_, Some(who)) => SessionCommand::EndAll { who },
                (Some(id), None) => SessionCommand::End { id: id.clone() },
                (None, None) => return Err(print_error("name a session or an employee")),
            };
            args.order(Command::Session(order))
        }
    }
}
