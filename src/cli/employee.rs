//! `deskgate employee …`

use clap::{Args, Subcommand};

use super::operate::{OrderArgs, SureArgs, WhoArgs, line};
use super::show::Shown;
use super::{Exit, Failed, complain, say, show, terminal_qr};
use crate::domain::employee::Standing;
use crate::operate::employees::EmployeeOrder;
use crate::operate::{Command, Done, Typed};

/// `deskgate employee …`
#[derive(Args)]
pub(super) struct EmployeeArgs {
    #[command(subcommand)]
    order: Order,
}

#[derive(Subcommand)]
enum Order {
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
    fn order(&self, order: EmployeeOrder) -> Result<(), Failed> {
        self.args.order(Command::Employee(order))
    }
}

pub(super) fn run(args: &EmployeeArgs) -> Result<(), Failed> {
    match &args.order {
        Order::List { text, args } => args.order(Command::Employee(EmployeeOrder::List { text: text.clone() })),
        Order::Add { who, name, department, args } => args.order(Command::Employee(EmployeeOrder::Add {
            who: who.who(),
            name: name.clone().unwrap_or_else(|| who.id().to_owned()),
            department: department.clone(),
        })),
        Order::Change { who, name, department, args } => args.order(Command::Employee(EmployeeOrder::Change {
            who: who.who(),
            name: name.clone(),
            department: department.clone(),
        })),
        Order::Disable(named) => {
            named.order(EmployeeOrder::Stand { who: named.who.who(), standing: Standing::Disabled })
        }
        Order::Enable(named) => named.order(EmployeeOrder::Stand { who: named.who.who(), standing: Standing::Active }),
        Order::Remove { named, sure } => {
            sure.ask(&format!("Employee {} goes, with roles, agent's record, device and sessions", named.who.id()))?;
            named.order(EmployeeOrder::Remove { who: named.who.who() })
        }
        Order::Unlock(named) => named.order(EmployeeOrder::Unlock { who: named.who.who() }),
        Order::OtpBind { named, sure } => bind(named, sure),
        Order::OtpRemove { named, sure } => {
            sure.ask(&format!("The one-time-password device of {} works no more", named.who.id()))?;
            named.order(EmployeeOrder::OtpRemove { who: named.who.who() })
        }
        Order::Logins(lines) => lines.args.order(Command::Employee(EmployeeOrder::Logins {
            employee_id: lines.employee_id.clone(),
            limit: usize::from(lines.limit),
        })),
        Order::Events(lines) => lines.args.order(Command::Employee(EmployeeOrder::Events {
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
        complain("a code has six digits");
    }
}

/// How often a code may be mistyped before one begins again.
const TRIES: usize = 3;

fn bind(named: &Named, sure: &SureArgs) -> Result<(), Failed> {
    let Named { who, args } = named;
    if let Done::OtpBound(true) = args.carry_out(Command::Employee(EmployeeOrder::OtpLook { who: who.who() }))? {
        sure.ask(&format!("{} has a device, which works no more once another is bound", who.id()))?;
    }
    let offered = args.carry_out(Command::Employee(EmployeeOrder::OtpOffer { who: who.who() }))?;
    let Done::Offered { secret, otpauth_url } = &offered else { return Err(complain("no secret was offered")) };
    match args.shown() {
        Shown::Json => show::done(&offered, Shown::Json)?,
        Shown::Table => {
            let code = terminal_qr::draw(&otpauth_url.0).map_err(complain)?;
            let id = who.id();
            say(format_args!("{code}\nScan this with the authenticator of {id}, or type in: {}\n", secret.0))?;
        }
    }
    for _ in 0..TRIES {
        let code = Typed(code()?);
        match args.order(Command::Employee(EmployeeOrder::OtpBind { who: who.who(), code })) {
            Err(Failed(Exit::Refused)) => {}
            done => return done,
        }
    }
    complain("nothing was bound; begin again");
    Err(Failed(Exit::Refused))
}
