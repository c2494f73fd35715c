//! `deskgate backup`: copies the data directory while the gateway runs.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{ConfigArgs, Failed, print, print_error, print_faults, runtime};
use crate::app;

#[derive(Args)]
pub(super) struct BackupArgs {
    /// Folder for the copy; it must not exist yet.
    #[arg(value_name = "DIR")]
    target: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &BackupArgs) -> Result<(), Failed> {
    let config = args.config.load().map_err(|faults| print_faults(&faults))?;
    // One line per file, while the next one is copied: a large database takes a while.
    let copied = |name: &Path, bytes: u64| eprintln!("copied {} ({bytes} bytes)", name.display());
    runtime(1)?.block_on(app::back_up(&config, &args.target, copied)).map_err(print_error)?;
    print(format_args!("backup complete: {}", args.target.display()))
}
