//! The commands. One file each.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::app::RuleSource;
use crate::config::{self, Config, Fault, Override};
use crate::metrics::Metrics;
use crate::rules::RuleSet;

mod agent;

mod check;

mod completions;

#[cfg(feature = "demo")]
mod demo;

mod employee;

mod explain;

mod key;

mod log;

mod operate;

mod role;

mod serve;

mod session;

mod show;

mod terminal_qr;

/// The front door of an IT help desk.
#[derive(Parser)]
#[command(name = "deskgate", version, about, after_help = EXIT_CODES)]
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
    /// Run the gateway, a simulated platform and a demo help desk in one process, and print what to open.
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// Employees: show, add, change, disable, remove; their one-time-password devices and the login log.
    Employee(employee::EmployeeArgs),
    /// Roles: show, grant and take.
    Role(role::RoleArgs),
    /// Agents: show, add, change, remove; their local passwords.
    Agent(agent::AgentArgs),
    /// Signing keys: show, rotate, remove.
    Key(key::KeyArgs),
    /// Sessions: show and end.
    Session(session::SessionArgs),
    /// Print completions for a shell, e.g. `deskgate completions bash > /etc/bash_completion.d/deskgate`.
    Completions(completions::CompletionsArgs),
}

/// Where the configuration comes from.
#[derive(Args, Clone)]
struct ConfigArgs {
    /// The configuration file; without one the defaults hold.
    #[arg(long, value_name = "FILE", env = "DESKGATE_CONFIG")]
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

/// What scripts can rely on. 2 is the argument parser's.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Exit {
    /// A fault was found, or something is out of reach.
    CouldNot = 1,
    /// What was named is not there.
    NotThere = 3,
    /// What was asked for may not be.
    Refused = 4,
    /// Nobody said yes.
    NotConfirmed = 5,
}

const EXIT_CODES: &str = "Exit codes: 0 done, or so already; 1 a fault, or something is out of reach; 2 wrong usage; \
    3 what was named is not there; 4 refused, and why; 5 not confirmed.";

/// A command that failed; everything there is to say has been said on standard error.
struct Failed(Exit);

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(*args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(&args),
        Command::Employee(args) => employee::run(&args),
        Command::Role(args) => role::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Session(args) => session::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(exit)) => ExitCode::from(exit as u8),
    }
}

/// Says something on standard output. Whoever has closed it does not want to know.
fn say(text: impl std::fmt::Display) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        said => said.map_err(|error| complain(format!("standard output: {error}"))),
    }
}

/// Says something on standard error.
fn complain(text: impl std::fmt::Display) -> Failed {
    eprintln!("{text}");
    Failed(Exit::CouldNot)
}

/// Says all faults of a configuration or of rules.
fn complain_of(faults: &[impl std::fmt::Display]) -> Failed {
    for fault in faults {
        eprintln!("{fault}");
    }
    Failed(Exit::CouldNot)
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
