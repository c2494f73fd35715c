//! Warns about settings that are valid and leave a rule weaker than it looks. Logged at start and at every reload, and
//! printed by `deskgate check`.

use crate::config::{ClientAddress, Config};
use crate::rules::{CaseGap, RuleSet};

/// One message per warning.
pub(super) fn of(config: &Config, rules: &RuleSet) -> Vec<String> {
    forgeable_networks(config, rules).into_iter().chain(undeclared_path_cases(rules)).collect()
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

/// One warning per upstream whose rules a client could bypass by writing a path in capitals, if the service ignores case.
fn undeclared_path_cases(rules: &RuleSet) -> Vec<String> {
    let mut upstreams = Vec::new();
    let mut warnings = Vec::new();
    for CaseGap { literal, other } in rules.case_gaps() {
        let upstream = &literal.upstream.name;
        if upstreams.contains(&upstream) {
            continue;
        }
        upstreams.push(upstream);
        warnings.push(format!(
            "upstreams.{upstream}.path_case is not set: if the service ignores case, \"{}\" in capitals bypasses rule `{}` \
             ({}) and matches rule `{}` ({}); set \"insensitive\", or \"sensitive\" if the service does not",
            literal.path, literal.name, literal.place, other.name, other.place
        ));
    }
    warnings
}
