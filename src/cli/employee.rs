//! `deskgate employee …`

use clap::{Args, Subcommand};

use super::operate::{OrderArgs, SureArgs, WhoArgs, line};
use super::show::Shown;
use super::{Exit, Failed, print, print_error, show, terminal_qr};
use crate::admin::employees::EmployeeCommand;
use crate::admin::{Command, Done, Typed};
use crate::domain::employee::Standing;

/// `deskgate employee …`
#[derive(Args)]
pub(super) struct EmployeeArgs {
    #[command(subcommand)]
    order: EmployeeSubcommand,
}

#[derive(Subcommand)]
enum EmployeeSubcommand {
    /// Show employees, their roles and devices.
    List {
        /// Only those whose id, name or department has this in it.
        text: Option<String>,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Put an employee down before their first sign-in.
    Add {
        #[command(flatten)]
        who: WhoArgs,
        /// Display name; the id without.
        #[arg(long)]
        name: Option<String>,
        /// Department's name.
        #[arg(long, default_value = "")]
        department: String,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Change what is known of an employee; their next sign-in through the platform may change it again.
    #[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
    Change {
        #[command(flatten)]
        who: WhoArgs,
        /// Display name.
        #[arg(long, group = "what")]
        name: Option<String>,
        /// Department's name.
        #[arg(long, group = "what")]
        department: Option<String>,
        #[command(flatten)]
        args: OrderArgs,
    },
    /// Let an employee sign in no more; their sessions end at once.
    Disable(Named),
    /// Let an employee sign in again.
    Enable(Named),
    /// Remove an employee with roles, agent's record and device; the login log stays.
    ///
    /// Whoever can still sign in through the platform is put down anew by their next sign-in: `disable` keeps people out.
    Remove {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Let an account be tried again that wrong passwords or codes have locked.
    Unlock(Named),
    /// Bind a one-time-password device: shows a QR code to scan, then wants the device's first code.
    ///
    /// A device that is bound already works until then, and no more afterwards; that is asked first. With `--json` two
    /// documents are printed, one a line: the secret, then the outcome.
    OtpBind {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Remove the one-time-password device, so that another can be bound.
    OtpRemove {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Show the login log: who signed in or was refused, when, from where, and why.
    Logins(Lines),
    /// Show the audit log: logouts, step-ups, devices, passwords, roles and operators' orders, when and by whom.
    Events(Lines),
}

#[derive(Args)]
struct Lines {
    /// Of this employee only.
    employee_id: Option<String>,
    /// So many lines at most, up to 10,000.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    #[command(flatten)]
    args: OrderArgs,
}

#[derive(Args)]
struct Named {
    #[command(flatten)]
    who: WhoArgs,
    #[command(flatten)]
    args: OrderArgs,
}

impl Named {
    fn order(&self, order: EmployeeCommand) -> Result<(), Failed> {
        self.args.order(Command::Employee(order))
    }
}

pub(super) fn run(args: &EmployeeArgs) -> Result<(), Failed> {
    match &args.order {
        EmployeeSubcommand::List { text, args } => {
            args.order(Command::Employee(EmployeeCommand::List { text: text.clone() }))
        }
        EmployeeSubcommand::Add { who, name, department, args } => {
            args.order(Command::Employee(EmployeeCommand::Add {
                who: who.who(),
                name: name.clone().unwrap_or_else(|| who.id().to_owned()),
                department: department.clone(),
            }))
        }
        EmployeeSubcommand::Change { who, name, department, args } => {
            args.order(Command::Employee(EmployeeCommand::Change {
                who: who.who(),
                name: name.clone(),
                department: department.clone(),
            }))
        }
        EmployeeSubcommand::Disable(named) => {
            named.order(EmployeeCommand::Stand { who: named.who.who(), standing: Standing::Disabled })
        }
        EmployeeSubcommand::Enable(named) => {
            named.order(EmployeeCommand::Stand { who: named.who.who(), standing: Standing::Active })
        }
        EmployeeSubcommand::Remove { named, sure } => {
            sure.ask(&format!("Employee {} goes, with roles, agent's record, device and sessions", named.who.id()))?;
            named.order(EmployeeCommand::Remove { who: named.who.who() })
        }
        EmployeeSubcommand::Unlock(named) => named.order(EmployeeCommand::Unlock { who: named.who.who() }),
        EmployeeSubcommand::OtpBind { named, sure } => bind(named, sure),
        EmployeeSubcommand::OtpRemove { named, sure } => {
            sure.ask(&format!("The one-time-password device of {} works no more", named.who.id()))?;
            named.order(EmployeeCommand::OtpRemove { who: named.who.who() })
        }
        EmployeeSubcommand::Logins(lines) => lines.args.order(Command::Employee(EmployeeCommand::Logins {
            employee_id: lines.employee_id.clone(),
            limit: usize::from(lines.limit),
        })),
        EmployeeSubcommand::Events(lines) => lines.args.order(Command::Employee(EmployeeCommand::Events {
            employee_id: lines.employee_id.clone(),
            limit: usize::from(lines.limit),
        })),
    }
}

/// Six digits; devices show them with a blank between.
fn code() -> Result<String, Failed> {
    loop {
        let code: String = line("The code that the device shows: ")?.split_whitespace().collect();
        if code.len() == 6 && code.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(code);
        }
        print_error("a code has six digits");
    }
}

/// How often a code may be mistyped before one begins again.
const TRIES: usize = 3;

fn bind(named: &Named, sure: &SureArgs) -> Result<(), Failed> {
    let Named { who, args } = named;
    if let Done::OtpBound(true) = args.carry_out(Command::Employee(EmployeeCommand::OtpLook { who: who.who() }))? {
        sure.ask(&format!("{} has a device, which works no more once another is bound", who.id()))?;
    }
    let offered = args.carry_out(Command::Employee(EmployeeCommand::OtpOffer { who: who.who() }))?;
    let Done::Offered { secret, otpauth_url } = &offered else { return Err(print_error("no secret was offered")) };
    match args.shown() {
        Shown::Json => show::done(&offered, Shown::Json)?,
        Shown::Table => {
            let code = terminal_qr::draw(&otpauth_url.0).map_err(print_error)?;
            let id = who.id();
            print(format_args!("{code}\nScan this with the authenticator of {id}, or type in: {}\n", secret.0))?;
        }
    }
    for _ in 0..TRIES {
        let code = Typed(code()?);
        match args.order(Command::Employee(EmployeeCommand::OtpBind { who: who.who(), code })) {
            Err(Failed(Exit::Refused)) => {}
            done => return done,
        }
    }
    print_error("nothing was bound; begin again");
    Err(Failed(Exit::Refused))
}
