//! `deskgate man FOLDER`: the manual pages of packages, from the same definitions as `--help`.

use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::{Cli, Failed, print_error};
use crate::domain::clock::Timestamp;

/// The name of the collection, in the middle of a page's head.
const MANUAL: &str = "deskgate manual";

#[derive(Args)]
pub(super) struct ManArgs {
    /// Existing folder for the pages.
    folder: PathBuf,
}

pub(super) fn run(args: &ManArgs) -> Result<(), Failed> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    write_pages(&program, None, &args.folder)
        .map_err(|error| print_error(format!("{}: {error}", args.folder.display())))
}

/// Writes the page of a command and those of its subcommands. `parent` is the name of the page above.
fn write_pages(command: &Command, parent: Option<&str>, folder: &Path) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let visible = |command: &&Command| !command.is_hide_set();
    for subcommand in command.get_subcommands().filter(visible) {
        write_pages(subcommand, Some(name), folder)?;
    }
    let mut page = Vec::new();
    let source = concat!("deskgate ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).date(built_on()).source(source).manual(MANUAL).render(&mut page)?;
    see_also(parent).to_writer(&mut page)?;
    std::fs::write(folder.join(format!("{name}.1")), page)
}

/// The day of the build, as `YYYY-MM-DD`.
fn built_on() -> String {
    let built = env!("DESKGATE_BUILT").parse().unwrap_or(0);
    Timestamp::from_seconds(built).iso8601().chars().take("YYYY-MM-DD".len()).collect()
}

/// The last section of a page.
fn see_also(parent: Option<&str>) -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["SEE ALSO"]);
    let mut text = Vec::new();
    if let Some(parent) = parent {
        text.extend([bold(parent), roman("(1), ")]);
    }
    text.extend([bold("deskgate.toml"), roman("(5)")]);
    section.text(text);
    section
}
