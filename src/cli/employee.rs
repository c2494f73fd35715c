//! `deskgate employee …`

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};

use super::client::{ClientArgs, ConfirmArgs, EmployeeRefArgs, read_line};
use super::link::{self, LinkArgs};
use super::output::{self, OutputFormat};
use super::{Exit, Failed, print, print_error, terminal_qr};
use crate::admin::command::{EmployeeCommand, PlaintextSecret};
use crate::admin::{AdminCommand, CommandOutput};
use crate::directory::LoginOutcome;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::duration::HumanDuration;
use crate::domain::employee::Standing;

/// How many wrong codes `otp-bind` accepts before it gives up.
const MAX_CODE_ATTEMPTS: usize = 3;

#[derive(Args)]
pub(super) struct EmployeeArgs {
    #[command(subcommand)]
    command: EmployeeSubcommand,
}

#[derive(Subcommand)]
enum EmployeeSubcommand {
    /// List employees with their roles and devices.
    List {
        /// Show only employees whose ID, name or department contains this text.
        text: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Add an employee before their first sign-in.
    Add {
        #[command(flatten)]
        target: EmployeeRefArgs,
        /// Display name [default: the employee ID]
        #[arg(long)]
        name: Option<String>,
        /// Department name.
        #[arg(long, default_value = "", hide_default_value = true)]
        department: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Change an employee's name or department.
    ///
    /// The next sign-in through the messaging platform may overwrite both.
    #[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
    Change {
        #[command(flatten)]
        target: EmployeeRefArgs,
        /// Display name.
        #[arg(long, group = "what")]
        name: Option<String>,
        /// Department name.
        #[arg(long, group = "what")]
        department: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Block an employee from signing in and end their sessions.
    Disable(SingleEmployeeArgs),
    /// Let a disabled employee sign in again.
    ///
    /// An employee whom the messaging platform calls inactive is disabled again when it is next asked about them.
    Enable(SingleEmployeeArgs),
    /// Remove an employee with their roles, agent record, links, device and sessions.
    ///
    /// The login log is kept. An employee who can still sign in through the messaging platform is added again by
    /// their next sign-in; use `disable` to keep them out.
    Remove {
        #[command(flatten)]
        single: SingleEmployeeArgs,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
    /// Unlock an account that was locked after wrong passwords or codes.
    Unlock(SingleEmployeeArgs),
    /// Bind a one-time-password device: shows a QR code and asks for the first code.
    ///
    /// Replaces a device that is already bound, after confirmation; the old device works until the new one's first
    /// code is accepted. With --json, prints two JSON documents, one per line: the secret, then the result.
    OtpBind {
        #[command(flatten)]
        single: SingleEmployeeArgs,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
    /// Remove the one-time-password device, so that another one can be bound.
    OtpRemove {
        #[command(flatten)]
        single: SingleEmployeeArgs,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
    /// Link accounts of connected corporations to employees.
    Link(LinkArgs),
    /// Show the login log: who signed in or was refused, when, from where and why.
    Logins(LoginLogArgs),
    /// Show the audit log: changes to accounts and sessions, when and by whom.
    Events(LogArgs),
}

#[derive(Args)]
struct LogArgs {
    /// Show only this employee's entries.
    employee_id: Option<String>,
    /// Maximum number of entries, up to 10,000.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Args)]
struct LoginLogArgs {
    /// Show only entries of then or later: how long ago, such as 2h or 7d, or a time such as 2026-11-16T08:00:00Z.
    #[arg(long, value_name = "AGE|TIME", value_parser = parse_since)]
    since: Option<Timestamp>,
    /// Show only sign-ins that succeeded, or only those that were refused.
    #[arg(long, value_parser = login_outcomes())]
    result: Option<LoginOutcome>,
    #[command(flatten)]
    log: LogArgs,
}

fn login_outcomes() -> impl TypedValueParser<Value = LoginOutcome> {
    let outcomes = [LoginOutcome::Success, LoginOutcome::Refused];
    let words = PossibleValuesParser::new(outcomes.map(LoginOutcome::as_str));
    words.try_map(move |word| outcomes.into_iter().find(|one| one.as_str() == word).ok_or("unknown result"))
}

/// A time, or how long ago it was.
fn parse_since(text: &str) -> Result<Timestamp, String> {
    if let Some(age) = HumanDuration::parse(text) {
        return Ok(Clock::system().now().minus(age.get()));
    }
    Timestamp::parse_rfc3339(text)
        .ok_or_else(|| "write how long ago, such as 30m, 2h or 7d, or a time such as 2026-11-16T08:00:00Z".to_owned())
}

#[derive(Args)]
struct SingleEmployeeArgs {
    #[command(flatten)]
    target: EmployeeRefArgs,
    #[command(flatten)]
    client: ClientArgs,
}

impl SingleEmployeeArgs {
    fn run(&self, command: EmployeeCommand) -> Result<(), Failed> {
        self.client.run(AdminCommand::Employee(command))
    }
}

pub(super) fn run(args: &EmployeeArgs) -> Result<(), Failed> {
    match &args.command {
        EmployeeSubcommand::List { text, client } => {
            client.run(AdminCommand::Employee(EmployeeCommand::List { text: text.clone() }))
        }
        EmployeeSubcommand::Add { target, name, department, client } => {
            client.run(AdminCommand::Employee(EmployeeCommand::Add {
                employee: target.employee(),
                name: name.clone().unwrap_or_else(|| target.employee_id().to_owned()),
                department: department.clone(),
            }))
        }
        EmployeeSubcommand::Change { target, name, department, client } => {
            client.run(AdminCommand::Employee(EmployeeCommand::Change {
                employee: target.employee(),
                name: name.clone(),
                department: department.clone(),
            }))
        }
        EmployeeSubcommand::Disable(single) => {
            let employee = single.target.employee();
            single.run(EmployeeCommand::SetStanding { employee, standing: Standing::Disabled })
        }
        EmployeeSubcommand::Enable(single) => {
            let employee = single.target.employee();
            single.run(EmployeeCommand::SetStanding { employee, standing: Standing::Active })
        }
        EmployeeSubcommand::Remove { single, confirm } => {
            let id = single.target.employee_id();
            confirm.confirm(&format!(
                "Employee {id} will be removed, along with their roles, agent record, links, device and sessions"
            ))?;
            single.run(EmployeeCommand::Remove { employee: single.target.employee() })
        }
        EmployeeSubcommand::Unlock(single) => {
            single.run(EmployeeCommand::Unlock { employee: single.target.employee() })
        }
        EmployeeSubcommand::OtpBind { single, confirm } => bind_device(single, confirm),
        EmployeeSubcommand::OtpRemove { single, confirm } => {
            let id = single.target.employee_id();
            confirm.confirm(&format!("The one-time-password device of {id} will stop working"))?;
            single.run(EmployeeCommand::OtpRemove { employee: single.target.employee() })
        }
        EmployeeSubcommand::Link(args) => link::run(args),
        EmployeeSubcommand::Logins(LoginLogArgs { since, result, log: LogArgs { employee_id, limit, client } }) => {
            let (employee_id, limit) = (employee_id.clone(), usize::from(*limit));
            let command = EmployeeCommand::Logins { employee_id, since: *since, outcome: *result, limit };
            client.run(AdminCommand::Employee(command))
        }
        EmployeeSubcommand::Events(LogArgs { employee_id, limit, client }) => {
            let (employee_id, limit) = (employee_id.clone(), usize::from(*limit));
            client.run(AdminCommand::Employee(EmployeeCommand::Events { employee_id, limit }))
        }
    }
}

fn bind_device(single: &SingleEmployeeArgs, confirm: &ConfirmArgs) -> Result<(), Failed> {
    let SingleEmployeeArgs { target, client } = single;
    let (id, employee) = (target.employee_id(), target.employee());
    let status = client.execute(AdminCommand::Employee(EmployeeCommand::OtpStatus { employee: employee.clone() }))?;
    if let CommandOutput::OtpBound(true) = status {
        confirm.confirm(&format!("{id} already has a device; it will stop working once the new one is bound"))?;
    }
    let offered = client.execute(AdminCommand::Employee(EmployeeCommand::OtpOffer { employee: employee.clone() }))?;
    let CommandOutput::OtpOffered { secret, otpauth_url } = &offered else {
        return Err(print_error("the running gateway is of another version"));
    };
    match client.format() {
        OutputFormat::Json => output::print_output(&offered, OutputFormat::Json)?,
        OutputFormat::Table => {
            let code = terminal_qr::draw(&otpauth_url.0).map_err(print_error)?;
            print(format_args!(
                "{code}\nScan this with the authenticator app of {id}, or enter this key: {}\n",
                secret.0
            ))?;
        }
    }
    for _ in 0..MAX_CODE_ATTEMPTS {
        let code = PlaintextSecret(read_code()?);
        match single.run(EmployeeCommand::OtpBind { employee: employee.clone(), code }) {
            Err(Failed(Exit::Refused)) => {}
            done => return done,
        }
    }
    print_error("no device was bound; run the command again");
    Err(Failed(Exit::Refused))
}

/// Reads a six-digit code; many apps show it with a space in the middle.
fn read_code() -> Result<String, Failed> {
    loop {
        let code: String = read_line("Code shown by the app: ")?.split_whitespace().collect();
        if code.len() == 6 && code.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(code);
        }
        print_error("the code must have six digits");
    }
}
