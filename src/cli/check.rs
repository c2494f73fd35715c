//! `deskgate check`: reports the faults of the configuration, the key files, the certificate, the rules and their cases,
//! all at once. Starts nothing and writes nothing.

use clap::Args;

use super::{ConfigArgs, Exit, Failed, print, print_faults, print_warning};
use crate::app::{self, FileCheck};
use crate::config::{self, ConfigFault};

#[derive(Args)]
pub(super) struct CheckArgs {
    /// Print JSON on standard output: ok, faults, warnings, and the number of upstreams, rules and cases.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &CheckArgs) -> Result<(), Failed> {
    let read = config::read(args.config.config.as_deref(), &args.config.overrides);
    let Some(config) = read.config else {
        let faults: Vec<String> = read.faults.iter().map(ConfigFault::to_string).collect();
        return report(args, &faults, &FileCheck::default(), 0);
    };
    let files = app::check_files(&config, |key| read.faults.iter().any(|fault| fault.affects(key)));
    let of_files = files.faults.iter().map(|fault| read.places.locate(fault));
    let faults: Vec<String> = read.faults.iter().map(ConfigFault::to_string).chain(of_files).collect();
    report(args, &faults, &files, config.upstreams.len())
}

fn report(args: &CheckArgs, faults: &[String], files: &FileCheck, upstreams: usize) -> Result<(), Failed> {
    let FileCheck { warnings, rules, cases, .. } = files;
    if args.json {
        print(serde_json::json!({
            "ok": faults.is_empty(),
            "faults": faults,
            "warnings": warnings,
            "upstreams": upstreams,
            "rules": rules,
            "cases": cases,
        }))?;
        return if faults.is_empty() { Ok(()) } else { Err(Failed(Exit::Failure)) };
    }
    if !faults.is_empty() {
        return Err(print_faults(faults));
    }
    for warning in warnings {
        print_warning(warning);
    }
    let upstreams = count(upstreams, "upstream");
    print(format_args!("ok: {upstreams}, {}, {}", count(*rules, "rule"), count(*cases, "case")))
}

/// A number with its noun, in the plural unless it is one.
fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_count_of_one_is_singular() {
        assert_eq!(["0 cases", "1 case", "2 cases"], [0, 1, 2].map(|number| super::count(number, "case")));
    }
}
