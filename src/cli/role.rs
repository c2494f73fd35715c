//! `deskgate role …`

use clap::{Args, Subcommand};

use super::Failed;
use super::operate::{OrderArgs, WhoArgs};
use crate::admin::Command;
use crate::admin::roles::RoleCommand;

/// `deskgate role …`
#[derive(Args)]
pub(super) struct RoleArgs {
    #[command(subcommand)]
    order: RoleSubcommand,
}

#[derive(Subcommand)]
enum RoleSubcommand {
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
        RoleSubcommand::List { role, employee, args } => {
            args.order(Command::Role(RoleCommand::List { role: role.clone(), employee_id: employee.clone() }))
        }
        RoleSubcommand::Grant(Assign { who, role, args }) => {
            args.order(Command::Role(RoleCommand::Grant { who: who.who(), role: role.clone() }))
        }
        RoleSubcommand::Take(Assign { who, role, args }) => {
            args.order(Command::Role(RoleCommand::Take { who: who.who(), role: role.clone() }))
        }
    }
}
