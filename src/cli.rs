//! Parses arguments and runs the command that they name. Each command has a file of its own.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::app::RuleSource;
use crate::config::{Config, ConfigFault, ConfigSource, NamedUpstream, Override};
use crate::metrics::Metrics;
use crate::rules::RuleSet;

mod agent;

mod backup;

mod check;

mod client;

mod completions;

mod config;

#[cfg(feature = "demo")]
mod demo;

#[cfg(feature = "demo")]
mod demo_services;

mod employee;

mod explain;

mod fleet;

mod key;

mod link;

mod log;

mod man;

mod output;

mod override_parser;

mod reload;

mod role;

mod secret;

mod serve;

mod session;

mod status;

mod store;

mod tail;

mod terminal_qr;

mod upstream;

/// The version and the commit that the program was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("DESKGATE_COMMIT"), ")");

/// Reverse-proxy authentication gateway for an IT help desk.
#[derive(Parser)]
#[command(name = "deskgate", version = VERSION, about, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Run the gateway.
    Serve(serve::ServeArgs),
    /// Check the configuration, key files, certificate and rules; report all faults and exit 1 if there are any.
    Check(check::CheckArgs),
    /// Explain how a request would be answered, or why one was refused.
    ///
    /// Shows every check of every rule whose path matches. With --request-id: explains why the running gateway has refused a request. It
    /// keeps its last 4,096 refusals in memory; the exit code is 3 if the request is not among them.
    Explain(Box<explain::ExplainArgs>),
    /// Run the gateway, a simulated platform and a demo help desk in one process, and print what to open.
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// Run the simulated platform and the demo help desk alone, for several gateways.
    #[cfg(feature = "demo")]
    DemoServices(demo_services::DemoServicesArgs),
    /// Manage employees, their one-time-password devices and the login log.
    Employee(employee::EmployeeArgs),
    /// List, grant and revoke roles.
    Role(role::RoleArgs),
    /// Manage agents and their local passwords.
    Agent(agent::AgentArgs),
    /// List, rotate and remove signing keys.
    Key(key::KeyArgs),
    /// Create the secret that the gateways of a fleet share.
    Secret(secret::SecretArgs),
    /// List and end sessions.
    Session(session::SessionArgs),
    /// List the running gateways, and what distinguishes them.
    Fleet(fleet::FleetArgs),
    /// Show the state of the running gateway.
    ///
    /// Version, readiness, listeners, the last reload, load, store, directory, messaging platform and upstreams. The exit code is 0 if the
    /// gateway is ready, and 1 if it is not or if none is running.
    Status(status::StatusArgs),
    /// Reload the running gateway's configuration, rules, keys and certificates; say what has changed.
    ///
    /// Does what SIGHUP does and waits for the result. If a file is faulty, nothing changes: the faults are printed and the exit code is 1.
    Reload(reload::ReloadArgs),
    /// Show the effective configuration.
    Config(config::ConfigCommandArgs),
    /// Follow requests as they end: what each was answered and why.
    ///
    /// One line per request, whatever the log is set to. A reader that is too slow loses lines and is told how many; requests never wait for
    /// it. Ends with Ctrl-C, or when the gateway stops.
    Tail(tail::TailArgs),
    /// Show the state of the upstreams' addresses.
    Upstream(upstream::UpstreamArgs),
    /// Copy the data directory to a new folder while the gateway runs.
    Backup(backup::BackupArgs),
    /// Move sessions, directory and signing keys, for example from one gateway to a fleet.
    Store(store::StoreArgs),
    /// Print a completion script, e.g. `deskgate completions bash > /etc/bash_completion.d/deskgate`.
    Completions(completions::CompletionsArgs),
    /// Write the manual pages, for packages.
    #[command(hide = true)]
    Man(man::ManArgs),
}

/// The configuration file and its overrides.
#[derive(Args, Clone)]
struct ConfigArgs {
    /// Configuration file; defaults apply if omitted.
    #[arg(long, value_name = "FILE", env = "DESKGATE_CONFIG")]
    config: Option<PathBuf>,
    /// Override one key of the file; can be repeated.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = override_parser::OverrideParser)]
    overrides: Vec<Override>,
}

impl ConfigArgs {
    fn source(&self) -> ConfigSource {
        ConfigSource { file: self.config.clone(), overrides: self.overrides.clone() }
    }

    fn load(&self) -> Result<Config, Vec<ConfigFault>> {
        self.source().load()
    }
}

/// Exit codes that scripts can rely on. 2 is the argument parser's as well.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Exit {
    /// A fault was found, or a backend failed.
    Failure = 1,
    /// Arguments that do not fit together, where the argument parser cannot tell.
    Usage = 2,
    /// The named object does not exist.
    NotFound = 3,
    /// The command is not allowed.
    Refused = 4,
    /// The operator did not confirm.
    NotConfirmed = 5,
}

const EXIT_CODES: &str =
    "Exit codes: 0 success or nothing to change; 1 failure; 2 wrong usage; 3 not found; 4 refused; 5 not confirmed.";

/// A failed command whose error is already on standard error.
struct Failed(Exit);

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    let result = match Cli::parse().command {
        CliCommand::Serve(args) => serve::run(&args),
        CliCommand::Check(args) => check::run(&args),
        CliCommand::Explain(args) => explain::run(*args),
        #[cfg(feature = "demo")]
        CliCommand::DemoServices(args) => demo_services::run(&args),
        #[cfg(feature = "demo")]
        CliCommand::Demo(args) => demo::run(&args),
        CliCommand::Employee(args) => employee::run(&args),
        CliCommand::Role(args) => role::run(&args),
        CliCommand::Agent(args) => agent::run(&args),
        CliCommand::Fleet(args) => fleet::run(&args),
        CliCommand::Status(args) => status::run(&args),
        CliCommand::Reload(args) => reload::run(&args),
        CliCommand::Config(args) => config::run(&args),
        CliCommand::Tail(args) => tail::run(args),
        CliCommand::Upstream(args) => upstream::run(&args),
        CliCommand::Key(args) => key::run(&args),
        CliCommand::Secret(args) => secret::run(&args),
        CliCommand::Session(args) => session::run(&args),
        CliCommand::Backup(args) => backup::run(&args),
        CliCommand::Store(args) => store::run(&args),
        CliCommand::Completions(args) => completions::run(&args),
        CliCommand::Man(args) => man::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(exit)) => ExitCode::from(exit as u8),
    }
}

/// Prints to standard output. A closed pipe is not an error: its reader has seen enough.
fn print(text: impl std::fmt::Display) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| print_error(format!("standard output: {error}"))),
    }
}

/// Prints an error to standard error.
fn print_error(text: impl std::fmt::Display) -> Failed {
    eprintln!("{text}");
    Failed(Exit::Failure)
}

/// Prints a warning to standard error.
fn print_warning(text: impl std::fmt::Display) {
    eprintln!("warning: {text}");
}

/// Prints every fault of a configuration or of rules to standard error, one per line.
fn print_faults(faults: &[impl std::fmt::Display]) -> Failed {
    for fault in faults {
        eprintln!("{fault}");
    }
    Failed(Exit::Failure)
}

/// Loads rules and runs their cases.
fn load_rules(source: &RuleSource, upstreams: &[NamedUpstream<'_>]) -> Result<RuleSet, Failed> {
    let metrics = Metrics::new().map_err(print_error)?;
    source.load(upstreams, &metrics).map_err(|faults| print_faults(&faults))
}

/// Runs a server: its tasks on `threads` of their own, of which 0 means one per core, and `main` on this thread. So a reload, which takes
/// long with many rules or slow files, delays no request.
fn serve_on<T>(threads: usize, main: impl Future<Output = T>) -> Result<T, Failed> {
    let threads = if threads > 0 { threads } else { std::thread::available_parallelism().map_or(1, usize::from) };
    if threads > 1 {
        return Ok(runtime(threads)?.block_on(main));
    }
    // The scheduler of a single thread has no queues that others could steal from, and so costs less.
    let runtime = build(&mut tokio::runtime::Builder::new_current_thread())?;
    let (handle, (finish, finished)) = (runtime.handle().clone(), tokio::sync::oneshot::channel::<()>());
    std::thread::scope(|scope| {
        // Ends once `finish` is dropped, also by a panic.
        let work = move || drop(runtime.block_on(finished));
        let worker = std::thread::Builder::new().name("tokio-rt-worker".to_owned()).spawn_scoped(scope, work);
        worker.map_err(|error| print_error(format!("cannot start a thread: {error}")))?;
        let result = handle.block_on(main);
        drop(finish);
        Ok(result)
    })
}

/// Starts the async runtime; 0 threads means one per core.
fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failed> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if threads > 0 {
        builder.worker_threads(threads);
    }
    build(&mut builder)
}

fn build(runtime: &mut tokio::runtime::Builder) -> Result<tokio::runtime::Runtime, Failed> {
    runtime.enable_all().build().map_err(|error| print_error(format!("cannot start the async runtime: {error}")))
}
