//! `deskgate fleet`

use clap::Args;

use super::Failed;
use super::client::ClientArgs;
use crate::admin::AdminCommand;

#[derive(Args)]
pub(super) struct FleetArgs {
    #[command(flatten)]
    client: ClientArgs,
}

pub(super) fn run(args: &FleetArgs) -> Result<(), Failed> {
    args.client.run(AdminCommand::Fleet)
}
