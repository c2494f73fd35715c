//! What `employee`, `role`, `agent`, `key` and `session` share: an order goes through the running gateway's socket, or
//! to its data when none runs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use tracing::instrument::WithSubscriber;

use super::show::{self, Shown};
use super::{ConfigArgs, Exit, Failed, log, print_error, print_faults, runtime};
use crate::admin::{self, AdminError, Command, Done, Who};
use crate::app::{self, ControlError, StartError};

/// How an order is given and its outcome shown.
#[derive(Args)]
pub(super) struct OrderArgs {
    /// JSON for scripts instead of words and tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Whom an order is about.
#[derive(Args)]
pub(super) struct WhoArgs {
    /// The employee's id.
    employee_id: String,
    /// Their corporation; without it the main one.
    #[arg(long, value_name = "CORP_ID")]
    corp: Option<String>,
}

impl WhoArgs {
    pub(super) fn who(&self) -> Who {
        Who { employee_id: self.employee_id.clone(), corp_id: self.corp.clone() }
    }

    /// The id, for questions.
    pub(super) fn id(&self) -> &str {
        &self.employee_id
    }
}

/// What cannot be undone asks first.
#[derive(Args)]
pub(super) struct SureArgs {
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

impl SureArgs {
    /// Asks, unless it was answered with the command.
    pub(super) fn ask(&self, what: &str) -> Result<(), Failed> {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            print_error(format!("{what}. This cannot be undone; say --yes to go on"));
            return Err(Failed(Exit::NotConfirmed));
        }
        let answer = line(&format!("{what}. This cannot be undone. Type yes to go on: "))?;
        if matches!(answer.trim(), "yes" | "y") {
            return Ok(());
        }
        print_error("nothing was changed");
        Err(Failed(Exit::NotConfirmed))
    }
}

impl OrderArgs {
    pub(super) fn shown(&self) -> Shown {
        if self.json { Shown::Json } else { Shown::Table }
    }

    /// Carries an order out and shows what came of it.
    pub(super) fn order(&self, command: Command) -> Result<(), Failed> {
        show::done(&self.carry_out(command)?, self.shown())
    }

    /// Carries an order out.
    pub(super) fn carry_out(&self, command: Command) -> Result<Done, Failed> {
        let config = self.config.load().map_err(|faults| {
            if self.config.config.is_none() {
                print_error(
                    "no --config and no DESKGATE_CONFIG say which gateway is meant, and the defaults do not do:",
                );
            }
            print_faults(&faults)
        })?;
        runtime(1)?.block_on(async {
            let begun = Instant::now();
            loop {
                match app::send_command(&config.server.data_dir, &command).await {
                    Ok(done) => return done.map_err(refused),
                    Err(ControlError::NotRunning) => {}
                    Err(fault) => return Err(print_error(fault)),
                }
                match app::open_offline(&config).await {
                    Ok((operator, _lock)) => {
                        // Nobody else writes the audit lines then.
                        let (audit, _guard) = log::audit(&config.log).map_err(print_error)?;
                        let order = admin::as_operator(nix::unistd::getuid().as_raw(), operator.run(command));
                        return order.with_subscriber(audit).await.map_err(refused);
                    }
                    // Another command, or a gateway that starts: it will be done, or answer, in a moment.
                    Err(StartError::Locked(_)) if begun.elapsed() < PATIENCE => tokio::time::sleep(BREATHER).await,
                    Err(fault) => return Err(print_error(fault)),
                }
            }
        })
    }
}

/// How long to wait for whoever uses the data directory.
const PATIENCE: Duration = Duration::from_secs(10);

const BREATHER: Duration = Duration::from_millis(50);

fn refused(fault: AdminError) -> Failed {
    let exit = match &fault {
        AdminError::NotThere(_) => Exit::NotFound,
        AdminError::Refused(_) => Exit::Refused,
        AdminError::Unknown | AdminError::Failed(_) => Exit::Failure,
    };
    print_error(fault);
    Failed(exit)
}

/// A line that somebody types, or a script pipes in.
pub(super) fn line(question: &str) -> Result<String, Failed> {
    // On standard error: what is printed for scripts stays clean.
    eprint!("{question}");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    match std::io::stdin().read_line(&mut answer) {
        Ok(0) => Err(print_error("nothing was typed in")),
        Ok(_) => Ok(answer.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => Err(print_error(format!("standard input: {error}"))),
    }
}

/// The same, without showing it.
pub(super) fn hidden_line(question: &str) -> Result<String, Failed> {
    if !std::io::stdin().is_terminal() {
        return line("");
    }
    rpassword::prompt_password(question).map_err(|error| print_error(format!("the terminal: {error}")))
}
