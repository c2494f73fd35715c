//! `deskgate completions SHELL`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Failed, print};

#[derive(Args)]
pub(super) struct CompletionsArgs {
    /// Shell to generate the script for.
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> Result<(), Failed> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "deskgate", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}
