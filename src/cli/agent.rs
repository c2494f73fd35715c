//! `deskgate agent …`

use clap::{Args, Subcommand};

use super::operate::{OrderArgs, SureArgs, WhoArgs, hidden_line};
use super::show::{self, Shown};
use super::{Failed, print, print_error};
use crate::admin::agents::AgentCommand;
use crate::admin::{Command, Typed};
use crate::domain::secret::random_name;

/// `deskgate agent …`
#[derive(Args)]
pub(super) struct AgentArgs {
    #[command(subcommand)]
    order: AgentSubcommand,
}

#[derive(Subcommand)]
enum AgentSubcommand {
    /// Show agents, and what they can sign in with.
    List {
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Make an employee an agent.
    Add {
        #[command(flatten)]
        who: WhoArgs,
        /// The role that counts where none is assigned.
        #[arg(long, default_value = "agent")]
        role: String,
        /// They must bind a one-time-password device before anything else that `agents/login` opens.
        #[arg(long)]
        otp_required: bool,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Change an agent's record.
    #[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
    Change {
        #[command(flatten)]
        who: WhoArgs,
        /// The role that counts where none is assigned.
        #[arg(long, group = "what")]
        role: Option<String>,
        /// Whether they must bind a one-time-password device before anything else.
        #[arg(long, group = "what", value_name = "true|false")]
        otp_required: Option<bool>,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Set an agent's local password: asks for it, or reads a line of standard input.
    Password {
        #[command(flatten)]
        who: WhoArgs,
        /// Make one up and print it.
        #[arg(long, conflicts_with = "clear")]
        generate: bool,
        /// Remove the password instead.
        #[arg(long)]
        clear: bool,
        #[command(flatten)]
        sure: SureArgs,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Remove an agent's record with its password; the employee stays.
    Remove {
        #[command(flatten)]
        who: WhoArgs,
        #[command(flatten)]
        sure: SureArgs,
        #[command(flatten)]
        args: OrderArgs,
    },
}

pub(super) fn run(args: &AgentArgs) -> Result<(), Failed> {
    match &args.order {
        AgentSubcommand::List { args } => args.order(Command::Agent(AgentCommand::List)),
        AgentSubcommand::Add { who, role, otp_required, args } => args.order(Command::Agent(AgentCommand::Add {
            who: who.who(),
            role: role.clone(),
            otp_required: *otp_required,
        })),
        AgentSubcommand::Change { who, role, otp_required, args } => args.order(Command::Agent(AgentCommand::Change {
            who: who.who(),
            role: role.clone(),
            otp_required: *otp_required,
        })),
        AgentSubcommand::Password { who, clear: true, sure, args, .. } => {
            sure.ask(&format!("The local password of {} works no more", who.id()))?;
            args.order(Command::Agent(AgentCommand::ClearPassword { who: who.who() }))
        }
        AgentSubcommand::Password { who, generate, args, .. } => {
            let password = if *generate { made_up() } else { typed()? };
            let order = AgentCommand::SetPassword { who: who.who(), password: Typed(password.clone()) };
            let done = args.carry_out(Command::Agent(order))?;
            match (generate, args.shown()) {
                (true, Shown::Json) => print(serde_json::json!({ "changed": true, "password": password })),
                (true, Shown::Table) => show::done(&done, Shown::Table).and_then(|()| print(&password)),
                (false, shown) => show::done(&done, shown),
            }
        }
        AgentSubcommand::Remove { who, sure, args } => {
            sure.ask(&format!("The agent's record of {} goes, with its password", who.id()))?;
            args.order(Command::Agent(AgentCommand::Remove { who: who.who() }))
        }
    }
}

/// 119 bits, in pieces that can be read out.
fn made_up() -> String {
    let letters = random_name(20);
    [&letters[..5], &letters[5..10], &letters[10..15], &letters[15..]].join("-")
}

/// Twice from a person, who cannot see it; once from a script.
fn typed() -> Result<String, Failed> {
    use std::io::IsTerminal;
    let password = hidden_line("New password: ")?;
    if std::io::stdin().is_terminal() && hidden_line("Once more: ")? != password {
        return Err(print_error("the two are not the same; nothing was changed"));
    }
    Ok(password)
}
