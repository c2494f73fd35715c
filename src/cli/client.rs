//! Sends a command to the running gateway, or executes it on the data directory if no gateway runs. Shared by
//! `employee`, `role`, `agent`, `key` and `session`.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use tracing::instrument::WithSubscriber;

use super::output::{self, OutputFormat};
use super::{ConfigArgs, Exit, Failed, log, print_error, print_faults, runtime};
use crate::admin::command::EmployeeRef;
use crate::admin::{Actor, AdminCommand, CommandError, CommandOutput};
use crate::app::{self, ControlError, GatewayAnswer, GatewayCommand, StartError};
use crate::config::Config;

/// How long to wait while another process uses the data directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(super) struct ClientArgs {
    /// Print JSON instead of text and tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Args)]
pub(super) struct EmployeeRefArgs {
    /// ID of the employee.
    employee_id: String,
    /// Corporation of the employee [default: the main corporation]
    #[arg(long, value_name = "CORP_ID")]
    corp: Option<String>,
}

impl EmployeeRefArgs {
    pub(super) fn employee(&self) -> EmployeeRef {
        EmployeeRef { employee_id: self.employee_id.clone(), corp_id: self.corp.clone() }
    }

    pub(super) fn employee_id(&self) -> &str {
        &self.employee_id
    }
}

#[derive(Args)]
pub(super) struct ConfirmArgs {
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

impl ConfirmArgs {
    /// Asks for confirmation unless `--yes` was passed. `consequence` is a sentence without its period.
    pub(super) fn confirm(&self, consequence: &str) -> Result<(), Failed> {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            print_error(format!("{consequence}. This cannot be undone; pass --yes to confirm"));
            return Err(Failed(Exit::NotConfirmed));
        }
        let answer = read_line(&format!("{consequence}. This cannot be undone. Continue? [y/N] "))?;
        if matches!(answer.trim().to_ascii_lowercase().as_str(), "yes" | "y") {
            return Ok(());
        }
        print_error("cancelled; nothing was changed");
        Err(Failed(Exit::NotConfirmed))
    }
}

impl ClientArgs {
    pub(super) fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { OutputFormat::Table }
    }

    /// Executes a command and prints its output.
    pub(super) fn run(&self, command: AdminCommand) -> Result<(), Failed> {
        output::print_output(&self.execute(command)?, self.format())
    }

    /// Loads the configuration, which names the data directory and with it the gateway.
    pub(super) fn load(&self) -> Result<Config, Failed> {
        load_config(&self.config)
    }

    /// Executes a command.
    pub(super) fn execute(&self, command: AdminCommand) -> Result<CommandOutput, Failed> {
        let config = self.load()?;
        runtime(1)?.block_on(async {
            let begun = Instant::now();
            loop {
                match app::send_command(&config.server.data_dir, &command).await {
                    Ok(result) => return result.map_err(command_failed),
                    Err(ControlError::NotRunning) => {}
                    Err(fault) => return Err(print_error(fault)),
                }
                match app::open_offline(&config).await {
                    Ok(offline) => {
                        // No gateway runs that would write the audit lines to its log.
                        let (audit, _guard) = log::audit(&config).map_err(print_error)?;
                        let actor = Actor::Operator { uid: nix::unistd::getuid().as_raw() };
                        let executed = offline.admin.execute(actor, command).with_subscriber(audit).await;
                        offline.close().await;
                        return executed.map_err(command_failed);
                    }
                    // Another command, or a starting gateway: it will finish, or accept commands, shortly.
                    Err(StartError::Locked(_)) if begun.elapsed() < LOCK_TIMEOUT => {
                        tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
                    }
                    Err(fault) => return Err(print_error(fault)),
                }
            }
        })
    }
}

/// Loads the configuration of a command for a running gateway or its data.
pub(super) fn load_config(args: &ConfigArgs) -> Result<Config, Failed> {
    args.load().map_err(|faults| {
        if args.config.is_none() {
            print_error("no configuration: pass --config or set DESKGATE_CONFIG. The defaults do not work here:");
        }
        print_faults(&faults)
    })
}

/// Sends a command about the process itself to the running gateway.
pub(super) fn ask_gateway(args: &ConfigArgs, command: &GatewayCommand) -> Result<GatewayAnswer, Failed> {
    let config = load_config(args)?;
    runtime(1)?.block_on(async {
        let answered = app::send_gateway_command(&config.server.data_dir, command).await;
        answered.map_err(print_error)?.map_err(command_failed)
    })
}

pub(super) fn command_failed(error: CommandError) -> Failed {
    let exit = match &error {
        CommandError::NotFound(_) => Exit::NotFound,
        CommandError::Refused(_) => Exit::Refused,
        CommandError::Unsupported | CommandError::Failed(_) => Exit::Failure,
    };
    print_error(error);
    Failed(exit)
}

/// Reads a line from standard input.
pub(super) fn read_line(prompt: &str) -> Result<String, Failed> {
    // On standard error: standard output carries the result only.
    eprint!("{prompt}");
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) => Err(print_error("no input")),
        Ok(_) => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => Err(print_error(format!("cannot read standard input: {error}"))),
    }
}

/// Reads a line without echoing it.
pub(super) fn read_hidden_line(prompt: &str) -> Result<String, Failed> {
    if !std::io::stdin().is_terminal() {
        return read_line("");
    }
    rpassword::prompt_password(prompt).map_err(|error| print_error(format!("cannot read from the terminal: {error}")))
}
