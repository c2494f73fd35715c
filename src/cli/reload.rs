//! `deskgate reload`

use clap::Args;

use super::client::ask_gateway;
use super::{ConfigArgs, Failed, print, print_error};
use crate::app::{GatewayAnswer, GatewayCommand, ReloadSummary};

#[derive(Args)]
pub(super) struct ReloadArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &ReloadArgs) -> Result<(), Failed> {
    let GatewayAnswer::Reloaded(summary) = ask_gateway(&args.config, &GatewayCommand::Reload)? else {
        return Err(print_error("the running gateway is of another version"));
    };
    if args.json {
        return print(serde_json::json!(summary));
    }
    print(text(&summary))
}

fn text(summary: &ReloadSummary) -> String {
    let ReloadSummary { rules, rules_changed, applied, needs_restart } = summary;
    let changed = if *rules_changed { "changed" } else { "unchanged" };
    let mut lines = vec![format!("reloaded: {rules} rules ({changed}), keys and certificates")];
    match applied.is_empty() {
        true => lines.push("changed settings: none".to_owned()),
        false => lines.push(format!("changed settings: {}", applied.join(", "))),
    }
    if !needs_restart.is_empty() {
        lines.push(format!("changed settings that need a restart: {}", needs_restart.join(", ")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_and_what_needs_a_restart_is_listed() {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let summary = ReloadSummary {
            rules: 3,
            rules_changed: true,
            applied: keys(&["server.drain"]),
            needs_restart: keys(&["server.listen", "token.lifetime"]),
        };
        let expected = "reloaded: 3 rules (changed), keys and certificates\nchanged settings: server.drain\n\
                        changed settings that need a restart: server.listen, token.lifetime";
        assert_eq!(text(&summary), expected);
        let nothing = ReloadSummary { rules_changed: false, applied: vec![], needs_restart: vec![], ..summary };
        assert_eq!(text(&nothing), "reloaded: 3 rules (unchanged), keys and certificates\nchanged settings: none");
    }
}
