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
        /// Of this employee only.
        #[arg(long, value_name = "EMPLOYEE_ID")]
        employee: Option<String>,
        /// Their corporation; without it the main one.
        #[arg(long, value_name = "CORP_ID", requires = "employee")]
        corp: Option<String>,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// End a session, or all of an employee, with their sockets.
    #[command(visible_alias = "remove")]
    End {
        /// Its id, as `list` shows it.
        #[arg(required_unless_present = "employee", conflicts_with = "employee")]
        id: Option<String>,
        /// All of this employee instead.
        #[arg(long, value_name = "EMPLOYEE_ID")]
        employee: Option<String>,
        /// Their corporation; without it the main one.
        #[arg(long, value_name = "CORP_ID", requires = "employee")]
        corp: Option<String>,
        #[command(flatten)]
        args: OrderArgs,
    },
}

pub(super) fn run(args: &SessionArgs) -> Result<(), Failed> {
    let named = |employee: &Option<String>, corp: &Option<String>| {
        employee.clone().map(|employee_id| Who { employee_id, corp_id: corp.clone() })
    };
    match &args.order {
        Order::List { employee, corp, args } => {
            args.order(Command::Session(SessionOrder::List { who: named(employee, corp) }))
        }
        Order::End { id, employee, corp, args } => {
            let order = match (id, named(employee, corp)) {
                (_, Some(who)) => SessionOrder::EndAll { who },
                (Some(id), None) => SessionOrder::End { id: id.clone() },
                (None, None) => return Err(complain("name a session or an employee")),
            };
            args.order(Command::Session(order))
        }
    }
}
