//! `deskgate explain --request-id`: why a request was refused.

use crate::domain::finished_request::RefusedRequest;

/// The phases before the token is read.
const BEFORE_THE_TOKEN: [&str; 4] = ["connection", "arrive", "route", "credentials"];

/// The explanation of one refusal as text.
pub(super) fn text(refused: &RefusedRequest, config: Option<&std::path::Path>) -> String {
    let request = &refused.request;
    let mut lines = vec![format!("{} {}: {}", request.method, request.path, request.reason)];
    let mut add = |name: &str, value: String| lines.push(format!("  {name:<11} {value}"));
    add("when", request.at.iso8601());
    add("request ID", request.request_id.to_string());
    let status = if request.status == 0 { "no response".to_owned() } else { format!("status {}", request.status) };
    add("answer", if request.code == 0 { status } else { format!("{status}, code {}", request.code) });
    add("phase", refused.phase.to_string());
    match (&request.rule, &refused.rule_place) {
        (Some(rule), Some(place)) => add("rule", format!("`{rule}` ({place})")),
        (Some(endpoint), None) => add("endpoint", format!("the gateway's own {endpoint}")),
        (None, _) if refused.phase == "route" => add("rule", "none has this path and method".to_owned()),
        (None, _) => add("rule", "none: the request was refused before it was routed".to_owned()),
    }
    if let Some(check) = &refused.check {
        let wants = refused.wants.as_deref().filter(|wants| !wants.is_empty());
        add("condition", wants.map_or(check.to_string(), |wants| format!("{check}: {wants}")));
    }
    let via = if refused.peer_address == request.client_address {
        String::new()
    } else {
        format!(" (through {})", refused.peer_address)
    };
    add("client", format!("{}{via}", request.client_address));
    if let Some(host) = &refused.host {
        add("host", host.to_string());
    }
    match (&request.employee_id, &refused.caller) {
        (Some(employee), Some(caller)) => {
            let step_up = if caller.stepped_up { "with" } else { "without" };
            let (role, roles) = (&caller.current_role, caller.roles.join(", "));
            add("caller", format!("{employee} as `{role}` (has: {roles}), {step_up} a recent one-time password"));
            add("signed in", format!("by {} in {}", caller.login_method, caller.login_source));
            if !caller.department.is_empty() {
                add("department", caller.department.to_string());
            }
        }
        _ if BEFORE_THE_TOKEN.contains(&&*refused.phase) => {
            add("caller", "not known: the request was refused before its token was read".to_owned());
        }
        _ => add("caller", "not signed in".to_owned()),
    }
    if let Some(upstream) = &request.upstream {
        add("upstream", upstream.to_string());
    }
    add("next step", refused.next_step.to_string());
    if let Some(command) = repeat_command(refused, config) {
        add("repeat", command);
    }
    lines.join("\n")
}

/// The command that explains the same decision, with every check; `None` if it cannot be repeated.
pub(super) fn repeat_command(refused: &RefusedRequest, config: Option<&std::path::Path>) -> Option<String> {
    if !refused.is_repeatable {
        return None;
    }
    let request = &refused.request;
    let mut words =
        vec!["deskgate".to_owned(), "explain".to_owned(), request.method.to_string(), request.path.to_string()];
    let mut add = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
    if let (Some(employee), Some(caller)) = (&request.employee_id, &refused.caller) {
        add("--employee-id", employee);
        add("--role", &caller.current_role);
        for role in caller.roles.iter().filter(|_| caller.roles.len() > 1) {
            add("--holds", role);
        }
        add("--login-method", &caller.login_method);
        add("--login-source", &caller.login_source);
        if let Some(corp) = &request.corp_id {
            add("--corp-id", corp);
        }
        if !caller.name.is_empty() {
            add("--name", &caller.name);
        }
        if !caller.department.is_empty() {
            add("--department", &caller.department);
        }
    }
    add("--address", &request.client_address.to_string());
    if let Some(limit) = refused.rate_limit {
        add("--after", &limit.to_string());
    }
    if let Some(config) = config {
        add("--config", &config.display().to_string());
    }
    if refused.caller.as_ref().is_some_and(|caller| caller.stepped_up) {
        words.push("--stepped-up".to_owned());
    }
    Some(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// Quotes a word for a POSIX shell where that is needed.
fn quoted(word: &str) -> String {
    let is_plain =
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:@%+,=".contains(&byte));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests;
