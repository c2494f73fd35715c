//! `deskgate check`: reports the faults of the configuration, the key files, the certificate, the rules and their cases,
//! all at once. Starts nothing and writes nothing.

use super::{ConfigArgs, Failed, print, print_faults, print_warning};
use crate::app;
use crate::config::{self, ConfigFault};

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failed> {
    let read = config::read(args.config.as_deref(), &args.overrides);
    let Some(config) = read.config else {
        return Err(print_faults(&read.faults));
    };
    let files = app::check_files(&config, |key| read.faults.iter().any(|fault| fault.affects(key)));
    let of_files = files.faults.iter().map(|fault| read.places.locate(fault));
    let faults: Vec<String> = read.faults.iter().map(ConfigFault::to_string).chain(of_files).collect();
    if !faults.is_empty() {
        return Err(print_faults(&faults));
    }
    for warning in files.warnings {
        print_warning(warning);
    }
    let upstreams = count(config.upstreams.len(), "upstream");
    print(format_args!("ok: {upstreams}, {}, {}", count(files.rules, "rule"), count(files.cases, "case")))
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
