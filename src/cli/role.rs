//! `deskgate role …`

use clap::{Args, Subcommand};

use super::Failed;
use super::operate::{OrderArgs, WhoArgs};
use crate::operate::Command;
use crate::operate::roles::RoleOrder;

/// `deskgate role …`
#[derive(Args)]
pub(super) struct RoleArgs {
    #[command(subcommand)]
    order: Order,
}

#[derive(Subcommand)]
enum Order {
    /// Show which roles are assigned. Who has none has the one of their agent's record: see `employee list`.
    List {
        /// Of this role only.
        #[arg(long)]
        role: Option<String>,
        /// Of this employee only.
        #[arg(long, value_name = "EMPLOYEE_ID")]
        employee: Option<String>,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Give a role (user, agent, supervisor, security, admin, or one that rules of yours name); live sessions have it at
    /// once.
    #[command(visible_alias = "add")]
    Grant(Assign),
    /// Take a role; live sessions lose it at once, and sockets that need it close.
    #[command(visible_alias = "remove")]
    Take(Assign),
}

#[derive(Args)]
struct Assign {
    #[command(flatten)]
    who: WhoArgs,
    /// Which role.
    role: String,
    #[command(flatten)]
    args: OrderArgs,
}

pub(super) fn run(args: &RoleArgs) -> Result<(), Failed> {
    match &args.order {
        Order::List { role, employee, args } => {
            args.order(Command::Role(RoleOrder::List { role: role.clone(), employee_id: employee.clone() }))
        }
        Order::Grant(Assign { who, role, args }) => {
            args.order(Command::Role(RoleOrder::Grant { who: who.who(), role: role.clone() }))
        }
        Order::Take(Assign { who, role, args }) => {
            args.order(Command::Role(RoleOrder::Take { who: who.who(), role: role.clone() }))
        }
    }
}
