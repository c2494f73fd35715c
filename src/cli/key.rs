//! `deskgate key …`

use clap::{Args, Subcommand};

use super::Failed;
use super::client::{ClientArgs, ConfirmArgs};
use crate::admin::AdminCommand;
use crate::admin::command::KeyCommand;
use crate::admin::keys::KeyStart;

#[derive(Args)]
pub(super) struct KeyArgs {
    #[command(subcommand)]
    command: KeySubcommand,
}

#[derive(Subcommand)]
enum KeySubcommand {
    /// List signing keys.
    List {
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Create a signing key that replaces the current one.
    ///
    /// The new key is published at once and signs after `token.key_lead`, when every service that verifies
    /// our signatures has fetched it. The old key's signatures stay valid for `token.key_grace`: with the
    /// default, nobody is signed out.
    #[command(visible_alias = "add")]
    Rotate {
        /// Sign with the new key immediately, for example after the old one leaked.
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Remove a signing key and end the sessions whose tokens it signed.
    Remove {
        /// ID of the key, as shown by `deskgate key list`.
        id: String,
        #[command(flatten)]
        confirm: ConfirmArgs,
        #[command(flatten)]
        client: ClientArgs,
    },
}

pub(super) fn run(args: &KeyArgs) -> Result<(), Failed> {
    match &args.command {
        KeySubcommand::List { client } => client.run(AdminCommand::Key(KeyCommand::List)),
        KeySubcommand::Rotate { now, client } => {
            let start = if *now { KeyStart::Now } else { KeyStart::AfterLead };
            client.run(AdminCommand::Key(KeyCommand::Rotate { start }))
        }
        KeySubcommand::Remove { id, confirm, client } => {
            confirm.confirm(&format!("All sessions signed with key {id} will end"))?;
            client.run(AdminCommand::Key(KeyCommand::Remove { id: id.clone() }))
        }
    }
}
