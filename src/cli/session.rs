//! `deskgate session …`

use clap::{Args, Subcommand};

use super::operate::OrderArgs;
use super::{Failed, complain};
use crate::operate::sessions::SessionOrder;
use crate::operate::{Command, Who};

/// `deskgate session …`
#[derive(Args)]
pub(super) struct SessionArgs {
    #[command(subcommand)]
    order: Order,
}

#[derive(Subcommand)]
enum Order {
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
        Order::List { of, args } => args.order(Command::Session(SessionOrder::List { who: of.who() })),
        Order::End { id, of, args } => {
            let order = match (id, of.who()) {
                (_, Some(who)) => SessionOrder::EndAll { who },
                (Some(id), None) => SessionOrder::End { id: id.clone() },
                (None, None) => return Err(complain("name a session or an employee")),
            };
            args.order(Command::Session(order))
        }
    }
}
