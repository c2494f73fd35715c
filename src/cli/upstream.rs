//! `deskgate upstream`

use clap::{Args, Subcommand};

use super::Failed;
use super::client::ClientArgs;
use crate::admin::AdminCommand;

#[derive(Args)]
pub(super) struct UpstreamArgs {
    #[command(subcommand)]
    command: UpstreamCliCommand,
}

#[derive(Subcommand)]
enum UpstreamCliCommand {
    /// List the addresses of all upstreams: which get requests, which are ejected or unhealthy, and why.
    List {
        #[command(flatten)]
        client: ClientArgs,
    },
}

pub(super) fn run(args: &UpstreamArgs) -> Result<(), Failed> {
    match &args.command {
        UpstreamCliCommand::List { client } => client.run(AdminCommand::Upstreams),
    }
}
