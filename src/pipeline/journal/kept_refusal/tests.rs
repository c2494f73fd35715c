use super::*;
use crate::pipeline::journal::tests::refused;

fn of_a_caller() -> RefusedRequest<'static> {
    RefusedRequest {
        check: Some("when".into()),
        wants: Some("department == \"IT 服务\"".into()),
        rule_place: Some("desk.toml:3".into()),
        host: Some("".into()),
        caller: Some(RefusedCaller {
            current_role: "user".into(),
            roles: vec!["user".into(), "agent".into()],
            name: "李雷".into(),
            department: "".into(),
            login_method: "oauth2".into(),
            login_source: "h5".into(),
            stepped_up: true,
        }),
        rate_limit: Some(30),
        is_repeatable: false,
        next_step: "Switch.".into(),
        ..refused("0123456789abcdef", 7, 40)
    }
}

#[test]
fn a_kept_refusal_is_the_one_that_was_copied() {
    let without_roles = RefusedCaller { roles: vec![], ..of_a_caller().caller.expect("a caller") };
    let table = [
        ("without a caller", refused("0123456789abcdef", 7, 0)),
        ("with a caller", of_a_caller()),
        ("of a caller without roles", RefusedRequest { caller: Some(without_roles), ..of_a_caller() }),
    ];
    for (case, refused) in table {
        let kept = KeptRefusal::new(&refused, Vec::new());
        assert_eq!(kept.refusal(), refused, "{case}");
        assert_eq!((kept.request_id(), kept.at()), ("0123456789abcdef", Timestamp::from_seconds(7)), "{case}");
    }
}

#[test]
fn the_memory_of_an_older_refusal_is_used_again() {
    let first = KeptRefusal::new(&of_a_caller(), Vec::new()).into_memory();
    let address = first.as_ptr();
    let second = KeptRefusal::new(&refused("fedcba9876543210", 8, 30), first);
    assert_eq!(second.refusal(), refused("fedcba9876543210", 8, 30), "nothing of the first one is left");
    let memory = second.into_memory();
    assert_eq!(memory.as_ptr(), address);
}

#[test]
fn memory_that_only_a_much_longer_refusal_needed_is_freed() {
    let long = KeptRefusal::new(&refused("long", 7, 10_000), Vec::new());
    assert!(long.memory_bytes() > 10_000);
    let short = KeptRefusal::new(&refused("short", 8, 10), long.into_memory());
    assert!(short.memory_bytes() < 1_000, "{}", short.memory_bytes());
}
