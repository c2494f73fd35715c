//! `deskgate check`

use super::{ConfigArgs, Failed, complain_of, load_rules};
use crate::app::RuleSource;

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failed> {
    let config = args.load().map_err(|faults| complain_of(&faults))?;
    let rules = load_rules(&RuleSource::Folder(config.rules.dir.clone()), &config.upstream_names())?;
    #[allow(clippy::print_stdout)] // what the command is for
    {
        println!("sound: {} upstreams, {} rules, {} cases", config.upstreams.len(), rules.count(), rules.cases());
    }
    Ok(())
}
