//! The commands. One file each.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::app::RuleSource;
use crate::config::{self, Config, Fault, Override};
use crate::metrics::Metrics;
use crate::rules::RuleSet;

mod check;

mod demo;

mod explain;

mod log;

mod operate;

mod serve;

/// The front door of an IT help desk.
#[derive(Parser)]
#[command(name = "deskgate", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway.
    Serve(ConfigArgs),
    /// Look for faults in the configuration and the rules; exit 1 if there are any.
    Check(ConfigArgs),
    /// Say how a request is answered, and why.
    Explain(Box<explain::ExplainArgs>),
    /// Run gateway, simulated platform and a demo help desk in one process, and say what to open.
    Demo(demo::DemoArgs),
    /// Show and end sessions.
    Session(operate::SessionArgs),
    /// Show, grant and take roles.
    Role(operate::RoleArgs),
}

/// Where the configuration comes from.
#[derive(Args, Clone)]
struct ConfigArgs {
    /// The configuration file; without one the defaults hold.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sets one key, over the file's value; may be given again.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    overrides: Vec<Override>,
}

impl ConfigArgs {
    fn load(&self) -> Result<Config, Vec<Fault>> {
        config::load(self.config.as_deref(), &self.overrides)
    }
}

/// A command that failed; everything there is to say has been said on standard error.
struct Failed;

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(*args),
        Command::Demo(args) => demo::run(&args),
        Command::Session(args) => operate::session(&args),
        Command::Role(args) => operate::role(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed) => ExitCode::FAILURE,
    }
}

/// Says something on standard error.
fn complain(text: impl std::fmt::Display) -> Failed {
    eprintln!("{text}");
    Failed
}

/// Says all faults of a configuration or of rules.
fn complain_of(faults: &[impl std::fmt::Display]) -> Failed {
    for fault in faults {
        eprintln!("{fault}");
    }
    Failed
}

/// Loads rules and runs their cases.
fn load_rules(source: &RuleSource, upstreams: &[&str]) -> Result<RuleSet, Failed> {
    let metrics = Metrics::new().map_err(complain)?;
    source.load(upstreams, &metrics).map_err(|faults| complain_of(&faults))
}

/// A runtime with the configured number of threads.
fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failed> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if threads > 0 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().map_err(|error| complain(format!("the runtime cannot start: {error}")))
}
