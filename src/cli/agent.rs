//! `deskgate agent …`

use std::io::IsTerminal;

use clap::{Args, Subcommand};

use super::client::{ClientArgs, ConfirmArgs, EmployeeRefArgs, read_hidden_line};
use super::output::{self, OutputFormat};
use super::{Failed, print, print_error};
use crate::admin::command::{AgentCommand, PlaintextSecret};
use crate::admin::{AdminCommand, CommandOutput};
use crate::domain::secret::random_name;

#[derive(Args)]
pub(super) struct AgentArgs {
    #[command(subcommand)]
    command: AgentSubcommand,
}

#[derive(Subcommand)]
enum AgentSubcommand {
    /// List agents and how they can sign in.
    List {
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Make an employee an agent.
    Add {
        #[command(flatten)]
        target: EmployeeRefArgs,
        /// Role of the agent until a role is assigned to them.
        #[arg(long, default_value = "agent")]
        role: String,
        /// Require a one-time-password device; until one is bound, a password sign-in allows nothing else.
        #[arg(long)]
        otp_required: bool,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Change an agent record.
    #[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
    Change {
        #[command(flatten)]
        target: EmployeeRefArgs,
        /// Role of the agent until a role is assigned to them.
        #[arg(long, group = "what")]
        role: Option<String>,
        /// Whether a one-time-password device is required.
        #[arg(long, group = "what", value_name = "true|false")]
        otp_required: Option<bool>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Set an agent's local password.
    ///
    /// Prompts for the password, or reads one line from standard input. Ends the sessions that were opened with
    /// the old password.
    Password {
        #[command(flatten)]
        target: EmployeeRefArgs,
        /// Generate a password and print it alone on standard output.
        #[arg(long, conflicts_with = "clear")]
        generate: bool,
        /// Remove the password instead.
        #[arg(long)]
        clear: bool,
        #[command(flatten)]
        confirm: ConfirmArgs,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Remove an agent record and its password; the employee stays.
    Remove {
        #[command(flatten)]
        target: EmployeeRefArgs,
        #[command(flatten)]
        confirm: ConfirmArgs,
        #[command(flatten)]
        client: ClientArgs,
    },
}

pub(super) fn run(args: &AgentArgs) -> Result<(), Failed> {
    match &args.command {
        AgentSubcommand::List { client } => client.run(AdminCommand::Agent(AgentCommand::List)),
        AgentSubcommand::Add { target, role, otp_required, client } => {
            client.run(AdminCommand::Agent(AgentCommand::Add {
                employee: target.employee(),
                role: role.clone(),
                otp_required: *otp_required,
            }))
        }
        AgentSubcommand::Change { target, role, otp_required, client } => {
            client.run(AdminCommand::Agent(AgentCommand::Change {
                employee: target.employee(),
                role: role.clone(),
                otp_required: *otp_required,
            }))
        }
        AgentSubcommand::Password { target, clear: true, confirm, client, .. } => {
            confirm.confirm(&format!("The local password of {} will be removed", target.employee_id()))?;
            client.run(AdminCommand::Agent(AgentCommand::ClearPassword { employee: target.employee() }))
        }
        AgentSubcommand::Password { target, generate, client, .. } => {
            let password = if *generate { generate_password() } else { read_password()? };
            let (employee, secret) = (target.employee(), PlaintextSecret(password.clone()));
            let done = client.execute(AdminCommand::Agent(AgentCommand::SetPassword { employee, password: secret }))?;
            match (generate, client.format()) {
                (true, OutputFormat::Json) => print(serde_json::json!({ "changed": true, "password": password })),
                (true, OutputFormat::Table) => {
                    // On standard error: a script takes the password from standard output.
                    if let CommandOutput::Changed { sessions, .. } = done {
                        eprintln!("{}", output::done(sessions));
                    }
                    print(&password)
                }
                (false, format) => output::print_output(&done, format),
            }
        }
        AgentSubcommand::Remove { target, confirm, client } => {
            let id = target.employee_id();
            confirm.confirm(&format!("The agent record and local password of {id} will be removed"))?;
            client.run(AdminCommand::Agent(AgentCommand::Remove { employee: target.employee() }))
        }
    }
}

/// 119 random bits, in groups that can be read out.
fn generate_password() -> String {
    let letters = random_name(20);
    [&letters[..5], &letters[5..10], &letters[10..15], &letters[15..]].join("-")
}

/// Reads the password twice from a terminal, where it is not echoed, or once from a pipe.
fn read_password() -> Result<String, Failed> {
    let password = read_hidden_line("New password: ")?;
    if std::io::stdin().is_terminal() && read_hidden_line("Repeat password: ")? != password {
        return Err(print_error("the passwords do not match; nothing was changed"));
    }
    Ok(password)
}
