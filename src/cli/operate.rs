//! `deskgate session …` and `deskgate role …`: through the running gateway's socket, or on its data when
//! none runs.

use clap::{Args, Subcommand};

use super::{ConfigArgs, Failed, complain, complain_of, runtime};
use crate::app::{self, ControlFault};
use crate::operate::{Command, Done, OperateFault};

/// `deskgate session …`
#[derive(Args)]
pub(super) struct SessionArgs {
    #[command(subcommand)]
    order: SessionOrder,
}

#[derive(Subcommand)]
enum SessionOrder {
    /// Shows live sessions.
    List(ListArgs),
    /// Ends a session and its sockets.
    End {
        /// Its id, as `list` shows it.
        id: String,
        #[command(flatten)]
        config: ConfigArgs,
    },
}

/// `deskgate role …`
#[derive(Args)]
pub(super) struct RoleArgs {
    #[command(subcommand)]
    order: RoleOrder,
}

#[derive(Subcommand)]
enum RoleOrder {
    /// Shows who has which role.
    List(ListArgs),
    /// Gives a role; live sessions have it at once.
    Grant(AssignArgs),
    /// Takes a role; live sessions lose it at once.
    Take(AssignArgs),
}

#[derive(Args)]
struct ListArgs {
    /// JSON for scripts instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Args)]
struct AssignArgs {
    /// Whose.
    employee_id: String,
    /// Which role.
    role: String,
    #[command(flatten)]
    config: ConfigArgs,
}

/// How a list is shown.
#[derive(Clone, Copy)]
enum Shown {
    Table,
    Json,
}

impl ListArgs {
    fn shown(&self) -> Shown {
        if self.json { Shown::Json } else { Shown::Table }
    }
}

pub(super) fn session(args: &SessionArgs) -> Result<(), Failed> {
    match &args.order {
        SessionOrder::List(list) => order(&list.config, Command::SessionList, list.shown()),
        SessionOrder::End { id, config } => order(config, Command::SessionEnd { id: id.clone() }, Shown::Table),
    }
}

pub(super) fn role(args: &RoleArgs) -> Result<(), Failed> {
    let named = |assign: &AssignArgs| (assign.employee_id.clone(), assign.role.clone());
    match &args.order {
        RoleOrder::List(list) => order(&list.config, Command::RoleList, list.shown()),
        RoleOrder::Grant(assign) => {
            let (employee_id, role) = named(assign);
            order(&assign.config, Command::RoleGrant { employee_id, role }, Shown::Table)
        }
        RoleOrder::Take(assign) => {
            let (employee_id, role) = named(assign);
            order(&assign.config, Command::RoleTake { employee_id, role }, Shown::Table)
        }
    }
}

fn order(args: &ConfigArgs, command: Command, shown: Shown) -> Result<(), Failed> {
    let config = args.load().map_err(|faults| complain_of(&faults))?;
    let done = runtime(1)?.block_on(async {
        match app::call(&config.server.data_dir, &command).await {
            Ok(done) => done.map_err(complain),
            Err(ControlFault::NotRunning) => {
                let (operator, _lock) = app::open_offline(&config).await.map_err(complain)?;
                operator.run(command).await.map_err(|fault: OperateFault| complain(fault))
            }
            Err(fault) => Err(complain(fault)),
        }
    })?;
    show(&done, shown);
    Ok(())
}

#[allow(clippy::print_stdout)] // what the commands are for
fn show(done: &Done, shown: Shown) {
    match (done, shown) {
        (Done::Sessions(rows), Shown::Json) => println!("{}", serde_json::json!(rows)),
        (Done::Assignments(rows), Shown::Json) => println!("{}", serde_json::json!(rows)),
        (Done::Sessions(rows), Shown::Table) => {
            let cells = rows.iter().map(|row| {
                [&row.id, &row.employee_id, &row.current_role, &row.login_method, &row.address, &row.since, &row.until]
                    .map(String::clone)
                    .to_vec()
            });
            table(&["SESSION", "EMPLOYEE", "ROLE", "METHOD", "ADDRESS", "SINCE", "UNTIL"], cells.collect());
        }
        (Done::Assignments(rows), Shown::Table) => {
            let cells =
                rows.iter().map(|row| vec![row.employee_id.to_string(), row.name.clone(), row.role.to_string()]);
            table(&["EMPLOYEE", "NAME", "ROLE"], cells.collect());
        }
        (Done::Changed { sessions }, _) => println!("done; live sessions affected: {sessions}"),
        (Done::Unchanged, _) => println!("nothing to change"),
    }
}

#[allow(clippy::print_stdout)] // what the commands are for
fn table(heads: &[&str], rows: Vec<Vec<String>>) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        padded.join("  ").trim_end().to_owned()
    };
    println!("{}", line(heads.to_vec()));
    for row in &rows {
        println!("{}", line(row.iter().map(String::as_str).collect()));
    }
}
