//! `deskgate store copy`

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use super::output::table_lines;
use super::{Exit, Failed, print, print_error, print_faults, print_warning, runtime};
use crate::admin::copy::{CopyProgress, CopyReport, RecordCount, ReportProgress};
use crate::app;
use crate::config::{self, Config};

#[derive(Args)]
pub(super) struct StoreArgs {
    #[command(subcommand)]
    command: StoreSubcommand,
}

#[derive(Subcommand)]
enum StoreSubcommand {
    /// Copy sessions, directory and signing keys from one configuration's backends to another's.
    ///
    /// Nobody is signed out: start the gateways with the other configuration afterwards. Stop all gateways of both
    /// configurations first. A copy that was interrupted is completed by running it again; until then no gateway starts on
    /// the target.
    Copy(CopyArgs),
}

#[derive(Args)]
struct CopyArgs {
    /// Configuration file of the gateways that ran until now.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Configuration file of the gateways that will run; its directory must be empty.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Check both configurations and count what would be copied; copy nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &StoreArgs) -> Result<(), Failed> {
    let StoreSubcommand::Copy(args) = &args.command;
    let (from, to) = (load(&args.from)?, load(&args.to)?);
    let started = Instant::now();
    let mut bar = ProgressBar::new();
    let mut show = |progress: CopyProgress| bar.show(progress);
    let report: ReportProgress<'_> = &mut show;
    let copied = runtime(0)?.block_on(app::copy_state(&from, &to, (!args.dry_run).then_some(report)));
    bar.end();
    let report = copied.map_err(|refusal| {
        print_error(&refusal);
        Failed(if refusal.is_refusal() { Exit::Refused } else { Exit::Failure })
    })?;
    print_report(&report, args.json)?;
    if args.dry_run {
        return Ok(());
    }
    if report.undecryptable > 0 {
        print_warning(format_args!(
            "{} one-time-password secrets could not be decrypted and were copied as they are; their owners need a new device",
            report.undecryptable
        ));
    }
    require_all(&report)?;
    // On standard error: standard output carries the table or the JSON only.
    eprintln!(
        "copy complete after {:.1} s; start the gateways with {}",
        started.elapsed().as_secs_f64(),
        args.to.display()
    );
    Ok(())
}

fn load(file: &Path) -> Result<Config, Failed> {
    config::load(Some(file), &[]).map_err(|faults| print_faults(&faults))
}

fn print_report(report: &CopyReport, json: bool) -> Result<(), Failed> {
    if json {
        return print(serde_json::json!(report));
    }
    let row = |count: &RecordCount| {
        let note = match count.ended {
            0 => String::new(),
            ended => format!("{ended} not copied: ended at the target"),
        };
        vec![count.kind.to_owned(), count.source.to_string(), count.target.to_string(), note]
    };
    let rows: Vec<Vec<String>> = report.counts.iter().map(row).collect();
    print(table_lines(&["RECORDS", "SOURCE", "TARGET", "NOTE"], &rows).join("\n"))
}

/// Fails if records of the source are missing at the target.
fn require_all(report: &CopyReport) -> Result<(), Failed> {
    let missing = report.missing();
    for count in &missing {
        let RecordCount { kind, source, target, .. } = count;
        print_error(format_args!("{kind}: the source has {source}, the target {target}"));
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(print_error(
            "the copy is not complete; make sure that no gateway or command uses the source, and run the same command again",
        )),
    }
}

/// Shows how far a copy is: a bar on a terminal, lines elsewhere.
struct ProgressBar {
    terminal: bool,
    shown: Option<Instant>,
    line: Option<CopyProgress>,
}

impl ProgressBar {
    /// How often a bar and lines of text are renewed.
    const BAR_INTERVAL: Duration = Duration::from_millis(100);
    const LINE_INTERVAL: Duration = Duration::from_secs(5);

    const WIDTH: usize = 30;

    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: None, line: None }
    }

    fn show(&mut self, progress: CopyProgress) {
        let interval = if self.terminal { Self::BAR_INTERVAL } else { Self::LINE_INTERVAL };
        let is_new = self.line.is_none_or(|line| line.label != progress.label);
        if is_new {
            self.end();
        }
        self.line = Some(progress);
        let is_done = progress.done == progress.total;
        if is_done || (self.terminal && is_new) || self.shown.is_none_or(|shown| shown.elapsed() >= interval) {
            self.shown = Some(Instant::now());
            self.draw(progress);
        }
    }

    fn draw(&self, CopyProgress { label, done, total }: CopyProgress) {
        if !self.terminal {
            eprintln!("{label}: {done} of {total}");
            return;
        }
        let filled = (done * Self::WIDTH).checked_div(total).unwrap_or(Self::WIDTH).min(Self::WIDTH);
        let bar = format!("{}{}", "#".repeat(filled), "-".repeat(Self::WIDTH - filled));
        eprint!("\r[{bar}] {label}: {done} of {total}\x1b[K");
        let _ = std::io::stderr().flush();
    }

    /// Leaves the last bar on a line of its own.
    fn end(&mut self) {
        if self.terminal && self.line.take().is_some() {
            eprintln!();
        }
    }
}
