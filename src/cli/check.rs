//! `deskgate check`

use super::{ConfigArgs, Failed, load_rules, print_faults, say};
use crate::app::RuleSource;

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failed> {
    let config = args.load().map_err(|faults| print_faults(&faults))?;
    let rules = load_rules(&RuleSource::Folder(config.rules.dir.clone()), &config.upstream_names())?;
    let (upstreams, rules, cases) = (config.upstreams.len(), rules.count(), rules.cases());
    say(format_args!("sound: {upstreams} upstreams, {rules} rules, {cases} cases"))
}
