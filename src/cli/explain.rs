//! `deskgate explain`

use std::io::IsTerminal;
use std::net::IpAddr;

use clap::Args;

use super::{ConfigArgs, Failed, load_rules, print, print_error, print_faults};
use crate::app::RuleSource;
use crate::config::Config;
use crate::rules::RuleSet;
use crate::rules::case::SampleRequest;
use crate::rules::explain::Paint;

/// Say how a request is answered, and why: every condition of every rule that its path fits.
#[derive(Args)]
pub(super) struct ExplainArgs {
    /// The method, such as GET.
    method: String,
    /// The path, without its query.
    path: String,
    /// The active role; without one nobody is signed in.
    #[arg(long)]
    role: Option<String>,
    /// A role that is held; may be given again. Without any, the active one.
    #[arg(long = "holds", value_name = "ROLE")]
    roles: Vec<String>,
    /// The client's address.
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// Who asks.
    #[arg(long, default_value = "u1001")]
    employee_id: String,
    /// Their name.
    #[arg(long, default_value = "")]
    name: String,
    /// Their corporation.
    #[arg(long, default_value = "wwdemo")]
    corp_id: String,
    /// Their department.
    #[arg(long, default_value = "")]
    department: String,
    /// They gave a one-time password lately.
    #[arg(long)]
    stepped_up: bool,
    /// How many requests like this one came just before, for rates.
    #[arg(long, default_value_t = 0, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    after: u32,
    /// For programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

impl ExplainArgs {
    /// The rules of the configuration; without one those of the usual folder, or else the ones that we ship.
    fn rules(&self) -> Result<RuleSet, Failed> {
        let unset = self.config.config.is_none() && self.config.overrides.is_empty();
        if unset {
            let folder = Config::default().rules.dir;
            let source = if folder.is_dir() { RuleSource::Folder(folder) } else { RuleSource::Shipped };
            return load_rules(&source, &["helpdesk"]);
        }
        let config = self.config.load().map_err(|faults| print_faults(&faults))?;
        load_rules(&RuleSource::Folder(config.rules.dir.clone()), &config.upstream_names())
    }
}

pub(super) fn run(args: ExplainArgs) -> Result<(), Failed> {
    let rules = args.rules()?;
    let asked = SampleRequest {
        method: args.method,
        // What follows the question mark decides nothing.
        path: args.path.split(['?', '#']).next().unwrap_or_default().to_owned(),
        role: args.role,
        roles: args.roles,
        address: args.address,
        employee_id: args.employee_id,
        name: args.name,
        corp_id: args.corp_id,
        department: args.department,
        stepped_up: args.stepped_up,
        ..SampleRequest::default()
    };
    let explained = rules.explain(&asked, args.after);
    let text = if args.json {
        serde_json::to_string_pretty(&explained).map_err(print_error)? + "\n"
    } else {
        let paint = if std::io::stdout().is_terminal() { Paint::Colours } else { Paint::None };
        explained.render(paint)
    };
    print(text.trim_end_matches('\n'))
}
