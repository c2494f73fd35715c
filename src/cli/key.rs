//! `deskgate key …`

use clap::{Args, Subcommand};

use super::Failed;
use super::operate::{OrderArgs, SureArgs};
use crate::admin::Command;
use crate::admin::keys::{KeyCommand, Turn};

/// `deskgate key …`
#[derive(Args)]
pub(super) struct KeyArgs {
    #[command(subcommand)]
    order: KeySubcommand,
}

#[derive(Subcommand)]
enum KeySubcommand {
    /// Show the signing keys.
    List {
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Make a new signing key. With the default `token.key_grace` nobody is signed out.
    ///
    /// It is published at once and signs after `token.key_lead`, so that everybody who checks our signatures has it
    /// by then. What the old key has signed is good for `token.key_grace` longer.
    #[command(visible_alias = "add")]
    Rotate {
        /// Sign with it at once: the old key is in wrong hands.
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Remove a key; whoever has a token of it must sign in again.
    Remove {
        /// Its id, as `list` shows it.
        id: String,
        #[command(flatten)]
        sure: SureArgs,
        #[command(flatten)]
        args: OrderArgs,
    },
}

pub(super) fn run(args: &KeyArgs) -> Result<(), Failed> {
    match &args.order {
        KeySubcommand::List { args } => args.order(Command::Key(KeyCommand::List)),
        KeySubcommand::Rotate { now, args } => {
            args.order(Command::Key(KeyCommand::Rotate { turn: if *now { Turn::Now } else { Turn::Later } }))
        }
        KeySubcommand::Remove { id, sure, args } => {
            sure.ask(&format!("Every session that key {id} has signed ends"))?;
            args.order(Command::Key(KeyCommand::Remove { id: id.clone() }))
        }
    }
}
