//! Warns about settings that are valid and leave a rule weaker than it looks. Logged at start and at every reload, and
//! printed by `deskgate check`.

use crate::config::{ClientAddress, Config};
use crate::rules::RuleSet;

/// One message per warning.
pub(super) fn of(config: &Config, rules: &RuleSet) -> Vec<String> {
    forgeable_networks(config, rules).into_iter().collect()
}

/// Rules that depend on an address which clients can choose, if the outermost proxy appends to their `X-Forwarded-For`.
fn forgeable_networks(config: &Config, rules: &RuleSet) -> Option<String> {
    let server = &config.server;
    if server.client_address != ClientAddress::First || server.trusted_proxies.is_empty() {
        return None;
    }
    let rule = rules.all().iter().find(|rule| !rule.networks.is_empty())?;
    Some(format!(
        "server.client_address = \"first\": rule `{}` ({}) has `networks`, and a client behind a proxy that appends to \
         X-Forwarded-For can choose its address; set \"rightmost\"",
        rule.name, rule.place
    ))
}
