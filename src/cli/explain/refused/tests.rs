use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::*;
use crate::domain::finished_request::{FinishedRequest, RefusedCaller};

fn refused() -> RefusedRequest<'static> {
    RefusedRequest {
        request: FinishedRequest::sample(),
        phase: "authorize".into(),
        check: Some("roles".into()),
        wants: Some("agent, supervisor".into()),
        rule_place: Some("desk.toml:3".into()),
        peer_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        host: None,
        caller: Some(RefusedCaller {
            current_role: "user".into(),
            roles: vec!["user".into(), "agent".into()],
            name: "Li O'Neil".into(),
            department: "".into(),
            login_method: "oauth2".into(),
            login_source: "h5".into(),
            stepped_up: true,
        }),
        rate_limit: None,
        is_repeatable: true,
        next_step: "Switch.".into(),
    }
}

#[test]
fn rule_condition_code_and_proxy_are_named() {
    let text = text(&refused(), None);
    for part in [
        "`agent desk` (desk.toml:3)",
        "roles: agent, supervisor",
        "code 1003",
        "10.1.2.3 (through 127.0.0.1)",
        "u1001 as `user` (has: user, agent)",
        "next step   Switch.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_command_that_repeats_a_decision_is_quoted_for_the_shell() {
    let command = repeat_command(&refused(), Some(Path::new("/etc/my gate.toml"))).expect("a command");
    assert_eq!(
        command,
        r"deskgate explain GET /api/agent-desk/x --employee-id u1001 --role user --holds user --holds agent --login-method oauth2 --login-source h5 --corp-id wwdemo --name 'Li O'\''Neil' --address 10.1.2.3 --config '/etc/my gate.toml' --stepped-up"
    );
    assert_eq!(quoted("$(reboot)"), "'$(reboot)'");
}

#[test]
fn what_explain_cannot_repeat_has_no_command() {
    assert_eq!(repeat_command(&RefusedRequest { is_repeatable: false, ..refused() }, None), None);
}

#[test]
fn an_exceeded_rate_is_repeated_after_as_many_requests_as_it_admits() {
    let limited = RefusedRequest { rate_limit: Some(30), caller: None, ..refused() };
    assert!(repeat_command(&limited, None).is_some_and(|command| command.contains("--after 30")));
}

#[test]
fn a_caller_whose_token_was_not_read_is_not_called_anonymous() {
    for (phase, expected) in [("route", "refused before its token was read"), ("verify", "not signed in")] {
        let anonymous = RefusedRequest { phase: phase.into(), caller: None, ..refused() };
        let anonymous = text(&anonymous, None);
        assert!(anonymous.contains(expected), "{phase}: {anonymous}");
    }
}
