//! `deskgate completions SHELL`: what a shell needs to complete our commands.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Failed, print};

/// `deskgate completions SHELL`
#[derive(Args)]
pub(super) struct CompletionsArgs {
    /// For which shell.
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> Result<(), Failed> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "deskgate", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}
