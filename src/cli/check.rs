//! `deskgate check`

use super::{ConfigArgs, Failed, complain, complain_of};
use crate::app::RuleSource;
use crate::metrics::Metrics;

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failed> {
    let config = args.load().map_err(|faults| complain_of(&faults))?;
    let metrics = Metrics::new().map_err(complain)?;
    let rules =
        RuleSource::Folder(config.rules.dir.clone()).load(&config.upstream_names(), &metrics).map_err(|faults| {
            for fault in &faults {
                eprintln!("{fault}");
            }
            Failed
        })?;
    #[allow(clippy::print_stdout)] // what the command is for
    {
        println!("sound: {} upstreams, {} rules, {} cases", config.upstreams.len(), rules.count(), rules.cases());
    }
    Ok(())
}
