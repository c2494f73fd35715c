//! `deskgate check`

use super::{ConfigArgs, Failed, complain_of, load_rules, say};
use crate::app::RuleSource;

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failed> {
    let config = args.load().map_err(|faults| complain_of(&faults))?;
    let rules = load_rules(&RuleSource::Folder(config.rules.dir.clone()), &config.upstream_names())?;
    let (upstreams, rules, cases) = (config.upstreams.len(), rules.count(), rules.cases());
    say(format_args!("sound: {upstreams} upstreams, {rules} rules, {cases} cases"))
}
