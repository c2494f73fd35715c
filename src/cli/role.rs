//! `deskgate role …`

use clap::{Args, Subcommand};

use super::Failed;
use super::client::{ClientArgs, EmployeeRefArgs};
use crate::admin::AdminCommand;
use crate::admin::command::RoleCommand;

#[derive(Args)]
pub(super) struct RoleArgs {
    #[command(subcommand)]
    command: RoleSubcommand,
}

#[derive(Subcommand)]
enum RoleSubcommand {
    /// List role assignments.
    ///
    /// Agents who never had an assignment have the role of their agent record, which `deskgate employee list` shows.
    List {
        /// Show only this role.
        #[arg(long)]
        role: Option<String>,
        /// Show only this employee.
        #[arg(long, value_name = "EMPLOYEE_ID")]
        employee: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Grant a role; live sessions get it at once.
    #[command(visible_alias = "add")]
    Grant(AssignmentArgs),
    /// Take a role away; live sessions lose it at once, and WebSockets that require it close.
    ///
    /// No other role takes its place: an employee who loses the last one cannot sign in.
    #[command(visible_alias = "remove")]
    Take(AssignmentArgs),
}

#[derive(Args)]
struct AssignmentArgs {
    #[command(flatten)]
    target: EmployeeRefArgs,
    /// Role: user, agent, supervisor, security, admin, or one from your own rules.
    role: String,
    #[command(flatten)]
    client: ClientArgs,
}

pub(super) fn run(args: &RoleArgs) -> Result<(), Failed> {
    match &args.command {
        RoleSubcommand::List { role, employee, client } => {
            client.run(AdminCommand::Role(RoleCommand::List { role: role.clone(), employee_id: employee.clone() }))
        }
        RoleSubcommand::Grant(AssignmentArgs { target, role, client }) => {
            client.run(AdminCommand::Role(RoleCommand::Grant { employee: target.employee(), role: role.clone() }))
        }
        RoleSubcommand::Take(AssignmentArgs { target, role, client }) => {
            client.run(AdminCommand::Role(RoleCommand::Take { employee: target.employee(), role: role.clone() }))
        }
    }
}
