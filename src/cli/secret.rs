//! `deskgate secret …`

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::client::ClientArgs;
use super::{Exit, Failed, print, print_error};
use crate::admin::AdminCommand;
use crate::admin::command::SecretCommand;
use crate::token::root_secret::RootSecret;

#[derive(Args)]
pub(super) struct SecretArgs {
    #[command(subcommand)]
    command: SecretSubcommand,
}

#[derive(Subcommand)]
enum SecretSubcommand {
    /// Create a secret for `server.secret_file`.
    New {
        /// File to create, readable by its owner only [default: print the secret]
        file: Option<PathBuf>,
    },
    /// Show whether anything still needs a secret of `server.old_secret_files`.
    Status {
        #[command(flatten)]
        client: ClientArgs,
    },
}

pub(super) fn run(args: &SecretArgs) -> Result<(), Failed> {
    match &args.command {
        SecretSubcommand::New { file: None } => print(RootSecret::generate()),
        SecretSubcommand::New { file: Some(file) } => create(file),
        SecretSubcommand::Status { client } => client.run(AdminCommand::Secret(SecretCommand::Status)),
    }
}

fn create(file: &Path) -> Result<(), Failed> {
    // Never replaces a file: what the old secret encrypted would be lost with it.
    let created = File::options().write(true).create_new(true).mode(0o600).open(file);
    let written = created.and_then(|mut created| {
        writeln!(created, "{}", RootSecret::generate())?;
        created.sync_all()
    });
    written.map_err(|error| {
        let failed = print_error(format!("{}: {error}", file.display()));
        if error.kind() == ErrorKind::AlreadyExists { Failed(Exit::Refused) } else { failed }
    })
}
